//! What runs containers on a node: containerd, runc, and the CNI plugin that containerd itself wants; and what is run there
//! to try it.
//!
//! They are Debian's, unpacked into the user's cache rather than installed: an installed containerd would start as a
//! service where systemd runs, with directories that other clusters use.

use crate::cache;
use crate::error::{Context, Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The packages, in the order in which they are looked through.
const PACKAGES: [&str; 4] = ["containerd", "runc", "containernetworking-plugins", "busybox-static"];

/// The variable that names a folder with programs that win over the packages'.
const GIVEN: &str = "JUNEAU_CONTAINERS";

/// A program that a node needs for its containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// The daemon.
    Containerd,
    /// What holds a Pod's containers while the daemon is away. It is found through `PATH`.
    Shim,
    /// The daemon's client.
    Ctr,
    /// What makes a container.
    Runc,
    /// The CNI plugin for `lo`. containerd 1.6 starts no Pod without it, whatever the network is.
    Loopback,
    /// A shell with its tools in one static file: what an image needs to be tried out by hand.
    Busybox,
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Containerd, Self::Shim, Self::Ctr, Self::Runc, Self::Loopback, Self::Busybox];

    /// The file's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Shim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Runc => "runc",
            Self::Loopback => "loopback",
            Self::Busybox => "busybox",
        }
    }
}

/// Where the programs for containers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Containers {
    folder: PathBuf,
}

impl Containers {
    /// Finds the programs where `JUNEAU_CONTAINERS` says; or else in the cache, into which Debian's packages are unpacked
    /// when they are not there yet. `progress` is told what takes long.
    ///
    /// # Errors
    /// [`Error::Missing`] when the folder lacks one, or there is no apt; [`Error::Packages`].
    pub fn find_or_unpack(progress: &mut dyn FnMut(&str)) -> Result<Self> {
        if let Some(folder) = cache::set(GIVEN) {
            let found = Self { folder };
            return match found.missing() {
                None => Ok(found),
                Some(tool) => {
                    let folder = found.folder.display();
                    let remedy = format!("put it into {folder}, which {GIVEN} names, or unset that");
                    Err(Error::Missing { program: tool.name(), remedy })
                }
            };
        }
        let folder = cache::folder("containers")?.join(release());
        let found = Self { folder: folder.join("bin") };
        if found.missing().is_none() {
            return Ok(found);
        }
        let _lock = cache::lock(&folder, "the packages for containers", progress)?;
        // Another process may have got them while this one waited.
        if found.missing().is_some() {
            unpack(&folder, &found.folder, progress)?;
        }
        Ok(found)
    }

    /// The folder that holds them all.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of one of them.
    #[must_use]
    pub fn path(&self, tool: Tool) -> PathBuf {
        self.folder.join(tool.name())
    }

    fn missing(&self) -> Option<Tool> {
        Tool::ALL.into_iter().find(|tool| !self.path(*tool).is_file())
    }
}

/// The distribution's release and the processor, for which the packages are: `debian-12-x86_64`.
fn release() -> String {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    release_of(&text)
}

/// From the text of os-release(5).
fn release_of(text: &str) -> String {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map_or("unknown", |value| value.trim_matches('"')).to_owned()
    };
    format!("{}-{}-{}", field("ID"), field("VERSION_ID"), std::env::consts::ARCH)
}

/// Fetches the packages and takes the programs out of them.
fn unpack(folder: &Path, to: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let Some(apt) = cache::on_path("apt-get") else {
        let names = Tool::ALL.map(Tool::name).join(", ");
        let remedy = format!("set {GIVEN} to a folder that holds {names}: there is no apt-get to fetch Debian's");
        return Err(Error::Missing { program: Tool::Containerd.name(), remedy });
    };
    progress(&format!("fetching {}: once, {}", PACKAGES.join(", "), folder.display()));
    // Made under another name and renamed: what is in its place is whole.
    let unfinished = folder.join("unfinished");
    let (archives, root, programs) = (unfinished.join("archives"), unfinished.join("root"), unfinished.join("bin"));
    for dir in [&unfinished, to] {
        cache::remove(dir)?;
    }
    for dir in [&archives, &root, &programs] {
        std::fs::create_dir_all(dir).on("creating", dir)?;
    }
    let fetch = || {
        // The folder is root's, and apt's own user need not reach it.
        let arguments = ["-q", "-o", "APT::Sandbox::User=root", "download"];
        succeed(Command::new(&apt).args(arguments).args(PACKAGES).current_dir(&archives))
    };
    // The lists of a fresh machine are empty, those of an old one name versions that are gone.
    fetch().or_else(|_| succeed(Command::new(&apt).args(["-q", "update"])).and_then(|()| fetch()))?;
    for archive in files(&archives)? {
        succeed(Command::new("dpkg-deb").arg("-x").arg(archive).arg(&root))?;
    }
    let unpacked = files(&root)?;
    for tool in Tool::ALL {
        let file = unpacked.iter().find(|file| file.file_name().is_some_and(|name| name == tool.name()));
        let remedy = || format!("none of the packages {} holds it", PACKAGES.join(", "));
        let file = file.ok_or_else(|| Error::Missing { program: tool.name(), remedy: remedy() })?;
        std::fs::rename(file, programs.join(tool.name())).on("moving to its place", file)?;
    }
    std::fs::rename(&programs, to).on("moving to its place", &programs)?;
    let versions: Vec<String> =
        files(&archives)?.iter().filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect();
    let told = folder.join("packages");
    std::fs::write(&told, versions.join("\n") + "\n").on("writing", &told)?;
    cache::remove(&unfinished)
}

/// All plain files in a folder and below.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).on("reading", &folder)? {
            let entry = entry.on("reading", &folder)?;
            let kind = entry.file_type().on("reading", &entry.path())?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn succeed(command: &mut Command) -> Result<()> {
    let told = format!("{command:?}");
    let output = command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).output();
    let output = output.context(|| format!("running {told}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("(nothing)").to_owned();
    Err(Error::Packages { command: told, status: output.status.to_string(), last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_knows_distributions_and_releases_apart() {
        let text = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\n";
        assert_eq!(release_of(text), format!("debian-12-{}", std::env::consts::ARCH));
        assert!(release_of("").starts_with("unknown-unknown-"));
    }

    #[test]
    fn a_folder_without_one_of_them_is_not_whole() {
        let folder = std::env::temp_dir().join(format!("juneau-containers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let found = Containers { folder: folder.clone() };
        for tool in Tool::ALL {
            assert_eq!(found.missing(), Some(tool));
            std::fs::write(found.path(tool), "").unwrap();
        }
        assert_eq!(found.missing(), None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
