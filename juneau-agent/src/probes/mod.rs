//! Probes of Pods that the node cannot reach, executed inside those Pods.
//!
//! The kubelet asks for one by its token at a loopback address of the node ([`juneau_api::probes`]). What is executed is
//! what the Pod's annotation says, from a socket in the Pod's network namespace to the Pod's own address and nowhere
//! else. So whatever anybody writes there, it is a port of that Pod that is asked.

mod execute;
mod grpc;
mod http;
mod place;
mod registry;
mod server;
mod tls;

pub use registry::{Registry, Target};
pub use server::serve;

/// What came of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// It succeeded.
    Success,
    /// The Pod answered with this HTTP status: an error, or a redirection that is not followed.
    Status(u16),
    /// It failed, for this reason.
    Failed(String),
    /// There was no answer in time.
    Late,
    /// The Pod's network namespace is gone.
    Gone(String),
}

impl Outcome {
    fn failed(reason: impl core::fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }
}
