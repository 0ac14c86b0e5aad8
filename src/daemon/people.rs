//! Who a user of this machine is: the name behind a socket's peer, and what a task inherits.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::run::environment::Variable;

/// The name of a user id; the number itself where there is no name.
pub(super) fn name_of(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    entry(&passwd, uid).map_or_else(|| uid.to_string(), |fields| fields[0].to_owned())
}

/// What tasks inherit of the account that the daemon runs under.
pub(super) fn account() -> Vec<Variable> {
    let uid = rustix::process::geteuid().as_raw();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let variable = |name: &str, value: &OsStr| (name.into(), value.as_bytes().to_vec());
    let Some(fields) = entry(&passwd, uid) else {
        let home = std::env::var_os("HOME").unwrap_or_else(|| "/".into());
        return vec![variable("HOME", &home)];
    };
    vec![
        variable("USER", OsStr::new(fields[0])),
        variable("LOGNAME", OsStr::new(fields[0])),
        variable("HOME", OsStr::new(fields[5])),
        variable("SHELL", OsStr::new(fields[6])),
    ]
}

/// The seven fields of a user's line in passwd(5).
fn entry(passwd: &str, uid: u32) -> Option<Vec<&str>> {
    passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.len() == 7 && fields[2].parse() == Ok(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_passwd_is_found_by_its_number() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbroken\nada:x:7:7::/home/ada:/bin/sh\n";
        assert_eq!(entry(passwd, 7).unwrap()[5], "/home/ada");
        assert!(entry(passwd, 8).is_none());
    }
}
