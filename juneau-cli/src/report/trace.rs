//! The way of a packet, as the agents of the nodes on it tell. A machine that asks and is answered, without any
//! input or output of its own.

use super::Index;
use crate::error::{CliError, near};
use crate::problems::Problem;
use crate::snapshot::{ObjectRef, Snapshot};
use juneau_api::kinds::{EndpointKind, NetworkEndpoint};
use juneau_api::names;
use juneau_api::view::ObjectName;
use juneau_cni::protocol::Explanation;
use serde::Serialize;
use std::net::Ipv4Addr;

/// The reason of what is delivered.
const OK: &str = "ok";

/// What is to be traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceWish {
    /// The sender.
    pub pod: ObjectName,
    /// Its interface.
    pub interface: String,
    /// An address, `namespace/pod`, a Pod of the sender's Namespace, or a Node; with `:PORT` behind it or not.
    pub destination: String,
    /// `tcp`, `udp`, `icmp`. Absent: `tcp` with a port, `icmp` without.
    pub protocol: Option<String>,
}

/// One end of the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    /// The object that has the address, as far as it is known: a Pod or a Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectRef>,
    /// The Pod's interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The address.
    pub address: Ipv4Addr,
    /// The Vpc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc: Option<String>,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// What a node does with the packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hop {
    /// The node.
    pub node: String,
    /// Where the packet is seen there: `pod` or `overlay`.
    pub hook: &'static str,
    /// What happens to it: `peer`, `encap`, `device`, `answer` or `drop`.
    pub action: String,
    /// Why: `ok`, or a drop reason.
    pub reason: String,
    /// One line for people.
    pub text: String,
    /// The sender hears of it.
    pub answered: bool,
    /// Where it goes from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The stages that it goes through, as `route: to 10.0.2.10 in table 20: connected, VNI 202`.
    pub steps: Vec<String>,
}

/// The whole way.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceReport {
    /// Who sends.
    pub source: End,
    /// Who shall get it.
    pub destination: End,
    /// `tcp`, `udp` or `icmp`.
    pub protocol: String,
    /// The destination port; 0 for ICMP.
    pub port: u16,
    /// Nodes on the way, in order.
    pub hops: Vec<Hop>,
    /// It would be delivered.
    pub delivered: bool,
    /// What should be known about the ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What is off with the interfaces of both ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// What an agent is to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The agent's node.
    pub node: String,
    /// Words for `juneau-agent`.
    pub words: Vec<String>,
    hook: &'static str,
}

/// A trace on its way.
#[derive(Debug)]
pub struct Trace<'s> {
    snapshot: &'s Snapshot,
    report: TraceReport,
    next: Option<Question>,
}

impl<'s> Trace<'s> {
    /// Finds out who the ends are.
    ///
    /// # Errors
    /// [`CliError::NotFound`] when one of them does not exist, [`CliError::Failed`] when one has no address.
    pub fn begin(snapshot: &'s Snapshot, wish: &TraceWish) -> Result<Self, CliError> {
        let source = end_of_pod(snapshot, &wish.pod, &wish.interface)?;
        let (name, port) = split_port(&wish.destination)?;
        let (destination, mut notes) = destination(snapshot, &source, &wish.pod.namespace, name)?;
        let protocol = wish.protocol.clone().unwrap_or_else(|| if port.is_some() { "tcp" } else { "icmp" }.to_owned());
        if protocol != "icmp" && port.is_none() {
            let why = format!("{protocol} goes to a port: write {}:PORT", wish.destination);
            return Err(CliError::Failed { why });
        }
        if source.vpc.is_some() && destination.vpc.is_some() && source.vpc != destination.vpc {
            let vpc = |end: &End| end.vpc.clone().unwrap_or_default();
            notes.push(format!(
                "the destination is in Vpc/{}, the sender in Vpc/{}: VPCs do not reach each other, and whoever has {} in the sender's own gets the packet",
                vpc(&destination), vpc(&source), destination.address
            ));
        }
        let index = Index::new(snapshot);
        let mut problems: Vec<Problem> = Vec::new();
        for end in [&source, &destination] {
            let (Some(object), Some(interface)) = (&end.object, &end.interface) else { continue };
            let nic = object.namespace.clone().map(|n| ObjectName::new(n, names::interface(&object.name, interface)));
            for kind in ["NetworkInterface", "NetworkEndpoint"] {
                let of = nic.as_ref().map(|nic| index.problems_of(&ObjectRef::named(kind, nic)));
                problems.extend(of.unwrap_or_default());
            }
        }
        problems.dedup();
        let node = source.node.clone().unwrap_or_default();
        let report = TraceReport {
            source,
            destination,
            protocol,
            port: port.unwrap_or(0),
            hops: Vec::new(),
            delivered: false,
            notes,
            problems,
        };
        let mut this = Self { snapshot, report, next: None };
        this.next = Some(this.question(node, "pod", &wish.pod, &wish.interface));
        Ok(this)
    }

