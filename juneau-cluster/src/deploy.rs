//! What is applied to a cluster: Juneau as `deploy/` has it, and tenants.

use crate::cgroups;
use crate::error::{ClusterError, Context, Result};
use crate::image::RESPONDER;
use serde_json::{Value, json};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The image that examples name, in whose place the one is run that answers.
const EXAMPLE_IMAGE: &str = "registry.k8s.io/pause";

/// Copies `deploy/` below `folder`, writes beside it what differs in this cluster, and returns where `kubectl apply -k`
/// finds the whole, as docs/install.md has it.
///
/// # Errors
/// When it cannot be written.
pub fn juneau(folder: &Path, deploy: &Path, api_server: Ipv4Addr) -> Result<PathBuf> {
    copy(deploy, &folder.join("juneau"))?;
    write(folder, &overlay(api_server, &cgroups::version_2()?))?;
    Ok(folder.to_owned())
}

/// Copies manifests, and returns where `kubectl apply -k` finds them with an image that is there.
///
/// # Errors
/// When there are none, or they cannot be written.
pub fn tenants(folder: &Path, manifests: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).on("creating", folder)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(manifests).on("reading", manifests)? {
        let path = entry.on("reading", manifests)?.path();
        if path.extension().is_some_and(|end| end == "yaml" || end == "yml") && path.is_file() {
            let name = PathBuf::from(path.file_name().unwrap_or_default());
            fs::copy(&path, folder.join(&name)).on("copying", &path)?;
            names.push(name);
        }
    }
    if names.is_empty() {
        return Err(ClusterError::Usage(format!("{} holds no manifests (*.yaml)", manifests.display())));
    }
    names.sort();
    write(folder, &with_image(&names))?;
    Ok(folder.to_owned())
}

/// Everything, with the API server's address, and with control groups of version 2 where this machine has them.
fn overlay(api_server: Ipv4Addr, cgroup2: &Path) -> Value {
    let address = json!([{
        "op": "add",
        "path": "/data",
        "value": { "KUBERNETES_SERVICE_HOST": api_server, "KUBERNETES_SERVICE_PORT": "6443" },
    }]);
    let agent = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "juneau-agent", "namespace": "juneau-system" },
        "spec": { "template": { "spec": { "volumes": [
            { "name": "cgroup", "hostPath": { "path": cgroup2, "type": "Directory" } },
        ] } } },
    });
    json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["juneau"],
        "patches": [
            { "target": { "kind": "ConfigMap", "name": "juneau-api-server" }, "patch": address.to_string() },
            { "patch": agent.to_string() },
        ],
    })
}

fn with_image(manifests: &[PathBuf]) -> Value {
    let (name, tag) = RESPONDER.rsplit_once(':').unwrap_or((RESPONDER, "latest"));
    json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": manifests,
        "images": [{ "name": EXAMPLE_IMAGE, "newName": name, "newTag": tag }],
    })
}

fn write(folder: &Path, kustomization: &Value) -> Result<()> {
    let file = folder.join("kustomization.yaml");
    // JSON, which YAML includes.
    fs::write(&file, format!("{kustomization:#}\n")).on("writing", &file)
}

/// Copies a directory with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).on("creating", to)?;
    for entry in fs::read_dir(from).on("reading", from)? {
        let path = entry.on("reading", from)?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).on("copying", &path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_the_address_and_where_control_groups_are() {
        let overlay = overlay(Ipv4Addr::new(192, 0, 2, 1), Path::new("/sys/fs/cgroup/unified"));
        let patches = overlay["patches"].as_array().unwrap();
        assert!(patches[0]["patch"].as_str().unwrap().contains("192.0.2.1"));
        let agent: Value = serde_json::from_str(patches[1]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(agent["spec"]["template"]["spec"]["volumes"][0]["hostPath"]["path"], "/sys/fs/cgroup/unified");
    }

    #[test]
    fn examples_run_an_image_that_answers() {
        let kustomization = with_image(&["tenants/red.yaml".into()]);
        assert_eq!(kustomization["images"][0]["newName"], "localhost/juneau-responder");
        assert_eq!(kustomization["images"][0]["newTag"], "1");
    }
}
