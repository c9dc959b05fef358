//! Descriptions as trees.

use super::tree::{Tone, Tree, columns};
use super::{Style, event, span};
use crate::report::{
    Addresses, ClaimPart, Description, EndpointPart, EventPart, InterfacePart, InterfaceReport, LeasePart, PodReport,
    RoutePart, RouteState, State, SubnetPart, SubnetReport, TablePart, TableReport, VpcReport,
};
use juneau_api::kinds::LeasePhase;

/// So many interfaces of a Subnet, and so many resting addresses, are drawn.
const DRAWN: usize = 50;

/// A description as a tree.
#[must_use]
pub fn description(description: &Description, style: Style) -> String {
    match description {
        Description::Vpc(report) => vpc(report),
        Description::Subnet(report) => subnet_report(report),
        Description::RouteTable(report) => table_report(report),
        Description::NetworkInterface(report) => interface_report(report),
        Description::Pod(report) => pod(report),
    }
    .draw(style)
}

/// An object's first line.
fn head(name: &str, state: &State, facts: &[Option<String>]) -> Tree {
    let (tone, word) = match (state.ready, state.reason.as_str()) {
        (true, _) => (Tone::Good, "Ready"),
        (false, "") => (Tone::Warning, "no status yet"),
        (false, _) => (Tone::Bad, "not ready"),
    };
    let facts = facts.iter().flatten().map(|fact| format!("  {fact}")).collect::<String>();
    Tree::new(tone, format!("{name}  {word}{facts}"))
}

fn tail(tree: &mut Tree, events: &[EventPart], not_shown: &[String]) {
    if let Some(events) = Tree::group("Events", events.iter().map(event).collect()) {
        tree.push(events);
    }
    let lines = not_shown.iter().map(|why| Tree::new(Tone::Faint, why)).collect();
    if let Some(lines) = Tree::group("not shown", lines) {
        tree.push(lines);
    }
}

fn vpc(report: &VpcReport) -> Tree {
    let facts = [
        report.vpc_id.map(|id| format!("number {id}")),
        report.age_seconds.map(|seconds| format!("{} old", span(seconds))),
    ];
    let mut tree = head(&format!("Vpc/{}", report.name), &report.state, &facts);
    for problem in &report.problems {
        tree.push(Tree::problem(problem));
    }
    let now = match &report.entry.namespaces {
        Some(names) if names.is_empty() => ": none now".to_owned(),
        Some(names) => format!(": {}", names.join(", ")),
        None => String::new(),
    };
    tree.push(Tree::plain(format!("may enter: {}{now}", report.entry.selector)));
    for part in &report.subnets {
        tree.push(subnet(part));
    }
    if report.subnets.is_empty() {
        tree.push(Tree::new(Tone::Faint, "no Subnets"));
    }
    for part in &report.route_tables {
        tree.push(table(part));
    }
    tail(&mut tree, &report.events, &report.not_shown);
    tree
}

fn addresses(addresses: &Addresses) -> String {
    let resting =
        if addresses.resting > 0 { format!(", {} resting or kept", addresses.resting) } else { String::new() };
    format!("addresses: {} of {} used{resting}, {} free", addresses.used, addresses.total, addresses.free)
}

fn subnet(part: &SubnetPart) -> Tree {
    let facts = [
        Some(part.cidr.clone()),
        part.vni.map(|vni| format!("VNI {vni}")),
        part.gateway.as_ref().map(|gateway| format!("gateway {gateway}")),
        part.mtu.map(|mtu| format!("MTU {mtu}")),
        Some(format!("RouteTable/{}", part.route_table)),
    ];
    let mut tree = head(&format!("Subnet/{}", part.name), &part.state, &facts);
    for problem in &part.problems {
        tree.push(Tree::problem(problem));
    }
    if let Some(counts) = &part.addresses {
        let tone = if counts.free == 0 { Tone::Warning } else { Tone::Plain };
        tree.push(Tree::new(tone, addresses(counts)));
    }
    for nic in part.interfaces.iter().take(DRAWN) {
        tree.push(interface(nic));
    }
    if let Some(more) = part.interfaces.len().checked_sub(DRAWN).filter(|more| *more > 0) {
        tree.push(Tree::new(Tone::Faint, format!("and {more} interfaces more; -o json lists all")));
    }
    let resting = part.resting.iter().take(DRAWN).map(|one| Tree::plain(lease(one))).collect();
    if let Some(resting) = Tree::group("addresses without a holder", resting) {
        tree.push(resting);
    }
    tree
}

