//! The program itself, without a cluster: help, completion, and what it says where there is none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Output};

fn run(program: &Path, arguments: &[&str]) -> Output {
    // A kubeconfig of whoever runs the tests is none of theirs.
    let mut command = Command::new(program);
    command.args(arguments).env("KUBECONFIG", "/nonexistent").env("HOME", "/nonexistent");
    command.env_remove("KUBERNETES_SERVICE_HOST").output().unwrap()
}

fn plugin(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run(Path::new(env!("CARGO_BIN_EXE_kubectl-juneau")), arguments);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn every_command_says_how_it_is_used() {
    for arguments in [
        &["--help"][..],
        &["describe", "--help"],
        &["status", "--help"],
        &["completion", "--help"],
        &["trace", "--help"],
        &["support-bundle", "--help"],
    ] {
        let (code, help, _) = plugin(arguments);
        assert_eq!(code, Some(0));
        assert!(help.contains("kubectl juneau") && help.contains("Examples:\n  "), "{help}");
    }
    let (_, help, _) = plugin(&["status", "--help"]);
    assert!(help.contains("Exit status: 0 when nothing that could be read is off"), "{help}");
}

#[test]
fn shells_get_scripts_and_kubectl_gets_candidates() {
    for (shell, says) in [("bash", "complete -F"), ("zsh", "#compdef kubectl-juneau"), ("fish", "complete -c")] {
        let (code, script, _) = plugin(&["completion", shell]);
        assert!(code == Some(0) && script.contains(says) && script.contains("describe"), "{shell}: {script}");
    }
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("kubectl_complete-juneau");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kubectl-juneau"), &link).unwrap();
    let output = run(&link, &["describe", "n"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "networkinterface\n:4\n");
}

#[test]
fn without_a_cluster_it_says_so() {
    for (arguments, expected) in [
        (&["status"][..], 2),
        (&["describe", "vpc", "red"], 1),
        (&["trace", "a1", "10.0.0.1"], 2),
        (&["support-bundle"], 2),
    ] {
        let (code, out, error) = plugin(arguments);
        assert_eq!((code, out.as_str()), (Some(expected), ""), "{error}");
        assert!(error.starts_with("error: no API server is known: ") && error.contains("--kubeconfig"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let (code, out, _) = plugin(&["version", "--client"]);
    assert_eq!((code, out.as_str()), (Some(0), concat!("kubectl-juneau  ", env!("CARGO_PKG_VERSION"), "\n")));
    // A kind that is not known is a slip of the command line.
    let (code, _, error) = plugin(&["describe", "pdo", "red"]);
    assert!(code == Some(2) && error.contains("pod"), "{error}");
}
