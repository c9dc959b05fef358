//! Whether the operator answers the API server.

use super::objects;
use crate::error::Result;
use juneau_api::kinds::Vpc;
use kube::api::{Api, PostParams};
use std::path::Path;
use std::time::Duration;

/// How long between two questions: nothing tells when the first answer would come.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks until the webhook admits a Vpc, or `give_up` says so. Nothing is made: it is a dry run. Returns whether it came
/// to that.
///
/// # Errors
/// When the kubeconfig cannot be used.
pub(crate) fn wait(kubeconfig: &Path, give_up: impl Fn() -> bool) -> Result<bool> {
    objects::runtime()?.block_on(async {
        let vpcs: Api<Vpc> = Api::all(juneau_controlplane::client(kubeconfig).await?);
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let vpc = Vpc::new("juneau-lab-asks", Default::default());
        while !give_up() {
            match vpcs.create(&params, &vpc).await {
                Ok(_) => return Ok(true),
                Err(error) => tracing::debug!("the webhook: {error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(false)
    })
}
