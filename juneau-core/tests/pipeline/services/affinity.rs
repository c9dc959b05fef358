//! Clients that stay with a backend.

use super::common::{B, CLIENT, apply, backend_of, choose_among, frontend, inner, pod, tuple};
use crate::common::{NOW, Net};
use juneau_core::layout::{BACKEND_CHOSEN, Backend, FrontendKey};
use juneau_core::packet::IP_TCP;
use juneau_core::pipeline::Limits;
use juneau_core::testkit::packets::{Layer4, syn, udp};
use juneau_core::testkit::services::STICKY;
use juneau_core::testkit::topology::{self, Pod};
use juneau_core::time::Now;
use std::collections::BTreeSet;

const TCP: FrontendKey = frontend(0, STICKY, 80, IP_TCP);
/// Seconds that clients stay.
const STAY: u32 = 60;

/// Where a new connection of a client goes at some moment.
fn goes_to(net: &mut Net, client: Pod, layer4: Layer4, now: Now) -> Pod {
    let frame = crate::common::frame(client, STICKY, layer4).build();
    let outcome = net.raw_at(client, &frame, now);
    assert!(outcome.verdict.is_delivered(), "{:?}", outcome.verdict);
    let (_, address, ..) = tuple(inner(&outcome));
    pod(client.tenant, address)
}

/// Where connections from so many ports go.
fn spread(net: &mut Net, client: Pod, ports: std::ops::Range<u16>, now: Now) -> BTreeSet<Pod> {
    ports.map(|port| goes_to(net, client, syn(port, 80), now)).collect()
}

#[test]
fn a_client_stays_for_its_time_from_its_last_connection_on() {
    let mut net = Net::new();
    let first = spread(&mut net, CLIENT, 2000..2040, NOW);
    assert_eq!(first.len(), 1);
    // Each connection counts anew: twice almost the whole time.
    let almost = NOW.later(NOW.seconds(STAY - 1));
    assert_eq!(spread(&mut net, CLIENT, 3000..3001, almost), first);
    let almost = almost.later(NOW.seconds(STAY - 1));
    assert_eq!(spread(&mut net, CLIENT, 3001..3020, almost), first);
    // Then it is anybody's again.
    let mut now = almost;
    let later: BTreeSet<Pod> = (4000..4040)
        .map(|port| {
            now = now.later(NOW.seconds(STAY) + 2);
            goes_to(&mut net, CLIENT, syn(port, 80), now)
        })
        .collect();
    assert_eq!(later.len(), 4, "all backends, one after the other");
}

#[test]
fn each_client_service_port_and_tenant_for_itself() {
    let mut net = Net::new();
    let clients = [CLIENT, B, Pod::new(0, 2, 10), Pod::new(0, 1, 30)];
    let places: BTreeSet<Pod> = clients
        .iter()
        .map(|client| {
            let all = spread(&mut net, *client, 2000..2010, NOW);
            assert_eq!(all.len(), 1);
            *all.first().unwrap()
        })
        .collect();
    assert!(places.len() > 1, "not all clients are sent to one backend");
    // The same address of another tenant is another client, whose backend is its own tenant's.
    let other = Pod::new(1, 2, 11);
    let all = spread(&mut net, other, 2000..2010, NOW);
    assert!(all.len() == 1 && all.iter().all(|pod| pod.tenant == 1));
    // Another port of the Service remembers for itself.
    let datagrams: BTreeSet<Pod> = (2000..2010).map(|port| goes_to(&mut net, CLIENT, udp(port, 53, 10), NOW)).collect();
    assert_eq!(datagrams.len(), 1);
    assert_eq!(net.0[0].state.affinities().len(), clients.len() + 2);
}

#[test]
fn a_client_leaves_a_backend_that_takes_no_new_connections() {
    let mut net = Net::new();
    let before = *spread(&mut net, CLIENT, 2000..2002, NOW).first().unwrap();
    // It serves still, but is not chosen: one that ends while others are ready.
    apply(&mut net, |tables| {
        let (id, backend) = backend_of(tables, &TCP, before);
        tables.backends.insert(id, Backend { flags: backend.flags & !BACKEND_CHOSEN, ..backend }.tagged());
        let service = backend.service;
        let own = |other: &&u32| tables.backends[*other].service == service && **other != id;
        let others: Vec<u32> = tables.backends.keys().filter(own).copied().collect();
        choose_among(tables, &TCP, &others);
    });
    let after = spread(&mut net, CLIENT, 2002..2040, NOW);
    assert!(after.len() == 1 && !after.contains(&before));
}

#[test]
fn who_cannot_be_remembered_goes_by_its_address() {
    let limits = Limits { affinities: 1, ..Limits::default() };
    let mut net = Net([topology::node_with(0, &limits), topology::node(1)]);
    spread(&mut net, CLIENT, 2000..2001, NOW);
    let all = spread(&mut net, B, 2000..2040, NOW);
    assert_eq!(all.len(), 1, "one backend all the same");
    assert_eq!(net.0[0].state.affinities().len(), 1);
    assert_eq!(spread(&mut net, CLIENT, 2001..2040, NOW).len(), 1);
    // What is over makes room.
    let later = NOW.later(NOW.seconds(STAY) + 2);
    net.0[0].expire(later, usize::MAX);
    assert!(net.0[0].state.affinities().is_empty());
}
