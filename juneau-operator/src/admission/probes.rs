//! Probes of Pods that the node cannot reach become questions to the node's agent ([`juneau_api::probes`]).
//!
//! Every admission gives new tokens, so that a Pod that is made from a copy of another has its own: what an earlier
//! admission wrote is taken back first. So a second one, after another webhook added a container, misses nothing either.

use super::{Denial, Operation, Request, Said, Versions};
use crate::plan::Config as PlanConfig;
use crate::view::{Kind, View};
use juneau_api::annotations::{NetworkRef, Source, has_interfaces, interfaces};
use juneau_api::kinds::Pod;
use juneau_api::names;
use juneau_api::probes::{CONFIGS, Config, HOST, PATH, PORT, Purpose, VERSION, VERSION_KEY, parse, path, token};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The question that is put to this part: `(group, kind, path)`.
pub const MUTATED: (&str, &str, &str) = ("", "Pod", "/mutate--v1-pod-probes");

/// The fields of a probe that ask over the network.
const ACTIONS: [&str; 3] = ["httpGet", "tcpSocket", "grpc"];

/// Answers one question.
pub(super) fn mutate(view: &View, _: &PlanConfig, request: &Request) -> Result<Said, Denial> {
    let nothing = Ok(Said::default());
    if request.operation != Operation::Create || request.sub_resource.as_deref().is_some_and(|part| !part.is_empty()) {
        return nothing;
    }
    let Some(pod) = Versions::<Pod>::of(request)?.new else { return nothing };
    if !has_interfaces(&pod) || !concerns(&request.object) {
        return nothing;
    }
    let generated = || pod.metadata.generate_name.as_ref().map(|prefix| format!("{prefix}*"));
    let name = pod.metadata.name.clone().or_else(generated).unwrap_or_default();
    let what = format!("Pod {}/{name}", request.namespace);
    let beyond = is_beyond(view, &what, request, &pod)? && !is_for_windows(&request.object);
    let mut spent = None;
    let mut fresh = || {
        fresh_token().unwrap_or_else(|error| {
            spent = Some(error);
            String::new()
        })
    };
    let patch = rewrite(&request.object, beyond, &mut fresh);
    if let Some(error) = spent {
        return Err(Denial::firm(format!("{what}: {error}; try again")));
    }
    let patch = patch.map_err(|why| Denial::firm(format!("{what}: {why}")))?;
    let warnings = if beyond && !patch.is_empty() { warnings(view, &request.namespace) } else { Vec::new() };
    Ok(Said { warnings, patch })
}

/// Whether the node has no way to the Pod's `eth0`.
fn is_beyond(view: &View, what: &str, request: &Request, pod: &Pod) -> Result<bool, Denial> {
    let namespace = view.namespaces.get(&request.namespace);
    let of_namespace = namespace.and_then(|namespace| namespace.metadata.annotations.as_ref());
    let wanted = interfaces(pod, of_namespace).map_err(|error| Denial {
        message: format!("{what}: {error}"),
        lag: error.of_namespace,
        missing: None,
    })?;
    let Some(primary) = wanted.first() else { return Ok(false) };
    if primary.source == Source::Default && namespace.is_none() {
        let message = format!("{what}: the operator has not seen Namespace {}; try again", request.namespace);
        return Err(Denial::of_missing(Kind::Namespace, &request.namespace, message));
    }
    match &primary.network {
        NetworkRef::Subnet(subnet) => match view.subnets.get(subnet) {
            Some(found) => Ok(found.spec.vpc != names::DEFAULT),
            // Before the operator made it, at the very start.
            None if subnet == names::DEFAULT => Ok(false),
            None => {
                let place = format!("{what}: interface {} ({})", primary.interface, primary.source);
                let message = format!("{place}: Subnet {subnet} does not exist; create it first, or name another");
                Err(Denial::of_missing(Kind::Subnet, subnet, message))
            }
        },
        NetworkRef::L2Network(_) => Ok(true),
        // It is the node that has a route to it.
        NetworkRef::ElasticIp(_) => Ok(false),
    }
}

fn is_for_windows(pod: &Value) -> bool {
    let says = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str) == Some("windows");
    says("/spec/os/name") || says("/spec/nodeSelector/kubernetes.io~1os")
}

/// Whether there is anything to do for a Pod, wherever it is.
fn concerns(pod: &Value) -> bool {
    let annotated = [VERSION_KEY, CONFIGS].iter().any(|key| !pod["metadata"]["annotations"][*key].is_null());
    annotated || places(pod).any(|place| action_of(place.value, place.purpose).is_some())
}

