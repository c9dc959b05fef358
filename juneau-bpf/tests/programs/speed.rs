//! What a hit costs, by test run. It prints; the bound is loose, because machines differ and tests run side by side.
//! `make bench` measures.

use crate::lab::{RED, lab};
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
