//! How a Pod's interfaces are to be, by its objects.

use super::Engine;
use crate::pod::{INTERFACE, Nic, Record, Wiring};
use crate::protocol::{Attached, ErrorCode, Failure, Interface, Sandbox};
use crate::underlay::pod_mtu;
use ipnet::Ipv4Net;
use juneau_api::names::{self, host_veth};
use std::net::{IpAddr, Ipv4Addr};

/// An interface as it is to be.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) record: Record,
    pub(super) wiring: Wiring,
    /// Its Subnet's gateway, whether or not it has a route by it.
    gateway: Ipv4Addr,
}

impl Wanted {
    pub(super) fn nic(&self) -> &Nic {
        &self.record.nic
    }

    fn host_interface(&self) -> String {
        host_veth(&self.nic().interface, &self.record.container_id)
    }
}

impl Engine {
    /// All interfaces that a sandbox is to have, `eth0` first: all of them or none.
    pub(super) fn find_wanted(&self, sandbox: &Sandbox) -> Result<Vec<Wanted>, Failure> {
        let object = format!("Pod/{}/{}", sandbox.namespace, sandbox.name);
        let pod = self.objects.pod(&sandbox.namespace, &sandbox.name);
        if let (Some(pod), Some(uid)) = (pod, &sandbox.uid)
            && *pod.uid != **uid
        {
            return Err(Failure::new(
                ErrorCode::TryAgain,
                format!("{object} has the uid {}, the sandbox is for {uid}", pod.uid),
                "nothing, if one of the two Pods is just going; the kubelet asks again for the one that stays",
            ));
        }
        let names: Vec<&str> = match pod {
            Some(pod) => pod.interfaces.iter().map(|name| &**name).collect(),
            // What is missing is named below.
            None => vec![INTERFACE],
        };
        if names.is_empty() {
            return Err(Failure::new(
                ErrorCode::TryAgain,
                format!("{object}: its annotations cannot be read"),
                "see the Pod's Events; correct the annotation juneau.loutres.me/networks",
            ));
        }
        if let Some(asked) = sandbox.interface.as_deref()
            && !names.contains(&asked)
        {
            return Err(Failure::new(
                ErrorCode::InvalidRequest,
                format!("{object} has no interface {asked}, only {}", names.join(", ")),
                "ask for one of them; or add an element to the annotation juneau.loutres.me/networks of a new Pod",
            ));
        }
        names.into_iter().map(|name| self.find_interface(sandbox, name)).collect()
    }

    fn find_interface(&self, sandbox: &Sandbox, interface: &str) -> Result<Wanted, Failure> {
        let record = Record::new(&sandbox.namespace, &sandbox.name, interface, &sandbox.container_id)
            .map_err(|error| Failure::new(ErrorCode::InvalidRequest, error.to_string(), "correct the request"))?;
        let name = endpoint_name(sandbox, interface);
        let Some(endpoint) = self.objects.model().endpoints.values().find(|endpoint| endpoint.name == name) else {
            return Err(self.not_now(sandbox, interface, "there is no such endpoint"));
        };
        if endpoint.node != self.options.node {
            return Err(Failure::new(
                ErrorCode::InvalidRequest,
                format!("NetworkEndpoint/{name} is on node {}, this is {}", endpoint.node, self.options.node),
                "attach the Pod on its own node",
            ));
        }
        let Some(subnet) = self.objects.model().subnets.get(&endpoint.subnet) else {
            return Err(self.not_now(sandbox, interface, "its Subnet is not usable"));
        };
        let (IpAddr::V4(address), IpAddr::V4(gateway)) = (endpoint.address, subnet.gateway) else {
            return Err(self.not_now(sandbox, interface, "only IPv4 is programmed yet"));
        };
        let (Some(underlay), Ok(address)) = (&self.underlay, Ipv4Net::new(address, subnet.prefix.prefix_len())) else {
            return Err(self.not_now(sandbox, interface, "this node's underlay is not known yet"));
        };
        let by_gateway = (interface == INTERFACE).then_some(gateway);
        let wiring = Wiring { address, gateway: by_gateway, mac: endpoint.mac, mtu: pod_mtu(underlay) };
        Ok(Wanted { record, wiring, gateway })
    }

    /// What is missing may come. What is known to be wrong with the endpoint or this node goes with it.
    pub(super) fn not_now(&self, sandbox: &Sandbox, interface: &str, reason: &str) -> Failure {
        let object = format!("NetworkEndpoint/{}", endpoint_name(sandbox, interface));
        let mut message = format!("{object}: {reason}");
        let mut remedy = format!(
            "the operator makes it once the Pod's NetworkInterface has an address: the condition Ready of {} says what is \
             in the way",
            object.replace("NetworkEndpoint", "NetworkInterface")
        );
        let blocking = self.problems.about(&object).next().or_else(|| self.problems.blocking().next());
        if let Some(problem) = blocking {
            message.push_str(&format!(" ({}: {})", problem.object, problem.message));
            remedy.clone_from(&problem.remedy);
        }
        Failure::new(ErrorCode::TryAgain, message, remedy)
    }
}

/// The endpoint of a sandbox's interface, as the model names it.
fn endpoint_name(sandbox: &Sandbox, interface: &str) -> String {
    format!("{}/{}", sandbox.namespace, names::interface(&sandbox.name, interface))
}

/// What the caller is told of interfaces that are there.
pub(super) fn attached(wanted: &[Wanted]) -> Result<Attached, Failure> {
    let [first, others @ ..] = wanted else {
        return Err(Failure::new(ErrorCode::TryAgain, "the Pod has no interface", "ask again"));
    };
    let others = others.iter().map(|other| Interface {
        interface: other.nic().interface.clone(),
        address: other.wiring.address.to_string(),
        mac: other.wiring.mac.to_string(),
        mtu: other.wiring.mtu,
        host_interface: other.host_interface(),
    });
    Ok(Attached {
        interface: first.nic().interface.clone(),
        address: first.wiring.address.to_string(),
        gateway: first.gateway,
        mac: first.wiring.mac.to_string(),
        mtu: first.wiring.mtu,
        host_interface: first.host_interface(),
        others: others.collect(),
    })
}
