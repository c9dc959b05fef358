//! The agent with the capabilities that its DaemonSet gives it, and with each of them taken away; where settings of the
//! kernel can be written only elsewhere than at `/proc/sys`, as in a container.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_agent::protocol::{Attached, CallError, ErrorCode, Method, Status};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::agent::{Node, container_id};
use support::{Pod, in_node, lonely_underlay, run};

/// The only container of the DaemonSet.
fn container() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/base/agent.yaml");
    let daemon_set: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let containers = daemon_set["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    containers[0].clone()
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a node with two Pods comes up under these capabilities, and if not, why.
fn works(capabilities: Vec<String>, patience: Duration) -> Result<(), String> {
    let (tell, told) = mpsc::channel();
    in_node(move || {
        lonely_underlay();
        let node = Node::new("node-1");
        let directory = node.directory.path();
        let place = directory.display();
        run(&format!("mkdir -p {place}/sysctl/net && mount --bind /proc/sys/net {place}/sysctl/net"));
        run("mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys");
        let pods = [("a1", Pod::new()), ("b1", Pod::new())].map(|(name, mut pod)| {
            // By its file, as container runtimes have it: what `/proc` shows of a process asks for more.
            let file = directory.join(name);
            run(&format!("touch {0} && mount --bind {1} {0}", file.display(), pod.netns.display()));
            pod.netns = file;
            (name, pod)
        });
        let command = node.command();
        let set = capabilities.iter().map(|name| format!(",+{}", name.to_lowercase())).collect::<String>();
        let child = Command::new("setpriv")
            .args(["--no-new-privs", "--inh-caps=-all", &format!("--bounding-set=-all{set}")])
            .arg(command.get_program())
            .args(command.get_args())
            .args(["--sysctl-dir", &format!("{place}/sysctl")])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let _process = Process(child.unwrap());
        tell.send(come_up(&node, &pods, patience)).unwrap();
    });
    told.recv().unwrap()
}

fn come_up(node: &Node, pods: &[(&str, Pod)], patience: Duration) -> Result<(), String> {
    let end = Instant::now() + patience;
    let mut why = "nobody answered".to_owned();
    let mut attached = 0;
    while let Some((name, pod)) = pods.get(attached) {
        let sandbox = node.sandbox(pod, "red", name, &container_id("red", name));
        match node.ask::<Attached>(&Method::Attach(sandbox)) {
            Ok(_) => attached += 1,
            Err(CallError::Refused(failure)) if failure.code != ErrorCode::TryAgain => return Err(failure.message),
            Err(error) => {
                if let Ok(status) = node.ask::<Status>(&Method::Status) {
                    why = format!("{error}: {:?}", status.problems);
                }
            }
        }
        if Instant::now() > end {
            return Err(why);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = node.ask::<Status>(&Method::Status).map_err(|error| error.to_string())?;
    if !status.ready || !status.problems.iter().all(|problem| problem.object.starts_with("Network")) {
        return Err(format!("{:?}", status.problems));
    }
    let [(_, first), _] = pods else { return Err("two Pods are wanted".into()) };
    first.succeeds("ping -c 1 -W 2 10.0.2.10").then_some(()).ok_or_else(|| "the Pods do not hear each other".into())
}

#[test]
fn the_agent_needs_the_capabilities_that_it_is_given_and_no_others() {
    let security = &container()["securityContext"];
    assert_eq!(
        (&security["privileged"], &security["capabilities"]["drop"]),
        (&false.into(), &serde_json::json!(["ALL"]))
    );
    let capabilities: Vec<String> = serde_json::from_value(security["capabilities"]["add"].clone()).unwrap();
    works(capabilities.clone(), Duration::from_secs(20)).unwrap();
    for taken in &capabilities {
        let rest = capabilities.iter().filter(|name| *name != taken).cloned().collect();
        let why = works(rest, Duration::from_secs(3)).expect_err(taken);
        assert!(why.contains("ermitted") || why.contains("denied") || why.contains("EPERM"), "{taken}: {why}");
    }
}
