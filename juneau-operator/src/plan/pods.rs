//! Pods: the interfaces that each one asks for.

use super::memory::Entry;
use super::planner::{FastSet, Planner, uid};
use super::{Target, interfaces, text};
use crate::view::{Kind, Object, Pod};
use juneau_api::annotations::{self, InterfaceRequest, NetworkRef, Source};
use juneau_api::kinds::{InterfacePodRef, NetworkInterface, NetworkInterfaceSpec, RetainWhile, reason};
use juneau_api::names;
use juneau_api::view::ObjectName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// The label of a Pod that runs a virtual machine: the machine's name.
const VIRTUAL_MACHINE: &str = "vm.kubevirt.io/name";

static NONE: BTreeMap<String, String> = BTreeMap::new();

impl<'v> Planner<'v> {
    /// Makes the interfaces that Pods ask for; those that are there and are asked for.
    pub(super) fn pods(&mut self) -> FastSet<&'v ObjectName> {
        let active = Rc::clone(&self.active);
        let mut kept = FastSet::with_capacity_and_hasher(active.interfaces.len(), Default::default());
        for Entry { place, name, object: pod } in &active.pods {
            let said = self.said();
            let wanted = match &pod.node_name {
                Some(node) if !pod.host_network && !pod.mirror && !pod.finished => self.pod(name, pod, node),
                _ => Wanted::default(),
            };
            kept.extend(&wanted.there);
            if self.said() == said
                && !wanted.more
                && let Some(calm) = &mut self.calm
            {
                calm.pods.push((*place, pod, wanted.there));
            }
        }
        kept
    }

    fn pod(&mut self, key: &'v ObjectName, pod: &'v Arc<Pod>, node: &str) -> Wanted<'v> {
        let mut wanted = Wanted::default();
        let namespace = self.view.namespaces.get(&key.namespace);
        let of_namespace = namespace.and_then(|namespace| namespace.metadata.annotations.as_ref());
        let of_pod = pod.metadata.annotations.as_ref().unwrap_or(&NONE);
        let requests = match annotations::requests(of_pod, of_namespace) {
            Ok(requests) => requests,
            Err(error) => {
                // A slip in an annotation cuts no Pod off that runs already.
                let prefix = names::interface_prefix(&key.name);
                let first = ObjectName::new(key.namespace.as_str(), prefix.as_str());
                let own = self.view.network_interfaces.range(first..);
                let own = own.take_while(|(name, _)| name.namespace == key.namespace && name.name.starts_with(&prefix));
                let own = own.filter(|(_, nic)| nic.spec.pod_ref.uid == uid(&pod.metadata));
                wanted.there.extend(own.map(|(name, _)| name));
                self.warn(pod_target(pod), reason::INVALID_ANNOTATION, error.to_string());
                return wanted;
            }
        };
        for request in requests {
            let nic_name = ObjectName::new(key.namespace.as_str(), names::interface(&key.name, &request.interface));
            let Some((stored, nic)) = self.view.network_interfaces.get_key_value(&nic_name) else {
                if pod.metadata.deletion_timestamp.is_none() {
                    self.create(interface(key, pod, node, request));
                }
                wanted.more = true;
                continue;
            };
            if !is_of(nic, pod, node) || !is_asked_for(nic, &request) {
                wanted.more = true;
                continue;
            }
            wanted.there.push(stored);
            if nic.spec.security_groups != request.security_groups && nic.metadata.deletion_timestamp.is_none() {
                let mut nic = NetworkInterface::clone(nic);
                nic.spec.security_groups = request.security_groups;
                self.spec(nic);
            }
        }
        wanted
    }
}

/// The interfaces that a Pod asks for.
#[derive(Default)]
struct Wanted<'v> {
    /// Those that are there.
    there: Vec<&'v ObjectName>,
    /// There shall be more.
    more: bool,
}

/// The Pod as Events name it.
pub(super) fn pod_target(pod: &Arc<Pod>) -> Target {
    Target::of(&Object::Pod(Arc::clone(pod)))
}

/// Whether an interface is this very Pod's, on this node.
fn is_of(nic: &NetworkInterface, pod: &Pod, node: &str) -> bool {
    nic.spec.pod_ref.uid == uid(&pod.metadata) && nic.spec.node_name == node
}

/// Whether an interface is in the network that the Pod names. One that was made when nobody named one stays where it is:
/// the annotation of a Namespace is for Pods that come.
fn is_asked_for(nic: &NetworkInterface, request: &InterfaceRequest) -> bool {
    let spec = &nic.spec;
    let is_address = match (request.address, &spec.address) {
        (Some(address), Some(text)) => text::is(text, format_args!("{address}")),
        (None, None) => true,
        _ => false,
    };
    let named = (spec.subnet.as_deref(), spec.l2_network.as_deref(), spec.elastic_ip.as_deref());
    is_address && (!matches!(request.source, Source::Pod(_)) || named == network(&request.network))
}

/// A network as the three fields of a spec.
fn network(network: &NetworkRef) -> (Option<&str>, Option<&str>, Option<&str>) {
    match network {
        NetworkRef::Subnet(name) => (Some(name), None, None),
        NetworkRef::L2Network(name) => (None, Some(name), None),
        NetworkRef::ElasticIp(name) => (None, None, Some(name)),
    }
}

fn interface(key: &ObjectName, pod: &Pod, node: &str, request: InterfaceRequest) -> NetworkInterface {
    let machine = pod.metadata.labels.as_ref().and_then(|labels| labels.get(VIRTUAL_MACHINE));
    let (subnet, l2_network, elastic_ip) = network(&request.network);
    let spec = NetworkInterfaceSpec {
        pod_ref: InterfacePodRef {
            uid: uid(&pod.metadata).to_owned(),
            name: key.name.clone(),
            interface: request.interface.clone(),
        },
        node_name: node.to_owned(),
        subnet: subnet.map(str::to_owned),
        l2_network: l2_network.map(str::to_owned),
        elastic_ip: elastic_ip.map(str::to_owned),
        address: request.address.map(|address| address.to_string()),
        security_groups: request.security_groups,
        allocation_identity: machine.map(|machine| format!("vmi.{machine}")),
        retain_while: machine.map(|machine| RetainWhile {
            api_version: "kubevirt.io/v1".to_owned(),
            kind: "VirtualMachine".to_owned(),
            namespace: key.namespace.clone(),
            name: machine.clone(),
        }),
    };
    let mut nic = NetworkInterface::new(&names::interface(&key.name, &request.interface), spec);
    nic.metadata.namespace = Some(key.namespace.clone());
    nic.metadata.finalizers = Some(vec![interfaces::FINALIZER.to_owned()]);
    nic.metadata.owner_references = Some(vec![OwnerReference {
        api_version: Kind::Pod.api_version().to_owned(),
        kind: Kind::Pod.as_str().to_owned(),
        name: key.name.clone(),
        uid: uid(&pod.metadata).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }]);
    nic
}
