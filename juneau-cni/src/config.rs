//! What the runtime says on standard input.

use crate::Version;
use crate::environment::Command;
use crate::error::{CniError, Code};
use serde::Deserialize;
use serde_json::Value;
use serde_json::error::Category;
use std::path::PathBuf;

/// The agent's socket, unless the configuration names another.
pub const SOCKET: &str = "/run/juneau/agent.sock";
/// Longest configuration that is read, in bytes.
pub const CONFIG_LIMIT: usize = 1024 * 1024;
/// Longest path of a Unix socket, in bytes (`sun_path` less the terminating zero).
const SOCKET_MAX: usize = 107;

/// The network's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The version in which the runtime wants its answer.
    pub version: Version,
    /// The agent's socket.
    pub socket: PathBuf,
    /// The result of an earlier ADD, for CHECK.
    pub previous: Option<Value>,
    /// Container ids that are still valid, for GC.
    pub valid: Vec<String>,
}

#[derive(Deserialize)]
struct Written {
    #[serde(rename = "cniVersion")]
    version: Option<String>,
    name: Option<String>,
    socket: Option<String>,
    #[serde(rename = "prevResult")]
    previous: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments")]
    valid: Option<Vec<ValidAttachment>>,
}

#[derive(Deserialize)]
struct ValidAttachment {
    #[serde(rename = "containerID")]
    container_id: String,
}

/// The version alone; what cannot be told is the newest, for an error must be written in some version.
pub(crate) fn version_of(bytes: &[u8]) -> Version {
    #[derive(Deserialize)]
    struct Head {
        #[serde(rename = "cniVersion")]
        version: String,
    }
    let head = serde_json::from_slice(bytes).ok();
    head.and_then(|head: Head| Version::find(&head.version)).unwrap_or(Version::NEWEST)
}

impl Config {
    /// Checks the members that the command needs. Unknown ones are ignored: a runtime and later versions add some.
    ///
    /// # Errors
    /// [`Code::Undecodable`], [`Code::InvalidConfig`], [`Code::IncompatibleVersion`] or [`Code::UnsupportedField`].
    pub fn read(bytes: &[u8], command: Command) -> Result<Self, CniError> {
        if bytes.len() > CONFIG_LIMIT {
            return Err(invalid(format!("the configuration is longer than {CONFIG_LIMIT} bytes"), "shorten it"));
        }
        let written: Written = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
            Category::Data => invalid(format!("the configuration: {error}"), "correct the member"),
            _ => CniError::new(
                Code::Undecodable,
                format!("the configuration is not JSON: {error}"),
                "give the network's configuration on standard input, as a JSON object",
            ),
        })?;
        let version = version(written.version.as_deref(), command)?;
        let name = written.name.as_deref().unwrap_or_default();
        if !is_name(name) {
            return Err(invalid(
                format!("name: {name:?} is not the name of a network"),
                "use letters, digits, '.', '_' and '-', beginning with a letter or a digit",
            ));
        }
        let socket = match written.socket.as_deref() {
            None | Some("") => SOCKET,
            Some(path) if path.starts_with('/') && path.len() <= SOCKET_MAX && !path.contains('\0') => path,
            Some(path) => {
                return Err(invalid(
                    format!("socket: {path:?} is not the path of a socket"),
                    format!("write an absolute path of at most {SOCKET_MAX} bytes"),
                ));
            }
        };
        match command {
            Command::Add if written.previous.is_some() => {
                return Err(CniError::new(
                    Code::UnsupportedField,
                    "prevResult: another plugin has been here before",
                    "put juneau first in the list of plugins; it makes the Pod's interfaces",
                ));
            }
            Command::Check if written.previous.is_none() => {
                return Err(invalid("prevResult is missing", "give the result of ADD with CHECK"));
            }
            Command::Gc if written.valid.is_none() => {
                return Err(invalid(
                    "cni.dev/valid-attachments is missing",
                    "list every attachment that is valid; without the list nothing is removed",
                ));
            }
            _ => {}
        }
        let valid = written.valid.into_iter().flatten().map(|attachment| attachment.container_id).collect();
        Ok(Self { version, socket: PathBuf::from(socket), previous: written.previous, valid })
    }
}

fn invalid(message: impl Into<String>, remedy: impl Into<String>) -> CniError {
    CniError::new(Code::InvalidConfig, message, remedy)
}

fn version(text: Option<&str>, command: Command) -> Result<Version, CniError> {
    // What a configuration meant before it had to say.
    let text = text.filter(|text| !text.is_empty()).unwrap_or("0.1.0");
    let Some(version) = Version::find(text) else {
        let all: Vec<_> = Version::ALL.into_iter().map(Version::as_str).collect();
        return Err(CniError::new(
            Code::IncompatibleVersion,
            format!("cniVersion: {text:?} is not supported"),
            format!("use one of {}", all.join(", ")),
        ));
    };
    let (name, since) = match command {
        Command::Check => ("CHECK", Version::V0_4_0),
        Command::Gc => ("GC", Version::V1_1_0),
        Command::Status => ("STATUS", Version::V1_1_0),
        Command::Add | Command::Del | Command::Version => return Ok(version),
    };
    if version < since {
        return Err(CniError::new(
            Code::IncompatibleVersion,
            format!("cniVersion: {version} has no {name}"),
            format!("write {since} or newer in the configuration"),
        ));
    }
    Ok(version)
}

fn is_name(text: &str) -> bool {
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}
