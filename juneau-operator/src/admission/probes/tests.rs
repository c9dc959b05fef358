use super::*;
use crate::admission::Request;
use crate::view::Object;
use juneau_api::probes::is_token;
use proptest::prelude::*;

/// Applies a patch that has no other operations than ours.
fn apply(pod: &Value, patch: &[Value]) -> Value {
    let mut pod = pod.clone();
    for operation in patch {
        let path = operation["path"].as_str().unwrap();
        let (parent, member) = path.rsplit_once('/').unwrap();
        let member = member.replace("~1", "/");
        let parent = pod.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match operation["op"].as_str().unwrap() {
            "remove" => drop(parent.remove(&member).unwrap()),
            "replace" => drop(parent.insert(member, operation["value"].clone()).unwrap()),
            "add" => drop(parent.insert(member, operation["value"].clone())),
            other => panic!("{other}"),
        }
    }
    pod
}

/// Tokens that differ.
fn counter(first: u32) -> impl FnMut() -> String {
    let mut next = first;
    move || {
        next += 1;
        format!("{next:032x}")
    }
}

fn rewritten(pod: &Value, first: u32) -> Value {
    apply(pod, &rewrite(pod, true, &mut counter(first)).unwrap())
}

fn configs(pod: &Value) -> BTreeMap<String, Config> {
    assert_eq!(pod["metadata"]["annotations"][VERSION_KEY], VERSION);
    parse(pod["metadata"]["annotations"][CONFIGS].as_str().unwrap()).unwrap()
}

/// The token of a probe that asks the agent.
#[track_caller]
fn asked(probe: &Value) -> &str {
    let get = &probe["httpGet"];
    assert_eq!((&get["host"], &get["port"], &get["scheme"]), (&json!(HOST), &json!(PORT), &json!("HTTP")), "{probe}");
    token(get["path"].as_str().unwrap()).unwrap()
}

fn pod(containers: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})
}

#[test]
fn probes_become_questions_and_the_rest_stays_with_the_kubelet() {
    let get =
        json!({"path": "/ok?a=b", "port": "web", "scheme": "HTTPS", "httpHeaders": [{"name": "Host", "value": "h"}]});
    let before = json!({"metadata": {"annotations": {"mine": "stays"}}, "spec": {
        "containers": [{
            "name": "main",
            "ports": [{"name": "web", "containerPort": 8443}],
            "readinessProbe": {"httpGet": get, "timeoutSeconds": 3, "periodSeconds": 7, "failureThreshold": 9},
            "livenessProbe": {"tcpSocket": {"port": 25}, "timeoutSeconds": 1, "terminationGracePeriodSeconds": 4},
            "startupProbe": {"grpc": {"port": 50, "service": "s"}},
            "lifecycle": {"postStart": {"httpGet": {"port": 1, "path": "/up"}}, "preStop": {"exec": {"command": ["a"]}}},
        }],
        "initContainers": [{"name": "side", "restartPolicy": "Always", "readinessProbe": {"tcpSocket": {"port": "none"}}}],
    }});
    let after = rewritten(&before, 0);
    let configs = configs(&after);
    assert_eq!(configs.len(), 5);
    assert_eq!(after["metadata"]["annotations"]["mine"], "stays");
    let main = &after["spec"]["containers"][0];
    let readiness = &configs[asked(&main["readinessProbe"])];
    assert_eq!(
        (&*readiness.container, readiness.purpose, readiness.timeout_seconds),
        ("main", Purpose::ReadinessProbe, 3)
    );
    let mut resolved = get;
    resolved["port"] = 8443.into();
    assert_eq!(readiness.action["httpGet"], resolved, "with the number for the name");
    assert_eq!(
        (&main["readinessProbe"]["periodSeconds"], &main["readinessProbe"]["failureThreshold"]),
        (&json!(7), &json!(9))
    );
    assert_eq!(main["livenessProbe"]["terminationGracePeriodSeconds"], 4);
    assert_eq!(main["livenessProbe"]["tcpSocket"], Value::Null);
    assert_eq!(configs[asked(&main["livenessProbe"])].action["tcpSocket"], json!({"port": 25}));
    assert_eq!(configs[asked(&main["startupProbe"])].action["grpc"], json!({"port": 50, "service": "s"}));
    let handler = &configs[asked(&main["lifecycle"]["postStart"])];
    assert_eq!((handler.purpose, handler.timeout_seconds), (Purpose::PostStart, 0));
    assert_eq!(main["lifecycle"]["preStop"], before["spec"]["containers"][0]["lifecycle"]["preStop"]);
    // A name that no port has stays, so that the executor can say so.
    assert_eq!(
        configs[asked(&after["spec"]["initContainers"][0]["readinessProbe"])].action["tcpSocket"],
        json!({"port": "none"})
    );
}

