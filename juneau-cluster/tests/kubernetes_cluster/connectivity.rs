//! Who reaches whom, by which way: over the overlay and within a node, in Vpc `default` and in a tenant's, by a second
//! interface, from the node, and through the API server.

use crate::fixture::{Fixture, ask, until};
use crate::programs::succeeds;
use crate::workload::{container, reaches, server};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

/// The interfaces and endpoints of a Namespace are in the Subnets that they should be in, and every Pod shows the address of
/// its first interface.
#[track_caller]
fn expect_objects(fixture: &Fixture, namespace: &str, expected: &[(&str, &str)]) {
    let wide = succeeds(&mut fixture.kubectl(&format!("-n {namespace} get pod -o wide --no-headers")));
    for (name, subnet) in expected {
        let interface = fixture.get(&format!("-n {namespace} networkinterface {name}"));
        let endpoint = fixture.get(&format!("-n {namespace} networkendpoint {name}"));
        assert_eq!(
            (&interface["spec"]["subnet"], &endpoint["spec"]["subnet"]),
            (&json!(subnet), &json!(subnet)),
            "{name}"
        );
        let address = interface["status"]["address"].as_str().unwrap().split('/').next().unwrap();
        if let Some(pod) = name.strip_suffix(".eth0") {
            let row: Vec<&str> = wide
                .lines()
                .map(str::split_whitespace)
                .map(Iterator::collect::<Vec<_>>)
                .find(|row| row[0] == pod)
                .unwrap();
            assert_eq!(row[5], address, "{wide}");
        }
    }
}

