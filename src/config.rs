//! The daemon's configuration: file < environment < flags, resolved once at start.
//!
//! Also where things lie on a machine, which the command line needs as well.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::core::time::Duration;

/// Bytes of a Unix socket's path that every system allows.
const SOCKET_PATH_MAX: usize = 100;

/// Where things lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The state folder: keys, database, tasks.
    pub dir: PathBuf,
    /// The local API.
    pub socket: PathBuf,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is there and cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not as documented.
    #[error("{} line {line}: {why}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// In which line, counted from 1.
        line: usize,
        /// What is wrong there, with which key, and what is allowed.
        why: String,
    },
    /// No folder is named, and none can be guessed.
    #[error("no state folder: set HOME, or name one with --dir")]
    NoFolder,
    /// A duration is not understood.
    #[error("{}: kill_grace = \"{text}\" is not a duration: write e.g. \"10s\" or \"2m\"", path.display())]
    Duration {
        /// The file.
        path: PathBuf,
        /// The text.
        text: String,
    },
    /// The socket's path is longer than the system allows.
    #[error("the path of the socket is too long ({} has {SOCKET_PATH_MAX} bytes at most): choose a shorter folder, or name the socket with --socket", .0.display())]
    SocketPath(PathBuf),
}

/// What a user names on the command line; `None` leaves it to the environment and the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The state folder.
    pub dir: Option<PathBuf>,
    /// The local API's socket.
    pub socket: Option<PathBuf>,
    /// The node's name.
    pub name: Option<String>,
    /// Where to listen.
    pub listen: Vec<String>,
    /// Peers to dial.
    pub peers: Vec<String>,
    /// No multicast.
    pub no_mdns: bool,
    /// Which GPUs.
    pub gpus: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Wish to be controller.
    pub priority: Option<i32>,
}

/// The file `config.toml` in the state folder. Every key may be absent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    name: Option<String>,
    labels: BTreeMap<String, String>,
    listen: Vec<String>,
    peers: Vec<String>,
    mdns: Option<bool>,
    gpus: Option<String>,
    priority: Option<i32>,
    tasks_max: Option<u32>,
    output_max_bytes: Option<u64>,
    kill_grace: Option<String>,
}

/// The configuration of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where things lie.
    pub paths: Paths,
    /// What people call the machine; its host name if nothing else is said.
    pub name: Option<String>,
    /// Words about the node.
    pub labels: BTreeMap<String, String>,
    /// Multiaddresses to listen on.
    pub listen: Vec<String>,
    /// Multiaddresses to dial while there is no link.
    pub peers: Vec<String>,
    /// Whether to look for peers on the local network. On unless switched off.
    pub mdns: bool,
    /// `auto`, `none`, or `sim:` and what to simulate.
    pub gpus: String,
    /// Wish to be controller: higher is better placed.
    pub priority: i32,
    /// Tasks that may run here at once.
    pub tasks_max: u32,
    /// Bytes kept of each output of a task; of more, the beginning and the end.
    pub output_max_bytes: u64,
    /// Time between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
}

/// Where to listen if nobody says otherwise: a fixed port, so that addresses survive a restart.
const LISTEN: [&str; 4] = [
    "/ip4/0.0.0.0/tcp/47600",
    "/ip4/0.0.0.0/udp/47600/quic-v1",
    "/ip6/::/tcp/47600",
    "/ip6/::/udp/47600/quic-v1",
];

impl Paths {
    /// Where things lie, by what the user names, the environment, and who they are.
    ///
    /// # Errors
    /// If no folder can be found or the socket's path is too long.
    pub fn resolve(
        overrides: &Overrides,
        environment: &dyn Fn(&str) -> Option<OsString>,
        root: bool,
    ) -> Result<Self, ConfigError> {
        let path = |name: &str| environment(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let named = overrides.dir.clone().or_else(|| path("GPUVINE_DIR"));
        let socket = overrides.socket.clone().or_else(|| path("GPUVINE_SOCKET"));
        let (dir, default) = match named {
            Some(dir) => (dir.clone(), dir.join("gpuvine.sock")),
            None if root => {
                (PathBuf::from("/var/lib/gpuvine"), PathBuf::from("/run/gpuvine/gpuvine.sock"))
            }
            None => {
                let state = path("XDG_STATE_HOME")
                    .or_else(|| path("HOME").map(|home| home.join(".local/state")))
                    .ok_or(ConfigError::NoFolder)?;
                let dir = state.join("gpuvine");
                let runtime = path("XDG_RUNTIME_DIR");
                let socket = runtime.map(|runtime| runtime.join("gpuvine.sock"));
                (dir.clone(), socket.unwrap_or_else(|| dir.join("gpuvine.sock")))
            }
        };
        let socket = socket.unwrap_or(default);
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(ConfigError::SocketPath(socket));
        }
        Ok(Self { dir, socket })
    }

    /// The secret of the node's identity.
    pub fn identity(&self) -> PathBuf {
        self.dir.join("identity.key")
    }

    /// The secret of the mesh, where it was founded.
    pub fn mesh_key(&self) -> PathBuf {
        self.dir.join("mesh.key")
    }
}

