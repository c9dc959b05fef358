//! An agent process of the real binary, and what it is told and asked.

use super::{Directory, Pod, run};
use juneau_agent::protocol::{
    Attached, CallError, Detached, Drops, Endpoints, ErrorCode, Explanation, FlowFilter, Flows, Method, Routes,
    Sandbox, ServiceFilter, Services, Status, call,
};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A node's directory: manifests, sockets, state.
pub struct Node {
    pub name: String,
    pub directory: Directory,
    cgroup: Option<PathBuf>,
}

impl Node {
    /// A node with the manifests of two tenants, with every status filled in. To be made in the node's namespaces.
    pub fn new(name: &str) -> Self {
        let directory = Directory::new(name);
        let manifests = directory.path().join("manifests");
        std::fs::create_dir_all(&manifests).unwrap();
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../juneau-api/tests/fixtures/two-tenants");
        for entry in std::fs::read_dir(examples).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), manifests.join(entry.file_name())).unwrap();
        }
        // A cgroup of its own: an attachment to the root would concern the whole machine.
        let cgroup = juneau_agent::cgroup::root().ok().map(|root| {
            let cgroup = root.join(directory.path().file_name().unwrap());
            std::fs::create_dir(&cgroup).unwrap();
            cgroup
        });
        Self { name: name.to_owned(), directory, cgroup }
    }

    pub fn manifests(&self) -> PathBuf {
        self.directory.path().join("manifests")
    }

    /// Replaces text in a manifest, as an editor would: a new file in the old one's place.
    pub fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.manifests().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from}");
        self.write(file, &text.replace(from, to));
    }

    pub fn write(&self, file: &str, text: &str) {
        let hidden = self.manifests().join(format!(".{file}"));
        std::fs::write(&hidden, text).unwrap();
        std::fs::rename(&hidden, self.manifests().join(file)).unwrap();
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("agent.sock")
    }

    pub fn command(&self) -> Command {
        self.command_with(self.directory.path())
    }

    /// An agent of the same node with a state directory of its own.
    pub fn command_with(&self, path: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_juneau-agent"));
        command
            .arg("run")
            .args(["--node", &self.name, "--log", "info"])
            .arg("--manifests")
            .arg(self.manifests())
            .arg("--socket")
            .arg(path.join("agent.sock"))
            .arg("--metrics-socket")
            .arg(path.join("metrics.sock"))
            .arg("--state-dir")
            .arg(path)
            .args(["--resync", "1", "--stale-after", "1"]);
        if let Some(cgroup) = &self.cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        command.stdin(Stdio::null());
        command
    }

    pub fn start(&self) -> Agent<'_> {
        self.start_with(&[])
    }

    pub fn start_with(&self, arguments: &[&str]) -> Agent<'_> {
        let child = self.command().args(arguments).spawn().unwrap();
        Agent { node: self, child: Some(child) }
    }

    /// An agent that looks at nothing unless it is told that something changed.
    pub fn start_without_looking(&self) -> Agent<'_> {
        let looking = self.command();
        let mut command = Command::new(looking.get_program());
        command.args(looking.get_args().map(|argument| if argument == "1" { "3600".as_ref() } else { argument }));
        Agent { node: self, child: Some(command.stdin(Stdio::null()).spawn().unwrap()) }
    }

    /// An agent that reads an API server.
    pub fn start_at(&self, kubeconfig: &Path) -> Agent<'_> {
        let with_manifests = self.command();
        let mut command = Command::new(with_manifests.get_program());
        let mut arguments = with_manifests.get_args();
        while let Some(argument) = arguments.next() {
            if argument == "--manifests" {
                arguments.next();
                command.arg("--kubeconfig").arg(kubeconfig);
            } else {
                command.arg(argument);
            }
        }
        Agent { node: self, child: Some(command.stdin(Stdio::null()).spawn().unwrap()) }
    }

    /// An agent in the namespaces of another thread.
    pub fn start_in(&self, place: &Pod) -> Agent<'_> {
        self.start_in_with(place, &[])
    }

    pub fn start_in_with(&self, place: &Pod, arguments: &[&str]) -> Agent<'_> {
        let mut command = self.command();
        command.args(arguments);
        let child = place.run(move || command.spawn().unwrap());
        Agent { node: self, child: Some(child) }
    }

    pub fn ask<T: DeserializeOwned>(&self, method: &Method) -> Result<T, CallError> {
        call(&self.socket(), method, Duration::from_secs(20))
    }

    pub fn sandbox(&self, pod: &Pod, namespace: &str, name: &str, container_id: &str) -> Sandbox {
        Sandbox {
            namespace: namespace.into(),
            name: name.into(),
            netns: pod.netns.clone(),
            container_id: container_id.into(),
            ..Sandbox::default()
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(cgroup) = &self.cgroup {
            let _ = std::fs::remove_dir(cgroup);
        }
    }
}

