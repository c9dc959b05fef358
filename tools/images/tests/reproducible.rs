//! The images of this repository and of a copy of it in another directory, built apart, are the same bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

/// Builds in a repository, with a target directory, and gives back the archives and lists by name.
fn built(repository: &Path, target: &Path) -> Vec<(String, Vec<u8>)> {
    let output = target.join("images-compared");
    let mut make = Command::new("make");
    make.current_dir(repository).arg("images").arg(format!("ARGS=--output {}", output.display()));
    // Of the caller only what names directories, so that neither cargo takes this test's settings for its own.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO") && name != "CARGO_HOME") {
        make.env_remove(name);
    }
    run(make.env("CARGO_TARGET_DIR", target));
    let mut files: Vec<_> = fs::read_dir(output).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: PathBuf| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap());
    files.into_iter().map(read).collect()
}

#[test]
#[ignore = "builds every program twice: make test-long"]
fn another_directory_makes_no_difference() {
    let repository = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    let place = tempfile::tempdir().unwrap();
    // Longer and deeper than any, so that no length is the same by chance.
    let copy = place.path().join("a/copy/of/the/repository");
    fs::create_dir_all(&copy).unwrap();
    for entry in fs::read_dir(&repository).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap() != "target" {
            run(Command::new("cp").arg("-a").arg(&path).arg(&copy));
        }
    }
    let here = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), PathBuf::from);
    let one = built(&repository, &here);
    let other = built(&copy, &place.path().join("target"));
    let names =
        ["juneau-agent.cdx.json", "juneau-agent.oci.tar", "juneau-operator.cdx.json", "juneau-operator.oci.tar"];
    assert_eq!(one.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
    for ((name, one), (_, other)) in one.iter().zip(&other) {
        assert!(one == other, "{name} differs: {} and {} bytes", one.len(), other.len());
    }
}
