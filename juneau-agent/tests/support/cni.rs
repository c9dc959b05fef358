//! The CNI plugin as it is shipped, and what a container runtime does with it.

use super::Pod;
use super::agent::Node;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The plugin, built as it is shipped.
pub fn plugin() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/plugin.sh");
        let output = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "tools/plugin.sh failed");
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    })
}

/// A sandbox, as a runtime knows it.
#[derive(Debug, Clone)]
pub struct Runtime {
    socket: PathBuf,
    netns: String,
    container_id: String,
    args: String,
    pub version: &'static str,
}

impl Runtime {
    pub fn new(node: &Node, pod: &Pod, namespace: &str, name: &str, container_id: &str) -> Self {
        let args = format!(
            "K8S_POD_UID={namespace}-{name}-0001;IgnoreUnknown=1;K8S_POD_NAME={name};K8S_POD_NAMESPACE={namespace};\
             K8S_POD_INFRA_CONTAINER_ID={container_id}"
        );
        Self {
            socket: node.socket(),
            netns: pod.netns.display().to_string(),
            container_id: container_id.into(),
            args,
            version: "1.1.0",
        }
    }

    pub fn with_uid(mut self, uid: &str) -> Self {
        self.args = format!("{};K8S_POD_UID={uid}", self.args.split_once(';').unwrap().1);
        self
    }

    pub fn with_netns(mut self, netns: &str) -> Self {
        self.netns = netns.into();
        self
    }

    /// Runs the plugin with these members in the configuration; its result, or its error with code and message.
    pub fn run(&self, command: &str, members: &Value) -> Result<Value, (u64, String)> {
        let output = self.output(command, members);
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let document = match output.stdout.as_slice() {
            [] => Value::Null,
            text => serde_json::from_slice(text).unwrap(),
        };
        if output.status.success() {
            return Ok(document);
        }
        let text = |member: &str| document[member].as_str().unwrap().to_owned();
        Err((document["code"].as_u64().unwrap(), format!("{}; {}", text("msg"), text("details"))))
    }

    fn output(&self, command: &str, members: &Value) -> Output {
        let mut config = json!({"cniVersion": self.version, "name": "juneau", "type": "juneau", "socket": self.socket});
        for (name, value) in members.as_object().into_iter().flatten() {
            config[name] = value.clone();
        }
        let mut child = Command::new(plugin())
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &self.container_id)
            .env("CNI_NETNS", &self.netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", &self.args)
            .env("CNI_PATH", "/nonexistent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    pub fn add(&self) -> Result<Value, (u64, String)> {
        self.run("ADD", &Value::Null)
    }

    /// ADD as a kubelet does it: until it succeeds, for as long as it is told to try again.
    pub fn added(&self) -> Value {
        super::agent::until("ADD", || match self.add() {
            Ok(result) => Some(result),
            Err((11, _)) => None,
            Err(error) => panic!("{error:?}"),
        })
        .unwrap_or_else(|| panic!("{:?}", self.add()))
    }

    pub fn check(&self, result: &Value) -> Result<Value, (u64, String)> {
        self.run("CHECK", &json!({"prevResult": result}))
    }

    pub fn del(&self) {
        assert_eq!(self.run("DEL", &Value::Null), Ok(Value::Null));
    }
}
