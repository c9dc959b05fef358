//! The content of every table as a value.

use super::SharedMap;
use crate::layout::{
    Backend, Be32, Endpoint, EndpointKey, Frontend, FrontendKey, Interface, Mac, MacKey, Policy, PolicyKey, Route,
    RouteKey, SLOTS, Segment, Slots, Vpc, Vtep,
};
use core::fmt;
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// One of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Table {
    /// Limits of VPCs, by index.
    Vpcs,
    /// Rules of policy.
    Policies,
    /// Other nodes, by address.
    Vteps,
    /// Subnets with an endpoint here, by VNI.
    Segments,
    /// Endpoints everywhere, by VPC and address.
    Endpoints,
    /// Endpoints here, by VNI and MAC address.
    Macs,
    /// Where Services lead, by id.
    Backends,
    /// Ids of backends, by line of [`crate::layout::SLOTS`] slots.
    Slots,
    /// Where Services are met, by scope, address and port.
    Frontends,
    /// Routes, by table and prefix.
    Routes,
    /// Interfaces here, by index.
    Interfaces,
}

impl Table {
    /// Every table, leaves before what points at them: the order in which elements are added. They are removed in the
    /// opposite one.
    pub const ALL: [Self; 11] = [
        Self::Vpcs,
        Self::Policies,
        Self::Vteps,
        Self::Segments,
        Self::Endpoints,
        Self::Macs,
        Self::Backends,
        Self::Slots,
        Self::Frontends,
        Self::Routes,
        Self::Interfaces,
    ];

    /// The map's name. Interfaces whose index is at least [`crate::layout::INTERFACES`] lie in `jn_interfaces_high`.
    #[must_use]
    pub const fn map_name(self) -> &'static str {
        match self {
            Self::Vpcs => "jn_vpcs",
            Self::Policies => "jn_policies",
            Self::Vteps => "jn_vteps",
            Self::Segments => "jn_segments",
            Self::Endpoints => "jn_endpoints",
            Self::Macs => "jn_macs",
            Self::Backends => "jn_backends",
            Self::Slots => "jn_slots",
            Self::Frontends => "jn_frontends",
            Self::Routes => "jn_routes",
            Self::Interfaces => "jn_interfaces",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.map_name())
    }
}

/// The exact content that every table should have on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// By ifindex.
    pub interfaces: BTreeMap<u32, Interface>,
    /// By VPC and address.
    pub endpoints: BTreeMap<EndpointKey, Endpoint>,
    /// By VNI and MAC address.
    pub macs: BTreeMap<MacKey, Mac>,
    /// By id.
    pub backends: SharedMap<u32, Backend>,
    /// By line: the slots from {line × [`SLOTS`]} on.
    pub slots: SharedMap<u32, Slots>,
    /// By scope, address, port and protocol.
    pub frontends: SharedMap<FrontendKey, Frontend>,
    /// By VNI.
    pub segments: BTreeMap<u32, Segment>,
    /// By table and prefix.
    pub routes: BTreeMap<RouteKey, Route>,
    /// By address.
    pub vteps: BTreeMap<Be32, Vtep>,
    /// By identity, peer and port.
    pub policies: BTreeMap<PolicyKey, Policy>,
    /// By VPC index.
    pub vpcs: BTreeMap<u32, Vpc>,
}

impl Tables {
    /// Elements of one table.
    #[must_use]
    pub fn len(&self, table: Table) -> usize {
        match table {
            Table::Vpcs => self.vpcs.len(),
            Table::Policies => self.policies.len(),
            Table::Vteps => self.vteps.len(),
            Table::Segments => self.segments.len(),
            Table::Endpoints => self.endpoints.len(),
            Table::Macs => self.macs.len(),
            Table::Backends => self.backends.len(),
            Table::Slots => self.slots.len(),
            Table::Frontends => self.frontends.len(),
            Table::Routes => self.routes.len(),
            Table::Interfaces => self.interfaces.len(),
        }
    }

    /// Whether no table has an element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        Table::ALL.iter().all(|table| self.len(*table) == 0)
    }

    /// Writes or removes one element; whether it existed before.
    pub fn apply(&mut self, change: &Change) -> bool {
        fn set<K: Ord + Copy, V: Copy>(map: &mut BTreeMap<K, V>, key: &K, value: &Option<V>) -> bool {
            match value {
                Some(value) => map.insert(*key, *value).is_some(),
                None => map.remove(key).is_some(),
            }
        }
        fn set_shared<K: Ord + Copy, V: Copy>(map: &mut SharedMap<K, V>, key: &K, value: &Option<V>) -> bool {
            match value {
                Some(value) => map.insert(*key, *value).is_some(),
                None => map.remove(key).is_some(),
            }
        }
        match change {
            Change::Vpc(key, value) => set(&mut self.vpcs, key, value),
            Change::Policy(key, value) => set(&mut self.policies, key, value),
            Change::Vtep(key, value) => set(&mut self.vteps, key, value),
            Change::Segment(key, value) => set(&mut self.segments, key, value),
            Change::Endpoint(key, value) => set(&mut self.endpoints, key, value),
            Change::Mac(key, value) => set(&mut self.macs, key, value),
            Change::Backend(key, value) => set_shared(&mut self.backends, key, value),
            Change::Slots(key, value) => set_shared(&mut self.slots, key, value),
            Change::Frontend(key, value) => set_shared(&mut self.frontends, key, value),
            Change::Route(key, value) => set(&mut self.routes, key, value),
            Change::Interface(key, value) => set(&mut self.interfaces, key, value),
        }
    }
}

