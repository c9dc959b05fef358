//! Reports of clusters as the operator plans them, and of others, held against files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_api::view::ObjectName;
use juneau_cli::error::CliError;
use juneau_cli::render::{self, Style};
use juneau_cli::report::{self, TargetKind, Trace, TraceWish, Verdict};
use juneau_cli::snapshot::{Hidden, ObjectRef, Probe, Snapshot, What};
use juneau_cni::protocol::Explanation;
use juneau_operator::view::Kind;
use serde_json::{Value, json};
use support::{World, compare};

/// The example's two tenants, attached, all well.
fn tenants() -> World {
    let mut world = World::new();
    for file in ["red", "blue"] {
        let path = format!("{}/../examples/tenants/{file}.yaml", env!("CARGO_MANIFEST_DIR"));
        world.manifests(&std::fs::read_to_string(path).unwrap());
    }
    world.settle();
    world.attach();
    world.sleep(60);
    world.renew();
    world
}

/// All that can be wrong with objects at once.
fn broken() -> World {
    let mut world = tenants();
    world.juneau("Subnet", "orphan", json!({"vpc": "gone", "cidr": "10.9.0.0/24"}));
    world.juneau("Subnet", "red-tiny", json!({"vpc": "red", "cidr": "10.0.9.0/28"}));
    for number in 0..12 {
        world.pod("red", &format!("t{number:02}"), json!({"juneau.loutres.me/subnet": "red-tiny"}));
        world.settle();
    }
    world.juneau(
        "RouteTable",
        "red",
        json!({"vpc": "red", "routes": [
        {"dst": "172.16.0.0/12", "via": {"type": "endpoint", "endpointName": "firewall.eth0"}},
        {"dst": "192.168.0.0/16", "via": {"type": "endpoint", "endpointName": "b1.eth0"}},
        {"dst": "192.168.0.0/16", "via": {"type": "endpoint", "endpointName": "b2.eth0"}},
        {"dst": "10.0.2.0/24", "via": {"type": "endpoint", "endpointName": "b1.eth0"}}]}),
    );
    world.pod("blue", "stranger", json!({"juneau.loutres.me/subnet": "red-a"}));
    world.pod("red", "typo", json!({"juneau.loutres.me/networks": "eth1"}));
    world.put(json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "green", "annotations": {"juneau.loutres.me/subnet": "red-a"}}}));
    world.settle();
    world.sleep(20);
    world.attach();
    world.renew();
    world
}

fn describe(snapshot: &Snapshot, kind: TargetKind, name: &str) -> String {
    let target = report::target(kind, name, None);
    let found = report::describe(snapshot, &target).unwrap_or_else(|error| panic!("{error}"));
    found.iter().map(|found| render::description(found, Style::default())).collect()
}

fn status(snapshot: &Snapshot) -> String {
    render::status(&report::status(snapshot), Style::default())
}

/// What is off, as `object reason`.
fn off(snapshot: &Snapshot) -> Vec<String> {
    let report = report::status(snapshot);
    assert_eq!(report.verdict, if report.problems.is_empty() { Verdict::Well } else { Verdict::Off });
    for problem in &report.problems {
        assert!(!problem.message.is_empty() && !problem.remedy.is_empty(), "{problem:?}");
    }
    report.problems.iter().map(|problem| format!("{} {}", problem.object, problem.reason)).collect()
}