    fn question(&self, node: String, hook: &'static str, pod: &ObjectName, interface: &str) -> Question {
        let report = &self.report;
        let words = [
            "explain".to_owned(),
            format!("{}/{}", pod.namespace, pod.name),
            format!("--interface={interface}"),
            format!("--to={}", report.destination.address),
            format!("--protocol={}", report.protocol),
            format!("--port={}", report.port),
            "--output=json".to_owned(),
        ];
        Question { node, hook, words: words.into() }
    }

    /// What is to be asked now; nothing when the end is reached.
    pub fn ask(&mut self) -> Option<Question> {
        self.next.take()
    }

    /// Goes on with what was answered.
    pub fn answered(&mut self, question: &Question, answer: &Explanation) {
        let is_ok = answer.reason == OK && answer.action != "drop";
        let mut hop = Hop {
            node: question.node.clone(),
            hook: question.hook,
            action: answer.action.clone(),
            reason: answer.reason.clone(),
            text: answer.text.clone(),
            answered: answer.answered,
            to: None,
            remedy: (!is_ok).then(|| remedy(&answer.reason)),
            steps: answer.steps.iter().map(|step| format!("{}: {}", step.stage, step.text)).collect(),
        };
        match (is_ok, answer.vtep) {
            (false, _) => {}
            (true, Some(vtep)) => {
                let vni = answer.vni.unwrap_or_default();
                let node = self.node_at(vtep);
                let name = node.unwrap_or("a node that is not known");
                hop.to = Some(format!("{name} ({vtep}) with VNI {vni}"));
                self.onward(answer, node.map(str::to_owned), vni);
            }
            (true, None) => {
                let receiver = answer.ifindex.and_then(|index| self.at_device(&question.node, index));
                hop.to = Some(match (receiver, answer.ifindex) {
                    (Some((name, _)), _) => format!("NetworkEndpoint/{name}"),
                    (None, Some(index)) => format!("device {index} of this node"),
                    (None, None) => "the node".to_owned(),
                });
                // A node has other addresses than that of its endpoint.
                if let Some((name, endpoint)) = receiver
                    && endpoint.spec.kind == EndpointKind::Pod
                    && address(endpoint) != Some(self.report.destination.address)
                {
                    self.report.notes.push(format!("{name} is a router: what it does with the packet is its own"));
                }
                self.report.delivered = true;
            }
        }
        self.report.hops.push(hop);
    }

    /// The next question, to the node that gets the packet by the overlay.
    fn onward(&mut self, answer: &Explanation, node: Option<String>, vni: u32) {
        let vpc = self.report.source.vpc.clone();
        let on_it = |endpoint: &NetworkEndpoint| {
            let of = endpoint.spec.subnet.as_deref().and_then(|subnet| self.snapshot.vpc_of(subnet));
            Some(endpoint.spec.node_name.as_str()) == node.as_deref() && of == vpc.as_deref()
        };
        // By a route through a router the packet is for the router, and its step names it.
        let routed = answer.steps.iter().filter(|step| step.stage == "route").map(|step| step.values[3]);
        let routed = routed.filter(|word| *word != 0).map(|word| Ipv4Addr::from(word.to_ne_bytes()));
        let wanted: Vec<Ipv4Addr> = routed.chain([self.report.destination.address]).collect();
        let found = wanted.iter().find_map(|wanted| {
            let all = &self.snapshot.endpoints;
            all.values().find(|endpoint| on_it(endpoint) && address(endpoint) == Some(*wanted))
        });
        let receiver = found.and_then(|endpoint| {
            let pod = endpoint.spec.pod_ref.as_ref()?;
            let namespace = endpoint.metadata.namespace.as_deref()?;
            Some((ObjectName::new(namespace, pod.name.as_str()), pod.interface.clone()))
        });
        let source = &self.report.source;
        let from = source.node.as_deref().and_then(|name| internal_ip(self.snapshot, name));
        let (Some(node), Some((pod, interface)), Some(from)) = (node, receiver, from) else {
            self.report.notes.push(
                "who receives it there is not to be seen here: the last hop is not asked, and the packet counts as not \
                 delivered"
                    .to_owned(),
            );
            return;
        };
        let mut question = self.question(node, "overlay", &pod, &interface);
        question.words.extend([
            format!("--from-node={from}"),
            format!("--vni={vni}"),
            format!("--from={}", source.address),
        ]);
        self.next = Some(question);
    }