/// One element of one table: its key and its new value, or `None` to remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A VPC's limits.
    Vpc(u32, Option<Vpc>),
    /// A rule of policy.
    Policy(PolicyKey, Option<Policy>),
    /// Another node.
    Vtep(Be32, Option<Vtep>),
    /// A Subnet with an endpoint here.
    Segment(u32, Option<Segment>),
    /// An endpoint anywhere.
    Endpoint(EndpointKey, Option<Endpoint>),
    /// An endpoint here, by MAC address.
    Mac(MacKey, Option<Mac>),
    /// Where a Service leads.
    Backend(u32, Option<Backend>),
    /// A line of slots.
    Slots(u32, Option<Slots>),
    /// Where a Service is met.
    Frontend(FrontendKey, Option<Frontend>),
    /// A route.
    Route(RouteKey, Option<Route>),
    /// An interface here.
    Interface(u32, Option<Interface>),
}

impl Change {
    /// The table.
    #[must_use]
    pub const fn table(&self) -> Table {
        match self {
            Self::Vpc(..) => Table::Vpcs,
            Self::Policy(..) => Table::Policies,
            Self::Vtep(..) => Table::Vteps,
            Self::Segment(..) => Table::Segments,
            Self::Endpoint(..) => Table::Endpoints,
            Self::Mac(..) => Table::Macs,
            Self::Backend(..) => Table::Backends,
            Self::Slots(..) => Table::Slots,
            Self::Frontend(..) => Table::Frontends,
            Self::Route(..) => Table::Routes,
            Self::Interface(..) => Table::Interfaces,
        }
    }

    /// The key's bytes, as the map has them.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Vpc(key, _)
            | Self::Segment(key, _)
            | Self::Interface(key, _)
            | Self::Backend(key, _)
            | Self::Slots(key, _) => key.as_bytes(),
            Self::Frontend(key, _) => key.as_bytes(),
            Self::Policy(key, _) => key.as_bytes(),
            Self::Vtep(key, _) => key.as_bytes(),
            Self::Endpoint(key, _) => key.as_bytes(),
            Self::Mac(key, _) => key.as_bytes(),
            Self::Route(key, _) => key.as_bytes(),
        }
    }

    /// The value's bytes, as the map has them; `None` removes the element.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Vpc(_, value) => value.as_ref().map(IntoBytes::as_bytes),
            Self::Policy(_, value) => value.as_ref().map(IntoBytes::as_bytes),
            Self::Vtep(_, value) => value.as_ref().map(IntoBytes::as_bytes),
            Self::Segment(_, value) => value.as_ref().map(IntoBytes::as_bytes),
            Self::Endpoint(_, value) => value.as_ref().map(IntoBytes::as_bytes),
            Self::Mac(_, value) => value.as_ref().map(IntoBytes::as_bytes),
            Self::Backend(_, value) => value.as_ref().map(IntoBytes::as_bytes),
            Self::Slots(_, value) => value.as_ref().map(IntoBytes::as_bytes),
            Self::Frontend(_, value) => value.as_ref().map(IntoBytes::as_bytes),
            Self::Route(_, value) => value.as_ref().map(IntoBytes::as_bytes),
            Self::Interface(_, value) => value.as_ref().map(IntoBytes::as_bytes),
        }
    }

    /// Whether the element is removed.
    #[must_use]
    pub fn is_removal(&self) -> bool {
        self.value().is_none()
    }

    /// The key for people.
    #[must_use]
    pub fn key_text(&self) -> String {
        use crate::layout::ipv4;
        match self {
            Self::Vpc(index, _) => format!("{index}"),
            Self::Segment(vni, _) => format!("VNI {vni}"),
            Self::Interface(ifindex, _) => format!("ifindex {ifindex}"),
            Self::Vtep(address, _) => ipv4(*address).to_string(),
            Self::Backend(id, _) => format!("id {id}"),
            Self::Slots(line, _) => format!("from {}", u64::from(*line) * u64::from(SLOTS)),
            Self::Frontend(key, _) => {
                format!("{}:{} protocol {} in VPC {}", ipv4(key.address), key.port, key.protocol, key.scope)
            }
            Self::Endpoint(key, _) => format!("{} in VPC {}", ipv4(key.address), key.vpc),
            Self::Mac(key, _) => {
                let m = key.mac;
                format!(
                    "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x} in VNI {}",
                    m[0], m[1], m[2], m[3], m[4], m[5], key.vni
                )
            }
            Self::Route(key, _) => {
                let length = i64::from(key.prefix_length) - i64::from(crate::layout::RouteKey::TABLE_BITS);
                format!("{}/{length} in table {}", ipv4(key.address), key.table)
            }
            Self::Policy(key, _) => format!(
                "identity {} generation {} {} peer {} protocol {} port {}",
                key.identity,
                key.policy,
                if key.direction == crate::layout::EGRESS { "egress" } else { "ingress" },
                key.peer,
                key.protocol,
                key.port
            ),
        }
    }
}
