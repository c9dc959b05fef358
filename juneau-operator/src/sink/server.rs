//! Writes to an API server: each change as one request with preconditions, and what the answer means.

use crate::plan::Change;
use crate::rights;
use crate::view::{Kind, Object};
use http::{Method, Request, StatusCode};
use juneau_api::source::client::{LONGEST_WAIT, retry_after};
use kube::client::Body;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// In whose name fields are owned.
pub const MANAGER: &str = "juneau-operator";
/// An answer that takes longer is given up. The change may have taken place; the next plan tells.
const PATIENCE: Duration = Duration::from_secs(30);
/// Without word from the server: how long after a 429.
const THROTTLE: Duration = Duration::from_secs(1);

/// How a write ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The object is now this one.
    Written(Object),
    /// The object is now this one, and these fields of what was to be written are not in it: the definition at the server
    /// is an older one that does not know them.
    Dropped(Object, Vec<String>),
    /// It is deleted, or will be when its finalizers are gone.
    Deleted,
    /// The view was behind: the object is another one, has another version, exists already or is gone. Plan again.
    Behind(String),
    /// The server wants to be left alone for this long, by all.
    Throttled(Duration),
    /// A right is missing; which one.
    Forbidden(String),
    /// The server does not want it, and will not want it the next time.
    Refused(String),
    /// It may go well the next time.
    Failed(String),
}

impl Outcome {
    /// In one word, for counters.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Written(_) | Self::Deleted => "done",
            Self::Dropped(..) => "dropped",
            Self::Behind(_) => "behind",
            Self::Throttled(_) => "throttled",
            Self::Forbidden(_) => "forbidden",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }
}

/// Why a change cannot be put into a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The table of rights does not have it.
    #[error("{0} is not among the writes of the operator (rights::WRITTEN)")]
    NotWritten(String),
    /// A kind that is only read.
    #[error("{0} has no document to write")]
    NoDocument(Kind),
    /// It cannot be serialised.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A name that cannot stand in a path.
    #[error("{0}")]
    Http(#[from] http::Error),
}

/// The document of an object of a kind that the operator writes.
fn document(object: &Object) -> Result<Value, RequestError> {
    fn value(kind: Kind, object: &impl Serialize) -> Result<Value, RequestError> {
        let mut document = serde_json::to_value(object)?;
        document["apiVersion"] = kind.api_version().into();
        document["kind"] = kind.as_str().into();
        Ok(document)
    }
    let kind = object.kind();
    match object {
        Object::Vpc(object) => value(kind, &**object),
        Object::Subnet(object) => value(kind, &**object),
        Object::RouteTable(object) => value(kind, &**object),
        Object::NetworkInterface(object) => value(kind, &**object),
        Object::NetworkEndpoint(object) => value(kind, &**object),
        Object::ServiceNATAttachment(object) => value(kind, &**object),
        Object::VpcEndpoint(object) => value(kind, &**object),
        Object::AllocationPool(object) => value(kind, &**object),
        Object::AllocationClaim(object) => value(kind, &**object),
        Object::AllocationLease(object) => value(kind, &**object),
        _ => Err(RequestError::NoDocument(kind)),
    }
}

/// The path of a kind's objects, or of one.
fn path(kind: Kind, namespace: &str, name: Option<&str>) -> String {
    let version = kind.api_version();
    let root = if version.contains('/') { "apis" } else { "api" };
    let mut path = format!("/{root}/{version}");
    if kind.is_namespaced() {
        path += &format!("/namespaces/{namespace}");
    }
    path += &format!("/{}", kind.plural());
    if let Some(name) = name {
        path += &format!("/{name}");
    }
    path
}

/// The request of a change.
///
/// # Errors
/// When the operator does not write such objects in that way.
pub fn request(change: &Change) -> Result<Request<Vec<u8>>, RequestError> {
    let target = change.target();
    if !rights::is_written(target.kind, change.verb()) {
        return Err(RequestError::NotWritten(change.to_string()));
    }
    let one = path(target.kind, &target.name.namespace, Some(&target.name.name));
    let preconditions = json!({ "uid": target.uid, "resourceVersion": target.resource_version });
    let (method, path, media, body) = match change {
        Change::Create(object) => {
            let mut document = document(object)?;
            if let Some(document) = document.as_object_mut() {
                document.remove("status");
            }
            if let Some(metadata) = document["metadata"].as_object_mut() {
                metadata.remove("uid");
                metadata.remove("resourceVersion");
            }
            let all = path(target.kind, &target.name.namespace, None);
            // One that would be made without a part of it is rather not made.
            let path = format!("{all}?fieldManager={MANAGER}&fieldValidation=Strict");
            (Method::POST, path, "application/json", document)
        }
        Change::Metadata(object) => {
            let metadata = object.metadata();
            let mut patch = preconditions;
            patch["finalizers"] = serde_json::to_value(&metadata.finalizers)?;
            patch["ownerReferences"] = serde_json::to_value(&metadata.owner_references)?;
            let patch = json!({ "metadata": patch });
            (Method::PATCH, format!("{one}?fieldManager={MANAGER}"), "application/merge-patch+json", patch)
        }
        Change::Spec(object) => {
            let mut document = document(object)?;
            let mut metadata = preconditions;
            metadata["name"] = target.name.name.as_str().into();
            if target.kind.is_namespaced() {
                metadata["namespace"] = target.name.namespace.as_str().into();
            }
            document["metadata"] = metadata;
            if let Some(document) = document.as_object_mut() {
                document.remove("status");
            }
            let path = format!("{one}?fieldManager={MANAGER}&force=true");
            (Method::PATCH, path, "application/apply-patch+yaml", document)
        }
        // The server takes nothing but the status from it, and compares uid and version.
        Change::Status(object) => {
            (Method::PUT, format!("{one}/status?fieldManager={MANAGER}"), "application/json", document(object)?)
        }
        Change::Delete(_) => {
            let options = json!({
                "apiVersion": "v1", "kind": "DeleteOptions",
                "preconditions": preconditions, "propagationPolicy": "Background",
            });
            (Method::DELETE, one, "application/json", options)
        }
    };
    let request = Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, media);
    Ok(request.body(serde_json::to_vec(&body)?)?)
}

