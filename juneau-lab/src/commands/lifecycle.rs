//! `up` and `down`.

use super::{check, columns, print, show};
use crate::cli::Output;
use crate::cluster::NODES;
use crate::error::{Context, LabError, Result};
use crate::lock::Lock;
use crate::paths::Paths;
use crate::spawn::start;
use crate::supervise::{Ask, ask};
use crate::teardown::teardown;
use juneau_api::source::directory::DirectorySource;
use juneau_api::source::store::Store;
use juneau_controlplane::Programs;
use nix::mount::{MsFlags, mount};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a cluster may take to come up.
const SETTLE: Duration = Duration::from_secs(30);

/// Which manifests a lab starts with when none are named.
const EXAMPLE: &str = "examples/tenants";

/// How long one may take whose API server has to start as well.
const SETTLE_KUBERNETES: Duration = Duration::from_secs(120);

/// What `up` was asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct Up {
    /// Manifests to start with; they are copied, or applied to the API server [default: examples/tenants]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Start with nodes and nothing else
    #[arg(long, conflicts_with = "directory")]
    empty: bool,
    /// Run on a real API server, whose programs are built once, instead of on a directory
    #[arg(long, conflicts_with = "no_operator")]
    kubernetes: bool,
    /// Do not check who reaches whom
    #[arg(long)]
    no_check: bool,
    /// Run no operator: the manifests say everything, statuses and endpoints too
    #[arg(long)]
    no_operator: bool,
    /// MTU of the underlay, in bytes; Pods get 50 less
    #[arg(long, default_value_t = 1500, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(676..=65535))]
    mtu: u32,
    /// The agent to run on the nodes, instead of this program's own
    #[arg(long, value_name = "PROGRAM")]
    agent: Option<PathBuf>,
    /// The operator to run, instead of this program's own
    #[arg(long, value_name = "PROGRAM", conflicts_with = "no_operator")]
    operator: Option<PathBuf>,
}

/// Starts a lab, or starts it anew. Returns whether all is as it should be.
///
/// # Errors
/// When it does not come up.
pub fn up(paths: &Paths, options: &Up) -> Result<bool> {
    if !nix::unistd::Uid::effective().is_root() {
        return Err(LabError::Usage(
            "the lab makes network namespaces and loads BPF programs: run it as root".to_owned(),
        ));
    }
    let start_time = Instant::now();
    let manifests = match &options.directory {
        _ if options.empty => None,
        Some(named) if !named.is_dir() => {
            return Err(LabError::Usage(format!(
                "{} is not a directory: --directory wants one with manifests",
                named.display()
            )));
        }
        Some(named) => Some(named.clone()),
        None => Some(find(EXAMPLE)?),
    };
    if options.kubernetes {
        // Building them takes minutes, once: not while the lab is locked.
        Programs::find_or_build(&mut |line| print(&format!("{line}\n")))?;
    }
    let lock = Lock::take(paths)?;
    teardown(paths)?;
    prepare(paths, options)?;
    let mut supervise = vec!["supervise".into(), "--mtu".into(), OsString::from(options.mtu.to_string())];
    if options.kubernetes {
        super::kubernetes::prepare(paths)?;
        supervise.push("--kubernetes".into());
    } else {
        if let Some(manifests) = &manifests {
            copy_manifests(manifests, &paths.manifests())?;
        }
        add_nodes(&paths.manifests())?;
    }
    if options.no_operator {
        supervise.push("--no-operator".into());
    }
    let prepared = start_time.elapsed();
    start(paths, "supervisor", &supervise, true)?;
    let settle = if options.kubernetes { SETTLE_KUBERNETES } else { SETTLE };
    let mut state = ask(paths, Ask::Settled, settle)?;
    let mut phases = Phases::of(start_time, prepared, &state);
    if options.kubernetes
        && let Some(manifests) = manifests
    {
        super::kubernetes::apply(paths, &[manifests])?;
        phases.end("kubectl apply");
        state = ask(paths, Ask::Settled, settle)?;
        phases.end("Pods");
    }
    drop(lock);
    print(&show::describe(&state));
    print(&show::list_problems(&show::problems(&state)));
    print(&format!("\nup after {:.1} s\n\n", start_time.elapsed().as_secs_f32()));
    let ok = options.no_check || state.pods.is_empty() || check(paths, Output::Text)?;
    if options.kubernetes {
        phases.end("check");
        print(&phases.text(start_time));
    }
    print(&next_steps(paths, &state));
    Ok(ok)
}

/// How long what took.
struct Phases {
    last: Instant,
    all: Vec<(String, f32)>,
}

impl Phases {
    /// What the supervisor measured, and what was around it.
    fn of(start: Instant, prepared: Duration, state: &crate::state::State) -> Self {
        let known = state.kubernetes.iter().flat_map(|kubernetes| &kubernetes.phases);
        let known = known.map(|(name, ms)| (name.clone(), Duration::from_millis(*ms).as_secs_f32()));
        let mut all = vec![("preparation".to_owned(), prepared.as_secs_f32())];
        all.extend(known);
        let rest = start.elapsed().as_secs_f32() - all.iter().map(|(_, seconds)| seconds).sum::<f32>();
        all.push(("controllers, operator, nodes, agents".to_owned(), rest));
        Self { last: Instant::now(), all }
    }

    fn end(&mut self, name: &str) {
        self.all.push((name.to_owned(), self.last.elapsed().as_secs_f32()));
        self.last = Instant::now();
    }

