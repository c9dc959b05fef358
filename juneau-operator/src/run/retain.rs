//! Looks for the objects that addresses are kept for (`spec.retainWhile` of a lease), except virtual machines, which are
//! watched.

use super::machines;
use crate::state::State;
use crate::view::Retaining;
use http::{Request, StatusCode};
use kube::client::Body;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Each object is looked for this often.
const AGAIN: Duration = Duration::from_secs(300);
/// New ones are gathered for this long.
const GATHER: Duration = Duration::from_secs(1);
/// An answer that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Keeps the state told of them, for ever.
pub(super) async fn follow(client: kube::Client, state: Arc<State>) {
    let mut changes = state.changes();
    let mut looked: BTreeMap<Retaining, Instant> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        let wanted: BTreeSet<Retaining> = state.read(|view| {
            let wishes = view.leases.values().filter_map(|lease| lease.spec.retain_while.as_ref());
            wishes.map(Retaining::from).filter(|object| !machines::are(object)).collect()
        });
        looked.retain(|object, _| wanted.contains(object));
        let now = Instant::now();
        for object in &wanted {
            if looked.get(object).is_some_and(|at| now < *at + AGAIN) {
                continue;
            }
            looked.insert(object.clone(), now);
            match timeout(PATIENCE, exists(&client, object)).await {
                Ok(Ok(exists)) => state.retain(object, exists),
                // What is not known stays as it is: an address is rather kept too long.
                Ok(Err(why)) => tracing::warn!(?object, why, "cannot look for what an address is kept for"),
                Err(_) => tracing::warn!(?object, "no answer about what an address is kept for"),
            }
        }
        let next = looked.values().min().map_or_else(|| now + AGAIN, |first| *first + AGAIN);
        // Changes are all that can bring new ones.
        let _ = timeout_at(next, changes.changed()).await;
        sleep(GATHER).await;
    }
}

async fn exists(client: &kube::Client, object: &Retaining) -> Result<bool, String> {
    // As Kubernetes names nearly all kinds.
    let plural = format!("{}s", object.kind.to_ascii_lowercase());
    let root = if object.api_version.contains('/') { "apis" } else { "api" };
    let (version, name) = (&object.api_version, &object.name);
    let path = format!("/{root}/{version}/namespaces/{}/{plural}/{}", name.namespace, name.name);
    let request = Request::get(path).body(Body::empty()).map_err(|error| error.to_string())?;
    let status = client.send(request).await.map_err(|error| error.to_string())?.status();
    match status {
        StatusCode::OK => Ok(true),
        // The object, or its kind.
        StatusCode::NOT_FOUND => Ok(false),
        StatusCode::FORBIDDEN => Err(format!("may not get {plural}: grant it to the operator's ServiceAccount")),
        status => Err(status.to_string()),
    }
}