/// Why the Namespace may not take what comes out, since the API server's own words do not say where it comes from.
fn warnings(view: &View, namespace: &str) -> Vec<String> {
    const LEVEL: &str = "pod-security.kubernetes.io/enforce";
    const AT: &str = "pod-security.kubernetes.io/enforce-version";
    /// The first minor version that refuses `host` in probes.
    const SINCE: u32 = 34;
    let labels = view.namespaces.get(namespace).and_then(|namespace| namespace.metadata.labels.as_ref());
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let strict = matches!(label(LEVEL), Some("baseline" | "restricted"));
    let minor = label(AT).and_then(|version| version.strip_prefix("v1.")).and_then(|minor| minor.parse().ok());
    if !strict || minor.is_some_and(|minor: u32| minor < SINCE) {
        return Vec::new();
    }
    vec![format!(
        "probes are asked by way of the node's agent, at {HOST}, which Pod Security refuses from version 1.{SINCE} on: \
         label Namespace {namespace} with {AT}=v1.{}",
        SINCE - 1
    )]
}

/// A field of a container that may ask over the network.
struct Place<'a> {
    container: &'a Value,
    purpose: Purpose,
    /// Where in the Pod it is.
    pointer: String,
    value: &'a Value,
}

fn places(pod: &Value) -> impl Iterator<Item = Place<'_>> {
    let lists = ["containers", "initContainers"].into_iter();
    let containers = lists.flat_map(|list| {
        let items = pod["spec"][list].as_array().into_iter().flatten().enumerate();
        items.map(move |(index, container)| (format!("/spec/{list}/{index}"), container))
    });
    containers.flat_map(|(at, container)| {
        let probes = Purpose::PROBES.map(|purpose| (purpose, purpose.field().to_owned()));
        let handlers = Purpose::HANDLERS.map(|purpose| (purpose, format!("lifecycle/{}", purpose.field())));
        probes.into_iter().chain(handlers).filter_map(move |(purpose, field)| {
            let value = container.pointer(&format!("/{field}")).filter(|value| value.is_object())?;
            Some(Place { container, purpose, pointer: format!("{at}/{field}"), value })
        })
    })
}

/// The field of a probe that asks over the network, if one does. Of handlers only `httpGet` is ever executed.
fn action_of(probe: &Value, purpose: Purpose) -> Option<&'static str> {
    let actions = if purpose.is_handler() { &ACTIONS[..1] } else { &ACTIONS };
    actions.iter().copied().find(|action| probe[*action].is_object())
}

/// What to change in a Pod, as a JSON patch (RFC 6902). `beyond`: the node cannot reach it. `fresh` yields tokens that
/// were never used.
///
/// # Errors
/// What is wrong with the Pod, and what to do.
pub fn rewrite(pod: &Value, beyond: bool, fresh: &mut dyn FnMut() -> String) -> Result<Vec<Value>, String> {
    let annotations = pod["metadata"]["annotations"].as_object();
    let before = match annotations.and_then(|all| all.get(CONFIGS)).and_then(Value::as_str) {
        Some(text) => parse(text)
            .map_err(|error| format!("annotation {CONFIGS} {error}; leave it out: it is Juneau's to write"))?,
        None => BTreeMap::new(),
    };
    let mut configs = BTreeMap::new();
    let mut patch = Vec::new();
    for place in places(pod) {
        let original = restore(&place, &before)?;
        let mut now = original.clone();
        if beyond && let Some(config) = config_of(&place, &original) {
            let name = fresh();
            ask_agent(&mut now, &config, &name);
            configs.insert(name, config);
        }
        if now != *place.value {
            patch.push(json!({"op": "replace", "path": place.pointer, "value": now}));
        }
    }
    annotate(annotations, &configs, &mut patch)?;
    Ok(patch)
}

/// The number of a port, as a kubelet finds it: by its name among the container's, else by what it says.
fn port_of(container: &Value, port: &Value) -> Option<u64> {
    let Some(text) = port.as_str() else { return port.as_u64() };
    let mut ports = container["ports"].as_array().into_iter().flatten();
    let named = ports.find(|candidate| candidate["name"] == text).and_then(|found| found["containerPort"].as_u64());
    named.or_else(|| text.parse().ok())
}

