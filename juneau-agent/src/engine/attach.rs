//! Giving Pods their interfaces and taking them away.

use super::wanted::{Wanted, attached};
use super::{Engine, Instant};
use crate::metrics::{Stage, Stopwatch};
use crate::net::{Link, Namespace, NetError, Netlink};
use crate::pod::{Subject, bring_up, create, other_end};
use crate::protocol::{Attached, Detached, ErrorCode, Failure, Sandbox};
use juneau_bpf::AttachPoint;

impl Engine {
    /// Attaches a Pod: the objects of all its endpoints must be there, and when this returns packets may flow on all
    /// its interfaces. Otherwise it has none. `stopwatch` has seen how long the request has waited.
    pub(super) async fn attach(&mut self, sandbox: &Sandbox, mut stopwatch: Stopwatch) -> Result<Attached, Failure> {
        let seen = Instant::now();
        if self.find_wanted(sandbox).is_err() {
            // The objects may be younger than the last look.
            self.files_changed(seen).await;
        }
        let wanted = self.find_wanted(sandbox)?;
        if self.dataplane.is_none() {
            return Err(self.not_now(sandbox, "eth0", "this node's data path is not up yet"));
        }
        stopwatch.end(Stage::Objects);
        let (namespace, inside) = enter(sandbox)?;
        let outcome = self.attach_all(sandbox, &wanted, &namespace, &inside, seen, &mut stopwatch).await;
        if outcome.is_err() {
            // Half an attachment helps nobody, and the caller will ask again.
            self.undo(&sandbox.container_id).await;
        } else {
            self.counts.attach.observe(&stopwatch);
        }
        outcome
    }

    async fn attach_all(
        &mut self,
        sandbox: &Sandbox,
        wanted: &[Wanted],
        namespace: &Namespace,
        inside: &Netlink,
        seen: Instant,
        stopwatch: &mut Stopwatch,
    ) -> Result<Attached, Failure> {
        self.remove_earlier(&Subject::new(&sandbox.namespace, &sandbox.name), &sandbox.container_id).await?;
        let mut hosts = Vec::with_capacity(wanted.len());
        for interface in wanted {
            let host = match self.reusable(interface, inside).await? {
                Some(host) => host,
                None => self.wire(interface, namespace).await?,
            };
            if self.pods.insert(&interface.record, &host).is_none() {
                let message = format!("device {} has no MAC address", host.name);
                return Err(Failure::new(ErrorCode::Node, message, "try again"));
            }
            hosts.push(host);
        }
        stopwatch.end(Stage::Devices);
        // All at once: one pass over the tables.
        self.apply(seen).await;
        stopwatch.end(Stage::Tables);
        for (interface, host) in wanted.iter().zip(&hosts) {
            let nic = &interface.nic().interface;
            if !self.is_programmed(host.index) {
                return Err(self.not_now(sandbox, nic, "its tables cannot be programmed"));
            }
            let Some(dataplane) = &self.dataplane else {
                return Err(self.not_now(sandbox, nic, "this node's data path is not up yet"));
            };
            // The program is in place before the first packet can be.
            dataplane.attach_pod(&host.name, host.index).map_err(|error| {
                Failure::new(ErrorCode::Node, error.to_string(), "see the agent's problems: juneau-agent status")
            })?;
        }
        stopwatch.end(Stage::Programs);
        for (interface, host) in wanted.iter().zip(&hosts) {
            let nic = &interface.nic().interface;
            bring_up(&self.netlink, inside, host, nic, &interface.wiring).await.map_err(node_failure)?;
        }
        stopwatch.end(Stage::Addresses);
        // Only we hold it, then, and it ends with this call.
        let same = Namespace::open(&sandbox.netns).and_then(|now| now.is(namespace));
        if !matches!(same, Ok(true)) {
            return Err(Failure::new(
                ErrorCode::NotFound,
                format!("{} went away while it was being attached", sandbox.netns.display()),
                "nothing: the kubelet makes another sandbox if the Pod is still wanted",
            ));
        }
        for (interface, host) in wanted.iter().zip(&hosts) {
            let address = interface.wiring.address;
            tracing::info!(interface = %interface.nic(), device = %host.name, %address, "attached");
        }
        attached(wanted)
    }

    /// Takes away what an earlier sandbox of the Pod has. A runtime makes another only when the earlier one is dead; and
    /// one device must go before the other comes, for the address is one.
    async fn remove_earlier(&mut self, subject: &Subject, container_id: &str) -> Result<(), Failure> {
        for (nic, pod) in self.pods.of(subject) {
            if pod.container_id == container_id {
                continue;
            }
            tracing::info!(interface = %nic, old = %pod.container_id, new = %container_id, "replacing a sandbox");
            let link = self.netlink.link(&pod.name).await.map_err(node_failure)?;
            if link.is_some_and(|link| link.index == pod.ifindex.get()) {
                self.remove_device(pod.ifindex.get(), &pod.name).await.map_err(node_failure)?;
            }
            self.pods.remove(&nic);
        }
        Ok(())
    }

