//! The same object with `dry_run` over the same maps: the same verdicts, nothing written.

use juneau_core::layout::*;
use juneau_core::verdict::Reason;
use libbpf_rs::MapCore;

use crate::lab::*;
use crate::packet::*;

#[test]
fn explaining_writes_nothing() {
    variant(Variant::default(), |lab| {
        let explain = Lab::new(Variant { dry_run: true, ..Variant::default() }, Some(lab));
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let state = || {
            let dump = |map: &str| -> Vec<_> {
                let map = lab.map(map);
                let mut all: Vec<_> =
                    map.keys().map(|key| (map.lookup(&key, libbpf_rs::MapFlags::ANY).unwrap(), key)).collect();
                all.sort();
                all
            };
            let maps = ["jn_flows", "jn_vpc_states", "jn_fragments", "jn_pmtu", ".data.hot"].map(dump);
            let generation = lab.generation(vtep_generation(be32(OTHER_VTEP)));
            (maps, generation)
        };
        lab.send(b, &lab.packet("b", "a", TCP, tcp(7, 8, SYN, 0)).bytes()).delivered(a);
        lab.set_hot(|hot| (hot.clock, hot.events) = (77, u32::MAX));
        lab.advance(endpoint_generation(RED, be32(lab.pod("c").address)), 2);
        let before = state();
        let mut trails = Vec::new();
        let first = |fragment| Packet { fragment, ..lab.packet("a", "c", UDP, udp(1, 2, 16)) }.bytes();
        for (packet, reason) in [
            (lab.packet("a", "b", UDP, udp(1, 2, 3)).bytes(), Reason::Ok),
            (lab.packet("a", "x", UDP, udp(1, 2, 3)).bytes(), Reason::Ok),
            (first(0x2000), Reason::Ok),
            (first(1), Reason::FragmentNoFirst),
            // The first answer, which would clear a bit and move a count.
            (lab.packet("a", "b", TCP, tcp(8, 7, SYN | ACK, 0)).bytes(), Reason::Ok),
            (
                Packet { destination: [8, 8, 8, 8].into(), ..lab.packet("a", "c", UDP, udp(1, 2, 3)) }.bytes(),
                Reason::NoRoute,
            ),
            (arp(a.at(), b.address), Reason::ArpAnswered),
            (Packet { ethertype: 0x86dd, ..lab.packet("a", "c", UDP, udp(1, 2, 30)) }.bytes(), Reason::Ipv6),
        ] {
            let run = explain.dry("jn_pod", a.ifindex, 0, &packet);
            assert_eq!(run.reason, reason, "{run:?}");
            assert_eq!(state(), before);
            trails.push(explain.trail());
        }
        let inner = Packet { destination_mac: a.mac, ..lab.packet("x", "a", UDP, udp(1, 2, 3)) };
        let run = explain.dry("jn_overlay", lab.underlay, 0, &lab.outer(FIRST).bytes(&inner.bytes()));
        assert_eq!((run.reason, state()), (Reason::Ok, before));

        let stages: Vec<_> = trails[0].iter().map(|step| step.stage).collect();
        assert_eq!(
            stages,
            [STAGE_PARSE, STAGE_FLOW, STAGE_ROUTE, STAGE_DELIVER, STAGE_POLICY, STAGE_POLICY, STAGE_COMMIT, STAGE_EMIT]
        );
        let no_route = &trails[5];
        assert_eq!(no_route.last().map(|step| (step.stage, step.code)), Some((STAGE_ROUTE, ROUTE_NONE)));
        assert_eq!(no_route.last().unwrap().a, TABLE);
    });
}