/// The probe as it was before an earlier admission, of this Pod or of the one that it is a copy of.
fn restore(place: &Place<'_>, before: &BTreeMap<String, Config>) -> Result<Value, String> {
    let Some(name) = asked_token(place.container, place.value)? else { return Ok(place.value.clone()) };
    let where_it_is = || format!("{} of container {}", place.purpose.field(), place.container["name"]);
    let Some(config) = before.get(name) else {
        return Err(format!(
            "{} asks the node's agent for a probe that annotation {CONFIGS} does not hold; write the probe itself",
            where_it_is()
        ));
    };
    config.action().map_err(|error| {
        format!("annotation {CONFIGS}: {name}: {error}; write the probe itself and leave the annotation out")
    })?;
    let mut probe = place.value.clone();
    if let Some(members) = probe.as_object_mut() {
        members.remove("httpGet");
        members.extend(config.action.clone());
    }
    match asked_token(place.container, &probe)? {
        None => Ok(probe),
        Some(_) => Err(format!(
            "{}: annotation {CONFIGS} holds another question to the node's agent; write the probe itself",
            where_it_is()
        )),
    }
}

/// The token in a probe that asks the agent.
fn asked_token<'a>(container: &Value, probe: &'a Value) -> Result<Option<&'a str>, String> {
    let get = &probe["httpGet"];
    let text = |member: &str| get[member].as_str().unwrap_or_default();
    let here = !text("host").is_empty() && port_of(container, &get["port"]) == Some(PORT.into());
    let asked = get["path"].as_str().unwrap_or_default();
    if !here || !asked.starts_with(PATH) {
        return Ok(None);
    }
    // Whoever knows the token of another's Pod has no business there.
    match token(asked) {
        Some(name) if text("host") == HOST => Ok(Some(name)),
        _ => Err(format!(
            "a probe asks {}:{PORT}{asked}, which is Juneau's to write; write the probe itself",
            text("host")
        )),
    }
}

/// What the agent is to be told of a probe; nothing for one that stays as it is.
fn config_of(place: &Place<'_>, probe: &Value) -> Option<Config> {
    let field = action_of(probe, place.purpose)?;
    let mut action = probe[field].clone();
    // Where it says so, it is not the Pod's address that is asked.
    if !action["host"].as_str().unwrap_or_default().is_empty() {
        return None;
    }
    if let Some(number) = port_of(place.container, &action["port"]) {
        action["port"] = number.into();
    }
    let seconds = probe["timeoutSeconds"].as_u64().and_then(|seconds| u32::try_from(seconds).ok());
    let default = u32::from(!place.purpose.is_handler());
    Some(Config {
        container: place.container["name"].as_str().unwrap_or_default().to_owned(),
        purpose: place.purpose,
        timeout_seconds: seconds.filter(|seconds| *seconds > 0).unwrap_or(default),
        action: Map::from_iter([(field.to_owned(), action)]),
    })
}

/// Puts the question to the agent in the place of the probe's action. Everything else stays with the kubelet.
fn ask_agent(probe: &mut Value, config: &Config, name: &str) {
    if let Some(members) = probe.as_object_mut() {
        for field in config.action.keys() {
            members.remove(field);
        }
        let question = json!({"host": HOST, "port": PORT, "path": path(name), "scheme": "HTTP"});
        members.insert("httpGet".to_owned(), question);
    }
}

/// Brings the two annotations in line with what the probes are now.
fn annotate(
    annotations: Option<&Map<String, Value>>,
    configs: &BTreeMap<String, Config>,
    patch: &mut Vec<Value>,
) -> Result<(), String> {
    let text = serde_json::to_string(configs).map_err(|error| error.to_string())?;
    let wanted = [(VERSION_KEY, VERSION.to_owned()), (CONFIGS, text)];
    let Some(annotations) = annotations else {
        if !configs.is_empty() {
            let all: Map<String, Value> = wanted.into_iter().map(|(key, text)| (key.to_owned(), text.into())).collect();
            patch.push(json!({"op": "add", "path": "/metadata/annotations", "value": all}));
        }
        return Ok(());
    };
    for (key, text) in wanted {
        let path = format!("/metadata/annotations/{}", key.replace('~', "~0").replace('/', "~1"));
        match annotations.get(key) {
            Some(_) if configs.is_empty() => patch.push(json!({"op": "remove", "path": path})),
            Some(now) if *now == text => {}
            _ if configs.is_empty() => {}
            _ => patch.push(json!({"op": "add", "path": path, "value": text})),
        }
    }
    Ok(())
}

/// A token that nobody can guess.
fn fresh_token() -> Result<String, String> {
    let mut bytes = [0u8; juneau_api::probes::TOKEN_LENGTH / 2];
    let provider = rustls::crypto::ring::default_provider();
    provider.secure_random.fill(&mut bytes).map_err(|_| "the system yields no random numbers".to_owned())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;
