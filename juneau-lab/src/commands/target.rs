//! `exec` and `capture`.

use crate::enter::Enter;
use crate::error::{LabError, Result};
use crate::paths::Paths;
use crate::state::State;
use std::ffi::OsString;

/// What a name means, and the way in.
fn find(paths: &Paths, name: &str) -> Result<Enter> {
    let state = State::read(paths)?.ok_or_else(|| LabError::NotRunning { dir: paths.dir().to_owned() })?;
    if let Some(node) = state.nodes.get(name) {
        if !node.holder.runs() {
            return Err(LabError::NotUp { name: name.to_owned(), reason: "its holder ended".to_owned() });
        }
        return Ok(Enter::node(node));
    }
    match state.pods.get(name) {
        Some(pod) => Ok(Enter::pod(pod)),
        None => Err(LabError::NoSuchTarget { name: name.to_owned(), known: state.known() }),
    }
}

/// Becomes a command inside a node or Pod.
///
/// # Errors
/// When there is no such node, Pod or program.
pub fn exec(paths: &Paths, name: &str, command: &[OsString]) -> Result<()> {
    find(paths, name)?.exec(paths, command).map(|never| match never {})
}

/// Becomes tcpdump(8) at `eth0` of a node or Pod.
///
/// # Errors
/// When there is no such node or Pod, or no tcpdump.
pub fn capture(paths: &Paths, name: &str, arguments: &[OsString]) -> Result<()> {
    let enter = find(paths, name)?;
    let mut command: Vec<OsString> = ["tcpdump", "-i", "eth0", "-n", "-l"].map(Into::into).into();
    command.extend_from_slice(arguments);
    match enter.exec(paths, &command) {
        Ok(never) => match never {},
        Err(LabError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Err(LabError::Program { program: "tcpdump".to_owned(), package: "tcpdump", source })
        }
        Err(error) => Err(error),
    }
}
