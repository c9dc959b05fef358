//! `deploy/` says what the programs need: every file can be read, and the roles are what the code asks for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use juneau_operator::admission::{MUTATED, REVIEWED};
use juneau_operator::rights::{ASKED, OPERATOR, Right, Scope, WATCHED, WRITTEN, of_write};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

fn deploy() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn base() -> PathBuf {
    deploy().join("base")
}

fn names(directory: PathBuf) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
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
            Some("default") => Scope::Default,
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
    for kind in ASKED {
        let resource = kind.plural().to_owned();
        wanted.insert((Scope::Cluster, group(kind.api_version()), resource, String::new(), "get".to_owned()));
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
    let mut wanted = BTreeSet::new();
    for right in juneau_agent::rights::rights() {
        for verb in right.verbs {
            let resource = right.resource.clone();
            wanted.insert((Scope::Cluster, right.group.to_owned(), resource, String::new(), (*verb).to_owned()));
        }
    }
    assert_eq!(granted("juneau-agent"), wanted);
}

#[test]
fn no_role_of_tenants_writes_what_says_who_has_which_address() {
    let writes = ["*", "create", "update", "patch", "delete", "deletecollection"];
    let (mut kept, mut viewed) = (0, BTreeSet::new());
    for role in objects("ClusterRole") {
        let labels = role["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        for rule in role["rules"].as_array().unwrap() {
            for resource in texts(&rule["resources"]) {
                let internal = ["network", "allocation", "servicenat"].iter().any(|one| resource.starts_with(one));
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
fn whoever_is_to_read_metrics_gets_that_and_nothing_else() {
    let roles = objects("ClusterRole");
    let role = roles.iter().find(|role| role["metadata"]["name"] == "juneau-metrics-reader").unwrap();
    assert_eq!(role["rules"], json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]));
    assert!(role["metadata"]["labels"].is_null(), "it is nobody's who was not given it");
}

#[test]
fn whoever_may_ask_the_agents_was_given_it() {
    let roles = objects("ClusterRole");
    let runs = |role: &&Value| role["rules"].to_string().contains("pods/exec");
    let names: Vec<_> = roles.iter().filter(runs).map(|role| role["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["juneau-support-role"]);
    let role = roles.iter().find(runs).unwrap();
    assert!(role["metadata"]["labels"].is_null(), "no other role has it");
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
        let policy = if group.is_empty() && kind != "Service" { "Ignore" } else { "Fail" };
        assert_eq!(webhook["failurePolicy"], policy, "{kind}");
        if group.is_empty() {
            let excluded = texts(&webhook["namespaceSelector"]["matchExpressions"][0]["values"]);
            assert_eq!(excluded, ["juneau-system", "kube-system"]);
        }
    }
}

#[test]
fn what_rewrites_probes_is_asked_where_it_is_needed_and_nowhere_else() {
    let configuration = objects("MutatingWebhookConfiguration").remove(0);
    assert_eq!(configuration["metadata"]["name"], juneau_operator::rights::WEBHOOK);
    let webhook = &configuration["webhooks"][0];
    assert_eq!(configuration["webhooks"].as_array().unwrap().len(), 1);
    assert_eq!(webhook["clientConfig"]["url"], format!("https://127.0.0.1:9443{}", MUTATED.2));
    assert_eq!((&webhook["failurePolicy"], &webhook["reinvocationPolicy"]), (&json!("Fail"), &json!("IfNeeded")));
    assert_eq!((&webhook["timeoutSeconds"], &webhook["sideEffects"]), (&json!(5), &json!("None")));
    assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE"]));
    let excluded = texts(&webhook["namespaceSelector"]["matchExpressions"][0]["values"]);
    assert_eq!(excluded, ["juneau-system", "kube-system"]);
    // Who is asked answers, and the names of webhooks are told apart by whoever fills them.
    assert!(
        words(&objects("Deployment")[0]["spec"]["template"]["spec"]["containers"][0])
            .contains(&"--enable-probe-rewrite".to_owned())
    );
    let validating = objects("ValidatingWebhookConfiguration").remove(0);
    assert!(validating["webhooks"].as_array().unwrap().iter().all(|other| other["name"] != webhook["name"]));
}

#[test]
fn every_file_is_part_of_the_whole() {
    let parts: BTreeSet<String> = objects("Kustomization").iter().flat_map(|part| texts(&part["resources"])).collect();
    let mut files = names(base());
    assert!(files.remove("kustomization.yaml"));
    assert_eq!(parts, files);
    for (name, document) in documents() {
        assert!(document["kind"].is_string() && document["apiVersion"].is_string(), "{name}: {document}");
    }
    let resources = |directory: &str| -> BTreeSet<String> {
        let text = fs::read_to_string(deploy().join(directory).join("kustomization.yaml")).unwrap();
        texts(&serde_saphyr::from_str::<Value>(&text).unwrap()["resources"]).into_iter().collect()
    };
    let mut definitions = names(deploy().join("crds"));
    assert!(definitions.remove("kustomization.yaml"));
    assert_eq!(resources("crds"), definitions);
    assert_eq!(resources("."), ["crds", "base"].map(str::to_owned).into());
    assert_eq!(names(deploy().join("overlays")), ["registry".to_owned(), "uninstall".to_owned()].into());
    assert_eq!(resources("overlays/registry"), ["../../crds", "../../base"].map(str::to_owned).into());
    assert_eq!(names(deploy()), ["base", "crds", "kustomization.yaml", "overlays"].map(str::to_owned).into());
}

#[test]
fn the_overlay_names_every_image_and_no_other() {
    let text = fs::read_to_string(deploy().join("overlays/registry/kustomization.yaml")).unwrap();
    let overlay: Value = serde_saphyr::from_str(&text).unwrap();
    let renamed = overlay["images"].as_array().unwrap().iter();
    let renamed: BTreeSet<_> = renamed
        .map(|image| format!("{}:{}", image["name"].as_str().unwrap(), image["newTag"].as_str().unwrap()))
        .collect();
    let workloads = [objects("Deployment"), objects("DaemonSet")].concat();
    let used = workloads.iter().map(|workload| &workload["spec"]["template"]["spec"]["containers"]);
    let used = used.flat_map(|containers| containers.as_array().unwrap());
    let used: BTreeSet<_> = used.map(|container| container["image"].as_str().unwrap().to_owned()).collect();
    assert_eq!(renamed, used);
}

#[test]
fn workloads_accounts_labels_and_images_agree() {
    let namespace = objects("Namespace").remove(0)["metadata"].clone();
    for mode in ["enforce", "audit", "warn"] {
        assert_eq!(namespace["labels"][format!("pod-security.kubernetes.io/{mode}")], "privileged");
    }
    let mut accounts: BTreeSet<String> = BTreeSet::new();
    for account in objects("ServiceAccount") {
        assert_eq!(account["metadata"]["namespace"], namespace["name"]);
        accounts.insert(account["metadata"]["name"].as_str().unwrap().to_owned());
    }
    let version = env!("CARGO_PKG_VERSION");
    let mut used = BTreeSet::new();
    for workload in [objects("Deployment"), objects("DaemonSet")].concat() {
        let name = workload["metadata"]["name"].as_str().unwrap();
        let labels = json!({"app.kubernetes.io/name": name});
        let (spec, template) = (&workload["spec"], &workload["spec"]["template"]);
        assert_eq!(workload["metadata"]["namespace"], namespace["name"]);
        for found in
            [&workload["metadata"]["labels"], &spec["selector"]["matchLabels"], &template["metadata"]["labels"]]
        {
            assert_eq!(*found, labels, "{name}");
        }
        let pod = &template["spec"];
        assert_eq!((&pod["serviceAccountName"], &pod["hostNetwork"]), (&json!(name), &json!(true)));
        assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]), "{name}: every taint");
        assert!(pod["priorityClassName"].as_str().unwrap().starts_with("system-"));
        used.insert(name.to_owned());
        for container in pod["containers"].as_array().unwrap() {
            assert_eq!(container["image"], format!("ghcr.io/juneau-net/{name}:v{version}"));
            assert_eq!(texts(&container["command"]), [name, "run"]);
            assert_eq!(container["envFrom"][0]["configMapRef"], json!({"name": "juneau-api-server", "optional": true}));
            assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
            let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            let volumes = pod["volumes"].as_array().cloned().unwrap_or_default();
            let by_name =
                |all: &[Value]| -> BTreeSet<String> { all.iter().map(|one| one["name"].to_string()).collect() };
            assert_eq!(by_name(&mounts), by_name(&volumes), "{name}");
        }
    }
    assert_eq!(used, accounts);
    assert_eq!(objects("ConfigMap").remove(0)["metadata"]["name"], "juneau-api-server");
}

