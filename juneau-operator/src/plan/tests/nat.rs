//! Nodes' source addresses for shared Services.

use super::*;

/// A Vpc `red` that shares by its Subnet `red-nat`.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.config.node_namespace = Some("juneau-system".to_owned());
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "juneau-system"}}));
    cluster.tenant("red", "10.0.1.0/24");
    cluster.subnet("red-nat", "red", "10.0.9.0/24");
    provide(&mut cluster, Some("red-nat"));
    cluster.settle();
    cluster
}

fn provide(cluster: &mut Cluster, subnet: Option<&str>) {
    let provider = subnet.map(|subnet| json!({"natSourceSubnet": subnet}));
    cluster.vpc_spec("red", json!({"service": {"provider": provider}}));
}

fn attachment(cluster: &Cluster, name: &str) -> kinds::ServiceNatAttachmentStatus {
    cluster.objects.view().nat_attachments[name].status.clone().unwrap()
}

fn endpoint(cluster: &Cluster, node: &str, vpc: &str) -> Option<Arc<kinds::NetworkEndpoint>> {
    cluster.objects.view().network_endpoints.get(&key(&format!("juneau-system/juneau-nat.{node}.{vpc}"))).cloned()
}

#[test]
fn each_node_has_an_address_in_each_vpc_that_provides() {
    let mut cluster = cluster();
    let names: Vec<&String> = cluster.objects.view().nat_attachments.keys().collect();
    assert_eq!(names, ["n1.default", "n1.red", "n2.default", "n2.red"]);
    let one = attachment(&cluster, "n1.red");
    assert_eq!(one.subnet.as_deref(), Some("red-nat"));
    assert!(cluster.ready(Kind::ServiceNATAttachment, "n1.red").0);
    let told = endpoint(&cluster, "n1", "red").unwrap();
    assert_eq!(told.spec.kind, kinds::EndpointKind::ServiceNAT);
    assert_eq!((told.spec.node_name.as_str(), told.spec.subnet.as_deref()), ("n1", Some("red-nat")));
    assert_eq!(told.spec.address, one.assigned_ip.as_ref().map(|address| format!("{address}/24")));
    assert_eq!(told.spec.mac_address, one.assigned_mac);
    assert_eq!(told.status.as_ref().unwrap().node_ip.as_deref(), Some("192.0.2.1"));
    assert_ne!(one.assigned_ip, attachment(&cluster, "n2.red").assigned_ip);
    assert_ne!(one.assigned_mac, attachment(&cluster, "n1.default").assigned_mac);
    assert_eq!(attachment(&cluster, "n1.default").subnet.as_deref(), Some("default"));
    let of_nat = |name: &&String| name.starts_with("subnet-ip-red-nat--servicenatattachment--");
    assert_eq!(cluster.objects.view().claims.keys().filter(of_nat).count(), 2);
    assert_eq!(cluster.step(), 0);
    cluster.assert_unique();
    // Changed or deleted by a hand, it is what it was.
    let mut other = kinds::NetworkEndpoint::clone(&told);
    other.spec.address = Some("10.0.9.77/24".to_owned());
    cluster.objects.put(other.into());
    cluster.settle();
    assert_eq!(endpoint(&cluster, "n1", "red").unwrap().spec, told.spec);
    cluster.remove(Kind::NetworkEndpoint, "juneau-system/juneau-nat.n1.red");
    cluster.settle();
    assert_eq!(endpoint(&cluster, "n1", "red").unwrap().spec, told.spec);
}

#[test]
fn it_goes_with_its_node_and_with_the_provider() {
    let mut cluster = cluster();
    let before = attachment(&cluster, "n1.red");
    cluster.remove(Kind::Node, "n1");
    cluster.settle();
    assert!(!cluster.exists(Kind::ServiceNATAttachment, "n1.red") && endpoint(&cluster, "n1", "red").is_none());
    assert!(cluster.exists(Kind::ServiceNATAttachment, "n2.red"));
    cluster.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "another"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}}));
    cluster.settle();
    assert_ne!(attachment(&cluster, "n1.red").assigned_mac, before.assigned_mac);
    // One that took its place while nobody looked.
    cluster.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "third"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}}));
    cluster.settle();
    let owner = cluster.objects.view().nat_attachments["n1.red"].metadata.owner_references.clone().unwrap();
    assert_eq!((owner.len(), owner[0].uid.as_str()), (1, "third"));
    cluster.assert_unique();
    provide(&mut cluster, None);
    cluster.settle();
    assert!(!cluster.exists(Kind::ServiceNATAttachment, "n1.red") && endpoint(&cluster, "n2", "red").is_none());
    assert!(cluster.exists(Kind::ServiceNATAttachment, "n1.default"));
    assert!(!cluster.objects.view().claims.keys().any(|claim| claim.contains("red-nat--servicenat")));
}

#[test]
fn a_subnet_that_is_not_there_is_told_and_another_one_taken() {
    let mut cluster = cluster();
    let before = attachment(&cluster, "n1.red").assigned_ip;
    for (subnet, message) in [
        ("absent", "Subnet/absent does not exist; create it in Vpc/red"),
        ("default", "Subnet/default is of Vpc/default, not of Vpc/red"),
    ] {
        provide(&mut cluster, Some(subnet));
        cluster.settle();
        let (ready, reason, said) = cluster.ready(Kind::ServiceNATAttachment, "n1.red");
        assert_eq!((ready, reason.as_str()), (false, "SubnetNotFound"));
        assert!(said.contains(message), "{said}");
        assert_eq!(attachment(&cluster, "n1.red").assigned_ip, None);
        assert!(endpoint(&cluster, "n1", "red").is_none());
        assert!(cluster.notices().iter().any(|notice| notice.object.kind == Kind::Vpc && notice.reason == reason));
        assert!(cluster.ready(Kind::Vpc, "red").0, "its Pods do not care");
    }
    provide(&mut cluster, Some("red"));
    cluster.settle();
    let now = attachment(&cluster, "n1.red");
    assert_eq!(now.subnet.as_deref(), Some("red"));
    assert_ne!(now.assigned_ip, before);
    assert!(cluster.ready(Kind::ServiceNATAttachment, "n1.red").0);
    provide(&mut cluster, Some("red-nat"));
    cluster.settle();
    assert_eq!(attachment(&cluster, "n1.red").subnet.as_deref(), Some("red-nat"));
    cluster.assert_unique();
    // A Subnet that shall go is let go.
    cluster.delete(Kind::Subnet, "red-nat");
    cluster.settle();
    assert!(!cluster.exists(Kind::Subnet, "red-nat"));
    assert_eq!(cluster.ready(Kind::ServiceNATAttachment, "n1.red").1, "SubnetNotFound");
}

#[test]
fn attachments_that_nobody_wants_are_removed() {
    let mut cluster = cluster();
    let spec = json!({"nodeName": "n1", "vpc": "green"});
    cluster
        .put(json!({"apiVersion": JUNEAU, "kind": "ServiceNATAttachment", "metadata": {"name": "mine"}, "spec": spec}));
    let spec = json!({"nodeName": "n2", "vpc": "red"});
    cluster.put(
        json!({"apiVersion": JUNEAU, "kind": "ServiceNATAttachment", "metadata": {"name": "n1.red"}, "spec": spec}),
    );
    cluster.settle();
    assert!(!cluster.exists(Kind::ServiceNATAttachment, "mine"));
    assert_eq!(cluster.objects.view().nat_attachments["n1.red"].spec.node_name, "n1");
    assert!(cluster.ready(Kind::ServiceNATAttachment, "n1.red").0);
    cluster.assert_unique();
}
