//! Changes of tables: what agents do, and what they should not leave behind.

use core::net::Ipv4Addr;

use juneau_core::layout::{
    BACKEND_SERVING, Backend, Be32, EP_LOCAL, EP_POLICY_READY, EndpointKey, Frontend, POLICY_DENY, Policy, PolicyKey,
    ROUTE_TARGET_GONE, be32,
};
use juneau_core::tables::Tables;
use juneau_core::testkit::topology::{Pod, node_addresses, vtep};

use crate::generate::{Sent, everybody};
use crate::random::Random;

/// One change of what was decided, or back to the beginning.
pub fn change(tables: &mut Tables, beginning: &Tables, random: &mut Random) {
    if random.chance(35) {
        *tables = beginning.clone();
        return;
    }
    let pod = random.pick(&everybody());
    let mut key = EndpointKey { vpc: pod.vpc(), address: be32(pod.address()) };
    if pod.is_node() {
        key.address = be32(random.pick(&node_addresses(0).map(|(address, _)| address)));
    }
    match random.below(22) {
        14.. => change_services(tables, random),
        0 => {
            if let Some(interface) = tables.interfaces.get_mut(&pod.ifindex()) {
                interface.flags ^= EP_POLICY_READY;
            }
            if let Some(endpoint) = tables.endpoints.get_mut(&key) {
                endpoint.flags ^= EP_POLICY_READY;
            }
        }
        1 => {
            // Often the one that routes lead to.
            let router = be32(Pod::router(pod.tenant).address());
            let address = if random.chance(40) { router } else { key.address };
            tables.endpoints.remove(&EndpointKey { address, ..key });
        }
        2 => drop(tables.interfaces.remove(&pod.ifindex())),
        3 => {
            let keys: Vec<_> = tables.routes.keys().copied().collect();
            if !keys.is_empty() {
                tables.routes.remove(&random.pick(&keys));
            }
        }
        4 => {
            let keys: Vec<_> = tables.routes.keys().copied().collect();
            if let Some(route) = tables.routes.get_mut(&random.pick(&keys)) {
                route.kind = ROUTE_TARGET_GONE;
            }
        }
        5 => {
            let keys: Vec<_> = tables.policies.keys().copied().collect();
            if !keys.is_empty() {
                tables.policies.remove(&random.pick(&keys));
            }
        }
        6 => {
            let peer = random.pick(&[pod.identity(), juneau_core::layout::IDENTITY_ANY]);
            let (protocol, port) = random.pick(&[(6, 80), (17, 53), (0, 0), (1, 0)]);
            let direction = random.pick(&[juneau_core::layout::EGRESS, juneau_core::layout::INGRESS]);
            let key = PolicyKey { identity: pod.identity(), policy: 1, peer, direction, protocol, port: port.into() };
            tables.policies.insert(key, Policy { action: POLICY_DENY, rule: 9 });
        }
        7 => {
            if random.chance(50) {
                tables.vteps.clear();
            } else if let Some(vtep) = tables.vteps.values_mut().next() {
                vtep.mtu = random.pick(&[1500, 1400, 800]);
            }
        }
        8 => {
            for vpc in tables.vpcs.values_mut() {
                vpc.flow_limit = random.pick(&[1000, 3, 0]);
            }
        }
        9 => {
            for vpc in tables.vpcs.values_mut() {
                vpc.embryonic_limit = random.pick(&[500, 2]);
                vpc.icmp_limit = random.pick(&[10, 1, 0]);
            }
        }
        10 => drop(tables.segments.remove(&pod.vni())),
        11 | 12 => {
            // It moves from this node to the other, or back.
            if let Some(endpoint) = tables.endpoints.get_mut(&key)
                && pod.node() == 0
            {
                let leaves = endpoint.flags & EP_LOCAL != 0;
                endpoint.flags ^= EP_LOCAL;
                endpoint.ifindex = if leaves { 0 } else { pod.ifindex() };
                endpoint.vtep = if leaves { be32(vtep(1)) } else { Be32::ZERO };
            }
        }
        _ => {
            // It moved to a node that nobody knows, or shrank its MTU.
            if let Some(endpoint) = tables.endpoints.get_mut(&key) {
                if endpoint.vtep == Be32::ZERO {
                    endpoint.mtu = 800;
                } else {
                    endpoint.vtep = be32(Ipv4Addr::new(192, 0, 2, 50));
                }
            }
        }
    }
}
/// Whoever a packet came to serves no more, and others are chosen in its stead.
pub fn backend_leaves(tables: &mut Tables, about: &Sent, random: &mut Random) {
    let (_, destination, _) = about.as_seen();
    let own = |backend: &Backend| backend.vpc == about.from.vpc() && backend.address == be32(destination);
    let (leaving, others): (Vec<_>, Vec<_>) =
        tables.backends.iter().map(|(id, backend)| (*id, *backend)).partition(|(_, backend)| own(backend));
    for (id, mut backend) in leaving {
        let others: Vec<_> = others.iter().filter(|(_, other)| other.service == backend.service).collect();
        if !others.is_empty() {
            let other = random.pick(&others).0;
            for (line, mut slots) in tables.slots.iter().map(|(line, slots)| (*line, *slots)).collect::<Vec<_>>() {
                slots.backend.iter_mut().filter(|slot| **slot == id).for_each(|slot| *slot = other);
                tables.slots.insert(line, slots);
            }
        }
        backend.flags &= !BACKEND_SERVING;
        tables.backends.insert(id, backend.tagged());
    }
}
/// A Service loses or gets backends, or goes.
fn change_services(tables: &mut Tables, random: &mut Random) {
    let ids: Vec<_> = tables.backends.keys().copied().collect();
    let keys: Vec<_> = tables.frontends.keys().copied().collect();
    if ids.is_empty() || keys.is_empty() {
        return;
    }
    // Often one of the Service that most connections lead to.
    let id = if random.chance(60) { 1 + random.below(6) as u32 } else { random.pick(&ids) };
    let key = random.pick(&keys);
    let backend = |tables: &mut Tables, change: &dyn Fn(&mut Backend)| {
        if let Some(mut backend) = tables.backends.get(&id).copied() {
            change(&mut backend);
            tables.backends.insert(id, backend.tagged());
        }
    };
    let frontend = |tables: &mut Tables, change: &dyn Fn(&mut Frontend)| {
        if let Some(mut frontend) = tables.frontends.get(&key).copied() {
            change(&mut frontend);
            tables.frontends.insert(key, frontend.tagged(&key));
        }
    };
    match random.below(10) {
        // It serves no more, but is chosen still, as between two writes; or again.
        0 => backend(tables, &|backend| backend.flags ^= BACKEND_SERVING),
        // It serves no more and is not chosen.
        1..=4 => {
            let other = random.pick(&ids);
            for (line, mut slots) in tables.slots.iter().map(|(line, slots)| (*line, *slots)).collect::<Vec<_>>() {
                slots.backend.iter_mut().filter(|slot| **slot == id).for_each(|slot| *slot = other);
                tables.slots.insert(line, slots);
            }
            backend(tables, &|backend| backend.flags &= !BACKEND_SERVING);
        }
        5 => drop(tables.backends.remove(&id)),
        // The id is another Service's.
        6 => {
            let service = 1 + random.below(6) as u32;
            backend(tables, &|backend| backend.service = service);
        }
        7 => drop(tables.frontends.remove(&key)),
        8 => frontend(tables, &|frontend| frontend.size = if frontend.size == 0 { 16 } else { 0 }),
        _ => {
            // Another line: other backends under the same address.
            let line = random.below(8) as u32;
            frontend(tables, &|frontend| (frontend.base, frontend.service) = (line * 16, line + 1));
        }
    }
}
