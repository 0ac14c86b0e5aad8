//! Hosts of our own on one machine: network namespaces on one bridge, with links that can be cut.
//!
//! Everything is inside namespaces made here: nothing of the machine's own network is touched. It
//! needs root, and `ip` and `nft`; [`Lan::missing`] says what is not there.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};

use super::mesh::Program;

/// What a port costs nobody in a namespace of one's own.
pub const PORT: u16 = 47600;

/// What every namespace of ours is called first; then comes the process that made it.
const PREFIX: &str = "gpuvine";

static MADE: AtomicU32 = AtomicU32::new(0);

/// Some hosts on one network. They are gone when this is dropped.
#[derive(Debug)]
pub struct Lan {
    /// The namespace with the bridge.
    bridge: String,
    hosts: Vec<String>,
}

impl Lan {
    /// Why there can be none here, if there can be none.
    pub fn missing() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("network namespaces need root".to_owned());
        }
        let absent = |tool: &&str| {
            let call = Command::new(tool).arg("--version").output();
            let call = call.or_else(|_| Command::new(tool).arg("-V").output());
            call.is_err()
        };
        let tool = ["ip", "nft"].into_iter().find(absent)?;
        Some(format!("`{tool}` is not installed (Debian: iproute2, nftables)"))
    }

    /// A network of this many hosts.
    ///
    /// # Errors
    /// If a namespace, a link or an address cannot be made.
    pub fn new(hosts: u8) -> Result<Self> {
        remove_orphans();
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let name = |host: &str| format!("{PREFIX}-{}-{made}-{host}", std::process::id());
        let mut lan = Self { bridge: name("br"), hosts: Vec::new() };
        let bridge = lan.bridge.clone();
        ip(&["netns", "add", &bridge])?;
        ip(&["-n", &bridge, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &bridge, "link", "set", "br0", "up"])?;
        for index in 0..hosts {
            let host = name(&index.to_string());
            ip(&["netns", "add", &host])?;
            lan.hosts.push(host.clone());
            let port = format!("port{index}");
            let peer = ["type", "veth", "peer", "name", "eth0", "netns", &host];
            ip(&[&["-n", &bridge, "link", "add", &port], &peer[..]].concat())?;
            ip(&["-n", &bridge, "link", "set", &port, "master", "br0", "up"])?;
            ip(&["-n", &host, "link", "set", "lo", "up"])?;
            ip(&["-n", &host, "link", "set", "eth0", "up"])?;
            lan.give_address(index, index + 1)?;
            let rules = "table inet cut { set from { type ipv4_addr; }; set from6 { type ipv6_addr; }; \
                 chain input { type filter hook input priority 0; ip saddr @from drop; \
                 ip6 saddr @from6 drop; }; }";
            lan.nft(index, rules)?;
        }
        Ok(lan)
    }

    /// Gives a host the addresses with this number at the end, and takes its others.
    ///
    /// # Errors
    /// If they cannot be set.
    pub fn give_address(&self, index: u8, number: u8) -> Result<()> {
        let host = self.host(index);
        ip(&["-n", host, "address", "flush", "dev", "eth0", "scope", "global"])?;
        let (v4, v6) = (format!("10.77.0.{number}/24"), format!("fd77::{number:x}/64"));
        ip(&["-n", host, "address", "add", &v4, "dev", "eth0"])?;
        ip(&["-n", host, "address", "add", &v6, "dev", "eth0", "nodad"])
    }

    /// A program, run on a host.
    pub fn on(&self, index: u8, program: &Program) -> Program {
        let within = ["netns", "exec", self.host(index)].map(Into::into);
        let called = [program.path.clone().into()];
        let prefix = within.into_iter().chain(called).chain(program.prefix.iter().cloned());
        Program { path: "ip".into(), prefix: prefix.collect() }
    }

    /// From now on nothing from one host reaches another; the other way is as it was.
    ///
    /// # Errors
    /// If the rule cannot be set.
    pub fn cut(&self, from: u8, to: u8) -> Result<()> {
        let number = from + 1;
        self.nft(to, &format!("add element inet cut from {{ 10.77.0.{number} }}"))?;
        self.nft(to, &format!("add element inet cut from6 {{ fd77::{number:x} }}"))
    }

    /// From now on no host of one group hears one of another, and the other way.
    ///
    /// # Errors
    /// If a rule cannot be set.
    pub fn split(&self, left: &[u8], right: &[u8]) -> Result<()> {
        for &one in left {
            for &other in right {
                self.cut(one, other)?;
                self.cut(other, one)?;
            }
        }
        Ok(())
    }

    /// All links are as new.
    ///
    /// # Errors
    /// If a rule cannot be taken away.
    pub fn heal(&self) -> Result<()> {
        for index in 0..u8::try_from(self.hosts.len())? {
            self.nft(index, "flush set inet cut from; flush set inet cut from6")?;
        }
        Ok(())
    }

    fn host(&self, index: u8) -> &str {
        &self.hosts[usize::from(index)]
    }

    fn nft(&self, index: u8, rules: &str) -> Result<()> {
        ip(&["netns", "exec", self.host(index), "nft", rules])
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for name in self.hosts.iter().chain([&self.bridge]) {
            // What is not there need not be removed.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

/// Removes what processes that are gone have left.
fn remove_orphans() {
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let mut parts = name.split('-');
        let (ours, pid) = (parts.next() == Some(PREFIX), parts.next());
        let gone = |pid: &str| !std::path::Path::new("/proc").join(pid).exists();
        if ours && pid.is_some_and(gone) {
            // Another process may do the same.
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = output.context("`ip` cannot be run")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {}`: {}", arguments.join(" "), told.trim());
    Ok(())
}
