//! The node's own way to Pods of its VPC: the pair of devices, by the node's endpoint.

use super::Engine;
use super::node::bpf_problem;
use super::problems::Finder;
use crate::net::{Link, NetError};
use crate::node_port::{self, DEVICE, HOST_DEVICE, Wiring};
use crate::options::{HostServices, ServiceRange};
use crate::underlay::pod_mtu;
use ipnet::{IpNet, Ipv4Net};
use juneau_api::kinds::EndpointKind;
use juneau_bpf::AttachPoint;
use juneau_core::id::{IfIndex, MacAddr};
use juneau_core::model::{self, Attachment, Attachments, Endpoint, Problem, RouteTarget};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// What is known of the node port.
#[derive(Debug, Default)]
pub(super) struct NodePort {
    /// The name of its endpoint, and how it was made last.
    made: Option<(String, Wiring)>,
    /// Its device, while it is there.
    attachment: Option<Attachment>,
    /// Addresses that the node has on its other devices.
    pub(super) addresses: BTreeSet<Ipv4Addr>,
    /// Devices, addresses or routes may have changed since it was looked at.
    due: bool,
}

impl NodePort {
    /// Takes over what devices and addresses there are. Whether the node has other addresses than before.
    pub(super) fn look(&mut self, links: &[Link], addresses: &[(u32, Ipv4Net)]) -> bool {
        let own: Vec<u32> = links.iter().filter(|link| node_port::is_part(&link.name)).map(|link| link.index).collect();
        let others = addresses.iter().filter(|(index, _)| !own.contains(index)).map(|(_, address)| address.addr());
        let others: BTreeSet<Ipv4Addr> = others.collect();
        self.due = true;
        let changed = others != self.addresses;
        self.addresses = others;
        changed
    }

    /// Adds its endpoint to those of Pods.
    pub(super) fn add_to(&self, attachments: &mut Attachments) {
        if let (Some((name, _)), Some(attachment)) = (&self.made, &self.attachment) {
            attachments.insert(name.clone(), attachment.clone());
        }
    }
}

impl Engine {
    /// Makes the devices as the node's endpoint wants them, still down, or removes them. What depends on their ifindex is
    /// to be computed after this.
    pub(super) async fn prepare_node_port(&mut self) {
        if !self.read || self.dataplane.is_none() || self.underlay.is_none() {
            return;
        }
        let wanted = match self.wanted_node_port() {
            Ok(wanted) => wanted,
            Err(problem) => {
                self.problems.set(Finder::NodePort, [problem]);
                return;
            }
        };
        let Some(wanted) = wanted else {
            self.remove_node_port().await;
            return;
        };
        if self.node_port.made.as_ref() == Some(&wanted) && !self.node_port.due {
            return;
        }
        let outcome = match node_port::make(&self.netlink, &wanted.1).await {
            Ok(link) => self.attach_node_port(&link).map(|()| link),
            Err(error) => Err(net_problem(&error)),
        };
        let attachment = outcome.as_ref().ok().and_then(attachment_of);
        let index = |attachment: &Option<Attachment>| attachment.as_ref().map(|attachment| attachment.ifindex);
        if index(&attachment) != index(&self.node_port.attachment) || self.node_port.made.as_ref() != Some(&wanted) {
            if let Ok(link) = &outcome {
                tracing::info!(device = DEVICE, ifindex = link.index, address = %wanted.1.address, "node port");
            }
            self.dirty = true;
        }
        self.node_port.attachment = attachment;
        self.node_port.made = Some(wanted);
        self.node_port.due = true;
        if let Err(problem) = outcome {
            self.problems.set(Finder::NodePort, [problem]);
        }
    }

    /// Sets the devices up, now that what they need is in force.
    pub(super) async fn raise_node_port(&mut self) {
        let (Some((_, wiring)), Some(attachment)) = (&self.node_port.made, &self.node_port.attachment) else { return };
        if !self.node_port.due || !self.is_programmed(attachment.ifindex.get()) {
            return;
        }
        let outcome = node_port::bring_up(&self.netlink, wiring, &self.options.sysctl_dir).await;
        self.node_port.due = outcome.is_err();
        self.problems.set(Finder::NodePort, outcome.err().map(|error| net_problem(&error)));
    }

    fn attach_node_port(&self, link: &Link) -> Result<(), Problem> {
        let Some(dataplane) = &self.dataplane else { return Ok(()) };
        dataplane.attach_node_port(link.index).map_err(|error| bpf_problem(&format!("device {DEVICE}"), &error))
    }

    /// Without an object of it there is no node port. One that cannot be used closes it, which is told of the object.
    async fn remove_node_port(&mut self) {
        let mut objects = self.objects.own_endpoints();
        if !self.complete || objects.any(|(_, endpoint)| endpoint.kind == EndpointKind::Node) {
            return;
        }
        drop(objects);
        if self.node_port.made.is_none() && !self.node_port.due {
            return;
        }
        match node_port::remove(&self.netlink).await {
            Ok(()) => {
                let detached = self.dataplane.as_ref().map(|dataplane| dataplane.detach(&AttachPoint::NodePort));
                if let Some(Err(error)) = detached {
                    tracing::warn!(device = DEVICE, %error, "cannot remove the pin of a device that is gone");
                }
                let addresses = std::mem::take(&mut self.node_port.addresses);
                self.dirty |= self.node_port.made.is_some();
                self.node_port = NodePort { addresses, ..NodePort::default() };
                self.problems.set(Finder::NodePort, []);
            }
            Err(error) => self.problems.set(Finder::NodePort, [net_problem(&error)]),
        }
    }

