//! Endpoints that move to another node: flows towards them stay what they are.

use juneau_core::layout::*;
use juneau_core::verdict::Reason;

use crate::lab::*;
use crate::packet::*;

/// What the node hears of b's move to the other node, or of its return.
fn moves(lab: &Lab, away: bool) {
    let b = lab.pod("b");
    lab.program(b);
    if away {
        let mut endpoint = lab.endpoint(b);
        endpoint.flags &= !EP_LOCAL;
        endpoint.ifindex = 0;
        endpoint.vtep = be32(OTHER_VTEP);
        lab.put_endpoint(b, &endpoint);
    }
    lab.advance(endpoint_generation(RED, be32(b.address)), 2);
}

fn word(lab: &Lab, flags: u8) -> Vec<u8> {
    lab.packet("a", "b", TCP, tcp(1000, 80, flags, 3)).bytes()
}

fn answer(lab: &Lab, flags: u8) -> Packet {
    lab.packet("b", "a", TCP, tcp(80, 1000, flags, 3))
}

/// The two records of a's connection are each other's peers, and there is no other.
#[track_caller]
fn assert_pair(lab: &Lab, scope: u32, embryonic: i64) {
    let forward = lab.key(RED, "a", "b", TCP, (1000, 80));
    let reverse = lab.key(scope, "b", "a", TCP, (80, 1000));
    let (there, back) = (lab.flow(&forward).unwrap(), lab.flow(&reverse).unwrap());
    assert_eq!((there.peer, back.peer), (reverse, forward));
    assert_eq!(back.flags & (FLOW_REPLY | FLOW_EMBRYONIC), FLOW_REPLY | there.flags & FLOW_EMBRYONIC);
    assert_eq!((lab.flows(), lab.quota(RED_INDEX)), (2, (1, embryonic)));
}

#[test]
fn an_open_connection_goes_on_there_and_back() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let far = |flags| lab.outer(FIRST).bytes(&answer(lab, flags).bytes());
        // Nobody may open anything but port 80.
        lab.rule(IDENTITY_ANY, 1, 0, 0, POLICY_DENY);
        lab.rule(IDENTITY_ANY, 1, TCP, 80, POLICY_ALLOW);
        lab.send(a, &word(lab, SYN)).delivered(b);
        for _ in 0..2 {
            moves(lab, true);
            // The control: until a's word, an answer from there is no answer.
            lab.receive(&far(SYN | ACK)).dropped(Reason::PolicyIngress);
            lab.send(a, &word(lab, ACK)).encapsulated(FIRST).slow(true);
            lab.receive(&far(SYN | ACK)).delivered(a).slow(false);
            lab.receive(&far(ACK)).delivered(a).slow(false);
            assert_pair(lab, FIRST | SCOPE_OVERLAY, 0);

            moves(lab, false);
            lab.send(a, &word(lab, ACK)).delivered(b).slow(true);
            lab.send(b, &answer(lab, ACK).bytes()).delivered(a).slow(false);
            assert_pair(lab, RED, 0);
        }
    });
}

#[test]
fn a_connection_that_nobody_has_answered_yet_moves_as_such() {
    lab(|lab| {
        let a = lab.pod("a");
        lab.send(a, &word(lab, SYN)).delivered(lab.pod("b"));
        moves(lab, true);
        lab.send(a, &word(lab, SYN)).encapsulated(FIRST);
        assert_pair(lab, FIRST | SCOPE_OVERLAY, 1);
        lab.receive(&lab.outer(FIRST).bytes(&answer(lab, SYN | ACK).bytes())).delivered(a);
        assert_pair(lab, FIRST | SCOPE_OVERLAY, 0);
    });
}
