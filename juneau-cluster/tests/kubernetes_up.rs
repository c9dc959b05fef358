//! A cluster as `make cluster` makes it, with images of the programs that the tests have anyway.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "../../juneau-lab/tests/common/machine.rs"]
#[allow(unreachable_pub, reason = "it is the lab's")]
mod machine;

#[path = "common/programs.rs"]
mod programs;

use juneau_cluster::{Paths, State};
use machine::machine;
use nix::sys::signal::Signal;
use programs::{Programs, succeeds};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A Pod that serves a file named after its tenant, and is asked for PATH.
const PROBED: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  namespace: TENANT
  annotations: { juneau.loutres.me/subnet: TENANT-a, juneau.loutres.me/address: ADDRESS }
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
    - name: web
      image: localhost/juneau-shell:1
      command: ["/bin/busybox", "sh", "-c", "echo ok >/tmp/TENANT; exec busybox httpd -f -h /tmp"]
      ports: [{ name: web, containerPort: 80 }]
      startupProbe: { exec: { command: ["/bin/busybox", "true"] }, periodSeconds: 1 }
      livenessProbe: { tcpSocket: { port: 80 }, periodSeconds: 1, failureThreshold: 30 }
      readinessProbe: { httpGet: { path: /PATH, port: web }, periodSeconds: 1, timeoutSeconds: 2, failureThreshold: 30 }
"#;

