//! Programs go away and come back: kubelet, containerd, agent, API server; and agents of another release come.

use crate::fixture::{AWAY, Fixture, pod, pod_with_grace, until};
use crate::flow::Flow;
use crate::programs::succeeds;
use std::path::Path;
use std::time::{Duration, Instant};

/// Flows within a node and between two, counted.
fn flows(fixture: &Fixture) -> [Flow; 2] {
    let [a, b, c] = ["a", "b", "c"].map(|name| fixture.inside("red", name));
    [Flow::start("between nodes", &a, &b, "10.0.1.20"), Flow::start("within a node", &a, &c, "10.0.1.40")]
}

/// A new Pod starts on the node, and reaches what it should, as soon as the other node has heard of it.
#[track_caller]
fn a_pod_starts(fixture: &Fixture, node: &str) {
    fixture.start_pod("red", "new", node, "10.0.1.50");
    let [new, b] = ["new", "b"].map(|name| fixture.inside("red", name));
    for (from, address, who) in [(&new, "10.0.1.20", "red/b"), (&b, "10.0.1.50", "red/new")] {
        until("it is answered", || match from.ask(address) {
            Some(answer) if answer == who => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    drop([new, b]);
    fixture.delete_pod("red", "new");
}

/// Kills a service of the node, and waits until it is back.
fn kill(fixture: &Fixture, node: &str, service: &str) {
    let process = |name: &str| fixture.node(node).services().unwrap()[name];
    let before = process(service).unwrap();
    succeeds(fixture.node(node).command(Path::new("kill")).unwrap().args(["-9", &before.to_string()]));
    until("it is back", || match process(service) {
        Some(now) if now != before => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn kubelet_containerd_and_agent_are_killed_and_come_back() {
    let fixture = Fixture::shared();
    let _turn = fixture.turn();
    let (before, sandbox) = (fixture.settled(), fixture.sandbox("red", "a"));
    let flows = flows(&fixture);
    for service in ["kubelet", "containerd"] {
        kill(&fixture, "node-1", service);
        until("Pods can be asked for", || {
            let output = fixture.kubectl("-n red exec a -- /bin/busybox true").output().unwrap();
            if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
        });
        a_pod_starts(&fixture, "node-1");
    }
    let agent = fixture.agent_process("node-1").unwrap();
    fixture.kill_agent("node-1");
    until("another agent runs", || match fixture.agent_process("node-1") {
        Some(now) if now != agent => Ok(()),
        other => Err(format!("{other:?}")),
    });
    fixture.wait_for_agent("node-1");
    a_pod_starts(&fixture, "node-1");
    Flow::expect_no_loss(flows);
    assert_eq!(fixture.sandbox("red", "a"), sandbox, "nobody was started again");
    fixture.expect_network();
    fixture.expect_left(&before);
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn a_pod_that_ends_while_its_agent_is_away_is_made_good() {
    let fixture = Fixture::shared();
    let _turn = fixture.turn();
    let before = fixture.settled();
    fixture.start_pod("red", "short", "node-1", "10.0.1.60");
    let with_it = fixture.left_on("node-1");
    let flows = flows(&fixture);

    succeeds(&mut fixture.kubectl(&format!("label node node-1 {AWAY}=yes")));
    until("the agent is gone", || fixture.agent("node-1", "status").map_or(Ok(()), |status| Err(status.to_string())));
    // What is there without it is what was there with it, and the end of a Pod does not wait for it.
    let links = |of: &std::collections::BTreeSet<String>| of.iter().filter(|entry| entry.contains("/links")).count();
    let pinned = fixture.on("node-1", "ls /sys/fs/bpf/juneau/links").lines().count();
    assert_eq!(pinned, links(&with_it));
    let begun = Instant::now();
    fixture.delete_pod("red", "short");
    println!("its end took {:.1} s", begun.elapsed().as_secs_f32());
    // One that is wanted meanwhile waits, and starts when the agent is there.
    until("the Pod is taken", || fixture.apply(&pod("red", "waits", "node-1", "10.0.1.70")));
    until("it is told so", || {
        let events = succeeds(&mut fixture.kubectl("-n red get events --field-selector involvedObject.name=waits"));
        if events.contains("FailedCreatePodSandBox") { Ok(()) } else { Err(events) }
    });

    succeeds(&mut fixture.kubectl(&format!("label node node-1 {AWAY}-")));
    fixture.wait_for_agent("node-1");
    fixture.wait_for_pod_again("red", "waits");
    assert_eq!(fixture.inside("red", "waits").ask("10.0.1.20").as_deref(), Some("red/b"));
    fixture.delete_pod("red", "waits");
    Flow::expect_no_loss(flows);
    fixture.expect_network();
    fixture.expect_left(&before);
}

/// How long the API server is away: until everything has been seen, or, by `make test-long`, ten minutes.
fn away() -> Duration {
    if std::env::var_os("JUNEAU_LONG").is_some() { Duration::from_secs(600) } else { Duration::ZERO }
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn without_an_api_server_packets_go_on_and_pods_end() {
    let fixture = Fixture::shared();
    let _turn = fixture.turn();
    let before = fixture.settled();
    for (name, node, address) in [("ends-1", "node-1", "10.0.1.81"), ("ends-2", "node-2", "10.0.1.82")] {
        until("the Pod is taken", || fixture.apply(&pod_with_grace("red", name, node, address, 6)));
    }
    ["ends-1", "ends-2"].iter().for_each(|name| fixture.wait_for_pod("red", name));
    let [red_a, red_b, blue_a] =
        [("red", "a"), ("red", "b"), ("blue", "a")].map(|(tenant, name)| fixture.inside(tenant, name));
    let attached =
        |node: &str| fixture.agent(node, "status").map(|status| status["attachments"].as_array().unwrap().len());
    let with_them = ["node-1", "node-2"].map(|node| attached(node).unwrap());
    let agent = fixture.agent_process("node-1").unwrap();
    let flows = flows(&fixture);

    // The kubelets are told, and end them when there is nobody to tell.
    succeeds(&mut fixture.kubectl("-n red delete pod ends-1 ends-2 --wait=false"));
    let control_plane = fixture.cluster().control_plane().unwrap();
    control_plane.stop_api_server().unwrap();
    let begun = Instant::now();
    assert!(!fixture.kubectl("get nodes --request-timeout=2s").output().unwrap().status.success());
    for (node, count) in ["node-1", "node-2"].into_iter().zip(with_them) {
        until("its interface is gone", || match attached(node)? {
            now if now + 1 == count => Ok(()),
            other => Err(format!("{other} of {count} are there")),
        });
    }
    // An agent that begins without an API server leaves what is there as it is.
    fixture.kill_agent("node-1");
    until("another agent runs", || match fixture.agent_process("node-1") {
        Some(now) if now != agent => Ok(()),
        other => Err(format!("{other:?}")),
    });
    until("it answers", || fixture.agent("node-1", "status"));
    loop {
        assert_eq!(red_a.ask("10.0.1.20").as_deref(), Some("red/b"));
        assert_eq!(red_b.ask("10.0.1.40").as_deref(), Some("red/c"));
        assert_eq!(blue_a.ask("10.0.1.30").as_deref(), Some("blue/b"));
        red_a.expect_silence("10.0.1.30");
        if begun.elapsed() >= away() {
            break;
        }
        std::thread::sleep(Duration::from_secs(5));
    }
    println!("without an API server for {:.1} s", begun.elapsed().as_secs_f32());

    control_plane.start_api_server().unwrap();
    Flow::expect_no_loss(flows);
    drop([red_a, red_b, blue_a]);
    ["node-1", "node-2"].iter().for_each(|node| fixture.wait_for_agent(node));
    fixture.expect_left(&before);
    a_pod_starts(&fixture, "node-1");
    fixture.expect_network();
    fixture.expect_left(&before);
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn an_upgrade_to_another_abi_and_back_loses_no_packet() {
    let fixture = Fixture::shared();
    let _turn = fixture.turn();
    let (before, sandbox) = (fixture.settled(), fixture.sandbox("red", "a"));
    let image = format!("ghcr.io/juneau-net/juneau-agent:v{}", env!("CARGO_PKG_VERSION"));
    let next = format!("{image}-next");
    for node in ["node-1", "node-2"] {
        succeeds(fixture.node(node).ctr().unwrap().args(["images", "tag", "--force", &image, &next]));
    }
    let pinned = |node: &str| fixture.on(node, "ls /sys/fs/bpf/juneau | grep abi-");
    let ours = pinned("node-1");
    let flows = flows(&fixture);
    let variable = |value: &str| format!(r#"{{"name":"JUNEAU_TEST_ABI",{value}}}"#);
    for (image, variable, expected) in
        [(&next, variable(r#""value":"77""#), "abi-77\n"), (&image, variable(r#""$patch":"delete""#), ours.as_str())]
    {
        let container = format!(r#"{{"name":"agent","image":"{image}","env":[{variable}]}}"#);
        let patch = format!(r#"{{"spec":{{"template":{{"spec":{{"containers":[{container}]}}}}}}}}"#);
        succeeds(fixture.kubectl("-n juneau-system patch daemonset juneau-agent -p").arg(patch));
        succeeds(&mut fixture.kubectl("-n juneau-system rollout status daemonset/juneau-agent --timeout=90s"));
        // The names of what is pinned say which release runs, and that the other one's is gone.
        for node in ["node-1", "node-2"] {
            assert_eq!(pinned(node), expected, "{node}");
        }
        a_pod_starts(&fixture, "node-2");
    }
    Flow::expect_no_loss(flows);
    assert_eq!(fixture.sandbox("red", "a"), sandbox, "nobody was started again");
    fixture.expect_network();
    fixture.expect_left(&before);
}
