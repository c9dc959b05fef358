//! The operator at an API server: watches, election, plans, the webhook.

pub(crate) mod client;
mod detect;
pub(crate) mod machines;
mod metrics;
mod options;
mod planner;
mod retain;
pub(crate) mod watch;

pub use client::client;
pub use metrics::Metrics;
pub use options::{Bind, Options};
pub use planner::Planner;
pub use watch::Counts;

use crate::admission::{Admission, router};
use crate::certificates::{CertificateError, Keeper, Resolver, tls};
use crate::leader::{ApiStore, LEASE, Leadership, Timing, lead};
use crate::readers::only_readers;
use crate::state::State;
use crate::{events, http, rights};
use juneau_api::source::client::polite;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch::{Receiver, channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Why the operator did not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No way to the API server is known.
    #[error("{0}")]
    Config(String),
    /// The client cannot be made.
    #[error("API server: {0}")]
    Client(#[from] kube::Error),
    /// TLS cannot be set up.
    #[error("webhook: {0}")]
    Certificate(#[from] CertificateError),
    /// An address that cannot be listened at.
    #[error("{flag} {address}: {source}")]
    Listen {
        /// The flag that names it.
        flag: &'static str,
        /// Where.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// A part that should run for ever ended.
    #[error("{0} ended")]
    Ended(&'static str),
}

async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|source| RunError::Listen { flag, address, source })
}

/// Runs until `stop` says so, then gives the Lease back.
///
/// # Errors
/// When it cannot start, or a part of it ended.
pub async fn run(options: Options, stop: Receiver<bool>) -> Result<(), RunError> {
    // Writes of the plan and Events wait on their own.
    let writer = client(&options).await?;
    let client = polite(writer.clone());
    let patience = Duration::from_secs(options.api_server_patience.into());
    let metrics = Metrics::default();
    let state = Arc::new(State::new(rights::WATCHED));
    let resolver = Arc::new(Resolver::default());
    let tls = Arc::new(tls(Arc::clone(&resolver), options.enable_http2)?);
    let (tell_leadership, leadership) = channel(Leadership::default());
    // What ends when it is told to stop, and what runs until it is dropped.
    let (mut parts, mut endless) = (JoinSet::new(), JoinSet::new());

    let health = listen("--health-probe-bind-address", options.health_probe_bind_address).await?;
    let (served, of_health) = (Arc::clone(&resolver), Arc::clone(&state));
    let router_of_health = http::health(of_health, move || match served.served() {
        Some(_) => Ok(()),
        None => Err("the webhook has no certificate yet".to_owned()),
    });
    part(&mut parts, "health", http::serve(health, router_of_health, None, false, http::IDLE, stop.clone()));
    if let Some(address) = options.metrics_bind_address.0 {
        let listener = listen("--metrics-bind-address", address).await?;
        let (metrics, state, leadership) = (metrics.clone(), Arc::clone(&state), leadership.clone());
        let router = http::metrics(metrics, move |metrics| metrics.look(leadership.borrow().is_leader(), &state));
        let (router, tls) = if options.metrics_secure {
            (only_readers(router, client.clone()), Some(Arc::clone(&tls)))
        } else {
            (router, None)
        };
        part(&mut parts, "metrics", http::serve(listener, router, tls, options.enable_http2, http::IDLE, stop.clone()));
    }
    for kind in rights::WATCHED {
        let task = watch::watch(client.clone(), kind, patience, Arc::clone(&state), metrics.watches.clone());
        part(&mut endless, "a watch", task);
    }
    let mut hosts: BTreeSet<String> = ["127.0.0.1", "localhost"].map(str::to_owned).into();
    hosts.extend(options.webhook_hosts.iter().cloned());
    let keeper = Keeper {
        client: client.clone(),
        namespace: options.pod_namespace.clone(),
        secret: options.webhook_ca_secret_name.clone(),
        configuration: options.webhook_configuration.clone(),
        mutating: options.enable_probe_rewrite,
        hosts,
        resolver,
        patience,
    };
    part(&mut parts, "certificates", keeper.run(stop.clone()));
    let webhook = listen("--webhook-bind-address", options.webhook_bind_address).await?;

    let identity = format!("{}_{}", options.replica(), unique());
    let mut until_stopped = stop.clone();
    let config = tokio::select! {
        config = detect::detect(&client, &options) => Arc::new(config),
        _ = until_stopped.wait_for(|stop| *stop) => return Ok(()),
    };
    let (tell_config, config) = channel(config);
    let admission = Admission {
        state: Arc::clone(&state),
        client: client.clone(),
        config: config.clone(),
        counts: metrics.admission.clone(),
    };
    part(
        &mut parts,
        "webhook",
        http::serve(
            webhook,
            router(admission, options.enable_probe_rewrite),
            Some(tls),
            options.enable_http2,
            http::IDLE_OF_API_SERVERS,
            stop.clone(),
        ),
    );
    let tell_config = Arc::new(tell_config);
    let follow = options.service_cluster_ip_range.is_none().then(|| client.clone());
    let (mtu, known) = (options.underlay_mtu, Arc::clone(&state));
    part(&mut endless, "detection", async move {
        let ranges = async {
            if let Some(client) = follow {
                detect::follow(client, patience, Arc::clone(&tell_config)).await;
            }
        };
        let mtu = async {
            if mtu.is_none() {
                detect::follow_mtu(known, Arc::clone(&tell_config)).await;
            }
        };
        tokio::join!(ranges, mtu);
        std::future::pending::<()>().await;
    });

    part(&mut endless, "virtual machines", machines::follow(client.clone(), patience, Arc::clone(&state)));
    part(&mut endless, "kept addresses", retain::follow(client.clone(), Arc::clone(&state)));

    let (notices, told) = channel(Arc::default());
    part(&mut endless, "events", events::tell(writer.clone(), identity.clone(), told, metrics.events.clone()));
    if options.leader_elect {
        let store = ApiStore::new(client.clone(), &options.pod_namespace, LEASE, options.clock);
        let timing = Timing::of(Duration::from_secs(options.lease_duration.into()));
        let (pod, stop) = (options.pod_name.clone(), stop.clone());
        part(&mut parts, "election", async move {
            lead(store, identity, pod.as_deref(), timing, tell_leadership, stop).await;
        });
    } else {
        // A term that does not end.
        let term = Instant::now() + Duration::from_secs(100 * 365 * 86_400);
        tell_leadership.send_replace(Leadership { term: Some(term), holder: Some(identity), transitions: 0 });
    }
    let planner = Planner {
        client: writer,
        state,
        config,
        leadership,
        notices,
        clock: options.clock,
        metrics,
        plan: crate::plan::Memory::plan,
    };
    part(&mut parts, "planner", planner.run(stop.clone()));

    let mut told = stop.clone();
    let ended = tokio::select! {
        biased;
        _ = told.wait_for(|stop| *stop) => None,
        Some(part) = parts.join_next() => Some(part),
        Some(part) = endless.join_next() => Some(part),
    };
    if let Some(part) = ended
        && !*stop.borrow()
    {
        return Err(RunError::Ended(part.unwrap_or("a part, by a panic,")));
    }
    // The Lease is given back, writes and answers that have begun are ended.
    while parts.join_next().await.is_some() {}
    Ok(())
}

/// Runs one part under its name.
fn part(parts: &mut JoinSet<&'static str>, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
    parts.spawn(async move {
        task.await;
        name
    });
}

/// Differs between processes, also between two of one Pod.
fn unique() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/uuid")
        .map_or_else(|_| std::process::id().to_string(), |text| text.trim().to_owned())
}
