//! Probes of Pods that their node cannot reach: what the webhook writes into such a Pod, and the agent reads.
//!
//! A kubelet asks a Pod's address from the node's network namespace, where an address of a tenant's network means
//! nothing. So the webhook puts a question to the node's own agent ([`HOST`], [`PORT`], [`path`]) in the place of the
//! probe, and the probe itself into the annotation [`CONFIGS`], under the token that the question names.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Pod: its probes were rewritten, in this way ([`VERSION`]).
pub const VERSION_KEY: &str = "juneau.loutres.me/probe-rewrite-version";
/// The one way that there is.
pub const VERSION: &str = "v1";
/// Pod: the probes as they were, as JSON, by their tokens.
pub const CONFIGS: &str = "juneau.loutres.me/probe-configs";

/// Where the agent of a node executes probes, in the node's network namespace.
pub const HOST: &str = "127.0.0.1";
/// At which TCP port.
pub const PORT: u16 = 9911;
/// The path of a probe, less its token.
pub const PATH: &str = "/v1/probes/";
/// Digits of a token: 128 bits in hexadecimal.
pub const TOKEN_LENGTH: usize = 32;

/// Largest annotation that is read, in bytes: what the API server takes of all annotations of an object together.
const ANNOTATION_LIMIT: usize = 256 << 10;

/// The path by which a probe is asked for.
#[must_use]
pub fn path(token: &str) -> String {
    format!("{PATH}{token}")
}

/// The token in the path of a question.
#[must_use]
pub fn token(path: &str) -> Option<&str> {
    path.strip_prefix(PATH).filter(|token| is_token(token))
}

/// Whether this can be a token.
#[must_use]
pub fn is_token(text: &str) -> bool {
    text.len() == TOKEN_LENGTH && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// What a kubelet does with the answer. Named as the fields are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// Whether the container may get traffic.
    ReadinessProbe,
    /// Whether it is to be started anew.
    LivenessProbe,
    /// Whether it has started.
    StartupProbe,
    /// A handler: the container is told that it was started.
    PostStart,
    /// A handler: it is told that it will be ended.
    PreStop,
}

impl Purpose {
    /// Probes, as they are named in a container.
    pub const PROBES: [Self; 3] = [Self::ReadinessProbe, Self::LivenessProbe, Self::StartupProbe];
    /// Handlers, as they are named in `lifecycle` of a container.
    pub const HANDLERS: [Self; 2] = [Self::PostStart, Self::PreStop];

    /// The field's name.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::ReadinessProbe => "readinessProbe",
            Self::LivenessProbe => "livenessProbe",
            Self::StartupProbe => "startupProbe",
            Self::PostStart => "postStart",
            Self::PreStop => "preStop",
        }
    }

    /// Whether it is a handler. A kubelet takes whatever answer one gets for a success.
    #[must_use]
    pub const fn is_handler(self) -> bool {
        matches!(self, Self::PostStart | Self::PreStop)
    }
}

/// One probe as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The container's name.
    pub container: String,
    /// What it is for.
    pub purpose: Purpose,
    /// How long an answer may take, in seconds; 0 for handlers, for which a kubelet sets no limit.
    #[serde(default)]
    pub timeout_seconds: u32,
    /// The action's field, such as `httpGet`, and its value as it was written, but with the port's number for its name.
    pub action: Map<String, Value>,
}

impl Config {
    /// What is to be done.
    ///
    /// # Errors
    /// What is wrong with it, in words for who wrote it.
    pub fn action(&self) -> Result<Action, String> {
        serde_json::from_value(Value::Object(self.action.clone())).map_err(|error| error.to_string())
    }
}

/// What a probe does.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Asks by HTTP.
    HttpGet(HttpGet),
    /// Connects.
    TcpSocket(TcpSocket),
    /// Asks by the health protocol of gRPC.
    Grpc(Grpc),
}

impl Action {
    /// The port, which may still be a name if no port of the container has it.
    #[must_use]
    pub const fn port(&self) -> &Port {
        match self {
            Self::HttpGet(HttpGet { port, .. })
            | Self::TcpSocket(TcpSocket { port })
            | Self::Grpc(Grpc { port, .. }) => port,
        }
    }
}

