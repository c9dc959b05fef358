//! The command line of `juneau-operator`.

use crate::plan::{Config, USUAL_SERVICES};
use crate::run::{Options, run};
use crate::sink::directory;
use clap::{Parser, Subcommand};
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Juneau's operator: plans ids, addresses and statuses, and admits objects.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// What is logged, as in `info` or `juneau_operator=debug,warn`.
    #[arg(long, global = true, value_name = "FILTER", env = "JUNEAU_LOG", default_value = "info")]
    log: String,
    /// Logs as JSON, one object a line.
    #[arg(long, global = true)]
    log_json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Work at an API server, or on a directory of manifests, until told to stop (SIGTERM, SIGINT).
    Run(Box<Options>),
    /// Print the definitions of Juneau's kinds, to be applied before anything else.
    Crds,
}

/// Runs what was asked for.
#[must_use]
pub fn main(cli: Cli) -> ExitCode {
    let ended = match cli.command {
        Command::Crds => print(&crate::crds()),
        Command::Run(options) => log(&cli.log, cli.log_json).and_then(|()| match &options.directory {
            Some(path) => serve(path, &options),
            None => start(*options),
        }),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "juneau-operator: {error}");
            ExitCode::FAILURE
        }
    }
}

fn log(filter: &str, json: bool) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| format!("--log {filter:?}: {error}; say error, warn, info, debug or trace"))?;
    // Colours are for people: a container's log is read by others.
    let colour = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr);
    // An embedder may have set up its own.
    let _ = if json { builder.json().try_init() } else { builder.try_init() };
    Ok(())
}

fn print(text: &Result<String, String>) -> Result<(), String> {
    let text = text.as_ref().map_err(Clone::clone)?;
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())
}

/// Serves a directory. Signals end the process: every write leaves the directory whole.
fn serve(path: &std::path::Path, options: &Options) -> Result<(), String> {
    let default = Config::default();
    let config = Config {
        default_subnet_cidr: options.default_subnet_cidr.unwrap_or(default.default_subnet_cidr),
        // Nobody is there who could be asked.
        service_cidrs: vec![options.service_cluster_ip_range.unwrap_or(USUAL_SERVICES)],
        underlay_mtu: options.underlay_mtu.unwrap_or(default.underlay_mtu),
        require_namespace_binding: options.require_namespace_binding,
        ..default
    };
    match directory::run(path, config, || tracing::info!(directory = %path.display(), "planned as it is now")) {
        Ok(never) => match never {},
        Err(error) => Err(error.to_string()),
    }
}

fn start(options: Options) -> Result<(), String> {
    let failed = |error: &dyn core::fmt::Display| error.to_string();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| failed(&error))?;
    let ended = runtime.block_on(async {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mut term = signal(SignalKind::terminate()).map_err(|error| failed(&error))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| failed(&error))?;
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("told to stop");
            stop.send_replace(true);
            // Held until the end: a sender that is gone means stop as well.
            std::future::pending::<()>().await;
        });
        run(options, stopped).await.map_err(|error| failed(&error))
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn a_filter_that_cannot_be_read_is_an_error() {
        let refused = log("juneau_operator=loud", false).unwrap_err();
        assert!(refused.starts_with("--log \"juneau_operator=loud\": "), "{refused}");
    }

    #[test]
    fn what_an_api_server_is_needed_for_is_refused_on_a_directory() {
        Cli::command().debug_assert();
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string());
        assert!(
            parse("juneau-operator run --directory d --underlay-mtu 9000 --default-subnet-cidr 10.1.0.0/16").is_ok()
        );
        for flag in [
            "--kubeconfig=f",
            "--leader-elect=false",
            "--lease-duration=9",
            "--api-server-patience=9",
            "--webhook-bind-address=:1",
            "--webhook-host=h",
            "--health-probe-bind-address=:1",
            "--metrics-bind-address=:1",
            "--metrics-secure=false",
            "--enable-probe-rewrite",
        ] {
            assert!(parse(&format!("juneau-operator run {flag}")).is_ok(), "{flag}");
            let refused = parse(&format!("juneau-operator run --directory d {flag}")).unwrap_err();
            let name = flag.split('=').next().unwrap();
            assert!(refused.contains("--directory") && refused.contains(name), "{refused}");
        }
    }
}
