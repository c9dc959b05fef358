//! Where the Lease is.

use super::{Record, Stored};
use crate::clock::Clock;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Why the Lease could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else wrote in between.
    #[error("the Lease was changed by another")]
    Conflict,
    /// Anything else.
    #[error("the Lease cannot be used: {0}")]
    Other(String),
}

/// Reads and writes one Lease.
pub trait LeaseStore: Send + Sync {
    /// What it says now; `None` if there is none.
    fn get(&self) -> impl Future<Output = Result<Option<Stored>, StoreError>> + Send;
    /// Writes it if it still has that version; without one it must not exist.
    fn put(&self, record: Record, version: Option<String>) -> impl Future<Output = Result<Stored, StoreError>> + Send;
}

/// The Lease of that name at the API server.
#[derive(Debug)]
pub struct ApiStore {
    api: Api<Lease>,
    name: String,
    /// When this replica's term began, and its number.
    acquired: Mutex<Option<(i32, MicroTime)>>,
    clock: Clock,
}

impl ApiStore {
    /// A Lease in a namespace. The times in it, by `clock`, are for readers.
    #[must_use]
    pub fn new(client: kube::Client, namespace: &str, name: &str, clock: Clock) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), acquired: Mutex::new(None), clock }
    }
}

fn read(lease: Lease) -> Stored {
    let spec = lease.spec.unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
    let record = Record {
        holder: spec.holder_identity.unwrap_or_default(),
        // A Lease that somebody wrote by hand must not keep everybody waiting for ever.
        duration: Duration::from_secs(seconds.min(3600)),
        transitions: spec.lease_transitions.unwrap_or_default(),
    };
    Stored { record, version: lease.metadata.resource_version.unwrap_or_default() }
}

impl LeaseStore for ApiStore {
    async fn get(&self) -> Result<Option<Stored>, StoreError> {
        let lease = self.api.get_opt(&self.name).await.map_err(|error| StoreError::Other(error.to_string()))?;
        Ok(lease.map(read))
    }

    async fn put(&self, record: Record, version: Option<String>) -> Result<Stored, StoreError> {
        let now = MicroTime(self.clock.now());
        let acquire_time = if record.holder.is_empty() {
            None
        } else {
            let mut acquired = self.acquired.lock().unwrap_or_else(PoisonError::into_inner);
            let (_, since) = acquired
                .take_if(|(transitions, _)| *transitions == record.transitions)
                .unwrap_or_else(|| (record.transitions, now.clone()));
            *acquired = Some((record.transitions, since.clone()));
            Some(since)
        };
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: version.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(record.holder),
                lease_duration_seconds: Some(i32::try_from(record.duration.as_secs().max(1)).unwrap_or(i32::MAX)),
                lease_transitions: Some(record.transitions),
                renew_time: Some(now),
                acquire_time,
                ..LeaseSpec::default()
            }),
        };
        let parameters = PostParams::default();
        let written = match version {
            None => self.api.create(&parameters, &lease).await,
            Some(_) => self.api.replace(&self.name, &parameters, &lease).await,
        };
        match written {
            Ok(lease) => Ok(read(lease)),
            // A Lease that was removed in between is as good as one that was changed.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Err(StoreError::Conflict),
            Err(error) => Err(StoreError::Other(error.to_string())),
        }
    }
}
