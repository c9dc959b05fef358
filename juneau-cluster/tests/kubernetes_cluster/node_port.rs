//! The node's own port in Vpc `default`, when somebody changes or deletes it.

use crate::fixture::{Fixture, until};
use crate::programs::succeeds;
use crate::workload::{reaches, server};
use serde_json::Value;
use std::path::Path;

const NODE: &str = "node-1";
const DEVICE: &str = "juneau_node_h";

fn link(fixture: &Fixture, part: &str) -> Result<String, String> {
    let mut command = fixture.node(NODE).command(Path::new("cat")).unwrap();
    let output = command.arg(format!("/sys/class/net/{DEVICE}/{part}")).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn a_node_port_that_is_changed_or_deleted_comes_back_as_it_was() {
    let fixture = Fixture::shared();
    let _turn = fixture.turn();
    fixture.namespace("ports");
    fixture.start(&[server("ports", "pod", "node-2", &[])]);
    let (host, address) = (fixture.host(NODE), fixture.address("ports", "pod"));
    reaches(&host, &address, "ports/pod");
    // Nothing while there is none.
    let endpoint = || {
        let all = fixture.get("-n juneau-system networkendpoint");
        let is_it = |one: &&Value| one["metadata"]["name"] == format!("juneau-node.{NODE}");
        all["items"].as_array().unwrap().iter().find(is_it).cloned().unwrap_or_default()
    };
    let says_its_device = || {
        let said = endpoint()["spec"]["attachment"].clone();
        let device: u64 = fixture.on(NODE, "cat /sys/class/net/juneau_node/ifindex").trim().parse().unwrap();
        if said["ifindex"] == device { Ok(()) } else { Err(format!("{said}, its device is {device}")) }
    };
    until("its endpoint says its device", says_its_device);
    let (before, mac) = (endpoint(), link(&fixture, "address").unwrap());
    assert_eq!(before["spec"]["attachment"]["containerID"], Value::Null);
    let index = link(&fixture, "ifindex").unwrap();
    assert_eq!(before["spec"]["macAddress"], Value::from(mac.clone()));
    let is_back = || match link(&fixture, "address")? {
        now if now == mac => Ok(()),
        other => Err(other),
    };

    fixture.on(NODE, &format!("ip link set {DEVICE} address 02:00:00:00:00:99"));
    until("its MAC address is back", is_back);
    reaches(&host, &address, "ports/pod");

    // Deleted, and its agent starts anew.
    let agent = fixture.agent_process(NODE).unwrap();
    fixture.on(NODE, &format!("kill -STOP {agent}; ip link delete {DEVICE}"));
    host.expect_silence(&address);
    fixture.kill_agent(NODE);
    until("another agent runs", || match fixture.agent_process(NODE) {
        Some(now) if now != agent => Ok(()),
        other => Err(format!("{other:?}")),
    });
    fixture.wait_for_agent(NODE);
    until("it is back", is_back);
    reaches(&host, &address, "ports/pod");
    until("its endpoint says the new one", says_its_device);
    let after = endpoint();
    assert_ne!(after["spec"]["attachment"]["ifindex"], before["spec"]["attachment"]["ifindex"]);
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_ne!(link(&fixture, "ifindex").unwrap(), index, "another device");

    // Its endpoint is deleted: the agent that runs tells of its device in the new one.
    let deleted = format!("-n juneau-system delete networkendpoint juneau-node.{NODE}");
    succeeds(&mut fixture.kubectl(&deleted));
    until("another endpoint says its device", || {
        let is_another = endpoint()["metadata"]["uid"] != before["metadata"]["uid"];
        if is_another { says_its_device() } else { Err("the same endpoint".to_owned()) }
    });
    until("it is as it was", is_back);
    reaches(&host, &address, "ports/pod");
    succeeds(&mut fixture.kubectl("-n ports delete pod pod --timeout=60s"));
}
