//! Keeps the Secret, the webhook configuration and what is served in step.

use super::{Bundle, CertificateError, RENEW_BEFORE, Reason, Resolver};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// A new certificate is served this long after the configuration trusts it: API servers learn of that by a watch.
const SETTLE: Duration = Duration::from_secs(5);
/// Everything is looked at again after this, whether anything changed or not.
const REVIEW: Duration = Duration::from_secs(3600);
/// Between two attempts, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Make a certificate and store it, based on this version of the Secret.
    Store {
        /// Why.
        reason: Reason,
        /// The one that is to stay trusted: what is stored, or where that is of no use, what is served.
        before: Option<Bundle>,
        /// The Secret's version; without one it is to be created.
        version: Option<String>,
    },
    /// Tell the webhooks of these names whom to trust.
    Trust {
        /// The webhooks' names.
        webhooks: Vec<String>,
        /// PEM.
        authorities: String,
    },
    /// Serve this one.
    Serve(Bundle),
    /// Everything is as it should be.
    Nothing,
}

/// What a Secret holds, if it is complete.
fn stored(secret: &Secret) -> Option<Bundle> {
    let text = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
    Some(Bundle { authorities: text("ca.crt")?, certificate: text("tls.crt")?, key: text("tls.key")? })
}

/// Decides from what exists. `trust` is false when the configuration could not be written: then a good certificate is
/// served all the same when the one that is served has ended.
#[must_use]
pub fn decide(
    secret: Option<&Secret>,
    configuration: Option<&ValidatingWebhookConfiguration>,
    served: Option<&Bundle>,
    hosts: &BTreeSet<String>,
    now: SystemTime,
    trust: bool,
) -> Step {
    let bundle = secret.and_then(stored);
    let reason = match &bundle {
        None => Some(Reason::Missing),
        Some(bundle) => bundle.fault(hosts, now),
    };
    if let Some(reason) = reason {
        let version = secret.and_then(|secret| secret.metadata.resource_version.clone());
        let before = match reason {
            Reason::Missing | Reason::Unusable(_) => served.cloned().or(bundle),
            _ => bundle,
        };
        return Step::Store { reason, before, version };
    }
    let Some(bundle) = bundle else { return Step::Nothing };
    let wanting: Vec<String> = configuration
        .and_then(|configuration| configuration.webhooks.as_deref())
        .unwrap_or_default()
        .iter()
        .filter(|webhook| {
            webhook.client_config.ca_bundle.as_ref().is_none_or(|ca| ca.0 != bundle.authorities.as_bytes())
        })
        .map(|webhook| webhook.name.clone())
        .collect();
    if !wanting.is_empty() && trust {
        return Step::Trust { webhooks: wanting, authorities: bundle.authorities };
    }
    let usable = |served: &Bundle| served.ends().is_ok_and(|ends| now < ends);
    if served == Some(&bundle) || (!wanting.is_empty() && served.is_some_and(usable)) {
        return Step::Nothing;
    }
    Step::Serve(bundle)
}

/// The webhooks of both configurations as if they were one. Their names are distinct.
fn both(
    validating: Option<ValidatingWebhookConfiguration>,
    mutating: Option<&MutatingWebhookConfiguration>,
) -> Option<ValidatingWebhookConfiguration> {
    let Some(mutating) = mutating else { return validating };
    let mut all = validating.unwrap_or_default();
    let others = mutating.webhooks.iter().flatten().map(|webhook| ValidatingWebhook {
        name: webhook.name.clone(),
        client_config: webhook.client_config.clone(),
        ..ValidatingWebhook::default()
    });
    all.webhooks.get_or_insert_default().extend(others);
    Some(all)
}

/// Keeps certificates: one a replica.
#[derive(Clone)]
pub struct Keeper {
    /// The API server.
    pub client: kube::Client,
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret's name.
    pub secret: String,
    /// The ValidatingWebhookConfiguration's name.
    pub configuration: String,
    /// There is a MutatingWebhookConfiguration of that name, too.
    pub mutating: bool,
    /// Names and addresses under which API servers reach the webhook.
    pub hosts: BTreeSet<String>,
    /// What is served.
    pub resolver: Arc<Resolver>,
    /// A server that says nothing for this long is given up.
    pub patience: Duration,
}

