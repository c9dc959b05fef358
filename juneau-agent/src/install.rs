//! Putting the CNI plugin and its configuration where the container runtime looks.
//!
//! A runtime takes a node for ready as soon as the configuration is there, so that comes last, after the plugin that it
//! names. Each file is written under another name in the same directory and renamed: whoever looks sees the old file or
//! the new one, and containerd notices a rename within the directory, though not one from elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The plugin's file, which the configuration's `type` names.
pub const PLUGIN: &str = "juneau";
/// The configuration's file. Runtimes take the first by name.
pub const CONFIGURATION: &str = "05-juneau.conflist";

/// A file that cannot be put in its place.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
#[non_exhaustive]
pub struct InstallError {
    /// The file, or its directory.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

/// What goes where. What has no directory is not installed.
#[derive(Debug, Clone)]
pub struct Installation<'a> {
    /// The plugin, as it came with the agent.
    pub plugin: &'a Path,
    /// Where runtimes look for plugins.
    pub binaries: Option<&'a Path>,
    /// Where runtimes look for configurations.
    pub configurations: Option<&'a Path>,
    /// `cniVersion` of the configuration.
    pub version: &'a str,
    /// The agent's socket.
    pub socket: &'a Path,
}

impl Installation<'_> {
    /// Puts in place what is not there as it should be, the plugin first. Whether anything was written.
    ///
    /// # Errors
    /// [`InstallError`].
    pub fn install(&self) -> Result<bool, InstallError> {
        let mut written = false;
        if let Some(directory) = self.binaries {
            let content =
                fs::read(self.plugin).map_err(|source| InstallError { path: self.plugin.to_owned(), source })?;
            written |= put(directory, PLUGIN, &content, 0o755)?;
        }
        if let Some(directory) = self.configurations {
            written |= put(directory, CONFIGURATION, &self.configuration()?, 0o644)?;
        }
        Ok(written)
    }

    fn configuration(&self) -> Result<Vec<u8>, InstallError> {
        let failed = |source| InstallError { path: self.socket.to_owned(), source };
        let socket = std::path::absolute(self.socket).map_err(failed)?;
        let list = serde_json::json!({
            "cniVersion": self.version,
            "name": "juneau",
            "plugins": [{"type": PLUGIN, "socket": socket}],
        });
        let mut text = serde_json::to_vec_pretty(&list).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        Ok(text)
    }
}

/// Writes a file unless it is there with this content. Whether it was written.
fn put(directory: &Path, name: &str, content: &[u8], mode: u32) -> Result<bool, InstallError> {
    let path = directory.join(name);
    if is_there(&path, content, mode) {
        return Ok(false);
    }
    let unfinished = directory.join(unfinished(name));
    let write = || -> io::Result<()> {
        fs::create_dir_all(directory)?;
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&unfinished)?;
        // The mode above is less the umask, and none for a file that was left.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&unfinished, &path)?;
        File::open(directory)?.sync_all()
    };
    match write() {
        Ok(()) => Ok(true),
        Err(source) => {
            // On a full disk what was written is in the way of others.
            let _ = fs::remove_file(&unfinished);
            Err(InstallError { path, source })
        }
    }
}

/// Name of a file that is being written: neither a plugin nor, by its ending, a configuration.
pub(crate) fn unfinished(name: &str) -> String {
    format!(".{name}.unfinished")
}

fn is_there(path: &Path, content: &[u8], mode: u32) -> bool {
    let same = |metadata: fs::Metadata| {
        metadata.is_file()
            && metadata.permissions().mode() & 0o7777 == mode
            && metadata.len() == u64::try_from(content.len()).unwrap_or(u64::MAX)
    };
    fs::symlink_metadata(path).is_ok_and(same) && fs::read(path).is_ok_and(|found| found == content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn place(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("juneau-install-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("juneau-cni"), "plugin").unwrap();
        Place(path)
    }

    #[test]
    fn files_are_renamed_into_place_and_left_alone_when_right() {
        let place = place("right");
        let (binaries, configurations) = (place.0.join("bin"), place.0.join("net.d"));
        let plugin = place.0.join("juneau-cni");
        let installation = Installation {
            plugin: &plugin,
            binaries: Some(&binaries),
            configurations: Some(&configurations),
            version: "1.0.0",
            socket: Path::new("/run/juneau/agent.sock"),
        };
        assert!(installation.install().unwrap());
        let (binary, list) = (binaries.join(PLUGIN), configurations.join(CONFIGURATION));
        assert_eq!(fs::read(&binary).unwrap(), b"plugin");
        assert_eq!(fs::metadata(&binary).unwrap().mode() & 0o777, 0o755);
        assert_eq!(
            fs::read_to_string(&list).unwrap(),
            concat!(
                "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"juneau\",\n  \"plugins\": [\n    {\n",
                "      \"socket\": \"/run/juneau/agent.sock\",\n      \"type\": \"juneau\"\n    }\n  ]\n}\n"
            )
        );
        let inodes = || [&binary, &list].map(|path| fs::metadata(path).unwrap().ino());
        let before = inodes();
        assert!(!installation.install().unwrap());
        assert_eq!(inodes(), before, "not rewritten");
        // Another release: a new file, so that whoever runs the old one keeps it.
        fs::write(&plugin, "newer plugin").unwrap();
        assert!(installation.install().unwrap());
        assert_eq!(fs::read(&binary).unwrap(), b"newer plugin");
        assert_ne!(inodes()[0], before[0]);
        assert_eq!(inodes()[1], before[1]);
        // What somebody broke or made a link of.
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(&list).unwrap();
        std::os::unix::fs::symlink("/nonexistent", &list).unwrap();
        assert!(installation.install().unwrap());
        assert_eq!(fs::metadata(&binary).unwrap().mode() & 0o777, 0o755);
        assert!(fs::symlink_metadata(&list).unwrap().is_file());
        assert_eq!(fs::read_dir(&binaries).unwrap().count() + fs::read_dir(&configurations).unwrap().count(), 2);
    }

    #[test]
    fn without_a_plugin_there_is_no_configuration() {
        let place = place("order");
        let configurations = place.0.join("net.d");
        let installation = Installation {
            plugin: Path::new("/nonexistent/juneau-cni"),
            binaries: Some(&place.0),
            configurations: Some(&configurations),
            version: "1.1.0",
            socket: Path::new("/run/juneau/agent.sock"),
        };
        let error = installation.install().unwrap_err();
        assert_eq!(error.path, Path::new("/nonexistent/juneau-cni"));
        assert!(!configurations.exists());
        // A file in the way of the directory.
        let in_the_way =
            Installation { configurations: Some(&place.0.join("juneau-cni")), binaries: None, ..installation };
        assert!(in_the_way.install().is_err());
    }
}
