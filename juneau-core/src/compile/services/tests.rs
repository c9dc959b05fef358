//! What comes out of Services: records, kept numbers, and differences that are safe at every step.

use super::ServiceTables;
use crate::compile::{Compiler, NodeContext, compile};
use crate::id::{Identity, MacAddr, Vni, VpcId};
use crate::layout::{
    BACKEND_CHOSEN, BACKEND_ENDPOINT, BACKEND_SERVING, Backend, Be16, FRONTEND_ADDRESS, FRONTEND_LOCAL_ONLY,
    FrontendKey, SLOTS, be32, ipv4,
};
use crate::model::{
    Attachments, BackendState, Choice, Endpoint, EndpointKind, Model, Problem, Protocol, Service, ServicePort,
};
use crate::services::maglev;
use crate::tables::{Capacities, Change, Diff, Table, Tables};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A backend that takes new connections.
const TAKES: u8 = BACKEND_SERVING | BACKEND_CHOSEN;

fn vpc(id: u32) -> VpcId {
    VpcId::new(id).unwrap()
}

/// An endpoint of each VPC on this node.
fn model(vpcs: &[u32]) -> Model {
    let endpoint = |id: &u32| {
        let address = IpAddr::from([10, 0, 0, 10]);
        let endpoint = Endpoint {
            name: format!("v{id}/a.eth0"),
            kind: EndpointKind::Pod,
            vpc: vpc(*id),
            subnet: Vni::new(*id * 100).unwrap(),
            address,
            mac: MacAddr::new([2, 0, 0, 0, 0, 1]).unwrap(),
            node: "node-1".into(),
            identity: Identity::NO_GROUPS,
            policy_ready: true,
            pod: String::new(),
            origin: String::new(),
        };
        ((endpoint.vpc, address), endpoint)
    };
    Model { endpoints: vpcs.iter().map(endpoint).collect(), ..Model::default() }
}

fn node() -> NodeContext {
    NodeContext::new("node-1", Ipv4Addr::new(192, 168, 77, 11), 1500)
}

fn backend(n: u8, port: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 1, n), port).into()
}

fn port(number: u16, backends: &[SocketAddr]) -> ServicePort {
    ServicePort {
        name: String::new(),
        protocol: Protocol::Tcp,
        port: number,
        backends: backends.iter().map(|name| (*name, BackendState { serving: true })).collect(),
        internal: Choice { backends: backends.iter().copied().collect(), local_only: false },
    }
}

fn service(name: &str, of: u32, addresses: &[[u8; 4]], ports: Vec<ServicePort>) -> Service {
    Service {
        name: name.into(),
        vpc: vpc(of),
        addresses: addresses.iter().map(|address| IpAddr::from(*address)).collect(),
        affinity: None,
        ports,
        origin: String::new(),
    }
}

fn add(model: &mut Model, service: Service) {
    model.services.insert(service.name.clone(), Arc::new(service));
}

/// Compiles after `previous`, without a memory. Problems of the endpoints are left out.
fn after(model: &Model, previous: &Tables) -> (Tables, Vec<String>) {
    let node = NodeContext { services: previous.into(), ..node() };
    let (tables, problems) = compile(model, &node, &Attachments::new());
    (tables, texts(&problems))
}

fn texts(problems: &[Problem]) -> Vec<String> {
    let of_services = problems.iter().filter(|problem| problem.object.starts_with("Service/"));
    of_services.map(ToString::to_string).collect()
}

fn key(scope: u32, address: [u8; 4], port: u16) -> FrontendKey {
    FrontendKey::new(scope, be32(address.into()), Be16::new(port), 6)
}

/// Backends by slot, as a program finds them.
fn found(tables: &Tables, key: &FrontendKey) -> Vec<Backend> {
    let frontend = tables.frontends[key];
    (frontend.base..frontend.base + frontend.size)
        .map(|slot| {
            let line = tables.slots[&(slot / SLOTS)];
            tables.backends[&line.backend[(slot % SLOTS) as usize]]
        })
        .collect()
}

const VIP: [u8; 4] = [10, 96, 0, 1];
const OTHER: [u8; 4] = [10, 96, 0, 2];