/// A container's arguments, each variable of its environment that is a flag's among them.
fn words(container: &Value) -> Vec<String> {
    [texts(&container["command"]), texts(&container["args"])].concat()
}

#[test]
fn the_programs_run_as_they_are_told() {
    use clap::Parser as _;
    let deployment = objects("Deployment").remove(0);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    juneau_operator::cli::Cli::try_parse_from(words(container)).unwrap();
    let told = words(container).join(" ");
    for probe in ["livenessProbe", "readinessProbe"] {
        let get = &container[probe]["httpGet"];
        let address = format!("{}:{}", get["host"].as_str().unwrap(), get["port"]);
        assert!(told.contains(&format!("--health-probe-bind-address={address}")), "{probe}: {address}");
    }

    let daemon_set = objects("DaemonSet").remove(0);
    let container = &daemon_set["spec"]["template"]["spec"]["containers"][0];
    let names_its_node = json!({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
    assert_eq!(container["env"], json!([names_its_node]));
    let agent = |words: Vec<String>| juneau_agent::cli::Cli::try_parse_from(words);
    agent([words(container), vec!["--node=from-the-environment".to_owned()]].concat()).unwrap();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        agent(texts(&container[probe]["exec"]["command"])).unwrap();
    }
    // What it is told of, and what it writes, is mounted.
    let mounts = container["volumeMounts"].as_array().unwrap();
    let mounted = |path: &str| {
        mounts.iter().any(|mount| {
            let at = mount["mountPath"].as_str().unwrap();
            at == path || path.starts_with(&format!("{at}/")) || at.starts_with(&format!("{path}/"))
        })
    };
    let directories = texts(&container["args"]).into_iter().filter_map(|word| Some(word.split_once('=')?.1.to_owned()));
    let defaults = ["/run/juneau/agent.sock", "/sys/fs/bpf/juneau", "/run/netns"].map(str::to_owned);
    for path in directories.chain(defaults) {
        assert!(mounted(&path), "{path} is not mounted");
    }
}