#[test]
fn what_is_not_the_nodes_to_ask_stays() {
    for container in [
        json!({"name": "c", "livenessProbe": {"exec": {"command": ["true"]}}}),
        json!({"name": "c", "livenessProbe": {"httpGet": {"host": "192.0.2.1", "port": 80}}}),
        json!({"name": "c", "livenessProbe": {"tcpSocket": {"host": "127.0.0.1", "port": 9911}}}),
        json!({"name": "c", "livenessProbe": {"httpGet": {"host": "127.0.0.1", "port": 9911, "path": "/other"}}}),
        json!({"name": "c", "livenessProbe": {"later": {"port": 80}}}),
        json!({"name": "c", "lifecycle": {"preStop": {"tcpSocket": {"port": 80}}, "postStart": {"sleep": {"seconds": 1}}}}),
        json!({"name": "c"}),
    ] {
        let pod = pod(json!([container]));
        assert_eq!(rewrite(&pod, true, &mut counter(0)), Ok(vec![]), "{pod}");
    }
    let near = pod(json!([{"name": "c", "livenessProbe": {"httpGet": {"port": 80}}}]));
    assert_eq!(rewrite(&near, false, &mut counter(0)), Ok(vec![]), "the node reaches it");
    assert!(!rewrite(&near, true, &mut counter(0)).unwrap().is_empty(), "the positive control");
}

#[test]
fn a_copy_gets_tokens_of_its_own_and_goes_back_where_the_node_reaches_it() {
    let original = pod(json!([{"name": "c", "readinessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": 1}}]));
    let first = rewritten(&original, 0);
    let copy = rewritten(&first, 100);
    let token = |pod: &Value| asked(&pod["spec"]["containers"][0]["readinessProbe"]).to_owned();
    assert_ne!(token(&first), token(&copy));
    assert_eq!(configs(&copy).keys().collect::<Vec<_>>(), [&token(&copy)], "nothing of the first is left");
    assert_eq!(configs(&copy).into_values().next(), configs(&first).into_values().next());
    let mut back = apply(&first, &rewrite(&first, false, &mut counter(0)).unwrap());
    assert_eq!(back["metadata"]["annotations"], json!({}));
    back["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(back, original);
    // A container that came later.
    let mut more = first.clone();
    let sidecar = json!({"name": "side", "readinessProbe": {"tcpSocket": {"port": 5}}});
    more["spec"]["containers"].as_array_mut().unwrap().insert(0, sidecar);
    assert_eq!(configs(&rewritten(&more, 200)).len(), 2);
}

