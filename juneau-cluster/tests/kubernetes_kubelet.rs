//! Pods that a real kubelet and a real containerd start through our plugin.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "../../juneau-lab/tests/common/machine.rs"]
#[allow(unreachable_pub, reason = "it is the lab's")]
mod machine;

use juneau_cluster::{Cluster, Node, Options, Paths};
use juneau_lab::kubernetes::deploy;
use machine::machine;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A tenant.
const TENANT: &str = include_str!("common/tenant.yaml");

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  namespace: TENANT
  annotations: { juneau.loutres.me/subnet: TENANT, juneau.loutres.me/address: ADDRESS }
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: localhost/juneau-shell:1
      command: ["/bin/busybox", "sh", "-c", "echo this is TENANT/NAME; exec busybox httpd -f -h /tmp"]
      lifecycle: { postStart: { exec: { command: ["/bin/busybox", "sh", "-c", "echo TENANT/NAME >/tmp/who"] } } }
"#;

fn pod(tenant: &str, name: &str, address: &str) -> String {
    POD.replace("TENANT", tenant).replace("NAME", name).replace("ADDRESS", address)
}

fn repository(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(part).canonicalize().unwrap()
}

/// The plugin, as it is shipped.
fn plugin() -> PathBuf {
    let output = Command::new(repository("tools/plugin.sh")).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "tools/plugin.sh failed");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Asks again until it is so.