    fn text(&self, start: Instant) -> String {
        let parts: Vec<String> = self.all.iter().map(|(name, seconds)| format!("{name} {seconds:.1}")).collect();
        format!("\n{:.1} s from nothing: {}\n", start.elapsed().as_secs_f32(), parts.join(", "))
    }
}

/// Removes a lab.
///
/// # Errors
/// When something of it cannot be removed.
pub fn down(paths: &Paths) -> Result<()> {
    let lock = Lock::take(paths)?;
    teardown(paths)?;
    lock.remove()
}

/// A directory of the repository: from where we are, or from wherever the program lies in its target directory.
pub(super) fn find(part: &str) -> Result<PathBuf> {
    let program = std::env::current_exe().context(|| "finding this program")?;
    let places = std::iter::once(Path::new("")).chain(program.ancestors());
    let mut found = places.map(|place| place.join(part)).filter(|place| place.is_dir());
    let found =
        found.next().ok_or_else(|| LabError::Usage(format!("{part} is not here: run this in the repository")))?;
    std::path::absolute(&found).context(|| format!("finding {}", found.display()))
}

fn prepare(paths: &Paths, options: &Up) -> Result<()> {
    let dir = paths.dir();
    std::fs::create_dir_all(dir).context(|| format!("creating {}", dir.display()))?;
    mount(Some("juneau-lab"), dir, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=0755,size=2g"))
        .context(|| format!("mounting a tmpfs at {}", dir.display()))?;
    // Shared, so that the namespaces of Pods that are pinned here later show in the nodes' mount namespaces.
    mount(None::<&str>, dir, None::<&str>, MsFlags::MS_SHARED, None::<&str>)
        .context(|| format!("sharing the mounts below {}", dir.display()))?;
    for directory in paths.directories() {
        std::fs::create_dir_all(&directory).context(|| format!("creating {}", directory.display()))?;
    }
    let program = std::env::current_exe().context(|| "finding this program")?;
    for (name, other) in
        [("juneau-lab", None), ("juneau-agent", options.agent.as_ref()), ("juneau-operator", options.operator.as_ref())]
    {
        let target = match other {
            Some(other) => other.canonicalize().context(|| format!("finding {}", other.display()))?,
            None => program.clone(),
        };
        let link = paths.programs().join(name);
        std::os::unix::fs::symlink(&target, &link).context(|| format!("linking {}", link.display()))?;
    }
    Ok(())
}

/// Nodes are the lab's own: two, unless the manifests bring theirs.
fn add_nodes(manifests: &Path) -> Result<()> {
    let read = DirectorySource::new(manifests).read();
    if !read.map_err(|error| LabError::Manifests(error.to_string()))?.view.nodes.is_empty() {
        return Ok(());
    }
    let nodes: String = NODES
        .map(|(name, address)| {
            format!(
                "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\nstatus:\n  addresses:\n    \
                 - type: InternalIP\n      address: {address}\n"
            )
        })
        .concat();
    Store::new(manifests).apply(&nodes).map(drop).map_err(|error| LabError::Manifests(error.to_string()))
}

fn copy_manifests(from: &Path, to: &Path) -> Result<()> {
    let mut copied = 0;
    let what = || format!("copying {} to {}", from.display(), to.display());
    for entry in std::fs::read_dir(from).context(what)? {
        let entry = entry.context(what)?;
        let name = PathBuf::from(entry.file_name());
        if juneau_api::source::directory::is_manifest(&name) && entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(&name)).context(what)?;
            copied += 1;
        }
    }
    match copied {
        0 => Err(LabError::Usage(format!("{} holds no manifests (*.yaml)", from.display()))),
        _ => Ok(()),
    }
}

fn next_steps(paths: &Paths, state: &crate::state::State) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "juneau-lab".to_owned());
    let lab = if paths.dir() == Path::new(crate::paths::DEFAULT_DIR) {
        program
    } else {
        format!("{program} --state-dir {}", paths.dir().display())
    };
    let mut pods = state.pods.iter().filter_map(|(name, pod)| Some((name, pod, pod.attached.as_ref()?)));
    let Some((pod, one, _)) = pods.next() else { return String::new() };
    let other = pods.find(|(_, pod, _)| pod.node != one.node).map(|(_, _, attached)| &attached.address);
    let address = other.and_then(|address| address.split('/').next()).unwrap_or("10.0.2.20");
    let node = &one.node;
    let agent = state.nodes.get(node).and_then(|node| node.agent).map_or(0, |agent| agent.pid);
    let manifests = paths.manifests();
    let edit = match &state.kubernetes {
        Some(_) => (
            format!("{lab} kubectl get vpc,subnet,iface -A"),
            "the objects; or with your own kubectl, by the path that kubeconfig --path prints",
        ),
        None => (format!("edit a file in {}", manifests.display()), "it is in force within a second: see check"),
    };
    let steps = [
        (format!("{lab} exec {pod} -- ping -c 3 {address}"), "a packet"),
        (format!("{lab} capture {node} -- udp port 4789"), "what the underlay sees of it, in another terminal"),
        (format!("{lab} exec {node} -- juneau-agent drops"), "what was dropped there, and why"),
        (format!("{lab} exec {node} -- juneau-agent flows"), "the connections that the node knows"),
        edit,
        (format!("kill -9 {agent}"), "the agent of that node: connections stay, it comes back"),
        (format!("{lab} --help"), "all commands"),
        (format!("{lab} down"), "remove everything"),
    ];
    let rows: Vec<Vec<String>> =
        steps.into_iter().map(|(command, why)| vec![format!("  {command}"), why.to_owned()]).collect();
    format!("\nWhat to try next:\n{}", columns(&rows))
}
