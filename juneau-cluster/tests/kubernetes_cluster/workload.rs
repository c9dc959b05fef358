//! Pods of the tests that have tenants of their own, side by side.

use crate::fixture::{Fixture, Inside, SERVE, until};
use crate::programs::succeeds;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A Pod that answers at port 80 with its Namespace and name, and whose log says them.
pub fn server(namespace: &str, name: &str, node: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: Map<String, Value> =
        annotations.iter().map(|(key, value)| (format!("juneau.loutres.me/{key}"), json!(value))).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "annotations": annotations },
        "spec": { "nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container(namespace, name)] },
    })
}

/// Its container.
pub fn container(namespace: &str, name: &str) -> Value {
    let line = format!("echo {namespace}/{name} | busybox tee /tmp/who; {SERVE}");
    json!({ "name": "main", "image": "localhost/juneau-shell:1", "command": ["/bin/busybox", "sh", "-c", line] })
}

impl Fixture {
    /// Makes objects.
    #[track_caller]
    pub fn make(&self, objects: &[Value]) {
        // A Namespace takes Pods when it has its ServiceAccount.
        until("the objects are taken", || self.try_make(objects));
    }

    /// Makes objects, or says why not.
    pub fn try_make(&self, objects: &[Value]) -> Result<(), String> {
        self.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string())
    }

    /// Makes one object that may not be there yet, or says why not. Nothing is added to it.
    pub fn try_create(&self, object: &Value) -> Result<(), String> {
        self.send("create -f -", &object.to_string())
    }

    pub fn namespace(&self, name: &str) {
        self.make(&[json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })]);
    }

    /// A Namespace with a Vpc of its own, and Subnets of it: names and prefixes. Addresses are free again after a second.
    #[track_caller]
    pub fn tenant(&self, name: &str, subnets: &[(&str, &str)]) {
        self.namespace(name);
        let group = "juneau.loutres.me/v1alpha1";
        let may = json!({ "matchLabels": { "kubernetes.io/metadata.name": name } });
        self.make(&[json!({ "apiVersion": group, "kind": "Vpc", "metadata": { "name": name },
            "spec": { "allowedNamespaces": may } })]);
        let subnets = subnets.iter().map(|(subnet, cidr)| {
            json!({ "apiVersion": group, "kind": "Subnet", "metadata": { "name": subnet },
                "spec": { "vpc": name, "cidr": cidr, "quarantine": "1s" } })
        });
        let subnets: Vec<Value> = subnets.collect();
        self.make(&subnets);
        for subnet in &subnets {
            let name = subnet["metadata"]["name"].as_str().unwrap();
            succeeds(&mut self.kubectl(&format!("wait --for=condition=Ready subnet/{name} --timeout=60s")));
        }
    }

    /// Makes Pods, and waits until all are ready.
    #[track_caller]
    pub fn start(&self, pods: &[Value]) {
        let begun = Instant::now();
        self.make(pods);
        for pod in pods {
            let part = |key: &str| pod["metadata"][key].as_str().unwrap();
            self.wait_for_pod(part("namespace"), part("name"));
        }
        println!("{:.1} s: {} Pods", begun.elapsed().as_secs_f32(), pods.len());
    }

    /// Has the kubelet look at Pods at once. It would try again what failed after ten seconds or more.
    #[track_caller]
    pub fn hurry(&self, namespace: &str, pods: &[&str]) {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let label = format!("hurry={}", ASKED.fetch_add(1, Ordering::Relaxed));
        succeeds(self.kubectl(&format!("-n {namespace} label --overwrite pod")).args(pods).arg(label));
    }

    /// Waits for a Pod that was refused before.
    #[track_caller]
    pub fn wait_for_pod_again(&self, namespace: &str, pod: &str) {
        let begun = Instant::now();
        while !self.is_ready(namespace, pod) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{namespace}/{pod} does not start");
            self.hurry(namespace, &[pod]);
            std::thread::sleep(Duration::from_secs(1));
        }
        println!("{:.1} s: {namespace}/{pod} after all", begun.elapsed().as_secs_f32());
    }

    /// Ends everything that runs in a Namespace.
    #[track_caller]
    pub fn empty(&self, namespace: &str) {
        let begun = Instant::now();
        succeeds(&mut self.kubectl(&format!("-n {namespace} delete statefulset,pod --all --timeout=60s")));
        println!("{:.1} s: end of what {namespace} had", begun.elapsed().as_secs_f32());
    }

    /// What the API server has.
    #[track_caller]
    pub fn get(&self, line: &str) -> Value {
        let text = succeeds(self.kubectl("get").args(line.split_whitespace()).args(["-o", "json"]));
        serde_json::from_str(&text).unwrap()
    }

    /// The address that a Pod shows.
    #[track_caller]
    pub fn address(&self, namespace: &str, pod: &str) -> String {
        self.get(&format!("-n {namespace} pod {pod}"))["status"]["podIP"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits for an Event about a Pod that says all of this. It is not enough that something is wrong: users must see what.
    #[track_caller]
    pub fn expect_event(&self, namespace: &str, pod: &str, parts: &[&str]) -> String {
        until(&format!("the Event of {namespace}/{pod}"), || {
            let events = self.get(&format!("-n {namespace} events --field-selector involvedObject.name={pod}"));
            let events: Vec<String> = events["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|event| {
                    format!(
                        "{} {}",
                        event["reason"].as_str().unwrap_or_default(),
                        event["message"].as_str().unwrap_or_default()
                    )
                })
                .collect();
            let found = events.iter().find(|event| parts.iter().all(|part| event.contains(part)));
            found.cloned().ok_or_else(|| format!("{events:#?}"))
        })
    }

    /// Whether a Pod is ready at this moment.
    pub fn is_ready(&self, namespace: &str, pod: &str) -> bool {
        let pod = self.get(&format!("-n {namespace} pod {pod}"));
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    }
}

/// Asks until somebody answers; it must be the right one. The other node hears of a new Pod in its time, which is short.
#[track_caller]
pub fn reaches(from: &Inside, address: &str, who: &str) {
    let begun = Instant::now();
    loop {
        match from.ask(address) {
            Some(answer) => return assert_eq!(answer, who, "at {address}"),
            None => assert!(begun.elapsed() < Duration::from_secs(20), "{who} at {address} is silent"),
        }
    }
}