fn probed(tenant: &str, name: &str, address: &str, path: &str) -> String {
    let with = [("TENANT", tenant), ("NAME", name), ("ADDRESS", address), ("PATH", path)];
    with.iter().fold(PROBED.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Two Pods of one address on one node, each with a page of its own; one whose page is only at the other tenant's.
fn probes_are_answered_by_their_own_pods(file: &Path, kubectl: &dyn Fn(&str) -> Command) {
    let pods = [
        probed("red", "probed", "10.0.1.40", "red"),
        probed("blue", "probed", "10.0.1.40", "blue"),
        probed("red", "failing", "10.0.1.41", "blue"),
        probed("blue", "other", "10.0.1.41", "blue"),
    ];
    std::fs::write(file, pods.join("---\n")).unwrap();
    let begun = Instant::now();
    succeeds(kubectl("apply -f").arg(file));
    succeeds(&mut kubectl("-n red wait --for=condition=Ready pod/probed --timeout=60s"));
    succeeds(&mut kubectl("-n blue wait --for=condition=Ready pod/probed pod/other --timeout=60s"));
    println!("three Pods with probes are ready after {:.1} s", begun.elapsed().as_secs_f32());
    let get = |tenant: &str, name: &str, what: &str| {
        succeeds(kubectl(&format!("-n {tenant} get pod {name} -o")).arg(format!("jsonpath={what}")))
    };
    // What the kubelet sees of them.
    let probes = get("red", "probed", "{.spec.containers[0]['startupProbe','livenessProbe','readinessProbe']}");
    assert!(probes.contains("\"exec\"") && probes.matches("/v1/probes/").count() == 2, "{probes}");
    assert_eq!(get("red", "probed", "{.metadata.annotations.juneau\\.loutres\\.me/probe-rewrite-version}"), "v1");
    let events = "-n red get events --field-selector involvedObject.name=failing,reason=Unhealthy -o";
    until("the Event that says why", || {
        let said = succeeds(kubectl(events).arg("jsonpath={.items[*].message}"));
        if said.contains("Readiness probe failed: HTTP probe failed with statuscode: 404") { Ok(()) } else { Err(said) }
    });
    const READY: &str = "{.status.conditions[?(@.type=='Ready')]['status','lastTransitionTime']}";
    assert!(get("red", "failing", READY).starts_with("False"), "it is asked, and never ready");

    // New agents: Pods stay ready, and are asked on.
    let before = [get("red", "probed", READY), get("blue", "probed", READY)];
    assert!(before.iter().all(|ready| ready.starts_with("True")), "{before:?}");
    succeeds(&mut kubectl("-n juneau-system delete pod -l app.kubernetes.io/name=juneau-agent"));
    succeeds(&mut kubectl("-n juneau-system rollout status daemonset/juneau-agent --timeout=60s"));
    succeeds(kubectl("-n red exec failing -- /bin/busybox touch").arg("/tmp/blue"));
    succeeds(&mut kubectl("-n red wait --for=condition=Ready pod/failing --timeout=60s"));
    assert_eq!([get("red", "probed", READY), get("blue", "probed", READY)], before);
    let restarts = get("red", "probed", "{.status.containerStatuses[0].restartCount}");
    assert_eq!(restarts, "0");
    succeeds(kubectl("delete --grace-period=0 --force -f").arg(file));
}

/// Asks again until it is so.
#[track_caller]
fn until(what: &str, mut ask: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(last) = ask() {
        assert!(Instant::now() < deadline, "{what}: not within a minute: {last}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn it_comes_up_with_a_green_table_and_down_leaves_the_machine_as_it_was() {
    let name = format!("juneau-cluster-test-up-{}", std::process::id());
    let before = machine(&name);
    let programs = Programs::new();
    let images = programs.images();
    let dir = format!("/run/{name}");
    let cluster = |arguments: &[&str]| {
        let mut command = Command::new(programs.file("juneau-cluster"));
        command.args(["--state-dir", &dir]).args(arguments);
        command
    };
    let said = succeeds(&mut cluster(&["up", "--images", images.to_str().unwrap()]));
    println!("{said}");
    for tenant in ["red", "blue"] {
        assert!(said.contains(&format!("VPC {tenant}: from")), "{said}");
    }
    let addresses = succeeds(&mut cluster(&["kubectl", "-n", "red", "get", "pod", "-o", "wide"]));
    assert!(addresses.contains("10.0.1.10") && addresses.contains("node-2"), "{addresses}");
    succeeds(&mut cluster(&["exec", "node-2", "--", "ls", "/opt/cni/bin/juneau"]));
    probes_are_answered_by_their_own_pods(&programs.file("probed.yaml"), &|line| {
        let mut command = cluster(&["kubectl"]);
        command.args(line.split(' '));
        command
    });

    help_is_at_hand(&programs, &State::of_running(&Paths::new(&dir)).unwrap().kubeconfig);

    // Whatever ends the keeper ends all of it, and what is left goes.
    let state = State::of_running(&Paths::new(&dir)).unwrap();
    state.keeper.signal(Signal::SIGKILL).unwrap();
    succeeds(&mut cluster(&["down"]));
    drop(programs);
    let after = machine(&name);
    let more: Vec<&String> = after.difference(&before).collect();
    let less: Vec<&String> = before.difference(&after).collect();
    assert!(more.is_empty() && less.is_empty(), "the machine is another than before: {more:#?} {less:#?}");
}

/// `kubectl juneau trace` and `support-bundle`, by the agents' own words.
fn help_is_at_hand(programs: &Programs, kubeconfig: &Path) {
    let begun = Instant::now();
    let kubectl = juneau_controlplane::Programs::find_or_build(&mut |_| {}).unwrap();
    let kubectl = kubectl.path(juneau_controlplane::Program::Kubectl);
    let path = format!("{}:{}", kubectl.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(programs.file("kubectl-juneau"));
        command.env("PATH", &path).arg("--kubeconfig").arg(kubeconfig).args(arguments).stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    // Over the overlay, and on one node.
    let (code, out, error) = ask(&["trace", "red/a1", "red/b2:8080"]);
    assert_eq!(code, Some(0), "{out}{error}");
    for part in
        ["node-1, from the Pod: goes to node-2 (", "node-2, from the overlay: goes to NetworkEndpoint/red/b2.eth0"]
    {
        assert!(out.contains(part), "{out}");
    }
    let (code, out, error) = ask(&["trace", "blue/a1", "b1", "-n", "blue", "-o", "json"]);
    assert_eq!(code, Some(0), "{out}{error}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((report["hops"].as_array().unwrap().len(), &report["delivered"]), (1, &true.into()), "{out}");
    let (code, out, _) = ask(&["trace", "red/a1", "10.0.2.99"]);
    assert!(
        code == Some(1) && out.contains("✗ no-endpoint") && out.contains("no Pod of Vpc/red has 10.0.2.99"),
        "{out}"
    );

    let (code, out, error) = ask(&["describe", "pod", "a1", "-n", "red"]);
    assert!(
        code == Some(0) && out.contains("its network is up") && out.contains("agent of node-1  juneau-agent-"),
        "{out}{error}"
    );

    let file = programs.file("support.tar.gz");
    let (code, out, error) = ask(&["support-bundle", "-o", file.to_str().unwrap()]);
    let list = succeeds(Command::new("tar").arg("-tzf").arg(&file));
    let errors = || succeeds(Command::new("tar").arg("-xzOf").arg(&file).arg("juneau-support/errors.txt"));
    assert!(code == Some(0), "{out}{error}{list}{}", errors());
    for name in
        ["agents/node-1/status.json", "agents/node-2/flows.json", "objects/NetworkEndpoint.json", "versions.json"]
    {
        assert!(list.contains(&format!("juneau-support/{name}\n")), "{list}");
    }
    for log in ["logs/juneau-agent-", "logs/juneau-operator-"] {
        assert!(list.contains(log), "{list}");
    }
    println!("trace and support-bundle took {:.1} s", begun.elapsed().as_secs_f32());
}
