//! Names in JSON, and what `kubectl` shows.

use super::{EndpointKind, NetworkEndpoint, RouteTable, Subnet, ViaType, Vpc};

#[test]
fn names_in_json_are_those_of_the_api() {
    let vpc: Vpc = serde_json::from_value(serde_json::json!({
        "apiVersion": super::API_VERSION, "kind": "Vpc", "metadata": {"name": "red"},
        "spec": {"service": {"consume": true}}, "status": {"vpcID": 2, "mainRouteTable": "red"},
    }))
    .unwrap();
    assert_eq!(vpc.status.as_ref().unwrap().vpc_id, Some(2));
    assert_eq!(serde_json::to_value(&vpc).unwrap()["status"]["mainRouteTable"], "red");

    let subnet: Subnet = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "red-a"}, "spec": {"vpc": "red", "cidr": "10.0.1.0/24", "networkACL": "n"},
        "status": {"vni": 100, "gateway": "10.0.1.1", "gatewayMAC": "02:00:00:00:00:01", "dnsMAC": "x"},
    }))
    .unwrap();
    let json = serde_json::to_value(&subnet).unwrap();
    assert_eq!(json["status"]["gatewayMAC"], "02:00:00:00:00:01");
    assert_eq!(json["status"]["dnsMAC"], "x");
    assert_eq!(json["spec"]["networkACL"], "n");

    let endpoint: NetworkEndpoint = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "a.eth0", "namespace": "red"},
        "spec": {"kind": "ServiceNAT", "nodeName": "n", "l2Network": "l",
                 "attachment": {"ifindex": 3, "hostMACAddress": "m", "containerID": "c"}},
        "status": {"nodeIP": "192.0.2.1"},
    }))
    .unwrap();
    assert_eq!(endpoint.spec.kind, EndpointKind::ServiceNAT);
    let json = serde_json::to_value(&endpoint).unwrap();
    assert_eq!(json["spec"]["attachment"]["hostMACAddress"], "m");
    assert_eq!(json["spec"]["attachment"]["containerID"], "c");
    assert_eq!(json["status"]["nodeIP"], "192.0.2.1");
}

#[test]
fn enums_may_grow() {
    let table: RouteTable = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "red"},
        "spec": {"vpc": "red", "routes": [{"dst": "0.0.0.0/0", "via": {"type": "hyperspace"}}]},
    }))
    .unwrap();
    assert_eq!(table.spec.routes[0].via.kind, ViaType::Unknown);
    for (text, kind) in [("natGateway", ViaType::NatGateway), ("vpn", ViaType::Vpn), ("endpoint", ViaType::Endpoint)] {
        assert_eq!(serde_json::from_value::<ViaType>(text.into()).unwrap(), kind);
    }
}

#[cfg(feature = "kube")]
#[test]
fn definitions_have_the_names_that_users_type() {
    use kube::CustomResourceExt as _;
    for (crd, scope, plural, short_names, columns) in [
        (super::Vpc::crd(), "Cluster", "vpcs", vec![], vec!["Ready"]),
        (super::Subnet::crd(), "Cluster", "subnets", vec![], vec!["Vpc", "Cidr", "Ready"]),
        (super::RouteTable::crd(), "Cluster", "routetables", vec![], vec!["Ready"]),
        (
            super::ServiceNATAttachment::crd(),
            "Cluster",
            "servicenatattachments",
            vec![],
            vec!["Node", "Vpc", "AssignedIP", "Subnet", "Ready"],
        ),
        (super::VpcEndpoint::crd(), "Cluster", "vpcendpoints", vec![], vec!["Vpc", "Address", "Ready"]),
        (
            super::NetworkInterface::crd(),
            "Namespaced",
            "networkinterfaces",
            vec!["interface", "iface", "nwinterface", "nwiface", "nic"],
            vec!["Node", "Subnet", "L2Network", "ElasticIP", "Address", "Phase"],
        ),
        (
            super::NetworkEndpoint::crd(),
            "Namespaced",
            "networkendpoints",
            vec!["nwep"],
            vec!["Kind", "Node", "Subnet", "L2Network", "ExternalNetwork", "Address"],
        ),
    ] {
        assert_eq!(crd.spec.group, super::GROUP);
        assert_eq!(crd.spec.scope, scope);
        assert_eq!(crd.spec.names.plural, plural);
        assert_eq!(crd.spec.names.short_names.unwrap_or_default(), short_names);
        let version = &crd.spec.versions[0];
        assert_eq!(version.name, super::VERSION);
        let shown: Vec<_> =
            version.additional_printer_columns.iter().flatten().map(|column| column.name.as_str()).collect();
        assert_eq!(shown, columns, "{plural}");
        assert!(version.subresources.as_ref().is_some_and(|s| s.status.is_some()), "{plural}");
    }
}
