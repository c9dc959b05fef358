//! Vpcs, Subnets and RouteTables.

use super::{Addresses, EventPart, Index, InterfacePart, LeasePart, event};
use crate::problems::{self, Problem};
use crate::snapshot::{ObjectRef, Snapshot, What};
use juneau_api::kinds::{LeasePhase, Route, RouteTable, Subnet, Vpc, reason};
use juneau_api::{access, conditions, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use serde::Serialize;
use std::collections::BTreeSet;

/// What the condition Ready says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Whether it holds.
    pub ready: bool,
    /// Why, in one word. Empty: there is no condition yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl State {
    pub(super) fn of(all: Option<&[Condition]>) -> Self {
        let ready = conditions::find(all.unwrap_or_default(), conditions::READY);
        ready.map_or_else(Self::default, |ready| Self {
            ready: ready.status == conditions::Status::True.as_str(),
            reason: ready.reason.clone(),
            message: ready.message.clone(),
        })
    }
}

/// Who may enter a Vpc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The selector, in words.
    pub selector: String,
    /// The Namespaces that it selects now. Absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
}

/// A Vpc and all in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VpcReport {
    /// Its name.
    pub name: String,
    /// Its number.
    #[serde(rename = "vpcID", skip_serializing_if = "Option::is_none")]
    pub vpc_id: Option<u32>,
    /// Seconds since it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<i64>,
    /// Its condition Ready.
    pub state: State,
    /// Who may enter.
    pub entry: Entry,
    /// Its Subnets.
    pub subnets: Vec<SubnetPart>,
    /// Its RouteTables.
    pub route_tables: Vec<TablePart>,
    /// What is off with itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// The newest Events about all of these.
    pub events: Vec<EventPart>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_shown: Vec<String>,
}

/// A Subnet, with what it leans on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubnetReport {
    /// The Subnet.
    #[serde(flatten)]
    pub subnet: SubnetPart,
    /// Its Vpc's condition Ready. Absent: the Vpc does not exist or could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc_state: Option<State>,
    /// The RouteTable that it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TablePart>,
    /// The newest Events about it and what is in it.
    pub events: Vec<EventPart>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_shown: Vec<String>,
}

/// A Subnet, as a part of another report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubnetPart {
    /// Its name.
    pub name: String,
    /// Its Vpc.
    pub vpc: String,
    /// Its prefix.
    pub cidr: String,
    /// Its VXLAN network identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// The gateway of its Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The largest packet of its Pods, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The RouteTable that it uses.
    pub route_table: String,
    /// Its condition Ready.
    pub state: State,
    /// How full it is. Absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Addresses>,
    /// Interfaces in it.
    pub interfaces: Vec<InterfacePart>,
    /// Addresses that are kept or rest though nobody has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resting: Vec<LeasePart>,
    /// What is off with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// A RouteTable and the Subnets that use it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TableReport {
    /// The table.
    #[serde(flatten)]
    pub table: TablePart,
    /// The newest Events about it.
    pub events: Vec<EventPart>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_shown: Vec<String>,
}

