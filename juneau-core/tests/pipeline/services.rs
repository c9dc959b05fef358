//! Services: who answers, what packets look like on their way, and which connections stay.

use crate::common::{NOW, Net, assert_answer, assert_drop, assert_peer, frame};
use juneau_core::flow::{FlowRead as _, TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use juneau_core::layout::{
    BACKEND_SERVING, Backend, Be16, FLOW_NAT, Flow, FlowKey, FrontendKey, PROTO_TCP, SCOPE_OVERLAY, Slots, be32,
};
use juneau_core::packet::{Ethernet, IP_SCTP, IP_TCP, IP_UDP, Ipv4, Udp, view};
use juneau_core::pipeline::Outcome;
use juneau_core::tables::{Diff, Tables};
use juneau_core::testkit::packets::{Frame, Layer4, addresses, assert_checksums, data, fin, syn, syn_ack, udp};
use juneau_core::testkit::services::{EMPTY, HOST, LOCAL, NOBODY, SAME, SCTP, SELF, WEB};
use juneau_core::testkit::topology::{self, Pod, vtep};
use juneau_core::verdict::{Action, Reason};
use std::net::Ipv4Addr;

const A: Pod = Pod::new(0, 1, 10);
/// On the same node.
const B: Pod = Pod::new(0, 1, 11);
/// The other interface of A.
const A2: Pod = Pod::new(0, 2, 10);
const CLIENT: Pod = Pod::new(0, 2, 11);

/// Source, destination and ports.
fn tuple(frame: &[u8]) -> (Ipv4Addr, Ipv4Addr, u16, u16) {
    let (source, destination) = addresses(frame);
    let (_, rest) = view::<Ethernet>(frame).unwrap();
    let (_, rest) = view::<Ipv4>(rest).unwrap();
    let (ports, _) = view::<Udp>(rest).unwrap();
    (source, destination, ports.source_port.get(), ports.destination_port.get())
}

fn apply(net: &mut Net, change: impl Fn(&mut Tables)) {
    for node in &mut net.0 {
        let current = node.tables.content().clone();
        let mut wanted = current.clone();
        change(&mut wanted);
        node.apply(&Diff::between(&current, &wanted)).unwrap();
    }
}

/// The Pod of tenant 0 with an address.
fn pod(address: Ipv4Addr) -> Pod {
    topology::pods().into_iter().find(|pod| pod.tenant == 0 && pod.address() == address).unwrap()
}

/// Opens a connection to a Service from some port, and has it answered: the backend.
fn connect(net: &mut Net, client: Pod, service: Ipv4Addr, port: u16, from: u16) -> Pod {
    let opened = net.send(client, service, syn(from, port));
    assert!(opened.verdict.is_delivered(), "{:?}", opened.verdict);
    let (source, backend, source_port, target) = tuple(&opened.frame);
    assert_checksums(&opened.frame);
    let backend = pod(backend);
    assert_peer(&opened, backend);
    let answer =
        Frame::new(backend.address(), source, syn_ack(target, source_port)).macs(backend.mac(), backend.gateway_mac());
    let answered = net.send_frame(backend, &answer);
    assert_peer(&answered, client);
    assert_checksums(&answered.frame);
    assert_eq!(tuple(&answered.frame), (service, client.address(), port, from));
    backend
}

/// Every source port of a range, and the backend that it comes to.
fn backends(net: &mut Net, service: Ipv4Addr, ports: std::ops::Range<u16>) -> Vec<(u16, Pod)> {
    ports.map(|from| (from, connect(net, CLIENT, service, 80, from))).collect()
}

#[test]
fn a_service_leads_to_all_its_backends_and_back() {
    let mut net = Net::new();
    let reached = backends(&mut net, WEB, 2000..2100);
    for expected in [A, B, Pod::new(0, 1, 20), Pod::new(0, 2, 20)] {
        let count = reached.iter().filter(|(_, pod)| *pod == expected).count();
        assert!((10..=40).contains(&count), "{expected:?} {count}");
    }
    for (from, backend) in reached {
        let on = net.send(CLIENT, WEB, data(from, 80, 100));
        assert_peer(&on, backend);
        assert!(!on.verdict.slow, "the second segment is a hit");
        assert_checksums(&on.frame);
        assert_eq!(tuple(&on.frame), (CLIENT.address(), backend.address(), from, 8080));
    }
}
