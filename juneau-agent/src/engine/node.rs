//! The node itself: its underlay, the load of programs, its neighbours.

use super::problems::Finder;
use super::{Engine, Instant, RETRY, failpoint};
use crate::net::{Link, NetError, Netlink, Way};
use crate::protocol::Underlay;
use crate::{cgroup, underlay};
use juneau_bpf::{AttachPoint, Dataplane, NodeConfig};
use juneau_core::compile::UnderlayPath;
use juneau_core::model::Problem;
use juneau_core::tables::TablesMut;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// How the underlay reaches other nodes.
#[derive(Debug, Default)]
pub(super) struct Ways {
    found: BTreeMap<Ipv4Addr, Option<Way>>,
    /// Managed neighbours that this process asked for, {ifindex, address}.
    neighbours: BTreeSet<(u32, Ipv4Addr)>,
}

impl Ways {
    /// Finds the ways to these nodes: those that are not known yet, or, as routes may have changed, `all` of them. Nodes
    /// that are not named are forgotten. Whether anything is other than before.
    pub(super) async fn find(
        &mut self,
        netlink: &Netlink,
        vteps: impl Iterator<Item = Ipv4Addr>,
        all: bool,
    ) -> Result<bool, NetError> {
        let mut found = BTreeMap::new();
        for vtep in vteps {
            let way = match self.found.get(&vtep) {
                Some(way) if !all => *way,
                _ => netlink.way_to(vtep).await?,
            };
            found.insert(vtep, way);
        }
        let changed = found != self.found;
        self.found = found;
        Ok(changed)
    }

    /// Paths over this device, for the compiler.
    pub(super) fn paths(&self, underlay: &Underlay) -> BTreeMap<Ipv4Addr, UnderlayPath> {
        let usable = self.found.iter().filter_map(|(vtep, way)| Some((*vtep, (*way)?)));
        usable
            .filter(|(_, way)| way.ifindex == underlay.ifindex)
            .map(|(vtep, way)| {
                let mtu = way.mtu.unwrap_or(underlay.mtu).min(underlay.mtu);
                (vtep, UnderlayPath { next_hop: way.next_hop, mtu: u16::try_from(mtu).unwrap_or(u16::MAX) })
            })
            .collect()
    }

    /// Nodes that the underlay does not reach.
    pub(super) fn problems(&self, underlay: &Underlay, name: impl Fn(Ipv4Addr) -> String) -> Vec<Problem> {
        let unreached = self.found.iter().filter(|(_, way)| way.is_none_or(|way| way.ifindex != underlay.ifindex));
        unreached
            .map(|(vtep, way)| {
                let message = match way {
                    None => format!("this node has no route to its InternalIP {vtep}"),
                    Some(way) => format!(
                        "the route to its InternalIP {vtep} leaves by ifindex {}, not by the underlay device {}",
                        way.ifindex, underlay.device
                    ),
                };
                Problem::new(
                    format!("Node/{}", name(*vtep)),
                    message,
                    format!("give this node a route to {vtep} over {}", underlay.device),
                )
            })
            .collect()
    }
}

impl Engine {
    /// The node's InternalIP, as its object tells.
    fn internal_ip(&self) -> Result<Ipv4Addr, Problem> {
        let name = &self.options.node;
        match self.objects.model().nodes.get(name).map(|node| node.internal_ip) {
            Some(IpAddr::V4(address)) => Ok(address),
            Some(IpAddr::V6(address)) => Err(Problem::new(
                format!("Node/{name}"),
                format!("its InternalIP {address} is IPv6, and the overlay runs over IPv4"),
                "give the Node an IPv4 InternalIP",
            )),
            None => Err(Problem::new(
                format!("Node/{name}"),
                "this node's own object is missing or has no InternalIP",
                "create it with status.addresses, or start the agent with the right --node",
            )),
        }
    }

    /// Looks at devices and takes over what changed: Pods, underlay, load. What cannot be done now is a problem and is
    /// tried again; what runs goes on with the underlay that it has. Attachments that are there already are looked at
    /// again with `all` only: a node may have a thousand.
    pub(super) async fn prepare_node(&mut self, all: bool) {
        match self.prepare_underlay().await {
            Ok(config) => {
                self.problems.set(Finder::Underlay, []);
                if all || self.dirty || self.config != Some(config) {
                    let problems = self.prepare_programs(config);
                    self.problems.set(Finder::Programs, problems);
                    self.guard_port();
                }
            }
            Err(problem) => self.problems.set(Finder::Underlay, [problem]),
        }
    }

