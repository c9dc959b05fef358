//! A node, from outside: made, given its programs, entered.

use crate::config;
use crate::error::{ClusterError, Context, Result};
use crate::hold::LIBRARIES;
use crate::paths::Paths;
use crate::program::succeed;
use crate::service::{Answer, Order, Service, ask, first_process};
use juneau_controlplane::{Containers, NodeIdentity, Program, Programs, Tool};
use juneau_lab::{namespace, underlay};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where programs of the machine are.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A node that is there.
#[derive(Debug, Clone)]
pub struct Node {
    name: String,
    address: Ipv4Addr,
    paths: Paths,
    containers: Containers,
}

/// Starts the process that holds a node's namespaces. It ends with the thread that starts it, and the node with it.
pub(crate) fn hold(paths: &Paths, name: &str, address: Ipv4Addr, mtu: u32) -> Result<Child> {
    let log = paths.log(name, None);
    let file = OpenOptions::new().create(true).append(true).open(&log).on("opening", &log)?;
    let program = paths.lab().programs().join("juneau-cluster");
    let mut command = Command::new(&program);
    command.arg("--state-dir").arg(paths.dir()).args(["hold", "--node", name]).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
    // An interrupt at the terminal is not meant for it.
    command.process_group(0);
    let mut child = command.spawn().on("starting", &program)?;
    let mut line = String::new();
    let read = child.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    let connected = match read {
        Some(Ok(_)) if line == "ready\n" => {
            let (netns, place) = (PathBuf::from(format!("/proc/{}/ns/net", child.id())), paths.namespace(name));
            namespace::pin(&netns, &place)
                .and_then(|()| underlay::connect(&paths.lab().underlay(), &place, name, address, mtu))
                .map_err(Into::into)
        }
        _ => Err(ClusterError::Node { node: name.to_owned(), log }),
    };
    if let Err(error) = connected {
        end(&mut child);
        return Err(error);
    }
    Ok(child)
}

/// Ends a node, by the process that holds it.
pub(crate) fn end(holder: &mut Child) {
    // Both fail only for what is gone already.
    holder.kill().ok();
    holder.wait().ok();
}

impl Node {
    /// The node of this name, whose namespaces are there.
    pub(crate) fn new(paths: &Paths, name: &str, address: Ipv4Addr, containers: &Containers) -> Self {
        Self { name: name.to_owned(), address, paths: paths.clone(), containers: containers.clone() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the underlay.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Puts in place what is there before a node begins, as the packages of a distribution do.
    pub(crate) fn furnish(paths: &Paths, name: &str, containers: &Containers) -> Result<()> {
        let plugins = paths.written(name, "opt").join(config::CNI_BIN.trim_start_matches("/opt/"));
        let configurations = paths.written(name, "etc").join(config::CNI_CONF.trim_start_matches("/etc/"));
        let libraries = LIBRARIES.map(|library| paths.library(name, library));
        for dir in [&plugins, &configurations].into_iter().chain(&libraries) {
            fs::create_dir_all(dir).on("creating", dir)?;
        }
        let (from, to) = (containers.path(Tool::Loopback), plugins.join(Tool::Loopback.name()));
        fs::copy(&from, &to).on("copying", &from)?;
        let file = containerd_config(paths, name);
        fs::write(&file, config::containerd(&containers.path(Tool::Runc))).on("writing", &file)
    }

    /// Starts containerd, and waits until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn start_containerd(&self) -> Result<()> {
        let config = containerd_config(&self.paths, &self.name);
        let arguments = vec!["--config".to_owned(), config.display().to_string()];
        self.start(&self.service("containerd", &self.containers.path(Tool::Containerd), arguments, true))
    }

    /// Imports an image from its archive.
    ///
    /// # Errors
    /// When containerd does not answer, or takes it for none.
    pub fn import(&self, archive: &Path) -> Result<()> {
        let mut command = self.ctr()?;
        succeed(command.args(["images", "import"]).arg(archive)).map(drop)
    }

    /// containerd's client, for what Kubernetes has there.
    ///
    /// # Errors
    /// When the node is not there.
    pub fn ctr(&self) -> Result<Command> {
        let mut command = self.command(&self.containers.path(Tool::Ctr))?;
        command.args(["--address", config::CONTAINERD_SOCKET, "--namespace", "k8s.io"]);
        Ok(command)
    }

    /// Starts the kubelet, and waits until it runs. It makes the Node object by itself.
    ///
    /// # Errors
    /// When it does not.
    pub fn start_kubelet(&self, programs: &Programs, identity: &NodeIdentity) -> Result<()> {
        let file = self.paths.node(&self.name).join("kubelet.json");
        fs::write(&file, format!("{:#}\n", config::kubelet(identity))).on("writing", &file)?;
        let arguments = config::kubelet_arguments(&self.name, self.address, &file, identity);
        self.start(&self.service(Program::Kubelet.name(), &programs.path(Program::Kubelet), arguments, true))
    }

    /// A service that has its log where all of this node's are.
    #[must_use]
    pub fn service(&self, name: &str, program: &Path, arguments: Vec<String>, notifies: bool) -> Service {
        let path = format!("{}:{SYSTEM_PATH}", self.containers.folder().display());
        Service {
            name: name.to_owned(),
            program: program.to_owned(),
            arguments,
            environment: BTreeMap::from([("PATH".to_owned(), path)]),
            log: self.paths.log(&self.name, Some(name)),
            notifies,
        }
    }

    /// Runs a program in the node from now on; when it ends, it is started again. What had its name before ends.
    ///
    /// # Errors
    /// When it cannot be started, or does not get ready.
    pub fn start(&self, service: &Service) -> Result<()> {
        self.ask(&Order::Start(service.clone())).map(drop)
    }

    /// Ends a service, which rests then. None of that name is no error.
    ///
    /// # Errors
    /// When the node is not there, or it does not end.
    pub fn stop(&self, name: &str) -> Result<()> {
        self.ask(&Order::Stop(name.to_owned())).map(drop)
    }

    /// The services by name, with their process ids in the node; those that rest have none.
    ///
    /// # Errors
    /// When the node is not there.
    pub fn services(&self) -> Result<BTreeMap<String, Option<i32>>> {
        match self.ask(&Order::List)? {
            Answer::Services(services) => Ok(services),
            Answer::Done | Answer::Failed(_) => Ok(BTreeMap::new()),
        }
    }

    fn ask(&self, order: &Order) -> Result<Answer> {
        ask(&self.name, &self.paths.init_socket(&self.name), order)
    }

    /// The process id of the node's first process, as seen from here.
    ///
    /// # Errors
    /// When the node is not there.
    pub fn first_process(&self) -> Result<i32> {
        first_process(&self.name, &self.paths.init_socket(&self.name))
    }

    /// A command that will run in the node's namespaces.
    ///
    /// # Errors
    /// When the node is not there.
    pub fn command(&self, program: &Path) -> Result<Command> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.first_process()?));
        command.args(["--mount", "--uts", "--net", "--pid", "--cgroup", "--"]).arg(program).current_dir("/");
        command.env("PATH", format!("{}:{SYSTEM_PATH}", self.containers.folder().display()));
        Ok(command)
    }
}

fn containerd_config(paths: &Paths, node: &str) -> PathBuf {
    paths.node(node).join("containerd.toml")
}
