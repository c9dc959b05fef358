//! What a hit costs, by test run. It prints; the bound is loose, because machines differ and tests run side by side.
//! `make bench` measures.

use juneau_core::layout::Vpc;

use crate::lab::{RED, RED_INDEX, Variant, lab, variant};
use crate::packet::{UDP, udp};

const REPEAT: u32 = 200_000;

#[test]
fn a_hit_is_cheap() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let packet = lab.packet("a", "b", UDP, udp(1, 2, 18)).bytes();
        lab.send(a, &packet).delivered(b);
        lab.send(b, &lab.packet("b", "a", UDP, udp(2, 1, 18)).bytes()).delivered(a);
        assert!(lab.flow(&lab.key(RED, "a", "b", UDP, (1, 2))).is_some());
        let time = |program: &str| {
            let runs = (0..9).map(|_| lab.repeat(program, a.ifindex, 0, &packet, REPEAT).2.as_nanos());
            runs.min().unwrap()
        };
        let (empty, hit) = (time("jn_empty"), time("jn_pod"));
        lab.forget();
        println!("empty {empty} ns, a hit on the Pod's hook {} ns above it", hit - empty);
        assert!(hit < 10_000, "{hit} ns");
    });
}

#[test]
fn a_first_packet_is_affordable() {
    variant(Variant { flows: 16384, ..Variant::default() }, |lab| {
        lab.put("jn_vpcs", &RED_INDEX, &Vpc { vpc: RED, flow_limit: 8000, embryonic_limit: 8000, icmp_limit: 0 });
        let a = lab.pod("a");
        let packet = |port| lab.packet("a", "b", UDP, udp(port, 2, 18)).bytes();
        let median = |mut times: Vec<u128>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        let once = |port| lab.repeat("jn_pod", a.ifindex, 0, &packet(port), 1).2.as_nanos();
        let first = median((0..4000).map(once).collect());
        let hit = median((0..4000).map(once).collect());
        lab.forget();
        println!("a first packet {first} ns, one like it {hit} ns, cold both");
        assert!(first < 100_000);
    });
}
