//! `up`: from nothing to the table.

use crate::cli::print;
use crate::error::{ClusterError, Context, Result};
use crate::kubectl::Kubectl;
use crate::paths::Paths;
use crate::state::State;
use crate::teardown::teardown;
use crate::{check, deploy, keep};
use juneau_controlplane::{Containers, Program, Programs};
use juneau_lab::error::LabError;
use juneau_lab::lock::Lock;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The archives that a cluster needs, as `make images` writes them.
const ARCHIVES: [&str; 2] = ["juneau-agent.oci.tar", "juneau-operator.oci.tar"];

/// Manifests to start with when none are named.
const EXAMPLES: [&str; 2] = ["examples/tenants", "examples/deployments"];

/// How long whatever was applied may take to be there.
const PATIENCE: &str = "--timeout=120s";

/// How long the webhook may take to answer.
const WEBHOOK: Duration = Duration::from_secs(60);

/// What `up` was asked for.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Up {
    /// Directory with juneau-agent.oci.tar and juneau-operator.oci.tar, as `make images` writes them [default: target/images]
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// Manifests of tenants; may be given several times [default: examples/tenants, examples/deployments]
    #[arg(long, value_name = "DIR")]
    directory: Vec<PathBuf>,
    /// Start without tenants
    #[arg(long, conflicts_with = "directory")]
    empty: bool,
    /// Do not check who reaches whom
    #[arg(long)]
    no_check: bool,
    /// Start nodes only, without Juneau: they get ready when they are given another network
    #[arg(long, conflicts_with_all = ["images", "directory", "empty", "no_check"])]
    bare: bool,
}

/// Starts a cluster, or starts it anew, with Juneau and tenants. Returns whether the table is as expected.
///
/// # Errors
/// When it does not come up.
pub(crate) fn up(paths: &Paths, options: &Up) -> Result<bool> {
    if !nix::unistd::Uid::effective().is_root() {
        return Err(ClusterError::Usage("a cluster makes namespaces and mounts: run it as root".to_owned()));
    }
    let begun = Instant::now();
    let images = if options.bare { Vec::new() } else { archives(options.images.as_deref())? };
    let manifests = match &options.directory[..] {
        [] if options.empty => Vec::new(),
        [] => EXAMPLES.iter().map(|part| find(part)).collect::<Result<_>>()?,
        named => named.to_vec(),
    };
    let juneau = find("deploy")?;
    // Getting them takes minutes, once: not while the cluster is locked.
    let mut say = |line: &str| print(&format!("{line}\n"));
    Programs::find_or_build_these(&Program::ALL, &mut say)?;
    Containers::find_or_unpack(&mut say)?;
    let lock = take(paths)?;
    teardown(paths)?;
    start_keeper(paths, &images)?;
    let state = State::of_running(paths)?;
    if options.bare {
        print(&format!("\n{:.1} s from nothing\n", begun.elapsed().as_secs_f32()));
        return Ok(true);
    }
    let kubectl = Kubectl::new(paths, &state)?;
    let mut phase = Phase(Instant::now());

    let folder = paths.dir().join("deploy");
    let whole = deploy::juneau(&folder, &juneau, state.api_server)?;
    kubectl.succeed(&["apply", "--server-side", "-k", &whole.to_string_lossy()])?;
    phase.end(&format!("kubectl apply --server-side -k {}", whole.display()));
    // Nodes are ready when their agents have installed the plugin; that these say of themselves that they are is waited
    // for with everybody's Pods.
    kubectl.succeed(&["wait", "--for=condition=Ready", "node", "--all", PATIENCE])?;
    phase.end("agents, until their nodes are ready");

    let mut ok = true;
    // One after the other: a Deployment's Pods are refused as long as there are no Subnets.
    for (number, directory) in manifests.iter().enumerate() {
        let folder = paths.dir().join("manifests").join(number.to_string());
        let tenants = deploy::tenants(&folder, directory)?;
        apply_when_answered(&kubectl, &tenants)?;
        phase.end(&format!("kubectl apply -k {}, which is {}", tenants.display(), directory.display()));
    }
    wait_for_pods(&kubectl)?;
    phase.end("Pods ready");
    if !manifests.is_empty() && !options.no_check {
        ok = show_check(&kubectl)?;
        phase.end("check");
    }
    drop(lock);
    print(&format!("\n{:.1} s from nothing\n", begun.elapsed().as_secs_f32()));
    print(&next_steps(paths, &state));
    Ok(ok)
}

/// Prints the table. Returns whether every cell is as expected.
pub(crate) fn show_check(kubectl: &Kubectl) -> Result<bool> {
    let (table, ok) = check::run(kubectl)?;
    print(&format!("\n{table}"));
    Ok(ok)
}

/// Removes a cluster.
pub(crate) fn down(paths: &Paths) -> Result<()> {
    let lock = take(paths)?;
    teardown(paths)?;
    Ok(lock.remove()?)
}

