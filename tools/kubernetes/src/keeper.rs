//! Starting programs so that they end with us.
//!
//! The kernel's parent-death signal is about the thread that made the child, so one thread starts all programs of a
//! control plane and stays until they are to end.

use crate::error::{Context, Error, Result};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a program may take to say that it is ready.
const READY: Duration = Duration::from_secs(60);

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Running {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Running {
    /// The error, if it ended.
    fn ended(&mut self) -> Option<Error> {
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let last = last_line(&self.log);
        Some(Error::Ended { program: self.name.to_owned(), status, log: self.log.clone(), last })
    }
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("(nothing)").to_owned()
}

/// The programs of a control plane, shared between the thread that keeps them and who asks about them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keeper {
    running: Arc<Mutex<Vec<Running>>>,
}

/// What to start.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) name: &'static str,
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) dir: &'a Path,
    /// Wait until it says that it is ready, by sd_notify(3).
    pub(crate) notifies: bool,
}

impl Keeper {
    /// Starts a program. It is killed when this thread ends.
    pub(crate) fn start(&self, start: Start<'_>) -> Result<()> {
        let Start { name, program, arguments, dir, notifies } = start;
        let log = dir.join(format!("{name}.log"));
        let file = OpenOptions::new().create(true).append(true).open(&log).on("opening", &log)?;
        let errors = file.try_clone().on("opening", &log)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(file).stderr(errors).current_dir(dir);
        // A group of its own: an interrupt at the terminal is not meant for it.
        command.process_group(0);
        // It runs with what it is told here, whatever this process was told.
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        let notify = dir.join(format!("{name}.notify"));
        let socket = if notifies {
            // An earlier one of its name had one as well.
            match std::fs::remove_file(&notify) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).on("removing", &notify),
                _ => {}
            }
            let socket = UnixDatagram::bind(&notify).on("listening at", &notify)?;
            socket.set_read_timeout(Some(Duration::from_millis(200))).on("listening at", &notify)?;
            command.env("NOTIFY_SOCKET", &notify);
            Some(socket)
        } else {
            None
        };
        let child = command.spawn().context(|| format!("starting {}", program.display()))?;
        let mut running = Running { name, child, log };
        let ready = socket.map_or(Ok(()), |socket| wait_until_ready(&mut running, &socket));
        self.lock().push(running);
        ready
    }

    /// Kills one program, which is forgotten then. None of that name is no error.
    pub(crate) fn stop(&self, name: &str) {
        for mut running in self.lock().extract_if(.., |running| running.name == name) {
            // Both fail only for what is gone already.
            running.child.kill().ok();
            running.child.wait().ok();
        }
    }

    /// The error of the first program that ended, if one did.
    pub(crate) fn ended(&self) -> Option<Error> {
        self.lock().iter_mut().find_map(Running::ended)
    }

    /// The process ids.
    pub(crate) fn processes(&self) -> Vec<(&'static str, u32)> {
        self.lock().iter().map(|running| (running.name, running.child.id())).collect()
    }

    /// Kills all, the last one first: a server that loses what it stands on takes long to end.
    pub(crate) fn kill(&self) {
        for running in self.lock().iter_mut().rev() {
            // Both fail only for what is gone already.
            running.child.kill().ok();
            running.child.wait().ok();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait_until_ready(running: &mut Running, socket: &UnixDatagram) -> Result<()> {
    let deadline = Instant::now() + READY;
    let mut message = [0; 512];
    while Instant::now() < deadline {
        match socket.recv(&mut message) {
            Ok(length) if message[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") => {
                return Ok(());
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if let Some(error) = running.ended() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error).context(|| format!("waiting for {}", running.name)),
        }
    }
    Err(Error::NotReady { program: running.name.to_owned(), seconds: READY.as_secs(), log: running.log.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("juneau-keeper-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn shell<'a>(dir: &'a Path, script: &str, notifies: bool) -> Start<'a> {
        let arguments = ["-c", script].map(OsString::from).into();
        Start { name: "script", program: Path::new("/bin/sh"), arguments, dir, notifies }
    }

    #[test]
    fn a_program_that_ends_before_it_is_ready_is_told_with_its_last_words() {
        let dir = scratch("ends");
        let error = Keeper::default().start(shell(&dir, "echo why >&2; exit 3", true)).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("why"), "{error}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn programs_end_with_the_thread_that_started_them() {
        let dir = scratch("thread");
        let keeper = Keeper::default();
        let other = keeper.clone();
        let at = dir.clone();
        let deadline = Instant::now() + Duration::from_secs(10);
        let started = move || {
            other.start(shell(&at, "echo up; exec sleep 1000", false)).unwrap();
            // Until it runs it has not asked for the signal yet, and would not hear of a thread that is gone.
            while last_line(&at.join("script.log")) != "up" {
                assert!(Instant::now() < deadline, "it never ran");
                std::thread::yield_now();
            }
        };
        std::thread::spawn(started).join().unwrap();
        while keeper.ended().is_none() {
            assert!(Instant::now() < deadline, "it still runs");
            std::thread::yield_now();
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn killing_leaves_none() {
        let dir = scratch("kill");
        let keeper = Keeper::default();
        keeper.start(shell(&dir, "exec sleep 1000", false)).unwrap();
        let (_, pid) = keeper.processes()[0];
        assert!(keeper.ended().is_none(), "it runs");
        keeper.kill();
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
