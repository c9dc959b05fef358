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
const TARGETS: &[&str] =
    &[LIBRARY, "adoption", "conformance", "generations", "kernel_types", "layout", "packets", "programs"];

/// The package's library, as cargo names the target.
const LIBRARY: &str = "juneau_bpf";

/// The module in which tests are that measure.
const MEASUREMENTS: &str = "speed::";

/// One test binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Test {
    /// The name of the cargo target, or of the file.
    pub(crate) name: String,
    /// The binary.
    pub(crate) binary: PathBuf,
    /// The folder it is run in: that of its package, as cargo does.
    pub(crate) folder: PathBuf,
    /// The tests in it to run; all when empty.
    pub(crate) only: Vec<String>,
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
            only: Vec::new(),
        })
    }

    /// The names of the tests in the binary, as its harness lists them.
    ///
    /// # Errors
    /// Those of running it.
    fn names(&self) -> Result<Vec<String>, Error> {
        let listing =
            command::text(Command::new(&self.binary).args(["--list", "--format=terse"]).current_dir(&self.folder))?;
        Ok(listed(&listing))
    }

    /// The shell commands that run the test, give up after `limit`, and leave its exit code in `$?`.
    pub(crate) fn script(&self, limit: Duration) -> String {
        let folder = quoted(&self.folder.to_string_lossy());
        let mut script = format!(
            "cd {folder} && CARGO_MANIFEST_DIR={folder} RUST_BACKTRACE=1 timeout -k 5 {} {} {}",
            limit.as_secs().max(1),
            quoted(&self.binary.to_string_lossy()),
            // In turn, as one guest has one CPU; with the output of tests that pass, as it carries the numbers.
            "--test-threads=1 --show-output --color=never",
        );
        if !self.only.is_empty() {
            script.push_str(" --exact");
            for name in &self.only {
                script.push(' ');
                script.push_str(&quoted(name));
            }
        }
        script
    }
}

/// The name of a test without the hash that cargo appends.
fn without_hash(stem: &str) -> &str {
    match stem.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => name,
        _ => stem,
    }
}

/// The tests of a listing: its lines `NAME: test`.
fn listed(listing: &str) -> Vec<String> {
    listing.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// What guests are to run.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// For each guest of a kernel, its tests.
    pub(crate) shares: Vec<Vec<Test>>,
    /// Tests that are for the native kernel only.
    pub(crate) native_only: Vec<String>,
}

/// Deals out the tests of each binary to `count` guests, one after the other, and leaves measurements out.
///
/// # Errors
/// Those of running the binaries for their lists.
pub(crate) fn share(tests: &[Test], count: usize) -> Result<Shares, Error> {
    let named = tests.iter().map(|test| Ok((test, test.names()?))).collect::<Result<Vec<_>, Error>>()?;
    Ok(deal(&named, count))
}

fn deal(named: &[(&Test, Vec<String>)], count: usize) -> Shares {
    let mut result = Shares { shares: vec![Vec::new(); count], native_only: Vec::new() };
    for (test, names) in named {
        let (measurements, names): (Vec<_>, Vec<_>) =
            names.iter().cloned().partition(|name| name.starts_with(MEASUREMENTS));
        result.native_only.extend(measurements.iter().map(|name| format!("{}::{name}", test.name)));
        for (index, share) in result.shares.iter_mut().enumerate() {
            let only: Vec<String> = names.iter().skip(index).step_by(count).cloned().collect();
            // A binary without tests is run once, so that it fails.
            if !only.is_empty() || (names.is_empty() && index == 0) {
                share.push(Test { only, ..(*test).clone() });
            }
        }
    }
    result
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
                only: Vec::new(),
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
            only: Vec::new(),
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
        let test = Test {
            name: "t".to_owned(),
            binary: PathBuf::from("/a b/it's"),
            folder: PathBuf::from("/a b"),
            only: vec!["a::b".to_owned()],
        };
        let script = test.script(Duration::from_secs(7));
        assert!(script.starts_with("cd '/a b' && "), "{script}");
        assert!(script.contains(r"timeout -k 5 7 '/a b/it'\''s' "), "{script}");
        assert!(script.ends_with(" --exact 'a::b'"), "{script}");
    }

    #[test]
    fn every_test_is_dealt_to_one_guest_and_measurements_to_none() {
        let test = |name: &str| Test {
            name: name.to_owned(),
            binary: PathBuf::new(),
            folder: PathBuf::new(),
            only: Vec::new(),
        };
        let (programs, layout, none) = (test("programs"), test("layout"), test("none"));
        let names = |text: &str| listed(text);
        let named = [
            (&programs, names("a: test\nspeed::b: test\nc: test\nd: test\n\n3 tests, 1 benchmark\n")),
            (&layout, names("e: test\n")),
            (&none, Vec::new()),
        ];
        let dealt = deal(&named, 2);
        let seen: Vec<Vec<(&str, Vec<&str>)>> = dealt
            .shares
            .iter()
            .map(|share| {
                share.iter().map(|test| (&*test.name, test.only.iter().map(|name| &**name).collect())).collect()
            })
            .collect();
        assert_eq!(
            seen,
            [
                vec![("programs", vec!["a", "d"]), ("layout", vec!["e"]), ("none", vec![])],
                vec![("programs", vec!["c"])],
            ]
        );
        assert_eq!(dealt.native_only, ["programs::speed::b"]);
    }
}