/// A RouteTable, as a part of another report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TablePart {
    /// Its name.
    pub name: String,
    /// Its Vpc.
    pub vpc: String,
    /// Whether it is the Vpc's main one.
    pub main: bool,
    /// Its number.
    #[serde(rename = "tableID", skip_serializing_if = "Option::is_none")]
    pub table_id: Option<u32>,
    /// Its condition Ready.
    pub state: State,
    /// Subnets that use it.
    pub subnets: Vec<String>,
    /// Its routes: those in force, and those of the spec that are not.
    pub routes: Vec<RoutePart>,
    /// What is off with it, beside its routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// What becomes of packets that a route fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RouteState {
    /// They go where it leads.
    InForce,
    /// It is in force, but its target cannot be used: they go nowhere.
    LeadsNowhere,
    /// It is left out: another route decides.
    LeftOut,
    /// No operator has looked at it yet.
    Pending,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutePart {
    /// Its destination.
    pub dst: String,
    /// Its target, in words.
    pub via: String,
    /// What becomes of its packets.
    pub state: RouteState,
    /// What is off with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// What is told about it though nothing is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A selector the way `kubectl` writes selectors.
fn selector(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let values = expression.values.clone().unwrap_or_default().join(", ");
        match expression.operator.as_str() {
            "In" => format!("{} in ({values})", expression.key),
            "NotIn" => format!("{} notin ({values})", expression.key),
            "Exists" => expression.key.clone(),
            "DoesNotExist" => format!("!{}", expression.key),
            other => format!("{} {other} ({values}), which is not valid", expression.key),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(", ")
}

fn entry(snapshot: &Snapshot, vpc: &Vpc) -> Entry {
    let selector = match &vpc.spec.allowed_namespaces {
        None => {
            return Entry {
                selector: "all Namespaces, or none if the operator runs with --require-namespace-binding".to_owned(),
                namespaces: None,
            };
        }
        Some(wanted) if *wanted == LabelSelector::default() => {
            return Entry { selector: "all Namespaces".to_owned(), namespaces: None };
        }
        Some(wanted) => format!("Namespaces with {}", selector(wanted)),
    };
    let all = snapshot.namespaces.iter();
    let selected = all.filter(|(name, object)| access::may_enter(vpc, name, access::labels_of(object), false).is_ok());
    let namespaces = snapshot.knows_all(What::Namespace).then(|| selected.map(|(name, _)| name.clone()).collect());
    Entry { selector, namespaces }
}

impl Index<'_> {
    pub(super) fn vpc_report(&self, name: &str, vpc: &Vpc) -> VpcReport {
        let status = vpc.status.as_ref();
        let inside = self.snapshot.subnets.iter().filter(|(_, subnet)| subnet.spec.vpc == name);
        let subnets: Vec<SubnetPart> = inside.map(|(name, subnet)| self.subnet(name, subnet)).collect();
        let inside = self.snapshot.route_tables.iter().filter(|(_, table)| table.spec.vpc == name);
        let route_tables: Vec<TablePart> = inside.map(|(name, table)| self.table(name, table)).collect();
        let mut about: BTreeSet<ObjectRef> = [ObjectRef::new("Vpc", name)].into();
        about.extend(subnets.iter().flat_map(objects));
        about.extend(route_tables.iter().map(|table| ObjectRef::new("RouteTable", &table.name)));
        let created = vpc.metadata.creation_timestamp.as_ref();
        VpcReport {
            name: name.to_owned(),
            vpc_id: status.and_then(|status| status.vpc_id),
            age_seconds: created.map(|created| self.snapshot.seconds_since(created.0)),
            state: State::of(status.map(|status| status.conditions.as_slice())),
            entry: entry(self.snapshot, vpc),
            subnets,
            route_tables,
            problems: self.problems_of(&ObjectRef::new("Vpc", name)),
            events: event::about(self.snapshot, &about),
            not_shown: self.not_shown(),
        }
    }

    pub(super) fn subnet_report(&self, name: &str, subnet: &Subnet) -> SubnetReport {
        let subnet = self.subnet(name, subnet);
        let vpc = self.snapshot.vpcs.get(&subnet.vpc);
        let table = self.snapshot.route_tables.get(&subnet.route_table);
        let about = objects(&subnet).collect();
        SubnetReport {
            vpc_state: vpc.map(|vpc| State::of(vpc.status.as_ref().map(|status| status.conditions.as_slice()))),
            table: table.map(|table| self.table(&subnet.route_table, table)),
            events: event::about(self.snapshot, &about),
            not_shown: self.not_shown(),
            subnet,
        }
    }

    pub(super) fn table_report(&self, name: &str, table: &RouteTable) -> TableReport {
        TableReport {
            table: self.table(name, table),
            events: event::about(self.snapshot, &[ObjectRef::new("RouteTable", name)].into()),
            not_shown: self.not_shown(),
        }
    }

    pub(super) fn subnet(&self, name: &str, subnet: &Subnet) -> SubnetPart {
        let status = subnet.status.as_ref();
        let pool = names::subnet_pool(name);
        let inside = self.snapshot.interfaces.iter().filter(|(_, nic)| nic.spec.subnet.as_deref() == Some(name));
        let leases = self.leases_of(&pool).iter();
        let resting = leases.filter(|lease| {
            lease.status.as_ref().and_then(|status| status.phase) == Some(LeasePhase::Retained)
                || lease.spec.owner_deletion_timestamp.is_some()
        });
        let addresses = self.snapshot.knows_all(What::AllocationLease).then_some(()).and_then(|()| {
            let spec = &self.snapshot.pools.get(&pool)?.spec;
            Addresses::of(spec, self.leases_of(&pool))
        });
        SubnetPart {
            name: name.to_owned(),
            vpc: subnet.spec.vpc.clone(),
            cidr: subnet.spec.cidr.clone(),
            vni: status.and_then(|status| status.vni),
            gateway: status.and_then(|status| status.gateway.clone()),
            mtu: status.and_then(|status| status.mtu),
            route_table: table_of(subnet).to_owned(),
            state: State::of(status.map(|status| status.conditions.as_slice())),
            addresses,
            interfaces: inside.map(|(name, nic)| self.interface(name, nic)).collect(),
            resting: resting.map(|lease| LeasePart::new(self.snapshot, lease)).collect(),
            problems: self.problems_of(&ObjectRef::new("Subnet", name)),
        }
    }

    pub(super) fn table(&self, name: &str, table: &RouteTable) -> TablePart {
        let status = table.status.as_ref();
        let users = self
            .snapshot
            .subnets
            .iter()
            .filter(|(_, subnet)| subnet.spec.vpc == table.spec.vpc && table_of(subnet) == name);
        let problems = self.problems_of(&ObjectRef::new("RouteTable", name));
        let routes = routes(table, &problems);
        let of_routes: Vec<_> = routes.iter().filter_map(|route| route.problem.clone()).collect();
        TablePart {
            name: name.to_owned(),
            vpc: table.spec.vpc.clone(),
            main: table.spec.vpc == name,
            table_id: status.and_then(|status| status.table_id),
            state: State::of(status.map(|status| status.conditions.as_slice())),
            subnets: users.map(|(name, _)| name.clone()).collect(),
            problems: problems.into_iter().filter(|problem| !of_routes.contains(problem)).collect(),
            routes,
        }
    }
}

/// The RouteTable that a Subnet uses.
fn table_of(subnet: &Subnet) -> &str {
    subnet.spec.route_table.as_deref().filter(|table| !table.is_empty()).unwrap_or(&subnet.spec.vpc)
}

fn routes(table: &RouteTable, problems: &[Problem]) -> Vec<RoutePart> {
    let (in_force, rejected) = match &table.status {
        Some(status) => (status.routes.as_slice(), status.rejected_routes.as_slice()),
        None => Default::default(),
    };
    // A destination may be there twice: once in force, once left out.
    let is_left_out = |why: &str| {
        matches!(why, reason::AUTOMATIC_ROUTE_EXISTS | reason::DUPLICATE_DESTINATION | reason::INVALID_DESTINATION)
    };
    let verdict = |route: &Route, left_out: bool| {
        rejected.iter().find(|one| one.dst == route.dst && is_left_out(&one.reason) == left_out)
    };
    let part = |route: &Route, state: RouteState, why: Option<&juneau_api::kinds::RejectedRoute>| {
        let is_note = why.is_some_and(|why| why.reason == reason::AUTOMATIC_ROUTE_EXISTS);
        let message = why.map(|why| format!("route {}: {}", route.dst, why.message));
        let problem = message
            .filter(|_| !is_note)
            .and_then(|message| problems.iter().find(|problem| problem.message == message).cloned());
        RoutePart {
            dst: route.dst.clone(),
            via: problems::target(&route.via, route.subnet.as_deref()),
            state,
            problem,
            note: why.filter(|_| is_note).map(|why| why.message.clone()),
        }
    };
    let mut all = Vec::new();
    for route in in_force {
        let why = if route.subnet.is_some() { None } else { verdict(route, false) };
        let state = if why.is_some() { RouteState::LeadsNowhere } else { RouteState::InForce };
        all.push(part(route, state, why));
    }
    for route in &table.spec.routes {
        let is_in_force = in_force.iter().any(|one| one.dst == route.dst && one.via == route.via);
        if is_in_force || route.via.kind == juneau_api::kinds::ViaType::Connected {
            continue;
        }
        let why = verdict(route, true);
        let state = if why.is_some() { RouteState::LeftOut } else { RouteState::Pending };
        all.push(part(route, state, why));
    }
    all
}

/// A Subnet and what is in it, for Events.
fn objects(subnet: &SubnetPart) -> impl Iterator<Item = ObjectRef> + '_ {
    let own = core::iter::once(ObjectRef::new("Subnet", &subnet.name));
    let inside = subnet.interfaces.iter().flat_map(|nic| {
        let at =
            |kind: &str, name: &str| ObjectRef { namespace: Some(nic.namespace.clone()), ..ObjectRef::new(kind, name) };
        [at("NetworkInterface", &nic.name), at("NetworkEndpoint", &nic.name), at("Pod", &nic.pod)]
    });
    own.chain(inside)
}
