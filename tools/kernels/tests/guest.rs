//! The runner against guests that behave and guests that do not. Boots real kernels.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
};

/// A folder with shell scripts in the place of test binaries.
struct Scripts(PathBuf);

impl Scripts {
    fn new(name: &str, scripts: &[(&str, &str)]) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in scripts {
            let path = folder.join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(folder)
    }

    /// Runs the named scripts on 6.1 with a time limit of three seconds each.
    fn run(&self, names: &[&str]) -> (Output, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_juneau-kernels"))
            .args(["run", "--kernel", "6.1", "--limit", "3", "--"])
            .args(names.iter().map(|name| self.0.join(name)))
            // The logs of these failures must not take the place of a run's.
            .env("CARGO_TARGET_DIR", &self.0)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output, text)
    }
}

#[test]
#[ignore = "boots a virtual machine; `make test-kernels` runs it"]
fn exit_codes_and_output_come_back_and_a_hang_is_bounded() {
    let scripts = Scripts::new(
        "codes",
        &[
            (
                "features",
                "set -e; uname -r | grep -q '^6\\.1\\.'; [ \"$(id -u)\" = 0 ]\n\
                 mkdir /sys/fs/bpf/here; [ -d /sys/fs/cgroup/cgroup.procs ] || [ -f /sys/fs/cgroup/cgroup.procs ]\n\
                 ! touch /ro/file 2>/dev/null; touch /file",
            ),
            ("harness", "echo 'test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured'"),
            ("code", "echo reason of the failure; exit 42"),
            ("hang", "echo begun; sleep 60"),
            ("last", "true"),
        ],
    );
    let (output, text) = scripts.run(&["features", "harness", "code", "hang", "last"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("code failed (exit code 42)\nreason of the failure"), "{text}");
    assert!(text.contains("hang failed (time limit)\nbegun"), "{text}");
    assert!(text.ends_with("5 passed, 2 failed, 1 skipped\n"), "{text}");
    // What the guest wrote stayed in the guest.
    assert!(!PathBuf::from("/file").exists());
}

#[test]
#[ignore = "boots a virtual machine; `make test-kernels` runs it"]
fn a_guest_that_dies_is_booted_once_more_and_fails() {
    // Never on this machine: only where the root is a guest's overlay.
    let scripts = Scripts::new(
        "dies",
        &[
            ("first", "true"),
            (
                "panic",
                "grep -q '^overlay / overlay .*lowerdir=/ro,upperdir=/rw/upper' /proc/mounts || exit 1\n\
                 echo c >/proc/sysrq-trigger",
            ),
            ("never", "true"),
        ],
    );
    let (output, text) = scripts.run(&["first", "panic", "never"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.matches("booting once more").count(), 1, "{text}");
    assert!(text.contains("Kernel panic"), "{text}");
    // The one that panicked, the one that was not reached, and the fault itself.
    assert!(text.ends_with("1 passed, 3 failed, 0 skipped\n"), "{text}");
}
