//! What a platform team applies: the definitions of the kinds, and `deploy/base` with roles, policy and webhook.

use super::definitions;
use crate::error::{Context, LabError, Result};
use juneau_api::source::decode;
use kube::Client;
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where it is in the repository.
pub const BASE: &str = "deploy/base";

/// What is left out: no kubelet of the lab runs containers, so it runs these programs itself, as their ServiceAccounts;
/// and the definitions, which are applied before everything else.
const LEFT_OUT: [&str; 3] = ["Deployment", "DaemonSet", "CustomResourceDefinition"];

/// Writes what `base` holds, put together by kustomize, to `file`.
///
/// # Errors
/// When kubectl fails, or says what is no list of objects.
pub fn collect(mut kubectl: Command, base: &Path, file: &Path) -> Result<()> {
    let what = || format!("kubectl kustomize {}", base.display());
    let output = kubectl.arg("kustomize").arg(base).output().context(what)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(LabError::Kubernetes(format!("{}: {}", what(), said.trim())));
    }
    let documents = decode::documents(&String::from_utf8_lossy(&output.stdout));
    let mut documents = documents.map_err(|error| LabError::Kubernetes(format!("{}: {error}", what())))?;
    documents.retain(|object| !LEFT_OUT.iter().any(|kind| object["kind"] == *kind));
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": documents });
    std::fs::write(file, format!("{list:#}\n")).context(|| format!("writing {}", file.display()))
}

/// Applies the definitions, and with `kubectl` the objects in `file` beside them.
pub(super) async fn apply(client: &Client, mut kubectl: Command, file: &Path) -> Result<()> {
    let what = || format!("kubectl apply -f {}", file.display());
    kubectl.args(["apply", "--server-side", "-f"]).arg(file);
    let child = kubectl.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context(what)?;
    let applied = std::thread::spawn(move || child.wait_with_output());
    let defined = definitions::apply(client).await;
    let output = applied.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).context(what)?;
    defined?;
    if output.status.success() {
        return Ok(());
    }
    Err(LabError::Kubernetes(format!("{}: {}", what(), String::from_utf8_lossy(&output.stderr).trim())))
}
