//! Whole clusters: two nodes, two tenants with the same addresses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Lab, eventually, kill, pod, text};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a change may take to move packets. The aim is a second; a busy machine may need more.
const MOVES: Duration = Duration::from_secs(5);

#[test]
fn up_shows_a_table_in_which_every_cell_is_as_expected() {
    let lab = Lab::new("table");
    let start = Instant::now();
    let output = lab.expect(&["up"]);
    let took = start.elapsed();
    assert!(output.contains("VPC red: from") && output.contains("VPC blue: from"), "{output}");
    assert!(output.contains("What to try next"), "{output}");
    assert!(took < Duration::from_secs(10), "a cluster took {took:?}");
}

#[test]
fn equal_addresses_of_two_tenants_are_answered_each_by_its_own() {
    let lab = Lab::two_tenants("equal");
    let (ok, report) = lab.check();
    assert!(ok, "{report:#}\n{}", lab.logs());
    let cells = report["cells"].as_array().unwrap();
    let answers = |from: &str, to: &str| -> BTreeSet<String> {
        let cells = cells.iter().filter(|cell| cell["from"] == from && cell["to"] == to);
        cells.flat_map(|cell| cell["seen_by"].as_array().unwrap()).map(|pod| pod.as_str().unwrap().to_owned()).collect()
    };
    // On the same node and across nodes, in the same Subnet and routed.
    for (from, to, owner) in
        [("a1", "10.0.2.10", "b1"), ("a1", "10.0.1.20", "a2"), ("a1", "10.0.2.20", "b2"), ("b2", "10.0.1.10", "a1")]
    {
        for tenant in ["red", "blue"] {
            let expected = BTreeSet::from([format!("{tenant}/{owner}")]);
            assert_eq!(answers(&format!("{tenant}/{from}"), to), expected, "{tenant}/{from} to {to}");
        }
    }
}

#[test]
fn a_cell_that_is_not_as_expected_fails_the_check_and_is_named() {
    let lab = Lab::two_tenants("cell");
    lab.expect_green();
    assert!(lab.exec("red/b2", "ip link set eth0 down").status.success());
    let output = lab.run(&["check"]);
    assert_eq!(output.status.code(), Some(1));
    let output = text(&output);
    assert!(output.contains("red/a1 → 10.0.2.20 TCP: expected an answer of red/b2; seen no answer"), "{output}");
    assert!(!output.contains("blue/a1 →"), "blue noticed: {output}");
}

#[test]
fn a_pod_of_one_tenant_alone_is_silent_to_the_other() {
    let lab = Lab::two_tenants("alone");
    lab.apply(&pod("blue", "only", "node-2", "blue-a", "10.0.1.99", "u-only"));
    let (ok, report) = lab.check();
    assert!(ok, "{report:#}\n{}", lab.logs());
    let to_it = report["cells"].as_array().unwrap().iter().filter(|cell| cell["to"] == "10.0.1.99");
    let (control, blocked): (Vec<_>, Vec<_>) =
        to_it.partition(|cell| cell["from"].as_str().unwrap().starts_with("blue"));
    assert!(blocked.len() >= 12 && blocked.iter().all(|cell| cell["expected"] == "silence"));
    assert!(control.len() >= 12 && control.iter().all(|cell| cell["expected"]["answer"] == "blue/only"));
}

#[test]
fn an_edited_manifest_moves_packets_at_once() {
    let lab = Lab::two_tenants("edit");
    let pings = |address: &str| lab.exec("red/a1", &format!("ping -c 1 -W 1 {address}")).status.success();
    assert!(!pings("10.0.1.77"));
    lab.apply(&pod("red", "c1", "node-2", "red-a", "10.0.1.77", "u-c1"));
    assert!(pings("10.0.1.77"), "apply returns when it is in force; {}", lab.logs());
    // A file edited in place, as an editor does it: another address.
    for file in std::fs::read_dir(lab.manifest("")).unwrap().map(|file| file.unwrap().path()) {
        let before = std::fs::read_to_string(&file).unwrap();
        if before.contains("10.0.1.77") {
            std::fs::write(&file, before.replace("10.0.1.77", "10.0.1.78")).unwrap();
        }
    }
    let took = eventually("the new address answers", MOVES, || pings("10.0.1.78"));
    assert!(!pings("10.0.1.77"), "the old address still answers after {took:?}");
    lab.delete(&pod("red", "c1", "node-2", "red-a", "10.0.1.78", "u-c1"));
    assert!(!pings("10.0.1.78"));
    assert!(lab.status()["pods"].get("red/c1").is_none());
    lab.expect_green();
}

#[test]
fn a_killed_agent_comes_back_and_no_packet_is_lost() {
    let lab = Lab::two_tenants("agent");
    let ping = ["exec", "red/a1", "--", "ping", "-q", "-i", "0.01", "-c", "300", "10.0.2.20"];
    let running = lab.command(&ping).stdout(std::process::Stdio::piped()).spawn().unwrap();
    for node in ["node-1", "node-2"] {
        let before = lab.pid(&format!("/nodes/{node}/agent/pid"));
        kill(before);
        eventually("the agent is back", Duration::from_secs(10), || {
            let status = lab.status();
            let node = &status["nodes"][node];
            node["ready"] == true && node["agent"]["pid"].as_i64() != Some(i64::from(before))
        });
        assert_eq!(lab.status()["nodes"][node]["restarts"], 1);
    }
    let output = running.wait_with_output().unwrap();
    assert!(text(&output).contains(" 0% packet loss"), "{}\n{}", text(&output), lab.logs());
    lab.expect_green();
}

#[test]
fn everything_that_is_killed_comes_back() {
    let lab = Lab::two_tenants("kill");
    kill(lab.pid("/pods/red~1a1/responder/pid"));
    kill(lab.pid("/nodes/node-2/holder/pid"));
    let limit = Duration::from_secs(15);
    eventually("the node and the responder are back", limit, || lab.run(&["check"]).status.success());
}

#[test]
fn up_works_again_and_after_the_supervisor_was_killed() {
    let lab = Lab::two_tenants("again");
    let first = lab.pid("/supervisor/pid");
    lab.up();
    let second = lab.pid("/supervisor/pid");
    assert_ne!(first, second);
    kill(second);
    eventually("the command line notices", Duration::from_secs(5), || !lab.run(&["check"]).status.success());
    let told = text(&lab.run(&["status"]));
    assert!(told.contains("juneau-lab up"), "no remedy: {told}");
    lab.up();
    // Even without anything that it recorded.
    kill(lab.pid("/supervisor/pid"));
    std::fs::remove_file(lab.dir().join("state.json")).unwrap();
    lab.up();
    lab.expect_green();
}
