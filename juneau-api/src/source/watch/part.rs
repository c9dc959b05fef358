//! What a watch of everything does not leave behind, read when it is needed.

use super::{Follower, Guarded, Lean, decoded, explain, lock};
use crate::kinds;
use crate::source::objects::{Read, Unread};
use crate::view::Kind;
use futures::StreamExt as _;
use kube::api::{ListParams, VersionMatch};
use kube::runtime::watcher::{self, DefaultBackoff};
use kube::{Api, Client};
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How many lists are asked for at once.
const AT_ONCE: usize = 4;
/// A list of one Subnet that takes longer is asked for again.
const PATIENCE: Duration = Duration::from_secs(30);

impl Follower {
    /// Takes in what is on this node, once Subnets are known: so the first list of everything finds what is needed
    /// of it, and nothing has to be asked for twice. That is all it is for: where it fails, nothing is lost, and what the
    /// server's cache has is recent enough.
    pub(super) async fn begin_with<K: Lean>(&self, api: &Api<Guarded<K>>, on_node: &str, mut ticked: Receiver<()>) {
        while !lock(&self.objects).is_known(Kind::Subnet) {
            if ticked.changed().await.is_err() {
                return;
            }
        }
        match timeout(PATIENCE, api.list(&ListParams::default().fields(on_node).match_any())).await {
            Ok(Ok(list)) => {
                let mut objects = lock(&self.objects);
                for (namespace, name, object) in list.items.into_iter().map(decoded) {
                    objects.apply(K::KIND, &namespace, &name, object);
                }
            }
            Ok(Err(error)) => tracing::debug!(kind = %K::KIND, %error, "list of what is on this node"),
            Err(_) => tracing::debug!(kind = %K::KIND, "no list of what is on this node"),
        }
    }
}

/// Reads what becomes needed, and forgets what no longer is, for ever.
pub(super) async fn read_all(client: Client, follower: Follower, mut ticked: Receiver<()>) {
    let mut pauses = DefaultBackoff::default();
    loop {
        ticked.mark_unchanged();
        let (unread, next) = lock(&follower.objects).tend(Instant::now().into_std());
        if unread.is_empty() {
            let forget = async {
                match next {
                    Some(next) => sleep_until(next.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                told = ticked.changed() => if told.is_err() { return },
                () = forget => (follower.changed)(),
            }
            continue;
        }
        let mut failed = false;
        let mut reads = futures::stream::iter(unread).map(|part| read(&client, part)).buffer_unordered(AT_ONCE);
        while let Some((part, outcome)) = reads.next().await {
            failed |= outcome.is_err();
            lock(&follower.objects).read(&part, outcome);
            (follower.changed)();
        }
        // The server may be away, for every node of the cluster.
        match pauses.next().filter(|_| failed) {
            Some(pause) => sleep(pause).await,
            None => pauses = DefaultBackoff::default(),
        }
    }
}

async fn read(client: &Client, part: Unread) -> (Unread, Read) {
    let outcome = match part.kind {
        Kind::NetworkInterface => list::<kinds::NetworkInterface>(client, &part).await,
        _ => list::<kinds::NetworkEndpoint>(client, &part).await,
    };
    (part, outcome)
}

/// All that is in a Subnet, as recent as anything that the watch had told. Asked for like this a server takes it from its
/// cache; a list of what is there right now is read from etcd by one that gets no progress from there, with all other
/// Subnets' objects.
async fn list<K: Lean>(client: &Client, part: &Unread) -> Read {
    let api = Api::<Guarded<K>>::all(client.clone());
    let now = ListParams::default().fields(&format!("spec.subnet={}", part.subnet));
    let recent = part.newest().map(|version| now.clone().matching(VersionMatch::NotOlderThan).at(&version.to_string()));
    let asked = async {
        let mut answer = api.list(recent.as_ref().unwrap_or(&now)).await;
        // Another server than the one that told of that version, and its cache does not come to it within 3 s.
        if recent.is_some() && is_refused(&answer, 504) {
            answer = api.list(&now).await;
        }
        // Definitions of an earlier release do not let it be asked for.
        if is_refused(&answer, 400) {
            answer = api.list(&ListParams::default()).await;
        }
        answer
    };
    match timeout(PATIENCE, asked).await {
        Ok(Ok(list)) => Ok(list.items.into_iter().map(decoded).collect()),
        Ok(Err(error)) => Err(explain(K::KIND, &watcher::Error::InitialListFailed(error))),
        Err(_) => Err((
            format!("no answer within {} s", PATIENCE.as_secs()),
            "see that the API server is well; what was read stays in force".to_owned(),
        )),
    }
}

fn is_refused<T>(answer: &kube::Result<T>, code: u16) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == code)
}

#[cfg(test)]
mod tests;
