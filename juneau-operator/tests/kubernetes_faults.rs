//! The operator and an API server that is slow, refuses, breaks off, forgets or falls silent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod support;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use support::proxy::{Asked, Fault, Proxy};
use support::{Cluster, Operator, is_ready, object, pod, port};

/// Kinds that the operator watches, ServiceCIDRs, the Secret and the webhook configuration among them.
const WATCHES: usize = 14;

struct Rig {
    cluster: Cluster,
    proxy: Proxy,
    operator: Operator,
    metrics: u16,
    networks: u32,
}

impl Rig {
    async fn start() -> Self {
        let cluster = Cluster::start(false).await;
        cluster.namespace("red", json!({}));
        let direct =
            cluster.control_plane.service_account_kubeconfig("juneau-system", "juneau-operator", None).await.unwrap();
        let proxy = Proxy::start(&direct).await;
        let metrics = port();
        let address = format!("--metrics-bind-address=127.0.0.1:{metrics}");
        let flags = [address.as_str(), "--metrics-secure=false", "--api-server-patience=10"];
        let operator = Operator::start_by(&proxy.kubeconfig, port(), &flags);
        let mut rig = Self { cluster, proxy, operator, metrics, networks: 0 };
        rig.make();
        rig.is_made().await;
        rig
    }

    /// Creates a network with an interface.
    fn make(&mut self) {
        self.networks += 1;
        let (vpc, subnet) = (format!("v{}", self.networks), format!("s{}", self.networks));
        let objects = [
            object("Vpc", &vpc, json!({})),
            object("Subnet", &subnet, json!({"vpc": vpc, "cidr": "10.0.1.0/24"})),
            pod("red", &vpc, "node-a", json!({"juneau.loutres.me/subnet": subnet})),
        ];
        self.cluster.apply(&objects.join("\n---\n"));
    }

    /// Waits until it is ready; how long that took.
    async fn is_made(&self) -> Duration {
        let begun = Instant::now();
        let name = format!("v{}.eth0", self.networks);
        self.cluster
            .until(&format!("{name} ready"), &[&self.operator], async |cluster| {
                cluster.get("NetworkInterface", &name).await.is_some_and(|nic| is_ready(&nic))
            })
            .await;
        begun.elapsed()
    }

    /// What happens while something is wrong for so long: what was asked, and what the log says more.
    async fn while_wrong(&mut self, fault: Fault, seconds: u64) -> (Vec<Asked>, String) {
        let (begun, said) = (Instant::now(), self.operator.log().len());
        self.proxy.set(fault);
        self.make();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let asked = self.proxy.since(begun);
        self.proxy.set(Fault::Nothing);
        (asked, self.operator.log()[said..].to_owned())
    }

    /// Who holds the Lease and for the how manieth time.
    async fn holder(&self) -> (Option<String>, Option<i32>) {
        let leases: Api<Lease> = Api::namespaced(self.cluster.client.clone(), "juneau-system");
        let lease = leases.get("e810463e.juneau.loutres.me").await.unwrap().spec.unwrap();
        (lease.holder_identity, lease.lease_transitions)
    }

    async fn metric(&self, name: &str) -> u64 {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.metrics)).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

