//! From a kind and a name to a report.

use super::{Index, InterfaceReport, PodReport, SubnetReport, TableReport, VpcReport};
use crate::error::{CliError, near};
use crate::snapshot::{Snapshot, What};
use juneau_api::view::ObjectName;
use serde::Serialize;

/// The kinds that can be described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// A tenant's network.
    Vpc,
    /// A prefix of it.
    Subnet,
    /// Its routes.
    RouteTable,
    /// An interface of a Pod.
    NetworkInterface,
    /// A Pod.
    Pod,
}

impl TargetKind {
    /// What is fetched for it.
    #[must_use]
    pub const fn what(self) -> What {
        match self {
            Self::Vpc => What::Vpc,
            Self::Subnet => What::Subnet,
            Self::RouteTable => What::RouteTable,
            Self::NetworkInterface => What::NetworkInterface,
            Self::Pod => What::Pod,
        }
    }

    /// Whether it has a namespace.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        matches!(self, Self::NetworkInterface | Self::Pod)
    }
}

/// What is to be described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its kind.
    pub kind: TargetKind,
    /// Its namespace. Absent: every one, or it has none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// What is meant by a name, which may be `namespace/name` for kinds that have a namespace.
#[must_use]
pub fn target(kind: TargetKind, name: &str, namespace: Option<String>) -> Target {
    match name.split_once('/') {
        Some((namespace, name)) if kind.is_namespaced() => {
            Target { kind, namespace: Some(namespace.to_owned()), name: name.to_owned() }
        }
        _ => Target { kind, namespace: namespace.filter(|_| kind.is_namespaced()), name: name.to_owned() },
    }
}

/// A report of one object.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind")]
#[expect(missing_docs, reason = "the names of the kinds")]
pub enum Description {
    Vpc(VpcReport),
    Subnet(Box<SubnetReport>),
    RouteTable(TableReport),
    NetworkInterface(Box<InterfaceReport>),
    Pod(PodReport),
}

/// The reports of all objects that are meant: one, or several of that name in different namespaces.
///
/// # Errors
/// [`CliError::NotFound`] when there is none, [`CliError::Forbidden`] when it may not be looked for.
pub fn describe(snapshot: &Snapshot, target: &Target) -> Result<Vec<Description>, CliError> {
    let index = Index::new(snapshot);
    let name = target.name.as_str();
    let what = target.kind.what();
    if !snapshot.read.contains(&what) {
        if let Some(failed) = snapshot.hidden.iter().find(|hidden| hidden.what == what && hidden.failed) {
            return Err(CliError::Failed { why: failed.why.clone() });
        }
        let place = target.namespace.as_ref().map(|namespace| format!(" in Namespace {namespace}"));
        return Err(CliError::Forbidden { plural: what.plural(), place: place.unwrap_or_default() });
    }
    let found = match target.kind {
        TargetKind::Vpc => snapshot.vpcs.get(name).map(|vpc| Description::Vpc(index.vpc_report(name, vpc))),
        TargetKind::Subnet => {
            snapshot.subnets.get(name).map(|subnet| Description::Subnet(Box::new(index.subnet_report(name, subnet))))
        }
        TargetKind::RouteTable => {
            snapshot.route_tables.get(name).map(|table| Description::RouteTable(index.table_report(name, table)))
        }
        TargetKind::NetworkInterface | TargetKind::Pod => return namespaced(&index, target),
    };
    let names: Vec<&str> = match target.kind {
        TargetKind::Vpc => snapshot.vpcs.keys().map(String::as_str).collect(),
        TargetKind::Subnet => snapshot.subnets.keys().map(String::as_str).collect(),
        _ => snapshot.route_tables.keys().map(String::as_str).collect(),
    };
    found.map(|found| vec![found]).ok_or_else(|| not_found(format!("{what}/{name}"), near(name, names)))
}

fn not_found(object: String, near: Vec<String>) -> CliError {
    CliError::NotFound { object, near }
}

fn namespaced(index: &Index<'_>, target: &Target) -> Result<Vec<Description>, CliError> {
    let snapshot = index.snapshot;
    let is_meant = |name: &ObjectName| {
        name.name == target.name && target.namespace.as_ref().is_none_or(|namespace| *namespace == name.namespace)
    };
    let (found, names): (Vec<Description>, Vec<&ObjectName>) = if target.kind == TargetKind::Pod {
        let found = snapshot.pods.iter().filter(|(name, _)| is_meant(name));
        (
            found.map(|(name, pod)| Description::Pod(index.pod_report(name, pod))).collect(),
            snapshot.pods.keys().collect(),
        )
    } else {
        let found = snapshot.interfaces.iter().filter(|(name, _)| is_meant(name));
        let found = found.map(|(name, nic)| Description::NetworkInterface(Box::new(index.interface_report(name, nic))));
        (found.collect(), snapshot.interfaces.keys().collect())
    };
    if !found.is_empty() {
        return Ok(found);
    }
    let what = target.kind.what();
    let whole = target.namespace.as_ref().map_or_else(|| target.name.clone(), |n| format!("{n}/{}", target.name));
    // In other namespaces only the very name counts.
    let same = names.iter().filter(|name| name.name == target.name).map(ToString::to_string);
    let here = names.iter().filter(|name| target.namespace.as_ref().is_none_or(|n| *n == name.namespace));
    let here = here.map(|name| name.name.as_str());
    let mut near: Vec<String> = same.chain(near(&target.name, here)).collect();
    near.dedup();
    Err(not_found(format!("{what}/{whole}"), near))
}
