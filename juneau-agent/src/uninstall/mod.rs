//! Taking everything of ours off a node.
//!
//! Found is what the kernel and the file system show, not what an agent has noted down, so that a second time, and a
//! time after one that was cut short, do the rest. What is not ours by its content, its name in the kernel or its mark
//! stays, and is told.

mod files;
mod report;

pub use report::{Item, Outcome, Report};

use crate::lock::{Lock, LockError};
use crate::net::{Link, NetError, Netlink};
use crate::node_port;
use crate::pod::{LINK_GROUP, Record};
use crate::underlay::VXLAN_DEVICE;
use juneau_bpf::{AttachPoint, Remains};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const AGAIN: &str = "see the message, then once more";

/// Where an agent that ran here had its things.
#[derive(Debug, Clone)]
pub struct Places {
    /// Programs and maps.
    pub pin_dir: PathBuf,
    /// The lock.
    pub state_dir: PathBuf,
    /// The agent's socket.
    pub socket: PathBuf,
    /// The metrics' socket.
    pub metrics_socket: PathBuf,
    /// The CNI plugin.
    pub cni_bin_dir: PathBuf,
    /// The CNI configuration.
    pub cni_conf_dir: PathBuf,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UninstallError {
    /// An agent runs, and would put everything back.
    #[error(
        "an agent runs on this node ({what}): end it first, with its DaemonSet (kubectl -n juneau-system delete \
         daemonset juneau-agent) or whatever else starts it; then once more"
    )]
    Running {
        /// How that shows.
        what: String,
    },
    /// It cannot be told whether one runs.
    #[error(transparent)]
    Lock(LockError),
    /// The kernel cannot be asked for devices.
    #[error(transparent)]
    Net(#[from] NetError),
    /// No runtime.
    #[error("the runtime cannot start: {0}")]
    Runtime(#[from] std::io::Error),
}

/// Takes everything of ours off the node whose namespaces the calling thread is in, or only says what it would do.
/// What cannot be removed is part of the report, and the rest is done.
///
/// # Errors
/// [`UninstallError`]; nothing was done then.
pub fn run(places: &Places, dry_run: bool) -> Result<Report, UninstallError> {
    let _lock = Lock::take_if_there(&places.state_dir).map_err(|error| match error {
        LockError::Held { path, pid } => {
            UninstallError::Running { what: format!("pid {pid} holds {}", path.display()) }
        }
        other => UninstallError::Lock(other),
    })?;
    // One with a state directory of its own.
    if UnixStream::connect(&places.socket).is_ok() {
        return Err(UninstallError::Running { what: format!("{} is answered", places.socket.display()) });
    }
    let mut report = Report::new(dry_run);
    let remains = match Remains::open(&places.pin_dir) {
        Err(juneau_bpf::Error::InUse { path }) => {
            return Err(UninstallError::Running { what: format!("a process has {}", path.display()) });
        }
        Err(error) => {
            let remedy = "see that the bpffs is mounted there, or name another --pin-dir; then once more";
            report.failed("programs", places.pin_dir.display().to_string(), error, remedy);
            None
        }
        Ok(remains) => remains,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let netlink = Netlink::open()?;
        let links = netlink.links().await?;
        let hops = remains.as_ref().map(Remains::next_hops).and_then(Result::ok).unwrap_or_default();
        files::cni(&mut report, &places.cni_conf_dir, &places.cni_bin_dir);
        let mut node = Node { report: &mut report, netlink };
        // Before their programs go: what a Pod sends is judged, or it is not heard.
        node.pods(&links).await;
        if let Some(remains) = remains {
            programs(node.report, remains, &places.pin_dir, &links);
        }
        node.devices(&links).await;
        node.neighbours(&hops, &links).await;
        Ok::<(), UninstallError>(())
    })?;
    files::state(&mut report, &places.state_dir, [&places.socket, &places.metrics_socket]);
    Ok(report)
}

struct Node<'r> {
    report: &'r mut Report,
    netlink: Netlink,
}

