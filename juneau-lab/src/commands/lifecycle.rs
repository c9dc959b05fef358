//! `up` and `down`.

use super::{check, columns, print, show};
use crate::cli::Output;
use crate::error::{Context, LabError, Result};
use crate::lock::Lock;
use crate::paths::Paths;
use crate::spawn::start;
use crate::supervise::{Ask, ask};
use crate::teardown::teardown;
use juneau_api::source::directory::DirectorySource;
use juneau_api::source::store::Store;
use nix::mount::{MsFlags, mount};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a cluster may take to come up.
const SETTLE: Duration = Duration::from_secs(30);

/// Which manifests a lab starts with when none are named.
const EXAMPLE: &str = "examples/tenants";

/// What `up` was asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct Up {
    /// Manifests to start with; they are copied [default: examples/tenants]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
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
    let manifests = find_manifests(options.directory.as_deref())?;
    let lock = Lock::take(paths)?;
    teardown(paths)?;
    prepare(paths, &manifests, options.agent.as_deref())?;
    let mut supervise = vec!["supervise".into(), "--mtu".into(), OsString::from(options.mtu.to_string())];
    if options.no_operator {
        supervise.push("--no-operator".into());
    }
    start(paths, "supervisor", &supervise, true)?;
    let state = ask(paths, Ask::Settled, SETTLE)?;
    drop(lock);
    print(&show::describe(&state));
    print(&show::list_problems(&show::problems(&state)));
    print(&format!("\nup after {:.1} s\n\n", start_time.elapsed().as_secs_f32()));
    let ok = options.no_check || check(paths, Output::Text)?;
    print(&next_steps(paths, &state));
    Ok(ok)
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

fn find_manifests(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        return named.is_dir().then(|| named.to_owned()).ok_or_else(|| {
            LabError::Usage(format!("{} is not a directory: --directory wants one with manifests", named.display()))
        });
    }
    // In the repository, or wherever the program lies in its target directory.
    let program = std::env::current_exe().context(|| "finding this program")?;
    let places = std::iter::once(Path::new("")).chain(program.ancestors());
    let mut found = places.map(|place| place.join(EXAMPLE)).filter(|place| place.is_dir());
    found.next().ok_or_else(|| LabError::Usage(format!("{EXAMPLE} is not here: name manifests with --directory DIR")))
}

fn prepare(paths: &Paths, manifests: &Path, agent: Option<&Path>) -> Result<()> {
    let dir = paths.dir();
    std::fs::create_dir_all(dir).context(|| format!("creating {}", dir.display()))?;
    mount(Some("juneau-lab"), dir, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=0755,size=512m"))
        .context(|| format!("mounting a tmpfs at {}", dir.display()))?;
    // Shared, so that the namespaces of Pods that are pinned here later show in the nodes' mount namespaces.
    mount(None::<&str>, dir, None::<&str>, MsFlags::MS_SHARED, None::<&str>)
        .context(|| format!("sharing the mounts below {}", dir.display()))?;
    for directory in paths.directories() {
        std::fs::create_dir_all(&directory).context(|| format!("creating {}", directory.display()))?;
    }
    let program = std::env::current_exe().context(|| "finding this program")?;
    let agent = match agent {
        Some(agent) => agent.canonicalize().context(|| format!("finding {}", agent.display()))?,
        None => program.clone(),
    };
    for (name, target) in [("juneau-lab", &program), ("juneau-agent", &agent)] {
        let link = paths.programs().join(name);
        std::os::unix::fs::symlink(target, &link).context(|| format!("linking {}", link.display()))?;
    }
    copy_manifests(manifests, &paths.manifests())?;
    add_nodes(&paths.manifests())
}

/// Nodes are the lab's own: two, unless the manifests bring theirs.
fn add_nodes(manifests: &Path) -> Result<()> {
    let read = DirectorySource::new(manifests).read();
    if !read.map_err(|error| LabError::Manifests(error.to_string()))?.view.nodes.is_empty() {
        return Ok(());
    }
    let nodes: String = [("node-1", "192.168.77.11"), ("node-2", "192.168.77.12")]
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
    let steps = [
        (format!("{lab} exec {pod} -- ping -c 3 {address}"), "a packet"),
        (format!("{lab} capture {node} -- udp port 4789"), "what the underlay sees of it, in another terminal"),
        (format!("{lab} exec {node} -- juneau-agent drops"), "what was dropped there, and why"),
        (format!("{lab} exec {node} -- juneau-agent flows"), "the connections that the node knows"),
        (format!("edit a file in {}", manifests.display()), "it is in force within a second: see check"),
        (format!("kill -9 {agent}"), "the agent of that node: connections stay, it comes back"),
        (format!("{lab} --help"), "all commands"),
        (format!("{lab} down"), "remove everything"),
    ];
    let rows: Vec<Vec<String>> =
        steps.into_iter().map(|(command, why)| vec![format!("  {command}"), why.to_owned()]).collect();
    format!("\nWhat to try next:\n{}", columns(&rows))
}
