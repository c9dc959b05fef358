//! What is said on the agent's Unix socket: one JSON request and one JSON answer a connection, each a line.
//!
//! Unknown members are ignored on both sides, so members may be added; a new meaning of one needs a new [`VERSION`]. A
//! request of another version is answered with [`ErrorCode::UnsupportedVersion`], under the version that is spoken.

mod client;
mod debug;

pub use client::{ANSWER_LIMIT, CallError, call, call_within};
pub use debug::*;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The version of requests and answers.
pub const VERSION: u32 = 1;

/// Longest request that the agent reads, in bytes.
pub const REQUEST_LIMIT: usize = 256 * 1024;

/// A request with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "kebab-case")]
pub enum Method {
    /// Gives a Pod's network namespace all of its interfaces or none; answered with [`Attached`] when packets may flow.
    /// Idempotent.
    Attach(Sandbox),
    /// Takes a sandbox's interfaces away; answered with [`Detached`]. Idempotent. The container id says which; one that
    /// is not attached (an earlier sandbox of the same Pod) changes nothing.
    Detach(Sandbox),
    /// Compares a sandbox's interfaces with what they should be; answered with [`Attached`].
    Check(Sandbox),
    /// Takes away the interfaces of every sandbox that is not named; answered with [`Collected`].
    Collect(Valid),
    /// Whether Pods can be attached now: [`Readiness`].
    Readiness,
    /// What the agent is and does: [`Status`].
    Status,
    /// Counters of every exit but delivery: [`Drops`].
    Drops,
    /// Connections: [`Flows`].
    Flows(FlowFilter),
    /// Routes of the tables that this node needs: [`Routes`].
    Routes,
    /// Endpoints that this node knows: [`Endpoints`].
    Endpoints,
    /// Services that this node's endpoints can call: [`Services`].
    Services(ServiceFilter),
    /// What would happen to a packet: [`Explanation`].
    Explain(ExplainRequest),
}

/// A Pod's network namespace, as the container runtime made it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sandbox {
    /// The Pod's Kubernetes namespace. `detach` needs none.
    #[serde(default)]
    pub namespace: String,
    /// The Pod's name. `detach` needs none.
    #[serde(default)]
    pub name: String,
    /// Path of the network namespace, as seen in the agent's mount namespace. `detach` needs none: it may be gone.
    #[serde(default)]
    pub netns: PathBuf,
    /// The sandbox's container id: guards against a late `detach` of an earlier sandbox of the same Pod.
    pub container_id: String,
    /// The Pod's uid; absent: whichever Pod has the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// An interface that must be among the Pod's; absent: `eth0`, which every Pod has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `attach`: how long to wait for objects that are missing still, in milliseconds; absent: not at all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub patience: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Parameters of [`Method::Collect`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Valid {
    /// Container ids of the sandboxes that stay.
    pub container_ids: Vec<String>,
}

/// Answer to [`Method::Attach`] and [`Method::Check`]: the Pod's `eth0`, and its other interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Name of the interface in the Pod.
    pub interface: String,
    /// The Pod's address with its Subnet's prefix length: `10.0.1.10/24`.
    pub address: String,
    /// The Subnet's gateway, next hop of the default route.
    pub gateway: Ipv4Addr,
    /// The interface's MAC address.
    pub mac: String,
    /// The interface's MTU.
    pub mtu: u32,
    /// Name of the interface's other end on the node.
    pub host_interface: String,
    /// The Pod's other interfaces, in the order in which it asks for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Interface>,
}

/// An interface besides `eth0`. It has no routes but to its own Subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name in the Pod.
    pub interface: String,
    /// Its address with its Subnet's prefix length.
    pub address: String,
    /// Its MAC address.
    pub mac: String,
    /// Its MTU.
    pub mtu: u32,
    /// Name of its other end on the node.
    pub host_interface: String,
}

/// Answer to [`Method::Detach`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// Whether there was something to take away.
    pub changed: bool,
}

/// Answer to [`Method::Collect`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// Container ids of the sandboxes whose interfaces were taken away.
    pub detached: Vec<String>,
}

/// Answer to [`Method::Readiness`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// Pods can be attached.
    pub ready: bool,
    /// Pods that are attached may not reach everything that they should.
    pub limited: bool,
    /// Why not, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Problem>,
}

