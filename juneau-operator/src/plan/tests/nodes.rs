//! Endpoints of nodes.

use super::*;

fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.config.node_namespace = Some("juneau-system".to_owned());
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "juneau-system"}}));
    cluster.settle();
    cluster
}

fn endpoint(cluster: &Cluster, node: &str) -> Option<Arc<kinds::NetworkEndpoint>> {
    cluster.objects.view().network_endpoints.get(&key(&format!("juneau-system/juneau-node.{node}"))).cloned()
}

#[test]
fn a_node_has_an_endpoint_in_the_default_subnet() {
    let mut cluster = cluster();
    let (one, two) = (endpoint(&cluster, "n1").unwrap(), endpoint(&cluster, "n2").unwrap());
    assert_eq!((one.spec.kind, one.spec.subnet.as_deref()), (kinds::EndpointKind::Node, Some("default")));
    assert_ne!(one.spec.address, two.spec.address);
    assert_ne!(one.spec.mac_address, two.spec.mac_address);
    assert_eq!(one.status.as_ref().unwrap().node_ip.as_deref(), Some("192.0.2.1"));
    let claim = "subnet-ip-default--node--n1--juneaunode-assignedip";
    let Object::AllocationClaim(claim) = cluster.get(Kind::AllocationClaim, claim) else { panic!() };
    assert_eq!(claim.spec.attribute, "juneauNode.assignedIP");
    assert_eq!(cluster.step(), 0);
    // Deleted or changed by a hand, it is what it was.
    cluster.remove(Kind::NetworkEndpoint, "juneau-system/juneau-node.n1");
    cluster.settle();
    assert_eq!(endpoint(&cluster, "n1").unwrap().spec, one.spec);
    let mut other = kinds::NetworkEndpoint::clone(&two);
    other.spec.address = one.spec.address.clone();
    other.spec.attachment = Some(kinds::Attachment { ifindex: 7, ..kinds::Attachment::default() });
    cluster.objects.put(other.into());
    cluster.settle();
    let now = endpoint(&cluster, "n2").unwrap();
    assert_eq!(now.spec.address, two.spec.address);
    assert_eq!(now.spec.attachment.as_ref().unwrap().ifindex, 7, "the node's to write");
    cluster.assert_unique();
}

#[test]
fn the_endpoint_goes_with_its_node_and_another_of_its_name_gets_another() {
    let mut cluster = cluster();
    let before = endpoint(&cluster, "n1").unwrap();
    cluster.remove(Kind::Node, "n1");
    cluster.settle();
    assert!(endpoint(&cluster, "n1").is_none());
    cluster.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "another"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}}));
    cluster.settle();
    let after = endpoint(&cluster, "n1").unwrap();
    assert_ne!(after.spec.mac_address, before.spec.mac_address);
    assert_eq!(after.status.as_ref().unwrap().node_ip.as_deref(), Some("192.0.2.9"));
    // One that took its place while nobody looked.
    cluster.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "third"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}}));
    cluster.settle();
    assert_eq!(endpoint(&cluster, "n1").unwrap().metadata.owner_references.as_ref().unwrap()[0].uid, "third");
    cluster.assert_unique();
}