/// A running agent; killed at the end.
pub struct Agent<'a> {
    pub node: &'a Node,
    child: Option<Child>,
}

impl Agent<'_> {
    pub fn status(&self) -> Status {
        self.node.ask(&Method::Status).unwrap()
    }

    /// Waits until the status is as wanted.
    pub fn wait(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        let mut last = None;
        until(what, || {
            let status = self.node.ask::<Status>(&Method::Status).ok()?;
            let found = wanted(&status);
            last = Some(format!("{status:#?}"));
            found.then_some(status)
        })
        .unwrap_or_else(|| panic!("{what}: {}", last.unwrap_or_else(|| "no status".into())))
    }

    pub fn ready(self) -> Self {
        self.wait("ready", |status| status.ready);
        self
    }

    /// Attaches, trying again while the agent says so.
    pub fn attach(&self, pod: &Pod, namespace: &str, name: &str) -> Attached {
        let sandbox = self.node.sandbox(pod, namespace, name, &container_id(namespace, name));
        until("attach", || match self.node.ask(&Method::Attach(sandbox.clone())) {
            Ok(attached) => Some(attached),
            Err(CallError::Refused(failure)) if failure.code == ErrorCode::TryAgain => None,
            Err(error) => panic!("attach {namespace}/{name}: {error}"),
        })
        .unwrap_or_else(|| panic!("attach {namespace}/{name}: {:#?}", self.status().problems))
    }

    pub fn detach(&self, pod: &Pod, namespace: &str, name: &str) -> Detached {
        let sandbox = self.node.sandbox(pod, namespace, name, &container_id(namespace, name));
        self.node.ask(&Method::Detach(sandbox)).unwrap()
    }

    pub fn drops(&self) -> Drops {
        self.node.ask(&Method::Drops).unwrap()
    }

    pub fn flows(&self) -> Flows {
        self.node.ask(&Method::Flows(FlowFilter::default())).unwrap()
    }

    pub fn routes(&self) -> Routes {
        self.node.ask(&Method::Routes).unwrap()
    }

    pub fn endpoints(&self) -> Endpoints {
        self.node.ask(&Method::Endpoints).unwrap()
    }

    pub fn services(&self, vpc: &str) -> Services {
        self.node.ask(&Method::Services(ServiceFilter { vpc: Some(vpc.into()) })).unwrap()
    }

    pub fn explain(&self, request: juneau_agent::protocol::ExplainRequest) -> Explanation {
        self.node.ask(&Method::Explain(request)).unwrap()
    }

    /// The output of the binary's debug client.
    pub fn client(&self, arguments: &str) -> String {
        run(&format!("{} {arguments} --socket {}", env!("CARGO_BIN_EXE_juneau-agent"), self.node.socket().display()))
    }

    pub fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM; whether it ended well.
    pub fn stop(mut self) -> bool {
        let mut child = self.child.take().unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        child.wait().unwrap().success()
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A container id that differs from other Pods' in its first characters.
pub fn container_id(namespace: &str, name: &str) -> String {
    format!("{name}{namespace}0123456789abcdef")
}

/// Asks until there is an answer, for at most ten seconds; the agent has no way to tell from outside.
pub fn until<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(answer) = question() {
            return Some(answer);
        }
        if Instant::now() > end {
            eprintln!("gave up waiting: {what}");
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