fn subnet_report(report: &SubnetReport) -> Tree {
    let mut tree = subnet(&report.subnet);
    if let Some(state) = &report.vpc_state {
        tree.push(head(&format!("Vpc/{}", report.subnet.vpc), state, &[]));
    }
    if let Some(part) = &report.table {
        tree.push(table(part));
    }
    tail(&mut tree, &report.events, &report.not_shown);
    tree
}

fn table(part: &TablePart) -> Tree {
    let facts =
        [part.main.then(|| format!("main of Vpc/{}", part.vpc)), part.table_id.map(|id| format!("number {id}"))];
    let mut tree = head(&format!("RouteTable/{}", part.name), &part.state, &facts);
    for problem in &part.problems {
        tree.push(Tree::problem(problem));
    }
    let users = if part.subnets.is_empty() { "no Subnet".to_owned() } else { part.subnets.join(", ") };
    tree.push(Tree::plain(format!("used by {users}")));
    let rows: Vec<Vec<String>> = part.routes.iter().map(route).collect();
    for (line, route) in columns(&rows).into_iter().zip(&part.routes) {
        let tone = if route.problem.is_some() { Tone::Bad } else { Tone::Plain };
        let mut line = Tree::new(tone, line);
        if let Some(problem) = &route.problem {
            let mut problem = problem.clone();
            // The line above has the destination already.
            let about = format!("route {}: ", route.dst);
            problem.message = problem.message.strip_prefix(&about).unwrap_or(&problem.message).to_owned();
            line.push(Tree::problem(&problem));
        }
        if let Some(note) = &route.note {
            line.push(Tree::new(Tone::Faint, note));
        }
        tree.push(line);
    }
    tree
}

fn route(route: &RoutePart) -> Vec<String> {
    let state = match route.state {
        RouteState::InForce => "in force",
        RouteState::LeadsNowhere => "leads nowhere",
        RouteState::LeftOut => "left out",
        RouteState::Pending => "not looked at yet",
    };
    vec![route.dst.clone(), format!("via {}", route.via), state.to_owned()]
}

fn table_report(report: &TableReport) -> Tree {
    let mut tree = table(&report.table);
    if !report.table.main {
        tree.push(Tree::plain(format!("of Vpc/{}", report.table.vpc)));
    }
    tail(&mut tree, &report.events, &report.not_shown);
    tree
}

/// An interface, with what belongs to it.
fn interface(part: &InterfacePart) -> Tree {
    let asked = match (&part.address, &part.requested_address) {
        (None, Some(wanted)) => Some(format!("asks for {wanted}")),
        _ => None,
    };
    let facts = [part.address.clone(), asked, Some(format!("on {}", part.node))];
    let name = format!("NetworkInterface/{}/{}", part.namespace, part.name);
    let mut tree = head(&name, &part.state, &facts);
    for problem in &part.problems {
        tree.push(Tree::problem(problem));
    }
    if let Some(found) = &part.endpoint {
        tree.push(endpoint(found));
    }
    if let Some(found) = &part.claim {
        tree.push(claim(found));
    }
    tree
}

fn endpoint(part: &EndpointPart) -> Tree {
    let at = part.node_ip.as_ref().map(|ip| format!(" ({ip})")).unwrap_or_default();
    let mac = part.mac_address.as_ref().map(|mac| format!("  {mac}")).unwrap_or_default();
    let (tone, attached) = match &part.attachment {
        Some(attachment) => {
            let device = attachment.device.as_ref().map(|device| format!("{device}, ")).unwrap_or_default();
            (Tone::Plain, format!("attached ({device}index {})", attachment.ifindex))
        }
        None => (Tone::Warning, "not attached".to_owned()),
    };
    Tree::new(tone, format!("NetworkEndpoint/{}  on {}{at}{mac}  {attached}", part.name, part.node))
}

