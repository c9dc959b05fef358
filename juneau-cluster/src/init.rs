//! A node's first process: starts the node's services, starts again those that end, and buries every process that nobody
//! else does, as containerd's shims are left to it when containerd ends.

use crate::error::{Context, Result};
use crate::hold::hide_settings;
use crate::paths::Paths;
use crate::service::{Answer, Order, Service};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a service rests before it is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a service may take to say that it is ready.
const READY: Duration = Duration::from_secs(60);

/// How long a service may take to end when it is asked to.
const END: Duration = Duration::from_secs(10);

/// A service, and how it is.
#[derive(Debug)]
struct State {
    service: Service,
    /// Its process, while there is one.
    process: Option<Pid>,
    /// Whether it should run.
    wanted: bool,
    /// How the process before ended.
    ended: String,
}

/// All services, and who waits for the end of one.
#[derive(Debug, Clone, Default)]
struct Services {
    all: Arc<(Mutex<BTreeMap<String, State>>, Condvar)>,
}

/// Is the first process of a node until it is killed. Writes a line to standard output when it takes orders.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn run(paths: &Paths, node: &str) -> Result<std::convert::Infallible> {
    // It is the end of everything in the node.
    prctl::set_pdeathsig(Signal::SIGKILL).context(|| "asking for the end together with the starter")?;
    hide_settings(paths, node)?;
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    // Before there is another thread: each has what this one has.
    children.thread_block().context(|| "waiting for signals")?;
    let socket = paths.init_socket(node);
    let listener = UnixListener::bind(&socket).on("listening at", &socket)?;
    let services = Services::default();
    let orders = services.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let services = orders.clone();
            std::thread::spawn(move || answer(&services, stream));
        }
    });
    let mut out = std::io::stdout();
    writeln!(out, "ready").and_then(|()| out.flush()).context(|| "saying that the node is there")?;
    loop {
        children.wait().context(|| "waiting for signals")?;
        services.bury();
    }
}

/// Answers one order. Whoever asked and has gone is not missed.
fn answer(services: &Services, stream: UnixStream) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    let Ok(1..) = stream.read_until(b'\n', &mut line) else { return };
    let answer = match serde_json::from_slice(&line) {
        Ok(Order::Start(service)) => services.start(service).map_or_else(Answer::Failed, |()| Answer::Done),
        Ok(Order::Stop(name)) => services.stop(&name).map_or_else(Answer::Failed, |()| Answer::Done),
        Ok(Order::List) => Answer::Services(services.list()),
        Err(error) => Answer::Failed(format!("an order that is none: {error}")),
    };
    if let Ok(mut text) = serde_json::to_vec(&answer) {
        text.push(b'\n');
        stream.get_mut().write_all(&text).ok();
    }
}

impl Services {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a service in the place of what had its name, and waits until it says that it is ready, if it does.
    fn start(&self, service: Service) -> std::result::Result<(), String> {
        let name = service.name.clone();
        self.stop(&name)?;
        let socket =
            service.notifies.then(|| listen(&notify(&service))).transpose().map_err(|error| error.to_string())?;
        let state = State { service, process: None, wanted: true, ended: String::new() };
        self.lock().insert(name.clone(), state);
        self.run(&name)?;
        socket.map_or(Ok(()), |socket| self.wait_until_ready(&name, &socket))
    }

    /// Gives a service a process, if it should have one and has none.
    fn run(&self, name: &str) -> std::result::Result<(), String> {
        // Held until the process is noted down: whoever buries it waits for that.
        let mut all = self.lock();
        let Some(state) = all.get_mut(name).filter(|state| state.wanted && state.process.is_none()) else {
            return Ok(());
        };
        match spawn(&state.service) {
            Ok(process) => {
                state.process = Some(process);
                Ok(())
            }
            Err(error) => {
                state.wanted = false;
                Err(error.to_string())
            }
        }
    }