#[test]
fn a_cluster_that_is_well() {
    let snapshot = tenants().snapshot();
    assert_eq!(off(&snapshot), Vec::<String>::new());
    compare("status-well.txt", &status(&snapshot));
    compare("vpc-well.txt", &describe(&snapshot, TargetKind::Vpc, "red"));
    compare("subnet-well.txt", &describe(&snapshot, TargetKind::Subnet, "red-a"));
    compare("routetable-well.txt", &describe(&snapshot, TargetKind::RouteTable, "red"));
    compare("interface-well.txt", &describe(&snapshot, TargetKind::NetworkInterface, "red/a1.eth0"));
    let mut snapshot = snapshot;
    let agent = json!({"metadata": {"name": "juneau-agent-x7"}, "spec": {"nodeName": "node-1", "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let name = ObjectName::new("juneau-system", "juneau-agent-x7");
    snapshot.agents.insert(name, serde_json::from_value(agent).unwrap());
    compare("pod-well.txt", &describe(&snapshot, TargetKind::Pod, "red/a1"));
}

/// What an agent says of a packet.
fn explanation(action: &str, reason: &str, text: &str, more: &Value) -> Explanation {
    let mut said = json!({"action": action, "reason": reason, "text": text, "answered": false, "ifindex": null,
        "vtep": null, "vni": null, "steps": []});
    for (name, value) in more.as_object().unwrap() {
        said[name] = value.clone();
    }
    serde_json::from_value(said).unwrap()
}

fn wish(destination: &str) -> TraceWish {
    TraceWish {
        pod: ObjectName::new("red", "a1"),
        interface: "eth0".into(),
        destination: destination.into(),
        protocol: None,
    }
}

#[test]
fn a_packet_is_followed_from_node_to_node() {
    let snapshot = tenants().snapshot();
    let endpoint = &snapshot.endpoints[&ObjectName::new("red", "b2.eth0")];
    let address = endpoint.spec.address.clone().unwrap();
    let address = address.split('/').next().unwrap();
    for destination in ["red/b2:8080", "b2:8080", &format!("{address}:8080")] {
        let mut trace = Trace::begin(&snapshot, &wish(destination)).unwrap();
        let first = trace.ask().unwrap();
        assert_eq!(first.node, "node-1");
        let words = format!("explain red/a1 --interface=eth0 --to={address} --protocol=tcp --port=8080 --output=json");
        assert_eq!(first.words.join(" "), words);
        let steps = json!([{"stage": "route", "text": "to it: connected, VNI 5", "code": 1, "values": [20, 1, 5, 0]}]);
        let encap = json!({"vtep": "192.0.2.2", "vni": 5, "steps": steps});
        trace.answered(&first, &explanation("encap", "ok", "delivered", &encap));
        let second = trace.ask().unwrap();
        assert_eq!((second.node.as_str(), second.words[1].as_str()), ("node-2", "red/b2"));
        assert_eq!(second.words[7..], ["--from-node=192.0.2.1", "--vni=5", "--from=10.0.1.10"]);
        let device = endpoint.spec.attachment.as_ref().unwrap().ifindex;
        trace.answered(&second, &explanation("peer", "ok", "delivered", &json!({"ifindex": device})));
        assert_eq!(trace.ask(), None);
        let report = trace.end();
        assert!(report.delivered);
        compare("trace-two-nodes.txt", &render::trace(&report, Style::default()));
    }
}

#[test]
fn where_a_packet_ends_is_told_with_what_helps() {
    let snapshot = tenants().snapshot();
    // Dropped on the other node.
    let mut trace = Trace::begin(&snapshot, &wish("b2")).unwrap();
    let first = trace.ask().unwrap();
    assert!(first.words.contains(&"--protocol=icmp".to_owned()), "{first:?}");
    trace.answered(&first, &explanation("encap", "ok", "delivered", &json!({"vtep": "192.0.2.2", "vni": 5})));
    let second = trace.ask().unwrap();
    trace.answered(&second, &explanation("drop", "overlay-destination", "no endpoint here has it", &json!({})));
    assert_eq!(trace.ask(), None);
    let report = trace.end();
    assert!(!report.delivered);
    compare("trace-dropped.txt", &render::trace(&report, Style::default()));

    // Of another Vpc, and an address that nobody has.
    let mut trace = Trace::begin(&snapshot, &wish("blue/a1")).unwrap();
    assert!(trace.ask().unwrap().words.contains(&"--to=10.0.1.10".to_owned()));
    assert!(trace.end().notes[0].contains("VPCs do not reach each other"));
    let mut trace = Trace::begin(&snapshot, &wish("172.16.0.1")).unwrap();
    let question = trace.ask().unwrap();
    trace.answered(&question, &explanation("answer", "no-route", "no route", &json!({"answered": true})));
    let report = trace.end();
    assert!(!report.delivered && report.hops[0].remedy.as_ref().unwrap().contains("RouteTable"), "{report:?}");
    assert_eq!(report.notes, ["no Pod of Vpc/red has 172.16.0.1"]);
    // A Node.
    let mut trace = Trace::begin(&snapshot, &wish("node-2:22")).unwrap();
    assert!(trace.ask().unwrap().words.contains(&"--to=192.0.2.2".to_owned()));
    // An agent that hands a packet to where nobody is known.
    let mut trace = Trace::begin(&snapshot, &wish("172.16.0.1")).unwrap();
    let question = trace.ask().unwrap();
    trace.answered(&question, &explanation("encap", "ok", "delivered", &json!({"vtep": "192.0.2.9", "vni": 5})));
    assert_eq!(trace.ask(), None);
    assert!(!trace.end().delivered);

    for (wish, says) in [
        (wish("red/b3"), "Pod/red/b3 does not exist; did you mean one of"),
        (wish("red/b2:0"), "\"0\" is no port"),
        (
            TraceWish { interface: "eth7".into(), ..wish("red/b2") },
            "interface eth7 of Pod/red/a1 does not exist; did you mean eth0?",
        ),
        (TraceWish { protocol: Some("udp".into()), ..wish("red/b2") }, "udp goes to a port: write red/b2:PORT"),
        (
            TraceWish { pod: ObjectName::new("red", "a11"), ..wish("red/b2") },
            "Pod/red/a11 does not exist; did you mean",
        ),
    ] {
        let error = Trace::begin(&snapshot, &wish).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn everything_that_is_off_is_named_with_what_helps() {
    let world = broken();
    let snapshot = world.snapshot();
    assert_eq!(
        off(&snapshot),
        [
            "Namespace/green NamespaceNotAllowed",
            "NetworkInterface/blue/stranger.eth0 NamespaceNotAllowed",
            "NetworkInterface/red/t11.eth0 SubnetExhausted",
            "Pod/red/typo InvalidAnnotation",
            "RouteTable/red TargetNotFound",
            "RouteTable/red DuplicateDestination",
            "Subnet/orphan VpcNotFound",
        ]
    );
    compare("status-broken.txt", &status(&snapshot));
    compare("vpc-broken.txt", &describe(&snapshot, TargetKind::Vpc, "red"));
    compare("subnet-orphan.txt", &describe(&snapshot, TargetKind::Subnet, "orphan"));
    compare("interface-stranger.txt", &describe(&snapshot, TargetKind::NetworkInterface, "blue/stranger.eth0"));
    compare("pod-waits.txt", &describe(&snapshot, TargetKind::Pod, "red/t11"));
    compare("pod-typo.txt", &describe(&snapshot, TargetKind::Pod, "red/typo"));
}

#[test]
fn what_is_repaired_is_off_no_more() {
    let mut world = broken();
    world.juneau("Vpc", "gone", json!({}));
    for (namespace, pod) in [("red", "t00"), ("red", "typo"), ("blue", "stranger")] {
        world.remove(Kind::Pod, namespace, pod);
    }
    world.juneau("RouteTable", "red", json!({"vpc": "red"}));
    world.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "green"}}));
    world.settle();
    world.attach();
    assert_eq!(off(&world.snapshot()), Vec::<String>::new());
    // The warnings are still told, as what was.
    assert!(!report::status(&world.snapshot()).warnings.is_empty());
}

#[test]
fn an_operator_that_does_not_write() {
    let mut world = tenants();
    world.sleep(16);
    assert_eq!(off(&world.snapshot()), Vec::<String>::new());
    world.sleep(104);
    let gone = "Lease/juneau-system/e810463e.juneau.loutres.me LeaderGone";
    assert_eq!(off(&world.snapshot()), [gone]);
    // What is made meanwhile is looked at by nobody.
    world.juneau("Subnet", "red-c", json!({"vpc": "red", "cidr": "10.0.3.0/24"}));
    world.juneau("Vpc", "red", json!({"enforceSecurityGroups": true}));
    world.pod("red", "late", json!({"juneau.loutres.me/subnet": "red-c"}));
    world.sleep(20);
    assert_eq!(
        off(&world.snapshot()),
        [gone, "Pod/red/late NoInterface", "Subnet/red-c NoStatus", "Vpc/red StaleStatus"]
    );
    compare("status-no-operator.txt", &status(&world.snapshot()));
    world.lease.as_mut().unwrap()["spec"]["holderIdentity"] = "".into();
    assert!(off(&world.snapshot())[0].ends_with("NoLeader"));
    world.lease = None;
    assert!(off(&world.snapshot())[0].ends_with("OperatorMissing"));
}

#[test]
fn a_clock_that_is_wrong_does_not_hide_a_leader() {
    let mut world = tenants();
    let lease = world.lease.as_mut().unwrap();
    // The leader's clock is an hour behind; the API server's says when it wrote.
    lease["spec"]["renewTime"] = "2027-01-15T06:59:00.000000Z".into();
    assert_eq!(off(&world.snapshot()).len(), 1);
    let time = format!("{}", world.now);
    world.lease.as_mut().unwrap()["metadata"]["managedFields"] = json!([{"manager": "juneau-operator", "operation": "Update", "apiVersion": "coordination.k8s.io/v1", "time": time}]);
    assert_eq!(off(&world.snapshot()), Vec::<String>::new());
}

#[test]
fn a_webhook_that_nobody_asks_or_trusts() {
    let mut world = tenants();
    let reason = |world: &World| off(&world.snapshot());
    let of = |reason: &str| vec![format!("ValidatingWebhookConfiguration/juneau {reason}")];
    world.certificate(68);
    assert_eq!(reason(&world), Vec::<String>::new());
    world.certificate(80);
    assert_eq!(reason(&world), of("CertificateExpiring"));
    world.certificate(91);
    assert_eq!(reason(&world), of("CertificateExpired"));
    let bundle = &mut world.webhook.as_mut().unwrap()["webhooks"][0]["clientConfig"]["caBundle"];
    *bundle = "bm90aGluZw==".into();
    assert_eq!(reason(&world), of("InvalidCABundle"));
    world.webhook.as_mut().unwrap()["webhooks"][0]["clientConfig"] = json!({"url": "https://127.0.0.1:9443/x"});
    assert_eq!(reason(&world), of("NoCABundle"));
    world.webhook = None;
    assert_eq!(reason(&world), of("WebhookMissing"));
    world.certificate(0);
    let mut snapshot = world.snapshot();
    snapshot.probe = Some(Probe::Answers);
    assert_eq!(off(&snapshot), Vec::<String>::new());
    snapshot.probe = Some(Probe::Silent("connection refused".to_owned()));
    assert_eq!(off(&snapshot), of("WebhookSilent"));
}

#[test]
fn a_node_whose_agent_does_nothing_is_named_once() {
    let mut world = World::new();
    world.namespace("red");
    world.juneau("Vpc", "red", json!({}));
    world.juneau("Subnet", "red-a", json!({"vpc": "red", "cidr": "10.0.1.0/24"}));
    for pod in ["a1", "a2"] {
        world.pod("red", pod, json!({"juneau.loutres.me/subnet": "red-a"}));
    }
    world.settle();
    world.renew();
    // Endpoints that are no Pod's are attached by nobody.
    world.put(json!({"apiVersion": support::API_VERSION, "kind": "NetworkEndpoint",
        "metadata": {"name": "juneau-node.node-2", "namespace": "juneau-system"},
        "spec": {"kind": "Node", "nodeName": "node-2", "subnet": "default", "address": "10.16.0.9/16"}}));
    assert_eq!(off(&world.snapshot()), Vec::<String>::new(), "it has half a minute");
    world.sleep(40);
    world.renew();
    assert_eq!(off(&world.snapshot()), ["Node/node-1 AgentSilent"]);
    // It is told of the interface itself as well.
    let told = describe(&world.snapshot(), TargetKind::NetworkInterface, "red/a1.eth0");
    assert!(told.contains("✗ WaitingForInterface") && told.contains("spec.nodeName=node-1"), "{told}");
    // One of the two is attached: then it is that interface alone.
    world.attach();
    let mut snapshot = world.snapshot();
    let name = ObjectName::new("red", "a2.eth0");
    snapshot.endpoints.get_mut(&name).unwrap().spec.attachment = None;
    assert_eq!(off(&snapshot), ["NetworkInterface/red/a2.eth0 WaitingForInterface"]);
    let agent = |ready: &str| {
        serde_json::from_value(json!({"metadata": {"name": "juneau-agent-x", "namespace": "juneau-system"},
            "spec": {"nodeName": "node-1", "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
        .unwrap()
    };
    let mut snapshot = world.snapshot();
    snapshot.agents.insert(ObjectName::new("juneau-system", "juneau-agent-x"), agent("True"));
    assert_eq!(off(&snapshot), Vec::<String>::new());
    snapshot.agents.insert(ObjectName::new("juneau-system", "juneau-agent-x"), agent("False"));
    assert_eq!(off(&snapshot), ["Pod/juneau-system/juneau-agent-x AgentNotReady"]);
    // There are agents, but none on this node any more.
    let mut elsewhere: k8s_openapi::api::core::v1::Pod = agent("True");
    elsewhere.spec.as_mut().unwrap().node_name = Some("node-2".to_owned());
    snapshot.agents.insert(ObjectName::new("juneau-system", "juneau-agent-x"), elsewhere);
    assert_eq!(off(&snapshot), ["Node/node-1 AgentMissing"]);
}

#[test]
fn what_is_being_deleted_says_what_it_waits_for() {
    let mut world = tenants();
    world.delete(Kind::Vpc, "red");
    world.settle();
    assert_eq!(off(&world.snapshot()), ["Vpc/red InUse"]);
    let told = describe(&world.snapshot(), TargetKind::Vpc, "red");
    assert!(told.contains("waits for Subnet/red-a, Subnet/red-b"), "{told}");
}

#[test]
fn without_rights_the_rest_is_shown() {
    let mut snapshot = tenants().snapshot();
    for what in [What::Lease, What::Webhook, What::Node, What::Agent, What::Namespace] {
        snapshot.read.remove(&what);
        let why = format!("may not list {}", what.plural());
        snapshot.hidden.push(Hidden { what, why, failed: false });
    }
    snapshot.read.remove(&What::Event);
    let why = "may not list Events in red".to_owned();
    snapshot.hidden.push(Hidden { what: What::Event, why, failed: false });
    (snapshot.lease, snapshot.webhook) = (None, None);
    (snapshot.nodes, snapshot.namespaces, snapshot.events) = Default::default();
    assert_eq!(off(&snapshot), Vec::<String>::new());
    compare("status-view.txt", &status(&snapshot));
    let told = describe(&snapshot, TargetKind::Vpc, "red");
    assert!(told.contains("may not list Events in red"), "{told}");
    assert!(told.contains("may enter: Namespaces with kubernetes.io/metadata.name=red\n"), "{told}");
    // A failure is no lack of rights: then nobody can tell.
    snapshot.hidden[0].failed = true;
    assert_eq!(report::status(&snapshot).verdict, Verdict::Unknown);
    // Nothing at all.
    snapshot.hidden[0].failed = false;
    snapshot.read.clear();
    assert_eq!(report::status(&snapshot).verdict, Verdict::Unknown);
    let error = report::describe(&snapshot, &report::target(TargetKind::Vpc, "red", None)).unwrap_err();
    assert!(matches!(error, CliError::Forbidden { .. }) && error.to_string().contains("--clusterrole=view"), "{error}");
}

#[test]
fn names_that_do_not_exist_have_near_ones() {
    let snapshot = tenants().snapshot();
    let ask = |kind, name: &str, namespace: Option<&str>| {
        let target = report::target(kind, name, namespace.map(str::to_owned));
        report::describe(&snapshot, &target).unwrap_err().to_string()
    };
    assert_eq!(ask(TargetKind::Vpc, "rde", None), "Vpc/rde does not exist; did you mean red?");
    assert_eq!(ask(TargetKind::Subnet, "red", None), "Subnet/red does not exist; did you mean one of red-a, red-b?");
    let told = ask(TargetKind::NetworkInterface, "a1.eth1", Some("red"));
    assert!(told.starts_with("NetworkInterface/red/a1.eth1 does not exist; did you mean one of a1.eth0"), "{told}");
    assert_eq!(
        ask(TargetKind::Pod, "a1", Some("default")),
        "Pod/default/a1 does not exist; did you mean one of blue/a1, red/a1?"
    );
    let all = report::describe(&snapshot, &report::target(TargetKind::Pod, "a1", None)).unwrap();
    assert_eq!(all.len(), 2, "both Namespaces have one");
}

#[test]
fn reports_are_json_that_programs_can_read() {
    let snapshot = broken().snapshot();
    let json = serde_json::to_value(report::status(&snapshot)).unwrap();
    assert_eq!(json["verdict"], "off");
    let orphan = json["problems"].as_array().unwrap().iter().find(|problem| problem["object"]["name"] == "orphan");
    assert_eq!(orphan.unwrap()["object"], json!({"kind": "Subnet", "name": "orphan"}));
    assert_eq!(orphan.unwrap()["reason"], "VpcNotFound");
    let of = |kind, name: &str| -> Value {
        let found = report::describe(&snapshot, &report::target(kind, name, None)).unwrap();
        serde_json::to_value(&found[0]).unwrap()
    };
    let vpc = of(TargetKind::Vpc, "red");
    assert_eq!((&vpc["kind"], &vpc["entry"]["namespaces"]), (&json!("Vpc"), &json!(["red"])));
    let tiny = vpc["subnets"].as_array().unwrap().iter().find(|subnet| subnet["name"] == "red-tiny").unwrap();
    assert_eq!(tiny["addresses"], json!({"total": 11, "used": 11, "resting": 0, "free": 0}));
    let states: Vec<_> =
        vpc["routeTables"][0]["routes"].as_array().unwrap().iter().map(|route| &route["state"]).collect();
    assert_eq!(
        states,
        ["inForce", "inForce", "inForce", "leadsNowhere", "inForce", "leftOut", "leftOut"]
            .map(Value::from)
            .iter()
            .collect::<Vec<_>>()
    );
    let nic = of(TargetKind::NetworkInterface, "red/a1.eth0");
    assert_eq!(
        (&nic["kind"], &nic["address"], &nic["vpc"]),
        (&json!("NetworkInterface"), &json!("10.0.1.10/24"), &json!("red"))
    );
}

#[test]
fn objects_without_any_status_are_shown() {
    // The fixtures stand for a cluster of an earlier release, without conditions.
    let mut world = World::new();
    for file in ["cluster", "red", "blue"] {
        let path = format!("{}/../juneau-api/tests/fixtures/two-tenants/{file}.yaml", env!("CARGO_MANIFEST_DIR"));
        world.manifests(&std::fs::read_to_string(path).unwrap());
    }
    world.sleep(5);
    world.renew();
    assert_eq!(off(&world.snapshot()), Vec::<String>::new(), "it is too early to tell");
    compare("vpc-without-conditions.txt", &describe(&world.snapshot(), TargetKind::Vpc, "red"));
    world.sleep(10);
    assert!(off(&world.snapshot()).contains(&"Vpc/red NoStatus".to_owned()));
}

#[test]
fn a_large_subnet_is_cut_and_a_full_pool_is_told() {
    let mut world = tenants();
    world.juneau("Subnet", "red-mid", json!({"vpc": "red", "cidr": "10.0.8.0/26"}));
    for number in 0..56 {
        world.pod("red", &format!("m{number:02}"), json!({"juneau.loutres.me/subnet": "red-mid"}));
    }
    world.settle();
    world.attach();
    let snapshot = world.snapshot();
    assert_eq!(off(&snapshot), Vec::<String>::new());
    let told = status(&snapshot);
    assert!(told.contains("subnet-ip-red-mid: 56 of 59 used, 3 free"), "{told}");
    let tree = describe(&snapshot, TargetKind::Subnet, "red-mid");
    assert!(tree.contains("and 6 interfaces more; -o json lists all"), "{tree}");
}

#[test]
fn an_object_of_another_release_is_told() {
    let mut snapshot = tenants().snapshot();
    snapshot.undecodable.push(juneau_cli::snapshot::Undecodable {
        what: What::NetworkInterface,
        name: ObjectName::new("red", "new.eth0"),
        error: "missing field".to_owned(),
    });
    assert_eq!(off(&snapshot), ["NetworkInterface/red/new.eth0 Undecodable"]);
    let object = &report::status(&snapshot).problems[0].object;
    assert_eq!(*object, ObjectRef::named("NetworkInterface", &ObjectName::new("red", "new.eth0")));
}

#[test]
fn the_handbook_shows_what_is_printed() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../docs/cli.md")).unwrap();
    for name in ["status-broken.txt", "interface-well.txt", "pod-waits.txt"] {
        let text = std::fs::read_to_string(root.join("tests/snapshots").join(name)).unwrap();
        assert!(page.contains(&text), "docs/cli.md does not show {name} as it is now");
    }
}

#[test]
fn ten_thousand_interfaces_that_all_wait_take_a_moment() {
    let mut snapshot = tenants().snapshot();
    let of = ObjectName::new("red", "a1.eth0");
    let (nic, endpoint) = (snapshot.interfaces[&of].clone(), snapshot.endpoints[&of].clone());
    let claim_name = nic.status.as_ref().unwrap().allocation_claim.clone().unwrap();
    let lease = snapshot.leases.values().find(|lease| lease.spec.claim_ref.name == claim_name).unwrap().clone();
    let claim = snapshot.claims[&claim_name].clone();
    for number in 0..10_000 {
        let (name, own) = (ObjectName::new("red", format!("p{number}.eth0")), format!("claim-{number}"));
        let (mut nic, mut endpoint, mut lease) = (nic.clone(), endpoint.clone(), lease.clone());
        nic.status.as_mut().unwrap().allocation_claim = Some(own.clone());
        endpoint.spec.attachment = None;
        lease.spec.claim_ref.name.clone_from(&own);
        snapshot.interfaces.insert(name.clone(), nic);
        snapshot.endpoints.insert(name, endpoint);
        snapshot.claims.insert(own.clone(), claim.clone());
        snapshot.leases.insert(format!("lease-{number}"), lease);
    }
    let begun = std::time::Instant::now();
    let told = status(&snapshot);
    let tree = describe(&snapshot, TargetKind::Vpc, "red");
    let took = begun.elapsed();
    assert!(told.contains("and 9970 more; -o json lists all") && told.contains("10000 things are off"), "{told}");
    assert!(tree.contains("and 9952 interfaces more"), "{tree}");
    // Without optimisation, beside other tests. What grows with the square takes minutes.
    assert!(took.as_secs() < 20, "{took:?}");
}
