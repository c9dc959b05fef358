use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

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
        let text = serde_json::json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(), "metadata": metadata(namespace),
            "spec": {
                "vpc": "red", "cidr": "10.0.0.0/24", "kind": "Pod", "nodeName": "n", "containers": [],
                "podRef": {"uid": "u", "name": "p", "interface": "eth0"},
                "poolRefs": [], "resourceRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
                "attribute": "ip", "type": "number", "poolRef": {"name": "p"}, "value": {}, "claimRef": {"name": "c", "uid": "u"},
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
