//! The operator on a real API server, under its own ServiceAccount.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use std::time::Duration;
use support::{Cluster, OPERATOR, Operator, is_ready, object, pod};

const SUBNET: &str = "juneau.loutres.me/subnet";

fn only(tenant: &str) -> Value {
    json!({"allowedNamespaces": {"matchLabels": {"tenant": tenant}}})
}

async fn ready(cluster: &Cluster, operators: &[&Operator], kind: &str, name: &str) {
    let what = format!("{kind} {name} ready");
    cluster
        .until(&what, operators, async |cluster| cluster.get(kind, name).await.is_some_and(|object| is_ready(&object)))
        .await;
}

/// A Pod with probes of every kind.
fn probed(namespace: &str, name: &str, annotations: Value, change: &dyn Fn(&mut Value)) -> String {
    let mut pod: Value = serde_json::from_str(&pod(namespace, name, "node-a", annotations)).unwrap();
    pod["spec"]["containers"][0] = json!({
        "name": "c", "image": "none", "ports": [{"name": "web", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/ok", "port": "web"}, "timeoutSeconds": 3},
        "livenessProbe": {"tcpSocket": {"port": 8080}},
        "startupProbe": {"exec": {"command": ["true"]}},
        "lifecycle": {"preStop": {"httpGet": {"port": 8080}}},
    });
    change(&mut pod);
    pod.to_string()
}

fn probes_are_rewritten_where_the_node_cannot_ask(cluster: &Cluster) {
    let annotation =
        |pod: &Value, key: &str| pod["metadata"]["annotations"][format!("juneau.loutres.me/{key}")].clone();
    let get = |namespace: &str, name: &str| -> Value {
        serde_json::from_str(&cluster.run(&["get", "pod", "-n", namespace, name, "-o", "json"], "").unwrap()).unwrap()
    };
    let in_red = || json!({SUBNET: "red-a"});
    cluster.apply(&probed("red", "probed", in_red(), &|_| ()));
    let pod = get("red", "probed");
    assert_eq!(annotation(&pod, "probe-rewrite-version"), "v1");
    let container = &pod["spec"]["containers"][0];
    let mut tokens = std::collections::BTreeSet::new();
    for probe in [&container["readinessProbe"], &container["livenessProbe"], &container["lifecycle"]["preStop"]] {
        assert_eq!(
            (&probe["httpGet"]["host"], &probe["httpGet"]["port"]),
            (&json!("127.0.0.1"), &json!(9911)),
            "{probe}"
        );
        let path = probe["httpGet"]["path"].as_str().unwrap();
        tokens.insert(path.strip_prefix("/v1/probes/").unwrap().to_owned());
    }
    assert_eq!(container["readinessProbe"]["timeoutSeconds"], 3);
    assert_eq!(container["startupProbe"]["exec"]["command"], json!(["true"]));
    let configs: Value = serde_json::from_str(annotation(&pod, "probe-configs").as_str().unwrap()).unwrap();
    assert_eq!(configs.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>(), tokens);
    assert!(configs.to_string().contains(r#""port":8080"#), "{configs}");

    // What `kubectl get -o yaml` shows, under another name.
    let mut copy = pod.clone();
    copy["metadata"] = json!({"name": "copy", "namespace": "red", "annotations": pod["metadata"]["annotations"]});
    copy.as_object_mut().unwrap().remove("status");
    cluster.apply(&copy.to_string());
    let copied = annotation(&get("red", "copy"), "probe-configs");
    let copied: Value = serde_json::from_str(copied.as_str().unwrap()).unwrap();
    assert!(copied.as_object().unwrap().keys().all(|token| !tokens.contains(token)) && tokens.len() == 3, "{copied}");

    // A question that is somebody else's.
    let stolen = format!("/v1/probes/{}", tokens.first().unwrap());
    let thief = |pod: &mut Value| {
        let get = json!({"host": "127.0.0.1", "port": 9911, "path": stolen});
        pod["spec"]["containers"][0]["livenessProbe"] = json!({"httpGet": get});
    };
    for namespace in ["red", "blue"] {
        let said = cluster.try_apply(&probed(namespace, "asks", json!({}), &thief)).unwrap_err();
        assert!(said.contains("write the probe itself"), "{said}");
    }
    let by_hand = json!({SUBNET: "red-a", "juneau.loutres.me/probe-configs": "[]"});
    let said = cluster.try_apply(&probed("red", "by-hand", by_hand, &|_| ())).unwrap_err();
    assert!(said.contains("leave it out"), "{said}");

    // Untouched: in Vpc default, and on the node's own network.
    cluster.apply(&probed("blue", "near", json!({}), &|_| ()));
    cluster.apply(&probed("red", "host", in_red(), &|pod| pod["spec"]["hostNetwork"] = true.into()));
    for (namespace, name) in [("blue", "near"), ("red", "host")] {
        let pod = get(namespace, name);
        assert_eq!(pod["spec"]["containers"][0]["readinessProbe"]["httpGet"]["port"], "web", "{pod}");
        assert_eq!(annotation(&pod, "probe-rewrite-version"), Value::Null);
    }

    // What Pod Security says of `host` is explained.
    let level = "pod-security.kubernetes.io/enforce";
    cluster.run(&["label", "namespace", "red", &format!("{level}=baseline")], "").unwrap();
    let said = cluster.try_apply(&probed("red", "strict", in_red(), &|_| ())).unwrap_err();
    assert!(said.contains("violates PodSecurity"), "{said}");
    cluster.run(&["label", "namespace", "red", &format!("{level}-version=v1.33")], "").unwrap();
    cluster.apply(&probed("red", "strict", in_red(), &|_| ()));
    cluster.run(&["label", "namespace", "red", &format!("{level}-"), &format!("{level}-version-")], "").unwrap();
}

/// Writes of the operator that are not its Lease.
fn writes(cluster: &Cluster, since: &juneau_controlplane::AuditLog) -> usize {
    let _ = cluster;
    let all = since.events().unwrap();
    all.iter().filter(|event| event.user == OPERATOR && event.is_write() && event.resource != "leases").count()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn from_manifests_to_endpoints_with_few_writes_and_then_none() {
    let cluster = Cluster::start(true).await;
    let operator = Operator::start(&cluster, cluster.webhook).await;
    ready(&cluster, &[&operator], "Vpc", "default").await;
    ready(&cluster, &[&operator], "Subnet", "default").await;
    for node in ["juneau-node.node-a", "juneau-node.node-b"] {
        ready(&cluster, &[&operator], "NetworkEndpoint", node).await;
    }
    cluster.namespace("red", json!({}));
    // All in one go, as `kubectl apply -f` of a directory has it.
    let network =
        [object("Vpc", "red", only("red")), object("Subnet", "red-a", json!({"vpc": "red", "cidr": "10.0.1.0/24"}))];
    cluster.apply(&network.join("\n---\n"));
    ready(&cluster, &[&operator], "Subnet", "red-a").await;

    let log = cluster.control_plane.audit().from_now().unwrap();
    cluster.apply(&pod("red", "a", "node-a", json!({SUBNET: "red-a"})));
    ready(&cluster, &[&operator], "NetworkInterface", "a.eth0").await;
    let endpoint = cluster.get("NetworkEndpoint", "a.eth0").await.unwrap();
    assert_eq!((&endpoint["spec"]["nodeName"], &endpoint["status"]["nodeIP"]), (&json!("node-a"), &json!("192.0.2.1")));
    // The last writes of a start; the server puts them into its log a moment after it answered.
    let written = |resource: &str| {
        let all = log.events().unwrap();
        all.iter().any(|event| event.is_write() && event.resource == resource && event.name == "a.eth0")
    };
    cluster
        .until("the last writes are in the log", &[&operator], async |_| {
            written("networkendpoints/status") && written("networkinterfaces/status")
        })
        .await;
    let (needed, idle) = (writes(&cluster, &log), cluster.control_plane.audit().from_now().unwrap());
    assert!((1..=8).contains(&needed), "{needed} writes: {:?}", log.writes_of(OPERATOR).unwrap());
    // Nothing can be awaited here: that nothing comes is what is shown.
    let silence = if std::env::var_os("JUNEAU_LONG").is_some() { 60 } else { 10 };
    tokio::time::sleep(Duration::from_secs(silence)).await;
    assert_eq!(writes(&cluster, &idle), 0, "{:?}", idle.writes_of(OPERATOR).unwrap());
    cluster.nothing_was_forbidden();
    operator.stop();
    let lease =
        cluster.run(&["get", "lease", "-n", "juneau-system", "-o", "jsonpath={.items[*].spec.holderIdentity}"], "");
    assert_eq!(lease.unwrap(), "", "the Lease was not given back");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn the_webhook_answers_and_a_cluster_without_it_goes_on() {
    let cluster = Cluster::start(true).await;
    let operator = Operator::start(&cluster, cluster.webhook).await;
    ready(&cluster, &[&operator], "Subnet", "default").await;
    cluster.namespace("red", json!({}));
    cluster.namespace("blue", json!({}));
    for tenant in ["red", "blue"] {
        let mut vpc = only(tenant);
        vpc["endpointPool"] = json!({"cidrs": ["10.9.0.0/24"]});
        // An API server takes a moment to learn whom to trust.
        let made = object("Vpc", tenant, vpc);
        cluster.until("a Vpc is admitted", &[&operator], async |cluster| cluster.try_apply(&made).is_ok()).await;
        cluster.apply(&object("Subnet", &format!("{tenant}-a"), json!({"vpc": tenant, "cidr": "10.0.1.0/24"})));
    }
    ready(&cluster, &[&operator], "Subnet", "blue-a").await;
    cluster.apply(&object("RouteTable", "red-t", json!({"vpc": "red"})));
    let subnet = |name: &str, vpc: &str, cidr: &str| object("Subnet", name, json!({"vpc": vpc, "cidr": cidr}));
    let with_table =
        |table: &str| object("Subnet", "red-c", json!({"vpc": "red", "cidr": "10.0.3.0/24", "routeTable": table}));
    let endpoint = json!({"type": "endpoint", "endpointName": "a.eth0"});
    let route =
        |dst: &str| object("RouteTable", "red-u", json!({"vpc": "red", "routes": [{"dst": dst, "via": endpoint}]}));
    // What is refused and why, beside the same that is not.
    for (refused, says, taken) in [
        (subnet("red-b", "red", "10.0.1.128/25"), "Subnet red-a", subnet("red-b", "red", "10.0.2.0/24")),
        (subnet("x", "red", "10.9.0.0/24"), "endpoint pool of Vpc red", subnet("red-d", "red", "10.9.1.0/24")),
        (subnet("x", "absent", "10.0.0.0/24"), "Vpc absent does not exist", subnet("red-e", "red", "10.0.4.0/24")),
        (subnet("x", "default", "10.0.0.0/24"), "only one of Vpc default", subnet("red-f", "red", "10.0.5.0/24")),
        (with_table("blue"), "RouteTable blue belongs to Vpc blue", with_table("red-t")),
        (route("10.0.1.0/24"), "Subnet red-a", route("10.77.0.0/24")),
        (
            object("Vpc", "green", json!({"endpointPool": {"cidrs": ["10.1.0.0/24", "10.1.0.128/25"]}})),
            "overlap",
            object("Vpc", "green", json!({"endpointPool": {"cidrs": ["10.1.0.0/24"]}})),
        ),
        (
            pod("blue", "p", "node-a", json!({SUBNET: "red-a"})),
            "Namespace/blue may not enter Vpc/red",
            pod("red", "p", "node-a", json!({SUBNET: "red-a"})),
        ),
        (
            pod(
                "blue",
                "q",
                "node-a",
                json!({"juneau.loutres.me/networks": r#"[{"interface":"eth1","subnet":"red-a"}]"#}),
            ),
            "Namespace/blue may not enter Vpc/red",
            pod(
                "blue",
                "q",
                "node-a",
                json!({"juneau.loutres.me/networks": r#"[{"interface":"eth1","subnet":"blue-a"}]"#}),
            ),
        ),
        (
            pod("red", "r", "node-a", json!({SUBNET: "red-a", "juneau.loutres.me/address": "10.0.1.1"})),
            "is the gateway",
            pod("red", "r", "node-a", json!({SUBNET: "red-a", "juneau.loutres.me/address": "10.0.1.77"})),
        ),
        (
            pod("red", "p", "node-a", json!({SUBNET: "red-b"})),
            "cannot change",
            pod("red", "p", "node-a", json!({SUBNET: "red-a", "other": "annotation"})),
        ),
    ] {
        let said = cluster.try_apply(&refused).expect_err(&refused);
        assert!(said.contains(says), "{says:?} is not in {said}");
        cluster.apply(&taken);
    }
    let entering = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue", "annotations": {SUBNET: "red-a"}}});
    let said = cluster.try_apply(&entering.to_string()).unwrap_err();
    assert!(said.contains("Namespace/blue may not enter Vpc/red"), "{said}");
    cluster
        .until("interface", &[&operator], async |cluster| cluster.get("NetworkInterface", "p.eth0").await.is_some())
        .await;
    for (kind, name, says) in [
        ("vpc", "default", "cannot be deleted"),
        ("subnet", "default", "cannot be deleted"),
        ("vpc", "red", "in use by Subnet red-a"),
        ("subnet", "red-a", "NetworkInterface red/p.eth0"),
        ("routetable", "red", "main one of Vpc red"),
        ("routetable", "red-t", "in use by Subnet red-c"),
    ] {
        let said = cluster.run(&["delete", "--wait=false", kind, name], "").unwrap_err();
        assert!(said.contains(says), "{says:?} is not in {said}");
    }
    cluster.run(&["delete", "--wait=false", "vpc", "green"], "").unwrap();

    probes_are_rewritten_where_the_node_cannot_ask(&cluster);

    // Down: network objects wait for it, Pods do not, and what comes past it is closed by the plan.
    drop(operator);
    let said = cluster.try_apply(&subnet("late", "red", "10.0.200.0/24")).unwrap_err();
    assert!(said.contains("failed calling webhook"), "{said}");
    let probed = |namespace: &str, name: &str, change: &dyn Fn(&mut Value)| probed(namespace, name, json!({}), change);
    let said = cluster.try_apply(&probed("red", "unanswered", &|_| ())).unwrap_err();
    assert!(said.contains("failed calling webhook \"probes.juneau.loutres.me\""), "{said}");
    let exec = |pod: &mut Value| {
        let container = &mut pod["spec"]["containers"][0];
        container["readinessProbe"] = json!({"exec": {"command": ["true"]}});
        container.as_object_mut().unwrap().retain(|key, _| !matches!(key.as_str(), "livenessProbe" | "lifecycle"));
    };
    cluster.apply(&probed("red", "by-exec", &exec));
    cluster.apply(&probed("red", "of-the-node", &|pod| pod["spec"]["hostNetwork"] = true.into()));
    cluster.apply(&probed("red", "windows", &|pod| pod["spec"]["os"] = json!({"name": "windows"})));
    cluster.run(&["create", "serviceaccount", "default", "-n", "kube-system"], "").unwrap();
    cluster.apply(&probed("kube-system", "system", &|_| ()));
    cluster.apply(&pod("blue", "thief", "node-a", json!({SUBNET: "red-a"})));
    let operator = Operator::start(&cluster, cluster.webhook).await;
    cluster
        .until("the intruder is refused", &[&operator], async |cluster| {
            let nic = cluster.get("NetworkInterface", "thief.eth0").await.unwrap_or_default();
            nic["status"]["conditions"].to_string().contains("NamespaceNotAllowed")
        })
        .await;
    assert!(cluster.get("NetworkEndpoint", "thief.eth0").await.is_none());
    cluster
        .until("admission again", &[&operator], async |cluster| {
            cluster.try_apply(&subnet("late", "red", "10.0.200.0/24")).is_ok()
        })
        .await;
    cluster.nothing_was_forbidden();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn a_token_of_one_node_moves_no_endpoint_of_another() {
    let cluster = Cluster::start(false).await;
    cluster.namespace("red", json!({}));
    for node in ["node-a", "node-b"] {
        let endpoint = json!({"apiVersion": "juneau.loutres.me/v1alpha1", "kind": "NetworkEndpoint",
            "metadata": {"name": format!("{node}.eth0"), "namespace": "red"},
            "spec": {"kind": "Pod", "nodeName": node, "subnet": "red-a", "address": "10.0.1.4/24",
                     "macAddress": "02:00:00:00:00:01", "podRef": {"name": node, "interface": "eth0", "uid": "u"}}});
        cluster.apply(&endpoint.to_string());
    }
    let token = async |node: Option<&str>| {
        cluster.control_plane.service_account_kubeconfig("juneau-system", "juneau-agent", node).await.unwrap()
    };
    // By the request itself: kubectl reads before it writes, which an agent may not do one by one.
    let patch = async |kubeconfig: &std::path::Path, endpoint: &str, change: Value| {
        let client = support::client(kubeconfig).await;
        let path = format!("/apis/juneau.loutres.me/v1alpha1/namespaces/red/networkendpoints/{endpoint}");
        support::merge(&client, &path, change).await
    };
    let attachment = |ifindex: u32| json!({"spec": {"attachment": {"ifindex": ifindex, "containerID": "c"}}});
    let (of_a, unbound) = (token(Some("node-a")).await, token(None).await);
    // The policy is in force some moments after it was made.
    cluster
        .until("the policy is in force", &[], async |_| patch(&of_a, "node-b.eth0", attachment(7)).await.is_err())
        .await;
    patch(&of_a, "node-a.eth0", attachment(7)).await.unwrap();
    assert_eq!(cluster.get("NetworkEndpoint", "node-a.eth0").await.unwrap()["spec"]["attachment"]["ifindex"], 7);
    for (token, endpoint, change, says) in [
        (&of_a, "node-b.eth0", attachment(8), "another node"),
        (&of_a, "node-a.eth0", json!({"spec": {"nodeName": "node-b"}}), "another node"),
        (&of_a, "node-a.eth0", json!({"spec": {"address": "10.0.1.5/24"}}), "spec.attachment"),
        (&of_a, "node-a.eth0", json!({"spec": {"macAddress": "02:00:00:00:00:02"}}), "spec.attachment"),
        (&of_a, "node-a.eth0", json!({"spec": {"subnet": "blue-a"}}), "spec.attachment"),
        (&of_a, "node-a.eth0", json!({"spec": {"podRef": {"name": "x"}}}), "spec.attachment"),
        (&of_a, "node-a.eth0", json!({"metadata": {"labels": {"a": "b"}}}), "metadata"),
        (&of_a, "node-a.eth0", json!({"metadata": {"finalizers": ["a.b/c"]}}), "metadata"),
        (&unbound, "node-a.eth0", attachment(9), "not bound to a node"),
    ] {
        let said = patch(token, endpoint, change.clone()).await.expect_err(&change.to_string());
        assert!(said.contains(says), "{change}: {says:?} is not in {said}");
    }
    // Whatever else it may try, on its own node and on others.
    let thief = support::client(&of_a).await;
    const OURS: &str = "/apis/juneau.loutres.me/v1alpha1";
    let mut made = cluster.get("NetworkEndpoint", "node-a.eth0").await.unwrap();
    made["metadata"] = json!({"name": "new.eth0", "namespace": "red"});
    let nothing = json!({"metadata": {"labels": {"a": "b"}}});
    let vpc: Value = serde_json::from_str(&object("Vpc", "mine", json!({}))).unwrap();
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let tries = [
        ("POST", format!("{OURS}/namespaces/red/networkendpoints"), &made),
        ("DELETE", format!("{OURS}/namespaces/red/networkendpoints/node-a.eth0"), &Value::Null),
        ("DELETE", format!("{OURS}/namespaces/red/networkendpoints/node-b.eth0"), &Value::Null),
        ("PATCH", format!("{OURS}/namespaces/red/networkendpoints/node-a.eth0/status"), &nothing),
        ("PATCH", format!("{OURS}/namespaces/red/networkendpoints/node-b.eth0/status"), &nothing),
        ("PATCH", format!("{OURS}/namespaces/red/networkinterfaces/node-a.eth0"), &nothing),
        ("PATCH", format!("{OURS}/namespaces/red/networkinterfaces/node-a.eth0/status"), &nothing),
        ("POST", format!("{OURS}/vpcs"), &vpc),
        ("PATCH", format!("{OURS}/vpcs/default"), &nothing),
        ("PATCH", format!("{OURS}/subnets/default/status"), &nothing),
        ("PATCH", format!("{OURS}/routetables/default"), &nothing),
        ("GET", format!("{OURS}/allocationleases"), &Value::Null),
        ("DELETE", format!("{OURS}/allocationleases/subnet-ip-default--10-16-0-4"), &Value::Null),
        ("GET", "/api/v1/secrets".to_owned(), &Value::Null),
        ("GET", "/api/v1/namespaces/juneau-system/secrets/webhook-certs".to_owned(), &Value::Null),
        ("GET", "/api/v1/configmaps".to_owned(), &Value::Null),
        ("PATCH", "/api/v1/namespaces/red".to_owned(), &nothing),
        ("PATCH", "/api/v1/nodes/node-b/status".to_owned(), &nothing),
        ("PATCH", "/api/v1/namespaces/red/pods/node-a".to_owned(), &nothing),
        ("DELETE", "/api/v1/namespaces/red/pods/node-a".to_owned(), &Value::Null),
        ("POST", "/api/v1/namespaces/juneau-system/serviceaccounts/juneau-operator/token".to_owned(), &token),
        ("POST", "/api/v1/namespaces/juneau-system/serviceaccounts/juneau-agent/token".to_owned(), &token),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/juneau-system/leases".to_owned(), &Value::Null),
    ];
    for (method, path, body) in &tries {
        let said = support::ask(&thief, method, path, (!body.is_null()).then_some(*body)).await;
        assert!(said.as_ref().is_err_and(|said| said.contains("orbidden")), "{method} {path}: {said:?}");
        // The same by who may: it is the right that is missing, not the object, and not the request that is malformed.
        let granted = support::ask(&cluster.client, method, path, (!body.is_null()).then_some(*body)).await;
        let refused = granted.is_err_and(|said| said.contains("orbidden") || said.contains("BadRequest"));
        assert!(!refused, "{method} {path}");
    }
    // What it works with.
    for path in ["/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces"] {
        support::ask(&thief, "GET", path, None).await.unwrap();
    }
    for plural in ["vpcs", "subnets", "routetables", "networkinterfaces", "networkendpoints"] {
        support::ask(&thief, "GET", &format!("{OURS}/{plural}"), None).await.unwrap();
    }
}