fn claim(part: &ClaimPart) -> Tree {
    let value = part.value.as_deref().unwrap_or("no value yet");
    let tree = Tree::plain(format!("AllocationClaim/{}  {value}", part.name));
    tree.with(part.lease.as_ref().map(|one| Tree::plain(lease(one))))
}

fn lease(part: &LeasePart) -> String {
    let phase = match part.phase {
        Some(LeasePhase::Active) | None => "held",
        Some(LeasePhase::Retained) => "kept",
        Some(LeasePhase::Released | LeasePhase::Expired) => "free again",
        Some(LeasePhase::Unknown) => "in a phase of a later version",
    };
    let until = part.free_in_seconds.map(|seconds| format!(", free in {}", span(seconds))).unwrap_or_default();
    format!("AllocationLease/{}  {}  {phase}{until}", part.name, part.value)
}

fn interface_report(report: &InterfaceReport) -> Tree {
    let part = &report.interface;
    let mut tree = interface(part);
    tree.push(Tree::plain(format!("interface {} of Pod/{}/{}", part.interface, part.namespace, part.pod)));
    if let Some(subnet) = &part.subnet {
        let vpc = report.vpc.as_ref().map(|vpc| format!("of Vpc/{vpc}"));
        let gateway = report.gateway.as_ref().map(|gateway| format!("gateway {gateway}"));
        tree.push(match &report.subnet_state {
            Some(state) => head(&format!("Subnet/{subnet}"), state, &[vpc, gateway]),
            None => Tree::plain(format!("Subnet/{subnet}")),
        });
    }
    if !report.security_groups.is_empty() {
        tree.push(Tree::plain(format!("SecurityGroups {}", report.security_groups.join(", "))));
    }
    tail(&mut tree, &report.events, &report.not_shown);
    tree
}

fn pod(report: &PodReport) -> Tree {
    let up = !report.interfaces.is_empty()
        && report.problems.is_empty()
        && report.interfaces.iter().all(|wish| {
            wish.network_interface.as_ref().is_some_and(|nic| {
                nic.state.ready && nic.endpoint.as_ref().is_some_and(|endpoint| endpoint.attachment.is_some())
            })
        });
    let (tone, word) = match (&report.without_interfaces, up) {
        (Some(_), _) => (Tone::Plain, "has no network of Juneau's"),
        (None, true) => (Tone::Good, "its network is up"),
        (None, false) => (Tone::Bad, "its network is not up"),
    };
    let facts = [
        report.phase.clone(),
        report.node.as_ref().map(|node| format!("on {node}")),
        report.pod_ip.as_ref().map(|ip| format!("podIP {ip}")),
    ];
    let facts = facts.iter().flatten().map(|fact| format!("  {fact}")).collect::<String>();
    let mut tree = Tree::new(tone, format!("Pod/{}/{}  {word}{facts}", report.namespace, report.name));
    if let Some(why) = &report.without_interfaces {
        tree.push(Tree::plain(why));
    }
    if let (Some(agent), Some(node)) = (&report.agent, &report.node) {
        let (tone, word) = if agent.ready { (Tone::Plain, "ready") } else { (Tone::Warning, "not ready") };
        tree.push(Tree::new(tone, format!("agent of {node}  {}  {word}", agent.pod)));
    }
    for problem in &report.problems {
        tree.push(Tree::problem(problem));
    }
    for wish in &report.interfaces {
        let vpc = wish.vpc.as_ref().map(|vpc| format!(" of Vpc/{vpc}")).unwrap_or_default();
        let text = format!("{}  {}{vpc}, by {}", wish.interface, wish.network, wish.source);
        let below = match &wish.network_interface {
            Some(nic) => interface(nic),
            None => Tree::new(Tone::Warning, "has no NetworkInterface yet"),
        };
        tree.push(Tree::plain(text).with([below]));
    }
    tail(&mut tree, &report.events, &report.not_shown);
    tree
}
