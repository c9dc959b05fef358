//! What would happen to a packet, and why: the programs themselves answer, on a copy that writes nothing.

use super::Engine;
use super::debug::unreadable;
use super::packet::{Probe, Protocol, Tunnel};
use crate::pod::{INTERFACE, Nic};
use crate::protocol::{ErrorCode, ExplainRequest, Explanation, Failure, Step};
use juneau_bpf::TestPacket;
use juneau_core::id::MacAddr;
use juneau_core::layout::{self, Be32, ipv4};
use juneau_core::verdict::{Action, Hook, Reason};
use std::net::Ipv4Addr;

impl Engine {
    pub(super) async fn explain(&self, request: &ExplainRequest) -> Result<Explanation, Failure> {
        let interface = request.interface.as_deref().unwrap_or(INTERFACE);
        let nic = Nic::new(&request.namespace, &request.name, interface);
        let Some(pod) = self.pods.get(&nic) else {
            return Err(Failure::new(
                ErrorCode::NotFound,
                format!("Pod {}, interface {interface}, is not attached to this node", nic.subject),
                "ask the agent of the Pod's node; juneau-agent status lists who is attached here",
            ));
        };
        let Some(record) = self.mirror.interfaces.get(&pod.ifindex.get()) else {
            return Err(Failure::new(
                ErrorCode::TryAgain,
                format!("Pod {} is attached, but not programmed: whatever it sends is no-interface", nic.subject),
                "see the agent's problems: juneau-agent status",
            ));
        };
        let protocol = Protocol::parse(&request.protocol).ok_or_else(|| {
            Failure::new(
                ErrorCode::InvalidRequest,
                format!("protocol {:?} is not known", request.protocol),
                "ask about icmp, tcp or udp",
            )
        })?;
        let mac = |octets| MacAddr::new(octets).map_err(unreadable);
        let (own, gateway) = (mac(record.mac)?, mac(record.gateway_mac)?);
        let mut probe = Probe {
            source_mac: own,
            // The programs look at the destination address, never at this.
            destination_mac: gateway,
            source: ipv4(record.address),
            destination: request.destination,
            protocol,
            source_port: request.source_port,
            port: request.port,
        };
        let explainer = self.dataplane()?.explainer().map_err(unreadable)?;
        let run = match &request.incoming {
            None => explainer.run(Hook::Pod, &TestPacket::new(pod.ifindex.get(), &probe.frame())),
            Some(incoming) => {
                let config = self.config.ok_or_else(|| unreadable("the underlay is not known"))?;
                let links = self.netlink.links().await.map_err(unreadable)?;
                let underlay = links.iter().find(|link| link.index == config.underlay_ifindex);
                let underlay = underlay.and_then(|link| link.mac).unwrap_or_default();
                (probe.source_mac, probe.destination_mac, probe.source) = (gateway, own, incoming.source);
                let tunnel = Tunnel {
                    device: underlay,
                    from: incoming.vtep,
                    to: config.vtep,
                    port: config.vxlan_port,
                    vni: incoming.vni,
                };
                let frame = tunnel.frame(&probe.frame());
                explainer.run(Hook::Overlay, &TestPacket::new(config.underlay_ifindex, &frame))
            }
        };
        let run = run.map_err(unreadable)?;
        Ok(explanation(&run.verdict, &run.steps))
    }
}

fn explanation(verdict: &layout::Verdict, steps: &[layout::Step]) -> Explanation {
    let reason = Reason::from_number(verdict.reason);
    let some = |value: u32| Some(value).filter(|value| *value != 0);
    Explanation {
        action: Action::from_number(verdict.action).map_or_else(|| verdict.action.to_string(), |action| action.name()),
        reason: reason.map_or_else(|| verdict.reason.to_string(), Reason::name),
        text: reason.map_or("", Reason::text).to_owned(),
        answered: verdict.answered != 0,
        ifindex: some(verdict.ifindex),
        vtep: Some(ipv4(verdict.vtep)).filter(|vtep| !vtep.is_unspecified()),
        vni: some(verdict.vni),
        steps: steps.iter().map(step).collect(),
    }
}

fn step(step: &layout::Step) -> Step {
    let (stage, text) = match step.stage {
        layout::STAGE_PARSE => {
            ("parse", format!("{}: {} to {}, {}", reason(step.code), address(step.b), address(step.c), scope(step.a)))
        }
        layout::STAGE_FLOW => ("flow", flow(step.code).to_owned()),
        layout::STAGE_POLICY => ("policy", policy(step)),
        layout::STAGE_ROUTE => ("route", route(step)),
        layout::STAGE_SERVICE => ("service", service(step)),
        layout::STAGE_DELIVER => ("deliver", format!("{}, MTU {}", target(step), step.d)),
        layout::STAGE_COMMIT => ("commit", format!("a new connection: {}", reason(step.code))),
        layout::STAGE_EMIT => ("emit", target(step)),
        _ => ("unknown", format!("stage {}", step.stage)),
    };
    Step { stage: stage.to_owned(), text, code: step.code, values: [step.a, step.b, step.c, step.d] }
}

/// An address in a step is the word as it lay in memory.
fn address(word: u32) -> Ipv4Addr {
    ipv4(Be32::from_bytes(word.to_ne_bytes()))
}

fn reason(number: u32) -> String {
    Reason::from_number(number).map_or_else(|| number.to_string(), Reason::name)
}