impl Node<'_> {
    async fn delete(&mut self, kind: &'static str, name: String, index: u32) {
        let outcome = if self.report.dry_run { Ok(()) } else { self.netlink.delete_link(index).await };
        self.report.done(kind, name, AGAIN, outcome);
    }

    /// The node's ends of Pods' interfaces.
    async fn pods(&mut self, links: &[Link]) {
        let ours = links.iter().filter(|link| link.group == LINK_GROUP && link.kind.as_deref() == Some("veth"));
        for link in ours.filter(|link| !node_port::is_part(&link.name)) {
            let record = link.alias.as_deref().and_then(Record::from_alias);
            let Some(record) = record.filter(|_| link.peer_namespace.is_some()) else {
                // Half made, or its other end was never taken to a Pod, or came back from one.
                self.delete("Pod interface", link.name.clone(), link.index).await;
                continue;
            };
            let name = format!("{} of {}", link.name, record.nic);
            if link.up
                && !self.report.dry_run
                && let Err(error) = self.netlink.set_down(link.index).await
            {
                self.report.failed("Pod interface", name, error, AGAIN);
                continue;
            }
            let why = "the Pod's network namespace is there; the interface is down, the Pod has no network";
            self.report.left("Pod interface", name, why, "delete the Pod: the interface goes with it");
        }
    }

    async fn devices(&mut self, links: &[Link]) {
        for (name, kind) in [(VXLAN_DEVICE, Some("vxlan")), (node_port::DEVICE, None)] {
            let Some(link) = links.iter().find(|link| link.name == name) else { continue };
            if kind.is_some_and(|kind| link.kind.as_deref() != Some(kind)) {
                let why = "it is no VXLAN device, so it is somebody else's";
                self.report.left("device", name, why, "remove it by hand if nobody needs it");
            } else {
                self.delete("device", name.to_owned(), link.index).await;
            }
        }
    }

    /// Neighbours that the kernel keeps resolved for the overlay. Others' are left alone: only next hops are ours.
    async fn neighbours(&mut self, hops: &BTreeSet<Ipv4Addr>, links: &[Link]) {
        let present = match self.netlink.managed_neighbours().await {
            Ok(present) => present,
            Err(error) => return self.report.failed("neighbours", "of the underlay", error, AGAIN),
        };
        for (index, address) in present.into_iter().filter(|(_, address)| hops.contains(address)) {
            let device = links.iter().find(|link| link.index == index).map_or("?", |link| &link.name);
            let dry_run = self.report.dry_run;
            let outcome = if dry_run { Ok(()) } else { self.netlink.delete_neighbour(index, address).await };
            self.report.done("neighbour", format!("{address} on {device}"), AGAIN, outcome);
        }
    }
}

/// Programs, where they run; then maps and the directory.
fn programs(report: &mut Report, remains: Remains, pin_dir: &Path, links: &[Link]) {
    let failed = |report: &mut Report, error: &juneau_bpf::Error| {
        report.failed("programs", pin_dir.display().to_string(), error, AGAIN);
    };
    match remains.attachments() {
        Ok(all) => {
            for one in &all {
                let device = links.iter().find(|link| link.index == one.ifindex && one.ifindex != 0);
                let name = match (&one.point, device) {
                    (AttachPoint::Underlay | AttachPoint::Vxlan, Some(link)) => format!("{} {}", one.point, link.name),
                    _ => one.point.to_string(),
                };
                report.remove("program", name, AGAIN, || remains.detach(one));
            }
        }
        Err(error) => failed(report, &error),
    }
    match remains.loads() {
        Ok(loads) => {
            for load in loads {
                report.remove("maps", load.display().to_string(), AGAIN, || remains.remove_load(&load));
            }
        }
        Err(error) => failed(report, &error),
    }
    let foreign = remains.foreign().unwrap_or_default();
    for path in &foreign {
        let why = "it was not pinned by the agent";
        report.left("pin", path.display().to_string(), why, "remove it by hand if nobody needs it");
    }
    if report.dry_run {
        if foreign.is_empty() {
            report.done("directory", pin_dir.display().to_string(), AGAIN, Ok::<(), juneau_bpf::Error>(()));
        }
        return;
    }
    match remains.close() {
        Ok(true) => report.done("directory", pin_dir.display().to_string(), AGAIN, Ok::<(), juneau_bpf::Error>(())),
        Ok(false) => {}
        Err(error) => failed(report, &error),
    }
}
