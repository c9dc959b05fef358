//! A lab for a test: in a directory of its own, removed at the end. Tests run side by side.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod machine;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A lab that ends with the test.
pub struct Lab {
    dir: PathBuf,
}

impl Lab {
    /// A lab that is not up yet.
    pub fn new(name: &str) -> Self {
        assert!(nix::unistd::Uid::effective().is_root(), "the lab's tests make namespaces: run them as root");
        let lab = Self { dir: format!("/run/juneau-lab-test-{name}-{}", std::process::id()).into() };
        lab.expect(&["down"]);
        lab
    }

    /// A lab that is up on two tenants whose numbers and addresses are given, so that tests can rely on them.
    pub fn two_tenants(name: &str) -> Self {
        let lab = Self::new(name);
        lab.up();
        lab
    }

    /// Starts it, without the check.
    pub fn up(&self) {
        let example = example();
        self.expect(&["up", "--no-check", "--no-operator", "--directory", example.to_str().unwrap()]);
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file in its directory of manifests.
    pub fn manifest(&self, name: &str) -> PathBuf {
        self.dir.join("manifests").join(name)
    }

    /// A command of the lab.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_juneau-lab"));
        command.arg("--state-dir").arg(&self.dir).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a command of the lab.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed; returns its standard output.
    #[track_caller]
    pub fn expect(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}\n{}", text(&output), self.logs());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `exec` with a command line that is split at blanks.
    #[track_caller]
    pub fn exec(&self, target: &str, line: &str) -> Output {
        let mut arguments = vec!["exec", target, "--"];
        arguments.extend(line.split(' '));
        self.run(&arguments)
    }

    /// `status -o json`.
    pub fn status(&self) -> Value {
        serde_json::from_slice(&self.run(&["status", "-o", "json"]).stdout).unwrap()
    }

    /// `check -o json`, and whether it succeeded.
    pub fn check(&self) -> (bool, Value) {
        let output = self.run(&["check", "-o", "json"]);
        let report = serde_json::from_slice(&output.stdout);
        (output.status.success(), report.unwrap_or_else(|error| panic!("{error}: {}", text(&output))))
    }

    /// `check` must find every cell as expected.
    #[track_caller]
    pub fn expect_green(&self) {
        let output = self.run(&["check"]);
        assert!(output.status.success(), "{}\n{}", text(&output), self.logs());
    }

    /// A process id in the status: `/nodes/node-1/agent/pid`.
    pub fn pid(&self, pointer: &str) -> i32 {
        let status = self.status();
        let pid = status.pointer(pointer).and_then(Value::as_i64);
        i32::try_from(pid.unwrap_or_else(|| panic!("no {pointer} in {status:#}"))).unwrap()
    }

    /// Applies manifests from standard input.
    #[track_caller]
    pub fn apply(&self, manifests: &str) -> String {
        self.feed("apply", manifests)
    }

    /// Deletes what manifests from standard input name.
    #[track_caller]
    pub fn delete(&self, manifests: &str) -> String {
        self.feed("delete", manifests)
    }

    #[track_caller]
    fn feed(&self, verb: &str, manifests: &str) -> String {
        use std::io::Write;
        let mut command = self.command(&[verb, "-f", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{verb}: {}\n{}", text(&output), self.logs());
        String::from_utf8(output.stdout).unwrap()
    }

    /// The end of every log, for failures.
    pub fn logs(&self) -> String {
        let mut all = String::new();
        for file in std::fs::read_dir(self.dir.join("logs")).into_iter().flatten().flatten() {
            let log = std::fs::read_to_string(file.path()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(15)..].join("\n");
            all.push_str(&format!("--- {}\n{end}\n", file.file_name().display()));
        }
        all
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let output = self.run(&["down"]);
        if !std::thread::panicking() {
            assert!(output.status.success(), "down: {}", text(&output));
        }
    }
}

/// The manifests of two tenants, with every status filled in.
pub fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../juneau-api/tests/fixtures/two-tenants")
}

/// Everything that a command wrote.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Waits until a condition holds; returns how long that took.
#[track_caller]
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    start.elapsed()
}

/// Sends SIGKILL.
pub fn kill(pid: i32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
}

/// A Pod with its endpoint, as an operator would have filled it in.
pub fn pod(tenant: &str, name: &str, node: &str, subnet: &str, address: &str, uid: &str) -> String {
    let last: u8 = address.rsplit('.').next().unwrap().parse().unwrap();
    format!(
        "\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {tenant}, uid: {uid}}}
spec: {{nodeName: {node}, containers: [{{name: main, image: pause}}]}}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: NetworkInterface
metadata: {{name: {name}.eth0, namespace: {tenant}}}
spec: {{podRef: {{name: {name}, interface: eth0, uid: {uid}}}, nodeName: {node}, subnet: {subnet}}}
status: {{phase: Ready, address: {address}/24}}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: NetworkEndpoint
metadata: {{name: {name}.eth0, namespace: {tenant}}}
spec:
  kind: Pod
  nodeName: {node}
  subnet: {subnet}
  address: {address}/24
  macAddress: '02:00:0a:00:77:{last:02x}'
  podRef: {{name: {name}, interface: eth0, uid: {uid}}}
"
    )
}