/// A port of a container.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Port {
    /// Its number.
    Number(u16),
    /// A name that no port of the container has.
    Name(String),
}

/// `httpGet`. Members that only say where the Pod is (`host`) are not read: it is always the Pod itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    /// Path and query; may be empty.
    #[serde(default)]
    pub path: String,
    /// The port.
    pub port: Port,
    /// `HTTP` or `HTTPS`.
    #[serde(default)]
    pub scheme: Scheme,
    /// Which HTTP without TLS.
    #[serde(default)]
    pub protocol: Option<Protocol>,
    /// Headers to send, in their order.
    #[serde(default)]
    pub http_headers: Vec<Header>,
}

/// Over what HTTP goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Scheme {
    /// TCP.
    #[default]
    Http,
    /// TLS; no certificate is verified.
    Https,
}

/// Which HTTP is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, without asking first.
    Http2,
}

/// A header.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    #[serde(default)]
    pub value: String,
}

/// `tcpSocket`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TcpSocket {
    /// The port.
    pub port: Port,
}

/// `grpc`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Grpc {
    /// The port.
    pub port: Port,
    /// The service that is asked about; empty: the whole server.
    #[serde(default)]
    pub service: Option<String>,
    /// Over what it goes.
    #[serde(default)]
    pub mode: Option<GrpcMode>,
}

/// Over what gRPC goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum GrpcMode {
    /// TCP.
    Plaintext,
    /// TLS; no certificate is verified.
    #[serde(rename = "TLS")]
    Tls,
}

/// Reads the annotation [`CONFIGS`].
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<BTreeMap<String, Config>, String> {
    if text.len() > ANNOTATION_LIMIT {
        return Err(format!("is longer than {ANNOTATION_LIMIT} bytes"));
    }
    let configs: BTreeMap<String, Config> =
        serde_json::from_str(text).map_err(|error| format!("cannot be read: {error}"))?;
    match configs.keys().find(|token| !is_token(token)) {
        Some(token) => Err(format!("has {token:?}, which is not a token")),
        None => Ok(configs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_hold_tokens() {
        let one = "0123456789abcdef0123456789abcdef";
        assert_eq!(token(&path(one)), Some(one));
        for wrong in
            ["", "/", "/v1/probes/", "/v1/probes/x", &format!("/v1/probes/{}/", one), &path(&one.to_uppercase())]
        {
            assert_eq!(token(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn annotations_are_read_or_refused_with_a_reason() {
        let one = "0".repeat(32);
        let config = |action: Value| json!({ &one: {"container": "c", "purpose": "readinessProbe", "action": action} });
        let read = parse(&config(json!({"httpGet": {"port": 80, "path": "/a", "new": 1}})).to_string()).unwrap();
        let Action::HttpGet(get) = read[&one].action().unwrap() else { panic!() };
        assert_eq!((get.port, &*get.path, get.scheme), (Port::Number(80), "/a", Scheme::Http));
        let read = parse(&config(json!({"grpc": {"port": 80, "service": null, "mode": "TLS"}})).to_string()).unwrap();
        assert!(matches!(read[&one].action().unwrap(), Action::Grpc(Grpc { mode: Some(GrpcMode::Tls), .. })));
        for action in [
            json!({}),
            json!({"exec": {}}),
            json!({"httpGet": {}}),
            json!({"httpGet": {"port": 65536, "scheme": "GOPHER"}}),
            json!({"httpGet": {"port": 1}, "tcpSocket": {"port": 1}}),
        ] {
            let read = parse(&config(action.clone()).to_string()).unwrap();
            assert!(read[&one].action().is_err(), "{action}");
        }
        for (text, says) in [
            ("", "cannot be read"),
            ("[]", "cannot be read"),
            (r#"{"a": {"container": "c", "purpose": "preStop", "action": {}}}"#, "not a token"),
            (&json!({ &one: {"container": "c", "purpose": "exec", "action": {}} }).to_string(), "cannot be read"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
        assert!(parse(&" ".repeat(ANNOTATION_LIMIT + 1)).unwrap_err().contains("longer"));
    }
}
