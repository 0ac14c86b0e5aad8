//! Small files that are replaced whole or not at all, also when the power fails.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Puts these bytes into a file in place of what it held; returns when they are on disk.
///
/// # Errors
/// If the disk fails; the file is then what it was, or what it was to be.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The rename itself is on disk when the folder is.
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
