//! The scripts around the tests: they must be able to fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("juneau-tools-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs the check of a machine that has these programs only.
fn preflight(programs: &[&str]) -> Output {
    let dir = scratch(&format!("path-{}", programs.len()));
    let always = ["sh", "id", "uname", "df", "awk", "grep", "dirname", "head"];
    for program in always.iter().chain(programs) {
        let found =
            std::env::split_paths(&std::env::var_os("PATH").unwrap()).map(|dir| dir.join(program)).find(|p| p.exists());
        let found = found.unwrap_or_else(|| panic!("this machine itself lacks {program}"));
        symlink(found, dir.join(program)).unwrap();
    }
    let mut command = Command::new("/bin/sh");
    command.arg(root().join("tools/preflight.sh")).arg("build").env("PATH", &dir).env("NO_INSTALL", "1");
    // Not the user's own Rust.
    command.env("HOME", &dir);
    let output = command.output().unwrap();
    fs::remove_dir_all(dir).unwrap();
    output
}

#[test]
fn the_check_before_a_build_names_what_is_missing_and_how_to_get_it() {
    let told = preflight(&["make", "cc", "pkg-config"]);
    assert_eq!(told.status.code(), Some(1));
    let told = text(&told);
    assert!(told.contains("apt-get install --no-install-recommends clang\n"), "{told}");
    assert!(told.contains("Rust is missing") && told.contains("rustup.rs"), "{told}");
    let fewer = text(&preflight(&["cc", "pkg-config"]));
    assert!(fewer.contains("missing packages: make clang"), "{fewer}");
}

/// Holds a status page to an output of cargo.
fn status(name: &str, page: &str, output: &str) -> Output {
    status_of(name, &[], page, output)
}

fn status_of(name: &str, options: &[&str], page: &str, output: &str) -> Output {
    let dir = scratch(name);
    fs::write(dir.join("status.md"), page).unwrap();
    fs::write(dir.join("output.txt"), output).unwrap();
    let mut command = Command::new("/bin/sh");
    command.arg(root().join("tools/status.sh")).args(options).arg(dir.join("status.md")).arg(dir.join("output.txt"));
    let result = command.output().unwrap();
    fs::remove_dir_all(dir).unwrap();
    result
}

const OUTPUT: &str = "\
     Running unittests src/lib.rs (target/debug/deps/juneau_core-0123456789abcdef)
test id::tests::ranges ... ok
test id::tests::broken ... FAILED
test id::tests::asleep ... ignored
     Running tests/paths.rs (target/debug/deps/paths-0123456789abcdef)
test a_stream ... ok
     Running tests/programs/main.rs (target/debug/deps/programs-0123456789abcdef)
test flows::policy ... ok
";

fn page(cell: &str) -> String {
    format!("| id | what | shown by |\n|---|---|---|\n| A-1 | promise | {cell} |\n")
}

#[test]
fn the_status_page_is_held_to_what_ran() {
    for good in [
        "not yet",
        "bench *hit*",
        "`juneau_core::id::tests::ranges`",
        "`juneau_lab::paths::a_stream`, `juneau_bpf::programs::flows::policy`",
    ] {
        let result = status("good", &page(good), OUTPUT);
        assert!(result.status.success(), "{good}: {}", text(&result));
    }
    for bad in [
        "`juneau_core::id::tests::broken`",
        "`juneau_core::id::tests::asleep`",
        "`juneau_core::id::tests::never_written`",
        "`juneau_lab::paths::a_stream`, `juneau_lab::paths::gone`",
        "trust us",
    ] {
        let result = status("bad", &page(bad), OUTPUT);
        assert_eq!(result.status.code(), Some(1), "{bad}: {}", text(&result));
        assert!(text(&result).contains("A-1"), "the row is named: {}", text(&result));
    }
    assert!(!status("empty", "nothing\n", OUTPUT).status.success(), "a page without rows shows nothing");
    let twice = status("twice", &(page("not yet") + "| A-1 | another | not yet |\n"), OUTPUT);
    assert!(!twice.status.success() && text(&twice).contains("two rows A-1"), "{}", text(&twice));
}

#[test]
fn each_of_the_two_runs_is_held_to_its_own_tests() {
    let page = page("`juneau_lab::paths::a_stream`, `juneau_controlplane::kubernetes::definitions::apply`");
    assert!(status("mine", &page, OUTPUT).status.success());
    let kubernetes = "     Running tests/kubernetes/main.rs (target/debug/deps/kubernetes-0123456789abcdef)\n";
    let ran = format!("{kubernetes}test definitions::apply ... ok\n");
    let result = status_of("theirs", &["--kubernetes"], &page, &ran);
    assert!(result.status.success(), "{}", text(&result));
    assert!(text(&result).contains("1 tests held to this run, 1 belong to make test"), "{}", text(&result));
    let ignored = format!("{kubernetes}test definitions::apply ... ignored, needs Kubernetes\n");
    assert!(!status_of("ignored", &["--kubernetes"], &page, &ignored).status.success());
}

#[test]
fn continuous_integration_runs_the_readmes_test_command() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(readme.contains("\nmake test "), "the README has a command for tests");
    assert!(ci.lines().any(|line| line.ends_with(" make test")), "and .ci/run runs it");
    assert!(ci.lines().any(|line| line.ends_with(" make test-kubernetes")), "and the other one");
}
