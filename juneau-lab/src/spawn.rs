//! Starting the lab's processes.

use crate::enter::{Enter, search_path};
use crate::error::{Context, LabError, Result};
use crate::paths::Paths;
use crate::process::Process;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a process may take to say that it is ready.
const READY: Duration = Duration::from_secs(10);

/// A process of the lab that was started.
#[derive(Debug)]
pub struct Started {
    /// To wait for its end.
    pub child: Child,
    /// Its name in the state.
    pub process: Process,
}

/// Starts `juneau-lab` with these arguments. Its output goes to the log `log`.
///
/// # Errors
/// When it cannot be started, or, `until_ready`, ends before it says "ready".
pub fn start(paths: &Paths, log: &str, arguments: &[OsString], until_ready: bool) -> Result<Started> {
    let path = paths.log(log);
    let opened = OpenOptions::new().create(true).append(true).open(&path);
    let file = opened.context(|| format!("opening {}", path.display()))?;
    let program = paths.programs().join("juneau-lab");
    let what = || format!("starting {} {}", program.display(), arguments[0].display());
    let mut command = Command::new(&program);
    command.arg("--state-dir").arg(paths.dir()).args(arguments).env("PATH", search_path(paths)).current_dir("/");
    // Logs are files: no colours.
    command.env("NO_COLOR", "1").stdin(Stdio::null()).stderr(file.try_clone().context(what)?);
    // A group of its own: an interrupt at the terminal is not meant for it.
    command.process_group(0);
    if until_ready {
        command.stdout(Stdio::piped());
    } else {
        command.stdout(file);
    }
    let mut child = command.spawn().context(what)?;
    if let Some(stdout) = child.stdout.take()
        && !said_ready(stdout)
    {
        child.kill().context(what)?;
        let status = child.wait().context(what)?.to_string();
        return Err(LabError::EndedEarly { what: log.to_owned(), status, log: path });
    }
    let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
    match Process::find(pid) {
        Some(process) => Ok(Started { child, process }),
        None => {
            let status = child.wait().context(what)?.to_string();
            Err(LabError::EndedEarly { what: log.to_owned(), status, log: path })
        }
    }
}

/// Starts a program inside namespaces.
///
/// # Errors
/// See [`start`].
pub fn start_inside(
    paths: &Paths,
    log: &str,
    enter: &Enter,
    command: &[OsString],
    until_ready: bool,
) -> Result<Started> {
    let mut arguments = vec![OsString::from("enter")];
    arguments.extend(enter.arguments());
    arguments.push("--".into());
    arguments.extend_from_slice(command);
    start(paths, log, &arguments, until_ready)
}

/// Waits for the line "ready", or the end of output.
fn said_ready(stdout: ChildStdout) -> bool {
    let (sender, receiver) = mpsc::channel();
    // The thread ends with the pipe, at the latest when the process does.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        sender.send(read.is_ok() && line == "ready\n").ok();
    });
    receiver.recv_timeout(READY).unwrap_or(false)
}
