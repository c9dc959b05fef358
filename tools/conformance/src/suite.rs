//! The suite: its names, its images, and a run of it.

use crate::error::{Context, Error, Result};
use crate::list::Entry;
use crate::report::Outcome;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};

/// Where the suite's images are said to be. No registry is asked: the nodes have them.
const REGISTRY: &str = "localhost/conformance";

/// How often progress is told.
const TELL: Duration = Duration::from_secs(10);

/// How many nodes the tests may count on.
const NODES: &str = "--num-nodes=2";

/// What begins the line of a test that ended: U+2022.
const BULLET: [u8; 3] = [0xe2, 0x80, 0xa2];

/// What a run needs.
#[derive(Debug, Clone)]
pub struct Suite {
    /// The tests.
    pub tests: PathBuf,
    /// What runs them.
    pub ginkgo: PathBuf,
    /// The folder of kubectl, which tests run.
    pub kubectl: PathBuf,
    /// For everything that a run writes.
    pub folder: PathBuf,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// The network namespace of the node beside the API server: tests speak to nodes and Pods themselves, too.
    pub namespace: &'a Path,
    /// An administrator's, as it is used there.
    pub kubeconfig: &'a Path,
    /// How many tests at a time.
    pub processes: u32,
    /// After which time all end.
    pub timeout: Duration,
}

impl Suite {
    /// The names of all tests.
    ///
    /// # Errors
    /// When the suite does not say.
    pub fn names(&self) -> Result<BTreeSet<String>> {
        Ok(self.say("--list-tests")?.lines().filter_map(name).collect())
    }

    /// The images that tests may want, as they are named where [`REGISTRY`] has them all.
    ///
    /// # Errors
    /// When the suite does not say.
    pub fn images(&self) -> Result<BTreeSet<String>> {
        Ok(self.say("--list-images")?.lines().map(str::to_owned).collect())
    }

    fn say(&self, what: &str) -> Result<String> {
        let mut command = Command::new(&self.tests);
        command.arg(what).env("KUBE_TEST_REPO_LIST", self.registries()?).env("TMPDIR", self.scratch()?);
        let told = format!("{} {what}", self.tests.display());
        let output = command.stdin(Stdio::null()).output().context(|| format!("running {told}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let last = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
        Err(Error::Program { command: told, status: output.status.to_string(), last })
    }

    /// A folder for what the tests leave lying about, which is removed after a run.
    fn scratch(&self) -> Result<PathBuf> {
        let scratch = self.folder.join("scratch");
        fs::create_dir_all(&scratch).on("creating", &scratch)?;
        Ok(scratch)
    }

    /// The file that says where images are.
    fn registries(&self) -> Result<PathBuf> {
        let kinds = ["promoterE2eRegistry", "buildImageRegistry", "gcEtcdRegistry", "gcRegistry", "sigStorageRegistry"];
        let registries: serde_json::Map<_, _> =
            kinds.map(|kind| (kind.to_owned(), json!(REGISTRY))).into_iter().collect();
        let file = self.folder.join("registries.json");
        fs::create_dir_all(&self.folder).on("creating", &self.folder)?;
        fs::write(&file, json!(registries).to_string()).on("writing", &file)?;
        Ok(file)
    }

    /// Runs tests, and returns what came out. Ends them when this process is interrupted.
    ///
    /// # Errors
    /// [`Error::NoReport`], [`Error::Interrupted`].
    pub fn run(&self, entries: &[&Entry], run: &Run<'_>, progress: &mut dyn FnMut(&str)) -> Result<Outcome> {
        let report = self.folder.join("report.json");
        for old in [&report, &self.folder.join("junit_01.xml")] {
            // One of an earlier run must not speak for this one; mostly there is none.
            fs::remove_file(old).ok();
        }
        let command = self.command(entries, run, &report)?;
        let log = self.folder.join("output.txt");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ended = runtime.context(|| "starting a runtime")?.block_on(follow(command, &log, entries.len(), progress));
        fs::remove_dir_all(self.scratch()?).on("removing", &self.folder.join("scratch"))?;
        ended?;
        let text = fs::read(&report);
        let text = text.map_err(|error| Error::NoReport { why: error.to_string(), log: log.clone() })?;
        Outcome::parse(&text).map_err(|error| Error::NoReport { why: error.to_string(), log })
    }

    fn command(&self, entries: &[&Entry], run: &Run<'_>, report: &Path) -> Result<Command> {
        let scratch = self.scratch()?;
        let mut command = Command::new("setpriv");
        // It ends with this process, and its own processes with it.
        command.args(["--pdeathsig", "KILL", "--", "nsenter"]);
        command.arg(format!("--net={}", run.namespace.display())).arg("--").arg(&self.ginkgo);
        command.args(["run", "--no-color", &format!("--procs={}", run.processes)]);
        command.arg(format!("--timeout={}s", run.timeout.as_secs())).arg(format!("--focus={}", focus(entries)));
        command.arg("--output-dir").arg(&self.folder).arg(format!("--json-report={}", file_name(report)));
        command.arg(&self.tests).arg("--").arg("--kubeconfig").arg(run.kubeconfig);
        command.args(["--provider=skeleton", NODES, "--disable-log-dump", "--dump-logs-on-failure=false"]);
        command.arg("--report-dir").arg(&self.folder).arg("--e2e-output-dir").arg(&scratch);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.kubectl.display()));
        command.env("KUBE_TEST_REPO_LIST", self.registries()?);
        command.env("KUBECACHEDIR", &scratch).env("TMPDIR", &scratch).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Ok(command)
    }
}

