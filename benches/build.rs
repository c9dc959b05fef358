//! Compiles the peers' TC programs.

use std::error::Error;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<(), Box<dyn Error>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf-src");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    SkeletonBuilder::new()
        .source(sources.join("bench/peers.bpf.c"))
        .obj(out.join("peers.bpf.o"))
        .clang_args([
            "-O2".as_ref(),
            "-g".as_ref(),
            "-mcpu=v3".as_ref(),
            "-Wall".as_ref(),
            "-Werror".as_ref(),
            "-I".as_ref(),
            sources.join("include").as_os_str(),
        ])
        .build()?;
    println!("cargo::rerun-if-changed={}", sources.join("bench").display());
    println!("cargo::rerun-if-changed={}", sources.join("include/juneau/kernel.h").display());
    Ok(())
}
