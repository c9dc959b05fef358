//! Errors as a container runtime reads them.

use crate::Version;
use crate::protocol::{CallError, ErrorCode, Failure};
use serde::Serialize;

/// What kind of error it is: those of the specification's section "Error", and from 100 on our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The version, or a command that it does not have.
    IncompatibleVersion = 1,
    /// A member of the configuration that cannot be obeyed.
    UnsupportedField = 2,
    /// There is no such container; nothing is to be cleaned up.
    UnknownContainer = 3,
    /// Something in the environment is missing or wrong.
    InvalidEnvironment = 4,
    /// Input cannot be read, or output cannot be written.
    Io = 5,
    /// The configuration is not JSON.
    Undecodable = 6,
    /// The configuration is JSON, but wrong.
    InvalidConfig = 7,
    /// What is needed is not there yet; the runtime should ask again.
    TryAgainLater = 11,
    /// STATUS: no container can be added.
    Unavailable = 50,
    /// STATUS: the same, and containers that are there may not reach everything.
    UnavailableAndLimited = 51,
    /// The agent does not serve this user.
    Denied = 100,
    /// Something else holds the interface's name.
    Conflict = 101,
    /// The node is in the way: a kernel call or a device.
    Node = 102,
    /// CHECK: what is there is not as it should be.
    Differs = 103,
}

/// An error with its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniError {
    /// For programs.
    pub code: Code,
    /// What is wrong, naming the variable, member or object.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl CniError {
    pub(crate) fn new(code: Code, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code, message: message.into(), remedy: remedy.into() }
    }

    /// The document that goes to standard output, newline included.
    #[must_use]
    pub fn document(&self, version: Version) -> Vec<u8> {
        #[derive(Serialize)]
        struct Document<'a> {
            #[serde(rename = "cniVersion")]
            version: &'a str,
            code: u32,
            msg: &'a str,
            details: &'a str,
        }
        let document =
            Document { version: version.as_str(), code: self.code as u32, msg: &self.message, details: &self.remedy };
        // Text and numbers can always be written.
        let mut line = serde_json::to_vec(&document).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

impl From<Failure> for CniError {
    fn from(failure: Failure) -> Self {
        let code = match failure.code {
            ErrorCode::TryAgain | ErrorCode::UnsupportedVersion => Code::TryAgainLater,
            ErrorCode::InvalidRequest => Code::InvalidEnvironment,
            ErrorCode::Denied => Code::Denied,
            ErrorCode::Conflict => Code::Conflict,
            ErrorCode::NotFound => Code::UnknownContainer,
            ErrorCode::Differs => Code::Differs,
            ErrorCode::Node | ErrorCode::Unknown => Code::Node,
        };
        Self::new(code, failure.message, failure.remedy)
    }
}

impl From<CallError> for CniError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(failure) => failure.into(),
            // The runtime asks again; by then an agent may have started, and have put its own plugin in place.
            CallError::Socket { .. } => Self::new(
                Code::TryAgainLater,
                error.to_string(),
                "see that the Pod juneau-agent of this node runs; Pods that are attached go on without it",
            ),
            CallError::Answer { .. } => Self::new(
                Code::TryAgainLater,
                error.to_string(),
                "plugin and agent are of different releases: wait for the agent's start, which installs its plugin",
            ),
        }
    }
}
