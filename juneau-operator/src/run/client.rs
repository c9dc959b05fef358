//! The operator's client of the API server.

use super::{Options, RunError};
use juneau_api::source::client::configure;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::time::Duration;

/// A client for what the options name.
///
/// # Errors
/// When there is no configuration, or it cannot be used.
pub async fn client(options: &Options) -> Result<kube::Client, RunError> {
    // Once for the process; a second time is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |error: &dyn core::fmt::Display| RunError::Config(error.to_string());
    let config = match &options.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(|error| failed(&error))?
        }
        None => kube::Config::infer().await.map_err(|error| failed(&error))?,
    };
    // Which replica it was stands in the server's audit log.
    let agent = format!("juneau-operator/{} ({})", env!("CARGO_PKG_VERSION"), options.replica());
    let patience = Duration::from_secs(options.api_server_patience.into());
    let config = configure(config, &agent, patience);
    Ok(kube::Client::try_from(config)?)
}
