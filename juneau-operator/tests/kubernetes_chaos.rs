//! Operators that are killed and paused on a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod support;

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::canonical::canonical;
use support::history::History;
use support::{Cluster, OPERATOR, Operator, is_ready, object, pod, port};

/// Kinds of which every object shall be ready in the end.
const READY: [&str; 4] = ["Vpc", "Subnet", "RouteTable", "NetworkInterface"];
const MADE: [&str; 9] = [
    "Vpc",
    "Subnet",
    "RouteTable",
    "NetworkInterface",
    "NetworkEndpoint",
    "ServiceNATAttachment",
    "AllocationPool",
    "AllocationClaim",
    "AllocationLease",
];

/// What only the leader writes.
const KINDS_OF_THE_PLAN: [&str; 9] = [
    "vpcs",
    "subnets",
    "routetables",
    "networkinterfaces",
    "networkendpoints",
    "servicenatattachments",
    "allocationpools",
    "allocationclaims",
    "allocationleases",
];

fn is_long() -> bool {
    std::env::var_os("JUNEAU_LONG").is_some()
}

/// Numbers that follow from a seed, which is told: `JUNEAU_SEED` repeats them.
struct Random(u64, u64);

impl Random {
    fn seeded() -> Self {
        let told = std::env::var("JUNEAU_SEED").ok().and_then(|text| text.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let seed = told.unwrap_or_else(|| u64::try_from(now).unwrap());
        println!("JUNEAU_SEED={seed}");
        Self(seed, 0)
    }

    /// From 1 to `most`.
    fn up_to(&mut self, most: usize) -> usize {
        self.1 += 1;
        let mut hash = DefaultHasher::new();
        (self.0, self.1).hash(&mut hash);
        usize::try_from(hash.finish() % u64::try_from(most).unwrap()).unwrap() + 1
    }
}

#[derive(Clone, Copy)]
struct Size {
    vpcs: usize,
    interfaces: usize,
}

/// Creates so many Vpcs with a Subnet each, and interfaces in them, as fast as the server takes them.
async fn create(cluster: &Cluster, size: Size) {
    let resource = |kind| ApiResource::from_gvk(&GroupVersionKind::gvk("juneau.loutres.me", "v1alpha1", kind));
    let object =
        |kind, name: &str, spec: Value| (kind, DynamicObject::new(name, &resource(kind)).data(json!({"spec": spec})));
    let mut networks = Vec::new();
    for n in 0..size.vpcs {
        networks.push(object("Vpc", &format!("v{n}"), json!({})));
        networks.push(object("Subnet", &format!("s{n}"), json!({"vpc": format!("v{n}"), "cidr": "10.0.1.0/24"})));
    }
    let pods = (0..size.vpcs * size.interfaces).map(|n| {
        let subnet = json!({"juneau.loutres.me/subnet": format!("s{}", n % size.vpcs)});
        let node = ["node-a", "node-b"][n % 2];
        serde_json::from_str::<Pod>(&pod("red", &format!("p{n}"), node, subnet)).unwrap()
    });
    let client = &cluster.client;
    let parameters = &PostParams::default();
    let of_pods = futures::stream::iter(pods).for_each_concurrent(16, async |pod| {
        Api::namespaced(client.clone(), "red").create(parameters, &pod).await.map(drop).unwrap();
    });
    let of_networks = futures::stream::iter(networks).for_each_concurrent(8, async |(kind, object)| {
        Api::all_with(client.clone(), &resource(kind)).create(parameters, &object).await.map(drop).unwrap();
    });
    tokio::join!(of_networks, of_pods);
}

/// Whether everything that was created is ready.
async fn is_done(cluster: &Cluster, size: Size) -> bool {
    // The costly look is left for the end.
    if cluster.list("NetworkEndpoint").await.len() < size.vpcs * size.interfaces {
        return false;
    }
    for kind in READY {
        let objects = cluster.list(kind).await;
        if objects.len() < size.vpcs || !objects.iter().all(is_ready) {
            return false;
        }
    }
    cluster.list("NetworkInterface").await.len() == size.vpcs * size.interfaces
}

async fn done(cluster: &Cluster, size: Size, operators: &[&Operator]) {
    let begun = Instant::now();
    while !is_done(cluster, size).await {
        // Thousands of objects on a machine that has much else to do; what hangs does so for ever.
        if begun.elapsed() > Duration::from_secs(600) {
            let logs: Vec<_> = operators.iter().map(|operator| operator.log()).collect();
            panic!("not everything is ready\n{}", logs.join("\n---\n"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // What is still to be put right is done when nothing was written for a while.
    loop {
        let log = cluster.control_plane.audit().from_now().unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        if own_writes(&log) == 0 {
            break;
        }
    }
}

/// The operators' writes of objects.
fn own_writes(log: &juneau_controlplane::AuditLog) -> usize {
    let all = log.events().unwrap();
    all.iter().filter(|event| event.user == OPERATOR && event.is_write() && event.resource != "leases").count()
}

async fn end_state(cluster: &Cluster) -> BTreeMap<String, Value> {
    let mut objects = Vec::new();
    for kind in MADE {
        objects.extend(cluster.list(kind).await.into_iter().map(|mut object| {
            object["kind"] = kind.into();
            object
        }));
    }
    let pods = Api::<Pod>::all(cluster.client.clone()).list(&Default::default()).await.unwrap().items;
    let nodes = Api::<Node>::all(cluster.client.clone()).list(&Default::default()).await.unwrap().items;
    let pods = pods.iter().map(|pod| (serde_json::to_value(pod).unwrap(), "Pod"));
    let nodes = nodes.iter().map(|node| (serde_json::to_value(node).unwrap(), "Node"));
    let others = pods.chain(nodes).map(|(mut object, kind)| {
        object["kind"] = kind.into();
        object
    });
    canonical(&objects, &others.collect::<Vec<_>>())
}

/// What an operator makes of it that nobody disturbs.
async fn undisturbed(size: Size) -> BTreeMap<String, Value> {
    let cluster = Cluster::start(false).await;
    cluster.namespace("red", json!({}));
    let operator = Operator::start(&cluster, port()).await;
    let log = cluster.control_plane.audit().from_now().unwrap();
    let begun = Instant::now();
    create(&cluster, size).await;
    let created = begun.elapsed();
    done(&cluster, size, &[&operator]).await;
    let all = begun.elapsed().saturating_sub(Duration::from_secs(2));
    println!("undisturbed: created in {created:.1?}, ready after {all:.1?}, {} writes", own_writes(&log));
    cluster.nothing_was_forbidden();
    let end = end_state(&cluster).await;
    operator.stop();
    end
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn an_operator_that_is_killed_at_random_ends_where_an_undisturbed_one_does() {
    let (size, kills) =
        if is_long() { (Size { vpcs: 200, interfaces: 5 }, 20) } else { (Size { vpcs: 40, interfaces: 5 }, 5) };
    let mut random = Random::seeded();
    let cluster = Cluster::start(false).await;
    cluster.namespace("red", json!({}));
    let history = History::follow(&cluster.client).await;
    let begun = Instant::now();
    let creation = create(&cluster, size);
    let chaos = async {
        // All of the numbers together are fewer than the writes that it takes.
        let most = size.vpcs * (12 + 5 * size.interfaces) / kills;
        for n in 0..kills {
            let log = cluster.control_plane.audit().from_now().unwrap();
            let operator = Operator::start_with(&cluster, port(), &["--lease-duration=3"]).await;
            let (after, started) = (random.up_to(most), Instant::now());
            while own_writes(&log) < after {
                assert!(started.elapsed() < Duration::from_secs(60), "kill {n} after {after}\n{}", operator.log());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_micros(u64::try_from(random.up_to(5000)).unwrap())).await;
            operator.kill();
            assert!(!is_done(&cluster, size).await, "there was nothing left to be disturbed");
        }
    };
    tokio::join!(creation, chaos);
    let operator = Operator::start_with(&cluster, port(), &["--lease-duration=3"]).await;
    done(&cluster, size, &[&operator]).await;
    println!("{kills} kills: ready after {:.1?}", begun.elapsed().saturating_sub(Duration::from_secs(2)));
    println!("{} versions of objects", history.nothing_was_given_twice());
    cluster.nothing_was_forbidden();
    let end = end_state(&cluster).await;
    operator.stop();
    drop(history);
    drop(cluster);
    let expected = undisturbed(size).await;
    for (name, object) in &expected {
        assert_eq!(end.get(name), Some(object), "{name}");
    }
    let more: Vec<_> = end.keys().filter(|name| !expected.contains_key(*name)).collect();
    assert!(more.is_empty(), "{more:?}");
    assert!(expected.len() > size.vpcs * (4 + 3 * size.interfaces), "{}", expected.len());
}

/// Whose turn it is, as the Lease says: the part of the identity before the random one.
async fn holder(cluster: &Cluster) -> String {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "juneau-system");
    let lease = leases.get_opt("e810463e.juneau.loutres.me").await.unwrap();
    let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
    holder.split('_').next().unwrap_or_default().to_owned()
}

/// Networks and Pods that come and go until it is told to stop; how many Pods are left.
async fn churn(cluster: &Cluster, stop: &std::sync::atomic::AtomicBool) -> usize {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "red");
    let mut left = 0;
    for round in 0.. {
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        // A Vpc for every fourth round: numbers are given out as well as addresses.
        let network = round / 4;
        if round % 4 == 0 {
            for (kind, name, spec) in [
                ("Vpc", format!("v{network}"), json!({})),
                ("Subnet", format!("s{network}"), json!({"vpc": format!("v{network}"), "cidr": "10.0.1.0/26"})),
            ] {
                let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("juneau.loutres.me", "v1alpha1", kind));
                let object = DynamicObject::new(&name, &resource).data(json!({"spec": spec}));
                let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
                api.create(&PostParams::default(), &object).await.unwrap();
            }
        }
        for (n, subnet) in [format!("s{network}"), format!("s{network}"), "default".to_owned()].iter().enumerate() {
            let annotations = json!({"juneau.loutres.me/subnet": subnet});
            let text = pod("red", &format!("p{round}-{n}"), ["node-a", "node-b"][n % 2], annotations);
            pods.create(&PostParams::default(), &serde_json::from_str(&text).unwrap()).await.unwrap();
            left += 1;
        }
        if round >= 6 {
            for n in 0..2 {
                let name = format!("p{}-{n}", round - 6);
                pods.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
                left -= 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    left
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn two_operators_of_which_one_is_paused_give_nothing_out_twice() {
    use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};
    // A pause outlasts the Lease in any case, so another one leads when it ends.
    let (rounds, pause, lease) =
        if is_long() { (10, Duration::from_secs(60), 15) } else { (2, Duration::from_secs(6), 3) };
    let cluster = Cluster::start(false).await;
    cluster.namespace("red", json!({}));
    let history = History::follow(&cluster.client).await;
    let mut operators = BTreeMap::new();
    for name in ["one", "two"] {
        let arguments = [format!("--lease-duration={lease}"), format!("--pod-name={name}")];
        let operator = Operator::start_with(&cluster, port(), &[&arguments[0], &arguments[1]]).await;
        operators.insert(name.to_owned(), operator);
    }
    let all: Vec<&Operator> = operators.values().collect();
    cluster.until("one of them leads", &all, async |cluster| !holder(cluster).await.is_empty()).await;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let rounds = async {
        for round in 0..rounds {
            tokio::time::sleep(Duration::from_millis(1300)).await;
            let log = cluster.control_plane.audit().from_now().unwrap();
            let paused = holder(&cluster).await;
            operators[&paused].signal(SIGSTOP);
            let stopped = Timestamp::now();
            tokio::time::sleep(pause).await;
            assert_ne!(holder(&cluster).await, paused, "nobody took over");
            operators[&paused].signal(SIGCONT);
            let resumed = Timestamp::now();
            tokio::time::sleep(Duration::from_secs(2)).await;
            let mark = format!("({paused})");
            let events = log.events().unwrap();
            let writes = |from: Timestamp, of_paused: bool| {
                let events = events.iter().filter(|event| event.user == OPERATOR && event.is_write());
                let events = events.filter(|event| event.received > from && event.resource != "leases");
                events.filter(|event| event.user_agent.ends_with(&mark) == of_paused).count()
            };
            // What it had decided before it was stopped may be on its way, and is judged by its preconditions.
            let (late, ever) = (writes(resumed, true), writes(resumed + Duration::from_secs(1), true));
            println!(
                "round {round}: {paused} paused; {late} writes when it woke; {} by the other",
                writes(stopped, false)
            );
            assert!(late <= 32 && ever == 0, "{late} writes after the pause, {ever} of them after a second");
            assert!(writes(stopped, false) > 0, "the other one wrote nothing");
            history.nothing_was_given_twice();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    let (left, ()) = tokio::join!(churn(&cluster, &stop), rounds);
    cluster
        .until("every interface has its address", &all, async |cluster| {
            let nics = cluster.list("NetworkInterface").await;
            nics.len() == left && nics.iter().all(is_ready)
        })
        .await;
    println!("{} versions of objects", history.nothing_was_given_twice());
    cluster.nothing_was_forbidden();
}

#[derive(clap::Parser)]
struct Arguments {
    #[command(flatten)]
    options: juneau_operator::run::Options,
}

/// An operator of this process, whose clock is wrong by so many seconds.
async fn with_clock(
    cluster: &Cluster,
    name: &str,
    ahead: i64,
) -> (tokio::task::JoinHandle<()>, tokio::sync::watch::Sender<bool>) {
    let kubeconfig =
        cluster.control_plane.service_account_kubeconfig("juneau-system", "juneau-operator", None).await.unwrap();
    let arguments = [
        "run".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--webhook-bind-address=127.0.0.1:{}", port()),
        format!("--health-probe-bind-address=127.0.0.1:{}", port()),
        format!("--pod-name={name}"),
        "--lease-duration=3".to_owned(),
    ];
    let mut options = <Arguments as clap::Parser>::parse_from(arguments).options;
    options.clock = juneau_operator::clock::Clock::ahead_by(SignedDuration::from_secs(ahead));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    (tokio::spawn(async move { juneau_operator::run::run(options, stopped).await.unwrap() }), stop)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn clocks_hours_apart_make_neither_two_leaders_nor_a_rest_too_short() {
    const REST: Duration = Duration::from_secs(8);
    let cluster = Cluster::start(false).await;
    cluster.namespace("red", json!({}));
    let history = History::follow(&cluster.client).await;
    let log = cluster.control_plane.audit().from_now().unwrap();
    let (slow, _slow) = with_clock(&cluster, "slow", -3600).await;
    cluster.until("one leads", &[], async |cluster| holder(cluster).await == "slow").await;
    // It watches from now on, as a replica does.
    let (fast, stop) = with_clock(&cluster, "fast", 3600).await;
    let spec = json!({"vpc": "red", "cidr": "10.0.1.0/24", "quarantine": format!("{}s", REST.as_secs())});
    cluster.apply(&[object("Vpc", "red", json!({})), object("Subnet", "red-a", spec)].join("\n---\n"));
    cluster.apply(&pod("red", "a", "node-a", json!({"juneau.loutres.me/subnet": "red-a"})));
    let lease = async |cluster: &Cluster| {
        let leases = cluster.list("AllocationLease").await;
        leases.into_iter().find(|lease| lease["spec"]["claimRef"]["name"].to_string().contains("--a-eth0--"))
    };
    cluster
        .until("the Pod has its address", &[], async |cluster| {
            cluster.get("NetworkInterface", "a.eth0").await.is_some_and(|nic| is_ready(&nic))
        })
        .await;
    cluster.run(&["delete", "pod", "-n", "red", "a", "--wait=false"], "").unwrap();
    cluster
        .until("the interface is gone", &[], async |cluster| cluster.get("NetworkInterface", "a.eth0").await.is_none())
        .await;
    let released = Instant::now();
    assert!(lease(&cluster).await.is_some(), "there is nothing to wait for");
    // Now the other one decides, two hours later by its clock.
    slow.abort();
    cluster.until("the other one leads", &[], async |cluster| holder(cluster).await == "fast").await;
    let wrote = async |cluster: &Cluster| {
        cluster.apply(&object("Vpc", "blue", json!({})));
        cluster.get("Vpc", "blue").await.is_some_and(|vpc| is_ready(&vpc))
    };
    cluster.until("the other one writes", &[], wrote).await;
    while let Some(lease) = lease(&cluster).await {
        assert!(lease["spec"]["ownerDeletionTimestamp"].is_string(), "{lease}");
        assert!(released.elapsed() < REST + Duration::from_secs(25), "it is kept for ever: {lease}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let rested = released.elapsed();
    println!("rested {rested:.1?}");
    assert!(rested >= REST - Duration::from_secs(1), "back after {rested:?}");
    stop.send_replace(true);
    fast.await.unwrap();
    // Whoever wrote had the Lease: it changed hands once, and each wrote in its own time alone.
    let name = |agent: &str| agent.rsplit('(').next().unwrap_or_default().trim_end_matches(')').to_owned();
    let mut writes: Vec<_> =
        log.events().unwrap().into_iter().filter(|event| event.user == OPERATOR && event.is_write()).collect();
    writes.retain(|event| KINDS_OF_THE_PLAN.contains(&event.resource.split('/').next().unwrap_or_default()));
    writes.sort_by_key(|event| event.received);
    let turns: Vec<_> = writes.iter().map(|event| name(&event.user_agent)).collect();
    let changes = turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!((turns.first().map(String::as_str), changes), (Some("slow"), 1), "{turns:?}");
    history.nothing_was_given_twice();
    cluster.nothing_was_forbidden();
}