/// How often each resource was asked for.
fn counts(asked: &[Asked]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for asked in asked {
        let watch = if asked.is_watch { " watch" } else { "" };
        *counts.entry(format!("{} {}{watch}", asked.method, asked.path)).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn a_server_that_refuses_everything_is_waited_for() {
    let mut rig = Rig::start().await;
    let before = rig.holder().await;

    // Left alone for as long as it asks: nobody comes back to a resource earlier.
    let (asked, log) = rig.while_wrong(Fault::Refuse(429, Some(3)), 7).await;
    let mut last: BTreeMap<(String, String), Instant> = BTreeMap::new();
    for asked in asked.iter().filter(|asked| asked.method == "GET" || asked.path.contains("leases")) {
        if let Some(before) = last.insert((asked.method.clone(), asked.path.clone()), asked.at) {
            let pause = asked.at - before;
            assert!(pause >= Duration::from_millis(2900), "{asked:?} again after {pause:?}");
        }
    }
    assert!(!asked.is_empty() && asked.len() <= 60, "{}: {:#?}", asked.len(), counts(&asked));
    assert!(log.contains("asks for a pause"), "{log}");
    println!("429: {} requests in 7 s, made after {:.1?}", asked.len(), rig.is_made().await);

    let mut brief = true;
    for code in [500, 503] {
        // Watches are cut first, so that they are begun anew and refused.
        let begun = Instant::now();
        rig.proxy.set(Fault::Cut(Duration::ZERO));
        while rig.proxy.since(begun).iter().filter(|asked| asked.is_watch).count() < WATCHES {
            assert!(begun.elapsed() < Duration::from_secs(20), "watches are not begun anew\n{}", rig.operator.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let failures = async |rig: &Rig| rig.metric("juneau_operator_watch_failures_total").await;
        let before = failures(&rig).await;
        let (asked, log) = rig.while_wrong(Fault::Refuse(code, None), 6).await;
        assert!(asked.len() <= 10 * WATCHES, "{}: {:#?}", asked.len(), counts(&asked));
        assert!(log.contains(&code.to_string()) || log.contains("not now"), "{log}");
        // A watch that rests after the cuts comes later than that; then the server goes on refusing.
        let resting = Instant::now();
        while failures(&rig).await <= before {
            brief = false;
            rig.proxy.set(Fault::Refuse(code, None));
            assert!(resting.elapsed() < Duration::from_secs(60), "no watch was refused: {:#?}", counts(&asked));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        rig.proxy.set(Fault::Nothing);
        println!("{code}: {} requests in 6 s, made after {:.1?}", asked.len(), rig.is_made().await);
    }
    if brief {
        assert_eq!(rig.holder().await, before, "a term outlasts 7 s without an answer");
    }
    rig.cluster.nothing_was_forbidden();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn watches_that_break_or_expire_are_begun_anew_at_a_pace() {
    let mut rig = Rig::start().await;
    let before = rig.holder().await;
    for fault in
        [Fault::Cut(Duration::ZERO), Fault::Cut(Duration::from_millis(200)), Fault::GoneInHead, Fault::GoneInStream]
    {
        let (asked, _) = rig.while_wrong(fault, 7).await;
        let watches = asked.iter().filter(|asked| asked.is_watch).count();
        // Five at once and then one every five seconds.
        assert!(watches <= 7 * WATCHES, "{fault:?}: {watches} {:#?}", counts(&asked));
        assert!(watches > 0, "{fault:?} was not met");
        println!(
            "{fault:?}: {} requests in 7 s, {watches} watches, made after {:.1?}",
            asked.len(),
            rig.is_made().await
        );
    }
    // What is deleted while no watch tells of it is gone all the same.
    rig.proxy.set(Fault::GoneInHead);
    rig.cluster.run(&["delete", "pod", "-n", "red", "v1", "--wait=false"], "").unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.proxy.set(Fault::Nothing);
    rig.cluster
        .until("the interface goes with its Pod", &[&rig.operator], async |cluster| {
            cluster.get("NetworkInterface", "v1.eth0").await.is_none()
        })
        .await;
    assert_eq!(rig.holder().await, before);
    rig.cluster.nothing_was_forbidden();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn a_slow_server_costs_no_term_and_a_silent_one_is_left() {
    let mut rig = Rig::start().await;
    let before = rig.holder().await;
    rig.proxy.set(Fault::Slow(Duration::from_secs(5)));
    rig.make();
    let begun = Instant::now();
    // At each moment, beyond the length of a term.
    let seconds = if std::env::var_os("JUNEAU_LONG").is_some() { 60 } else { 16 };
    while begun.elapsed() < Duration::from_secs(seconds) {
        assert_eq!(rig.metric("juneau_operator_leader").await, 1, "{}", rig.operator.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let asked = rig.proxy.since(begun);
    assert!(asked.len() < 200, "{:#?}", counts(&asked));
    println!("5 s: {} requests in {seconds} s", asked.len());
    if seconds > 16 {
        rig.is_made().await;
    }
    rig.proxy.set(Fault::Nothing);
    println!("5 s: made {:.1?} later", rig.is_made().await);
    assert_eq!(rig.holder().await, before);

    // No answer at all: the term ends, nobody asks in a hurry, and what hangs is given up.
    let (asked, log) = rig.while_wrong(Fault::Silent, 14).await;
    assert!(asked.len() < 5 * WATCHES, "{:#?}", counts(&asked));
    assert!(log.contains("does not lead any more"), "{log}");
    println!("silence: {} requests in 14 s, made {:.1?} later", asked.len(), rig.is_made().await);
    let after = rig.holder().await;
    assert_eq!(after.0, before.0, "nobody else was there to take it");

    // Told to stop meanwhile, it does.
    rig.proxy.set(Fault::Silent);
    let begun = Instant::now();
    rig.operator.stop();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    rig.cluster.nothing_was_forbidden();
}
