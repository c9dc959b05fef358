//! What the API server was asked, by whom, and how it answered: its audit log.
//!
//! The server writes an event when it has answered a request, in a watch's case when the watch ends. Events of a
//! request that was answered a moment ago may be missing still.

use crate::error::{Context, Error, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// What is written: every request once, when it was answered, without its content.
pub(crate) const POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived", "ResponseStarted"],
  "rules": [{ "level": "Metadata", "omitManagedFields": true }]
}
"#;

/// The verbs that change objects.
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// One request that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// Who asked, for example `system:serviceaccount:juneau-system:juneau-agent`.
    pub user: String,
    /// The verb of authorization: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// The resource, in the plural, with its subresource (`pods/status`), or the path of what is no resource.
    pub resource: String,
    /// The object's namespace, or nothing.
    pub namespace: String,
    /// The object's name, or nothing.
    pub name: String,
    /// HTTP status of the answer; 0 when there was none.
    pub code: u16,
    /// Whether the rights of the user did not suffice.
    pub forbidden: bool,
    /// What the client calls itself.
    pub user_agent: String,
    /// When the server received the request, by its clock.
    pub received: Timestamp,
    /// Path and query of the request.
    pub uri: String,
}

impl AuditEvent {
    /// Whether the request was one to change something, and was not refused.
    #[must_use]
    pub fn is_write(&self) -> bool {
        WRITES.contains(&self.verb.as_str()) && (200..300).contains(&self.code)
    }
}

/// An audit log, from a place in it on.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
    start: u64,
}

impl AuditLog {
    /// The log at `path` from its beginning.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), start: 0 }
    }

    /// The same log from now on.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn from_now(&self) -> Result<Self> {
        let length = std::fs::metadata(&self.path).on("reading", &self.path)?.len();
        Ok(Self { path: self.path.clone(), start: length })
    }

    /// All events, oldest first.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn events(&self) -> Result<Vec<AuditEvent>> {
        let mut text = String::new();
        std::fs::File::open(&self.path)
            .and_then(|mut file| {
                file.seek(SeekFrom::Start(self.start))?;
                file.read_to_string(&mut text)
            })
            .on("reading", &self.path)?;
        // What follows the last end of a line is being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| self.parse(line)).collect()
    }

    fn parse(&self, line: &str) -> Result<AuditEvent> {
        let event: Event =
            serde_json::from_str(line).map_err(|source| Error::Audit { path: self.path.clone(), source })?;
        let object = event.object_ref.unwrap_or_default();
        let resource = match (object.resource.is_empty(), object.subresource.is_empty()) {
            (true, _) => event.request_uri.clone(),
            (false, true) => object.resource,
            (false, false) => format!("{}/{}", object.resource, object.subresource),
        };
        Ok(AuditEvent {
            user: event.user.username,
            verb: event.verb,
            resource,
            namespace: object.namespace,
            name: object.name,
            code: event.response_status.map_or(0, |status| status.code),
            forbidden: event.annotations.get("authorization.k8s.io/decision").is_some_and(|word| word == "forbid"),
            user_agent: event.user_agent,
            received: event.request_received_timestamp.0,
            uri: event.request_uri,
        })
    }

    /// How often `user` changed something, for each verb and resource.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn writes_of(&self, user: &str) -> Result<BTreeMap<(String, String), usize>> {
        let mut counts = BTreeMap::new();
        for event in self.events()?.into_iter().filter(|event| event.user == user && event.is_write()) {
            *counts.entry((event.verb, event.resource)).or_default() += 1;
        }
        Ok(counts)
    }

    /// Requests that were refused because the rights of who asked did not suffice. A component under test must have
    /// none; the anonymous ones of a client that only looks are left out.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn forbidden(&self) -> Result<Vec<AuditEvent>> {
        let mut events = self.events()?;
        events.retain(|event| event.forbidden && event.user != "system:anonymous");
        Ok(events)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    request_received_timestamp: MicroTime,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Debug, Default, Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(user: &str, verb: &str, resource: &str, code: u16, decision: &str) -> String {
        let event = serde_json::json!({
            "kind": "Event", "level": "Metadata", "stage": "ResponseComplete", "verb": verb,
            "requestURI": "/api/v1/pods", "requestReceivedTimestamp": "2026-01-01T00:00:00.000001Z", "user": { "username": user, "groups": [] },
            "objectRef": { "resource": resource, "namespace": "a", "name": "b", "apiVersion": "v1" },
            "responseStatus": { "metadata": {}, "code": code },
            "annotations": { "authorization.k8s.io/decision": decision },
        });
        format!("{event}\n")
    }

    #[test]
    fn writes_are_counted_from_a_place_on_and_half_a_line_is_not_read() {
        let path = std::env::temp_dir().join(format!("juneau-audit-{}", std::process::id()));
        let mut text = line("x", "create", "pods", 201, "allow") + &line("x", "get", "pods", 200, "allow");
        std::fs::write(&path, &text).unwrap();
        let log = AuditLog::new(&path);
        let later = log.from_now().unwrap();
        text += &line("x", "patch", "pods", 200, "allow");
        text += &line("x", "patch", "pods", 409, "allow");
        text += &line("y", "delete", "pods", 403, "forbid");
        text += "{\"half\":";
        std::fs::write(&path, &text).unwrap();
        assert_eq!(log.events().unwrap().len(), 5);
        let key = |verb: &str| (verb.to_owned(), "pods".to_owned());
        assert_eq!(log.writes_of("x").unwrap(), [(key("create"), 1), (key("patch"), 1)].into());
        assert_eq!(later.writes_of("x").unwrap(), [(key("patch"), 1)].into());
        assert_eq!(later.writes_of("y").unwrap(), BTreeMap::new(), "what was refused changed nothing");
        let forbidden = later.forbidden().unwrap();
        assert_eq!((forbidden.len(), forbidden[0].user.as_str()), (1, "y"));
        std::fs::remove_file(path).unwrap();
    }
}
