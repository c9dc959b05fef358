//! Objects → model → tables → kernel.

use super::node::bpf_problem;
use super::problems::Finder;
use super::{Engine, Instant, apply};
use crate::pod::Nic;
use crate::protocol::Attachment;
use juneau_bpf::Dataplane;
use juneau_core::compile::NodeContext;
use juneau_core::id::{VpcId, VpcIndex};
use juneau_core::layout::{EndpointKey, MacKey};
use juneau_core::model::Attachments;
use juneau_core::tables::{Diff, Table, Tables, TablesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

impl Engine {
    /// Manifests may have changed, at `seen`.
    pub(super) async fn files_changed(&mut self, seen: Instant) {
        self.source.renew_if_lost();
        let before = self.own_address();
        let changed = self.read_objects();
        let unprepared = self.own_address() != before || self.dataplane.is_none();
        if unprepared {
            self.prepare_node(true).await;
        }
        // Most looks that follow one another find nothing more.
        if changed || unprepared || !self.synced {
            self.apply(seen).await;
        }
    }

    /// Devices, addresses or routes may have changed. Our own attaching makes most of these events, so nothing is
    /// computed unless something is other than before.
    pub(super) async fn network_changed(&mut self) {
        let seen = Instant::now();
        self.prepare_node(false).await;
        self.find_ways(true).await;
        self.prepare_node_port().await;
        if self.dirty {
            self.apply(seen).await;
        } else {
            self.raise_node_port().await;
        }
        self.plan_retry();
    }

    /// Something failed before.
    pub(super) async fn look_again(&mut self) {
        let seen = Instant::now();
        self.read_objects();
        self.prepare_node(true).await;
        self.find_ways(true).await;
        self.apply(seen).await;
    }

    /// Looks at everything, the kernel's tables among it.
    pub(super) async fn resync(&mut self) {
        let seen = Instant::now();
        self.source.renew();
        self.read_objects();
        self.prepare_node(true).await;
        self.find_ways(true).await;
        self.read_back();
        self.apply(seen).await;
        self.check_neighbours().await;
        self.remove_unknown_pods().await;
        self.look_at_attachments();
    }

    fn own_address(&self) -> Option<IpAddr> {
        self.objects.model().nodes.get(&self.options.node).map(|node| node.internal_ip)
    }

    /// Reads what changed in the directory. What cannot be read stays as it was. Whether anything may be other than
    /// before.
    pub(super) fn read_objects(&mut self) -> bool {
        match self.source.read() {
            Ok(snapshot) => {
                let known = (self.read, self.complete);
                self.complete = snapshot.unknown == 0;
                self.read = true;
                let changed = self.objects.update(&snapshot.view) || known != (self.read, self.complete);
                // What an object names may be of a kind that has not been listed.
                let of_objects = self.objects.problems().iter().filter(|_| snapshot.listed).cloned();
                self.problems.set(Finder::Objects, snapshot.problems.into_iter().chain(of_objects));
                self.problems.set(Finder::Directory, []);
                changed
            }
            Err(problem) => {
                self.problems.set(Finder::Directory, [problem]);
                false
            }
        }
    }

    /// Compares what we believe the tables hold with what they do hold.
    fn read_back(&mut self) {
        let Some(dataplane) = &self.dataplane else { return };
        let held = dataplane
            .tables()
            .map_err(|error| error.to_string())
            .and_then(|tables| tables.snapshot().map_err(|error| error.to_string()));
        match held {
            Ok(held) if held != self.mirror => {
                let changes = Diff::between(&self.mirror, &held).len();
                tracing::warn!(changes, "somebody else changed the tables; they are put right");
                self.mirror = held;
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "cannot read the tables back"),
        }
    }

    /// Finds the ways to other nodes, new ones or `all`.
    async fn find_ways(&mut self, all: bool) {
        let others = self.objects.model().nodes.iter().filter(|(name, _)| **name != self.options.node);
        let vteps: BTreeSet<Ipv4Addr> = others
            .filter_map(|(_, node)| match node.internal_ip {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            })
            .collect();
        match self.ways.find(&self.netlink, vteps.into_iter(), all).await {
            Ok(changed) => {
                self.dirty |= changed;
                let names: BTreeMap<IpAddr, &String> =
                    self.objects.model().nodes.iter().map(|(name, node)| (node.internal_ip, name)).collect();
                let name = |vtep: Ipv4Addr| {
                    names.get(&IpAddr::V4(vtep)).map_or_else(|| vtep.to_string(), |name| (*name).clone())
                };
                let problems = self.underlay.as_ref().map(|underlay| self.ways.problems(underlay, name));
                self.problems.set(Finder::Ways, problems.unwrap_or_default());
            }
            Err(error) => self.problems.set(Finder::Ways, [super::node::net_problem(error)]),
        }
    }

    /// Computes the tables and writes what differs; `seen` is when the reason for it was seen.
    pub(super) async fn apply(&mut self, seen: Instant) {
        self.find_ways(false).await;
        self.prepare_node_port().await;
        self.compile_and_write(seen);
        self.raise_node_port().await;
        self.keep_neighbours().await;
        self.publish_probes();
        self.tell_cluster();
        self.plan_retry();
    }

    fn compile_and_write(&mut self, seen: Instant) {
        let Some(underlay) = &self.underlay else { return };
        if !self.read || self.dataplane.is_none() {
            return;
        }
        self.dirty = false;
        let mtu = u16::try_from(underlay.mtu).unwrap_or(u16::MAX);
        let mut node = NodeContext::new(&self.options.node, underlay.address, mtu);
        node.paths = self.ways.paths(underlay);
        node.vpc_indices = vpc_indices(&self.mirror);
        node.services = (&self.mirror).into();
        // Numbers of Services are places in these.
        if let Some(Ok(tables)) = self.dataplane.as_ref().map(Dataplane::tables) {
            for table in [Table::Slots, Table::Backends] {
                node.capacities = node.capacities.with(table, tables.capacity(table));
            }
        }
        node.addresses.clone_from(&self.node_port.addresses);
        let mut attachments = self.attachments();
        self.node_port.add_to(&mut attachments);
        let (wanted, problems) = self.compiler.compile(self.objects.model(), &node, &attachments);
        self.problems.set(Finder::Compile, problems);
        self.write(&wanted, seen);
    }

    /// Writes the difference between the mirror and `wanted`, then moves the generations that rest on it.
    fn write(&mut self, wanted: &Tables, seen: Instant) {
        let Some(dataplane) = &self.dataplane else { return };
        let (mut tables, generations) = match (dataplane.tables(), dataplane.generations()) {
            (Ok(tables), Ok(generations)) => (tables, generations),
            (Err(error), _) | (_, Err(error)) => {
                self.problems.set(Finder::Tables, [bpf_problem("tables", &error)]);
                return;
            }
        };
        let diff = Diff::between(&self.mirror, wanted);
        let keep = self.adopted.as_ref().filter(|_| !self.complete);
        let applied = apply::apply(&mut tables, &mut self.mirror, &diff, keep);
        let moved =
            if self.synced { generations.advance(diff.generations.iter().copied()) } else { generations.advance_all() };
        let mut problems = apply::problems(&applied);
        if let Err(error) = &moved {
            problems.push(bpf_problem("map jn_generations", error));
        }
        self.counts.applies += 1;
        // What could be written is in force, if every decision that rests on it is made anew: else the next
        // application moves every generation.
        self.synced = moved.is_ok();
        if problems.is_empty() {
            self.counts.lag = seen.elapsed();
        } else {
            self.counts.failures += 1;
        }
        if applied.held == 0 {
            self.adopted = None;
        }
        if !diff.is_empty() {
            tracing::info!(
                written = applied.written,
                refused = applied.refused.len(),
                held = applied.held,
                microseconds = seen.elapsed().as_micros(),
                "tables"
            );
        }
        self.problems.set(Finder::Tables, problems);
    }

    /// Attached interfaces by the names of their endpoints.
    pub(super) fn attachments(&self) -> Attachments {
        let names = self.names_by_nic();
        self.pods.attachments(|nic| names.get(nic).map_or_else(|| nic.to_string(), |name| (*name).to_owned()))
    }

    /// Names of this node's endpoints by the interfaces that they are of.
    pub(super) fn names_by_nic(&self) -> BTreeMap<Nic, &str> {
        let here = self.objects.own_interfaces();
        here.map(|(namespace, pod, interface, name)| (Nic::new(namespace, pod, interface), name)).collect()
    }

    pub(super) fn attachment_list(&self) -> impl Iterator<Item = Attachment> {
        self.pods.iter().map(|(nic, pod)| {
            let text = nic.subject.to_string();
            let (namespace, name) = text.split_once('/').unwrap_or((&text, ""));
            Attachment {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                container_id: pod.container_id.clone(),
                interface: nic.interface.clone(),
                host_interface: pod.name.clone(),
                ifindex: pod.ifindex.get(),
                programmed: self.is_programmed(pod.ifindex.get()),
            }
        })
    }

    /// Whether the tables hold everything that this interface needs.
    pub(super) fn is_programmed(&self, ifindex: u32) -> bool {
        let Some(interface) = self.mirror.interfaces.get(&ifindex) else { return false };
        let key = EndpointKey { vpc: interface.vpc, address: interface.address };
        let mac = MacKey::new(interface.vni, interface.mac);
        self.mirror.endpoints.get(&key).is_some_and(|endpoint| endpoint.ifindex == ifindex)
            && self.mirror.macs.get(&mac).is_some_and(|mac| mac.ifindex == ifindex)
            && self.mirror.segments.contains_key(&interface.vni)
    }

    /// Removes devices of Pods that no object of this node has spoken of for a while. Until then they are closed: an
    /// object that comes back finds its Pod attached.
    async fn remove_unknown_pods(&mut self) {
        if !self.complete || !self.read || !self.synced {
            return;
        }
        let known: BTreeSet<Nic> = self.names_by_nic().into_keys().collect();
        let limit = Duration::from_secs(self.options.stale_after);
        let now = Instant::now();
        let mut stale = Vec::new();
        for (nic, pod) in self.pods.iter_mut() {
            if known.contains(nic) {
                pod.unknown_since = None;
                continue;
            }
            let since = *pod.unknown_since.get_or_insert(now);
            if now.duration_since(since) >= limit {
                stale.push((nic.clone(), pod.ifindex.get(), pod.name.clone()));
            }
        }
        for (nic, ifindex, name) in stale {
            tracing::info!(interface = %nic, device = %name, "removing an interface that no object speaks of");
            match self.remove_device(ifindex, &name).await {
                Ok(()) => self.pods.remove(&nic),
                Err(error) => tracing::warn!(interface = %nic, %error, "cannot remove the interface"),
            }
        }
    }

    /// Lets idle connections go. Whether there was so little to do that the next time is not near.
    pub(super) fn sweep_flows(&mut self) -> bool {
        let (Some(dataplane), Some(sweeper)) = (&self.dataplane, &mut self.sweeper) else { return false };
        match dataplane.clock().now().and_then(|now| sweeper.sweep(now)) {
            Ok(swept) => {
                self.counts.expired += u64::try_from(swept.removed).unwrap_or(u64::MAX);
                self.problems.set(Finder::Sweep, []);
                swept.is_calm(sweeper.capacity())
            }
            Err(error) => {
                self.problems.set(Finder::Sweep, [bpf_problem("map jn_flows", &error)]);
                false
            }
        }
    }
}

/// Numbers that VPCs have on this node.
fn vpc_indices(tables: &Tables) -> BTreeMap<VpcId, VpcIndex> {
    let held =
        tables.vpcs.iter().filter_map(|(index, vpc)| Some((VpcId::new(vpc.vpc).ok()?, VpcIndex::new(*index).ok()?)));
    held.collect()
}