#[test]
fn two_tenants_with_equal_services_are_two_sets_of_records() {
    let mut model = model(&[2, 3]);
    for id in [2, 3, 4] {
        let mut web = port(80, &[backend(1, 8080), backend(2, 8080)]);
        web.backends.insert(backend(3, 8080), BackendState { serving: false });
        let dns = ServicePort { protocol: Protocol::Udp, internal: Choice::default(), ..port(53, &[backend(1, 53)]) };
        add(
            &mut model,
            Service { affinity: Some(10_800), ..service(&format!("v{id}/web"), id, &[VIP], vec![web, dns]) },
        );
    }
    let (tables, problems) = after(&model, &Tables::default());
    assert_eq!(problems, [""; 0]);
    assert_eq!(tables.frontends.len(), 6, "two ports and an address in each VPC of this node");
    assert_eq!((tables.backends.len(), tables.slots.len()), (8, 8));
    for id in [2, 3] {
        let web = tables.frontends[&key(id, VIP, 80)];
        assert_eq!((web.size, web.owner, web.affinity, web.flags), (61, id, 10_800, 0));
        assert!(web.is_of(&key(id, VIP, 80)) && web.base.is_multiple_of(SLOTS) && web.service != 0);
        let of_web: Vec<_> = tables.backends.values().filter(|backend| backend.service == web.service).collect();
        let described: Vec<_> = of_web.iter().map(|b| (ipv4(b.address).octets()[3], b.port.get(), b.flags)).collect();
        assert_eq!(described, [(1, 8080, TAKES), (2, 8080, TAKES), (3, 8080, 0)]);
        assert!(of_web.iter().all(|b| b.is_whole() && b.kind == BACKEND_ENDPOINT && b.vpc == id));
        let table = maglev::table(&[backend(1, 8080), backend(2, 8080)]);
        let slots: Vec<u32> = found(&tables, &key(id, VIP, 80)).iter().map(|b| b.address.get() & 0xff).collect();
        assert!(slots.iter().copied().eq(table.iter().map(|index| index + 1)));

        let dns_key = FrontendKey::new(id, be32(VIP.into()), Be16::new(53), 17);
        assert_eq!(
            (tables.frontends[&dns_key].size, tables.frontends[&dns_key].base),
            (0, 0),
            "nobody takes connections"
        );
        let address = FrontendKey::of_address(id, be32(VIP.into()));
        let record = tables.frontends[&address];
        assert_eq!((record.flags, record.service, record.owner), (FRONTEND_ADDRESS, 0, id));
        assert!(record.is_of(&address));
    }
    assert_eq!(after(&model, &tables).0, tables, "whoever starts again finds nothing to change");
}

#[test]
fn an_endpoint_that_comes_keeps_numbers_and_takes_new_slots() {
    let mut model = model(&[2]);
    add(&mut model, service("v2/a", 2, &[VIP], vec![port(80, &[backend(1, 80), backend(2, 80)]), port(81, &[])]));
    add(&mut model, service("v2/b", 2, &[OTHER], vec![port(80, &[backend(1, 80)])]));
    let (before, _) = after(&model, &Tables::default());
    let more = [backend(1, 80), backend(2, 80), backend(3, 80)];
    add(&mut model, service("v2/a", 2, &[VIP], vec![port(80, &more), port(81, &[])]));
    let (now, _) = after(&model, &before);
    let (old, new) = (before.frontends[&key(2, VIP, 80)], now.frontends[&key(2, VIP, 80)]);
    assert_eq!(old.service, new.service);
    assert_ne!(old.base, new.base);
    for untouched in [key(2, VIP, 81), key(2, OTHER, 80)] {
        assert_eq!(before.frontends[&untouched], now.frontends[&untouched]);
    }
    let diff = Diff::between(&before, &now);
    let about = |table: Table| diff.changes.iter().filter(|change| change.table() == table).count();
    assert_eq!((about(Table::Backends), about(Table::Frontends), about(Table::Slots)), (1, 1, 8));

    // Without anybody it keeps its number, too.
    add(&mut model, service("v2/a", 2, &[VIP], vec![port(80, &[]), port(81, &[])]));
    let (none, _) = after(&model, &now);
    let empty = none.frontends[&key(2, VIP, 80)];
    assert_eq!((empty.service, empty.size, empty.base), (old.service, 0, 0));
    assert_eq!((none.backends.len(), none.slots.len()), (1, 4));
}

