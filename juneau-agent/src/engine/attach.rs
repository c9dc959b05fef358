//! Giving Pods their interface and taking it away.

use super::{Engine, Instant};
use crate::net::{Link, Namespace, NetError};
use crate::pod::{INTERFACE, Record, Wiring, bring_up, create, is_wired};
use crate::protocol::{Attached, Detached, ErrorCode, Failure, Sandbox};
use crate::underlay::pod_mtu;
use ipnet::Ipv4Net;
use juneau_bpf::AttachPoint;
use std::net::IpAddr;

impl Engine {
    /// Attaches a Pod: its endpoint's objects must be there, and when this returns packets may flow.
    pub(super) async fn attach(&mut self, sandbox: &Sandbox) -> Result<Attached, Failure> {
        let seen = Instant::now();
        let record = record(sandbox)?;
        if self.find_wiring(sandbox).is_err() {
            // The manifest may be younger than the last look.
            self.files_changed(seen).await;
        }
        let wiring = self.find_wiring(sandbox)?;
        if self.dataplane.is_none() {
            return Err(self.not_now(sandbox, "this node's data path is not up yet"));
        }
        let namespace = Namespace::open(&sandbox.netns).map_err(bad_namespace)?;
        // Any file can be opened; only a network namespace can be entered.
        namespace.run(|| ()).map_err(bad_namespace)?;
        let own = Namespace::current().map_err(node_failure)?;
        if namespace.is(&own).map_err(node_failure)? {
            return Err(Failure::new(
                ErrorCode::InvalidRequest,
                format!("{} is the node's own network namespace", sandbox.netns.display()),
                "name the Pod's network namespace; a Pod of the host network is not attached",
            ));
        }
        let host = match self.reusable(&record, &namespace).await? {
            Some(host) => host,
            None => self.wire(&record, &namespace, &wiring).await?,
        };
        let outcome = self.finish(sandbox, &record, &host, &namespace, &wiring, seen).await;
        if outcome.is_err() {
            // Half an attachment helps nobody, and the caller will ask again.
            self.undo(&record, &host).await;
        }
        outcome
    }

    /// The host device of this very sandbox, if it is there and its other end is where it should be.
    async fn reusable(&mut self, record: &Record, namespace: &Namespace) -> Result<Option<Link>, Failure> {
        let Some(pod) = self.pods.get(&record.subject).cloned() else { return Ok(None) };
        let link = self.netlink.link(&pod.name).await.map_err(node_failure)?;
        let Some(link) = link.filter(|link| link.index == pod.ifindex.get()) else {
            self.pods.remove(&record.subject);
            return Ok(None);
        };
        if pod.container_id == record.container_id && is_wired(&link, namespace).await.map_err(bad_namespace)? {
            return Ok(Some(link));
        }
        // A new sandbox of the same Pod: the runtime makes one only when the earlier one is dead. One device must go
        // before the other comes, for the address is one.
        tracing::info!(pod = %record.subject, old = %pod.container_id, new = %record.container_id, "replacing a sandbox");
        self.remove_device(link.index, &link.name).await.map_err(node_failure)?;
        self.pods.remove(&record.subject);
        Ok(None)
    }

    async fn wire(&mut self, record: &Record, namespace: &Namespace, wiring: &Wiring) -> Result<Link, Failure> {
        create(&self.netlink, record, namespace, wiring, &self.options.sysctl_dir).await.map_err(|error| {
            match error.errno() {
                Some(nix::libc::EEXIST) => Failure::new(
                    ErrorCode::Conflict,
                    format!("{error}: the Pod has an {INTERFACE} already, or another container id begins alike"),
                    "detach the earlier sandbox first",
                ),
                _ => node_failure(error),
            }
        })
    }

    async fn finish(
        &mut self,
        sandbox: &Sandbox,
        record: &Record,
        host: &Link,
        namespace: &Namespace,
        wiring: &Wiring,
        seen: Instant,
    ) -> Result<Attached, Failure> {
        let Some(pod) = self.pods.insert(record, host) else {
            return Err(Failure::new(ErrorCode::Node, format!("device {} has no MAC address", host.name), "try again"));
        };
        let ifindex = pod.ifindex.get();
        self.apply(seen).await;
        if !self.is_programmed(ifindex) {
            return Err(self.not_now(sandbox, "its tables cannot be programmed"));
        }
        let Some(dataplane) = &self.dataplane else {
            return Err(self.not_now(sandbox, "this node's data path is not up yet"));
        };
        // The program is in place before the first packet can be.
        dataplane.attach_pod(&host.name, ifindex).map_err(|error| {
            Failure::new(ErrorCode::Node, error.to_string(), "see the agent's problems: juneau-agent status")
        })?;
        bring_up(&self.netlink, host, namespace, wiring).await.map_err(node_failure)?;
        tracing::info!(pod = %record.subject, device = %host.name, address = %wiring.address, "attached");
        Ok(Attached {
            interface: INTERFACE.to_owned(),
            address: wiring.address.to_string(),
            gateway: wiring.gateway,
            mac: wiring.mac.to_string(),
            mtu: wiring.mtu,
            host_interface: host.name.clone(),
        })
    }

