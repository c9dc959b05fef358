//! The kernel lines and their cache.
//!
//! A cached kernel is a folder named after its line, with three files: `archive` (where it came from), `vmlinuz` and `initrd` (busybox
//! and the modules a guest needs). It is made under another name and renamed, so it is whole or absent. Archives stay
//! in `downloads/` until their kernel is ready, so a run that is cut off fetches none of them twice.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{command, debian, error::Error, initramfs};

/// A kernel line that Debian packages for virtual machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    /// The first two numbers of the version.
    pub(crate) name: &'static str,
    /// The meta package that depends on the newest image of the line.
    meta: &'static str,
}

/// The lines a run may name: the oldest kernel that Juneau supports, and the long-term one between it and the newest.
pub(crate) const LINES: &[Line] = &[
    Line { name: "6.1", meta: "linux-image-cloud-amd64" },
    Line { name: "6.12", meta: "linux-image-6.12-cloud-amd64" },
];

/// Changes whenever a cached kernel must be made anew, because its initramfs holds something else.
const RECIPE: &str = "2";

/// A kernel that can be booted.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    /// The archive it came from.
    archive: String,
    /// The compressed kernel.
    pub(crate) vmlinuz: PathBuf,
    /// The initramfs without `init`.
    pub(crate) initrd: PathBuf,
}

impl Kernel {
    /// The version of the package, for example `6.1.192-3`.
    pub(crate) fn version(&self) -> &str {
        debian::version_of(&self.archive)
    }
}

/// The folder of all cached kernels.
#[derive(Debug, Clone)]
pub(crate) struct Cache(PathBuf);

impl Cache {
    /// The cache of this user: below `XDG_CACHE_HOME`, or else below `HOME/.cache`.
    ///
    /// # Errors
    /// [`Error::NoHome`] when neither is set.
    pub(crate) fn of_user() -> Result<Self, Error> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")))
            .map(|folder| Self(folder.join("juneau/kernels")))
            .ok_or(Error::NoHome)
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The cached kernel of a line, if it is there and of the present recipe.
    pub(crate) fn get(&self, line: Line) -> Option<Kernel> {
        let folder = self.0.join(line.name);
        let text = fs::read_to_string(folder.join("archive")).ok()?;
        let (recipe, archive) = text.trim().split_once(' ')?;
        (recipe == RECIPE).then(|| Kernel {
            archive: archive.to_owned(),
            vmlinuz: folder.join("vmlinuz"),
            initrd: folder.join("initrd"),
        })
    }

    /// The kernel of a line: the cached one, or one that is fetched and prepared now. With `refresh`, a cached one
    /// is replaced when the sources have a newer release.
    ///
    /// # Errors
    /// Those of the package tools, [`Error::NoKernel`] and [`Error::Incomplete`].
    pub(crate) fn fetch(&self, line: Line, refresh: bool) -> Result<Kernel, Error> {
        if let Some(kernel) = self.get(line).filter(|_| !refresh) {
            return Ok(kernel);
        }
        make_folder(&self.0)?;
        let lock_path = self.0.join("lock");
        let lock = File::create(&lock_path).map_err(Error::file("making", &lock_path))?;
        lock.lock().map_err(Error::file("locking", &lock_path))?;
        // Another run may have made it while this one waited.
        let cached = self.get(line);
        if let Some(kernel) = cached.clone().filter(|_| !refresh) {
            return Ok(kernel);
        }
        let image = debian::kernel_image(line.name, line.meta)?;
        let archive = debian::archive_name(&image)?;
        if let Some(kernel) = cached.filter(|kernel| kernel.archive == archive) {
            say!("{}: {} is the newest", line.name, kernel.version());
            return Ok(kernel);
        }
        self.make(line, &image, &archive)
    }

    fn make(&self, line: Line, image: &str, archive_name: &str) -> Result<Kernel, Error> {
        let downloads = self.0.join("downloads");
        make_folder(&downloads)?;
        say!("{}: fetching {image}", line.name);
        debian::download(image, &downloads)?;
        let archive = downloads.join(archive_name);
        let release = image.trim_start_matches("linux-image-");

        say!("{}: preparing it", line.name);
        let unfinished = self.0.join(format!("{}.unfinished", line.name));
        remove(&unfinished)?;
        let root = unfinished.join("root");
        make_folder(&root)?;
        debian::unpack(&archive, &root)?;
        // Newer packages have their modules below usr/lib.
        if !root.join("lib/modules").exists() {
            make_folder(&root.join("lib"))?;
            std::os::unix::fs::symlink("../usr/lib/modules", root.join("lib/modules"))
                .map_err(Error::file("linking", root.join("lib/modules")))?;
        }
        let vmlinuz = find(&root.join("boot"), |name| name.starts_with("vmlinuz"))?
            .ok_or_else(|| Error::Incomplete { package: image.to_owned(), what: "kernel below boot".to_owned() })?;
        let place = unfinished.join("vmlinuz");
        fs::rename(&vmlinuz, &place).map_err(Error::file("moving", vmlinuz))?;
        command::output(Command::new("depmod").arg("-b").arg(&root).arg(release))?;
        initramfs::pack_base(&root, release, &unfinished)?;
        remove(&root)?;
        let stamp = unfinished.join("archive");
        fs::write(&stamp, format!("{RECIPE} {archive_name}\n")).map_err(Error::file("writing", stamp))?;

        let folder = self.0.join(line.name);
        remove(&folder)?;
        fs::rename(&unfinished, &folder).map_err(Error::file("renaming", unfinished))?;
        remove(&archive)?;
        self.get(line).ok_or_else(|| Error::Incomplete { package: image.to_owned(), what: "cached kernel".to_owned() })
    }
}

/// The line of a name, for example `6.1`.
pub(crate) fn line(name: &str) -> Option<Line> {
    LINES.iter().copied().find(|line| line.name == name)
}

/// Makes a folder and those above it.
pub(crate) fn make_folder(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::file("making", path))
}

/// Removes a file or a whole folder that may be absent.
fn remove(path: &Path) -> Result<(), Error> {
    let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::file("removing", path)(error)),
        _ => Ok(()),
    }
}

fn find(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<Option<PathBuf>, Error> {
    for entry in fs::read_dir(folder).map_err(Error::file("reading", folder))? {
        let entry = entry.map_err(Error::file("reading", folder))?;
        if entry.file_name().to_str().is_some_and(&wanted) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::command::Scratch;

    #[test]
    fn a_kernel_of_another_recipe_or_half_made_is_not_taken() {
        let scratch = Scratch::new("cache").unwrap();
        let cache = Cache(scratch.path().to_owned());
        let line = line("6.1").unwrap();
        let folder = cache.path().join("6.1");
        assert!(cache.get(line).is_none());
        fs::create_dir(&folder).unwrap();
        assert!(cache.get(line).is_none());
        fs::write(folder.join("archive"), "0 image_6.1.9-1_amd64.deb\n").unwrap();
        assert!(cache.get(line).is_none());
        fs::write(folder.join("archive"), format!("{RECIPE} image_6.1.9-1_amd64.deb\n")).unwrap();
        assert_eq!(cache.get(line).unwrap().version(), "6.1.9-1");
    }

    #[test]
    fn lines_are_known_by_name() {
        assert!(line("6.12").is_some());
        assert!(line("6").is_none());
    }
}
