//! Running other programs, with errors that repeat the command.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::error::Error;

/// The command as a person would type it, without quoting.
fn typed(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

fn start_error(command: &Command) -> impl FnOnce(std::io::Error) -> Error {
    let program = command.get_program().to_string_lossy().into_owned();
    move |source| Error::Start { program, source }
}

/// Runs a command to its end and returns its standard output.
///
/// # Errors
/// [`Error::Start`], or [`Error::Command`] with its standard error when it ends with another status than 0.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    let out = command.stdin(Stdio::null()).output().map_err(start_error(command))?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    Err(Error::Command {
        command: typed(command),
        status: out.status,
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    })
}

/// As [`output`], as text.
pub(crate) fn text(command: &mut Command) -> Result<String, Error> {
    output(command).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a command whose output goes to the terminal.
///
/// # Errors
/// As [`output`], without the captured text.
pub(crate) fn shown(command: &mut Command) -> Result<(), Error> {
    let status = command.stdin(Stdio::null()).status().map_err(start_error(command))?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Command { command: typed(command), status, stderr: String::new() })
}

/// A child that is killed and reaped when it goes out of scope.
pub(crate) struct Guarded(pub(crate) Child);

impl Guarded {
    /// Starts `program` so that it also dies with the thread that starts it, whatever ends that one.
    pub(crate) fn start(program: &Path, set_up: impl FnOnce(&mut Command)) -> Result<Self, Error> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        set_up(&mut command);
        let child = command.spawn().map_err(start_error(&command))?;
        Ok(Self(child))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Both fail only for a child that is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that only its owner can enter and that goes away with the value.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the folder below the system's folder for temporary files.
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("juneau-kernels-{}-{name}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(Error::file("making", &path))?;
        Ok(Self(path))
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Quotes a word for a POSIX shell.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn quotes_survive_a_shell() {
        for word in ["plain", "two words", "it's", "$HOME `id` \\ \"", ""] {
            let script = format!("printf %s {}", quoted(word));
            assert_eq!(text(Command::new("sh").args(["-c", &script])).unwrap(), word);
        }
    }

    #[test]
    fn a_failing_command_names_itself_and_its_reason() {
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("sh -c") && message.contains("3") && message.ends_with(": why"), "{message}");
    }

    #[test]
    fn a_scratch_folder_goes_away() {
        let scratch = Scratch::new("unit").unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