#[track_caller]
fn until<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        match ask() {
            Ok(value) => return value,
            Err(last) => assert!(Instant::now() < deadline, "{what}: not within {} s: {last}", LIMIT.as_secs()),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A cluster with one node, on which operator and agent run as plain processes.
struct Fixture {
    cluster: Cluster,
}

impl Fixture {
    fn start() -> Self {
        let paths = Paths::new(format!("/run/juneau-cluster-test-{}", std::process::id()));
        let mut options = Options::new(env!("CARGO_BIN_EXE_juneau-cluster"));
        options.nodes.truncate(1);
        let cluster = Cluster::start(&paths, &options, &mut |line| println!("{line}")).unwrap();
        let this = Self { cluster };
        this.deploy();
        this
    }

    fn node(&self) -> &Node {
        &self.cluster.nodes()[0]
    }

    /// kubectl with these words.
    fn kubectl(&self, line: &str) -> Command {
        let mut command = self.cluster.control_plane().unwrap().kubectl();
        command.args(line.split_whitespace());
        command
    }

    fn apply(&self, manifests: &str) -> Result<(), String> {
        let mut command = self.kubectl("apply -f -");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        if output.status.success() { Ok(()) } else { Err(text(&output)) }
    }

    /// What deploy/ has, but for the two programs, which are services of the node here.
    fn deploy(&self) {
        let control_plane = self.cluster.control_plane().unwrap();
        let file = self.cluster.paths().dir().join("deploy.json");
        deploy::collect(control_plane.kubectl(), &repository("deploy/base"), &file).unwrap();
        succeeds(self.kubectl("apply --server-side -k").arg(repository("deploy/crds")));
        succeeds(self.kubectl("apply --server-side -f").arg(&file));
        succeeds(&mut self.kubectl("wait --for=condition=Established crd --all"));

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kubeconfig = |account: &str, node: Option<&str>| {
            let made = control_plane.service_account_kubeconfig("juneau-system", account, node);
            let inner = runtime.block_on(made).unwrap().with_extension("inner.kubeconfig");
            format!("--kubeconfig={}", inner.display())
        };
        let plugin = format!("--cni-plugin={}", plugin().display());
        let name = self.node().name();
        let node = format!("--node={name}");
        let agent = [
            "run",
            &node,
            &kubeconfig("juneau-agent", Some(name)),
            "--cni-bin-dir=/opt/cni/bin",
            "--cni-conf-dir=/etc/cni/net.d",
            &plugin,
        ];
        let operator = ["run", "--enable-probe-rewrite", &kubeconfig("juneau-operator", None)];
        for (name, arguments) in [("juneau-operator", &operator[..]), ("juneau-agent", &agent[..])] {
            let link = self.cluster.paths().lab().programs().join(name);
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_juneau-cluster"), &link).unwrap();
            let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            self.node().start(&self.node().service(name, &link, arguments, false)).unwrap();
        }
    }

    /// Runs a shell's line in a Pod.
    fn exec(&self, tenant: &str, pod: &str, line: &str) -> Output {
        let mut command = self.kubectl(&format!("-n {tenant} exec {pod} -- /bin/busybox sh -c"));
        command.arg(line).output().unwrap()
    }

    /// What of a Pod could stay behind on the node, and at the API server.
    fn left(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for line in [
            "ip -o link show",
            "ls /run/netns",
            "find /sys/fs/bpf",
            "ip route show table all",
            "find /run/containerd/runc /run/containerd/io.containerd.runtime.v2.task -mindepth 2",
            "find /var/lib/cni/results /var/lib/kubelet/pods -mindepth 1",
        ] {
            let output = self.node().command(Path::new("/bin/sh")).unwrap().args(["-c", line]).output().unwrap();
            all.extend(String::from_utf8_lossy(&output.stdout).lines().map(|entry| format!("{line}: {entry}")));
        }
        let objects = "get allocationleases,networkendpoints,networkinterfaces -A -o name";
        all.extend(succeeds(&mut self.kubectl(objects)).lines().map(str::to_owned));
        all
    }
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn pods_start_through_our_plugin_and_leave_nothing() {
    let untouched = machine(&format!("juneau-cluster-test-{}", std::process::id()));
    let fixture = Fixture::start();
    // The node gets ready when the agent has put the plugin's configuration in place.
    succeeds(&mut fixture.kubectl("wait --for=condition=Ready node/node-1 --timeout=60s"));
    for tenant in ["red", "blue"] {
        until("the webhook answers", || fixture.apply(&TENANT.replace("TENANT", tenant)));
    }
    for kind in ["vpc", "subnet"] {
        succeeds(&mut fixture.kubectl(&format!("wait --for=condition=Ready {kind} --all --timeout=60s")));
    }
    let before = fixture.left();
    let begun = Instant::now();
    let pods = [
        ("red", "a", "10.0.1.10"),
        ("red", "b", "10.0.1.20"),
        ("blue", "a", "10.0.1.10"),
        ("blue", "only", "10.0.1.30"),
    ];
    for (tenant, name, address) in pods {
        // Namespaces take Pods when their ServiceAccounts are there.
        until("the Pod is taken", || fixture.apply(&pod(tenant, name, address)));
    }
    for tenant in ["red", "blue"] {
        succeeds(&mut fixture.kubectl(&format!("-n {tenant} wait --for=condition=Ready pod --all --timeout=60s")));
    }
    println!("four Pods are ready after {:.1} s", begun.elapsed().as_secs_f32());

    for (tenant, name, address) in pods {
        let shown =
            succeeds(&mut fixture.kubectl(&format!("-n {tenant} get pod {name} -o jsonpath={{.status.podIP}}")));
        assert_eq!(shown, address, "{tenant}/{name}");
        let inside = text(&fixture.exec(tenant, name, "busybox ip -4 -o addr show eth0"));
        assert!(inside.contains(&format!("inet {address}/24")), "{inside}");
        let log = succeeds(&mut fixture.kubectl(&format!("-n {tenant} logs {name}")));
        assert_eq!(log, format!("this is {tenant}/{name}\n"));
    }
    // Its own tenant's Pod answers, and nobody at an address that only the other tenant has.
    let get = |from: &str, pod: &str, address: &str| {
        let line = format!("printf 'GET /who HTTP/1.0\\r\\n\\r\\n' | busybox nc -w 2 {address} 80 | busybox tail -n 1");
        String::from_utf8(fixture.exec(from, pod, &line).stdout).unwrap()
    };
    assert_eq!(get("red", "b", "10.0.1.10"), "red/a\n");
    assert_eq!(get("blue", "only", "10.0.1.10"), "blue/a\n");
    assert_eq!(get("blue", "a", "10.0.1.30"), "blue/only\n", "the positive control of the next line");
    assert_eq!(get("red", "a", "10.0.1.30"), "");

    // What runs them may die: it comes back, and they go on.
    let services = fixture.node().services().unwrap();
    let processes: Vec<String> = ["containerd", "kubelet"].map(|name| services[name].unwrap().to_string()).into();
    succeeds(fixture.node().command(Path::new("kill")).unwrap().arg("-9").args(&processes));
    until("both are back", || {
        let now = fixture.node().services().unwrap();
        let back = |name: &str| now[name].is_some() && now[name] != services[name];
        if back("containerd") && back("kubelet") { Ok(()) } else { Err(format!("{now:?}")) }
    });
    until("a Pod can be entered", || {
        let said = fixture.exec("red", "b", "echo still here");
        if said.stdout == b"still here\n" { Ok(()) } else { Err(text(&said)) }
    });
    assert_eq!(get("red", "b", "10.0.1.10"), "red/a\n");

    let begun = Instant::now();
    succeeds(&mut fixture.kubectl("delete pod --all-namespaces --all --timeout=60s"));
    println!("they are gone after {:.1} s", begun.elapsed().as_secs_f32());
    until("nothing of them is left", || {
        let now = fixture.left();
        let more: Vec<&String> = now.difference(&before).collect();
        if more.is_empty() { Ok(()) } else { Err(format!("{more:#?}")) }
    });

    drop(fixture);
    let after = machine(&format!("juneau-cluster-test-{}", std::process::id()));
    let more: Vec<&String> = after.difference(&untouched).collect();
    let less: Vec<&String> = untouched.difference(&after).collect();
    assert!(more.is_empty() && less.is_empty(), "the machine is another than before: {more:#?} {less:#?}");
}
