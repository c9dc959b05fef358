use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

#[test]
fn an_object_is_found_where_it_was_put() {
    let mut view = View::default();
    let metadata = |namespace: &str| ObjectMeta {
        name: Some("a".to_owned()),
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        ..ObjectMeta::default()
    };
    for kind in Kind::ALL {
        let namespace = if kind.is_namespaced() { "red" } else { "" };
        let text = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(), "metadata": metadata(namespace),
            "spec": {
                "vpc": "red", "cidr": "10.0.0.0/24", "kind": "Pod", "nodeName": "n", "containers": [],
                "podRef": {"uid": "u", "name": "p", "interface": "eth0"},
                "poolRefs": [], "resourceRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
                "attribute": "ip", "type": "number", "poolRef": {"name": "p"}, "value": {}, "claimRef": {"name": "c", "uid": "u"},
                "service": if kind == Kind::VpcEndpoint { json!({"namespace": "n", "name": "s"}) } else { json!(null) },
            },
        });
        let object = Object::from_json(kind, text).unwrap();
        let name = ObjectName::new(namespace, "a");
        assert_eq!((object.kind(), object.name()), (kind, name.clone()));
        view.insert(object.clone());
        assert_eq!(view.get(kind, &name), Some(object));
        assert!(view.remove(kind, &name) && !view.remove(kind, &name));
    }
    assert_eq!(view, View::default());
}

#[test]
fn of_services_those_are_notable_that_say_something_of_their_own() {
    let mut view = View::default();
    let name = ObjectName::new("red", "a");
    let mut put = |annotations: serde_json::Value, spec: serde_json::Value| {
        let metadata =
            json!({"name": "a", "namespace": "red", "uid": "u", "resourceVersion": "7", "annotations": annotations});
        let service = json!({"metadata": metadata, "spec": spec});
        view.insert(Object::from_json(Kind::Service, service).unwrap());
        let service = Service::clone(&view.services[&name]);
        assert_eq!(view.notable_services.contains_key(&name), service.is_notable());
        service
    };
    let plain = put(json!({"app": "x"}), json!({"clusterIP": "10.96.0.9", "clusterIPs": ["fd00::9", "10.96.0.9"]}));
    assert!(!plain.is_notable());
    assert_eq!(plain.cluster_ip, Some([10, 96, 0, 9].into()));
    assert_eq!(plain.metadata.resource_version, None);
    let owned = put(json!({"juneau.loutres.me/vpc": "red"}), json!({"clusterIP": "None", "clusterIPs": ["None"]}));
    assert!(owned.is_notable());
    assert_eq!((owned.cluster_ip, owned.offer.unwrap().vpc.as_str()), (None, "red"));
    let external = put(json!({}), json!({"clusterIP": "10.96.0.9", "externalIPs": ["198.51.100.50", "fd00::1"]}));
    assert_eq!((external.is_notable(), external.external_ips), (true, vec![[198, 51, 100, 50].into()]));
    assert!(!put(json!({}), json!({"type": "ExternalName", "externalIPs": ["198.51.100.50"]})).is_notable());
    let foreign = json!({"metadata": {"name": "a", "namespace": "red", "labels": {"service.kubernetes.io/service-proxy-name": "x"}},
        "spec": {"clusterIP": "10.96.0.9", "externalIPs": ["198.51.100.50"]}});
    view.insert(Object::from_json(Kind::Service, foreign).unwrap());
    assert!(view.notable_services.is_empty());
    assert!(view.remove(Kind::Service, &name));
    assert_eq!(view, View::default());
}
