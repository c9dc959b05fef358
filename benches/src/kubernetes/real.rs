//! Clusters with kubelets and containerd, by `juneau-cluster`: how long one takes to come up, and how long a Pod takes to be
//! ready with Juneau and with the plugin `ptp`.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use juneau_controlplane::client;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::error::{Context, Error, Result};
use crate::report::{Bound, Row, progress};
use crate::statistics::{Series, mean, median, median_ratio};

/// The nodes of such a cluster. With each, its part of the prefix that `ptp` gives addresses of.
const NODES: [(&str, &str); 2] = [("node-1", "10.88.1.0/24"), ("node-2", "10.88.2.0/24")];
/// Longest that a Pod may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// After a Pod has ended, until the next one begins: what the node does about its end is over. A kubelet looks at its
/// containers once a second; rounds begin at different moments of that second.
const REST: Duration = Duration::from_millis(1500);

/// A cluster that runs, until this is dropped.
struct Real<'a> {
    program: &'a Path,
    directory: PathBuf,
}

impl<'a> Real<'a> {
    fn up(program: &'a Path, name: &str, arguments: &[&str]) -> Result<Self> {
        let cluster = Self { program, directory: Path::new("/run").join(format!("juneau-benches-{name}")) };
        cluster.run(&[&["up"], arguments].concat())?;
        Ok(cluster)
    }

    /// Runs the cluster's program; what it printed.
    fn run(&self, arguments: &[&str]) -> Result<String> {
        let what = || format!("{} {}", self.program.display(), arguments.join(" "));
        let mut command = Command::new(self.program);
        command.arg("--state-dir").arg(&self.directory).args(arguments).stdin(Stdio::null());
        let output = command.stderr(Stdio::piped()).output().context(what())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Error::NotOurs(format!("{}: {}: {}", what(), output.status, said.trim())))
    }
}

impl Drop for Real<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["down"]) {
            progress(format!("a cluster is not removed: {error}"));
        }
    }
}

/// How long `make cluster` takes to its table, when everything is built.
pub(super) fn warm(program: &Path, rounds: usize) -> Result<Row> {
    progress(format!("kubernetes: {rounds} clusters"));
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begun = Instant::now();
        let cluster = Real::up(program, "cluster", &[])?;
        times.push(begun.elapsed().as_secs_f64());
        drop(cluster);
    }
    Ok(Row {
        name: "from nothing to the table of make cluster, warm".into(),
        value: median(times).unwrap_or(f64::NAN),
        unit: "s",
        noise: None,
        goal: Some(Bound::AtMost(45.0)),
        detail: format!("{rounds} clusters, the check of who reaches whom included"),
    })
}

/// From a Pod's object until it is ready, against the same Pod with the plugin `ptp`, whose programs are in `ptp`.
pub(super) fn ready(program: &Path, ptp: &Path, rounds: usize) -> Result<Row> {
    progress("kubernetes: a cluster with Juneau, and one with ptp");
    let ours = Real::up(program, "juneau", &["--empty"])?;
    let base = Real::up(program, "ptp", &["--bare"])?;
    for (node, prefix) in NODES {
        base.run(&["exec", node, "--", "/bin/sh", "-c", &install(ptp, prefix)])?;
    }
    base.run(&["kubectl", "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s"])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    let [mut ours, mut base] = [Watched::new(&runtime, &ours)?, Watched::new(&runtime, &base)?];

    progress(format!("kubernetes: {rounds} rounds of a Pod on each node, with either network"));
    let (mut figures, mut bases) = (Series::new(), [Series::new(), Series::new()]);
    // The first Pod of each pays for what others find done.
    for round in 0..=rounds {
        let mut of_ours = Vec::new();
        let mut measure = |node: usize| -> Result<()> {
            // Now one begins, now the other.
            for turn in 0..2 {
                if (turn + round).is_multiple_of(2) {
                    of_ours.push(ours.pod(&runtime, node, round)?);
                } else if let Some(series) = bases.get_mut(node) {
                    series.insert(round, base.pod(&runtime, node, round)?);
                }
            }
            Ok(())
        };
        let nodes: [usize; 2] = if round.is_multiple_of(4) || round % 4 == 3 { [0, 1] } else { [1, 0] };
        nodes.into_iter().try_for_each(&mut measure)?;
        figures.insert(round, of_ours.iter().sum::<f64>() / of_ours.len() as f64);
    }
    figures.remove(&0);
    for series in &mut bases {
        series.remove(&0);
    }
    let [first, second] = &bases;
    let both = mean(&[first, second]);
    let of = |series: &Series| median(series.values().copied()).unwrap_or(f64::NAN);
    Ok(Row {
        name: "Pod → Ready on a real cluster / the ptp plugin".into(),
        value: median_ratio(&figures, &both).unwrap_or(f64::NAN),
        unit: "",
        noise: median_ratio(first, second).map(|ratio| (ratio - 1.0).abs()),
        goal: Some(Bound::AtMost(1.05)),
        detail: format!("{rounds} rounds of two nodes; medians {:.0} and {:.0} ms", of(&figures), of(&both)),
    })
}