fn take(paths: &Paths) -> Result<Lock> {
    Lock::take(paths.lab()).map_err(|error| match error {
        LabError::Locked { dir, pid } => ClusterError::Locked { dir, pid },
        other => other.into(),
    })
}

/// What happens is told when it has.
struct Phase(Instant);

impl Phase {
    fn end(&mut self, what: &str) {
        print(&format!("{what}: {:.1} s\n", self.0.elapsed().as_secs_f32()));
        self.0 = Instant::now();
    }
}

/// Starts the process that the cluster ends with, shows what it says, and waits until everything runs.
fn start_keeper(paths: &Paths, images: &[PathBuf]) -> Result<()> {
    let program = std::env::current_exe().context(|| "finding this program")?;
    let mut command = Command::new(&program);
    command
        .arg("--state-dir")
        .arg(paths.dir())
        .arg("keep")
        .arg("--responder")
        .arg(program.with_file_name("juneau-responder"));
    for image in images {
        command.arg("--image").arg(image);
    }
    // Nothing of ours stays with it: whoever reads what this command says would wait for its end.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir("/");
    // A group of its own: an interrupt at the terminal is not meant for it.
    command.process_group(0);
    let mut child = command.spawn().on("starting", &program)?;
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.context(|| "reading what the keeper says")?;
        if line == keep::READY {
            return Ok(());
        }
        print(&format!("{line}\n"));
    }
    let output = child.wait_with_output().context(|| "waiting for the keeper")?;
    let last = String::from_utf8_lossy(&output.stderr).trim().trim_start_matches("juneau-cluster: ").to_owned();
    Err(ClusterError::Program { command: "juneau-cluster keep".to_owned(), status: output.status.to_string(), last })
}

/// The first that a tenant asks for is answered when the operator has told the API server whom to trust.
fn apply_when_answered(kubectl: &Kubectl, tenants: &Path) -> Result<()> {
    let deadline = Instant::now() + WEBHOOK;
    loop {
        match kubectl.succeed(&["apply", "-k", &tenants.to_string_lossy()]) {
            Err(error) if Instant::now() < deadline && error.to_string().contains("webhook") => {
                std::thread::sleep(Duration::from_millis(200));
            }
            done => return done.map(drop),
        }
    }
}

/// Waits until all that was applied is there and ready.
fn wait_for_pods(kubectl: &Kubectl) -> Result<()> {
    let deployments = kubectl.succeed(&[
        "get",
        "deployments",
        "-A",
        "-o",
        "jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{\"\\n\"}{end}",
    ])?;
    for line in String::from_utf8_lossy(&deployments).lines() {
        if let Some((namespace, name)) = line.split_once(' ') {
            kubectl.succeed(&["-n", namespace, "rollout", "status", &format!("deployment/{name}"), PATIENCE])?;
        }
    }
    kubectl.succeed(&["wait", "--for=condition=Ready", "pod", "-A", "--all", PATIENCE]).map(drop)
}

fn archives(folder: Option<&Path>) -> Result<Vec<PathBuf>> {
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => {
            let program = std::env::current_exe().context(|| "finding this program")?;
            let target = program.ancestors().nth(2).unwrap_or(Path::new("target"));
            target.join("images")
        }
    };
    let all: Vec<PathBuf> = ARCHIVES.iter().map(|name| folder.join(name)).collect();
    match all.iter().find(|path| !path.is_file()) {
        Some(missing) => Err(ClusterError::Usage(format!("{} is missing: run make images", missing.display()))),
        None => Ok(all),
    }
}

/// A directory of the repository: from where we are, or from wherever the program lies in its target directory.
fn find(part: &str) -> Result<PathBuf> {
    let program = std::env::current_exe().context(|| "finding this program")?;
    let places = std::iter::once(Path::new("")).chain(program.ancestors());
    let mut found = places.map(|place| place.join(part)).filter(|place| place.is_dir());
    let found = found.next();
    let found = found.ok_or_else(|| ClusterError::Usage(format!("{part} is not here: run this in the repository")))?;
    std::path::absolute(&found).on("finding", &found)
}

fn next_steps(paths: &Paths, state: &State) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "juneau-cluster".to_owned());
    let cluster = if paths.dir() == Path::new(crate::paths::DEFAULT_DIR) {
        program
    } else {
        format!("{program} --state-dir {}", paths.dir().display())
    };
    format!(
        "\nWhat to try next:\n  export KUBECONFIG={}\n  kubectl get pod -A -o wide          # or: {cluster} kubectl …\n  \
         kubectl -n juneau-system exec daemonset/juneau-agent -- juneau-agent status\n  \
         {cluster} exec node-1 -- ip link    # inside a node\n  {cluster} check                     # the table again\n  \
         {}                                  # logs of nodes and control plane\n  {cluster} down                      # remove everything\n",
        state.kubeconfig.display(),
        paths.lab().logs().display(),
    )
}
