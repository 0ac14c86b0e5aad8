//! How the program ends.

use std::process::ExitCode;

use crate::api::ApiError;
use crate::api::client::ClientError;
use crate::config::ConfigError;

/// How the program ends when nothing is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked is done.
    Done,
    /// What was asked is done and did not succeed.
    Failed,
    /// As the task ended.
    Task(u8),
    /// What was asked is wrong.
    Usage,
    /// The daemon cannot be reached.
    Unreachable,
}

impl Exit {
    /// The exit code.
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Task(code) => code,
            Self::Usage => 2,
            Self::Unreachable => 3,
        })
    }
}

/// Why the program could not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// How it ends.
    pub(crate) exit: Exit,
    /// What is told: code, sentence, hints.
    pub(crate) error: ApiError,
}

impl Failure {
    /// The user asked for what cannot be.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, error: ApiError::new("usage", message) }
    }

    /// Something else than the user is at fault; its causes are told behind it.
    pub(crate) fn because(code: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(text.trim_end());
            }
            cause = error.source();
        }
        Self { exit: Exit::Failed, error: ApiError::new(code, message) }
    }

    /// Adds what to do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.error.hints.push(hint.into());
        self
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Api(error) => Self { exit: Exit::Failed, error },
            ClientError::Lost(_) => Self::because("connection_lost", &error),
            ClientError::Unreachable { ref socket, ref source } => {
                let denied = source.kind() == std::io::ErrorKind::PermissionDenied;
                let socket = socket.display();
                let told = match denied {
                    true => Self {
                        exit: Exit::Unreachable,
                        error: ApiError::new(
                            "daemon_unreachable",
                            format!("this user may not use the daemon's socket {socket}"),
                        ),
                    },
                    false => Self::because("daemon_unreachable", &error),
                };
                Self { exit: Exit::Unreachable, ..told }.hint(match denied {
                    true => {
                        "it is open to its owner and group, as `ls -l` shows: join the group, or ask its owner"
                    }
                    false => "start it with `gpuvine up`, or name another folder with --dir",
                })
            }
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self { exit: Exit::Usage, ..Self::because("configuration", &error) }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::because("io", &error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { exit: Exit::Failed, error: ApiError::new("failed", format!("{error:#}")) }
    }
}
