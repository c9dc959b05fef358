//! The table of what definitions accept and refuse (`juneau-api/tests/cel_cases`), put to a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use juneau_controlplane::ControlPlane;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use kube::{Client, ResourceExt};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    /// Created first, when it is there.
    old: Option<Value>,
    object: Value,
    expect: String,
    /// A part of what a refusal says.
    message: Option<String>,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (group, version) = text("/apiVersion").unwrap().split_once('/').unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind").unwrap()));
    match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

/// What the server says to a case, without keeping it.
async fn put(client: &Client, case: &Case) -> Result<(), kube::Error> {
    let api = api(client, &case.object);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    // As it is: a typed object would lose what the server is asked about.
    let Some(old) = &case.old else {
        let object = serde_json::from_value(case.object.clone()).unwrap();
        return api.create(&dry, &object).await.map(drop);
    };
    let old = serde_json::from_value(old.clone()).unwrap();
    let old = api.create(&PostParams::default(), &old).await.unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let mut object: DynamicObject = serde_json::from_value(case.object.clone()).unwrap();
    object.metadata.resource_version = old.resource_version();
    let answer = api.replace(&old.name_any(), &dry, &object).await.map(drop);
    api.delete(&old.name_any(), &DeleteParams::default()).await.unwrap();
    answer
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn the_server_accepts_and_refuses_what_the_table_says() {
    let control_plane = ControlPlane::shared().unwrap();
    let kubectl = |arguments: &[&str]| {
        let output = control_plane.kubectl().args(arguments).current_dir(repository()).output().unwrap();
        assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    kubectl(&["apply", "--server-side", "-k", "deploy/crds"]);
    kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]);
    let mut wrong = Vec::new();
    let mut count = 0;
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let client = control_plane.client().await.unwrap();
        for entry in std::fs::read_dir(repository().join("juneau-api/tests/cel_cases")).unwrap() {
            let path = entry.unwrap().path();
            let cases: Vec<Case> = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            for case in cases {
                count += 1;
                let answer = put(&client, &case).await;
                let said = answer.as_ref().err().map(ToString::to_string).unwrap_or_default();
                let right = match case.expect.as_str() {
                    "accept" => answer.is_ok(),
                    _ => answer.is_err() && case.message.as_ref().is_none_or(|message| said.contains(message)),
                };
                if !right {
                    let file = path.file_stem().unwrap().display();
                    wrong.push(format!("{file}, {}: to be {}ed, but: {said}", case.name, case.expect));
                }
            }
        }
    });
    assert!(count > 100, "only {count} cases");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}
