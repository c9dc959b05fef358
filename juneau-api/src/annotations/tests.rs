//! The grammar, and an error for everything that is not in it.

use super::*;
use serde_json::{Value, json};

fn pod(annotations: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "red", "annotations": annotations}, "spec": {"containers": []},
    }))
    .unwrap()
}

fn read(annotations: Value) -> Result<Vec<InterfaceRequest>, AnnotationError> {
    interfaces(&pod(annotations), None)
}

fn networks(list: Value) -> Result<Vec<InterfaceRequest>, AnnotationError> {
    read(json!({NETWORKS: list.to_string()}))
}

fn subnet(name: &str) -> NetworkRef {
    NetworkRef::Subnet(name.to_owned())
}

#[test]
fn without_annotations_a_pod_is_in_the_subnet_default() {
    let expected = InterfaceRequest {
        interface: "eth0".to_owned(),
        network: subnet("default"),
        address: None,
        security_groups: vec![],
        source: Source::Default,
    };
    let empty = json!({SUBNET: "", ADDRESS: "", SECURITY_GROUPS: "", ELASTIC_IP: "", NETWORKS: ""});
    for annotations in [json!(null), json!({}), json!({SUBNET: " "}), empty] {
        assert_eq!(read(annotations).unwrap(), std::slice::from_ref(&expected));
    }
}

#[test]
fn single_annotations_describe_eth0() {
    let read = read(json!({SUBNET: "red-a", ADDRESS: "10.0.1.20", SECURITY_GROUPS: "web, db,web,"})).unwrap();
    assert_eq!(
        read,
        [InterfaceRequest {
            interface: "eth0".to_owned(),
            network: subnet("red-a"),
            address: Some(Ipv4Addr::new(10, 0, 1, 20)),
            security_groups: vec!["db".to_owned(), "web".to_owned()],
            source: Source::Pod(SUBNET),
        }]
    );
    let elastic = super::interfaces(&pod(json!({ELASTIC_IP: "front"})), None).unwrap();
    assert_eq!(elastic[0].network, NetworkRef::ElasticIp("front".to_owned()));
    assert_eq!(elastic[0].network.to_string(), "ElasticIP/front");
}