/// Answer to [`Method::Status`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The objects were read whole once and everything that can be programmed is.
    pub ready: bool,
    /// The node's name.
    pub node: String,
    /// Process id of the agent.
    pub pid: u32,
    /// Number of the load of BPF programs in force.
    pub generation: u32,
    /// How often the tables were computed and applied since the start.
    pub revision: u64,
    /// Nothing that was seen waits to be applied.
    pub settled: bool,
    /// The device that carries the overlay.
    pub underlay: Option<Underlay>,
    /// What is wrong, each with its remedy; sorted by object.
    pub problems: Vec<Problem>,
    /// Interfaces of attached Pods, sorted by namespace, name and interface.
    pub attachments: Vec<Attachment>,
}

/// The underlay as the agent found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Underlay {
    /// Name of the device.
    pub device: String,
    /// Its ifindex.
    pub ifindex: u32,
    /// The node's address on it, which is its VTEP.
    pub address: Ipv4Addr,
    /// Its MTU, in bytes of IP.
    pub mtu: u32,
}

/// An object that is not, or not wholly, in force.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// The object: `NetworkEndpoint/red/a.eth0`, `file pods.yaml`, `map jn_routes`.
    pub object: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
    /// Where the object was read; empty if that is nowhere.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
}

/// An interface of a Pod that is attached to this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The Pod's Kubernetes namespace.
    pub namespace: String,
    /// The Pod's name.
    pub name: String,
    /// Container id of its sandbox.
    pub container_id: String,
    /// Name of the interface in the Pod.
    pub interface: String,
    /// Name of the interface's end on the node.
    pub host_interface: String,
    /// ifindex of that end.
    pub ifindex: u32,
    /// Whether the tables hold the endpoint.
    pub programmed: bool,
}

/// Kinds of errors that a caller may act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// What the request needs is not there yet; the same request may succeed later.
    TryAgain,
    /// The request itself is wrong.
    InvalidRequest,
    /// The caller may not ask this.
    Denied,
    /// The request's version is not spoken here.
    UnsupportedVersion,
    /// Another sandbox holds what the request wants.
    Conflict,
    /// There is no such thing.
    NotFound,
    /// The node is in the way: a kernel call or a device.
    Node,
    /// What is attached is not as it should be.
    Differs,
    /// A code that this client does not know.
    #[serde(other)]
    Unknown,
}

/// An error as it is told to the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// For programs.
    pub code: ErrorCode,
    /// What went wrong, naming the object.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl Failure {
    /// A failure of this kind.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code, message: message.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.remedy)
    }
}

impl std::error::Error for Failure {}

#[derive(Serialize)]
struct RequestOut<'a> {
    version: u32,
    #[serde(flatten)]
    method: &'a Method,
}

#[derive(Deserialize)]
struct RequestIn {
    version: u32,
    method: String,
    #[serde(default)]
    params: serde_json::Value,
}

#[derive(Serialize, Deserialize)]
struct Answer<T> {
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none", default = "Option::default")]
    result: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    error: Option<Failure>,
}

/// A request as one line, newline included.
///
/// # Errors
/// When a path in it is not UTF-8.
pub fn encode_request(method: &Method) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(&RequestOut { version: VERSION, method })?;
    line.push(b'\n');
    Ok(line)
}

/// Reads a request.
///
/// # Errors
/// [`ErrorCode::UnsupportedVersion`] or [`ErrorCode::InvalidRequest`], with the remedy.
pub fn decode_request(line: &[u8]) -> Result<Method, Failure> {
    let invalid = |error: serde_json::Error| {
        Failure::new(
            ErrorCode::InvalidRequest,
            format!("the request cannot be read: {error}"),
            r#"send {"version":1,"method":…,"params":{…}} as one line of JSON"#,
        )
    };
    let request: RequestIn = serde_json::from_slice(line).map_err(invalid)?;
    if request.version != VERSION {
        return Err(Failure::new(
            ErrorCode::UnsupportedVersion,
            format!("version {} is not spoken, only {VERSION}", request.version),
            "bring client and agent to the same release",
        ));
    }
    let tagged = if request.params.is_null() {
        serde_json::json!({ "method": request.method })
    } else {
        serde_json::json!({ "method": request.method, "params": request.params })
    };
    serde_json::from_value(tagged).map_err(invalid)
}

