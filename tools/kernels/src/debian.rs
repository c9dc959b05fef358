//! Debian packages: the tools that must be installed, and kernels that are only downloaded.

use std::{path::Path, process::Command};

use crate::{command, error::Error};

/// What a guest and its making need.
const TOOLS: &[&str] = &["qemu-system-x86", "busybox-static", "cpio", "zstd", "xz-utils", "kmod"];

/// The options that keep a download quiet about who downloads: the folder belongs to root, and apt's own user
/// need not reach it.
const APT: &[&str] = &["-o", "APT::Sandbox::User=root"];

/// Installs the missing ones of the tools, or names them when `NO_INSTALL=1`.
///
/// # Errors
/// [`Error::Packages`] when some are missing and must not be installed, and those of `apt-get`.
pub(crate) fn ensure_tools() -> Result<(), Error> {
    let mut missing = Vec::new();
    for tool in TOOLS {
        if !is_installed(tool)? {
            missing.push((*tool).to_owned());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    if std::env::var_os("NO_INSTALL").is_some_and(|value| value == "1") {
        return Err(Error::Packages(missing));
    }
    say!("installing {}", missing.join(" "));
    let install = || {
        command::shown(
            Command::new("apt-get")
                .env("DEBIAN_FRONTEND", "noninteractive")
                .args(["-q", "-y", "install", "--no-install-recommends"])
                .args(&missing),
        )
    };
    // The lists of a fresh machine are empty or old: update them only then.
    install().or_else(|_| update().and_then(|()| install()))
}

fn is_installed(package: &str) -> Result<bool, Error> {
    let state = command::text(Command::new("dpkg-query").args(["--show", "--showformat=${db:Status-Status}", package]));
    match state {
        Ok(state) => Ok(state == "installed"),
        Err(Error::Command { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

fn update() -> Result<(), Error> {
    say!("updating the lists of packages");
    command::shown(Command::new("apt-get").args(["-q", "update"]))
}

/// The kernel image that a meta package depends on now, for example `linux-image-6.1.0-57-cloud-amd64`.
///
/// # Errors
/// [`Error::NoKernel`] when no configured source has the meta package, or it names another kernel line.
pub(crate) fn kernel_image(line: &'static str, meta: &'static str) -> Result<String, Error> {
    let look_up = || -> Result<Option<String>, Error> {
        match command::text(Command::new("apt-cache").args(["depends", meta])) {
            Ok(text) => Ok(image_of(&text, line)),
            Err(Error::Command { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    };
    if let Some(image) = look_up()? {
        return Ok(image);
    }
    update()?;
    look_up()?.ok_or(Error::NoKernel { line, meta })
}

/// Finds the image of a kernel line in the output of `apt-cache depends`.
fn image_of(depends: &str, line: &str) -> Option<String> {
    depends
        .lines()
        .filter_map(|text| text.trim().strip_prefix("Depends: "))
        .find(|package| {
            package
                .strip_prefix("linux-image-")
                .and_then(|version| version.strip_prefix(line))
                .is_some_and(|rest| rest.starts_with('.'))
        })
        .map(str::to_owned)
}

/// The name of the archive that [`download`] would fetch for a package, for example
/// `linux-image-6.1.0-57-cloud-amd64_6.1.192-3_amd64.deb`.
///
/// # Errors
/// Those of `apt-get`, and [`Error::Incomplete`] when it names none.
pub(crate) fn archive_name(package: &str) -> Result<String, Error> {
    let text = command::text(Command::new("apt-get").args(APT).args(["-q", "--print-uris", "download", package]))?;
    named_archive(&text).ok_or_else(|| Error::Incomplete { package: package.to_owned(), what: "archive".to_owned() })
}

/// The second word of the first line that begins with a quoted address.
fn named_archive(addresses: &str) -> Option<String> {
    let line = addresses.lines().find(|line| line.starts_with('\''))?;
    line.split_whitespace().nth(1).map(str::to_owned)
}

/// The version in the name of an archive: what is between the underscores.
pub(crate) fn version_of(archive: &str) -> &str {
    archive.split('_').nth(1).unwrap_or(archive)
}

/// Downloads a package's archive into `folder`. One that is there already, whole, is not fetched again.
pub(crate) fn download(package: &str, folder: &Path) -> Result<(), Error> {
    let fetch =
        || command::shown(Command::new("apt-get").args(APT).args(["-q", "download", package]).current_dir(folder));
    // A version that the mirror has dropped since the last update is answered with 404.
    fetch().or_else(|_| update().and_then(|()| fetch()))
}

/// Unpacks an archive below `root`, without installing it.
pub(crate) fn unpack(archive: &Path, root: &Path) -> Result<(), Error> {
    command::output(Command::new("dpkg-deb").arg("-x").arg(archive).arg(root)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::{image_of, named_archive, version_of};

    const DEPENDS: &str = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-57-cloud-amd64\n";

    #[test]
    fn the_image_of_the_line_is_found() {
        assert_eq!(image_of(DEPENDS, "6.1").as_deref(), Some("linux-image-6.1.0-57-cloud-amd64"));
    }

    #[test]
    fn another_line_is_not_taken_for_it() {
        // 6.12 begins with 6.1 too.
        let newer = "meta\n  Depends: linux-image-6.12.117+deb12-cloud-amd64\n";
        assert_eq!(image_of(newer, "6.1"), None);
        assert_eq!(image_of(DEPENDS, "6.12"), None);
        assert_eq!(image_of("", "6.1"), None);
    }

    #[test]
    fn the_archive_and_its_version_are_read_from_the_address() {
        let text = "NOTE: about something\n\
                    'http://mirror.test/pool/linux-image-x_6.1.192-3_amd64.deb' linux-image-x_6.1.192-3_amd64.deb 26705532 SHA256:00\n";
        let archive = named_archive(text);
        assert_eq!(archive.as_deref(), Some("linux-image-x_6.1.192-3_amd64.deb"));
        assert_eq!(archive.as_deref().map(version_of), Some("6.1.192-3"));
        assert_eq!(named_archive("NOTE: nothing\n"), None);
    }
}
