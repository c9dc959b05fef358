//! The operator: started before anything else, and again when it ends.

use super::event::wait_for_end;
use super::{Supervisor, pause};
use crate::process::Process;
use crate::spawn::start;
use juneau_api::source::planned::is_up_to_date;
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// An operator that ran so long did not fail at its start.
const STABLE: Duration = Duration::from_secs(5);

/// The lab's operator.
#[derive(Debug, Default)]
pub(super) struct Operator {
    running: Option<(Process, Instant)>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Operator {
    pub(super) fn process(&self) -> Option<Process> {
        self.running.map(|(process, _)| process)
    }

    /// Whether it was the operator that ended.
    pub(super) fn ended(&mut self, process: Process) -> bool {
        let Some((_, since)) = self.running.take_if(|(running, _)| *running == process) else { return false };
        if since.elapsed() < STABLE {
            self.failed();
        } else {
            self.failures = 0;
        }
        true
    }

    fn failed(&mut self) {
        self.not_before = Some(Instant::now() + pause(self.failures));
        self.failures += 1;
    }
}

impl Supervisor {
    /// Starts the operator if it does not run, and waits for it if it is behind the manifests.
    pub(super) fn bring_up_operator(&mut self) {
        let Some(operator) = &mut self.operator else { return };
        if operator.running.is_none() {
            if let Some(later) = operator.not_before.filter(|moment| *moment > Instant::now()) {
                self.wait_for("the operator, which ended".to_owned(), Some(later));
                return;
            }
            let arguments = ["operate".into(), "--mtu".into(), OsString::from(self.mtu.to_string())];
            match start(&self.paths, "operator", &arguments, true) {
                Ok(started) => {
                    tracing::info!("the operator is process {}", started.process.pid);
                    wait_for_end(started.child, started.process, self.events.clone());
                    operator.running = Some((started.process, Instant::now()));
                    self.read_manifests();
                }
                Err(error) => {
                    tracing::error!("the operator: {error}");
                    operator.failed();
                    let later = operator.not_before;
                    self.wait_for(format!("the operator: {error}"), later);
                    return;
                }
            }
        }
        // It writes when it is done, which is heard.
        if !is_up_to_date(&self.paths.manifests()) {
            self.wait_for("the operator to plan".to_owned(), None);
        }
    }
}
