//! The command line.

mod debug;
mod table;
mod uninstall;

use crate::options::Options;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::io::{IsTerminal, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Juneau's node daemon, and the client that asks it what it does.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the daemon: reads objects, programs the kernel, attaches Pods on request.
    ///
    /// It runs in the node's network, mount and cgroup namespaces, as root, and stays in the foreground. SIGTERM and
    /// SIGINT end it; what it programmed goes on forwarding, and the next start takes it over.
    Run(Box<RunArgs>),
    /// What the agent is and does: readiness, underlay, attached Pods, problems with their remedies.
    Status(StatusArgs),
    /// Why packets were not delivered, with counters; docs/drop-reasons.md has a section for each reason.
    Drops(ClientArgs),
    /// Connections in the flow table; a connection has two entries, one a direction.
    Flows(FlowsArgs),
    /// Routes of the tables that this node needs.
    Routes(ClientArgs),
    /// Endpoints that this node knows.
    Endpoints(ClientArgs),
    /// Services that endpoints of this node can call, each port with where it leads.
    Services(ServicesArgs),
    /// What would happen to a packet that a Pod of this node sends now, or gets from another node, and why. Nothing is
    /// sent or changed.
    Explain(ExplainArgs),
    /// Takes everything of Juneau's off this node: programs, maps, devices, the CNI plugin, state. No agent may run.
    ///
    /// It tells what it removes and what it leaves: interfaces of Pods that are there still, which go with their Pods,
    /// and whatever is not Juneau's. It can be run again. The exit status is 1 when something could not be removed.
    Uninstall(uninstall::UninstallArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    options: Options,
    /// Which messages to log: a level, or a filter as in `juneau_agent=debug,warn`.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "JUNEAU_LOG")]
    log: String,
    /// Form of the messages.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object a line.
    Json,
}

#[derive(Debug, Args)]
struct ClientArgs {
    /// The agent's socket.
    #[arg(long, value_name = "PATH", env = "JUNEAU_AGENT_SOCKET", default_value = crate::options::SOCKET)]
    socket: PathBuf,
    /// Form of the answer.
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Columns for people.
    Table,
    /// The answer as the agent gave it.
    Json,
}

#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Fail when the agent is not ready.
    #[arg(long)]
    ready: bool,
}

#[derive(Debug, Args)]
struct FlowsArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Only connections from or to this address.
    #[arg(long)]
    address: Option<Ipv4Addr>,
    /// At most so many entries; 0 for all.
    #[arg(long, default_value_t = 1000)]
    limit: usize,
}

#[derive(Debug, Args)]
struct ServicesArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Only as this VPC meets them: its name, or its id.
    #[arg(long, value_name = "VPC")]
    vpc: Option<String>,
}

#[derive(Debug, Args)]
struct ExplainArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The sending Pod; with --from-node the receiving one.
    #[arg(value_name = "NAMESPACE/POD")]
    pod: String,
    /// The interface in it.
    #[arg(long, default_value = crate::pod::INTERFACE)]
    interface: String,
    /// The packet comes from another node, by its InternalIP.
    #[arg(long, value_name = "ADDRESS", requires_all = ["vni", "from"])]
    from_node: Option<Ipv4Addr>,
    /// The VNI in which it comes from there.
    #[arg(long, requires = "from_node", value_parser = clap::value_parser!(u32).range(1..1 << 24))]
    vni: Option<u32>,
    /// Source address of a packet from another node.
    #[arg(long, value_name = "ADDRESS", requires = "from_node")]
    from: Option<Ipv4Addr>,
    /// Destination address.
    #[arg(long, value_name = "ADDRESS")]
    to: Ipv4Addr,
    /// Protocol.
    #[arg(long, default_value = "icmp", value_parser = ["icmp", "tcp", "udp"])]
    protocol: String,
    /// Destination port; of ICMP the identifier.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Source port.
    #[arg(long, default_value_t = 40_000)]
    source_port: u16,
}

/// Runs what the command line asks for; the exit status is 0, or 1 after an error, which is told on stderr.
#[must_use]
pub fn main(cli: Cli) -> ExitCode {
    let outcome = match cli.command {
        Command::Run(args) => run(*args),
        Command::Uninstall(args) => uninstall::uninstall(args),
        other => debug::run(other),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "juneau-agent: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: RunArgs) -> Result<(), String> {
    let filter = tracing_subscriber::EnvFilter::try_new(&args.log).map_err(|error| format!("--log: {error}"))?;
    // Colours are for people: a container's log is read by others.
    let colour = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    crate::run(args.options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_documented() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            assert!(sub.get_about().is_some(), "{} has no help", sub.get_name());
            for argument in sub.get_arguments().filter(|a| !["help", "version"].contains(&a.get_id().as_str())) {
                assert!(argument.get_help().is_some(), "{} {} has no help", sub.get_name(), argument.get_id());
            }
        }
    }
}