#[test]
fn one_that_stops_serving_keeps_its_record_while_it_exists() {
    let mut model = model(&[2]);
    let both = [backend(1, 80), backend(2, 80)];
    add(&mut model, service("v2/a", 2, &[VIP], vec![port(80, &both)]));
    let (before, _) = after(&model, &Tables::default());
    let mut ending = port(80, &both[..1]);
    ending.backends.insert(both[1], BackendState { serving: false });
    add(&mut model, service("v2/a", 2, &[VIP], vec![ending]));
    let (now, _) = after(&model, &before);
    assert_eq!(before.backends.keys().collect::<Vec<_>>(), now.backends.keys().collect::<Vec<_>>());
    assert_eq!(now.backends.values().map(|backend| backend.flags).collect::<Vec<_>>(), [TAKES, 0]);
    assert!(found(&now, &key(2, VIP, 80)).iter().all(|backend| ipv4(backend.address).octets()[3] == 1));
}

#[test]
fn local_only_is_a_flag_of_the_front_end() {
    let mut model = model(&[2]);
    let mut local = port(80, &[backend(1, 80)]);
    local.internal = Choice { backends: BTreeSet::new(), local_only: true };
    add(&mut model, service("v2/a", 2, &[VIP], vec![local]));
    let (tables, _) = after(&model, &Tables::default());
    let frontend = tables.frontends[&key(2, VIP, 80)];
    assert_eq!((frontend.size, frontend.flags), (0, FRONTEND_LOCAL_ONLY));
}

#[test]
fn an_address_that_goes_to_another_service_does_not_take_its_number_along() {
    let mut model = model(&[2]);
    let first = [backend(1, 80), backend(2, 80)];
    let second = [backend(3, 80), backend(4, 80)];
    add(&mut model, service("v2/b", 2, &[OTHER], vec![port(80, &first)]));
    add(&mut model, service("v2/c", 2, &[VIP], vec![port(80, &second)]));
    let (before, _) = after(&model, &Tables::default());
    // Both are met at both addresses; the first by name has what both want.
    add(&mut model, service("v2/b", 2, &[OTHER, VIP], vec![port(80, &first)]));
    let (now, problems) = after(&model, &before);
    assert_eq!(
        problems,
        [
            "Service/v2/c: 10.96.0.1 port 80/TCP is Service/v2/b's already; let one of the two have another address or port"
        ]
    );
    let number = |tables: &Tables, address| tables.frontends[&key(2, address, 80)].service;
    assert_eq!(number(&now, VIP), number(&before, OTHER));
    assert_eq!(number(&now, OTHER), number(&before, OTHER));
    // And back.
    add(&mut model, service("v2/b", 2, &[OTHER], vec![port(80, &first)]));
    let (again, problems) = after(&model, &now);
    assert_eq!(problems, [""; 0]);
    assert_eq!(number(&again, OTHER), number(&before, OTHER));
    assert_eq!(found(&again, &key(2, VIP, 80)).len(), 61);
}

#[test]
fn of_two_that_share_out_a_services_addresses_one_keeps_its_number() {
    let mut model = model(&[2]);
    let backends = [backend(1, 80), backend(2, 80)];
    add(&mut model, service("v2/b", 2, &[OTHER, VIP], vec![port(80, &backends)]));
    let (before, _) = after(&model, &Tables::default());
    add(&mut model, service("v2/a", 2, &[OTHER], vec![port(80, &backends)]));
    add(&mut model, service("v2/b", 2, &[VIP], vec![port(80, &backends)]));
    let (now, problems) = after(&model, &before);
    assert_eq!(problems, [""; 0]);
    check_owners(&now);
    let number = |tables: &Tables, address| tables.frontends[&key(2, address, 80)].service;
    assert_eq!(number(&now, OTHER), number(&before, OTHER));
    assert_ne!(number(&now, VIP), number(&now, OTHER));
    assert_eq!(now.backends.len(), 4, "an id is one Service port's");
}

