//! The same tests on the kernel of this machine, in namespaces of their own.

use std::{fs, process::Command, time::Duration};

use crate::{error::Error, outcome::Outcome, suite::Test};

/// The release of the running kernel.
///
/// # Errors
/// When `/proc` is not there.
pub(crate) fn release() -> Result<String, Error> {
    let path = "/proc/sys/kernel/osrelease";
    fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(Error::file("reading", path))
}

/// Runs `tests` one after the other, each in a network and a mount namespace of its own, with a BPF file system.
///
/// # Errors
/// When a test cannot be started. One that fails is an outcome.
pub(crate) fn run(tests: &[Test], limit: Duration) -> Result<Vec<Outcome>, Error> {
    tests
        .iter()
        .map(|test| {
            let script =
                format!("{{ mount -t bpf bpf /sys/fs/bpf && ip link set lo up && {}; }} 2>&1", test.script(limit));
            let out = Command::new("unshare")
                .args(["--net", "--mount", "sh", "-c", &script])
                .output()
                .map_err(|source| Error::Start { program: "unshare".to_owned(), source })?;
            Ok(Outcome {
                name: test.name.clone(),
                code: out.status.code(),
                output: String::from_utf8_lossy(&out.stdout).into_owned(),
            })
        })
        .collect()
}