    async fn prepare_underlay(&mut self) -> Result<NodeConfig, Problem> {
        let internal_ip = self.internal_ip()?;
        let links = self.netlink.links().await.map_err(net_problem)?;
        self.adopt_pods(&links).await;
        let addresses = self.netlink.addresses().await.map_err(net_problem)?;
        self.dirty |= self.node_port.look(&links, &addresses);
        let name = self.options.underlay.as_deref();
        let found = underlay::find(&links, &addresses, &self.options.node, internal_ip, name)?;
        if let Some(problem) = underlay::foreign_vxlan(&links, self.options.vxlan_port) {
            return Err(problem);
        }
        let port = self.options.vxlan_port;
        let vxlan = underlay::ensure_vxlan(&self.netlink, port, &self.options.sysctl_dir).await.map_err(|error| {
            Problem::new(
                format!("device {}", underlay::VXLAN_DEVICE),
                error.to_string(),
                "see that the kernel has VXLAN, and that nobody else uses the port",
            )
        })?;
        let config = NodeConfig {
            vtep: internal_ip,
            underlay_ifindex: found.ifindex,
            vxlan_ifindex: vxlan,
            vxlan_port: self.options.vxlan_port,
        };
        if self.underlay.as_ref() != Some(&found) {
            tracing::info!(device = %found.device, address = %found.address, mtu = found.mtu, "underlay");
            self.underlay = Some(found);
            self.dirty = true;
        }
        Ok(config)
    }

    /// Takes over Pods from devices, and removes devices of ours that belong to nobody.
    async fn adopt_pods(&mut self, links: &[Link]) {
        let seen = self.pods.adopt(links);
        self.dirty |= seen.changed;
        for (index, name) in seen.leftovers {
            tracing::info!(device = %name, "deleting a device that an interrupted attachment left");
            if let Err(error) = self.netlink.delete_link(index).await {
                tracing::warn!(device = %name, %error, "cannot delete a device that is left over");
            }
        }
    }

    /// Loads the programs if there is no load with this configuration, and sees that each runs where it should.
    fn prepare_programs(&mut self, config: NodeConfig) -> Vec<Problem> {
        if (self.dataplane.is_none() || self.config != Some(config))
            && let Err(problem) = self.load(config)
        {
            return vec![problem];
        }
        let Some(dataplane) = &self.dataplane else { return Vec::new() };
        let mut problems = Vec::new();
        let mut check = |outcome: Result<(), juneau_bpf::Error>| {
            if let Err(error) = outcome {
                problems.push(bpf_problem("programs", &error));
            }
        };
        check(dataplane.attach_vxlan(config.vxlan_ifindex));
        check(dataplane.attach_underlay(config.underlay_ifindex));
        for (_, pod) in self.pods.iter() {
            match dataplane.attach_pod(&pod.name, pod.ifindex.get()) {
                // The Pod has just gone, and the event that tells is on its way.
                Err(error) if error.errno() == Some(nix::libc::ENODEV) => {}
                outcome => check(outcome),
            }
        }
        problems
    }

    /// Keeps sockets of the node from the overlay's port.
    fn guard_port(&mut self) {
        let Some(dataplane) = &self.dataplane else { return };
        let path = self.options.cgroup.clone().map_or_else(cgroup::root, Ok);
        let outcome = path
            .and_then(|path| dataplane.attach_cgroup(&path).map_err(|error| format!("{}: {error}", path.display())));
        let problem = outcome.err().map(|message| {
            Problem::new(
                "cgroup",
                format!("sockets of this node are not kept from the overlay's port: {message}"),
                "mount cgroup2, or name its directory with --cgroup",
            )
        });
        self.problems.set(Finder::Cgroup, problem);
    }

    /// Loads the programs as a new generation and hands every attachment over to it.
    fn load(&mut self, config: NodeConfig) -> Result<(), Problem> {
        let first = self.dataplane.is_none();
        // The lock on the pins is per load: the old one lets go of it. Its links are pinned and go on.
        self.dataplane = None;
        self.sweeper = None;
        let mut options = juneau_bpf::Options::new(&self.options.pin_dir, config);
        options.sizes = self.options.sizes();
        options.failpoints = self.failpoints.clone();
        options.abi = failpoint::abi_from_environment().unwrap_or(options.abi);
        let dataplane = Dataplane::open(options).map_err(|error| bpf_problem("programs", &error))?;
        let taken = dataplane.take_over().map_err(|error| bpf_problem("programs", &error))?;
        if first {
            let tables = dataplane.tables().map_err(|error| bpf_problem("tables", &error))?;
            let held = tables
                .snapshot()
                .map_err(|error| Problem::new("tables", error.to_string(), "see the message; the agent tries again"))?;
            self.adopted = Some(held.clone());
            self.mirror = held;
        }
        tracing::info!(
            load = %dataplane.load(),
            links = taken.links.len(),
            flows = taken.copied,
            retired = taken.retired.len(),
            "programs are loaded and run"
        );
        for abi in taken.unreadable {
            tracing::warn!(abi, "flows of another layout cannot be taken over; they begin anew");
        }
        self.sweeper = Some(dataplane.sweeper().map_err(|error| bpf_problem("programs", &error))?);
        self.dataplane = Some(dataplane);
        self.config = Some(config);
        Ok(())
    }

