//! Carries out what the [`Elector`] decides.

use super::{Elector, LeaseStore, Step, StoreError, Timing};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// Who leads. The term is to be compared with the clock at each use: it ends by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    /// Until when this replica may write.
    pub term: Option<Instant>,
    /// Who holds the Lease, as last seen.
    pub holder: Option<String>,
    /// How often the holder changed.
    pub transitions: i32,
}

impl Leadership {
    /// Whether this replica may write now.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.term.is_some_and(|term| Instant::now() < term)
    }
}

/// Takes part in the election until `stop` says so or its sender is gone, then gives the Lease back. `pod` is the Pod that
/// this process is of, if it is known: see [`Elector::of_pod`].
pub async fn lead(
    store: impl LeaseStore,
    identity: String,
    pod: Option<&str>,
    timing: Timing,
    told: watch::Sender<Leadership>,
    mut stop: watch::Receiver<bool>,
) {
    let mut elector = Elector::new(identity.clone(), timing);
    if let Some(pod) = pod {
        elector = elector.of_pod(pod);
    }
    let mut led = false;
    let now = || Instant::now().into_std();
    // An answer that takes longer than the term is worth nothing.
    let patience = timing.renew_deadline;
    'part: while !*stop.borrow_and_update() {
        let term = elector.term().map(Instant::from_std);
        let step = elector.poll(now());
        {
            let carried_out = carry_out(&mut elector, &store, step, patience);
            let mut carried_out = pin!(carried_out);
            loop {
                // The term may end while the server is silent, and its answer may take as long again.
                let end = async {
                    match term.filter(|_| led) {
                        Some(end) => sleep_until(end).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    changed = stop.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => break 'part,
                    },
                    () = &mut carried_out => break,
                    () = end => {
                        led = false;
                        tracing::warn!("does not lead any more, the server is silent: this replica writes nothing");
                        told.send_modify(|state| state.term = None);
                    }
                }
            }
        }
        let state = Leadership {
            term: elector.term().map(Instant::from_std),
            holder: elector.holder().map(str::to_owned),
            transitions: elector.transitions(),
        };
        let leads = state.is_leader();
        if leads != led {
            led = leads;
            if leads {
                tracing::info!(transitions = state.transitions, "leads: this replica writes");
            } else {
                let holder = state.holder.as_deref().unwrap_or_default();
                tracing::warn!(holder, "does not lead any more: this replica writes nothing");
            }
        }
        told.send_if_modified(|before| {
            let changed = *before != state;
            *before = state;
            changed
        });
    }
    let released = elector.release(now());
    told.send_replace(Leadership::default());
    if let Some(Step::Write { record, version }) = released {
        let given = timeout(Duration::from_secs(2), async {
            match store.put(record.clone(), version).await {
                // A renewal that was on its way when this was told to stop.
                Err(StoreError::Conflict) => match store.get().await? {
                    Some(stored) if stored.record.holder == identity => store.put(record, Some(stored.version)).await,
                    _ => Err(StoreError::Conflict),
                },
                other => other,
            }
        });
        if !matches!(given.await, Ok(Ok(_))) {
            tracing::info!("the Lease could not be given back; it ends by itself");
        }
    }
}

async fn carry_out(elector: &mut Elector, store: &impl LeaseStore, step: Step, patience: Duration) {
    let now = || Instant::now().into_std();
    match step {
        Step::Wait(until) => sleep_until(Instant::from_std(until)).await,
        Step::Look => match timeout(patience, store.get()).await {
            Ok(Ok(stored)) => elector.handle_look(now(), stored),
            Ok(Err(error)) => failed(elector, &error),
            Err(_) => failed(elector, &silent(patience)),
        },
        Step::Write { record, version } => {
            let sent = now();
            match timeout(patience, store.put(record, version)).await {
                Ok(Ok(stored)) => elector.handle_written(sent, now(), stored),
                Ok(Err(StoreError::Conflict)) => elector.handle_conflict(),
                Ok(Err(error)) => failed(elector, &error),
                Err(_) => failed(elector, &silent(patience)),
            }
        }
    }
}

fn silent(patience: Duration) -> StoreError {
    StoreError::Other(format!("no answer within {} s", patience.as_secs()))
}

fn failed(elector: &mut Elector, error: &StoreError) {
    tracing::warn!(%error, "leader election");
    elector.handle_failure(Instant::now().into_std());
}
