//! Comparing what is attached with what should be, for the runtime's CHECK, GC and STATUS.

use super::Engine;
use super::attach::{enter, node_failure};
use super::wanted::{Wanted, attached};
use crate::net::Netlink;
use crate::pod::other_end;
use crate::protocol::{Attached, Collected, ErrorCode, Failure, Problem, Readiness, Sandbox, Valid};
use juneau_bpf::AttachPoint;
use std::collections::BTreeSet;

impl Engine {
    /// Compares devices, addresses, the route, programs and tables of a sandbox with what they should be.
    pub(super) async fn check(&mut self, sandbox: &Sandbox) -> Result<Attached, Failure> {
        let wanted = self.find_wanted(sandbox)?;
        let (_namespace, inside) = enter(sandbox)?;
        for interface in &wanted {
            self.check_interface(interface, &inside).await?;
        }
        self.check_programs(&wanted)?;
        attached(&wanted)
    }

    async fn check_interface(&self, wanted: &Wanted, inside: &Netlink) -> Result<(), Failure> {
        let (nic, wiring) = (wanted.nic(), &wanted.wiring);
        let pod = self.pods.get(nic).filter(|pod| pod.container_id == wanted.record.container_id);
        let Some(pod) = pod else {
            return Err(Failure::new(
                ErrorCode::NotFound,
                format!("{nic} is not attached for sandbox {}", wanted.record.container_id),
                "attach it: ADD",
            ));
        };
        let link = self.netlink.link(&pod.name).await.map_err(node_failure)?;
        let Some(host) = link.filter(|link| link.index == pod.ifindex.get()) else {
            return Err(differs(format!("{nic}: the node has no device {}", pod.name)));
        };
        let Some(peer) = other_end(inside, &host, &nic.interface).await.map_err(node_failure)? else {
            return Err(differs(format!("{nic}: the sandbox does not have the other end of {}", host.name)));
        };
        if !host.up || !peer.up {
            let which = if peer.up { &host.name } else { &peer.name };
            return Err(differs(format!("{nic}: {which} is down")));
        }
        if peer.mac != Some(wiring.mac.octets()) {
            return Err(differs(format!("{nic}: its MAC address is not {}", wiring.mac)));
        }
        let addresses = inside.addresses().await.map_err(node_failure)?;
        if !addresses.contains(&(peer.index, wiring.address)) {
            return Err(differs(format!("{nic}: it does not have its address {}", wiring.address)));
        }
        if let Some(gateway) = wiring.gateway
            && inside.default_route().await.map_err(node_failure)? != Some((peer.index, gateway))
        {
            return Err(differs(format!("{nic}: the default route does not lead to {gateway}")));
        }
        if !self.is_programmed(host.index) {
            return Err(differs(format!("{nic}: the tables do not hold it")));
        }
        Ok(())
    }

    fn check_programs(&self, wanted: &[Wanted]) -> Result<(), Failure> {
        let Some(dataplane) = &self.dataplane else {
            return Err(Failure::new(ErrorCode::TryAgain, "this node's data path is not up yet", "ask again"));
        };
        let links = dataplane.links().map_err(|error| {
            Failure::new(ErrorCode::Node, error.to_string(), "see the agent's problems: juneau-agent status")
        })?;
        for interface in wanted {
            let Some(pod) = self.pods.get(interface.nic()) else { continue };
            let point = AttachPoint::Pod(pod.name.clone());
            let held = |link: &&juneau_bpf::Attachment| link.point == point && link.ifindex == pod.ifindex.get();
            if !links.iter().find(held).is_some_and(juneau_bpf::Attachment::is_live) {
                return Err(differs(format!("{}: no program of ours runs on {}", interface.nic(), pod.name)));
            }
        }
        Ok(())
    }

    /// Takes away the interfaces of every sandbox that is not valid any more.
    pub(super) async fn collect(&mut self, valid: &Valid) -> Result<Collected, Failure> {
        let valid: BTreeSet<&str> = valid.container_ids.iter().map(String::as_str).collect();
        let attached: BTreeSet<String> = self.pods.iter().map(|(_, pod)| pod.container_id.clone()).collect();
        let mut detached = Vec::new();
        for container_id in attached.into_iter().filter(|id| !valid.contains(id.as_str())) {
            if self.detach_sandbox(&container_id).await? {
                detached.push(container_id);
            }
        }
        Ok(Collected { detached })
    }

    /// Whether Pods can be attached now. Asked every few seconds, so it looks at nothing but what is known.
    pub(super) fn readiness(&self) -> Readiness {
        let blocking = self.problems.blocking().next();
        let reason = blocking.or_else(|| self.problems.of_source().next());
        Readiness {
            ready: self.ready(),
            limited: blocking.is_some(),
            reason: reason.filter(|_| !self.ready()).map(|problem| Problem {
                object: problem.object.clone(),
                message: problem.message.clone(),
                remedy: problem.remedy.clone(),
                origin: problem.origin.clone(),
            }),
        }
    }
}

fn differs(message: String) -> Failure {
    Failure::new(
        ErrorCode::Differs,
        message,
        "the agent mends tables and programs by itself; for anything else delete the Pod",
    )
}
