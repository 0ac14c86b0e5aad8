//! Arguments that every subcommand knows.

use std::io::IsTerminal;
use std::path::PathBuf;

use super::exit::Failure;
use crate::api::client::Client;
use crate::config::{Overrides, Paths};

/// Arguments that every subcommand knows.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Globals {
    /// The node's folder: keys, database, tasks [env: GPUVINE_DIR]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The daemon's socket [env: GPUVINE_SOCKET]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print one JSON value instead of a table
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say more; twice even more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// Always
    Always,
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Never
    Never,
}

impl Color {
    /// Whether what is written to this place is coloured.
    pub(crate) fn on(self, place: &impl IsTerminal) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                place.is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        }
    }
}

impl Globals {
    /// What of the configuration is named here.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides { dir: self.dir.clone(), socket: self.socket.clone(), ..Overrides::default() }
    }

    /// Where things lie.
    pub(crate) fn paths(&self) -> Result<Paths, Failure> {
        let root = rustix::process::geteuid().is_root();
        let mut paths = Paths::resolve(&self.overrides(), &|name| std::env::var_os(name), root)?;
        // Keepers live elsewhere than where the daemon was started.
        paths.dir = std::path::absolute(&paths.dir)?;
        Ok(paths)
    }

    /// The node's folder, if the daemon's socket is in it: with it the node itself is gone.
    pub(crate) fn own_folder(&self) -> Result<Option<PathBuf>, Failure> {
        let paths = self.paths()?;
        let socket = std::path::absolute(&paths.socket)?;
        Ok((socket.parent() == Some(&paths.dir)).then_some(paths.dir))
    }

    /// A client of the daemon.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(self.paths()?.socket))
    }
}
