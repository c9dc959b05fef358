//! The test binaries: built once on the host, then run everywhere.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    command::{self, quoted},
    error::Error,
};

/// The package whose tests are run.
const PACKAGE: &str = "juneau-bpf";

/// The targets of that package whose tests ask something of the kernel: the library's own, then integration tests.
/// Measurements and races between two CPUs are not among them: an emulated machine with one CPU answers neither.
const TARGETS: &[&str] = &[LIBRARY, "adoption", "conformance", "generations", "layout", "packets"];

/// The package's library, as cargo names the target.
const LIBRARY: &str = "juneau_bpf";

/// One test binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Test {
    /// The name of the cargo target, or of the file.
    pub(crate) name: String,
    /// The binary.
    pub(crate) binary: PathBuf,
    /// The folder it is run in: that of its package, as cargo does.
    pub(crate) folder: PathBuf,
}

impl Test {
    /// A binary named by hand.
    ///
    /// # Errors
    /// [`Error::NoBinary`] when there is no such file.
    pub(crate) fn from_path(path: &Path) -> Result<Self, Error> {
        let binary =
            path.canonicalize().ok().filter(|path| path.is_file()).ok_or_else(|| Error::NoBinary(path.to_owned()))?;
        let name = binary.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: without_hash(&name).to_owned(),
            folder: binary.parent().unwrap_or(Path::new("/")).to_owned(),
            binary,
        })
    }

    /// The shell commands that run the test, give up after `limit`, and leave its exit code in `$?`.
    pub(crate) fn script(&self, limit: Duration) -> String {
        let folder = quoted(&self.folder.to_string_lossy());
        format!(
            "cd {folder} && CARGO_MANIFEST_DIR={folder} RUST_BACKTRACE=1 timeout -k 5 {} {} {}",
            limit.as_secs().max(1),
            quoted(&self.binary.to_string_lossy()),
            // In turn, as one guest has one CPU; with the output of tests that pass, as it carries the numbers.
            "--test-threads=1 --show-output --color=never",
        )
    }
}

/// The name of a test without the hash that cargo appends.
fn without_hash(stem: &str) -> &str {
    match stem.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => name,
        _ => stem,
    }
}

/// Builds the test binaries of [`TARGETS`] with cargo. With `whole`, the whole workspace's tests are built, and so with
/// the features of dependencies that `cargo test --workspace` gives them: after it, nothing is left to build.
///
/// # Errors
/// [`Error::Command`] when cargo fails, and [`Error::NotBuilt`] for a test that does not exist.
pub(crate) fn build(workspace: &Path, whole: bool) -> Result<Vec<Test>, Error> {
    say!("building the tests of {PACKAGE}: {}", TARGETS.join(" "));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace).args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    if whole {
        command.arg("--workspace");
    } else {
        command.args(["--package", PACKAGE]);
        for target in TARGETS {
            if *target == LIBRARY {
                command.arg("--lib");
            } else {
                command.args(["--test", target]);
            }
        }
    }
    // Cargo's own progress and errors go to the terminal.
    let messages = command::text(command.stderr(Stdio::inherit()))?;
    let built = executables(&messages, PACKAGE);
    TARGETS
        .iter()
        .map(|name| {
            built.iter().find(|test| test.name == *name).cloned().ok_or_else(|| Error::NotBuilt((*name).to_owned()))
        })
        .collect()
}

/// The test binaries of the package in cargo's messages (one JSON object a line). A package's folder has its name.
fn executables(messages: &str, package: &str) -> Vec<Test> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact" && message["profile"]["test"] == true)
        .filter_map(|message| {
            Some(Test {
                name: message["target"]["name"].as_str()?.to_owned(),
                binary: PathBuf::from(message["executable"].as_str()?),
                folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
            })
        })
        .filter(|test| test.folder.ends_with(package))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_found_among_the_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"juneau_bpf"},"manifest_path":"/w/b/Cargo.toml","profile":{"test":false},"executable":null}
warning: not JSON
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"programs"},"manifest_path":"/w/b/Cargo.toml","profile":{"test":true},"executable":"/w/t/programs-0123456789abcdef"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"programs"},"manifest_path":"/w/c/Cargo.toml","profile":{"test":true},"executable":"/w/t/programs-fedcba9876543210"}
{"reason":"build-finished","success":true}"#;
        let expected = Test {
            name: "programs".to_owned(),
            binary: PathBuf::from("/w/t/programs-0123456789abcdef"),
            folder: PathBuf::from("/w/b"),
        };
        assert_eq!(executables(messages, "b"), [expected]);
    }

    #[test]
    fn only_a_hash_is_taken_off_a_name() {
        assert_eq!(without_hash("programs-0123456789abcdef"), "programs");
        assert_eq!(without_hash("two-words"), "two-words");
        assert_eq!(without_hash("plain"), "plain");
    }

    #[test]
    fn paths_with_spaces_reach_the_shell_whole() {
        let test = Test { name: "t".to_owned(), binary: PathBuf::from("/a b/it's"), folder: PathBuf::from("/a b") };
        let script = test.script(Duration::from_secs(7));
        assert!(script.starts_with("cd '/a b' && "), "{script}");
        assert!(script.contains(r"timeout -k 5 7 '/a b/it'\''s' "), "{script}");
    }
}