    /// The node's endpoint and what its devices are to be like, if there is one.
    fn wanted_node_port(&self) -> Result<Option<(String, Wiring)>, Problem> {
        let model = self.objects.model();
        let is_ours =
            |endpoint: &&Endpoint| endpoint.kind == model::EndpointKind::Node && endpoint.node == self.options.node;
        let Some(endpoint) = model.endpoints.values().find(is_ours) else { return Ok(None) };
        let (Some(subnet), Some(underlay)) = (model.subnets.get(&endpoint.subnet), &self.underlay) else {
            return Ok(None);
        };
        let (IpAddr::V4(address), IpNet::V4(prefix), IpAddr::V4(gateway)) =
            (endpoint.address, subnet.prefix, subnet.gateway)
        else {
            return Ok(None);
        };
        let Ok(address) = Ipv4Net::new(address, prefix.prefix_len()) else { return Ok(None) };
        if let Some(taken) = self.taken_in(&prefix) {
            return Err(Problem::new(
                format!("Subnet/{}", subnet.name),
                format!("{prefix} holds {taken}, an address of a node: this node cannot have a route to the Subnet"),
                "give the Subnet a prefix that no node has an address in",
            )
            .at(&subnet.origin));
        }
        // A route to these would cut the node off; the compiler tells of them.
        let others = model.subnets.values().filter(|other| other.vpc == subnet.vpc && other.vni != subnet.vni);
        let others = others.filter_map(|other| match other.prefix {
            IpNet::V4(prefix) => Some(prefix.trunc()).filter(|prefix| self.taken_in(prefix).is_none()),
            IpNet::V6(_) => None,
        });
        let mut others: BTreeSet<Ipv4Net> = others.collect();
        others.extend(self.service_ranges(subnet));
        let wiring = Wiring { address, mac: endpoint.mac, mtu: pod_mtu(underlay), gateway, others };
        Ok(Some((endpoint.name.clone(), wiring)))
    }

    /// Where the node's own processes meet Services, if it routes them: what it was told, else what is routed to Services
    /// in its Subnet. External addresses of Services, which tenants choose, are nothing for the whole node.
    fn service_ranges(&self, subnet: &model::Subnet) -> BTreeSet<Ipv4Net> {
        let model = self.objects.model();
        let found = || {
            let routes = subnet.table.and_then(|table| model.tables.get(&table)).map(|table| table.routes.as_slice());
            let services = routes.unwrap_or_default().iter().filter(|route| route.target == RouteTarget::Service);
            let ranges = services.filter_map(|route| match route.prefix {
                IpNet::V4(prefix) => Some(prefix.trunc()).filter(|prefix| prefix.prefix_len() < 32),
                IpNet::V6(_) => None,
            });
            ranges.collect::<BTreeSet<_>>()
        };
        let ranges = match (self.options.host_services, &self.options.service_cluster_ip_range) {
            (HostServices::Off, _) => BTreeSet::new(),
            (HostServices::Route, Some(ServiceRange(range))) => range.iter().copied().collect(),
            (HostServices::Route, None) => found(),
        };
        // A route to these would cut the node off from others, or its Pods from it.
        let in_vpc = |range: &Ipv4Net| {
            let prefixes = model.subnets.values().filter(|other| other.vpc == subnet.vpc).map(|other| other.prefix);
            prefixes
                .into_iter()
                .any(|prefix| prefix.contains(&IpNet::V4(*range)) || IpNet::V4(*range).contains(&prefix))
        };
        ranges.into_iter().filter(|range| self.taken_in(range).is_none() && !in_vpc(range)).collect()
    }

    /// An address in a prefix that the underlay uses.
    fn taken_in(&self, prefix: &Ipv4Net) -> Option<Ipv4Addr> {
        let nodes = self.objects.model().nodes.values().filter_map(|node| match node.internal_ip {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        let hops = self.mirror.vteps.values().map(|vtep| juneau_core::layout::ipv4(vtep.next_hop));
        self.node_port.addresses.iter().copied().chain(nodes).chain(hops).find(|address| prefix.contains(address))
    }
}

fn attachment_of(link: &Link) -> Option<Attachment> {
    Some(Attachment {
        ifindex: IfIndex::new(link.index).ok()?,
        host_mac: MacAddr::new(link.mac?).ok()?,
        container_id: String::new(),
    })
}

fn net_problem(error: &NetError) -> Problem {
    let remedy = match error.errno() {
        Some(nix::libc::EEXIST) => "remove what has the name or the route, which is somebody else's",
        _ => "see the message; the agent tries again",
    };
    Problem::new(format!("device {HOST_DEVICE}"), error.to_string(), remedy)
}