    /// Ends a service: it is asked to, and made to when it does not. None of that name is no error.
    fn stop(&self, name: &str) -> std::result::Result<(), String> {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let mut all = self.lock();
            let Some(state) = all.get_mut(name) else { return Ok(()) };
            state.wanted = false;
            let Some(process) = state.process else { return Ok(()) };
            match kill(process, signal) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(format!("sending {signal} to {name}: {error}")),
            }
            let runs = |all: &mut BTreeMap<String, State>| all.get(name).is_some_and(|state| state.process.is_some());
            let waited = self.all.1.wait_timeout_while(all, END, runs);
            if !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
                return Ok(());
            }
        }
        Err(format!("{name} does not end"))
    }

    fn list(&self) -> BTreeMap<String, Option<i32>> {
        self.lock().iter().map(|(name, state)| (name.clone(), state.process.map(Pid::as_raw))).collect()
    }

    /// Takes note of every process that has ended, and starts services again that should not have.
    fn bury(&self) {
        let mut all = self.lock();
        loop {
            let (process, ended) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(process, status)) => (process, format!("exit status {status}")),
                Ok(WaitStatus::Signaled(process, signal, _)) => (process, signal.to_string()),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(error) => return tracing::error!("waiting for processes: {error}"),
            };
            let Some((name, state)) = all.iter_mut().find(|(_, state)| state.process == Some(process)) else {
                continue;
            };
            tracing::info!("{name}, process {process}, ended: {ended}");
            (state.process, state.ended) = (None, ended);
            self.all.1.notify_all();
            if state.wanted {
                let (services, name) = (self.clone(), name.clone());
                std::thread::spawn(move || {
                    std::thread::sleep(PAUSE);
                    if let Err(error) = services.run(&name) {
                        tracing::error!("starting {name} again: {error}");
                    }
                });
            }
        }
    }

    fn wait_until_ready(&self, name: &str, socket: &UnixDatagram) -> std::result::Result<(), String> {
        let deadline = Instant::now() + READY;
        let mut message = [0; 512];
        while Instant::now() < deadline {
            match socket.recv(&mut message) {
                Ok(length) if message[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") => {
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(format!("waiting for {name}: {error}")),
            }
            let mut all = self.lock();
            if let Some(state) = all.get_mut(name)
                && state.process.is_none()
            {
                state.wanted = false;
                let log = state.service.log.display();
                return Err(format!("{name} ended before it was ready ({}); its log: {log}", state.ended));
            }
        }
        Err(format!("{name} was not ready after {} s", READY.as_secs()))
    }
}

/// Where a service says that it is ready.
fn notify(service: &Service) -> PathBuf {
    service.log.with_extension("notify")
}

/// The socket of sd_notify(3).
fn listen(path: &Path) -> Result<UnixDatagram> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).on("removing", path),
        _ => {}
    }
    let socket = UnixDatagram::bind(path).on("listening at", path)?;
    // One that ends before it is ready is noticed as soon.
    socket.set_read_timeout(Some(Duration::from_millis(200))).on("listening at", path)?;
    Ok(socket)
}

fn spawn(service: &Service) -> Result<Pid> {
    let log = &service.log;
    let file = OpenOptions::new().create(true).append(true).open(log).on("opening", log)?;
    let errors = file.try_clone().on("opening", log)?;
    let mut command = Command::new(&service.program);
    command.args(&service.arguments).stdin(Stdio::null()).stdout(file).stderr(errors).current_dir("/");
    command.env_clear().envs(&service.environment).process_group(0);
    if service.notifies {
        command.env("NOTIFY_SOCKET", notify(service));
    }
    let child = command.spawn().on("starting", &service.program)?;
    tracing::info!("{} is process {}", service.name, child.id());
    Ok(Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// What the first process does at each signal. No other test of this crate has children.
    fn bury_until(services: &Services, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "{what}: never");
            services.bury();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn shell(dir: &Path, name: &str, script: &str, notifies: bool) -> Service {
        Service {
            name: name.to_owned(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            environment: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            log: dir.join(format!("{name}.log")),
            notifies,
        }
    }

    #[test]
    fn services_are_started_again_until_they_are_to_rest() {
        let dir = std::env::temp_dir().join(format!("juneau-init-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let services = Services::default();
        std::thread::scope(|scope| {
            // One that ends before it is ready is told, with where it says why, and is not tried again.
            let early = scope.spawn(|| services.start(shell(&dir, "early", "exit 3", true)));
            bury_until(&services, "it is told", || early.is_finished());
            let error = early.join().unwrap().unwrap_err();
            assert!(error.contains("exit status 3") && error.contains("early.log"), "{error}");

            let script = "echo begun; exec sleep 1000";
            services.start(shell(&dir, "lasting", script, false)).unwrap();
            let process = |name: &str| services.list().get(name).copied().flatten();
            let first = process("lasting").unwrap();
            // Until it is what it becomes, it would not hear.
            let log = dir.join("lasting.log");
            bury_until(&services, "it runs", || std::fs::read_to_string(&log).is_ok_and(|text| text == "begun\n"));
            kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
            bury_until(&services, "it is back", || process("lasting").is_some_and(|process| process != first));
            assert_eq!(process("early"), None);

            let stopped = scope.spawn(|| services.stop("lasting"));
            bury_until(&services, "it rests", || stopped.is_finished());
            stopped.join().unwrap().unwrap();
            std::thread::sleep(PAUSE + Duration::from_millis(200));
            assert_eq!(process("lasting"), None, "it is not started again");
            services.stop("nobody").unwrap();
        });
        std::fs::remove_dir_all(dir).unwrap();
    }
}