#[test]
fn what_is_broken_costs_that_service_and_is_named() {
    let mut model = model(&[2]);
    let good = service("v2/good", 2, &[VIP], vec![port(80, &[backend(1, 80)])]);
    add(&mut model, good);
    let (whole, _) = after(&model, &Tables::default());
    let v6: SocketAddr = "[fd00::1]:80".parse().unwrap();
    let local = SocketAddr::from(([127, 0, 0, 1], 80));
    let sctp = ServicePort { protocol: Protocol::Sctp, ..port(80, &[backend(1, 81), backend(2, 80)]) };
    let mut odd = service("v2/odd", 2, &[OTHER, [127, 0, 0, 9]], vec![port(80, &[v6, local, backend(2, 80)]), sctp]);
    odd.ports.push(port(80, &[]));
    odd.addresses.insert("fd00::2".parse().unwrap());
    add(&mut model, odd);
    add(&mut model, service("v2/twin", 2, &[VIP], vec![port(80, &[backend(9, 80)]), port(81, &[backend(9, 80)])]));
    let (tables, problems) = after(&model, &whole);
    assert_eq!(
        problems,
        [
            "Service/v2/odd: 10.96.0.2 port 80/TCP is Service/v2/odd's already; \
             let one of the two have another address or port",
            "Service/v2/odd: fd00::2: IPv6 is not programmed yet; use IPv4",
            "Service/v2/odd: no Pod can reach 127.0.0.9; give it another address",
            "Service/v2/odd: port 80/SCTP cannot lead to 10.0.1.1:81; \
             give endpoints IPv4 addresses that Pods have, and those of SCTP the Service's own port",
            "Service/v2/odd: port 80/TCP cannot lead to 127.0.0.1:80 and 1 more; \
             give endpoints IPv4 addresses that Pods have, and those of SCTP the Service's own port",
            "Service/v2/twin: 10.96.0.1 port 80/TCP is Service/v2/good's already; \
             let one of the two have another address or port",
        ]
    );
    assert_eq!(tables.frontends[&key(2, VIP, 80)], whole.frontends[&key(2, VIP, 80)], "the other notices nothing");
    assert_eq!(found(&tables, &key(2, VIP, 81)).len(), 61, "nor does another port");
    assert_eq!(found(&tables, &key(2, OTHER, 80)).len(), 61);
}

#[test]
fn what_does_not_fit_is_named_and_served_once_there_is_room() {
    let mut model = model(&[2]);
    for (name, address) in [("v2/a", VIP), ("v2/b", OTHER), ("v2/c", [10, 96, 0, 3])] {
        add(&mut model, service(name, 2, &[address], vec![port(80, &[backend(1, 80), backend(2, 80)])]));
    }
    let mut compiler = Compiler::new();
    let capacities = Capacities::UNLIMITED.with(Table::Slots, 8).with(Table::Backends, 6);
    let mut node = NodeContext { capacities, ..node() };
    let (tables, problems) = compiler.compile(&model, &node, &Attachments::new());
    assert_eq!(
        texts(&problems),
        [
            "Service/v2/c: port 80/TCP: no number is left for 1 of its endpoints; \
             have fewer endpoints, or raise the capacity of jn_backends",
            "Service/v2/c: port 80/TCP: no slots are left; it is served as one without endpoints; \
             have fewer Services or endpoints, or raise the capacity of jn_slots",
        ]
    );
    assert_eq!((tables.slots.len(), tables.frontends[&key(2, [10, 96, 0, 3], 80)].size), (8, 0));
    model.services.remove("v2/a");
    node.services = (&tables).into();
    let (tables, problems) = compiler.compile(&model, &node, &Attachments::new());
    assert_eq!(texts(&problems).len(), 2, "what was in use is given to others a step later");
    node.services = (&tables).into();
    let (tables, problems) = compiler.compile(&model, &node, &Attachments::new());
    assert_eq!(texts(&problems), [""; 0]);
    assert_eq!(found(&tables, &key(2, [10, 96, 0, 3], 80)).len(), 61);
}

/// What a reader relies on: each front end leads to backends of its own Service port.
fn check_reachable(tables: &Tables) {
    for (key, frontend) in &tables.frontends {
        assert!(frontend.is_of(key));
        for slot in frontend.base..frontend.base + frontend.size {
            let line = tables.slots.get(&(slot / SLOTS));
            let id = line.map_or(0, |line| line.backend[(slot % SLOTS) as usize]);
            let backend = tables.backends.get(&id).filter(|backend| backend.is_whole());
            assert_eq!(backend.map(|backend| backend.service), Some(frontend.service), "{key:?}, slot {slot}, id {id}");
        }
    }
}

