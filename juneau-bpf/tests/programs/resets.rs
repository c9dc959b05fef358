//! TCP that policy refuses in the middle: its sender is told by RST.

use juneau_core::layout::*;
use juneau_core::verdict::Reason;

use crate::lab::*;
use crate::packet::*;
use crate::topology::Pod;

/// A segment of a to another Pod, which acknowledges `number`.
fn segment(lab: &Lab, to: &str, flags: u8, number: u32, payload: usize) -> Packet {
    let mut l4 = tcp(1000, 80, flags, payload);
    l4[8..12].copy_from_slice(&number.to_be_bytes());
    lab.packet("a", to, TCP, l4)
}

/// The reset that answers it (RFC 9293, 3.5.2).
fn reset(pod: Pod, about: &Packet) -> Vec<u8> {
    let mut l4 = [&about.l4[2..4], &about.l4[..2], &about.l4[8..12]].concat();
    l4.extend([0, 0, 0, 0, 0x50, RST, 0, 0, 0, 0, 0, 0]);
    let pseudo = [&about.destination.octets()[..], &about.source.octets(), &[0, TCP, 0, 20], &l4].concat();
    l4[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    let mut reset = Packet::new(TCP, (pod.gateway_mac(), about.destination), pod.at(), l4);
    reset.destination = about.source;
    reset.id = 0;
    reset.bytes()
}

fn close(lab: &Lab, direction: u8) {
    lab.rule(IDENTITY_ANY, direction, 0, 0, POLICY_DENY);
    lab.advance(GEN_NODE, 2);
}

#[test]
fn every_reset_byte_by_byte() {
    for (direction, reason) in [(0, Reason::PolicyEgress), (1, Reason::PolicyIngress)] {
        lab(move |lab| {
            let a = lab.pod("a");
            close(lab, direction);
            for (payload, number) in [(0, 0), (1, 1), (19, 0x0102_0304), (200, u32::MAX), (1400, 0xffff_0000)] {
                lab.set_hot(|hot| hot.clock += 1);
                for to in ["b", "c"] {
                    for flags in [ACK, ACK | PSH, ACK | FIN] {
                        let packet = segment(lab, to, flags, number, payload);
                        lab.set_hot(|hot| hot.clock += 1);
                        let run = lab.send(a, &packet.bytes());
                        run.answered(reason);
                        assert_eq!((run.verdict.ifindex, run.bytes), (a.ifindex, reset(a, &packet)));
                    }
                }
            }
            assert_eq!((lab.flows(), lab.quota(RED_INDEX)), (0, (0, 0)));
        });
    }
}

#[test]
fn a_rule_that_is_taken_away_resets_both_ends() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        lab.send(a, &segment(lab, "b", SYN, 0, 0).bytes()).delivered(b);
        let back = |flags| lab.packet("b", "a", TCP, tcp(80, 1000, flags, 3));
        lab.send(b, &back(SYN | ACK).bytes()).delivered(a);
        lab.send(a, &segment(lab, "b", ACK, 5, 3).bytes()).delivered(b);
        close(lab, 1);
        let packet = segment(lab, "b", ACK, 6, 3);
        let run = lab.send(a, &packet.bytes());
        run.answered(Reason::PolicyIngress);
        assert_eq!(run.bytes, reset(a, &packet));
        let run = lab.send(b, &back(ACK).bytes());
        run.answered(Reason::PolicyIngress);
        assert_eq!(run.bytes, reset(b, &back(ACK)));
        // What has arrived from another node is not answered.
        let inner = Packet { destination_mac: a.mac, ..lab.packet("x", "a", TCP, tcp(80, 1000, ACK, 3)) };
        lab.receive(&lab.outer(FIRST).bytes(&inner.bytes())).dropped(Reason::PolicyIngress);
    });
}

#[test]
fn what_is_not_reset() {
    lab(|lab| {
        let a = lab.pod("a");
        close(lab, 0);
        for flags in [SYN, SYN | ACK, RST, RST | ACK] {
            lab.send(a, &segment(lab, "b", flags, 1, 0).bytes()).dropped(Reason::PolicyEgress);
        }
        lab.send(a, &lab.packet("a", "b", UDP, udp(1000, 80, 3)).bytes()).dropped(Reason::PolicyEgress);
        let good = segment(lab, "b", ACK, 1, 16);
        lab.send(a, &Packet { fragment: 0x2000, ..good.clone() }.bytes()).dropped(Reason::PolicyEgress);
        for group in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
            lab.send(a, &Packet { destination_mac: group, ..good.clone() }.bytes()).dropped(Reason::PolicyEgress);
        }
        let spoofed = Packet { source: lab.pod("b").address, ..good.clone() };
        lab.send(a, &spoofed.bytes()).dropped(Reason::SourceAddress);
        // The next packet may be allowed again.
        lab.advance(GEN_NODE, 1);
        lab.send(a, &good.bytes()).dropped(Reason::PolicyEgress);
        lab.advance(GEN_NODE, 1);
        lab.send(a, &good.bytes()).answered(Reason::PolicyEgress);
        for _ in 1..5 {
            lab.send(a, &good.bytes()).answered(Reason::PolicyEgress);
        }
        lab.send(a, &good.bytes()).dropped(Reason::PolicyEgress);
    });
}