/// A shell's line that gives a node the plugin `ptp`. The configuration comes last, and whole.
fn install(programs: &Path, prefix: &str) -> String {
    let ipam = json!({
        "type": "host-local", "ranges": [[{"subnet": prefix}]], "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni-ipam",
    });
    let plugin = json!({"type": "ptp", "ipMasq": false, "mtu": 1450, "ipam": ipam});
    let config = json!({"cniVersion": "1.0.0", "name": "ptp", "plugins": [plugin]});
    let programs = programs.display();
    format!(
        "set -e; cp '{programs}/ptp' '{programs}/host-local' /opt/cni/bin/; cd /etc/cni/net.d; \
         printf %s '{config}' >.ptp; mv .ptp 10-ptp.conflist"
    )
}

/// A cluster whose Pods are watched.
struct Watched {
    pods: Api<Pod>,
    events: Pin<Box<dyn Stream<Item = watcher::Result<watcher::Event<Pod>>>>>,
}

impl Watched {
    fn new(runtime: &Runtime, cluster: &Real<'_>) -> Result<Self> {
        let kubeconfig = PathBuf::from(cluster.run(&["kubeconfig"])?.trim());
        let client: Client = runtime.block_on(client(&kubeconfig))?;
        let pods = Api::<Pod>::namespaced(client, "default");
        let events = Box::pin(watcher(pods.clone(), watcher::Config::default()));
        Ok(Self { pods, events })
    }

    /// Makes a Pod, and takes it away when it is ready; how long that took, in milliseconds.
    fn pod(&mut self, runtime: &Runtime, node: usize, round: usize) -> Result<f64> {
        let node = NODES.get(node).map(|(name, _)| *name).unwrap_or_default();
        let name = format!("{node}-{round}");
        let took = runtime.block_on(async {
            let begun = self.make(&pod(node, &name)?).await?;
            self.wait(&name, "becomes ready", |pod| pod.is_some_and(is_ready)).await?;
            let took = begun.elapsed();
            self.pods.delete(&name, &DeleteParams::default()).await.context(format!("deleting Pod {name}"))?;
            self.wait(&name, "ends", |pod| pod.is_none()).await?;
            Ok::<_, Error>(took)
        })?;
        thread::sleep(REST + Duration::from_millis(round as u64 * 377 % 1000));
        Ok(took.as_secs_f64() * 1e3)
    }

    /// Makes a Pod; when it was asked for. A new cluster refuses until its controllers, and the webhook, have come.
    async fn make(&self, pod: &Pod) -> Result<Instant> {
        let first = Instant::now();
        loop {
            let begun = Instant::now();
            match self.pods.create(&PostParams::default(), pod).await {
                Ok(_) => return Ok(begun),
                Err(_) if first.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(200)).await,
                Err(error) => return Err(error).context(format!("making Pod {}", pod.name_any())),
            }
        }
    }

    /// Waits for an event of a Pod by which it is so; `None` stands for its end.
    async fn wait(&mut self, name: &str, what: &str, is_so: impl Fn(Option<&Pod>) -> bool) -> Result<()> {
        let late = || Error::NotOurs(format!("Pod {name} never {what}"));
        loop {
            let event = timeout(PATIENCE, self.events.next()).await.map_err(|_| late())?.ok_or_else(late)?;
            let event = event.map_err(|error| Error::NotOurs(format!("the watch of Pods: {error}")))?;
            let seen = match &event {
                watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => (pod, Some(pod)),
                watcher::Event::Delete(pod) => (pod, None),
                watcher::Event::Init | watcher::Event::InitDone => continue,
            };
            if seen.0.name_any() == name && is_so(seen.1) {
                return Ok(());
            }
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A Pod that does nothing, of an image that every node has.
fn pod(node: &str, name: &str) -> Result<Pod> {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false, "enableServiceLinks": false,
            "containers": [{"name": "main", "image": "localhost/juneau-pause:1"}],
        },
    });
    serde_json::from_value(pod).map_err(|error| Error::NotOurs(format!("a Pod: {error}")))
}
