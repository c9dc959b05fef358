//! The CNI plugin driven by `cnitool`, which comes with the specification.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use support::agent::{Node, until};
use support::cni::plugin;
use support::{Pod, in_node, lonely_underlay, run};

fn cnitool() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/cnitool.sh");
        let output = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "tools/cnitool.sh failed");
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    })
}

/// The configuration and the plugins where the agent put them.
struct Tool {
    configurations: PathBuf,
    plugins: PathBuf,
}

impl Tool {
    /// Standard output, and standard error if it failed.
    fn run(&self, command: &str, pod: &Pod, name: &str) -> Result<String, String> {
        let output = Command::new(cnitool())
            .args([command, "juneau"])
            .arg(&pod.netns)
            .env_clear()
            .env("NETCONFPATH", &self.configurations)
            .env("CNI_PATH", &self.plugins)
            .env("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=red;K8S_POD_NAME={name}"))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr) + &text(output.stdout)) }
    }
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn cnitool_drives_it_through_every_command() {
    for version in ["1.0.0", "1.1.0"] {
        in_node(move || {
            // Where libcni keeps results.
            run("mount -t tmpfs tmpfs /var/lib");
            lonely_underlay();
            let node = Node::new("node-1");
            let tool = Tool {
                configurations: node.directory.path().join("net.d"),
                plugins: node.directory.path().join("bin"),
            };
            let arguments = [
                "--cni-bin-dir",
                tool.plugins.to_str().unwrap(),
                "--cni-conf-dir",
                tool.configurations.to_str().unwrap(),
                "--cni-plugin",
                plugin().to_str().unwrap(),
                "--cni-version",
                version,
            ];
            let agent = node.start_with(&arguments).ready();
            until("the configuration", || tool.configurations.exists().then_some(())).unwrap();
            let [a1, b1] = [Pod::new(), Pod::new()];
            let results = [(&a1, "a1"), (&b1, "b1")]
                .map(|(pod, name)| -> Value { serde_json::from_str(&tool.run("add", pod, name).unwrap()).unwrap() });
            assert_eq!(results[0]["cniVersion"], version);
            assert_eq!(results[0]["ips"][0]["address"], "10.0.1.10/24");
            assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10"));
            tool.run("check", &a1, "a1").unwrap();
            a1.sh("ip addr flush dev eth0");
            let said = tool.run("check", &a1, "a1").unwrap_err();
            assert!(said.contains("does not have its address"), "{said}");
            tool.run("status", &a1, "a1").unwrap();
            tool.run("del", &a1, "a1").unwrap();
            tool.run("del", &a1, "a1").unwrap();
            assert!(!a1.succeeds("ip link show eth0"));
            // The tool ends what it remembers, and then gives no list of what is valid: that is no order to end all.
            let collected = tool.run("gc", &b1, "b1");
            match version {
                "1.0.0" => drop(collected.unwrap()),
                _ => assert!(collected.unwrap_err().contains("valid-attachments is missing")),
            }
            agent.wait("all are gone", |status| status.attachments.is_empty());

            let said = tool.run("add", &a1, "nobody").unwrap_err();
            assert!(said.contains("NetworkEndpoint/red/nobody.eth0"), "{said}");
            agent.kill();
            let said = tool.run("add", &a1, "a1").unwrap_err();
            assert!(said.contains("is juneau-agent running"), "{said}");
            tool.run("del", &a1, "a1").unwrap();
            assert_eq!(tool.run("status", &a1, "a1").is_err(), version == "1.1.0", "1.0.0 has no STATUS");
        });
    }
}
