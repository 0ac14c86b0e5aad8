//! A small disk of its own for a node: a tmpfs that can be filled.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

/// A mounted file system; gone when this is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts one of so many MiB on a new folder. Needs root.
    ///
    /// # Errors
    /// If it cannot be mounted.
    pub fn mount(path: &Path, mebibytes: u32) -> Result<Self> {
        fs::create_dir_all(path)?;
        let size = format!("size={mebibytes}m,mode=700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "gpuvine"]).arg(path);
        ensure!(mount.status().context("`mount` cannot be run")?.success(), "cannot mount a tmpfs");
        Ok(Self { path: path.to_owned() })
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    /// Takes all the space that is left.
    ///
    /// # Errors
    /// If writing fails for any other reason than a full disk.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::create(self.ballast())?;
        for piece in [1 << 16, 1] {
            let bytes = vec![0; piece];
            loop {
                match file.write(&bytes) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => bail!("{}: {error}", self.path.display()),
                }
            }
        }
        Ok(())
    }

    /// Gives it back.
    ///
    /// # Errors
    /// If the file that took it cannot be removed.
    pub fn free(&self) -> Result<()> {
        Ok(fs::remove_file(self.ballast())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process of the node may have a file open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}
