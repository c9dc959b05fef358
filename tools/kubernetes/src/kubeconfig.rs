//! Kubeconfig files, where the API server is and as whom to speak to it: written, and used.

use crate::error::{Error, Result};
use crate::pki::{self, Pair};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use std::path::Path;

/// As whom to speak.
#[derive(Debug)]
pub(crate) enum Identity<'a> {
    /// By a client certificate.
    Certificate(&'a Pair),
    /// By a bearer token.
    Token(&'a str),
}

/// Writes a kubeconfig to `path`. It is JSON, which YAML includes.
pub(crate) fn write(path: &Path, server: &str, authority: &Path, identity: &Identity<'_>) -> Result<()> {
    let user = match identity {
        Identity::Certificate(pair) => json!({ "client-certificate": pair.certificate, "client-key": pair.key }),
        Identity::Token(token) => json!({ "token": token }),
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "juneau", "cluster": { "server": server, "certificate-authority": authority } }],
        "users": [{ "name": "user", "user": user }],
        "contexts": [{ "name": "juneau", "context": { "cluster": "juneau", "user": "user" } }],
        "current-context": "juneau",
    });
    pki::write(path, &format!("{config:#}\n"))
}

/// A client of the API server that a kubeconfig names, as whom it names.
///
/// # Errors
/// When the file cannot be read or used.
pub async fn client(path: &Path) -> Result<Client> {
    let failed = |source| Error::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let config = Kubeconfig::read_from(path).map_err(failed)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.map_err(failed)?;
    let what = || format!("a client by {}", path.display());
    Client::try_from(config).map_err(|source| Error::Api { what: what(), source: Box::new(source) })
}
