//! A rule a test: what an endpoint says, and where new connections go.

use super::*;
use crate::kinds;
use serde_json::{Value, json};

const HERE: Here<'static> = Here { node: "n1", zone: Some("z1") };

fn service(spec: Value) -> Service {
    let object = json!({"metadata": {"name": "web", "namespace": "red"}, "spec": spec});
    serde_json::from_value::<kinds::Service>(object).unwrap().into()
}

fn slice(value: Value) -> EndpointSlice {
    let mut object = json!({
        "metadata": {"name": "web-1", "namespace": "red", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080}],
    });
    object.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
    serde_json::from_value::<kinds::EndpointSlice>(object).unwrap().into()
}

fn web() -> Service {
    service(json!({"clusterIP": "10.96.0.10", "ports": [{"port": 80}]}))
}

fn local() -> Service {
    service(json!({"clusterIP": "10.96.0.10", "ports": [{"port": 80}], "internalTrafficPolicy": "Local"}))
}

/// Endpoints of one slice: address, node, and what else it says.
fn endpoints(all: &[(&str, &str, Value)]) -> EndpointSlice {
    let all: Vec<_> = all
        .iter()
        .map(|(address, node, more)| {
            let mut endpoint = json!({"addresses": [address], "nodeName": node});
            endpoint.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            endpoint
        })
        .collect();
    slice(json!({"endpoints": all}))
}

