//! The supervisor's socket: commands ask at it to be told when the lab has settled.

use super::Supervisor;
use super::event::Event;
use crate::error::{Context, LabError, Result, optional};
use crate::paths::Paths;
use crate::state::State;
use juneau_agent::protocol::{Method, Status, call};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// How long the agents have to notice a change that the supervisor noticed.
const NOTICE: Duration = Duration::from_millis(50);

/// A request to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "kebab-case")]
pub enum Ask {
    /// Answer with the [`State`] when everything is as the manifests say.
    Settled,
}

/// Who waits for an answer.
#[derive(Debug)]
pub(super) struct Waiting {
    stream: UnixStream,
    since: Instant,
}

/// Asks the supervisor of the lab at `paths` and waits for the answer.
///
/// # Errors
/// [`LabError::NotRunning`]; [`LabError::NotSettled`] when there is no answer within `timeout`, with what is missing.
pub fn ask(paths: &Paths, ask: Ask, timeout: Duration) -> Result<State> {
    State::of_running(paths)?;
    let path = paths.supervisor_socket();
    let what = || format!("asking the supervisor at {}", path.display());
    let document = |source| LabError::Document { path: path.clone(), source };
    let mut stream = UnixStream::connect(&path).context(what)?;
    stream.set_read_timeout(Some(timeout)).context(what)?;
    let mut line = serde_json::to_vec(&ask).map_err(document)?;
    line.push(b'\n');
    stream.write_all(&line).context(what)?;
    let mut answer = Vec::new();
    match BufReader::new(stream).read_until(b'\n', &mut answer) {
        Ok(0) => Err(LabError::SupervisorGone { log: paths.log("supervisor") }),
        Ok(_) => serde_json::from_slice(&answer).map_err(document),
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            let waiting = State::of_running(paths)?.waiting;
            let waiting = if waiting.is_empty() { "an agent to settle".to_owned() } else { waiting.join("; ") };
            Err(LabError::NotSettled { seconds: timeout.as_secs(), waiting })
        }
        Err(error) => Err(error).context(what),
    }
}

/// Listens for requests.
pub(super) fn listen(path: &Path, events: Sender<Event>) -> Result<()> {
    optional(std::fs::remove_file(path), path)?;
    let listener = UnixListener::bind(path).context(|| format!("listening at {}", path.display()))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let events = events.clone();
            std::thread::spawn(move || {
                let mut line = String::new();
                let Ok(reader) = stream.try_clone() else { return };
                if BufReader::new(reader).read_line(&mut line).is_ok()
                    && let Ok(Ask::Settled) = serde_json::from_str(&line)
                {
                    // Whoever sends nonsense gets the end of the connection.
                    events.send(Event::Manifests).ok();
                    events.send(Event::Asked(Waiting { stream, since: Instant::now() })).ok();
                }
            });
        }
    });
    Ok(())
}

impl Supervisor {
    /// Answers those who asked, if the lab has settled.
    pub(super) fn tell_who_asked(&mut self) {
        if self.asked.is_empty() || !self.waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        let newest = self.asked.iter().map(|waiting| waiting.since + NOTICE).max();
        if newest.is_some_and(|newest| now < newest) || !self.agents_settled() || !self.source.is_current(&self.wanted)
        {
            let soon = now + Duration::from_millis(20);
            self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
            return;
        }
        let Ok(mut answer) = serde_json::to_vec(&self.state()) else { return };
        answer.push(b'\n');
        for mut waiting in self.asked.drain(..) {
            // Who asked may have gone.
            waiting.stream.write_all(&answer).ok();
        }
    }

    fn agents_settled(&self) -> bool {
        self.nodes.keys().all(|node| {
            let status = call::<Status>(&self.paths.agent_socket(node), &Method::Status, Duration::from_secs(1));
            status.is_ok_and(|status| status.ready && status.settled)
        })
    }
}
