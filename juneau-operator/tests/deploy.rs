//! `deploy/` says what the programs need: every file can be read, and the roles are what the code asks for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use juneau_operator::admission::REVIEWED;
use juneau_operator::rights::{AGENT, OPERATOR, Right, Scope, WATCHED, WRITTEN, of_write};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

fn base() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/base")
}

/// Every document of every file, with the file's name.
fn documents() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let mut files: Vec<_> = fs::read_dir(base()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        all.extend(read.into_iter().filter(|document| !document.is_null()).map(|document| (name.clone(), document)));
    }
    all
}

fn objects(kind: &str) -> Vec<Value> {
    documents().into_iter().map(|(_, document)| document).filter(|document| document["kind"] == kind).collect()
}

/// Scope, group, resource, name, verb.
type Grant = (Scope, String, String, String, String);

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// What the roles that are bound to a ServiceAccount grant.
fn granted(account: &str) -> BTreeSet<Grant> {
    let mut grants = BTreeSet::new();
    let bindings = [objects("ClusterRoleBinding"), objects("RoleBinding")].concat();
    for binding in bindings {
        let subjects = binding["subjects"].as_array().unwrap();
        assert_eq!(subjects.len(), 1, "{binding}");
        if subjects[0]["name"] != account {
            continue;
        }
        assert_eq!(subjects[0]["namespace"], "juneau-system");
        let role = &binding["roleRef"];
        let namespace = &binding["metadata"]["namespace"];
        let found: Vec<_> = objects(role["kind"].as_str().unwrap())
            .into_iter()
            .filter(|found| found["metadata"]["name"] == role["name"] && found["metadata"]["namespace"] == *namespace)
            .collect();
        assert_eq!(found.len(), 1, "{role}");
        let scope = match namespace.as_str() {
            None => Scope::Cluster,
            Some("juneau-system") => Scope::Own,
            Some("kube-system") => Scope::KubeSystem,
            Some(other) => panic!("a role in {other}"),
        };
        for rule in found[0]["rules"].as_array().unwrap() {
            let names = Some(texts(&rule["resourceNames"])).filter(|names| !names.is_empty());
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for name in names.clone().unwrap_or_else(|| vec![String::new()]) {
                        for verb in texts(&rule["verbs"]) {
                            grants.insert((scope, group.clone(), resource.clone(), name.clone(), verb));
                        }
                    }
                }
            }
        }
    }
    grants
}

fn listed(rights: &[Right]) -> BTreeSet<Grant> {
    let grants = rights.iter().flat_map(|right| {
        right.verbs.iter().map(|verb| {
            let text = |text: &str| text.to_owned();
            (right.scope, text(right.group), text(right.resource), text(right.name), text(verb))
        })
    });
    grants.collect()
}

#[test]
fn the_operator_may_do_what_it_does_and_nothing_else() {
    let group = |api_version: &str| api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
    let mut wanted = listed(OPERATOR);
    for kind in WATCHED {
        for verb in ["list", "watch"] {
            let resource = kind.plural().to_owned();
            wanted.insert((Scope::Cluster, group(kind.api_version()), resource, String::new(), verb.to_owned()));
        }
    }
    for (kind, ways) in WRITTEN {
        for way in *ways {
            let (resource, verb) = of_write(*kind, way).unwrap();
            wanted.insert((Scope::Cluster, group(kind.api_version()), resource, String::new(), verb.to_owned()));
        }
    }
    assert_eq!(granted("juneau-operator"), wanted);
}

#[test]
fn an_agent_may_do_what_it_does_and_nothing_else() {
    assert_eq!(granted("juneau-agent"), listed(AGENT));
}

#[test]
fn no_role_of_tenants_writes_what_says_who_has_which_address() {
    let writes = ["*", "create", "update", "patch", "delete", "deletecollection"];
    let (mut kept, mut viewed) = (0, BTreeSet::new());
    for role in objects("ClusterRole") {
        let labels = role["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        for rule in role["rules"].as_array().unwrap() {
            for resource in texts(&rule["resources"]) {
                let internal = resource.starts_with("network") || resource.starts_with("allocation");
                let wrote = texts(&rule["verbs"]).iter().any(|verb| writes.contains(&verb.as_str()));
                if internal && wrote {
                    assert!(labels.is_empty(), "{}: {resource}", role["metadata"]["name"]);
                    kept += 1;
                }
                if labels.contains_key("rbac.authorization.k8s.io/aggregate-to-view") {
                    assert!(!wrote);
                    viewed.insert(resource);
                }
            }
        }
    }
    assert!(kept > 0, "nothing was looked at");
    for (kind, _) in WRITTEN {
        assert!(viewed.contains(kind.plural()), "{kind} cannot be read by who may view");
    }
}

#[test]
fn the_webhook_is_asked_about_what_it_reviews() {
    let configuration = objects("ValidatingWebhookConfiguration").remove(0);
    assert_eq!(configuration["metadata"]["name"], juneau_operator::rights::WEBHOOK);
    let webhooks = configuration["webhooks"].as_array().unwrap();
    assert_eq!(webhooks.len(), REVIEWED.len());
    for (group, kind, path) in REVIEWED {
        let url = format!("https://127.0.0.1:9443{path}");
        let webhook = webhooks.iter().find(|webhook| webhook["clientConfig"]["url"] == url.as_str());
        let webhook = webhook.unwrap_or_else(|| panic!("nobody asks {url}"));
        let rule = &webhook["rules"][0];
        assert_eq!(texts(&rule["apiGroups"]), [group]);
        assert_eq!(texts(&rule["resources"]), [format!("{}s", kind.to_lowercase())]);
        assert!(webhook["timeoutSeconds"].as_u64().unwrap() <= 5);
        // What tenants need to run anything is not held up by an operator that is down.
        let policy = if group.is_empty() { "Ignore" } else { "Fail" };
        assert_eq!(webhook["failurePolicy"], policy, "{kind}");
        if group.is_empty() {
            let excluded = texts(&webhook["namespaceSelector"]["matchExpressions"][0]["values"]);
            assert_eq!(excluded, ["juneau-system", "kube-system"]);
        }
    }
}

#[test]
fn every_file_is_part_of_the_whole() {
    let parts: BTreeSet<String> = objects("Kustomization").iter().flat_map(|part| texts(&part["resources"])).collect();
    let files: BTreeSet<String> =
        documents().into_iter().map(|(name, _)| name).filter(|name| name != "kustomization.yaml").collect();
    assert_eq!(parts, files);
    for (name, document) in documents() {
        assert!(document["kind"].is_string() && document["apiVersion"].is_string(), "{name}: {document}");
    }
}

#[test]
fn the_programs_run_as_they_are_told() {
    use clap::Parser as _;
    let deployment = objects("Deployment").remove(0);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["serviceAccountName"], "juneau-operator");
    let container = &pod["containers"][0];
    let words = [texts(&container["command"]), texts(&container["args"])].concat();
    juneau_operator::cli::Cli::try_parse_from(words).unwrap();
}
