//! Which probes a check sends, and what each should come to. Pure.

use crate::cluster::{Cluster, Pod, Target};
use crate::responder::Protocol;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// What a probe should come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    /// This Pod answers, and no other Pod sees the probe.
    Answer(String),
    /// Nobody answers, and no Pod sees the probe.
    Silence,
}

/// One probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Its number within the check.
    pub index: u32,
    /// The Pod that sends it.
    pub from: String,
    /// The address that it is sent to.
    pub to: Ipv4Addr,
    /// With what.
    pub protocol: Protocol,
    /// What it should come to.
    pub expected: Expected,
}

/// A check's probes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order of the table: by VPC, source, destination, protocol.
    pub probes: Vec<Probe>,
}

/// Every Pod probes every address that any Pod of any tenant has. Where its own VPC has that address, exactly its own
/// VPC's Pod should answer, although other tenants may have a Pod of the same address; where it has not, or no route
/// leads there, nobody should.
#[must_use]
pub fn plan(cluster: &Cluster) -> Plan {
    let addresses: BTreeSet<Ipv4Addr> = cluster.pods.values().filter_map(|pod| pod.address).collect();
    let mut sources: Vec<(&String, &Pod)> =
        cluster.pods.iter().filter(|(_, pod)| pod.vpc.is_some() && pod.address.is_some()).collect();
    sources.sort_by_key(|(name, pod)| (&pod.vpc, pod.address, *name));
    let mut probes = Vec::new();
    for (from, source) in sources {
        for to in addresses.iter().filter(|to| source.address != Some(**to)) {
            let target = cluster.pods.iter().find(|(_, pod)| pod.vpc == source.vpc && pod.address == Some(*to));
            let expected = match (target, source.route(*to)) {
                // What a Pod as next hop does with packets is its own affair.
                (_, Some(Target::Router)) => continue,
                (Some((name, _)), Some(Target::Connected)) => Expected::Answer(name.clone()),
                (None, _) | (_, None) => Expected::Silence,
            };
            for protocol in Protocol::ALL {
                let index = u32::try_from(probes.len()).unwrap_or(u32::MAX);
                probes.push(Probe { index, from: from.clone(), to: *to, protocol, expected: expected.clone() });
            }
        }
    }
    Plan { probes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::two_tenants;

    fn expected(plan: &Plan, from: &str, to: &str) -> Vec<Expected> {
        let to: Ipv4Addr = to.parse().unwrap();
        plan.probes.iter().filter(|probe| probe.from == from && probe.to == to).map(|p| p.expected.clone()).collect()
    }

    #[test]
    fn equal_addresses_answer_inside_their_own_vpc() {
        let plan = plan(&two_tenants());
        assert_eq!(expected(&plan, "red/a", "10.0.2.20"), vec![Expected::Answer("red/b".into()); 3]);
        assert_eq!(expected(&plan, "blue/a", "10.0.2.20"), vec![Expected::Answer("blue/b".into()); 3]);
    }

    #[test]
    fn an_address_of_another_tenant_alone_is_silent_and_has_a_positive_control() {
        let plan = plan(&two_tenants());
        assert_eq!(expected(&plan, "red/a", "10.0.1.99"), vec![Expected::Silence; 3]);
        assert_eq!(expected(&plan, "blue/a", "10.0.1.99"), vec![Expected::Answer("blue/only".into()); 3]);
    }

    #[test]
    fn nobody_probes_itself_and_numbers_are_unique() {
        let plan = plan(&two_tenants());
        assert!(expected(&plan, "red/a", "10.0.1.10").is_empty());
        let numbers: BTreeSet<u32> = plan.probes.iter().map(|probe| probe.index).collect();
        assert_eq!(numbers.len(), plan.probes.len());
    }

    #[test]
    fn without_a_route_there_is_silence() {
        let mut cluster = two_tenants();
        cluster.pods.get_mut("red/a").unwrap().routes.retain(|(route, _)| route.addr().octets()[2] == 1);
        let plan = plan(&cluster);
        assert_eq!(expected(&plan, "red/a", "10.0.2.20"), vec![Expected::Silence; 3]);
    }
}
