//! The crates that others use can be had without the repository.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// The packages, in the order of their dependence.
const PACKAGES: [&str; 2] = ["juneau-core", "juneau-bpf"];

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes the packages and returns their directory. With `verify` cargo builds each from its package.
fn package(target: &Path, verify: bool) -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command.args(["package", "--offline", "--allow-dirty", "--target-dir"]).arg(target);
    for name in PACKAGES {
        command.args(["-p", name]);
    }
    if !verify {
        command.arg("--no-verify");
    }
    run(command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")));
    target.join("package")
}

/// The packages hold what they are built from: the programs' sources, which lie outside the crate's directory, and
/// compile by themselves. With `JUNEAU_LONG=1` cargo builds both packages, too; their dependencies with them, which takes
/// minutes.
#[test]
fn core_and_bpf_build_outside_the_repository() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    let _ = std::fs::remove_dir_all(&folder);
    let long = std::env::var_os("JUNEAU_LONG").is_some_and(|value| value == "1");
    let packages = package(&folder, long);
    for name in PACKAGES {
        let version = env!("CARGO_PKG_VERSION");
        let file = packages.join(format!("{name}-{version}.crate"));
        run(Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(&folder));
        let manifest = std::fs::read_to_string(folder.join(format!("{name}-{version}/Cargo.toml"))).unwrap();
        assert!(!manifest.contains("path = \".."), "{name} needs its neighbours:\n{manifest}");
    }
    // As build.rs does it, with everything but the packaged files out of reach.
    let sources = folder.join(concat!("juneau-bpf-", env!("CARGO_PKG_VERSION")));
    assert!(!std::fs::symlink_metadata(sources.join("bpf-src")).unwrap().is_symlink());
    let object = folder.join("juneau.bpf.o");
    let source = sources.join("bpf-src");
    let (include, own) = (format!("-I{}", source.join("include").display()), format!("-I{}", source.display()));
    let mut builder = SkeletonBuilder::new();
    if let Some(clang) = std::env::var_os("CLANG") {
        builder.clang(clang);
    }
    builder.source(source.join("juneau.bpf.c")).obj(&object);
    builder.clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", &include, &own]).build().unwrap();
    assert!(std::fs::metadata(&object).unwrap().len() > 10_000);
    std::fs::remove_dir_all(&folder).unwrap();
}
