//! From YAML to objects: strict about what it does not know, since a field that is misspelt is a wish that is not met.

use crate::kinds;
use crate::view::{Key, Kind, Object, ObjectName};
use juneau_core::model::Problem;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::sync::Arc;

/// What a document turned out to be when it could not be used.
#[derive(Debug, Clone, PartialEq)]
pub enum Rejected {
    /// It is known which object it means.
    Object(Key, Problem),
    /// Its kind is not known, but its name is.
    Kind(ObjectName, Problem),
    /// It cannot be told what it means.
    Document(Problem),
}

impl Rejected {
    /// What is wrong.
    #[must_use]
    pub const fn problem(&self) -> &Problem {
        match self {
            Self::Object(_, problem) | Self::Kind(_, problem) | Self::Document(problem) => problem,
        }
    }

    /// What is wrong, to add to.
    pub(crate) const fn problem_mut(&mut self) -> &mut Problem {
        match self {
            Self::Object(_, problem) | Self::Kind(_, problem) | Self::Document(problem) => problem,
        }
    }
}

/// Reads the documents of a YAML file. Empty ones are left out.
///
/// # Errors
/// One line that says what is wrong and where, when any of it is not YAML.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    read(text)
}

/// An object and which one it is, or why it cannot be used.
pub type Read = Result<(Key, Object), Box<Rejected>>;

/// A document that is decoded as soon as it is read, so that a large file is never in memory as untyped values.
struct Decoded(Read);

impl<'de> Deserialize<'de> for Decoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self(object(value)))
    }
}

/// Reads the objects of a YAML file, each with what is wrong with it. Empty documents are left out.
///
/// # Errors
/// One line that says what is wrong and where, when any of it is not YAML.
pub fn objects(text: &str) -> Result<Vec<Read>, String> {
    Ok(read::<Decoded>(text)?.into_iter().map(|decoded| decoded.0).collect())
}

fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Result<Vec<T>, String> {
    let options = serde_saphyr::options! {
        // A file may hold a whole cluster: 30 000 documents of 30 nodes and more.
        budget: serde_saphyr::budget! {
            max_documents: 1_000_000,
            max_nodes: 50_000_000,
            max_events: 200_000_000,
        },
        with_snippet: false,
        strict_booleans: true,
        reject_unsupported_tags: true,
    };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Which object a document means, from its head alone.
///
/// # Errors
/// A problem about the document, when that cannot be told.
pub fn identify(value: &Value) -> Result<Key, Box<Rejected>> {
    let unreadable =
        |message: &str, remedy: &str| Box::new(Rejected::Document(Problem::new("document", message, remedy)));
    if !value.is_object() {
        return Err(unreadable("is not an object", "write one with apiVersion, kind and metadata.name"));
    }
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(name) = text("/metadata/name") else {
        return Err(unreadable("has no name", "set metadata.name to a string"));
    };
    let namespace = match value.pointer("/metadata/namespace") {
        None | Some(Value::Null) => "",
        Some(Value::String(namespace)) => namespace,
        Some(_) => return Err(unreadable("has a namespace that is not a string", "put metadata.namespace in quotes")),
    };
    let mut name = ObjectName::new(namespace, name);
    let (Some(api_version), Some(kind)) = (text("/apiVersion"), text("/kind")) else {
        let problem = Problem::new(name.to_string(), "has no apiVersion or no kind", "set both");
        return Err(Box::new(Rejected::Kind(name, problem)));
    };
    let Some(kind) = Kind::find(api_version, kind) else {
        let problem = Problem::new(
            format!("{kind}/{name}"),
            format!("kind {kind} of {api_version} is not known"),
            format!("known are {}", Kind::ALL.map(|k| format!("{} ({})", k, k.api_version())).join(", ")),
        );
        return Err(Box::new(Rejected::Kind(name, problem)));
    };
    if kind.is_namespaced() && name.namespace.is_empty() {
        "default".clone_into(&mut name.namespace);
    }
    let key = Key { kind, name };
    if !kind.is_namespaced() && !key.name.namespace.is_empty() {
        let key = Key { kind, name: ObjectName::new("", key.name.name) };
        let problem = Problem::new(key.to_string(), "the kind has no namespaces", "remove metadata.namespace");
        return Err(Box::new(Rejected::Object(key, problem)));
    }
    if !is_subdomain(&key.name.name) || !(key.name.namespace.is_empty() || is_subdomain(&key.name.namespace)) {
        let problem = Problem::new(
            format!("{kind}/{:?}", key.name.to_string()),
            "is not a name that Kubernetes allows",
            "use lower-case letters, digits, '-' and '.', at most 253",
        );
        return Err(Box::new(Rejected::Document(problem)));
    }
    Ok(key)
}

/// Whether a text is a DNS subdomain as Kubernetes wants names to be (RFC 1123).
fn is_subdomain(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|label| {
            let bytes = label.as_bytes();
            bytes.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
                && bytes.first().is_some_and(|byte| alphanumeric(*byte))
                && bytes.last().is_some_and(|byte| alphanumeric(*byte))
        })
}

