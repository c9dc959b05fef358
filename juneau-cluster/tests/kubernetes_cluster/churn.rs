//! Pods come and go faster than a node starts them: nothing of them stays, and none runs or is ready before its network is.

use crate::fixture::{Fixture, Inside, PODS, until};
use futures::StreamExt;
use juneau_bpf::KernelTables;
use juneau_core::tables::{Diff, Tables, TablesMut};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Between two new Pods: 20 a second, as long as there is room for them.
const PACE: Duration = Duration::from_millis(50);
/// So many exist at a time, over both nodes: a kubelet takes 110.
const AT_ONCE: usize = 120;
/// One in so many Pods is deleted when it has existed for a while, started or not; others when they are ready.
const EARLY: usize = 3;
/// The longest that such a Pod exists, in milliseconds.
const EARLY_WITHIN: u64 = 3000;
/// The first packet of a connection is sent again after a second: who has to wait for that lost it.
const FIRST_PACKET: Duration = Duration::from_millis(900);
/// Within this time another node has heard of a Pod that is ready, and the Pod's program listens.
const SOON: Duration = Duration::from_secs(10);
const NODES: [&str; 2] = ["node-1", "node-2"];
const LABEL: &str = "juneau-test=churn";

/// The first thing that a container does is to ask a Pod of its node for its name. No packet may get lost on the way.
const SCRIPT: &str = r#"
who=$(printf 'GET /who HTTP/1.0\r\n\r\n' | busybox nc -w 10 PEER 80)
case $who in *PEERS-NAME*) ;; *) echo "asking PEERS-NAME: $who"; exit 1 ;; esac
set -- $(busybox grep '^Tcp: [0-9]' /proc/net/snmp)
[ "${13}" = 0 ] || { echo "${13} segments were sent again"; exit 1; }
echo TENANT/NAME >/tmp/who
exec busybox httpd -f -h /tmp
"#;

/// How many Pods: a few, or, by `make test-long`, as many as the goal has.
fn count() -> usize {
    if std::env::var_os("JUNEAU_LONG").is_some() { 500 } else { 60 }
}

/// Tenant and node of a Pod, and the Pod there that is always there.
fn place(number: usize) -> (&'static str, &'static str, &'static str, &'static str) {
    let places = [("red", NODES[0]), ("blue", NODES[0]), ("red", NODES[1]), ("blue", NODES[1])];
    let (tenant, node) = places[number % places.len()];
    let there = PODS.iter().find(|(of, _, on, _)| (*of, *on) == (tenant, node)).unwrap();
    (tenant, node, there.1, there.3)
}

fn name(number: usize) -> String {
    format!("churn-{number}")
}

fn manifest(number: usize) -> Pod {
    let (tenant, node, peer, address) = place(number);
    let with = [("PEERS-NAME", format!("{tenant}/{peer}")), ("PEER", address.to_owned())];
    let script = with.iter().fold(SCRIPT.to_owned(), |text, (from, to)| text.replace(from, to));
    let script = script.replace("TENANT/NAME", &format!("{tenant}/{}", name(number)));
    let pod = json!({
        "metadata": {
            "name": name(number), "namespace": tenant, "labels": { "juneau-test": "churn" },
            "annotations": { "juneau.loutres.me/subnet": tenant },
        },
        "spec": {
            "nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false, "enableServiceLinks": false,
            "containers": [{
                "name": "main", "image": "localhost/juneau-shell:1", "command": ["/bin/busybox", "sh", "-c", script],
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }],
        },
    });
    serde_json::from_value(pod).unwrap()
}

/// What a Pod that became ready must do at once, and what soon, asked from the Pods that are always there.
fn ask(own: &Inside, other: &Inside, tenant: &str, name: &str, address: &str) -> Result<(), String> {
    let at = SocketAddr::new(address.parse().unwrap(), 80);
    // Its network answers, though its program may not listen yet.
    match own.run(|| TcpStream::connect_timeout(&at, FIRST_PACKET)) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        Err(error) => return Err(format!("{tenant}/{name} is ready, and {address} on its node is silent: {error}")),
    }
    let begun = Instant::now();
    for (from, asked) in [("its node", own), ("the other node", other)] {
        loop {
            match asked.ask(address) {
                Some(who) if who == format!("{tenant}/{name}") => break,
                _ if begun.elapsed() < SOON => std::thread::sleep(Duration::from_millis(20)),
                wrong => return Err(format!("{tenant}/{name} at {address}: {wrong:?} answers to {from}")),
            }
        }
    }
    Ok(())
}

/// Pods that come and go, as they are seen.
struct Churn {
    client: Client,
    asking: BTreeMap<(&'static str, &'static str), Arc<Inside>>,
    made: usize,
    alive: BTreeSet<String>,
    ready: BTreeSet<String>,
    failures: Vec<String>,
    tasks: JoinSet<Result<(), String>>,
}

