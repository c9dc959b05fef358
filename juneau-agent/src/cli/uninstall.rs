//! Everything of ours off this node.

use super::Output;
use crate::uninstall::{Places, run};
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct UninstallArgs {
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// When everything is done, stay until SIGTERM: for a DaemonSet, whose containers may not end.
    #[arg(long, conflicts_with = "dry_run")]
    stay: bool,
    /// Where the agent pinned programs and maps.
    #[arg(long, value_name = "DIR", default_value = crate::options::PIN_DIR)]
    pin_dir: PathBuf,
    /// Directory of the agent's lock.
    #[arg(long, value_name = "DIR", default_value = crate::options::STATE_DIR)]
    state_dir: PathBuf,
    /// The agent's socket.
    #[arg(long, value_name = "PATH", default_value = crate::options::SOCKET)]
    socket: PathBuf,
    /// The metrics' socket.
    #[arg(long, value_name = "PATH", default_value = crate::options::METRICS_SOCKET)]
    metrics_socket: PathBuf,
    /// Where the agent installed the CNI plugin.
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    cni_bin_dir: PathBuf,
    /// Where the agent installed the CNI configuration.
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// Form of the report.
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Output::Table)]
    output: Output,
}

pub(super) fn uninstall(args: UninstallArgs) -> Result<(), String> {
    let places = Places {
        pin_dir: args.pin_dir,
        state_dir: args.state_dir,
        socket: args.socket,
        metrics_socket: args.metrics_socket,
        cni_bin_dir: args.cni_bin_dir,
        cni_conf_dir: args.cni_conf_dir,
    };
    let report = run(&places, args.dry_run).map_err(|error| error.to_string())?;
    let mut out = io::stdout().lock();
    let written = match args.output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, &report).map_err(io::Error::from).and_then(|()| writeln!(out))
        }
        Output::Table => write!(out, "{report}"),
    };
    written.and_then(|()| out.flush()).map_err(|error| error.to_string())?;
    if report.has_failed() {
        return Err("something of Juneau's could not be removed: see above".to_owned());
    }
    if args.stay { wait_for_the_end().map_err(|error| error.to_string()) } else { Ok(()) }
}

/// As the first process of a container it gets no signal that it does not ask for.
fn wait_for_the_end() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}
