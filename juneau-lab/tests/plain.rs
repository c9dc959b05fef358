//! Plain manifests: nothing is filled in, the lab's operator plans.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Lab, eventually, kill, text};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

fn plain_pod(name: &str, node: &str, subnet: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: red\n  annotations:\n    \
         juneau.loutres.me/subnet: {subnet}\nspec:\n  nodeName: {node}\n  containers: [{{name: main, image: pause}}]\n"
    )
}

fn up(name: &str) -> Lab {
    let lab = Lab::new(name);
    lab.expect(&["up", "--no-check"]);
    lab
}

fn address(lab: &Lab, pod: &str) -> Option<String> {
    let attached = lab.status()["pods"][pod]["attached"]["address"].as_str()?.to_owned();
    attached.split('/').next().map(str::to_owned)
}

#[test]
fn a_pod_without_an_address_gets_one_and_is_reached() {
    let lab = up("plain");
    lab.apply(&plain_pod("c1", "node-2", "red-b"));
    let given = address(&lab, "red/c1").unwrap_or_else(|| panic!("{}", lab.logs()));
    assert!(given.starts_with("10.0.2."), "{given}");
    assert!(lab.exec("red/a1", &format!("ping -c 1 -W 2 {given}")).status.success(), "{}", lab.logs());
    let yaml = lab.expect(&["get", "subnet", "red-b", "-o", "yaml"]);
    assert!(yaml.contains("vni: ") && yaml.contains("10.0.2.1"), "{yaml}");
    assert!(lab.expect(&["get", "iface"]).contains("red/c1.eth0"));
    // Its files and sockets would have names that are too long.
    let long = format!("{}a", "c".repeat(252));
    lab.apply(&plain_pod(&long, "node-1", "red-b"));
    assert!(address(&lab, &format!("red/{long}")).is_some(), "{}", lab.logs());
    lab.expect_green();
    lab.delete(&plain_pod(&long, "node-1", "red-b"));
    lab.delete(&plain_pod("c1", "node-2", "red-b"));
    assert!(!lab.expect(&["get", "nwep"]).contains("c1.eth0"));
}

#[test]
fn an_operator_that_is_killed_comes_back_and_changes_nothing() {
    let lab = up("operator");
    let before = lab.expect(&["get", "-o", "json"]);
    let pid = lab.pid("/operator/pid");
    kill(pid);
    eventually("another operator runs", LIMIT, || {
        lab.status()["operator"]["pid"].as_i64().is_some_and(|now| now != i64::from(pid))
    });
    lab.apply(&plain_pod("c1", "node-1", "red-a"));
    lab.delete(&plain_pod("c1", "node-1", "red-a"));
    assert_eq!(lab.expect(&["get", "-o", "json"]), before);
    lab.expect_green();
}

#[test]
fn an_endpoint_that_a_hand_deletes_is_made_again() {
    let lab = up("endpoint");
    let file = lab.manifest(".planned/objects/networkendpoints.red.a1.eth0.yaml");
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    eventually("it is there again", LIMIT, || file.exists());
    let after = std::fs::read_to_string(&file).unwrap();
    let address = |text: &str| text.lines().find(|line| line.contains("address:")).map(str::to_owned);
    assert_eq!(address(&before), address(&after));
    // Its Pod is attached anew.
    eventually("all reach each other again", LIMIT, || lab.run(&["check"]).status.success());
}

#[test]
fn a_pod_of_another_namespace_does_not_enter() {
    let lab = up("enter");
    let thief = plain_pod("thief", "node-1", "blue-a");
    let output = {
        let file = lab.dir().join("thief.txt");
        std::fs::write(&file, &thief).unwrap();
        lab.run(&["apply", "-f", file.to_str().unwrap()])
    };
    assert!(!output.status.success(), "it is in force: {}", text(&output));
    let nic = lab.expect(&["get", "iface", "red/thief.eth0", "-o", "yaml"]);
    assert!(nic.contains("NamespaceNotAllowed"), "{nic}");
    assert!(address(&lab, "red/thief").is_none());
    assert!(address(&lab, "red/a1").is_some());
}