/// Reads one document strictly: a field of the wrong type, or one that is not known, costs the object.
///
/// # Errors
/// What is wrong, and how much is known about which object it is.
pub fn object(mut value: Value) -> Read {
    let key = identify(&value)?;
    if key.kind.is_namespaced()
        && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".to_owned(), Value::String(key.name.namespace.clone()));
    }
    let object = match key.kind {
        Kind::Namespace => strict::<kinds::Namespace>(value).map(|o| Object::Namespace(Arc::new(o.into()))),
        Kind::Node => strict::<kinds::Node>(value).map(|o| Object::Node(Arc::new(o.into()))),
        Kind::Pod => strict::<kinds::Pod>(value).map(|o| Object::Pod(Arc::new(o.into()))),
        Kind::Vpc => strict::<kinds::Vpc>(value).map(|o| Object::Vpc(Arc::new(o.into()))),
        Kind::Subnet => strict::<kinds::Subnet>(value).map(|o| Object::Subnet(Arc::new(o.into()))),
        Kind::RouteTable => strict::<kinds::RouteTable>(value).map(|o| Object::RouteTable(Arc::new(o.into()))),
        Kind::NetworkInterface => {
            strict::<kinds::NetworkInterface>(value).map(|o| Object::NetworkInterface(Arc::new(o.into())))
        }
        Kind::NetworkEndpoint => {
            strict::<kinds::NetworkEndpoint>(value).map(|o| Object::NetworkEndpoint(Arc::new(o.into())))
        }
        Kind::Service => strict::<kinds::Service>(value).map(|o| Object::Service(Arc::new(o.into()))),
        Kind::EndpointSlice => strict::<kinds::EndpointSlice>(value).map(|o| Object::EndpointSlice(Arc::new(o.into()))),
    };
    match object {
        Ok(object) => Ok((key, object)),
        Err((message, remedy)) => {
            let problem = Problem::new(key.to_string(), message, remedy);
            Err(Box::new(Rejected::Object(key, problem)))
        }
    }
}

/// Decodes; the error is a message and a remedy.
fn strict<T: DeserializeOwned>(value: Value) -> Result<T, (String, String)> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(value, &mut track);
    let result = serde_ignored::deserialize(deserializer, |path| {
        // An optional part shows as `?` in a path.
        let path = path.to_string().replace(".?", "");
        if path != "apiVersion" && path != "kind" {
            unknown.push(path);
        }
    });
    match result {
        Err(error) => {
            let path = track.path().to_string();
            Err((format!("{path}: {error}"), format!("give {path} a value of the right type")))
        }
        Ok(_) if !unknown.is_empty() => {
            let fields = unknown.join(", ");
            Err((format!("unknown field {fields}"), "remove it, or mend its spelling".to_owned()))
        }
        Ok(object) => Ok(object),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Key, Object), Box<Rejected>> {
        object(documents(text).unwrap().remove(0))
    }

    #[test]
    fn an_unknown_field_is_named_at_any_depth() {
        let error = read("{apiVersion: juneau.loutres.me/v1alpha1, kind: Subnet, metadata: {name: red-a}, spec: {vpc: red, cidr: 10.0.1.0/24}, status: {vmi: 3}}").unwrap_err();
        assert_eq!(
            error.problem().to_string(),
            "Subnet/red-a: unknown field status.vmi; remove it, or mend its spelling"
        );
        let error = read(
            "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: red}, spec: {containers: [], nodName: n}}",
        )
        .unwrap_err();
        assert!(error.problem().message.contains("spec.nodName"), "{error:?}");
    }

    #[test]
    fn a_wrong_type_is_named_with_its_path() {
        let error = read("{apiVersion: juneau.loutres.me/v1alpha1, kind: Vpc, metadata: {name: red}, spec: {}, status: {vpcID: two}}")
            .unwrap_err();
        let problem = error.problem();
        assert_eq!(problem.object, "Vpc/red");
        assert!(problem.message.starts_with("status.vpcID: "), "{problem}");
        let Rejected::Object(key, _) = *error else { panic!("{error:?}") };
        assert_eq!(key.to_string(), "Vpc/red");
    }

    #[test]
    fn documents_that_mean_no_object_say_so() {
        for (text, message) in [
            ("[1]", "is not an object"),
            ("{kind: Vpc}", "has no name"),
            ("{metadata: {name: 3}}", "has no name"),
            ("{metadata: {name: a}}", "has no apiVersion or no kind"),
            ("{apiVersion: v1, kind: Secret, metadata: {name: a}}", "kind Secret of v1 is not known"),
            ("{apiVersion: v1, kind: Node, metadata: {name: ../../etc}}", "is not a name that Kubernetes allows"),
            ("{apiVersion: v1, kind: Node, metadata: {name: a, namespace: b}}", "the kind has no namespaces"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.problem().message, message, "{text}");
        }
    }

    #[test]
    fn a_pod_without_a_namespace_is_in_default() {
        let (key, _) = read("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}").unwrap();
        assert_eq!(key.to_string(), "Pod/default/a");
    }

    #[test]
    fn what_is_not_yaml_is_one_line_with_a_place() {
        let error = documents("a: 1\n---\nb: [1,\nc: }").unwrap_err();
        assert!(error.contains("line") && !error.contains('\n'), "{error}");
        assert!(documents("a: 1\na: 2").is_err(), "a key twice");
        assert_eq!(documents("# nothing\n---\n---\na: 1\n").unwrap().len(), 1);
    }
}