impl Keeper {
    /// Runs until `stop` says so or its sender is gone.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let one = |name: &str| crate::run::watch::config(self.patience).fields(&format!("metadata.name={name}"));
        let changed = futures::stream::select(
            watcher::watcher(secrets.clone(), one(&self.secret)).default_backoff().map(|event| event.map(drop)),
            watcher::watcher(configurations.clone(), one(&self.configuration))
                .default_backoff()
                .map(|event| event.map(drop)),
        );
        let of_mutating: BoxStream<'_, _> = if self.mutating {
            let events = watcher::watcher(
                Api::<MutatingWebhookConfiguration>::all(self.client.clone()),
                one(&self.configuration),
            );
            events.default_backoff().map(|event| event.map(drop)).boxed()
        } else {
            futures::stream::pending().boxed()
        };
        let mut changed = pin!(futures::stream::select(changed, of_mutating));
        let mut pause = RETRY.0;
        let mut next = Instant::now();
        let mut settling = None;
        let mut stopped = stop.clone();
        loop {
            tokio::select! {
                biased;
                gone = stop.changed() => if gone.is_err() || *stop.borrow() { return },
                event = changed.next() => match event {
                    // What changed is read anew below, at most every so often.
                    Some(Ok(())) => next = next.min(Instant::now() + Duration::from_millis(50)),
                    Some(Err(error)) => tracing::debug!(%error, "watch of the webhook's objects"),
                    None => return,
                },
                () = tokio::time::sleep_until(next) => {
                    let step = timeout(self.patience, self.step(&secrets, &configurations, &mut settling));
                    let done = tokio::select! {
                        biased;
                        _ = stopped.wait_for(|stop| *stop) => return,
                        done = step => done.unwrap_or(Err(Failure::Silent)),
                    };
                    match done {
                        Ok(wait) => {
                            pause = RETRY.0;
                            next = Instant::now() + wait;
                        }
                        Err(error) => {
                            tracing::error!(%error, secret = %self.secret, "the webhook's certificate");
                            next = Instant::now() + pause;
                            pause = (pause * 2).min(RETRY.1);
                        }
                    }
                }
            }
        }
    }

    /// One look and one step; how long until the next look.
    async fn step(
        &self,
        secrets: &Api<Secret>,
        configurations: &Api<ValidatingWebhookConfiguration>,
        settling: &mut Option<(Bundle, Instant)>,
    ) -> Result<Duration, Failure> {
        let secret = secrets.get_opt(&self.secret).await?;
        let validating = configurations.get_opt(&self.configuration).await?;
        let mutating = match self.mutating {
            true => Api::<MutatingWebhookConfiguration>::all(self.client.clone()).get_opt(&self.configuration).await?,
            false => None,
        };
        let configuration = both(validating.clone(), mutating.as_ref());
        let served = self.resolver.served();
        let now = SystemTime::now();
        let at_once = Duration::ZERO;
        match decide(secret.as_ref(), configuration.as_ref(), served.as_ref(), &self.hosts, now, true) {
            Step::Store { reason, before, version } => {
                tracing::info!(%reason, secret = %self.secret, "a new certificate for the webhook");
                // Replicas that are reached by different names share one certificate.
                let mut hosts = before.as_ref().map(Bundle::hosts).unwrap_or_default();
                hosts.extend(self.hosts.iter().cloned());
                let bundle = Bundle::make(&hosts, now, before.as_ref())?;
                match self.store(secrets, &bundle, secret, version).await {
                    // Another replica was faster: its certificate is as good.
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(at_once),
                    other => other.map(|()| at_once).map_err(Failure::from),
                }
            }
            Step::Trust { webhooks, authorities } => {
                let is_validating = |name: &String| {
                    validating
                        .iter()
                        .flat_map(|found| found.webhooks.iter().flatten())
                        .any(|webhook| webhook.name == *name)
                };
                let (first, second): (Vec<_>, Vec<_>) = webhooks.into_iter().partition(is_validating);
                let trusted = async {
                    self.trust(configurations, first, &authorities).await?;
                    self.trust(&Api::<MutatingWebhookConfiguration>::all(self.client.clone()), second, &authorities)
                        .await
                };
                if let Err(error) = trusted.await {
                    let untold =
                        decide(secret.as_ref(), configuration.as_ref(), served.as_ref(), &self.hosts, now, false);
                    if let Step::Serve(bundle) = untold {
                        self.resolver.serve(bundle)?;
                    }
                    return Err(error.into());
                }
                Ok(at_once)
            }
            Step::Serve(bundle) => {
                let usable = served.and_then(|served| served.ends().ok()).is_some_and(|ends| now < ends);
                // From when this replica saw it trusted, whichever replica saw to that: API servers see it later.
                let since = match settling {
                    Some((waiting, since)) if *waiting == bundle => *since,
                    _ => settling.insert((bundle.clone(), Instant::now())).1,
                };
                let wait = (since + SETTLE).saturating_duration_since(Instant::now());
                if usable && !wait.is_zero() {
                    return Ok(wait);
                }
                tracing::info!("the webhook's new certificate is served");
                self.resolver.serve(bundle)?;
                Ok(at_once)
            }
            Step::Nothing => {
                let ends = served.and_then(|served| served.ends().ok());
                let due = ends.and_then(|ends| ends.duration_since(now + RENEW_BEFORE).ok());
                Ok(due.unwrap_or_default().clamp(Duration::from_secs(1), REVIEW))
            }
        }
    }

    async fn store(
        &self,
        secrets: &Api<Secret>,
        bundle: &Bundle,
        before: Option<Secret>,
        version: Option<String>,
    ) -> kube::Result<()> {
        // What others wrote into it stays.
        let mut secret = before.unwrap_or_default();
        secret.metadata.name = Some(self.secret.clone());
        secret.metadata.resource_version.clone_from(&version);
        let data = [("ca.crt", &bundle.authorities), ("tls.crt", &bundle.certificate), ("tls.key", &bundle.key)];
        let texts = data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())));
        secret.data.get_or_insert_default().extend(texts);
        match version {
            None => secrets.create(&PostParams::default(), &secret).await.map(drop),
            Some(_) => secrets.replace(&self.secret, &PostParams::default(), &secret).await.map(drop),
        }
    }

    async fn trust<K>(&self, configurations: &Api<K>, webhooks: Vec<String>, authorities: &str) -> kube::Result<()>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        if webhooks.is_empty() {
            return Ok(());
        }
        let authorities =
            serde_json::to_value(ByteString(authorities.as_bytes().to_vec())).map_err(kube::Error::SerdeError)?;
        let webhooks: Vec<_> = webhooks
            .into_iter()
            .map(|name| {
                BTreeMap::from([
                    ("name", serde_json::Value::from(name)),
                    ("clientConfig", serde_json::json!({ "caBundle": authorities })),
                ])
            })
            .collect();
        let patch = serde_json::json!({ "webhooks": webhooks });
        configurations.patch(&self.configuration, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
    }
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("the API server does not answer")]
    Silent,
}
