//! ARP is answered in place: no request leaves the Pod.

use super::context::{PathResult, Run, Stop, fault};
use super::{NodeState, Outcome, TableRead};
use crate::flow::FlowTable;
use crate::layout::{Be16, Be32, Interface, ipv4};
use crate::packet::{Arp, ETHERTYPE_ARP, ETHERTYPE_IPV4, Ethernet, view};
use crate::verdict::{Hook, Reason};
use core::net::IpAddr;
use zerocopy::IntoBytes;

const ETHERNET: u16 = 1;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    pub(super) fn arp(&mut self, interface: &Interface) -> Result<Outcome, Stop> {
        let malformed = || Stop::Drop(Reason::Malformed);
        let (_, rest) = view::<Ethernet>(self.packet.frame).ok_or_else(malformed)?;
        let (arp, padding) = view::<Arp>(rest).ok_or_else(malformed)?;
        if arp.hardware.get() != ETHERNET
            || arp.protocol.get() != ETHERTYPE_IPV4
            || arp.hardware_length != 6
            || arp.protocol_length != 4
        {
            return Err(malformed());
        }
        // A probe (RFC 5227) does not say who asks.
        let probe = arp.sender == Be32::ZERO;
        // A node asks in the name of whatever address it sends from.
        let own = probe
            || arp.sender == interface.address
            || (self.packet.hook == Hook::NodePort && self.is_own_address(interface, arp.sender)?);
        if arp.sender_mac != interface.mac || !own {
            return Err(Stop::Drop(Reason::ArpSender));
        }
        if arp.operation.get() != REQUEST || arp.target == interface.address {
            return Err(Stop::Drop(Reason::ArpIgnored));
        }
        let mac = self.arp_find(interface, arp.target)?.ok_or(Stop::Drop(Reason::ArpUnknown))?;
        let ethernet = Ethernet { destination: interface.mac, source: mac, ethertype: Be16::new(ETHERTYPE_ARP) };
        let answer = Arp {
            operation: Be16::new(REPLY),
            sender_mac: mac,
            sender: arp.target,
            target_mac: interface.mac,
            target: arp.sender,
            ..*arp
        };
        let frame = [ethernet.as_bytes(), answer.as_bytes(), padding].concat();
        Ok(self.answer(Reason::ArpAnswered, frame))
    }

    /// The MAC address that answers for an address.
    fn arp_find(&self, interface: &Interface, address: Be32) -> PathResult<Option<[u8; 6]>> {
        let gateway = interface.gateway.get();
        if gateway != 0 && (address.get() == gateway || address.get() == gateway.wrapping_add(1)) {
            return Ok(Some(interface.gateway_mac));
        }
        let mask = match interface.prefix_length {
            length @ 1..=32 => u32::MAX << (32 - length),
            _ => 0,
        };
        if (address.get() ^ interface.address.get()) & mask != 0 {
            return Ok(None);
        }
        let endpoint = self.tables.endpoint(interface.vpc, IpAddr::V4(ipv4(address))).map_err(fault("endpoint"))?;
        Ok(endpoint.filter(|endpoint| endpoint.vni == interface.vni).map(|endpoint| endpoint.mac))
    }
}
