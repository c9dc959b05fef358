//! What a guest starts from: busybox, kernel modules, `init`, and the commands of the run.
//!
//! The kernel takes several archives one after the other, so the large part (per kernel) is packed once and the small
//! one (per run) is appended to a copy.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{command, error::Error, kernel::make_folder};

/// The modules a guest may need, in this order. Those that a kernel has built in have no file and are passed over.
const MODULES: &[&str] =
    &["virtio_pci", "virtiofs", "overlay", "veth", "dummy", "vxlan", "sch_ingress", "cls_bpf", "act_bpf"];

const INIT: &str = include_str!("init.sh");

/// Packs busybox and the modules of an unpacked kernel at `root` into `folder/initrd`.
///
/// # Errors
/// Those of the tools that unpack modules and pack archives.
pub(crate) fn pack_base(root: &Path, release: &str, folder: &Path) -> Result<(), Error> {
    let tree = root.join("initramfs");
    make_folder(&tree.join("bin"))?;
    make_folder(&tree.join("modules"))?;
    let busybox = tree.join("bin/busybox");
    fs::copy("/bin/busybox", &busybox).map_err(Error::file("copying", "/bin/busybox"))?;

    let mut order = String::new();
    for module in module_files(root, release)? {
        let (name, decompressor) = decompressed_name(&module);
        if order.lines().any(|line| line == name) {
            continue;
        }
        let bytes = match decompressor {
            Some(program) => command::output(Command::new(program).arg("-dc").arg(&module))?,
            None => fs::read(&module).map_err(Error::file("reading", &module))?,
        };
        let place = tree.join("modules").join(&name);
        fs::write(&place, bytes).map_err(Error::file("writing", place))?;
        order.push_str(&name);
        order.push('\n');
    }
    let place = tree.join("modules.order");
    fs::write(&place, order).map_err(Error::file("writing", place))?;
    pack(&tree, &folder.join("initrd"))
}

/// Writes the initramfs of one run: the packed `base`, then `init` and the script it is to run.
///
/// # Errors
/// Those of the file system and of the packer.
pub(crate) fn pack_run(base: &Path, script: &str, work: &Path) -> Result<PathBuf, Error> {
    use std::os::unix::fs::OpenOptionsExt;
    let tree = work.join("tree");
    make_folder(&tree)?;
    for (name, text, mode) in [("init", INIT, 0o755), ("run.sh", script, 0o644)] {
        let path = tree.join(name);
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(Error::file("writing", path))?;
    }
    let small = work.join("run.cpio");
    pack(&tree, &small)?;
    let place = work.join("initrd");
    fs::copy(base, &place).map_err(Error::file("copying", base))?;
    let mut whole = fs::OpenOptions::new().append(true).open(&place).map_err(Error::file("opening", &place))?;
    let mut part = File::open(&small).map_err(Error::file("opening", &small))?;
    io::copy(&mut part, &mut whole).map_err(Error::file("writing", &place))?;
    Ok(place)
}

fn module_files(root: &Path, release: &str) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for module in MODULES {
        let listed = command::text(
            Command::new("modprobe")
                .arg("-d")
                .arg(root) // Without this machine's options for modules: they would follow the names of the files.
                .args(["-C", "/dev/null", "-S", release, "--show-depends", module]),
        );
        match listed {
            Ok(text) => files.extend(inserted(&text)),
            // Built in, or not in this kernel: what needs it will say so in the guest.
            Err(Error::Command { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(files)
}

/// The files in the output of `modprobe --show-depends`, in the order in which they are to be loaded.
fn inserted(text: &str) -> Vec<PathBuf> {
    text.lines().filter_map(|line| line.strip_prefix("insmod ")).map(|path| PathBuf::from(path.trim())).collect()
}

/// The name of a module without its compression, and the program that takes the compression off.
fn decompressed_name(file: &Path) -> (String, Option<&'static str>) {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    for (ending, program) in [(".xz", "xz"), (".zst", "zstd"), (".gz", "gzip")] {
        if let Some(stem) = name.strip_suffix(ending) {
            return (stem.to_owned(), Some(program));
        }
    }
    (name, None)
}

/// Packs a folder as a compressed archive that the kernel can unpack.
fn pack(tree: &Path, archive: &Path) -> Result<(), Error> {
    let file = File::create(archive).map_err(Error::file("making", archive))?;
    // Without the last step's status, a failing cpio would leave a short archive unnoticed.
    let script = "set -e; find . | cpio -o -H newc --quiet -R 0:0 >\"$0\"; gzip -1 <\"$0\"; rm \"$0\"";
    let plain = archive.with_extension("plain");
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&plain).current_dir(tree).stdout(Stdio::from(file));
    command::shown(&mut command)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_module_files_are_listed_and_in_order() {
        let text = "insmod /k/virtio.ko.xz \nbuiltin overlay\ninsmod /k/virtio_pci.ko.xz \n";
        assert_eq!(inserted(text), [Path::new("/k/virtio.ko.xz"), Path::new("/k/virtio_pci.ko.xz")]);
    }

    #[test]
    fn compression_is_known_by_its_ending() {
        let of = |name: &str| decompressed_name(Path::new(name));
        assert_eq!(of("/k/veth.ko.xz"), ("veth.ko".to_owned(), Some("xz")));
        assert_eq!(of("/k/veth.ko.zst"), ("veth.ko".to_owned(), Some("zstd")));
        assert_eq!(of("/k/veth.ko"), ("veth.ko".to_owned(), None));
    }

    #[test]
    fn a_run_is_appended_to_the_base() {
        let scratch = command::Scratch::new("pack").unwrap();
        let base = scratch.path().join("base");
        fs::write(&base, b"base").unwrap();
        let whole = fs::read(pack_run(&base, "true\n", scratch.path()).unwrap()).unwrap();
        assert!(whole.starts_with(b"base\x1f\x8b"));
        fs::write(scratch.path().join("part"), &whole[4..]).unwrap();
        let listing = command::text(Command::new("sh").args([
            "-c",
            "gzip -dc \"$0\" | cpio -t --quiet",
            scratch.path().join("part").to_str().unwrap(),
        ]))
        .unwrap();
        assert!(listing.lines().any(|name| name == "init"), "{listing}");
        assert!(listing.lines().any(|name| name == "run.sh"), "{listing}");
    }
}