    /// The host device of this very sandbox, if it is there and its other end is where it should be.
    async fn reusable(&mut self, wanted: &Wanted, inside: &Netlink) -> Result<Option<Link>, Failure> {
        let nic = wanted.nic();
        let Some(pod) = self.pods.get(nic).cloned() else { return Ok(None) };
        let link = self.netlink.link(&pod.name).await.map_err(node_failure)?;
        let Some(link) = link.filter(|link| link.index == pod.ifindex.get()) else {
            self.pods.remove(nic);
            return Ok(None);
        };
        if other_end(inside, &link, &nic.interface).await.map_err(node_failure)?.is_some() {
            return Ok(Some(link));
        }
        tracing::info!(interface = %nic, device = %link.name, "its other end is not where it should be: made anew");
        self.remove_device(link.index, &link.name).await.map_err(node_failure)?;
        self.pods.remove(nic);
        Ok(None)
    }

    async fn wire(&mut self, wanted: &Wanted, namespace: &Namespace) -> Result<Link, Failure> {
        create(&self.netlink, &wanted.record, namespace, &wanted.wiring, &self.options.sysctl_dir).await.map_err(
            |error| match error.errno() {
                Some(nix::libc::EEXIST) => Failure::new(
                    ErrorCode::Conflict,
                    format!(
                        "{error}: the Pod has an {} already, or another container id begins alike",
                        wanted.nic().interface
                    ),
                    "detach the earlier sandbox first",
                ),
                _ => node_failure(error),
            },
        )
    }

    /// Takes back an attachment that failed.
    async fn undo(&mut self, container_id: &str) {
        for (nic, pod) in self.pods.of_sandbox(container_id) {
            match self.remove_device(pod.ifindex.get(), &pod.name).await {
                Ok(()) => self.pods.remove(&nic),
                Err(error) => {
                    tracing::warn!(device = %pod.name, %error, "cannot take back an attachment that failed");
                }
            }
        }
        self.apply(Instant::now()).await;
    }

    /// Detaches a sandbox. One that is not attached changes nothing.
    pub(super) async fn detach(&mut self, sandbox: &Sandbox) -> Result<Detached, Failure> {
        if sandbox.container_id.is_empty() {
            return Err(Failure::new(ErrorCode::InvalidRequest, "container_id is empty", "say which sandbox"));
        }
        let changed = self.detach_sandbox(&sandbox.container_id).await?;
        Ok(Detached { changed })
    }

    pub(super) async fn detach_sandbox(&mut self, container_id: &str) -> Result<bool, Failure> {
        let attached = self.pods.of_sandbox(container_id);
        if attached.is_empty() {
            return Ok(false);
        }
        // Records first: while they go, packets are dropped by name, and no flow can be decided by them anew.
        for (nic, _) in &attached {
            self.pods.remove(nic);
        }
        self.apply(Instant::now()).await;
        let mut failure = None;
        for (nic, pod) in attached {
            match self.remove_device(pod.ifindex.get(), &pod.name).await {
                Ok(()) => tracing::info!(interface = %nic, device = %pod.name, "detached"),
                // The device is closed, and the next look finds it attached still.
                Err(error) => failure = Some(node_failure(error)),
            }
        }
        failure.map_or(Ok(true), Err)
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
}

/// The sandbox's network namespace, and a netlink socket in it.
pub(super) fn enter(sandbox: &Sandbox) -> Result<(Namespace, Netlink), Failure> {
    let namespace = Namespace::open(&sandbox.netns).map_err(bad_namespace)?;
    let own = Namespace::current().map_err(node_failure)?;
    if namespace.is(&own).map_err(node_failure)? {
        return Err(Failure::new(
            ErrorCode::InvalidRequest,
            format!("{} is the node's own network namespace", sandbox.netns.display()),
            "name the Pod's network namespace; a Pod of the host network is not attached",
        ));
    }
    // Any file can be opened; only a network namespace can be entered.
    let inside = Netlink::open_in(&namespace).map_err(bad_namespace)?;
    Ok((namespace, inside))
}

fn bad_namespace(error: NetError) -> Failure {
    Failure::new(
        ErrorCode::InvalidRequest,
        error.to_string(),
        "name a network namespace that exists in the agent's mount namespace",
    )
}

pub(super) fn node_failure(error: NetError) -> Failure {
    Failure::new(ErrorCode::Node, error.to_string(), "see the agent's problems: juneau-agent status")
}