#[test]
fn what_was_written_by_hand_is_refused_or_replaced() {
    let victim = format!("{:032x}", 7);
    let question = |path: &str, host: &str, port: Value| {
        let ports = json!([{"name": "agent", "containerPort": 9911}]);
        json!([{"name": "c", "ports": ports, "livenessProbe": {"httpGet": {"host": host, "port": port, "path": path}}}])
    };
    let holds = |action: Value| {
        json!({ &victim: {"container": "c", "purpose": "livenessProbe", "timeoutSeconds": 1, "action": action} })
            .to_string()
    };
    let looped = json!({"httpGet": {"host": "127.0.0.1", "port": 9911, "path": path(&victim)}});
    let good = json!({"httpGet": {"port": 80}});
    for (containers, annotation, says) in [
        (question(&path(&victim), HOST, 9911.into()), None, "does not hold"),
        (question(&path(&victim), HOST, "9911".into()), None, "does not hold"),
        (question(&path(&victim), HOST, "agent".into()), None, "does not hold"),
        (question(&path(&victim), "localhost", 9911.into()), Some(holds(good.clone())), "Juneau's to write"),
        (question("/v1/probes/../x", HOST, 9911.into()), None, "Juneau's to write"),
        (question(&path(&victim), HOST, 9911.into()), Some("{".to_owned()), "leave it out"),
        (question(&path(&victim), HOST, 9911.into()), Some(r#"{"x": {}}"#.to_owned()), "leave it out"),
        (question(&path(&victim), HOST, 9911.into()), Some(holds(looped)), "another question"),
        (question(&path(&victim), HOST, 9911.into()), Some(holds(json!({"exec": {}}))), "write the probe itself"),
        (json!([{"name": "c"}]), Some("[]".to_owned()), "leave it out"),
    ] {
        for beyond in [false, true] {
            let mut pod = pod(containers.clone());
            if let Some(text) = &annotation {
                pod["metadata"]["annotations"] = json!({ CONFIGS: text });
            }
            let said = rewrite(&pod, beyond, &mut counter(0)).expect_err(&pod.to_string());
            assert!(said.contains(says), "{says:?} is not in {said}");
        }
    }
    // Tokens that no probe of the Pod asks for go.
    let mut pod = pod(json!([{"name": "c"}]));
    pod["metadata"]["annotations"] = json!({ CONFIGS: holds(good), VERSION_KEY: "v0", "a": "b" });
    assert_eq!(rewritten(&pod, 0)["metadata"]["annotations"], json!({"a": "b"}));
}

fn view() -> View {
    let mut view = View::default();
    let mut add = |kind, document| view.insert(Object::from_json(kind, document).unwrap());
    for (name, vpc) in [("default", "default"), ("red-a", "red")] {
        add(Kind::Subnet, json!({"metadata": {"name": name}, "spec": {"vpc": vpc, "cidr": "10.0.1.0/24"}}));
    }
    let level = |version: &str| json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": version});
    let subnet = json!({"juneau.loutres.me/subnet": "red-a"});
    for (name, labels) in [("red", json!({})), ("strict", level("latest")), ("pinned", level("v1.33"))] {
        add(Kind::Namespace, json!({"metadata": {"name": name, "annotations": subnet, "labels": labels}}));
    }
    add(Kind::Namespace, json!({"metadata": {"name": "plain"}}));
    view
}

fn ask(namespace: &str, change: impl FnOnce(&mut Value)) -> Result<Said, Denial> {
    let mut pod = pod(json!([{"name": "c", "readinessProbe": {"httpGet": {"port": 80}}}]));
    change(&mut pod);
    let request: Request = serde_json::from_value(json!({
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE",
        "name": "p", "namespace": namespace, "object": pod,
    }))
    .unwrap();
    mutate(&view(), &PlanConfig::default(), &request)
}

#[test]
fn the_network_of_the_pod_decides() {
    let subnet = |name: &'static str| {
        move |pod: &mut Value| pod["metadata"]["annotations"] = json!({"juneau.loutres.me/subnet": name})
    };
    let changes = |namespace: &str, change: &dyn Fn(&mut Value)| !ask(namespace, change).unwrap().patch.is_empty();
    let none = |_: &mut Value| ();
    assert!(changes("red", &none), "by its Namespace");
    assert!(changes("plain", &subnet("red-a")));
    assert!(!changes("plain", &none), "Vpc default");
    assert!(!changes("red", &subnet("default")));
    let networks = |text: &'static str| {
        move |pod: &mut Value| pod["metadata"]["annotations"] = json!({"juneau.loutres.me/networks": text})
    };
    assert!(!changes("plain", &networks(r#"[{"interface":"eth1","subnet":"red-a"}]"#)), "eth0 is what is asked");
    assert!(changes("plain", &networks(r#"[{"interface":"eth0","subnet":"red-a"}]"#)));
    for (pointer, value) in [
        ("hostNetwork", json!(true)),
        ("os", json!({"name": "windows"})),
        ("nodeSelector", json!({"kubernetes.io/os": "windows"})),
    ] {
        assert!(!changes("red", &|pod| pod["spec"][pointer] = value.clone()), "{pointer}");
    }
    assert!(!changes("red", &|pod| pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"})));

    let denial = ask("plain", subnet("absent")).unwrap_err();
    assert!(denial.message.contains("Subnet absent does not exist") && denial.lag, "{}", denial.message);
    assert_eq!(denial.missing.unwrap().0, Kind::Subnet);
    // One that was made a moment ago may say which Subnet its Pods are on.
    assert_eq!(ask("new", none).unwrap_err().missing.unwrap().0, Kind::Namespace);
    assert!(!ask("new", subnet("red-a")).unwrap().patch.is_empty(), "the Pod says it itself");
    let unread = ask("plain", networks("[")).unwrap_err();
    assert!(unread.message.contains("Pod plain/p"), "{}", unread.message);
}

#[test]
fn a_namespace_that_would_refuse_it_is_told_why() {
    let said = |namespace: &str| ask(namespace, |_| ()).unwrap().warnings;
    assert!(said("strict")[0].contains("enforce-version=v1.33"), "{:?}", said("strict"));
    assert_eq!((said("red"), said("pinned")), (vec![], vec![]));
}

#[test]
fn tokens_are_random() {
    let (one, other) = (fresh_token().unwrap(), fresh_token().unwrap());
    assert!(is_token(&one) && is_token(&other) && one != other);
}

fn any_probe() -> impl Strategy<Value = Value> {
    let port = prop_oneof![
        (1u16..).prop_map(Value::from),
        "[a-z]{1,4}".prop_map(Value::from),
        (1u16..).prop_map(|n| n.to_string().into())
    ];
    let host = prop_oneof![3 => Just(None), 1 => Just(Some("".to_owned())), 1 => Just(Some("h".to_owned()))];
    let action = (port, host, 0..4u8).prop_map(|(port, host, which)| match which {
        0 => json!({"httpGet": {"port": port, "path": "/x", "host": host}}),
        1 => json!({"tcpSocket": {"port": port, "host": host}}),
        2 => json!({"grpc": {"port": 5, "service": null}}),
        _ => json!({"exec": {"command": []}}),
    });
    (action, proptest::option::of(1u32..9)).prop_map(|(mut probe, seconds)| {
        if let Some(seconds) = seconds {
            probe["timeoutSeconds"] = seconds.into();
        }
        probe
    })
}

fn any_pod() -> impl Strategy<Value = Value> {
    let one = (any_probe(), any_probe(), proptest::option::of(any_probe()), proptest::option::of("[a-z]{1,4}"));
    let container = one.prop_map(|(ready, live, stop, named)| {
        let ports = named.map(|name| json!([{"name": name, "containerPort": 4321}]));
        json!({"name": "c", "ports": ports, "readinessProbe": ready, "livenessProbe": live, "lifecycle": {"preStop": stop}})
    });
    let container = container.boxed();
    let lists = (proptest::collection::vec(container.clone(), 1..4), proptest::collection::vec(container, 0..3));
    (lists, any::<bool>()).prop_map(|((containers, first), annotated)| {
        let mut pod = pod(containers.into());
        pod["spec"]["initContainers"] = first.into();
        if annotated {
            pod["metadata"]["annotations"] = json!({"a": "b"});
        }
        pod
    })
}

/// The Pod with names for ports taken for numbers, as they are after a rewriting that was taken back.
fn with_numbers(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let changes: Vec<(String, Value)> = places(&pod)
        .filter_map(|place| {
            let field = action_of(place.value, place.purpose)?;
            let number = port_of(place.container, &place.value[field]["port"])?;
            let asks_pod = place.value[field]["host"].as_str().unwrap_or_default().is_empty();
            asks_pod.then(|| (format!("{}/{field}/port", place.pointer), number.into()))
        })
        .collect();
    for (pointer, number) in changes {
        *pod.pointer_mut(&pointer).unwrap() = number;
    }
    pod
}

proptest! {
    #[test]
    fn twice_is_as_once_and_back_is_as_before(before in any_pod()) {
        let once = rewritten(&before, 0);
        let twice = rewritten(&once, 1000);
        for place in places(&once) {
            if let Some(action) = action_of(place.value, place.purpose) {
                let host = place.value[action]["host"].as_str().unwrap_or_default();
                prop_assert!(!host.is_empty(), "{} is left as it was: {}", place.pointer, place.value);
            }
        }
        // Tokens apart, a second admission changes nothing.
        let text = |pod: &Value, first: u32| {
            let mut text = pod.to_string();
            for number in first + 1..=first + 64 {
                text = text.replace(&format!("{number:032x}"), &format!("token {}", number - first));
            }
            text
        };
        prop_assert_eq!(text(&once, 0), text(&twice, 1000));
        let mut back = apply(&once, &rewrite(&once, false, &mut counter(0)).unwrap());
        if back["metadata"]["annotations"] == json!({}) {
            back["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        prop_assert_eq!(back, with_numbers(&before));
    }

    #[test]
    fn anything_in_the_annotation_is_survived(text in ".{0,80}", key in "[0-9a-f]{32}", beyond: bool) {
        let mut pod = pod(json!([{"name": "c", "livenessProbe": {"httpGet": {"host": HOST, "port": PORT, "path": path(&key)}}}]));
        for annotation in [text.clone(), json!({ &key: text }).to_string(), json!({ &key: {"container": text, "purpose": "preStop", "action": {"tcpSocket": {"port": 1}}} }).to_string()] {
            pod["metadata"]["annotations"] = json!({ CONFIGS: annotation });
            if let Ok(patch) = rewrite(&pod, beyond, &mut counter(0)) {
                let after = apply(&pod, &patch);
                let probe = &after["spec"]["containers"][0]["livenessProbe"];
                // Whatever is asked now is of this admission.
                let own = probe["httpGet"].is_null() || asked(probe) == counter(0)();
                prop_assert!(own, "{}", probe);
            }
        }
    }
}