/// A number is one Service port's: all its front ends say the same, and no other's slots.
fn check_owners(tables: &Tables) {
    let mut ports = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for (key, frontend) in tables.frontends.iter().filter(|(_, frontend)| frontend.service != 0) {
        let port = (key.scope, key.port, key.protocol, frontend.base, frontend.size);
        let known = ports.insert(frontend.service, port);
        assert!(known.is_none_or(|known| known == port), "number {} is of two", frontend.service);
        if known.is_none() {
            let range = frontend.base / SLOTS..(frontend.base + frontend.size).div_ceil(SLOTS);
            range.for_each(|line| assert!(lines.insert(line), "line {line} is of two"));
        }
    }
    assert!(lines.iter().eq(tables.slots.keys()));
    let mut names = BTreeSet::new();
    for backend in tables.backends.values() {
        assert!(ports.contains_key(&backend.service));
        assert!(names.insert((backend.service, backend.address, backend.port)));
    }
}

/// Applies the first changes of a difference, and looks at the tables after each.
fn apply(tables: &mut Tables, diff: &Diff, count: usize) {
    for change in diff.changes.iter().take(count) {
        if let Change::Slots(line, _) = change {
            for frontend in tables.frontends.values().filter(|frontend| frontend.size > 0) {
                let range = frontend.base / SLOTS..(frontend.base + frontend.size).div_ceil(SLOTS);
                assert!(!range.contains(line), "line {line} is in force");
            }
        }
        tables.apply(change);
        check_reachable(tables);
    }
}

/// A Service of a small world, in which addresses, ports and endpoints often meet.
fn any_service() -> impl Strategy<Value = Service> {
    let state = prop_oneof![3 => Just(Some(true)), 1 => Just(Some(false)), 1 => Just(None)];
    let backends = prop::collection::btree_map((1u8..9, 80u16..82), (state, any::<bool>()), 0..9);
    let one_port = (80u16..83, backends, any::<bool>()).prop_map(|(number, backends, local_only)| {
        let mut port = port(number, &[]);
        port.internal.local_only = local_only;
        for ((n, of), (state, chosen)) in backends {
            let name = backend(n, of);
            let Some(serving) = state else { continue };
            port.backends.insert(name, BackendState { serving });
            if chosen {
                port.internal.backends.insert(name);
            }
        }
        port
    });
    let addresses = prop::collection::btree_set(1u8..6, 0..3);
    let ports = prop::collection::vec(one_port, 0..3);
    (2u32..4, addresses, ports, prop::option::of(1u32..3)).prop_map(|(of, addresses, ports, affinity)| {
        let addresses: Vec<[u8; 4]> = addresses.into_iter().map(|n| [10, 96, 0, n]).collect();
        Service { affinity, ..service("", of, &addresses, ports) }
    })
}