    fn node_at(&self, vtep: Ipv4Addr) -> Option<&'s str> {
        let mut names = self.snapshot.nodes.keys();
        let by_node = names.find(|name| internal_ip(self.snapshot, name) == Some(vtep)).map(String::as_str);
        // Who may not see Nodes sees where endpoints are.
        by_node.or_else(|| {
            let mut all = self.snapshot.endpoints.values();
            all.find(|endpoint| told_ip(endpoint) == Some(vtep)).map(|endpoint| endpoint.spec.node_name.as_str())
        })
    }

    fn at_device(&self, node: &str, index: u32) -> Option<(&'s ObjectName, &'s NetworkEndpoint)> {
        self.snapshot.endpoints.iter().find(|(_, endpoint)| {
            let attached = endpoint.spec.attachment.as_ref();
            endpoint.spec.node_name == node && attached.is_some_and(|one| i64::from(one.ifindex) == i64::from(index))
        })
    }

    /// What came of it.
    #[must_use]
    pub fn end(self) -> TraceReport {
        self.report
    }
}

fn address(endpoint: &NetworkEndpoint) -> Option<Ipv4Addr> {
    endpoint.spec.address.as_deref()?.split('/').next()?.parse().ok()
}

fn told_ip(endpoint: &NetworkEndpoint) -> Option<Ipv4Addr> {
    endpoint.status.as_ref()?.node_ip.as_deref()?.parse().ok()
}

/// A Node's InternalIP, as it tells itself, or an endpoint on it.
fn internal_ip(snapshot: &Snapshot, name: &str) -> Option<Ipv4Addr> {
    let status = snapshot.nodes.get(name).and_then(|node| node.status.as_ref());
    let addresses = status.and_then(|status| status.addresses.as_ref()).map(Vec::as_slice).unwrap_or_default();
    let mut internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
    internal.find_map(|address| address.address.parse().ok()).or_else(|| {
        let mut all = snapshot.endpoints.values();
        all.find_map(|endpoint| told_ip(endpoint).filter(|_| endpoint.spec.node_name == name))
    })
}

/// `NAME:PORT`, or a name alone.
fn split_port(text: &str) -> Result<(&str, Option<u16>), CliError> {
    let Some((name, port)) = text.rsplit_once(':') else { return Ok((text, None)) };
    let bad = || CliError::Failed { why: format!("{port:?} is no port: write {name}:PORT, with 1 to 65535") };
    match port.parse() {
        Ok(port @ 1..) => Ok((name, Some(port))),
        _ => Err(bad()),
    }
}

fn end_of_pod(snapshot: &Snapshot, pod: &ObjectName, interface: &str) -> Result<End, CliError> {
    let name = ObjectName::new(pod.namespace.as_str(), names::interface(&pod.name, interface));
    let Some(endpoint) = snapshot.endpoints.get(&name) else {
        let of_pod = |one: &&NetworkEndpoint| {
            let named = one.spec.pod_ref.as_ref().is_some_and(|named| named.name == pod.name);
            named && one.metadata.namespace.as_deref() == Some(pod.namespace.as_str())
        };
        let others: Vec<&str> = snapshot.endpoints.values().filter(of_pod).filter_map(interface_of).collect();
        if !others.is_empty() {
            let near = others.into_iter().map(str::to_owned).collect();
            return Err(CliError::NotFound { object: format!("interface {interface} of Pod/{pod}"), near });
        }
        if snapshot.pods.contains_key(pod) {
            let why = format!(
                "Pod/{pod} has no interface of Juneau's: see why with kubectl juneau describe pod {} -n {}",
                pod.name, pod.namespace
            );
            return Err(CliError::Failed { why });
        }
        let here = snapshot.pods.keys().filter(|name| name.namespace == pod.namespace).map(|name| name.name.as_str());
        return Err(CliError::NotFound { object: format!("Pod/{pod}"), near: near(&pod.name, here) });
    };
    let Some(address) = address(endpoint) else {
        return Err(CliError::Failed { why: format!("NetworkEndpoint/{name} has no IPv4 address") });
    };
    Ok(End {
        object: Some(ObjectRef::named("Pod", pod)),
        interface: Some(interface.to_owned()),
        address,
        vpc: endpoint.spec.subnet.as_deref().and_then(|subnet| snapshot.vpc_of(subnet)).map(str::to_owned),
        node: Some(endpoint.spec.node_name.clone()),
    })
}

