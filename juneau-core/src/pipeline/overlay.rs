//! Hooks OVERLAY and VXLAN: what other nodes send.

use super::context::{Found, Parsed, Part, Refusal, Run, Sender, Stop, fault};
use super::decide::{Basis, Original};
use super::deliver::here;
use super::parse;
use super::pod::OWN_NODE;
use super::policy::{Question, Side};
use super::{NodeState, Outcome, TableRead};
use crate::flow::FlowTable;
use crate::layout::{
    Be16, Be32, EGRESS_ENCAP, EGRESS_NODE, EGRESS_PEER, EP_NODE, EP_ROUTER, Endpoint, Flow, FlowKey, SCOPE_OVERLAY,
    STAGE_DELIVER, Segment, be32, ipv4, native, vtep_generation,
};
use crate::packet::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_QINQ, ETHERTYPE_VLAN, Ethernet, IP_ICMP, IP_UDP, Ipv4, Udp, Vxlan,
    is_forbidden, view,
};
use crate::verdict::{Hook, Reason};
use core::net::IpAddr;

/// Bytes in front of the inner Ethernet header.
const OUTER: usize = Ethernet::LENGTH + Ipv4::LENGTH + Udp::LENGTH + Vxlan::LENGTH;

/// What the outer header tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) vni: u32,
    pub(super) source: Be32,
    /// The outer header carries a congestion mark.
    congested: bool,
    /// Where the inner frame begins.
    begin: usize,
}

/// What the outer headers are.
enum Outer {
    /// A VXLAN packet for us.
    Ours(Arrival),
    /// An ICMP "fragmentation needed" of the underlay.
    Mtu,
    /// Not ours, or for the stack.
    Foreign,
}

