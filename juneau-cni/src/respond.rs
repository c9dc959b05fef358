//! From the runtime's words to the agent's, and back.

use crate::config::{Config, version_of};
use crate::environment::{Command, Environment, Variables};
use crate::error::{CniError, Code};
use crate::protocol::{Attached, CallError, Collected, Detached, ErrorCode, Method, Readiness, Sandbox, Valid};
use crate::{Version, check, result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;

/// How long the agent waits for a Pod's objects before it says that they are missing, in milliseconds: less than its
/// answer is waited for. A kubelet that is told so asks again after ten seconds, while the operator takes a tenth of one.
const PATIENCE: u64 = 2000;

/// Asks the agent at a socket.
pub type Ask<'a> = &'a dyn Fn(&Path, &Method) -> Result<Value, CallError>;

/// What the process is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Goes to standard output.
    pub output: Vec<u8>,
    /// Whether the exit status is 0.
    pub success: bool,
}

/// Does what the variables and the configuration say.
#[must_use]
pub fn respond(variables: &Variables, config: &[u8], ask: Ask<'_>) -> Outcome {
    match outcome(variables, config, ask) {
        Ok(output) => Outcome { output, success: true },
        Err(error) => Outcome { output: error.document(version_of(config)), success: false },
    }
}

fn outcome(variables: &Variables, config: &[u8], ask: Ask<'_>) -> Result<Vec<u8>, CniError> {
    let environment = Environment::read(variables)?;
    // Whoever asks for versions does not know yet which one to write.
    if environment.command == Command::Version {
        return versions(version_of(config));
    }
    let mut config = Config::read(config, environment.command)?;
    let netns = environment.netns.display().to_string();
    let sandbox = || Sandbox {
        namespace: environment.namespace.clone(),
        name: environment.name.clone(),
        netns: environment.netns.clone(),
        container_id: environment.container_id.clone(),
        uid: environment.uid.clone(),
        interface: Some(environment.interface.clone()),
        patience: 0,
    };
    let ask = |method: &Method| ask(&config.socket, method);
    match environment.command {
        Command::Add => {
            let sandbox = Sandbox { patience: PATIENCE, ..sandbox() };
            let attached: Attached = typed(ask(&Method::Attach(sandbox))?)?;
            result::document(&attached, config.version, &netns).map_err(unwritable)
        }
        Command::Del => {
            let request = Sandbox { container_id: environment.container_id.clone(), ..Sandbox::default() };
            deleted(ask(&Method::Detach(request)))
        }
        Command::Check => {
            let found: Attached = typed(ask(&Method::Check(sandbox()))?)?;
            check::compare(config.previous.take().unwrap_or_default(), &found, &netns)?;
            Ok(Vec::new())
        }
        Command::Gc => {
            let valid = Valid { container_ids: std::mem::take(&mut config.valid) };
            let _: Collected = typed(ask(&Method::Collect(valid))?)?;
            Ok(Vec::new())
        }
        Command::Status => status(ask(&Method::Readiness)),
        Command::Version => versions(config.version),
    }
}

/// A Pod must end, agent or not: what is not said now the agent finds out later by itself, since it compares what is
/// there with what should be. A sandbox that ends takes its devices with it; of one that stays on, the devices go when
/// the Pod's object does, when its next sandbox comes, or by GC. Only what the agent itself says stands in the way.
fn deleted(answer: Result<Value, CallError>) -> Result<Vec<u8>, CniError> {
    match answer {
        Ok(answer) => {
            let _: Option<Detached> = serde_json::from_value(answer).ok();
            Ok(Vec::new())
        }
        Err(CallError::Refused(failure))
            if !matches!(
                failure.code,
                ErrorCode::TryAgain | ErrorCode::NotFound | ErrorCode::UnsupportedVersion | ErrorCode::Unknown
            ) =>
        {
            Err(failure.into())
        }
        Err(_) => Ok(Vec::new()),
    }
}

fn status(answer: Result<Value, CallError>) -> Result<Vec<u8>, CniError> {
    let unavailable = |error: CniError| CniError { code: Code::Unavailable, ..error };
    let readiness: Readiness = answer.map_err(CniError::from).and_then(typed).map_err(unavailable)?;
    if readiness.ready {
        return Ok(Vec::new());
    }
    let code = if readiness.limited { Code::UnavailableAndLimited } else { Code::Unavailable };
    Err(match readiness.reason {
        Some(reason) => CniError::new(code, format!("{}: {}", reason.object, reason.message), reason.remedy),
        None => CniError::new(code, "the agent has not read all objects yet", "wait; or see the agent's log"),
    })
}

fn versions(version: Version) -> Result<Vec<u8>, CniError> {
    #[derive(Serialize)]
    struct Versions {
        #[serde(rename = "cniVersion")]
        version: &'static str,
        #[serde(rename = "supportedVersions")]
        supported: [&'static str; Version::ALL.len()],
    }
    let versions = Versions { version: version.as_str(), supported: Version::ALL.map(Version::as_str) };
    let mut line = serde_json::to_vec(&versions).map_err(unwritable)?;
    line.push(b'\n');
    Ok(line)
}

fn typed<T: DeserializeOwned>(answer: Value) -> Result<T, CniError> {
    serde_json::from_value(answer).map_err(|error| {
        CniError::new(
            Code::TryAgainLater,
            format!("the agent's answer cannot be read: {error}"),
            "plugin and agent are of different releases: wait for the agent's start, which installs its plugin",
        )
    })
}

fn unwritable(error: serde_json::Error) -> CniError {
    CniError::new(Code::Io, format!("the result cannot be written: {error}"), "report this as a bug")
}