fn interface_of(endpoint: &NetworkEndpoint) -> Option<&str> {
    endpoint.spec.pod_ref.as_ref().map(|pod| pod.interface.as_str())
}

fn destination(snapshot: &Snapshot, source: &End, namespace: &str, name: &str) -> Result<(End, Vec<String>), CliError> {
    if let Ok(wanted) = name.parse::<Ipv4Addr>() {
        let holder = snapshot.pod_endpoints().find(|endpoint| {
            let vpc = endpoint.spec.subnet.as_deref().and_then(|subnet| snapshot.vpc_of(subnet));
            address(endpoint) == Some(wanted) && vpc == source.vpc.as_deref()
        });
        let end = holder.and_then(|endpoint| {
            let pod = endpoint.spec.pod_ref.as_ref()?;
            let pod_name = ObjectName::new(endpoint.metadata.namespace.clone()?, pod.name.as_str());
            end_of_pod(snapshot, &pod_name, &pod.interface).ok()
        });
        let nobody = End { object: None, interface: None, address: wanted, vpc: None, node: None };
        let notes = match (&end, &source.vpc) {
            (None, Some(vpc)) => vec![format!("no Pod of Vpc/{vpc} has {wanted}")],
            _ => Vec::new(),
        };
        return Ok((end.unwrap_or(nobody), notes));
    }
    if !name.contains('/') && snapshot.nodes.contains_key(name) {
        let Some(address) = internal_ip(snapshot, name) else {
            return Err(CliError::Failed { why: format!("Node/{name} has no InternalIP") });
        };
        let object = Some(ObjectRef::new("Node", name));
        return Ok((End { object, interface: None, address, vpc: None, node: Some(name.to_owned()) }, Vec::new()));
    }
    let (namespace, pod) = name.split_once('/').unwrap_or((namespace, name));
    let pod = ObjectName::new(namespace, pod);
    // Of several interfaces the one that the sender can reach.
    let mut all = snapshot.pod_endpoints().filter(|endpoint| {
        let named = endpoint.spec.pod_ref.as_ref().is_some_and(|named| named.name == pod.name);
        named && endpoint.metadata.namespace.as_deref() == Some(pod.namespace.as_str())
    });
    let same =
        all.find(|endpoint| endpoint.spec.subnet.as_deref().and_then(|s| snapshot.vpc_of(s)) == source.vpc.as_deref());
    let interface = same.and_then(interface_of).unwrap_or("eth0");
    Ok((end_of_pod(snapshot, &pod, interface)?, Vec::new()))
}

/// What helps when a packet ends for this reason.
fn remedy(reason: &str) -> String {
    let known = match reason {
        "no-route" => {
            "give the RouteTable of the sender's Subnet a route: kubectl juneau describe vpc VPC shows what there is"
        }
        "route-unreachable" => {
            "start the Pod that the route leads to, or correct its target in spec.routes of the RouteTable"
        }
        "no-endpoint" => {
            "see who has the address: kubectl get networkendpoints -A; the Pod may be gone, or have no network yet"
        }
        "gateway" => "ask another address: the gateway forwards and answers ARP, nothing else",
        "policy-egress" => "let the sender's policy allow it",
        "policy-ingress" => "let the receiver's policy allow it",
        "policy-not-ready" | "no-interface" => "see the problems of that node's agent: juneau-agent status",
        "quota-flows" | "quota-embryonic" => "close connections, or raise the VPC's quota",
        "flow-map-full" => "give the agents a larger --map-size jn_flows",
        "vtep-unknown" => "see that both Nodes have their InternalIP, and that the receiving node's agent reads them",
        "vni-unknown" | "overlay-destination" => {
            "see whether the Pod is attached there: kubectl juneau describe pod POD; the nodes may not have heard of it yet"
        }
        "destination" => "ask about a unicast address: multicast, broadcast, loopback and link-local are not forwarded",
        _ => "",
    };
    match known {
        "" => format!("read what it means in docs/drop-reasons.md, section {reason}"),
        known => known.to_owned(),
    }
}
