//! The operator: started before anything else, and again when it ends.

use super::event::{wait_for_end, wait_for_operator};
use super::source::Source;
use super::{Supervisor, pause};
use crate::enter::Enter;
use crate::kubernetes::CONTROL_PLANE_NAME;
use crate::process::Process;
use crate::spawn::start_inside;
use juneau_api::source::planned::is_up_to_date;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// An operator that ran so long did not fail at its start.
const STABLE: Duration = Duration::from_secs(5);

/// The lab's operator.
#[derive(Debug, Default)]
pub(super) struct Operator {
    running: Option<(Process, Instant)>,
    /// Whether it has answered an API server.
    answers: bool,
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
        self.answers = false;
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
    /// Starts the operator if it does not run, and waits for it if it is behind the manifests, or does not answer the
    /// API server yet.
    pub(super) fn bring_up_operator(&mut self) {
        let Some(how) = self.how_to_operate() else { return };
        let Some(operator) = &mut self.operator else { return };
        if operator.running.is_none() {
            if let Some(later) = operator.not_before.filter(|moment| *moment > Instant::now()) {
                self.wait_for("the operator, which ended".to_owned(), Some(later));
                return;
            }
            match start_inside(&self.paths, "operator", &how.enter, &how.command, false) {
                Ok(started) => {
                    tracing::info!("the operator is process {}", started.process.pid);
                    wait_for_end(started.child, started.process, self.events.clone());
                    operator.running = Some((started.process, Instant::now()));
                    if let Some(kubeconfig) = how.asked_by {
                        wait_for_operator(started.process, kubeconfig, self.events.clone());
                    }
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
        let (on_server, answers) = (self.source.server().is_some(), self.operator.as_ref().is_some_and(|o| o.answers));
        if on_server && !answers {
            self.wait_for("the operator to answer the API server".to_owned(), None);
        }
        // It writes when it is done, which is heard.
        if !on_server && !is_up_to_date(&self.paths.manifests()) {
            self.wait_for("the operator to plan".to_owned(), None);
        }
    }

    /// How the operator is started, once what it works on is there.
    fn how_to_operate(&self) -> Option<HowToOperate> {
        let mtu = OsString::from(self.mtu.to_string());
        let mut command: Vec<OsString> = ["juneau-operator", "run", "--underlay-mtu"].map(Into::into).into();
        command.push(mtu);
        match &self.source {
            Source::Directory { .. } => {
                command.extend(["--directory".into(), self.paths.manifests().into_os_string()]);
                Some(HowToOperate { enter: Enter::default(), command, asked_by: None })
            }
            Source::Kubernetes { .. } => {
                let server = self.source.server()?;
                command.extend(["--kubeconfig".into(), server.operator_kubeconfig().into_os_string()]);
                command.push("--enable-probe-rewrite".into());
                // Beside the API server, which asks it at a loopback address.
                let enter = Enter { net: Some(self.paths.namespace(CONTROL_PLANE_NAME)), ..Enter::default() };
                Some(HowToOperate { enter, command, asked_by: Some(server.kubeconfig()) })
            }
        }
    }

    pub(super) fn operator_answers(&mut self, process: Process) {
        if let Some(operator) = &mut self.operator
            && operator.process() == Some(process)
        {
            tracing::info!("the operator answers the API server");
            operator.answers = true;
        }
    }
}

/// How an operator is started.
struct HowToOperate {
    enter: Enter,
    command: Vec<OsString>,
    /// By which the API server can be asked whether it answers.
    asked_by: Option<PathBuf>,
}