impl Churn {
    fn api(&self, tenant: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), tenant)
    }

    async fn run(&mut self, count: usize) {
        let watched = watcher::Config::default().labels(LABEL);
        let mut events = pin!(watcher(Api::<Pod>::all(self.client.clone()), watched));
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.made < count || !self.alive.is_empty() || !self.tasks.is_empty() {
            tokio::select! {
                _ = ticks.tick(), if self.made < count && self.alive.len() < AT_ONCE => self.make(),
                Some(event) = events.next() => match event {
                    Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => self.see(&pod),
                    Ok(watcher::Event::Delete(pod)) => drop(self.alive.remove(&pod.name_any())),
                    Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                    Err(error) => self.failures.push(format!("the watch of Pods: {error}")),
                },
                Some(done) = self.tasks.join_next() => self.failures.extend(done.unwrap().err()),
            }
        }
    }

    fn make(&mut self) {
        let number = self.made;
        self.made += 1;
        let (api, pod, name) = (self.api(place(number).0), manifest(number), name(number));
        self.alive.insert(name.clone());
        self.tasks.spawn(async move {
            api.create(&PostParams::default(), &pod).await.map_err(|error| format!("making {name}: {error}"))?;
            if is_early(&name) {
                sleep(Duration::from_millis(number as u64 * 997 % EARLY_WITHIN)).await;
                delete(&api, &name).await?;
            }
            Ok(())
        });
    }

    fn see(&mut self, pod: &Pod) {
        let (tenant, name) = (pod.namespace().unwrap(), pod.name_any());
        let Some(status) = pod.status.as_ref().filter(|_| pod.metadata.deletion_timestamp.is_none()) else { return };
        let api = self.api(&tenant);
        if status.phase.as_deref() == Some("Failed") {
            let ended = status.container_statuses.iter().flatten().find_map(|status| status.state.clone()?.terminated);
            self.failures.push(format!("{tenant}/{name}: {:?} {ended:?}", status.message));
            self.tasks.spawn(async move { delete(&api, &name).await });
            return;
        }
        let is_ready = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| (condition.type_.as_str(), condition.status.as_str()) == ("Ready", "True"));
        if !is_ready || !self.ready.insert(name.clone()) || is_early(&name) {
            return;
        }
        let address = status.pod_ip.clone().unwrap();
        let node = pod.spec.as_ref().unwrap().node_name.clone().unwrap();
        let other = NODES.into_iter().find(|other| *other != node).unwrap();
        let [own, other] = [node.as_str(), other].map(|node| Arc::clone(&self.asking[&(&*tenant, node)]));
        self.tasks.spawn(async move {
            let asked = name.clone();
            let outcome = tokio::task::spawn_blocking(move || ask(&own, &other, &tenant, &asked, &address)).await;
            delete(&api, &name).await?;
            outcome.unwrap()
        });
    }
}

/// Whether a Pod is deleted without regard to how far it is.
fn is_early(name: &str) -> bool {
    name.rsplit('-').next().and_then(|number| number.parse::<usize>().ok()).is_some_and(|number| number % EARLY == 2)
}

async fn delete(api: &Api<Pod>, name: &str) -> Result<(), String> {
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(format!("deleting {name}: {error}")),
    }
}

/// What the kernel holds in every table of a node.
fn tables(fixture: &Fixture, node: &str) -> Tables {
    let pins = format!("/proc/{}/root/sys/fs/bpf/juneau", fixture.node(node).first_process().unwrap());
    KernelTables::open(pins.as_ref()).unwrap().snapshot().unwrap()
}

/// Network namespaces that the node's agent holds open, beside those that anybody has by name.
fn held_namespaces(fixture: &Fixture, node: &str) -> String {
    let agent = fixture.agent_process(node).unwrap();
    // By the type of the file system that they are files of: NSFS_MAGIC.
    fixture
        .on(node, &format!("stat --dereference --file-system --format=%t /proc/{agent}/fd/* | grep -c 6e736673; true"))
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn pods_that_come_and_go_leave_nothing_and_have_their_network_when_they_start() {
    let fixture = Fixture::shared();
    let _turn = fixture.turn();
    let before = fixture.settled();
    let tables_before = NODES.map(|node| tables(&fixture, node));
    let held_before = NODES.map(|node| held_namespaces(&fixture, node));
    assert!(tables_before.iter().all(|tables| !tables.is_empty()), "the positive control of what is compared below");
    let count = count();
    let asking = PODS.iter().filter(|(_, name, ..)| *name != "c");
    let asking = asking.map(|(tenant, name, node, _)| ((*tenant, *node), Arc::new(fixture.inside(tenant, name))));
    let asking = asking.collect();
    let begun = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let churn = runtime.block_on(async {
        let client = fixture.cluster().control_plane().unwrap().client().await.unwrap();
        let [alive, ready] = [BTreeSet::new(), BTreeSet::new()];
        let mut churn = Churn { client, asking, made: 0, alive, ready, failures: Vec::new(), tasks: JoinSet::new() };
        let limit = Duration::from_secs(120) + Duration::from_secs(2) * u32::try_from(count).unwrap();
        let ended = timeout(limit, churn.run(count)).await;
        assert!(ended.is_ok(), "{} of {count} were made, and are there still: {:?}", churn.made, churn.alive);
        churn
    });
    let seconds = begun.elapsed().as_secs_f32();
    println!("{count} Pods came and went in {seconds:.1} s; {} of them were seen to be ready", churn.ready.len());
    assert!(churn.failures.is_empty(), "{} failures: {:#?}", churn.failures.len(), &churn.failures);
    assert!(churn.ready.len() * EARLY >= count * (EARLY - 1), "those that may become ready do");
    drop(churn);

    fixture.expect_left(&before);
    for (node, before) in NODES.into_iter().zip(&tables_before) {
        until("every table holds what it held", || match tables(&fixture, node) {
            now if now == *before => Ok(()),
            now => Err(format!("{node}: {:?}", Diff::between(before, &now).changes)),
        });
    }
    assert_eq!(NODES.map(|node| held_namespaces(&fixture, node)), held_before, "network namespaces that agents hold");
    fixture.expect_network();
    println!("nothing is left after {:.1} s", begun.elapsed().as_secs_f32() - seconds);
}