    /// Looks at every attachment: pins whose device is gone are removed, programs of others that see packets before
    /// ours do are named.
    pub(super) fn look_at_attachments(&mut self) {
        let Some(dataplane) = &self.dataplane else { return };
        let links = match dataplane.links() {
            Ok(links) => links,
            Err(error) => {
                tracing::warn!(%error, "cannot list attachments of programs");
                return;
            }
        };
        let pods: BTreeSet<&str> = self.pods.iter().map(|(_, pod)| pod.name.as_str()).collect();
        let mut problems = Vec::new();
        for link in links {
            let device = match &link.point {
                AttachPoint::Pod(name) if !pods.contains(name.as_str()) => {
                    tracing::info!(device = %name, "removing the pin of a Pod's interface that is gone");
                    if let Err(error) = dataplane.detach(&link.point) {
                        tracing::warn!(device = %name, %error, "cannot remove the pin");
                    }
                    continue;
                }
                AttachPoint::Pod(name) => name.as_str(),
                AttachPoint::Underlay => self.underlay.as_ref().map_or("?", |underlay| &underlay.device),
                AttachPoint::Vxlan => underlay::VXLAN_DEVICE,
                AttachPoint::NodePort => crate::node_port::DEVICE,
                _ => continue,
            };
            match Dataplane::foreign_programs_ahead_of(&link) {
                Ok(foreign) => problems.extend(foreign.into_iter().map(|program| {
                    Problem::new(
                        format!("device {device}"),
                        format!("program {} ({}) of somebody else sees packets before ours", program.id, program.name),
                        "attach it behind juneau's, or detach it",
                    )
                })),
                // The device has just gone.
                Err(error) => tracing::debug!(%error, %device, "cannot read the chain of programs"),
            }
        }
        self.problems.set(Finder::Chain, problems);
    }

    /// Has the kernel keep the next hops of these nodes resolved.
    pub(super) async fn keep_neighbours(&mut self) {
        let Some(underlay) = &self.underlay else { return };
        let vteps = self.mirror.vteps.values();
        let wanted: BTreeSet<_> =
            vteps.map(|vtep| (underlay.ifindex, juneau_core::layout::ipv4(vtep.next_hop))).collect();
        let mut problems = Vec::new();
        for (ifindex, address) in wanted.difference(&self.ways.neighbours) {
            if let Err(error) = self.netlink.add_managed_neighbour(*ifindex, *address).await {
                problems.push(Problem::new(
                    format!("neighbour {address}"),
                    error.to_string(),
                    "see that the kernel is 5.16 or newer and the underlay device is up",
                ));
            }
        }
        for (ifindex, address) in self.ways.neighbours.difference(&wanted) {
            if let Err(error) = self.netlink.delete_neighbour(*ifindex, *address).await {
                tracing::debug!(%error, %address, "cannot delete a neighbour that is not needed any more");
            }
        }
        if problems.is_empty() {
            self.ways.neighbours = wanted;
        }
        self.problems.set(Finder::Neighbours, problems);
    }

    /// Neighbours may have been flushed by whoever administers the node.
    pub(super) async fn check_neighbours(&mut self) {
        match self.netlink.managed_neighbours().await {
            Ok(present) => self.ways.neighbours.retain(|neighbour| present.contains(neighbour)),
            Err(error) => tracing::warn!(%error, "cannot read neighbours"),
        }
        self.keep_neighbours().await;
    }

    /// Plans another look if something failed, later each time.
    pub(super) fn plan_retry(&mut self) {
        if !self.problems.transient() {
            self.retry = None;
            self.retry_wait = RETRY.0;
        } else if self.retry.is_none() {
            self.retry = Some(Instant::now() + self.retry_wait);
            self.retry_wait = (self.retry_wait * 2).min(RETRY.1);
        }
    }
}

pub(super) fn bpf_problem(object: &str, error: &juneau_bpf::Error) -> Problem {
    let mut message = error.to_string();
    if let juneau_bpf::Error::Load { log, .. } = error
        && !log.is_empty()
    {
        message.push_str(": ");
        message.push_str(log);
    }
    Problem::new(object, message, "see the message; the agent tries again")
}

pub(super) fn net_problem(error: NetError) -> Problem {
    Problem::new("netlink", error.to_string(), "see the message; the agent tries again")
}
