//! Kubeconfig files: where the API server is, and as whom to speak to it.

use crate::error::Result;
use crate::pki::{self, Pair};
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