    async fn undo(&mut self, record: &Record, host: &Link) {
        if let Err(error) = self.remove_device(host.index, &host.name).await {
            tracing::warn!(device = %host.name, %error, "cannot take back an attachment that failed");
            return;
        }
        self.pods.remove(&record.subject);
        self.apply(Instant::now()).await;
    }

    /// Detaches a Pod. A sandbox that is not the attached one changes nothing.
    pub(super) async fn detach(&mut self, sandbox: &Sandbox) -> Result<Detached, Failure> {
        let record = record(sandbox)?;
        let Some(pod) = self.pods.get(&record.subject).cloned() else { return Ok(Detached { changed: false }) };
        if pod.container_id != record.container_id {
            return Ok(Detached { changed: false });
        }
        // Records first: while they go, packets are dropped by name, and no flow can be decided by them anew.
        self.pods.remove(&record.subject);
        self.apply(Instant::now()).await;
        if let Err(error) = self.remove_device(pod.ifindex.get(), &pod.name).await {
            // The device is closed, and the next look finds it attached still.
            return Err(node_failure(error));
        }
        tracing::info!(pod = %record.subject, device = %pod.name, "detached");
        Ok(Detached { changed: true })
    }

    /// Deletes a host device and our link on it.
    pub(super) async fn remove_device(&self, ifindex: u32, name: &str) -> Result<(), NetError> {
        self.netlink.delete_link(ifindex).await?;
        if let Some(dataplane) = &self.dataplane
            && let Err(error) = dataplane.detach(&AttachPoint::Pod(name.to_owned()))
        {
            // The program has gone with the device; what is left is a pin, which the next load removes.
            tracing::warn!(device = %name, %error, "cannot remove the pin of a device that is gone");
        }
        Ok(())
    }

    /// How the Pod's interface is to be, by its objects.
    fn find_wiring(&self, sandbox: &Sandbox) -> Result<Wiring, Failure> {
        let name = format!("{}/{}.{INTERFACE}", sandbox.namespace, sandbox.name);
        let Some(endpoint) = self.objects.model().endpoints.values().find(|endpoint| endpoint.name == name) else {
            return Err(self.not_now(sandbox, "there is no such endpoint"));
        };
        if endpoint.node != self.options.node {
            return Err(Failure::new(
                ErrorCode::InvalidRequest,
                format!("NetworkEndpoint/{name} is on node {}, this is {}", endpoint.node, self.options.node),
                "attach the Pod on its own node",
            ));
        }
        let Some(subnet) = self.objects.model().subnets.get(&endpoint.subnet) else {
            return Err(self.not_now(sandbox, "its Subnet is not usable"));
        };
        let (IpAddr::V4(address), IpAddr::V4(gateway)) = (endpoint.address, subnet.gateway) else {
            return Err(self.not_now(sandbox, "only IPv4 is programmed yet"));
        };
        let (Some(underlay), Ok(address)) = (&self.underlay, Ipv4Net::new(address, subnet.prefix.prefix_len())) else {
            return Err(self.not_now(sandbox, "this node's underlay is not known yet"));
        };
        Ok(Wiring { address, gateway, mac: endpoint.mac, mtu: pod_mtu(underlay) })
    }

    /// What is missing may come. What is known to be wrong with the endpoint or this node goes with it.
    fn not_now(&self, sandbox: &Sandbox, reason: &str) -> Failure {
        let object = format!("NetworkEndpoint/{}/{}.{INTERFACE}", sandbox.namespace, sandbox.name);
        let mut message = format!("{object}: {reason}");
        let mut remedy =
            format!("create it with spec.nodeName {}, and its Subnet and Vpc; then try again", self.options.node);
        let blocking = self.problems.about(&object).next().or_else(|| self.problems.blocking().next());
        if let Some(problem) = blocking {
            message.push_str(&format!(" ({}: {})", problem.object, problem.message));
            remedy.clone_from(&problem.remedy);
        }
        Failure::new(ErrorCode::TryAgain, message, remedy)
    }
}

fn record(sandbox: &Sandbox) -> Result<Record, Failure> {
    Record::new(&sandbox.namespace, &sandbox.name, &sandbox.container_id)
        .map_err(|error| Failure::new(ErrorCode::InvalidRequest, error.to_string(), "correct the request"))
}

fn bad_namespace(error: NetError) -> Failure {
    Failure::new(
        ErrorCode::InvalidRequest,
        error.to_string(),
        "name a network namespace that exists in the agent's mount namespace",
    )
}

fn node_failure(error: NetError) -> Failure {
    Failure::new(ErrorCode::Node, error.to_string(), "see the agent's problems: juneau-agent status")
}
