//! Who reaches whom: the lab's check, on Pods that containers run in.

use crate::error::Result;
use crate::kubectl::Kubectl;
use juneau_lab::check::{self, Subject};
use juneau_lab::kubernetes;
use juneau_lab::responder::Order;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Checks who reaches whom. Returns the table, and whether every cell is as expected.
///
/// # Errors
/// When the API server does not answer.
pub fn run(kubectl: &Kubectl) -> Result<(String, bool)> {
    let cluster = kubernetes::read(kubectl.kubeconfig())?;
    // Pods on their nodes' network have no address of a VPC.
    let pods = cluster.pods.iter().filter(|(_, pod)| pod.vpc.is_some());
    let subjects: BTreeMap<String, Subject<(String, String)>> =
        pods.map(|(name, pod)| (name.clone(), Ok((pod.namespace.clone(), pod.name.clone())))).collect();
    let call = |(namespace, name): &(String, String), order: &Order, _: Duration| {
        // The responder has a patience of its own, and kubectl waits for it.
        let order = serde_json::to_vec(order).map_err(|error| error.to_string())?;
        let words = ["-n", namespace, "exec", "-i", name, "--", "/bin/juneau-responder", "ask"];
        let answer = kubectl.feed(&words, &order).map_err(|error| error.to_string())?;
        serde_json::from_slice::<Value>(&answer).map_err(|error| format!("its answer is none: {error}"))
    };
    let report = check::run(&check::plan(&cluster), &subjects, call)?;
    Ok((check::render(&cluster, &report), report.ok))
}
