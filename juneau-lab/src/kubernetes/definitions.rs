//! Juneau's kinds, made known to an API server.

use super::node::{MANAGER, failed};
use crate::error::{LabError, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use std::time::Duration;

/// How long the API server may take to serve a kind that it was told.
const ESTABLISH: Duration = Duration::from_secs(20);

/// Tells the API server the kinds, and waits until it serves them.
pub(super) async fn apply(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    // With their rules, as in deploy/crds.
    let wanted = juneau_api::crd::definitions();
    let wanted = wanted.map_err(|error| LabError::Kubernetes(format!("the definitions of the kinds: {error}")))?;
    let params = PatchParams::apply(MANAGER).force();
    for definition in &wanted {
        let name = definition.name_any();
        let patched = definitions.patch(&name, &params, &Patch::Apply(definition)).await;
        patched.map_err(failed(format!("defining {name}")))?;
    }
    for definition in &wanted {
        let name = definition.name_any();
        let served = await_condition(definitions.clone(), &name, conditions::is_crd_established());
        let served = tokio::time::timeout(ESTABLISH, served).await;
        let failed = |why: &dyn std::fmt::Display| LabError::Kubernetes(format!("waiting for {name}: {why}"));
        served.map_err(|late| failed(&late))?.map_err(|error| failed(&error))?;
    }
    Ok(())
}