fn conditions(ready: bool, serving: bool, terminating: bool) -> Value {
    json!({"conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
}

fn ready() -> Value {
    conditions(true, true, false)
}

fn leaving() -> Value {
    conditions(false, true, true)
}

fn asked(service: &Service, slices: &[EndpointSlice], here: Here<'_>) -> (Vec<model::ServicePort>, Vec<String>) {
    let (ports, refused) = ports(service, slices, here, &mut |_: &Address| true);
    (ports, refused.iter().map(ToString::to_string).collect())
}

/// Where new connections to the only port go, and whether those without a backend are dropped.
fn chosen_here(service: &Service, slices: &[EndpointSlice], here: Here<'_>) -> (Vec<String>, bool) {
    let (ports, refused) = asked(service, slices, here);
    assert!(refused.is_empty(), "{refused:?}");
    let [port] = ports.as_slice() else { panic!("{ports:?}") };
    assert!(port.internal.backends.iter().all(|backend| port.backends.contains_key(backend)));
    (port.internal.backends.iter().map(ToString::to_string).collect(), port.internal.local_only)
}

fn chosen(service: &Service, slices: &[EndpointSlice]) -> Vec<String> {
    chosen_here(service, slices, HERE).0
}

#[test]
fn ready_ones_are_chosen_and_all_are_known() {
    let slices = [endpoints(&[
        ("10.0.0.1", "n1", ready()),
        ("10.0.0.2", "n2", conditions(false, true, false)),
        ("10.0.0.3", "n2", leaving()),
        ("10.0.0.4", "n2", conditions(false, false, true)),
        // What is not said is ready and serving.
        ("10.0.0.5", "n2", json!({})),
        // publishNotReadyAddresses: the slice says ready, and that it does not serve.
        ("10.0.0.6", "n2", conditions(true, false, false)),
    ])];
    assert_eq!(chosen(&web(), &slices), ["10.0.0.1:8080", "10.0.0.5:8080", "10.0.0.6:8080"]);
    let (ports, _) = asked(&web(), &slices, HERE);
    let serving: Vec<_> = ports[0].backends.values().map(|state| state.serving).collect();
    assert_eq!(serving, [true, true, true, false, true, true]);
}

#[test]
fn those_that_terminate_serve_only_if_none_is_ready() {
    for (states, wanted) in [
        (vec![ready(), leaving()], vec!["10.0.0.1:8080"]),
        (vec![conditions(false, true, false), leaving()], vec!["10.0.0.2:8080"]),
        (vec![conditions(false, false, true), leaving()], vec!["10.0.0.2:8080"]),
        (vec![leaving(), leaving()], vec!["10.0.0.1:8080", "10.0.0.2:8080"]),
        // One that is not ready and does not terminate is no fallback.
        (vec![conditions(false, true, false)], vec![]),
        (vec![conditions(false, false, true)], vec![]),
    ] {
        let addresses = ["10.0.0.1", "10.0.0.2"];
        let all: Vec<_> =
            addresses.iter().zip(&states).map(|(address, state)| (*address, "n2", state.clone())).collect();
        assert_eq!(
            chosen_here(&web(), &[endpoints(&all)], HERE),
            (wanted.into_iter().map(Into::into).collect(), false)
        );
    }
}

#[test]
fn the_traffic_policy_comes_before_the_fallback() {
    let here_leaving = || endpoints(&[("10.0.0.1", "n1", leaving()), ("10.0.0.2", "n2", ready())]);
    assert_eq!(chosen_here(&web(), &[here_leaving()], HERE), (vec!["10.0.0.2:8080".into()], false));
    assert_eq!(chosen_here(&local(), &[here_leaving()], HERE), (vec!["10.0.0.1:8080".into()], true));
    let both = endpoints(&[("10.0.0.1", "n1", ready()), ("10.0.0.2", "n2", ready()), ("10.0.0.3", "n1", leaving())]);
    assert_eq!(chosen(&local(), &[both]), ["10.0.0.1:8080"]);
}

#[test]
fn local_without_local_endpoints_drops_and_without_any_rejects() {
    let elsewhere = |state: Value| [endpoints(&[("10.0.0.2", "n2", state)])];
    assert_eq!(chosen_here(&local(), &elsewhere(ready()), HERE), (vec![], true));
    assert_eq!(chosen_here(&local(), &elsewhere(leaving()), HERE), (vec![], true));
    assert_eq!(chosen_here(&local(), &elsewhere(conditions(false, false, false)), HERE), (vec![], false));
    assert_eq!(chosen_here(&local(), &[], HERE), (vec![], false));
    assert_eq!(chosen_here(&web(), &[], HERE), (vec![], false));
    // One without a node is nowhere.
    let nowhere = slice(json!({"endpoints": [{"addresses": ["10.0.0.3"]}]}));
    assert_eq!(chosen_here(&local(), std::slice::from_ref(&nowhere), HERE), (vec![], true));
    assert_eq!(chosen(&web(), &[nowhere]), ["10.0.0.3:8080"]);
}

#[test]
fn hints_count_if_every_ready_endpoint_has_them_and_one_is_for_us() {
    let zones =
        |names: &[&str]| json!({"forZones": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
    let both = |nodes: &[&str], zones: &[&str]| {
        let names = |all: &[&str]| all.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        json!({"forNodes": names(nodes), "forZones": names(zones)})
    };
    let hinted = |hints: Value, state: Value| {
        let mut more = state;
        more["hints"] = hints;
        more
    };
    let all = ["10.0.0.1:8080", "10.0.0.2:8080"];
    let nowhere = Here { node: "n1", zone: None };
    for (what, first, second, here, wanted) in [
        ("zone", hinted(zones(&["z1"]), ready()), hinted(zones(&["z2"]), ready()), HERE, &all[..1]),
        ("two zones", hinted(zones(&["z1"]), ready()), hinted(zones(&["z2", "z1"]), ready()), HERE, &all),
        ("none for us", hinted(zones(&["z3"]), ready()), hinted(zones(&["z2"]), ready()), HERE, &all),
        ("one without", hinted(zones(&["z1"]), ready()), ready(), HERE, &all),
        ("no zone of ours", hinted(zones(&["z1"]), ready()), hinted(zones(&["z2"]), ready()), nowhere, &all),
        ("not ready without", hinted(zones(&["z1"]), ready()), conditions(false, true, false), HERE, &all[..1]),
        (
            "the one of our zone not ready",
            hinted(zones(&["z1"]), leaving()),
            hinted(zones(&["z2"]), ready()),
            HERE,
            &all[1..],
        ),
        ("node", hinted(both(&["n1"], &["z1"]), ready()), hinted(both(&["n2"], &["z1"]), ready()), HERE, &all[..1]),
        (
            "another node's, our zone",
            hinted(both(&["n3"], &["z2"]), ready()),
            hinted(both(&["n2"], &["z1"]), ready()),
            HERE,
            &all[1..],
        ),
        ("node, one without", hinted(both(&["n1"], &["z1"]), ready()), hinted(both(&[], &["z1"]), ready()), HERE, &all),
    ] {
        let slices = [endpoints(&[("10.0.0.1", "n1", first), ("10.0.0.2", "n2", second)])];
        assert_eq!(chosen_here(&web(), &slices, here).0, wanted, "{what}");
    }
    // Without a ready one, hints are nothing.
    let leaving = |zone: &str| hinted(zones(&[zone]), leaving());
    let slices = [endpoints(&[("10.0.0.1", "n1", leaving("z1")), ("10.0.0.2", "n2", leaving("z2"))])];
    assert_eq!(chosen(&web(), &slices), all);
    // Nor under Local.
    let slices = [endpoints(&[
        ("10.0.0.1", "n1", hinted(zones(&["z2"]), ready())),
        ("10.0.0.2", "n1", hinted(zones(&["z1"]), ready())),
    ])];
    assert_eq!(chosen(&local(), &slices), all);
}

#[test]
fn endpoints_of_several_slices_are_one_if_their_address_and_port_are() {
    let first = endpoints(&[("10.0.0.1", "n1", conditions(false, true, false)), ("10.0.0.2", "n2", ready())]);
    let second = endpoints(&[("10.0.0.1", "n1", ready()), ("10.0.0.3", "n2", ready())]);
    let wanted = ["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"];
    assert_eq!(chosen(&web(), &[first.clone(), second.clone()]), wanted);
    assert_eq!(chosen(&web(), &[second, first]), wanted, "in any order");
}

#[test]
fn names_and_protocols_say_which_port_of_a_slice_is_meant() {
    let dns = service(json!({"clusterIP": "10.96.0.10", "ports": [
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 5353},
        {"name": "dns-sctp", "port": 53, "protocol": "SCTP"},
        {"name": "metrics", "port": 9153, "targetPort": "metrics"},
    ]}));
    // A named port may be another number in each Pod, so in each slice; what a slice says goes before targetPort.
    let first = slice(json!({
        "ports": [
            {"name": "dns", "port": 1053, "protocol": "UDP"}, {"name": "dns-tcp", "port": 1053},
            {"name": "dns-sctp", "port": 53, "protocol": "SCTP"}, {"name": "metrics", "port": 1, "protocol": "UDP"},
            {"name": "other", "port": 7}, {"name": "metrics"},
        ],
        "endpoints": [{"addresses": ["10.0.0.1"]}],
    }));
    let second = slice(json!({
        "ports": [{"name": "dns", "port": 2053, "protocol": "UDP"}],
        "endpoints": [{"addresses": ["10.0.0.2", "10.0.0.9"]}],
    }));
    let (ports, refused) = asked(&dns, &[first, second], HERE);
    assert!(refused.is_empty(), "{refused:?}");
    let texts: Vec<_> = ports
        .iter()
        .map(|port| {
            let backends: Vec<_> = port.backends.keys().map(ToString::to_string).collect();
            format!("{} {}/{} {}", port.name, port.port, port.protocol, backends.join(" "))
        })
        .collect();
    assert_eq!(
        texts,
        [
            "dns 53/UDP 10.0.0.1:1053 10.0.0.2:2053",
            "dns-tcp 53/TCP 10.0.0.1:1053",
            "dns-sctp 53/SCTP 10.0.0.1:53",
            "metrics 9153/TCP ",
        ]
    );
}

#[test]
fn what_is_wrong_with_a_port_costs_that_port() {
    let odd = service(json!({"clusterIP": "10.96.0.10", "ports": [
        {"name": "a", "port": 80}, {"name": "b", "port": 80}, {"name": "c", "port": 0}, {"name": "d", "port": 70000},
        {"name": "e", "port": 81, "protocol": "QUIC"}, {"name": "f", "port": 82, "protocol": "SCTP"}, {"name": "g", "port": 83},
    ]}));
    let slices = [slice(json!({
        "ports": [{"name": "a", "port": 8080}, {"name": "f", "port": 8082, "protocol": "SCTP"}, {"name": "g", "port": 70000}],
        "endpoints": [{"addresses": ["10.0.0.1"]}],
    }))];
    let (ports, refused) = asked(&odd, &slices, HERE);
    let counts: Vec<_> = ports.iter().map(|port| (port.port, port.backends.len())).collect();
    assert_eq!(counts, [(80, 1), (82, 0), (83, 0)]);
    assert_eq!(
        refused,
        [
            "the protocol of port 81 is none that is known",
            "0 is no port",
            "70000 is no port",
            "port 80 of TCP stands there twice",
            "endpoints of port 83 listen at 70000, which is no port",
            "endpoints of SCTP port 82 listen at 8082, and ports of SCTP are not translated",
        ]
    );
}

#[test]
fn an_address_that_may_be_no_backend_is_no_endpoint() {
    let slices = [endpoints(&[("10.0.0.1", "n1", ready()), ("10.9.0.2", "n2", ready()), ("nothing", "n1", ready())])];
    let mut asked = Vec::new();
    let (ports, _) = ports(&web(), &slices, HERE, &mut |address: &Address| {
        asked.push(address.to_string());
        address.to_string().starts_with("10.0.")
    });
    assert_eq!(asked, ["10.0.0.1", "10.9.0.2", "\"nothing\""]);
    assert_eq!(ports[0].backends.keys().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.1:8080"]);
}

#[test]
fn what_others_carry_out_is_left_alone() {
    let labelled = |label: &str| {
        let object = json!({"metadata": {"name": "web", "labels": {label: "x"}}, "spec": {"clusterIP": "10.96.0.1"}});
        Service::from(serde_json::from_value::<kinds::Service>(object).unwrap()).is_left_alone
    };
    assert!(labelled("service.kubernetes.io/service-proxy-name"));
    assert!(labelled("service.kubernetes.io/headless"));
    assert!(!labelled("app.kubernetes.io/name"));
    assert!(service(json!({"clusterIP": "None"})).is_left_alone);
    assert!(service(json!({"clusterIP": "None", "clusterIPs": ["None"]})).is_left_alone);
    assert!(service(json!({"type": "ExternalName", "externalName": "example.org"})).is_left_alone);
    assert!(!web().is_left_alone);
    let of = |more: Value| slice(more).service.is_some();
    assert!(of(json!({})));
    assert!(!of(json!({"addressType": "IPv6"})) && !of(json!({"addressType": "FQDN"})));
    for label in ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"] {
        let labels = json!({"kubernetes.io/service-name": "web", label: ""});
        assert!(!of(json!({"metadata": {"name": "web-1", "labels": labels}})));
    }
    assert!(!of(json!({"metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": ""}}})));
}

#[test]
fn what_is_held_of_a_service() {
    for (spec, affinity) in [
        (json!({}), None),
        (json!({"sessionAffinity": "None"}), None),
        (json!({"sessionAffinity": "ClientIP"}), Some(10_800)),
        (json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 7}}}), Some(7)),
        (json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 7}}}), None),
    ] {
        assert_eq!(service(spec).affinity, affinity);
    }
    let address = |spec: Value| service(spec).cluster_ip.map(|address| address.to_string());
    assert_eq!(address(json!({})), None);
    assert_eq!(address(json!({"clusterIP": ""})), None);
    assert_eq!(address(json!({"clusterIP": "10.96.0.1"})).as_deref(), Some("10.96.0.1"));
    assert_eq!(
        address(json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1", "10.96.0.1"]})).as_deref(),
        Some("10.96.0.1")
    );
    assert_eq!(address(json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1"]})).as_deref(), Some("fd00::1"));
    assert_eq!(address(json!({"clusterIP": "none"})).as_deref(), Some("\"none\""));
}
