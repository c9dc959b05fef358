//! Compiles the programs. `bpf-src` is a link to the directory at the workspace's root, so
//! that a packaged crate carries the sources.

use libbpf_cargo::SkeletonBuilder;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

const SOURCES: &str = "bpf-src";

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let object = out.join("juneau.bpf.o");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    println!("cargo::rerun-if-env-changed=CLANG");
    rerun_if_changed(Path::new(SOURCES))?;

    // Documentation is built where no compiler for BPF can be counted on.
    if env::var_os("DOCS_RS").is_some() {
        fs::write(&object, [])?;
    } else {
        // Line information names files, and the object must not depend on where the sources lie.
        let sources = format!("-ffile-prefix-map={}=juneau-bpf", env::current_dir()?.display());
        let mut builder = SkeletonBuilder::new();
        if let Some(clang) = env::var_os("CLANG") {
            builder.clang(clang);
        }
        builder
            .source(format!("{SOURCES}/juneau.bpf.c"))
            .obj(&object)
            .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Ibpf-src/include", "-Ibpf-src", &sources])
            .build()?;
    }
    Ok(())
}

/// Names every file below `directory` to cargo.
fn rerun_if_changed(directory: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", directory.display());
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            rerun_if_changed(&path)?;
        } else {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    Ok(())
}
