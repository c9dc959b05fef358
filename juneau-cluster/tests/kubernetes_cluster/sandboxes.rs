//! Which sandbox is a Pod's: one that is removed by force is replaced, and late calls for it change nothing.

use crate::fixture::{Fixture, until};
use crate::programs::succeeds;
use crate::workload::{reaches, server};

const NODE: &str = "node-1";

/// The sandboxes of a Pod that the runtime knows, those that run first.
fn sandboxes(fixture: &Fixture, namespace: &str, pod: &str) -> Vec<String> {
    let label = |name: &str, value: &str| format!("labels.\"io.kubernetes.pod.{name}\"=={value}");
    let filter =
        [label("namespace", namespace), label("name", pod), "labels.\"io.cri-containerd.kind\"==sandbox".to_owned()];
    let mut ctr = fixture.node(NODE).ctr().unwrap();
    let known = succeeds(ctr.args(["containers", "list", "--quiet", &filter.join(",")]));
    known.lines().map(str::to_owned).collect()
}

/// Calls the plugin on the node, as a runtime does when a sandbox ends, and with what it was given when it began.
#[track_caller]
fn delete(fixture: &Fixture, namespace: &str, pod: &str, sandbox: &str) {
    let arguments = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={pod};K8S_POD_INFRA_CONTAINER_ID={sandbox}"
    );
    let environment =
        format!("CNI_COMMAND=DEL CNI_CONTAINERID={sandbox} CNI_IFNAME=eth0 CNI_NETNS= CNI_PATH=/opt/cni/bin");
    let configuration = r#"{"cniVersion":"1.0.0","name":"juneau","type":"juneau","socket":"/run/juneau/agent.sock"}"#;
    fixture.on(NODE, &format!("echo '{configuration}' | {environment} CNI_ARGS='{arguments}' /opt/cni/bin/juneau"));
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn a_sandbox_that_is_removed_by_force_is_replaced_and_late_calls_change_nothing() {
    let fixture = Fixture::shared();
    let _together = fixture.together();
    // In Vpc default, where the node takes part.
    fixture.namespace("box");
    fixture.start(&[server("box", "pod", NODE, &[]), server("box", "peer", "node-2", &[])]);
    let first = fixture.sandbox("box", "pod");
    assert_eq!(sandboxes(&fixture, "box", "pod"), [first.as_str()], "the endpoint names the runtime's sandbox");
    let uid = fixture.get("-n box pod pod")["metadata"]["uid"].clone();
    let address = fixture.address("box", "pod");

    succeeds(fixture.node(NODE).ctr().unwrap().args(["tasks", "kill", "--signal", "SIGKILL", &first]));
    let second = until("the endpoint is the new sandbox's", || match fixture.sandbox("box", "pod") {
        now if !now.is_empty() && now != first => Ok(now),
        other => Err(other),
    });
    fixture.wait_for_pod("box", "pod");
    assert!(sandboxes(&fixture, "box", "pod").contains(&second));
    assert_eq!(fixture.get("-n box pod pod")["metadata"]["uid"], uid, "the same Pod");
    assert_eq!(fixture.address("box", "pod"), address, "at its address");

    let peer = fixture.inside("box", "peer");
    let endpoint = || fixture.get("-n box networkendpoint pod.eth0")["spec"].clone();
    let before = endpoint();
    for _ in 0..2 {
        delete(&fixture, "box", "pod", &first);
        for from in [&peer, &fixture.host(NODE), &fixture.host("node-2")] {
            reaches(from, &address, "box/pod");
        }
    }
    assert_eq!(endpoint(), before);
    // The same call for the sandbox of now is not late.
    delete(&fixture, "box", "pod", &second);
    peer.expect_silence(&address);
    drop(peer);
    fixture.empty("box");
}
