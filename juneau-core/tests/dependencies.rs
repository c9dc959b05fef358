//! The library stays small: no runtime, no cluster, no kernel, few crates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::process::Command;

/// Names of the crates that the library is built from, itself included.
fn crates(arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--prefix", "none", "--format", "{p}", "-p", "juneau-core", "-e", "normal"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn the_library_knows_no_runtime_no_cluster_and_no_kernel() {
    for features in [&[][..], &["--all-features"]] {
        let crates = crates(features);
        assert!(crates.contains("juneau-core") && crates.contains("zerocopy"), "{crates:?}");
        for name in &crates {
            for banned in ["tokio", "kube", "k8s", "libbpf", "nix", "rtnetlink", "async-std", "smol"] {
                assert!(!name.starts_with(banned), "{name}");
            }
        }
    }
}

#[test]
fn the_library_is_built_from_few_crates() {
    let crates = crates(&[]);
    assert!(crates.len() <= 20, "{} crates: {crates:?}", crates.len());
}
