//! What arrives from other nodes.

use crate::common::{Net, assert_peer, frame};
use juneau_core::testkit::packets::{assert_checksums, udp, vxlan};
use juneau_core::testkit::topology::{Pod, vtep};
use juneau_core::verdict::Reason;

const A: Pod = Pod::new(0, 1, 10);
/// On the other node.
const C: Pod = Pod::new(0, 1, 20);

/// What C sends to A, with these ECN bits inside and outside.
fn arriving(inner: u8, outer: u8) -> Vec<u8> {
    let mut sent = frame(C, A.address(), udp(1000, 53, 4));
    sent.tos = inner;
    vxlan(vtep(1), vtep(0), A.vni(), outer, &sent.build())
}

/// RFC 6040, 4.2.
#[test]
fn congestion_marks_move_inwards() {
    for (inner, outer, expected) in [
        (0, 0, Some(0)),
        (0, 1, Some(0)),
        (0, 2, Some(0)),
        (0, 3, None),
        (1, 0, Some(1)),
        (1, 3, Some(3)),
        (2, 2, Some(2)),
        (2, 3, Some(3)),
        (3, 0, Some(3)),
        (3, 3, Some(3)),
    ] {
        let mut net = Net::new();
        for _ in ["miss", "hit"] {
            let outcome = net.underlay(0, &arriving(0xb8 | inner, outer));
            match expected {
                Some(ecn) => {
                    assert_peer(&outcome, A);
                    assert_eq!(outcome.frame[15], 0xb8 | ecn, "{inner} in {outer}");
                    assert_checksums(&outcome.frame);
                }
                None => assert_eq!(outcome.verdict.reason, Reason::Ecn),
            }
        }
    }
}

#[test]
fn a_record_is_of_the_receivers_mac_address() {
    let mut net = Net::new();
    let to = |mac| vxlan(vtep(1), vtep(0), A.vni(), 0, &frame(C, A.address(), udp(1, 2, 0)).macs(C.mac(), mac).build());
    assert_peer(&net.underlay(0, &to(A.mac())), A);
    // The same addresses and ports to the router: it is the router's, not A's.
    assert_peer(&net.underlay(0, &to(Pod::router(0).mac())), Pod::router(0));
    assert_peer(&net.underlay(0, &to(A.mac())), A);
    let elsewhere = net.underlay(0, &to(Pod::new(0, 1, 11).mac()));
    assert_eq!(elsewhere.verdict.reason, Reason::OverlayDestination);
}

#[test]
fn the_way_back_rests_on_the_node_that_it_leads_to() {
    use juneau_core::flow::FlowRead;
    use juneau_core::layout::{EndpointKey, FLOW_REPLY, Vtep, be32, vtep_generation};
    use juneau_core::tables::Diff;
    use std::net::Ipv4Addr;

    // C's packet comes by another node than that where C is, as through a router there.
    let mut net = Net::new();
    let third = be32(Ipv4Addr::new(192, 0, 2, 3));
    let current = net.0[0].tables.content().clone();
    let mut wanted = current.clone();
    wanted.vteps.insert(third, Vtep { next_hop: third, mtu: 1500, zero: 0 });
    wanted.endpoints.get_mut(&EndpointKey { vpc: C.vpc(), address: be32(C.address()) }).unwrap().vtep = third;
    net.0[0].apply(&Diff::between(&current, &wanted)).unwrap();
    assert_peer(&net.underlay(0, &arriving(0, 0)), A);
    let slot = |reply: bool| {
        let mut found = net.0[0].flows.iter().filter(|(_, flow)| flow.has(FLOW_REPLY) == reply);
        found.next().unwrap().1.generation[3]
    };
    assert_eq!(net.0[0].flows.len().unwrap(), 2);
    assert_eq!((slot(false), slot(true)), (vtep_generation(be32(vtep(1))), vtep_generation(third)));
}

#[test]
fn the_vni_is_the_tenant() {
    let mut net = Net::new();
    let inner = frame(C, A.address(), udp(1, 2, 0)).build();
    for tenant in 0..2 {
        let to = Pod { tenant, ..A };
        assert_peer(&net.underlay(0, &vxlan(vtep(1), vtep(0), to.vni(), 0, &inner)), to);
    }
}
