//! Which probes of this node's Pods are executed, and where.

use super::Engine;
use super::problems::Finder;
use crate::pod::{INTERFACE, Nic};
use crate::probes::Target;
use juneau_core::layout::ipv4;

impl Engine {
    /// Tells who executes probes of the Pods that are attached and programmed now.
    pub(super) fn publish_probes(&mut self) {
        // Until then there may be Pods that nobody here has heard of.
        if !self.read || !self.complete || !self.synced {
            return;
        }
        let own = self.objects.own_interfaces().filter(|(_, _, interface, _)| *interface == INTERFACE);
        let targets = own.filter_map(|(namespace, name, interface, _)| {
            let pod = self.objects.pod(namespace, name)?;
            let text = pod.probes.clone()?;
            let ifindex = self.pods.get(&Nic::new(namespace, name, interface))?.ifindex.get();
            let address = ipv4(self.mirror.interfaces.get(&ifindex)?.address);
            let (pod_name, created) = (format!("{namespace}/{name}"), pod.created.clone());
            Some(Target { pod: pod_name, uid: pod.uid.clone(), created, ifindex, address, text })
        });
        let targets = targets.collect();
        let problems = self.probes.set(targets);
        self.problems.set(Finder::Probes, problems);
    }
}
