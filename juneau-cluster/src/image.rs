//! Images that a cluster has before there is any other: what holds a Pod's namespaces, and a shell. No registry is asked.

use crate::config::PAUSE;
use crate::error::{ClusterError, Context, Result};
use crate::program::succeed;
use juneau_images::{Architecture, Image, Tree, TreeError};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An image with a shell, for trying things out.
pub const SHELL: &str = "localhost/juneau-shell:1";

/// An image that answers with its Pod's name, and takes part in checks.
pub const RESPONDER: &str = "localhost/juneau-responder:1";

const PAUSE_SOURCE: &str = include_str!("pause.c");

/// Writes the archives of both images into `folder`, and returns their files.
///
/// # Errors
/// When there is no C compiler, or no image for this processor.
pub fn write(folder: &Path, busybox: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).on("creating", folder)?;
    let (holder, shell) = (pause(folder)?, fs::read(busybox).on("reading", busybox)?);
    let holder = tree(|tree| tree.file("pause", 0o755, holder))?;
    let shell = tree(|tree| {
        tree.file("bin/busybox", 0o755, shell)?;
        tree.link("bin/sh", "busybox")?;
        tree.directory("tmp", 0o1777)
    })?;
    Ok(vec![
        archive(folder, "pause", PAUSE, &["/pause"], holder)?,
        archive(folder, "shell", SHELL, &["/bin/sh"], shell)?,
    ])
}

/// Writes the archive of an image with programs of this machine, and with the libraries that they ask for: for images
/// that are used here and now, and not passed on. `programs` are names in the image and files.
///
/// # Errors
/// When a program or library cannot be read.
pub fn write_local(
    folder: &Path,
    reference: &str,
    entrypoint: &[&str],
    user: &str,
    programs: &[(&str, &Path)],
) -> Result<PathBuf> {
    fs::create_dir_all(folder).on("creating", folder)?;
    let mut files = BTreeMap::new();
    for (name, program) in programs {
        for library in libraries(program)? {
            let content = fs::read(&library).on("reading", &library)?;
            files.insert(library.to_string_lossy().trim_start_matches('/').to_owned(), content);
        }
        files.insert(format!("bin/{name}"), fs::read(program).on("reading", program)?);
    }
    let tree = tree(|tree| {
        for (path, content) in files {
            tree.file(&path, 0o755, content)?;
        }
        // What Pods mount over, where the root is read-only.
        for path in ["dev", "proc", "sys", "run/secrets/kubernetes.io/serviceaccount", "run/juneau", "run/netns"] {
            tree.directory(path, 0o755)?;
        }
        for path in ["host/cgroup", "host/cni/bin", "host/cni/net.d", "host/sysctl/net"] {
            tree.directory(path, 0o755)?;
        }
        tree.link("var/run", "../run")?;
        tree.directory("tmp", 0o1777)
    })?;
    let name = reference.rsplit('/').next().and_then(|name| name.split(':').next()).unwrap_or(reference);
    let image = Image { user: user.to_owned(), ..image(reference, entrypoint, tree)? };
    store(folder, name, &image)
}

fn archive(folder: &Path, file: &str, reference: &str, entrypoint: &[&str], tree: Tree) -> Result<PathBuf> {
    store(folder, file, &image(reference, entrypoint, tree)?)
}

fn store(folder: &Path, file: &str, image: &Image) -> Result<PathBuf> {
    let archive = image.quick_archive();
    let archive = archive.map_err(|error| ClusterError::Usage(format!("the image {}: {error}", image.reference)))?;
    let path = folder.join(format!("{file}.oci.tar"));
    fs::write(&path, archive.bytes).on("writing", &path)?;
    Ok(path)
}

/// The libraries that a program is loaded with, as the system's loader finds them; of a static one there are none.
///
/// # Errors
/// When ldd(1) cannot be run.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context(|| format!("running ldd {}", program.display()))?;
    Ok(listed(&String::from_utf8_lossy(&output.stdout)))
}

/// The files in the output of ldd(1): `NAME => FILE (ADDRESS)`, or `FILE (ADDRESS)` for the loader itself.
fn listed(output: &str) -> Vec<PathBuf> {
    let file = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    output.lines().filter_map(file).collect()
}

fn tree(fill: impl FnOnce(&mut Tree) -> Result<(), TreeError>) -> Result<Tree> {
    let mut tree = Tree::default();
    fill(&mut tree).map_err(|error| ClusterError::Usage(format!("an image of the cluster: {error}")))?;
    Ok(tree)
}

fn image(reference: &str, entrypoint: &[&str], tree: Tree) -> Result<Image> {
    let processor = std::env::consts::ARCH;
    let architecture = Architecture::of(processor)
        .ok_or_else(|| ClusterError::Usage(format!("no images are made for processors of the kind {processor}")))?;
    Ok(Image {
        reference: reference.to_owned(),
        architecture,
        created: 0,
        user: "0:0".to_owned(),
        path: "/bin".to_owned(),
        entrypoint: entrypoint.iter().map(|word| (*word).to_owned()).collect(),
        annotations: BTreeMap::new(),
        tree,
    })
}

/// The program that holds a Pod's namespaces, static: nothing else is in its image.
fn pause(folder: &Path) -> Result<Vec<u8>> {
    let (source, program) = (folder.join("pause.c"), folder.join("pause"));
    fs::write(&source, PAUSE_SOURCE).on("writing", &source)?;
    succeed(Command::new("cc").args(["-Os", "-static", "-s", "-o"]).arg(&program).arg(&source))?;
    fs::read(&program).on("reading", &program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_libraries_are_those_that_its_loader_finds() {
        let output = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        assert_eq!(
            listed(output),
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
        assert!(listed("\tnot a dynamic executable\n").is_empty());
    }
}