/// One change of the model, and how much of what follows from it is written.
#[derive(Debug, Clone)]
struct Move {
    name: u8,
    service: Option<Service>,
    without_vpc: Option<u32>,
    written: Option<prop::sample::Index>,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = (
        0u8..6,
        prop::option::weighted(0.8, any_service()),
        prop::option::weighted(0.1, 2u32..4),
        prop::option::weighted(0.1, any::<prop::sample::Index>()),
    )
        .prop_map(|(name, service, without_vpc, written)| Move { name, service, without_vpc, written });
    prop::collection::vec(one, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever happens to Services, and wherever a writer stops: at each step a packet finds only backends of the
    /// Service port that it met, a memory changes no result, and who is not meant keeps everything.
    #[test]
    fn changes_are_safe_at_every_step(moves in moves(), lines in prop::option::weighted(0.3, 4usize..40)) {
        let capacities = lines.map_or(Capacities::UNLIMITED, |lines| Capacities::UNLIMITED.with(Table::Slots, lines));
        let mut services = BTreeMap::new();
        let mut tables = Tables::default();
        let mut compiler = Compiler::new();
        for Move { name, service, without_vpc, written } in moves {
            let name = format!("ns/{name}");
            match service {
                Some(service) => services.insert(name.clone(), Arc::new(Service { name, ..service })),
                None => services.remove(&name),
            };
            let vpcs: Vec<u32> = [2, 3].into_iter().filter(|vpc| without_vpc != Some(*vpc)).collect();
            let model = Model { services: services.clone(), ..model(&vpcs) };
            let node = NodeContext { services: (&tables).into(), capacities, ..node() };
            let (wanted, problems) = compiler.compile(&model, &node, &Attachments::new());
            let (same, same_problems) = compile(&model, &node, &Attachments::new());
            prop_assert_eq!(&wanted, &same);
            prop_assert_eq!(problems, same_problems);
            check_reachable(&wanted);
            check_owners(&wanted);
            let diff = Diff::between(&tables, &wanted);
            for change in &diff.changes {
                // A number or a line that was in use has no other owner at once.
                if let Change::Backend(id, Some(new)) = change && let Some(old) = tables.backends.get(id) {
                    prop_assert_eq!((old.service, old.address, old.port), (new.service, new.address, new.port));
                }
                if let Change::Slots(line, Some(_)) = change {
                    prop_assert!(!tables.slots.contains_key(line));
                }
            }
            let count = written.map_or(diff.len(), |index| index.index(diff.len() + 1));
            apply(&mut tables, &diff, count);
            if count == diff.len() {
                // What could be had is had, and nothing moves any more but for those that lack something.
                let node = NodeContext { services: (&tables).into(), capacities, ..self::node() };
                let again = compile(&model, &node, &Attachments::new()).0;
                prop_assert!(capacities != Capacities::UNLIMITED || Diff::between(&tables, &again).is_empty());
            }
        }
    }

    /// Tables that anything may have written: nothing of it makes a wrong table, and one step mends all.
    #[test]
    fn corrupted_tables_are_mended(
        service in any_service(),
        frontends in prop::collection::vec((1u8..6, 80u16..83, any::<u32>(), any::<u32>(), 0u32..9), 0..9),
        backends in prop::collection::vec((any::<u32>(), 0u32..9, 1u8..9), 0..9),
    ) {
        let mut model = model(&[2, 3]);
        add(&mut model, Service { name: "ns/a".into(), ..service });
        let mut previous = ServiceTables::default();
        for (n, port, base, size, number) in frontends {
            let key = key(2, [10, 96, 0, n], port);
            let record = crate::layout::Frontend { base, size, service: number, ..Default::default() };
            previous.frontends.insert(key, record.tagged(&key));
        }
        for (id, service, n) in backends {
            let address = be32(Ipv4Addr::new(10, 0, 1, n));
            previous.backends.insert(id, Backend { service, address, port: Be16::new(80), ..Backend::default() });
        }
        let node = NodeContext { services: previous, ..node() };
        let (wanted, _) = compile(&model, &node, &Attachments::new());
        check_reachable(&wanted);
        check_owners(&wanted);
    }
}

/// `count` Services with three endpoints each.
fn many(count: u32) -> Model {
    let mut model = model(&[2]);
    for n in 0..count {
        let address = Ipv4Addr::from_bits(0x0a60_0000 + n);
        let backends: Vec<SocketAddr> =
            (0..3).map(|k| (Ipv4Addr::from_bits(0x0a80_0000 + n * 3 + k), 8080).into()).collect();
        add(
            &mut model,
            service(&format!("team-{}/service-{n}", n % 100), 2, &[address.octets()], vec![port(80, &backends)]),
        );
    }
    model
}

#[test]
fn the_change_of_one_among_twenty_thousand_is_cheap() {
    let mut model = many(20_000);
    let mut compiler = Compiler::new();
    let start = Instant::now();
    let (mut tables, problems) = compiler.compile(&model, &node(), &Attachments::new());
    let first = start.elapsed();
    assert_eq!(texts(&problems), [""; 0]);
    assert_eq!((tables.frontends.len(), tables.backends.len(), tables.slots.len()), (40_000, 60_000, 80_000));
    let fastest = (0..8u8)
        .map(|round| {
            let name = format!("team-{round}/service-{}", 4_000 + u32::from(round));
            let mut service = Service::clone(&model.services[&name]);
            service.ports[0] = port(80, &[backend(round, 80), backend(round + 1, 80)]);
            let start = Instant::now();
            add(&mut model, service);
            let node = NodeContext { services: (&tables).into(), ..node() };
            let (wanted, _) = compiler.compile(&model, &node, &Attachments::new());
            let diff = Diff::between(&tables, &wanted);
            let took = start.elapsed();
            assert_eq!(diff.len(), 5 + 8 + 1);
            diff.changes.iter().for_each(|change| {
                tables.apply(change);
            });
            took
        })
        .min()
        .unwrap();
    // The goal is 5 ms in an optimised build; these bounds catch a wrong complexity, not a slow machine.
    let (whole, one) = if cfg!(debug_assertions) { (20_000, 100) } else { (1_000, 10) };
    assert!(first <= Duration::from_millis(whole) && fastest <= Duration::from_millis(one), "{first:?}, {fastest:?}");
}
