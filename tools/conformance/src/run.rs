//! From nothing to the verdict.

use crate::error::{Context, Error, Result};
use crate::image;
use crate::judge::{Verdict, judge};
use crate::list::{Entry, Expected, List};
use crate::suite::{Run, Suite};
use juneau_cluster::config::PAUSE;
use juneau_cluster::{Node, Paths, State};
use juneau_controlplane::{Containers, Program, Programs, Tool};
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Images in whose place agnhost with its programs does: shells and clients.
const LIKE_AGNHOST: [&str; 3] = ["agnhost", "busybox", "glibc-dns-testing"];

/// What to run, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster: it is used when it runs, or else started, and then removed at the end.
    pub state_dir: PathBuf,
    /// Leave a cluster that was started here.
    pub keep: bool,
    /// The program that starts clusters: `juneau-cluster`.
    pub cluster: PathBuf,
    /// Archives of agent and operator, for a cluster that is started.
    pub images: Option<PathBuf>,
    /// For what the tests write: their report, JUnit's, their output.
    pub folder: PathBuf,
    /// Run tests whose names this matches, whatever is expected of them, and not those that are to pass.
    pub focus: Option<Regex>,
    /// Run all tests of the list.
    pub all: bool,
    /// How many tests at a time.
    pub processes: u32,
    /// After which time all end.
    pub timeout: Duration,
}

impl Options {
    fn chooses(&self, entry: &Entry) -> bool {
        match &self.focus {
            Some(focus) => focus.is_match(&entry.name),
            None => self.all || entry.expected == Expected::Passes,
        }
    }
}

/// Runs the tests that are chosen.
///
/// # Errors
/// When they cannot be run; one that fails is none.
pub fn run(list: &List, options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Verdict> {
    let wanted: Vec<Program> = Program::ALL.into_iter().chain(Program::CONFORMANCE).collect();
    let programs = Programs::find_or_build_these(&wanted, progress)?;
    let kubectl = programs.path(Program::Kubectl).parent().map(Path::to_owned).unwrap_or_default();
    fs::create_dir_all(&options.folder).on("creating", &options.folder)?;
    let suite = Suite {
        tests: programs.path(Program::EndToEnd),
        ginkgo: programs.path(Program::Ginkgo),
        kubectl,
        folder: options.folder.clone(),
    };
    let complaints = list.complaints(&suite.names()?);
    if !complaints.is_empty() {
        return Err(Error::Suite(complaints.join("\n")));
    }
    let chosen: Vec<&Entry> = list.entries().iter().filter(|entry| options.chooses(entry)).collect();
    if chosen.is_empty() {
        return Err(Error::Nothing);
    }
    let cluster = Cluster::get(options, progress)?;
    let begun = Instant::now();
    let archive = options.folder.join("agnhost.oci.tar");
    let images = suite.images()?;
    image::write(&archive, AGNHOST, &programs.path(Program::Agnhost), &busybox(progress)?)?;
    let given = cluster.give(&archive, &images);
    fs::remove_file(&archive).on("removing", &archive)?;
    given?;
    progress(&format!("image of the tests' Pods, on every node: {:.1} s", begun.elapsed().as_secs_f32()));
    let begun = Instant::now();
    let run = Run {
        namespace: &cluster.namespace()?,
        kubeconfig: &cluster.paths.control_plane().join("admin.inner.kubeconfig"),
        processes: options.processes,
        timeout: options.timeout,
    };
    progress(&format!("{} tests of Kubernetes {}, {} at a time", chosen.len(), Programs::version(), run.processes));
    let outcome = suite.run(&chosen, &run, progress)?;
    progress(&format!(
        "tests: {:.0} s; report, JUnit's and output: {}",
        begun.elapsed().as_secs_f32(),
        options.folder.display()
    ));
    cluster.end()?;
    Ok(judge(list.entries(), |entry| options.chooses(entry), &outcome))
}

/// The name that the image has when it comes from its archive.
const AGNHOST: &str = "localhost/juneau-agnhost:1";

fn busybox(progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    Ok(Containers::find_or_unpack(progress)?.path(Tool::Busybox))
}

/// The cluster, which ends with this value when it was started for it.
struct Cluster {
    paths: Paths,
    state: State,
    /// What removes it.
    down: Option<Command>,
}

impl Cluster {
    fn get(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Self> {
        let dir = std::path::absolute(&options.state_dir).on("finding", &options.state_dir)?;
        let paths = Paths::new(&dir);
        if let Ok(state) = State::of_running(&paths) {
            progress(&format!("the cluster in {} is there", dir.display()));
            return Ok(Self { paths, state, down: None });
        }
        let command = |words: &[&str]| {
            let mut command = Command::new(&options.cluster);
            command.arg("--state-dir").arg(&dir).args(words).stdin(Stdio::null());
            command
        };
        let mut up = command(&["up", "--empty"]);
        if let Some(images) = &options.images {
            up.arg("--images").arg(images);
        }
        progress(&format!("starting a cluster in {}", dir.display()));
        succeed(&mut up)?;
        let down = (!options.keep).then(|| command(&["down"]));
        let state = State::of_running(&paths)?;
        Ok(Self { paths, state, down })
    }

    fn nodes(&self) -> Result<Vec<Node>> {
        Ok(self.state.nodes.keys().map(|name| self.state.node(&self.paths, name)).collect::<Result<_, _>>()?)
    }

    /// The network namespace of the node that the API server is on.
    fn namespace(&self) -> Result<PathBuf> {
        let mut names = self.state.nodes.iter().filter(|(_, address)| **address == self.state.api_server);
        let found = names.next().map(|(name, _)| self.paths.namespace(name));
        let dir = || self.paths.dir().to_owned();
        found.ok_or_else(|| Error::Cluster(juneau_cluster::ClusterError::NotRunning { dir: dir() }))
    }

    /// Imports the archive into every node, and has it there under all names that tests use for it; likewise what holds
    /// a Pod's namespaces.
    fn give(&self, archive: &Path, images: &BTreeSet<String>) -> Result<()> {
        for node in self.nodes()? {
            node.import(archive)?;
            for image in images {
                let name = image.rsplit('/').next().and_then(|name| name.split(':').next()).unwrap_or_default();
                let from = match name {
                    "pause" => PAUSE,
                    name if LIKE_AGNHOST.contains(&name) => AGNHOST,
                    _ => continue,
                };
                let mut command = node.ctr()?;
                succeed_quietly(command.args(["images", "tag", "--force", from, image]))?;
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        self.down.take().map_or(Ok(()), |mut down| succeed(&mut down))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Only after an error, which is told in its place.
        self.down.take().map(|mut down| down.status());
    }
}

/// Runs a command that shows what it does by itself.
fn succeed(command: &mut Command) -> Result<()> {
    let told = format!("{command:?}");
    let status = command.status().context(|| format!("running {told}"))?;
    let last = || "it says why above".to_owned();
    status.success().then_some(()).ok_or_else(|| Error::Program {
        command: told,
        status: status.to_string(),
        last: last(),
    })
}

/// Runs a command whose words are worth something only if it fails.
fn succeed_quietly(command: &mut Command) -> Result<()> {
    let told = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().context(|| format!("running {told}"))?;
    if output.status.success() {
        return Ok(());
    }
    let last = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
    Err(Error::Program { command: told, status: output.status.to_string(), last })
}