/// An answer as one line, newline included.
#[must_use]
pub fn encode_answer<T: Serialize>(outcome: Result<T, Failure>) -> Vec<u8> {
    let (result, error) = match outcome {
        Ok(result) => (Some(result), None),
        Err(failure) => (None, Some(failure)),
    };
    let mut line = serde_json::to_vec(&Answer { version: VERSION, result, error })
        .unwrap_or_else(|_| format!(r#"{{"version":{VERSION}}}"#).into_bytes());
    line.push(b'\n');
    line
}

/// Why bytes are no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnswerError {
    /// They are not JSON, or not of the type that was expected.
    Json(serde_json::Error),
    /// It is an answer of another version.
    Version(u32),
}

impl From<serde_json::Error> for AnswerError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "the answer cannot be read: {error}"),
            Self::Version(theirs) => write!(f, "the agent speaks version {theirs} of the protocol, not {VERSION}"),
        }
    }
}

impl std::error::Error for AnswerError {}

/// Reads an answer.
///
/// # Errors
/// Not an answer of this version, or not of type `T`.
pub fn decode_answer<T: DeserializeOwned>(line: &[u8]) -> Result<Result<T, Failure>, AnswerError> {
    use serde::de::Error;
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    // The version first: the rest of another one may have another form.
    let head: Head = serde_json::from_slice(line)?;
    if head.version != VERSION {
        return Err(AnswerError::Version(head.version));
    }
    let answer: Answer<T> = serde_json::from_slice(line)?;
    match (answer.result, answer.error) {
        (Some(result), None) => Ok(Ok(result)),
        (None, Some(failure)) => Ok(Err(failure)),
        _ => Err(serde_json::Error::custom("an answer holds either a result or an error").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_documented_form() {
        let attach = Method::Attach(Sandbox {
            namespace: "red".into(),
            name: "a".into(),
            netns: "/run/netns/red-a".into(),
            container_id: "0123".into(),
            ..Sandbox::default()
        });
        let line = encode_request(&attach).unwrap();
        assert_eq!(
            String::from_utf8(line.clone()).unwrap(),
            concat!(
                r#"{"version":1,"method":"attach","params":{"namespace":"red","name":"a","#,
                r#""netns":"/run/netns/red-a","container_id":"0123"}}"#,
                "\n"
            )
        );
        assert_eq!(decode_request(&line).unwrap(), attach);
        for status in [r#"{"version":1,"method":"status"}"#, r#"{"version":1,"method":"status","params":null}"#] {
            assert_eq!(decode_request(status.as_bytes()).unwrap(), Method::Status);
        }
        assert_eq!(
            decode_request(br#"{"version":1,"method":"flows","params":{}}"#).unwrap(),
            Method::Flows(FlowFilter::default())
        );
    }

    #[test]
    fn wrong_requests_are_told_why() {
        let code = |text: &str| decode_request(text.as_bytes()).unwrap_err().code;
        assert_eq!(code("{"), ErrorCode::InvalidRequest);
        assert_eq!(code(r#"{"version":2,"method":"status"}"#), ErrorCode::UnsupportedVersion);
        assert_eq!(code(r#"{"version":1,"method":"reboot"}"#), ErrorCode::InvalidRequest);
        assert_eq!(code(r#"{"version":1,"method":"attach","params":{"name":"a"}}"#), ErrorCode::InvalidRequest);
    }

    #[test]
    fn answers_round_trip() {
        let ok = encode_answer(Ok(Detached { changed: true }));
        assert_eq!(ok, b"{\"version\":1,\"result\":{\"changed\":true}}\n");
        assert_eq!(decode_answer::<Detached>(&ok).unwrap().unwrap(), Detached { changed: true });
        let failure = Failure::new(ErrorCode::TryAgain, "m", "r");
        let error = encode_answer::<Detached>(Err(failure.clone()));
        assert_eq!(error, b"{\"version\":1,\"error\":{\"code\":\"try-again\",\"message\":\"m\",\"remedy\":\"r\"}}\n");
        assert_eq!(decode_answer::<Detached>(&error).unwrap().unwrap_err(), failure);
        let newer = br#"{"version":1,"error":{"code":"later","message":"m","remedy":"r"}}"#;
        assert_eq!(decode_answer::<Detached>(newer).unwrap().unwrap_err().code, ErrorCode::Unknown);
        assert!(matches!(decode_answer::<Detached>(br#"{"version":1}"#), Err(AnswerError::Json(_))));
        let other = br#"{"version":7,"outcome":"something else"}"#;
        assert!(matches!(decode_answer::<Detached>(other), Err(AnswerError::Version(7))));
    }
}