/// Who receives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receiver {
    pub(super) segment: Segment,
    pub(super) endpoint: Endpoint,
    pub(super) ifindex: u32,
    /// A router that receives for another address.
    pub(super) through: bool,
}

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    pub(super) fn overlay(&mut self) -> Result<Outcome, Stop> {
        let arrival = if self.packet.hook == Hook::Vxlan {
            let tunnel = self.packet.tunnel.ok_or(Stop::Drop(Reason::VxlanHeader))?;
            Arrival { vni: tunnel.vni, source: be32(tunnel.source), congested: false, begin: 0 }
        } else {
            match self.outer()? {
                Outer::Ours(arrival) => arrival,
                Outer::Mtu => return self.underlay_mtu_told(),
                Outer::Foreign => return Ok(self.passed()),
            }
        };
        // A record that fits has the sender's VTEP in it; its being known need not be asked then.
        let known = self.tables.vtep(ipv4(arrival.source)).map_err(fault("VTEP"))?.is_some();
        let frame = self.packet.frame.get(arrival.begin..).unwrap_or_default();
        let parsed = match self.inner(&arrival, frame) {
            Err(Stop::Drop(_)) if !known => return Err(Stop::Drop(Reason::VtepUnknown)),
            parsed => parsed?,
        };
        let (ethernet, _) = view::<Ethernet>(frame).ok_or(Stop::Drop(Reason::Malformed))?;
        let mac = ethernet.destination;
        let mark = arrival.congested;

        if parsed.icmp_error {
            if !known {
                return Err(Stop::Drop(Reason::VtepUnknown));
            }
            let flow = self.overlay_icmp_error(&arrival, frame, &parsed, mac)?;
            return Ok(self.emit_overlay(frame, &parsed, &flow, mark));
        }
        let fits = |flow: &Flow| {
            matches!(flow.kind, EGRESS_PEER | EGRESS_NODE) && flow.vtep == arrival.source && flow.dmac == mac
        };
        let found = if known { self.find(&parsed, fits)? } else { self.find_as_it_is(&parsed, fits)? };
        let flow = if let Found::Hit(flow) = found {
            self.touch(&parsed, &flow)?;
            flow
        } else {
            self.slow = true;
            self.overlay_decide(&arrival, &parsed, mac, &found)?
        };
        self.remember_fragment(&parsed)?;
        Ok(self.emit_overlay(frame, &parsed, &flow, mark))
    }

    /// Rules 1 to 3.
    fn outer(&self) -> Result<Outer, Stop> {
        let frame = self.packet.frame;
        let foreign = Ok(Outer::Foreign);
        let Some((ethernet, rest)) = view::<Ethernet>(frame) else { return foreign };
        let Some((ip, rest)) = view::<Ipv4>(rest) else { return foreign };
        let Some((udp, rest)) = view::<Udp>(rest) else { return foreign };
        let whole = ip.fragment.get() & (Ipv4::MF | Ipv4::OFFSET) == 0;
        let plain =
            ethernet.ethertype.get() == ETHERTYPE_IPV4 && ip.version() == 4 && ip.header_length() == Ipv4::LENGTH;
        if !plain || !whole || ip.destination != self.config.vtep {
            return foreign;
        }
        match ip.protocol {
            IP_ICMP => return Ok(Outer::Mtu),
            IP_UDP if udp.destination_port == self.config.vxlan_port => {}
            _ => return foreign,
        }
        let bad = Err(Stop::Drop(Reason::VxlanHeader));
        let Some((vxlan, inner)) = view::<Vxlan>(rest) else { return bad };
        if !self.packet.to_host || self.packet.vlan_present || inner.len() < Ethernet::LENGTH {
            return bad;
        }
        let total = usize::from(ip.total_length.get());
        let consistent = total <= frame.len() - Ethernet::LENGTH
            && total >= Ipv4::LENGTH + Udp::LENGTH + Vxlan::LENGTH + Ethernet::LENGTH
            && usize::from(udp.length.get()) == total - Ipv4::LENGTH;
        if (self.packet.gso_size == 0 && !consistent) || vxlan.flags != Vxlan::VALID {
            return bad;
        }
        let congested = ip.ecn() == Ipv4::CE;
        Ok(Outer::Ours(Arrival { vni: vxlan.vni(), source: ip.source, congested, begin: OUTER }))
    }

    /// Rules 5 and 6, and the key.
    fn inner(&mut self, arrival: &Arrival, frame: &[u8]) -> Result<Parsed, Stop> {
        if arrival.begin == 0 && self.packet.vlan_present {
            return Err(Stop::Drop(Reason::Vlan));
        }
        let (ethernet, _) = view::<Ethernet>(frame).ok_or(Stop::Drop(Reason::Malformed))?;
        match ethernet.ethertype.get() {
            ETHERTYPE_IPV4 => {}
            ETHERTYPE_VLAN | ETHERTYPE_QINQ => return Err(Stop::Drop(Reason::Vlan)),
            ETHERTYPE_IPV6 => return Err(Stop::Drop(Reason::Ipv6)),
            _ => return Err(Stop::Drop(Reason::Ethertype)),
        }
        let mut parsed = parse::ipv4(frame, self.packet.gso_size)?;
        if is_forbidden(parsed.key.destination) {
            return Err(Stop::Drop(Reason::Destination));
        }
        parse::set_scope(&mut parsed, arrival.vni, SCOPE_OVERLAY);
        if parsed.part != Part::Later {
            self.layer4(frame, &mut parsed)?;
        }
        // RFC 6040: a mark on a packet that cannot carry it is a loss.
        if arrival.congested && parsed.tos & Ipv4::CE == 0 {
            return Err(Stop::Drop(Reason::Ecn));
        }
        if parsed.part == Part::Later {
            self.layer4(frame, &mut parsed)?;
        }
        Ok(parsed)
    }

    /// Who has the inner destination MAC address, which must hold the inner destination, too, unless it is a router. Of
    /// this node the record is that of the address asked for.
    pub(super) fn receiver(&self, arrival: &Arrival, parsed: &Parsed, mac: [u8; 6]) -> Result<Receiver, Stop> {
        let segment = self.tables.segment(arrival.vni).map_err(fault("segment"))?;
        let segment = segment.ok_or(Stop::Drop(Reason::VniUnknown))?;
        let missing = || Stop::Drop(Reason::OverlayDestination);
        let found = self.tables.mac(arrival.vni, mac).map_err(fault("MAC address"))?.ok_or_else(missing)?;
        let endpoint = self.tables.endpoint(segment.vpc, IpAddr::V4(ipv4(found.address))).map_err(fault("endpoint"))?;
        let endpoint = endpoint.ok_or_else(missing)?;
        let mut through = found.address != parsed.key.destination;
        let mut endpoint = endpoint;
        if through && endpoint.flags & EP_NODE != 0 {
            // A node has more addresses than that of its node port.
            let other = self.tables.endpoint(segment.vpc, IpAddr::V4(ipv4(parsed.key.destination)));
            let other = other.map_err(fault("endpoint"))?.filter(|other| other.flags & OWN_NODE == OWN_NODE);
            endpoint = other.ok_or_else(missing)?;
            through = false;
        }
        if through && endpoint.flags & EP_ROUTER == 0 {
            return Err(missing());
        }
        Ok(Receiver { segment, endpoint, ifindex: found.ifindex, through })
    }

    fn overlay_decide(
        &mut self,
        arrival: &Arrival,
        parsed: &Parsed,
        mac: [u8; 6],
        found: &Found,
    ) -> Result<Flow, Refusal> {
        let record = match found {
            Found::Again(record) => Some(record),
            _ => None,
        };
        let original = Original::of(parsed, record);
        let receiver = match self.receiver(arrival, parsed, mac) {
            Ok(receiver) => receiver,
            Err(Stop::Drop(reason)) => return Err(Refusal::new(reason)),
            Err(Stop::Fault(error)) => return Err(Refusal::Fault(error)),
        };
        let vpc = receiver.segment.vpc;
        let mut basis = self.basis(vpc, &original, receiver.endpoint.table)?;
        self.note_vtep(&mut basis, vtep_generation(arrival.source))?;

        let own = if receiver.through {
            self.side(vpc, parsed.key.destination)?
        } else {
            Side::of_receiver(&receiver.endpoint)
        };
        let other = self.side(vpc, parsed.key.source)?.elsewhere();
        let (sender, to) = if original.reply { (own, other) } else { (other, own) };
        let question =
            Question { sender, source: sender, receiver: to, protocol: parsed.protocol, port: original.port };
        self.policy(&question)?;

        let mut flow = Flow {
            kind: here(receiver.endpoint.flags),
            ifindex: receiver.ifindex,
            vtep: arrival.source,
            vni: arrival.vni,
            mtu: receiver.endpoint.mtu,
            dmac: mac,
            vpc_index: receiver.segment.vpc_index,
            ..Flow::default()
        };
        basis.put(&mut flow);
        let trail = [flow.ifindex, native(flow.vtep), flow.vni, u32::from(flow.mtu)];
        self.step(STAGE_DELIVER, u32::from(flow.kind), trail);
        // Answers to what comes from the overlay arrive in the VPC, wherever its sender moves.
        if record.is_some() || receiver.through {
            flow.backend = record.map_or(0, |record| record.backend);
            self.commit_one(parsed, found, &mut flow)?;
        } else {
            let reverse = self.overlay_reverse(&receiver, parsed, &basis)?;
            self.commit_pair(parsed, found, &mut flow, reverse)?;
        }
        Ok(flow)
    }

    /// The way back from the receiver, or none yet: then the first answer finds it, or is told why not.
    fn overlay_reverse(
        &mut self,
        receiver: &Receiver,
        parsed: &Parsed,
        basis: &Basis,
    ) -> Result<(FlowKey, Flow), Refusal> {
        let sender = Sender {
            vpc: receiver.segment.vpc,
            table: receiver.endpoint.table,
            vni: receiver.endpoint.vni,
            ifindex: receiver.ifindex,
            gateway: receiver.segment.gateway,
            mac: receiver.endpoint.mac,
        };
        let key = parsed.key.reversed().in_scope(receiver.segment.vpc, 0);
        let mut way_basis = *basis;
        let way = match self.route(&sender, parsed.key.source) {
            Ok(target) => self.deliver(&sender, &target, Some(&mut way_basis)),
            Err(refusal) => Err(refusal),
        };
        let mut reverse = Flow::default();
        match way {
            Ok(flow) => {
                reverse = flow;
                way_basis.put(&mut reverse);
            }
            Err(Refusal::Refused { .. }) => basis.put(&mut reverse),
            Err(fault) => return Err(fault),
        }
        if reverse.kind == EGRESS_ENCAP {
            reverse.outer_port = Be16::new(self.config.seeds.outer_port(&key));
        }
        reverse.vpc_index = receiver.segment.vpc_index;
        Ok((key, reverse))
    }
}