/// Carries out one change.
pub async fn write(client: &kube::Client, change: &Change) -> Outcome {
    let request = match request(change) {
        Ok(request) => request,
        Err(error) => return Outcome::Refused(error.to_string()),
    };
    let sent = serde_json::from_slice::<Value>(request.body()).unwrap_or_default();
    let request = request.map(Body::from);
    let answer = async {
        let response = client.send(request).await?;
        let (head, body) = response.into_parts();
        Ok::<_, kube::Error>((head, body.collect_bytes().await?))
    };
    match tokio::time::timeout(PATIENCE, answer).await {
        Err(_) => Outcome::Failed(format!("no answer within {} s", PATIENCE.as_secs())),
        Ok(Err(error)) => Outcome::Failed(error.to_string()),
        Ok(Ok((head, body))) => read(change, &sent, &head, &body),
    }
}

/// What an answer lacks of what was sent. Values that differ are the server's to judge.
fn lacks(sent: &Value, answer: &Value, place: &str, fields: &mut Vec<String>) {
    match (sent, answer) {
        (Value::Object(sent), Value::Object(answer)) => {
            for (key, value) in sent {
                let place = format!("{place}.{key}");
                match answer.get(key) {
                    Some(kept) => lacks(value, kept, &place, fields),
                    // An empty list and none are the same.
                    None if value.is_null() || value.as_array().is_some_and(Vec::is_empty) => {}
                    None => fields.push(place),
                }
            }
        }
        (Value::Array(sent), Value::Array(answer)) => {
            let place = format!("{place}[]");
            for (value, kept) in sent.iter().zip(answer) {
                lacks(value, kept, &place, fields);
            }
        }
        _ => {}
    }
}

/// The fields that the server dropped of a change.
fn dropped(change: &Change, sent: &Value, answer: &Value) -> Vec<String> {
    let part = match change {
        Change::Status(_) => "status",
        Change::Spec(_) => "spec",
        _ => return Vec::new(),
    };
    let mut fields = Vec::new();
    lacks(&sent[part], &answer[part], part, &mut fields);
    fields.sort();
    fields.dedup();
    fields
}

fn read(change: &Change, sent: &Value, head: &http::response::Parts, body: &[u8]) -> Outcome {
    let kind = change.target().kind;
    let value = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let message = || {
        let text = value["message"].as_str().map_or_else(|| String::from_utf8_lossy(body), Into::into);
        format!("{}: {}", head.status.as_u16(), text.trim().chars().take(1000).collect::<String>())
    };
    match head.status {
        status if status.is_success() => match change {
            Change::Delete(_) => Outcome::Deleted,
            _ => match (dropped(change, sent, &value), Object::from_json(kind, value)) {
                (fields, Ok(object)) if fields.is_empty() => Outcome::Written(object),
                (fields, Ok(object)) => Outcome::Dropped(object, fields),
                (_, Err(error)) => Outcome::Failed(format!("the answer cannot be decoded: {error}")),
            },
        },
        StatusCode::NOT_FOUND if matches!(change, Change::Create(_)) => {
            // Its namespace is gone, or the kind is.
            Outcome::Failed(message())
        }
        StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::GONE => Outcome::Behind(message()),
        StatusCode::TOO_MANY_REQUESTS => {
            let told = || value["details"]["retryAfterSeconds"].as_u64().filter(|seconds| *seconds > 0);
            let pause = retry_after(head).or_else(|| told().map(Duration::from_secs)).unwrap_or(THROTTLE);
            Outcome::Throttled(pause.min(LONGEST_WAIT))
        }
        // Without a word about the time it is a failure like any other, of this object.
        StatusCode::SERVICE_UNAVAILABLE if retry_after(head).is_some() => {
            Outcome::Throttled(retry_after(head).unwrap_or(THROTTLE))
        }
        // A namespace that is being deleted takes no new objects, which is said with the same code as a missing right.
        StatusCode::FORBIDDEN if value["details"]["causes"][0]["reason"] == "NamespaceTerminating" => {
            Outcome::Refused(message())
        }
        StatusCode::FORBIDDEN => {
            let right = rights::of_write(kind, change.verb());
            let (resource, verb) = right.unwrap_or_else(|| (kind.plural().to_owned(), "any verb"));
            Outcome::Forbidden(format!(
                "may not {verb} {resource}: is it in ClusterRole juneau-operator, as in deploy/? The server says: {}",
                message()
            ))
        }
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::METHOD_NOT_ALLOWED => {
            Outcome::Refused(message())
        }
        _ => Outcome::Failed(message()),
    }
}

#[cfg(test)]
mod tests;
