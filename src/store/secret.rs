//! Secret files: made once, for their owner alone, and refused if anybody else could read them.
//!
//! A secret is one line, `gpuvine-secret-1 <base64 of 32 bytes>`. A file that is empty, short, or
//! not ours is fatal: there is no mode without credentials.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use zeroize::Zeroizing;

const HEAD: &str = "gpuvine-secret-1 ";

/// A secret.
pub type Secret = Zeroizing<[u8; 32]>;

/// What is wrong with a secret file.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// There is one already: it would be lost.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// It cannot be read or written.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What is in it is no secret.
    #[error("{} is not a gpuvine secret: it is damaged or empty; put a backup of it back", .0.display())]
    Malformed(PathBuf),
    /// It belongs to another user.
    #[error("{} belongs to another user (uid {uid}): run gpuvine as that user, or chown the file", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Others can read it.
    #[error("others can read {} (mode {mode:o}): run `chmod 600 {}` first, and think about who may have read it", path.display(), path.display())]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// Makes a folder for its owner alone, if there is none.
///
/// # Errors
/// If it cannot be made.
pub fn make_folder(path: &Path) -> Result<(), SecretError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| SecretError::Io { path: path.to_owned(), source })
}

/// Reads a secret; `None` if there is no such file.
///
/// # Errors
/// If the file is a symbolic link, others can read it, it is somebody else's, or no secret.
pub fn read(path: &Path) -> Result<Option<Secret>, SecretError> {
    let fail = |source| SecretError::Io { path: path.to_owned(), source };
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let about = file.metadata().map_err(fail)?;
    let mode = about.mode() & 0o777;
    if about.uid() != rustix::process::geteuid().as_raw() {
        return Err(SecretError::Owner { path: path.to_owned(), uid: about.uid() });
    }
    if mode & 0o077 != 0 {
        return Err(SecretError::TooOpen { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(String::new());
    let read = Read::by_ref(&mut file).take(256).read_to_string(&mut text);
    if about.is_file() && read.is_ok() {
        let bytes =
            text.trim_end().strip_prefix(HEAD).and_then(|body| BASE64.decode(body.as_bytes()).ok());
        if let Some(secret) = bytes.and_then(|bytes| bytes.try_into().ok()) {
            return Ok(Some(Zeroizing::new(secret)));
        }
    }
    Err(SecretError::Malformed(path.to_owned()))
}

/// Writes a new secret; returns when it is on disk, whole.
///
/// # Errors
/// If there is one already or it cannot be written.
pub fn create(path: &Path, secret: &Secret) -> Result<(), SecretError> {
    let fail = |source| SecretError::Io { path: path.to_owned(), source };
    let new = path.with_extension("new");
    // Left over from a crash in between.
    let _ = fs::remove_file(&new);
    let text = Zeroizing::new(format!("{HEAD}{}\n", BASE64.encode(&secret[..])));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(fail)?;
    // Unlike a rename, a link never replaces what is there.
    let linked = fs::hard_link(&new, path);
    let _ = fs::remove_file(&new);
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(SecretError::Exists(path.to_owned()));
        }
        other => other.map_err(fail)?,
    }
    match path.parent() {
        Some(folder) => File::open(folder).and_then(|folder| folder.sync_all()).map_err(fail),
        None => Ok(()),
    }
}
