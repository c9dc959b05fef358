//! What everything else is judged by: nodes, VPCs, route tables and Subnets. There are few of them, so a change of any
//! of them makes all of it anew.

use super::Wrong;
use super::networks::Usable;
use crate::kinds;
use crate::names;
use crate::view::{Item, Text, View};
use core::net::IpAddr;
use juneau_core::id::{TableId, Vni, VpcId};
use juneau_core::model::{Model, Problem};
use std::collections::{BTreeMap, BTreeSet};

/// What the steps share.
#[derive(Debug)]
pub(super) struct Networks<'v> {
    pub(super) view: &'v View,
    pub(super) model: Model,
    pub(super) problems: Vec<Problem>,
    /// Usable VPCs by name.
    pub(super) vpcs: BTreeMap<Text, VpcId>,
    /// Usable route tables by name.
    pub(super) tables: BTreeMap<Text, (TableId, VpcId)>,
    /// Usable Subnets by name.
    pub(super) subnets: BTreeMap<Text, Usable>,
    /// Usable Subnets by VPC.
    pub(super) subnets_of: BTreeMap<VpcId, Vec<Vni>>,
    pub(super) closed: BTreeMap<VpcId, kinds::Vpc>,
    pub(super) require_binding: bool,
}

/// What came of them.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// Usable VPCs by name.
    pub(super) vpcs: BTreeMap<Text, VpcId>,
    /// Usable route tables by name.
    pub(super) tables: BTreeMap<Text, (TableId, VpcId)>,
    /// Usable Subnets by name.
    pub(super) subnets: BTreeMap<Text, Usable>,
    /// VPCs that not every Namespace may enter: their names and what they say about it.
    pub(super) closed: BTreeMap<VpcId, kinds::Vpc>,
    pub(super) require_binding: bool,
    pub(super) problems: Vec<Problem>,
    /// The VPC that nodes are in.
    pub(super) nodes_vpc: Option<VpcId>,
    /// InternalIPs of usable nodes.
    pub(super) node_addresses: BTreeSet<IpAddr>,
}

impl Networks<'_> {
    /// A model with everything but endpoints and routes, and what belongs to it.
    pub(super) fn normalise(view: &View, node: &str, require_binding: bool) -> (Model, Context) {
        let mut networks = Networks {
            view,
            model: Model::default(),
            problems: Vec::new(),
            vpcs: BTreeMap::new(),
            tables: BTreeMap::new(),
            subnets: BTreeMap::new(),
            subnets_of: BTreeMap::new(),
            closed: BTreeMap::new(),
            require_binding,
        };
        networks.nodes(node);
        networks.vpcs();
        networks.tables();
        networks.subnets();
        let Networks { model, problems, vpcs, tables, subnets, closed, .. } = networks;
        let nodes_vpc = vpcs.get(names::DEFAULT).copied();
        let node_addresses = model.nodes.values().map(|node| node.internal_ip).collect();
        (model, Context { vpcs, tables, subnets, closed, require_binding, problems, nodes_vpc, node_addresses })
    }

    pub(super) fn problem<T>(&mut self, object: String, item: &Item<T>, wrong: Wrong) {
        self.problems.push(super::problem(object, item, wrong));
    }
}