fn scope(word: u32) -> String {
    let id = word & layout::SCOPE_MASK;
    let protocol = match word >> layout::SCOPE_PROTO_SHIFT {
        layout::PROTO_ICMP => "ICMP",
        layout::PROTO_TCP => "TCP",
        layout::PROTO_UDP => "UDP",
        _ => "another protocol",
    };
    if word & layout::SCOPE_TRANSIT != 0 {
        format!("{protocol} forwarded by the router behind ifindex {id}")
    } else {
        format!("{protocol} in VPC {id}")
    }
}

/// `enum jn_found` of the programs.
fn flow(found: u32) -> &'static str {
    match found {
        0 => "no entry",
        1 => "an entry that is to be decided again",
        2 => "an entry in force",
        3 => "a new connection takes the ports of an ended one",
        _ => "an unknown state",
    }
}

fn policy(step: &layout::Step) -> String {
    let side = if step.d == u32::from(layout::INGRESS) { "the receiver's" } else { "the sender's" };
    let peer = match step.b {
        layout::IDENTITY_ANY => "any peer".to_owned(),
        layout::IDENTITY_UNKNOWN => "an unknown peer".to_owned(),
        identity => format!("peers of identity {identity}"),
    };
    match step.code {
        layout::POLICY_ALLOW => format!("{side} rule {} for {peer} allows it", step.c),
        layout::POLICY_DENY => format!("{side} rule {} for {peer} refuses it", step.c),
        _ => format!("{side} policy has no rule for it"),
    }
}

fn route(step: &layout::Step) -> String {
    let to = format!("to {} in table {}", address(step.b), step.a);
    match step.code {
        layout::ROUTE_CONNECTED => format!("{to}: connected, VNI {}", step.c),
        layout::ROUTE_ENDPOINT => format!("{to}: by {}", address(step.d)),
        layout::ROUTE_SERVICE => format!("{to}: addresses of Services"),
        layout::ROUTE_TARGET_GONE => format!("{to}: the route's target does not exist"),
        _ => format!("{to}: none"),
    }
}

/// What a Service's address leads to: the codes are those of `lib/service.h`.
fn service(step: &layout::Step) -> String {
    match step.code {
        0 => format!("no Service of VPC {} has {}:{}", step.a, address(step.b), step.c),
        1 if step.b == 0 => format!("port {} of this node has no backends", step.a),
        1 => format!("port {} of this node has {} slots, backends in VPC {}", step.a, step.b, step.d),
        _ => format!("slot {} has backend {}, {}:{}", step.a, step.b, address(step.c), step.d),
    }
}

/// Where deliver and emit lead.
fn target(step: &layout::Step) -> String {
    match u8::try_from(step.code) {
        Ok(layout::EGRESS_PEER) => format!("to ifindex {} of this node", step.a),
        Ok(layout::EGRESS_NODE) => format!("to this node itself, by ifindex {}", step.a),
        Ok(layout::EGRESS_ENCAP) => {
            format!("to node {} with VNI {}, next hop {}", address(step.b), step.c, address(step.a))
        }
        _ => "nowhere yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(address: Ipv4Addr) -> u32 {
        u32::from_ne_bytes(address.octets())
    }

    #[test]
    fn steps_read_as_sentences() {
        let text = |stage, code, a, b, c, d| step(&layout::Step { stage, code, a, b, c, d }).text;
        let (from, to) = (Ipv4Addr::new(10, 0, 1, 10), Ipv4Addr::new(10, 0, 2, 10));
        let scope = 100 | layout::PROTO_TCP << layout::SCOPE_PROTO_SHIFT;
        assert_eq!(
            text(layout::STAGE_PARSE, 0, scope, word(from), word(to), 0),
            "ok: 10.0.1.10 to 10.0.2.10, TCP in VPC 100"
        );
        assert_eq!(
            text(layout::STAGE_ROUTE, layout::ROUTE_CONNECTED, 3, word(to), 200, 0),
            "to 10.0.2.10 in table 3: connected, VNI 200"
        );
        assert_eq!(
            text(layout::STAGE_DELIVER, u32::from(layout::EGRESS_ENCAP), word(from), word(to), 200, 1450),
            "to node 10.0.2.10 with VNI 200, next hop 10.0.1.10, MTU 1450"
        );
        assert_eq!(
            text(layout::STAGE_POLICY, layout::POLICY_ALLOW, 1, layout::IDENTITY_ANY, 1, 0),
            "the sender's rule 1 for any peer allows it"
        );
        assert_eq!(
            text(layout::STAGE_ROUTE, layout::ROUTE_SERVICE, 3, word(to), 0, 0),
            "to 10.0.2.10 in table 3: addresses of Services"
        );
        assert_eq!(text(layout::STAGE_SERVICE, 0, 2, word(to), 80, 0), "no Service of VPC 2 has 10.0.2.10:80");
        assert_eq!(text(layout::STAGE_SERVICE, 1, 7, 61, 0, 2), "port 7 of this node has 61 slots, backends in VPC 2");
        assert_eq!(text(layout::STAGE_SERVICE, 1, 7, 0, 0, 2), "port 7 of this node has no backends");
        assert_eq!(text(layout::STAGE_SERVICE, 2, 5, 9, word(to), 8080), "slot 5 has backend 9, 10.0.2.10:8080");
    }

    #[test]
    fn the_verdict_names_what_it_has() {
        let verdict = layout::Verdict {
            action: Action::Encap.number(),
            vtep: layout::be32(Ipv4Addr::new(192, 0, 2, 2)),
            vni: 200,
            ..layout::Verdict::default()
        };
        let shown = explanation(&verdict, &[]);
        assert_eq!((shown.action.as_str(), shown.reason.as_str()), ("encap", "ok"));
        assert_eq!((shown.ifindex, shown.vtep, shown.vni), (None, Some(Ipv4Addr::new(192, 0, 2, 2)), Some(200)));
    }
}
