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

const PAUSE_SOURCE: &str = include_str!("pause.c");

/// Writes the archives of both images into `folder`, and returns their files.
///
/// # Errors
/// When there is no C compiler, or no image for this processor.
pub fn write(folder: &Path, busybox: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).on("creating", folder)?;
    let shell = fs::read(busybox).on("reading", busybox)?;
    let (pause, shell) = (
        pause(folder)?,
        tree(|tree| {
            tree.file("bin/busybox", 0o755, shell)?;
            // A name for each tool is made by the shell itself, but for the one that it is found by.
            tree.link("bin/sh", "busybox")?;
            tree.directory("tmp", 0o1777)
        })?,
    );
    let pause = tree(|tree| tree.file("pause", 0o755, pause))?;
    let mut written = Vec::new();
    for (file, reference, entrypoint, tree) in [("pause", PAUSE, "/pause", pause), ("shell", SHELL, "/bin/sh", shell)] {
        let image = image(reference, entrypoint, tree)?;
        let archive =
            image.archive().map_err(|error| ClusterError::Usage(format!("the image {reference}: {error}")))?;
        let path = folder.join(format!("{file}.oci.tar"));
        fs::write(&path, archive.bytes).on("writing", &path)?;
        written.push(path);
    }
    Ok(written)
}

fn tree(fill: impl FnOnce(&mut Tree) -> Result<(), TreeError>) -> Result<Tree> {
    let mut tree = Tree::default();
    fill(&mut tree).map_err(|error| ClusterError::Usage(format!("an image of the cluster: {error}")))?;
    Ok(tree)
}

fn image(reference: &str, entrypoint: &str, tree: Tree) -> Result<Image> {
    let processor = std::env::consts::ARCH;
    let architecture = Architecture::of(processor)
        .ok_or_else(|| ClusterError::Usage(format!("no images are made for processors of the kind {processor}")))?;
    Ok(Image {
        reference: reference.to_owned(),
        architecture,
        created: 0,
        user: "0:0".to_owned(),
        path: "/bin".to_owned(),
        entrypoint: vec![entrypoint.to_owned()],
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