impl Config {
    /// Resolves the configuration.
    ///
    /// # Errors
    /// If the file or a value in it is not understood.
    pub fn resolve(
        paths: Paths,
        overrides: Overrides,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ConfigError> {
        let path = paths.dir.join("config.toml");
        let file = read(&path)?;
        let text = |name: &str| environment(name).and_then(|value| value.into_string().ok());
        let list = |flags: Vec<String>, name: &str, file: Vec<String>| {
            if !flags.is_empty() {
                return flags;
            }
            text(name).map_or(file, |value| value.split(',').map(str::to_owned).collect())
        };
        let mut labels = file.labels;
        labels.extend(overrides.labels);
        let mut listen = list(overrides.listen, "GPUVINE_LISTEN", file.listen);
        if listen.is_empty() {
            listen = LISTEN.map(str::to_owned).to_vec();
        }
        let kill_grace = match file.kill_grace {
            None => Duration::from_secs(10),
            Some(text) => humantime::parse_duration(&text)
                .map_err(|_| ConfigError::Duration { path, text })?,
        };
        Ok(Self {
            paths,
            name: overrides.name.or_else(|| text("GPUVINE_NAME")).or(file.name),
            labels,
            listen,
            peers: list(overrides.peers, "GPUVINE_PEERS", file.peers),
            mdns: !overrides.no_mdns && file.mdns.unwrap_or(true),
            gpus: overrides
                .gpus
                .or_else(|| text("GPUVINE_GPUS_OFFERED"))
                .or(file.gpus)
                .unwrap_or_else(|| "auto".into()),
            priority: overrides.priority.or(file.priority).unwrap_or(0),
            tasks_max: file.tasks_max.unwrap_or(256),
            output_max_bytes: file.output_max_bytes.unwrap_or(1 << 30),
            kill_grace,
        })
    }
}

fn read(path: &Path) -> Result<File, ConfigError> {
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).map_err(|error| not_understood(path, &text, &error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(File::default()),
        Err(source) => Err(ConfigError::File { path: path.to_owned(), source }),
    }
}

/// Where a file is wrong, and how, in one line.
fn not_understood(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let at = error.span().map_or(0, |span| text.floor_char_boundary(span.start));
    let (before, after) = text.split_at(at);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let whole = format!("{}{}", &before[start..], after.lines().next().unwrap_or_default());
    let key = whole.split_once('=').map(|(key, _)| key.trim()).filter(|key| !key.is_empty());
    let message = error.message().replace("unknown field", "unknown key").replace('\n', " ");
    let why = match key {
        Some(key) if !message.contains(&format!("`{key}`")) => format!("{key}: {message}"),
        _ => message,
    };
    ConfigError::Toml { path: path.to_owned(), line, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'a>(pairs: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
    }

    #[test]
    fn root_and_users_have_their_own_places() {
        let none = Overrides::default();
        let root = Paths::resolve(&none, &environment(&[]), true).unwrap();
        assert_eq!(root.dir, Path::new("/var/lib/gpuvine"));
        let home = [("HOME", "/h"), ("XDG_RUNTIME_DIR", "/run/user/1")];
        let user = Paths::resolve(&none, &environment(&home), false).unwrap();
        assert_eq!(user.dir, Path::new("/h/.local/state/gpuvine"));
        assert_eq!(user.socket, Path::new("/run/user/1/gpuvine.sock"));
        assert!(Paths::resolve(&none, &environment(&[]), false).is_err());
        let long = Overrides { dir: Some("x".repeat(99).into()), ..Overrides::default() };
        assert!(Paths::resolve(&long, &environment(&[]), false).is_err());
    }

    #[test]
    fn flags_come_before_the_environment_and_that_before_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file =
            "name = 'file'\ngpus = 'none'\nlisten = ['/ip4/1.2.3.4/tcp/1']\nkill_grace = '2m'";
        std::fs::write(folder.path().join("config.toml"), file).unwrap();
        let overrides = Overrides { dir: Some(folder.path().into()), ..Overrides::default() };
        let variables = [("GPUVINE_NAME", "variable")];
        let resolve = |overrides: Overrides| {
            let variables = environment(&variables);
            let paths = Paths::resolve(&overrides, &variables, false).unwrap();
            Config::resolve(paths, overrides, &variables).unwrap()
        };
        let config = resolve(overrides.clone());
        assert_eq!((config.name.as_deref(), config.gpus.as_str()), (Some("variable"), "none"));
        assert_eq!(config.kill_grace, Duration::from_secs(120));
        let flag = Overrides { name: Some("flag".into()), ..overrides };
        assert_eq!(resolve(flag).name.as_deref(), Some("flag"));
    }

    #[test]
    fn what_is_wrong_in_the_file_is_named_with_its_line_and_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let told = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let told = read(&path).unwrap_err().to_string();
            assert_eq!(told.lines().count(), 1, "{told}");
            told.strip_prefix(&path.display().to_string()).unwrap().to_owned()
        };
        let unknown = told("name = 'a'\n\ngpu = 'none'");
        assert!(
            unknown.starts_with(" line 3: unknown key `gpu`, expected one of `name`, `labels`")
        );
        let wrong = told("tasks_max = 'many'");
        assert!(wrong.starts_with(" line 1: tasks_max: invalid type: string \"many\""), "{wrong}");
        let broken = told("name = 'a'\npriority = ");
        assert!(broken.starts_with(" line 2: "), "{broken}");
        assert!(told("labels = { rack = 3 }").contains("expected a string"));
    }
}