/// Runs a command in a process group of its own to its end, writes what it says to `log`, and tells how many of `total`
/// tests are done.
async fn follow(command: Command, log: &Path, total: usize, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let on = |source| Error::Io { what: "running the tests".to_owned(), source };
    let mut file = tokio::fs::File::create(log).await.on("creating", log)?;
    let mut command = tokio::process::Command::from(command);
    let mut child = command.process_group(0).spawn().map_err(on)?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let mut said = child.stdout.take().ok_or(Error::Interrupted)?;
    let mut end = signal(SignalKind::terminate()).map_err(on)?;
    let (begun, mut counter, mut buffer) = (Instant::now(), Counter::default(), vec![0; 1 << 16]);
    let mut tick = tokio::time::interval(TELL);
    tick.tick().await;
    let interrupted = loop {
        tokio::select! {
            read = said.read(&mut buffer) => match read.map_err(on)? {
                0 => break false,
                read => {
                    let part = buffer.get(..read).unwrap_or_default();
                    counter.add(part);
                    file.write_all(part).await.on("writing", log)?;
                }
            },
            _ = tick.tick() => {
                progress(&format!("{} of {total} done, {} s", counter.count, begun.elapsed().as_secs()));
            }
            _ = tokio::signal::ctrl_c() => break true,
            _ = end.recv() => break true,
        }
    };
    if let Some(group) = group.filter(|_| interrupted) {
        // It fails only when all are gone.
        killpg(group, Signal::SIGKILL).ok();
    }
    file.flush().await.on("writing", log)?;
    // How it ended says no more than the report.
    child.wait().await.map_err(on)?;
    if interrupted { Err(Error::Interrupted) } else { Ok(()) }
}

/// Counts the tests that ended, in whatever parts the output comes.
#[derive(Debug, Default)]
struct Counter {
    count: usize,
    matched: usize,
}

impl Counter {
    fn add(&mut self, part: &[u8]) {
        for byte in part {
            self.matched = match (BULLET.get(self.matched), BULLET[0]) {
                (Some(wanted), _) if wanted == byte => self.matched + 1,
                (_, first) if first == *byte => 1,
                _ => 0,
            };
            if self.matched == BULLET.len() {
                (self.count, self.matched) = (self.count + 1, 0);
            }
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A test's name in a line of the list that the suite prints: `FILE:LINE: NAME`, after spaces.
fn name(line: &str) -> Option<String> {
    let line = line.strip_prefix("    ")?;
    let (_, rest) = line.split_once(':')?;
    let (number, name) = rest.split_once(": ")?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.to_owned())
}

/// The expression by which ginkgo chooses these tests and no others.
fn focus(entries: &[&Entry]) -> String {
    let names: Vec<String> = entries.iter().map(|entry| regex::escape(&entry.name)).collect();
    format!("(?:{})$", names.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::List;

    #[test]
    fn names_are_read_as_the_suite_prints_them() {
        let line = "    test/e2e/network/dns.go:55: [sig-network] DNS should: provide [Conformance]";
        assert_eq!(name(line).as_deref(), Some("[sig-network] DNS should: provide [Conformance]"));
        assert_eq!(name("The following spec names can be used with 'ginkgo run --focus/skip':"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn a_test_is_chosen_by_its_whole_name() {
        let list = List::parse("= passes\nworks (well) [LinuxOnly]\nworks\n").unwrap();
        let entries: Vec<&Entry> = list.entries().iter().collect();
        let focus = regex::Regex::new(&focus(&entries)).unwrap();
        assert!(focus.is_match("Kubernetes e2e suite [sig-network] works (well) [LinuxOnly]"));
        assert!(focus.is_match("Kubernetes e2e suite [sig-network] works"));
        assert!(!focus.is_match("Kubernetes e2e suite [sig-network] works not"));
        assert!(!focus.is_match("Kubernetes e2e suite [sig-network] works (well) l"));
    }

    #[test]
    fn bullets_are_counted_wherever_the_output_is_cut() {
        let text = "• [1.5 seconds]\n••\u{2023}•";
        for size in 1..8 {
            let mut counter = Counter::default();
            text.as_bytes().chunks(size).for_each(|part| counter.add(part));
            assert_eq!(counter.count, 4, "in parts of {size}");
        }
    }
}