#[test]
fn the_namespaces_subnet_is_the_default_of_its_pods() {
    let of_namespace = BTreeMap::from([(SUBNET.to_owned(), "red-a".to_owned())]);
    let read = |annotations| interfaces(&pod(annotations), Some(&of_namespace)).unwrap();
    let of = |annotations| (read(annotations)[0].network.clone(), read(json!({}))[0].source);
    assert_eq!(of(json!({})), (subnet("red-a"), Source::Namespace));
    assert_eq!(of(json!({SUBNET: ""})).0, subnet("red-a"));
    assert_eq!(of(json!({SUBNET: "default"})).0, subnet("default"), "the Pod says so");
    assert_eq!(of(json!({ELASTIC_IP: "front"})).0, NetworkRef::ElasticIp("front".to_owned()));
    let pinned = read(json!({ADDRESS: "10.0.1.9"}));
    assert_eq!((pinned[0].network.clone(), pinned[0].address), (subnet("red-a"), Some(Ipv4Addr::new(10, 0, 1, 9))));
    let listed = read(json!({NETWORKS: r#"[{"interface":"eth1","subnet":"red-b"}]"#}));
    assert_eq!(listed.iter().map(|r| r.network.name()).collect::<Vec<_>>(), ["red-a", "red-b"]);
    let full = read(json!({NETWORKS: r#"[{"interface":"eth0","subnet":"red-b"}]"#}));
    assert_eq!((full.len(), full[0].network.name()), (1, "red-b"));

    let broken = BTreeMap::from([(SUBNET.to_owned(), "Red A".to_owned())]);
    let error = interfaces(&pod(json!({})), Some(&broken)).unwrap_err();
    assert!(error.of_namespace);
    assert!(error.to_string().starts_with("Namespace: juneau.loutres.me/subnet: "), "{error}");
    assert!(interfaces(&pod(json!({SUBNET: "red-a"})), Some(&broken)).is_ok(), "the Pod says so itself");
}

#[test]
fn lists_add_interfaces_or_describe_all() {
    let read = read(json!({
        SUBNET: "red-a",
        NETWORKS: r#"[{"interface":"eth1","subnet":"red-b","address":"10.90.2.20","securityGroups":["b","a","b"]},
                      {"interface":"seg0","l2Network":"red-l2"}, {"interface":"pub0","elasticIP":"front"}]"#,
    }))
    .unwrap();
    let names: Vec<_> = read.iter().map(|r| (r.interface.as_str(), r.network.to_string())).collect();
    assert_eq!(
        names,
        [
            ("eth0", "Subnet/red-a".to_owned()),
            ("eth1", "Subnet/red-b".to_owned()),
            ("seg0", "L2Network/red-l2".to_owned()),
            ("pub0", "ElasticIP/front".to_owned()),
        ]
    );
    assert_eq!(read[1].address, Some(Ipv4Addr::new(10, 90, 2, 20)));
    assert_eq!(read[1].security_groups, ["a", "b"]);
    assert_eq!(read[1].source, Source::Pod(NETWORKS));

    let full = networks(json!([
        {"interface": "eth1", "subnet": "red-b", "address": null, "securityGroups": null},
        {"interface": "eth2", "subnet": "red-c", "l2Network": ""},
        {"interface": "eth0", "subnet": "red-a"},
    ]))
    .unwrap();
    assert_eq!(full.iter().map(|r| r.interface.as_str()).collect::<Vec<_>>(), ["eth0", "eth1", "eth2"]);
    assert_eq!(networks(json!([])).unwrap()[0].network, subnet("default"));
}

#[test]
fn pods_without_interfaces_have_none_whatever_they_say() {
    let broken = json!({NETWORKS: "not JSON"});
    let mut host = pod(broken.clone());
    host.spec.as_mut().unwrap().host_network = Some(true);
    let mirror = pod(json!({MIRROR: "x", NETWORKS: "not JSON"}));
    let mut pods = vec![host, mirror];
    for phase in ["Succeeded", "Failed"] {
        let mut finished = pod(broken.clone());
        finished.status = Some(serde_json::from_value(json!({"phase": phase})).unwrap());
        pods.push(finished);
    }
    for pod in pods {
        assert!(!has_interfaces(&pod));
        assert_eq!(interfaces(&pod, None).unwrap(), []);
    }
    for phase in ["Pending", "Running", "Unknown"] {
        let mut pod = pod(json!({}));
        pod.status = Some(serde_json::from_value(json!({"phase": phase})).unwrap());
        assert_eq!(interfaces(&pod, None).unwrap().len(), 1, "{phase}");
    }
}

#[test]
fn every_error_names_the_annotation_and_what_to_do() {
    let long = "a".repeat(254);
    for (annotations, annotation, element, message) in [
        (json!({SUBNET: "Red"}), SUBNET, None, "\"Red\" cannot be the name of a Subnet"),
        (json!({SUBNET: long}), SUBNET, None, "cannot be the name of a Subnet"),
        (json!({SUBNET: "a,b"}), SUBNET, None, "cannot be the name of a Subnet"),
        (json!({ADDRESS: "10.0.1.20/24"}), ADDRESS, None, "is not an IPv4 address"),
        (json!({ADDRESS: "10.0.1"}), ADDRESS, None, "is not an IPv4 address"),
        (json!({ADDRESS: "010.0.0.1"}), ADDRESS, None, "is not an IPv4 address"),
        (json!({ADDRESS: "fd00::1"}), ADDRESS, None, "is not an IPv4 address"),
        (json!({SECURITY_GROUPS: "a,b,c"}), SECURITY_GROUPS, None, "names 3 SecurityGroups"),
        (json!({SECURITY_GROUPS: "a b"}), SECURITY_GROUPS, None, "cannot be the name of a SecurityGroup"),
        (json!({ELASTIC_IP: "A"}), ELASTIC_IP, None, "cannot be the name of an ElasticIP"),
        (json!({ELASTIC_IP: "e", SUBNET: ""}), SUBNET, None, "cannot be combined with"),
        (json!({ELASTIC_IP: "e", ADDRESS: ""}), ADDRESS, None, "cannot be combined with"),
        (json!({ELASTIC_IP: "e", SECURITY_GROUPS: ""}), SECURITY_GROUPS, None, "cannot be combined with"),
        (json!({NETWORKS: "not JSON"}), NETWORKS, None, "is not JSON: "),
        (json!({NETWORKS: "[{"}), NETWORKS, None, "is not JSON: "),
        (json!({NETWORKS: "{}"}), NETWORKS, None, "is not a JSON array"),
        (json!({NETWORKS: "null"}), NETWORKS, None, "is not a JSON array"),
        (json!({NETWORKS: "\"red-a\""}), NETWORKS, None, "is not a JSON array"),
        (json!({NETWORKS: "[] []"}), NETWORKS, None, "is not JSON: "),
        (json!({NETWORKS: r#"["red-a"]"#}), NETWORKS, Some(0), "invalid type"),
        (json!({NETWORKS: r#"[{"interface":1,"subnet":"a"}]"#}), NETWORKS, Some(0), "invalid type"),
        (
            json!({NETWORKS: r#"[{"interface":"eth1","subnet":"a","subnet":"b"}]"#}),
            NETWORKS,
            Some(0),
            "duplicate field `subnet`",
        ),
        (json!({NETWORKS: r#"[{"interface":"eth1","vlan":"a"}]"#}), NETWORKS, Some(0), "unknown field `vlan`"),
        (json!({NETWORKS: r#"[{"interface":"eth1","Subnet":"a"}]"#}), NETWORKS, Some(0), "unknown field `Subnet`"),
        (json!({NETWORKS: r#"[{"subnet":"a"}]"#}), NETWORKS, Some(0), "interface \"\" is not a name"),
        (
            json!({NETWORKS: r#"[{"interface":"eth0","subnet":"a"}]"#, SUBNET: ""}),
            SUBNET,
            None,
            "describes eth0 already",
        ),
        (
            json!({NETWORKS: r#"[{"interface":"eth0","subnet":"a"}]"#, ELASTIC_IP: ""}),
            ELASTIC_IP,
            None,
            "describes eth0 already",
        ),
        (
            json!({NETWORKS: r#"[{"interface":"eth1","elasticIP":"e"}]"#, ELASTIC_IP: "e"}),
            NETWORKS,
            None,
            "both carry ElasticIP/e",
        ),
    ] {
        let error = read(annotations.clone()).unwrap_err();
        assert_eq!((error.annotation, error.element), (annotation, element), "{annotations}: {error}");
        assert!(error.message.contains(message), "{annotations}: {error}");
        assert!(!error.remedy.is_empty(), "{annotations}");
    }
}

#[test]
fn every_error_of_an_element_names_it() {
    let good = json!({"interface": "eth1", "subnet": "a"});
    for (element, message) in [
        (json!({"interface": "eth1", "subnet": "b"}), "interface eth1 is there twice"),
        (json!({"interface": "ninechars", "subnet": "a"}), "is not a name that an interface can have"),
        (json!({"interface": "Eth2", "subnet": "a"}), "is not a name that an interface can have"),
        (json!({"interface": "a.b", "subnet": "a"}), "is not a name that an interface can have"),
        (json!({"interface": "-a", "subnet": "a"}), "is not a name that an interface can have"),
        (json!({"interface": "../x", "subnet": "a"}), "is not a name that an interface can have"),
        (json!({"interface": "lo", "subnet": "a"}), "is not a name that an interface can have"),
        (json!({"interface": "eth2"}), "interface eth2 is in no network"),
        (json!({"interface": "eth2", "subnet": ""}), "interface eth2 is in no network"),
        (json!({"interface": "eth2", "subnet": "a", "l2Network": "b"}), "is in several networks"),
        (json!({"interface": "eth2", "subnet": "a", "elasticIP": "b"}), "is in several networks"),
        (json!({"interface": "eth2", "l2Network": "A"}), "cannot be the name of an L2Network"),
        (json!({"interface": "eth2", "subnet": "a", "address": "x"}), "is not an IPv4 address"),
        (json!({"interface": "eth2", "elasticIP": "e", "address": "10.0.0.1"}), "has address beside elasticIP"),
        (
            json!({"interface": "eth2", "elasticIP": "e", "securityGroups": ["a"]}),
            "has securityGroups beside elasticIP",
        ),
        (json!({"interface": "eth2", "subnet": "a", "securityGroups": ["a", "b", "c"]}), "names 3 SecurityGroups"),
        (json!({"interface": "eth2", "subnet": "a", "securityGroups": [""]}), "cannot be the name of a SecurityGroup"),
    ] {
        let error = networks(json!([good, element])).unwrap_err();
        assert_eq!((error.annotation, error.element), (NETWORKS, Some(1)), "{element}: {error}");
        assert!(error.message.contains(message), "{element}: {error}");
        assert!(error.to_string().starts_with("juneau.loutres.me/networks[1]: "), "{error}");
    }
    let many: Vec<_> = (0..=MAX_INTERFACES).map(|n| json!({"interface": format!("e{n}"), "subnet": "a"})).collect();
    assert!(networks(Value::Array(many[1..].to_vec())).is_ok());
    assert!(networks(Value::Array(many)).unwrap_err().message.contains("has 33 interfaces"));
    let twice = json!([{"interface": "a", "elasticIP": "e"}, {"interface": "b", "elasticIP": "e"}]);
    assert!(networks(twice).unwrap_err().message.contains("interfaces a and b both carry ElasticIP/e"));
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,80}", address in "\\PC{0,20}") {
        let _ = read(json!({NETWORKS: text, SUBNET: address, ADDRESS: address, SECURITY_GROUPS: text}));
        let _ = read(json!({NETWORKS: format!("[{{\"interface\":{text}}}]")}));
    }
}