/// Both reach each other.
#[track_caller]
fn both_ways(fixture: &Fixture, namespace: &str, pairs: &[(&str, &str)]) {
    for (one, other) in pairs.iter().flat_map(|(one, other)| [(one, other), (other, one)]) {
        let address = fixture.address(namespace, other);
        reaches(&fixture.inside(namespace, one), &address, &format!("{namespace}/{other}"));
    }
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn pods_and_nodes_of_vpc_default_reach_each_other() {
    let fixture = Fixture::shared();
    let _together = fixture.together();
    fixture.namespace("open");
    let pods = [("one", "node-1"), ("beside", "node-1"), ("away", "node-2")];
    let mut pods: Vec<Value> = pods.iter().map(|(name, node)| server("open", name, node, &[])).collect();
    // A kubelet asks these from its node; who is asked for what is not there is the positive control.
    let http = |path: &str| json!({ "httpGet": { "path": path, "port": 80 }, "periodSeconds": 1 });
    let mut failing = container("open", "failing");
    failing["readinessProbe"] = http("/later");
    let probed = &mut pods[0]["spec"]["containers"][0];
    probed["startupProbe"] =
        json!({ "exec": { "command": ["/bin/busybox", "test", "-e", "/tmp/who"] }, "periodSeconds": 1 });
    probed["livenessProbe"] = json!({ "tcpSocket": { "port": 80 }, "periodSeconds": 1 });
    probed["readinessProbe"] = http("/who");
    let mut never = server("open", "failing", "node-2", &[]);
    never["spec"]["containers"] = json!([failing]);
    fixture.make(&[never]);
    fixture.start(&pods);

    both_ways(&fixture, "open", &[("one", "beside"), ("one", "away")]);
    expect_objects(&fixture, "open", &[("one.eth0", "default"), ("beside.eth0", "default"), ("away.eth0", "default")]);
    for (node, pod) in [("node-1", "one"), ("node-1", "away"), ("node-2", "one")] {
        reaches(&fixture.host(node), &fixture.address("open", pod), &format!("open/{pod}"));
    }
    // A node is in no tenant's Vpc: red has a Pod at this address, which answers its own (`Fixture::expect_network`).
    fixture.host("node-1").expect_silence("10.0.1.20");

    // The kubelet asked the Pod itself.
    let one = fixture.get("-n open pod one");
    assert_eq!(one["metadata"]["annotations"]["juneau.loutres.me/probe-rewrite-version"], Value::Null);
    assert_eq!(one["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"], "/who");
    assert_eq!(one["status"]["containerStatuses"][0]["restartCount"], 0);
    fixture.expect_event("open", "failing", &["Unhealthy", "Readiness probe failed", "404"]);
    assert!(!fixture.is_ready("open", "failing"));
    succeeds(&mut fixture.kubectl("-n open exec failing -- /bin/busybox touch /tmp/later"));
    fixture.wait_for_pod("open", "failing");
    fixture.empty("open");
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn subnets_of_a_tenant_reach_each_other_and_a_pod_is_in_two_of_them() {
    let fixture = Fixture::shared();
    let _together = fixture.together();
    // Prefixes that red and blue have as well.
    fixture.tenant("shop", &[("shop-front", "10.0.1.0/24"), ("shop-back", "10.0.2.0/24")]);
    let (front, back) = ([("subnet", "shop-front")], [("subnet", "shop-back")]);
    let second = r#"[{"interface":"eth1","subnet":"shop-back","address":"10.0.2.77"}]"#;
    fixture.start(&[
        server("shop", "front", "node-1", &front),
        server("shop", "back", "node-1", &back),
        server("shop", "front-away", "node-2", &front),
        server("shop", "back-away", "node-2", &back),
        server("shop", "both", "node-1", &[("subnet", "shop-front"), ("networks", second)]),
    ]);
    // One Subnet on two nodes, two on one node, two on two nodes.
    both_ways(&fixture, "shop", &[("front", "front-away"), ("front", "back"), ("front", "back-away")]);
    let eth0 = |pod: &str| format!("{pod}.eth0");
    let names = ["front", "back", "front-away", "back-away", "both"].map(eth0);
    let subnets = ["shop-front", "shop-back", "shop-front", "shop-back", "shop-front"];
    let mut expected: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(subnets).collect();
    expected.push(("both.eth1", "shop-back"));
    expect_objects(&fixture, "shop", &expected);

    // Each of its interfaces leads to the Subnet that it is in, there and back.
    let both = fixture.inside("shop", "both");
    let first = fixture.address("shop", "both");
    for (peer, ours) in [("front-away", first.as_str()), ("back-away", "10.0.2.77")] {
        let theirs = fixture.address("shop", peer);
        assert_eq!(both.source_towards(&theirs), ours);
        reaches(&both, &theirs, &format!("shop/{peer}"));
        reaches(&fixture.inside("shop", peer), ours, "shop/both");
    }
    drop(both);
    fixture.empty("shop");
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn exec_logs_and_port_forward_lead_to_the_right_pod() {
    let fixture = Fixture::shared();
    let _together = fixture.together();
    // Two Pods with one address on one node, and one of Vpc default.
    fixture.namespace("front-desk");
    fixture.tenant("left", &[("left-a", "10.0.8.0/24")]);
    fixture.tenant("right", &[("right-a", "10.0.8.0/24")]);
    let place =
        |tenant: &str| server(tenant, "same", "node-2", &[("subnet", &format!("{tenant}-a")), ("address", "10.0.8.8")]);
    fixture.start(&[place("left"), place("right"), server("front-desk", "same", "node-2", &[])]);
    for namespace in ["left", "right", "front-desk"] {
        let who = format!("{namespace}/same");
        let entered = succeeds(&mut fixture.kubectl(&format!("-n {namespace} exec same -- /bin/busybox cat /tmp/who")));
        assert_eq!(entered.trim(), who);
        assert_eq!(succeeds(&mut fixture.kubectl(&format!("-n {namespace} logs same"))).trim(), who);
        assert_eq!(forwarded(&fixture, namespace, "same").as_deref(), Some(who.as_str()));
    }
    assert_eq!(fixture.address("left", "same"), fixture.address("right", "same"));
    ["left", "right", "front-desk"].iter().for_each(|namespace| fixture.empty(namespace));
}

/// Who answers behind `kubectl port-forward`.
fn forwarded(fixture: &Fixture, namespace: &str, pod: &str) -> Option<String> {
    let mut command = fixture.kubectl(&format!("-n {namespace} port-forward --address=127.0.0.1 pod/{pod} :80"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut line, mut said) = (String::new(), BufReader::new(child.stdout.take().unwrap()));
    said.read_line(&mut line).unwrap();
    // "Forwarding from 127.0.0.1:PORT -> 80"
    let place = line.split_whitespace().find_map(|word| word.parse().ok());
    let answer = place
        .map(|place| until("it answers", || ask(place, Duration::from_secs(2)).ok_or_else(|| "silence".to_owned())));
    child.kill().unwrap();
    child.wait().unwrap();
    // It tells of each connection, and ends when nobody listens.
    drop(said);
    answer
}
