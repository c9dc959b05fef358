//! ARP is answered in place.

use crate::common::{Net, assert_answer, assert_drop};
use juneau_core::layout::be32;
use juneau_core::packet::{Arp, Ethernet, view};
use juneau_core::tables::{Change, TablesMut};
use juneau_core::testkit::packets::arp_request;
use juneau_core::testkit::topology::Pod;
use juneau_core::verdict::Reason;
use std::net::Ipv4Addr;

const A: Pod = Pod::new(0, 1, 10);

fn answer(frame: &[u8]) -> (Ethernet, Arp) {
    let (ethernet, rest) = view::<Ethernet>(frame).unwrap();
    (*ethernet, *view::<Arp>(rest).unwrap().0)
}

#[test]
fn neighbours_and_the_gateway_answer() {
    let mut net = Net::new();
    let dns = Ipv4Addr::new(10, 0, 1, 2);
    let here = Pod::new(0, 1, 11);
    let away = Pod::new(0, 1, 21);
    for (asked, mac) in [
        (A.gateway(), A.gateway_mac()),
        (dns, A.gateway_mac()),
        (here.address(), here.mac()),
        (away.address(), away.mac()),
    ] {
        let outcome = net.raw(A, &arp_request(A.mac(), A.address(), asked));
        assert_answer(&outcome, Reason::ArpAnswered, A);
        let (ethernet, arp) = answer(&outcome.frame);
        assert_eq!((ethernet.destination, ethernet.source), (A.mac(), mac));
        assert_eq!((arp.operation.get(), arp.sender, arp.sender_mac), (2, be32(asked), mac));
        assert_eq!((arp.target, arp.target_mac), (be32(A.address()), A.mac()));
    }
}

#[test]
fn other_subnets_do_not_answer() {
    let mut net = Net::new();
    for asked in [Pod::new(0, 2, 10).address(), Ipv4Addr::new(10, 0, 1, 99), Ipv4Addr::new(10, 0, 2, 1)] {
        assert_drop(&net.raw(A, &arp_request(A.mac(), A.address(), asked)), Reason::ArpUnknown);
    }
}

#[test]
fn an_address_of_the_prefix_may_be_another_subnets() {
    let mut net = Net::new();
    let address = Ipv4Addr::new(10, 0, 1, 77);
    let key = juneau_core::layout::EndpointKey { vpc: A.vpc(), address: be32(address) };
    let mut record = Pod::new(0, 1, 11).endpoint(0);
    net.0[0].tables.apply(&Change::Endpoint(key, Some(record))).unwrap();
    assert_answer(&net.raw(A, &arp_request(A.mac(), A.address(), address)), Reason::ArpAnswered, A);
    record.vni = Pod::new(0, 2, 0).vni();
    net.0[0].tables.apply(&Change::Endpoint(key, Some(record))).unwrap();
    assert_drop(&net.raw(A, &arp_request(A.mac(), A.address(), address)), Reason::ArpUnknown);
}

#[test]
fn a_probe_is_answered_without_a_sender() {
    let mut net = Net::new();
    let asked = Pod::new(0, 1, 11);
    let outcome = net.raw(A, &arp_request(A.mac(), Ipv4Addr::UNSPECIFIED, asked.address()));
    assert_answer(&outcome, Reason::ArpAnswered, A);
    assert_eq!(answer(&outcome.frame).1.target, be32(Ipv4Addr::UNSPECIFIED));
    let own = net.raw(A, &arp_request(A.mac(), Ipv4Addr::UNSPECIFIED, A.address()));
    assert_drop(&own, Reason::ArpIgnored);
}

#[test]
fn nobody_speaks_for_others() {
    let mut net = Net::new();
    let other = Pod::new(0, 1, 11);
    assert_drop(&net.raw(A, &arp_request(A.mac(), other.address(), A.gateway())), Reason::ArpSender);
    let mut forged = arp_request(A.mac(), A.address(), A.gateway());
    forged[22..28].copy_from_slice(&other.mac());
    assert_drop(&net.raw(A, &forged), Reason::ArpSender);
    let mut reply = arp_request(A.mac(), A.address(), A.gateway());
    reply[21] = 2;
    assert_drop(&net.raw(A, &reply), Reason::ArpIgnored);
}

#[test]
fn a_subnet_without_gateway_has_no_address_after_it() {
    let mut net = Net::new();
    let mut record = A.interface();
    record.gateway = be32(Ipv4Addr::UNSPECIFIED);
    net.0[0].tables.apply(&Change::Interface(A.ifindex(), Some(record))).unwrap();
    for asked in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(0, 0, 0, 1), A.gateway()] {
        assert_drop(&net.raw(A, &arp_request(A.mac(), A.address(), asked)), Reason::ArpUnknown);
    }
}

#[test]
fn padding_comes_back() {
    let mut net = Net::new();
    let sent = [arp_request(A.mac(), A.address(), A.gateway()), vec![7; 18]].concat();
    let outcome = net.raw(A, &sent);
    assert_eq!(&outcome.frame[42..], &[7; 18]);
}
