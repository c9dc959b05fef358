//! The command line.

use crate::report::TargetKind;
use crate::snapshot::SYSTEM_NAMESPACE;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  kubectl juneau status                        everything that is off; exit status 1 when anything is
  kubectl juneau describe vpc red              a tenant's network and all in it
  kubectl juneau describe subnet red-a -n red  a Subnet, with the interfaces of one Namespace
  kubectl juneau describe nic a1.eth0 -n red   an interface: where its address comes from, and where it is
  kubectl juneau describe pod a1 -n red        why a Pod's network is not up
  kubectl juneau trace a1 blue/b2:8080 -n red   what would become of a packet, node by node
  kubectl juneau support-bundle                everything that who helps asks for, in one file
  kubectl juneau version";

const TRACE: &str = "\
Agents are asked by kubectl exec; the ClusterRole juneau-support-role is enough, bound in their Namespace. Nothing is sent.

Exit status: 0 when it would be delivered, 1 when not, 2 when it cannot be told.

Examples:
  kubectl juneau trace a1 10.0.2.10 -n red     an echo request of red/a1
  kubectl juneau trace red/a1 red/b2:8080      a TCP connection
  kubectl juneau trace red/a1 b2:53 --protocol udp --interface eth1
  kubectl juneau trace red/a1 node-2           to a Node's InternalIP";

const BUNDLE: &str = "\
Objects of Juneau's kinds, Nodes, Namespaces and Pods without what runs in them, Events about these, the agents' tables,
connections and counters, logs of agents and operator, versions. Secrets and environments are not asked for. What cannot
be had is told in errors.txt.

Exit status: 0 when everything was had, 1 when something is missing, 2 when nothing could be written.

Examples:
  kubectl juneau support-bundle
  kubectl juneau support-bundle -o red.tar.gz --timeout 5m";

const STATUS: &str = "\
Exit status: 0 when nothing that could be read is off, 1 when anything is, 2 when it cannot be told.

Examples:
  kubectl juneau status
  kubectl juneau status -n red                 of kinds that have a Namespace, those of red alone
  kubectl juneau status -o json | jq '.problems[].object'";

const DESCRIBE: &str = "\
Examples:
  kubectl juneau describe vpc red
  kubectl juneau describe subnet red-a -o json
  kubectl juneau describe routetable red
  kubectl juneau describe nic red/a1.eth0
  kubectl juneau describe iface a1.eth0 -A     those of this name in all Namespaces
  kubectl juneau describe pod a1 -n red";

const COMPLETION: &str = "\
Examples:
  source <(kubectl juneau completion bash)     for kubectl-juneau in this shell
  kubectl juneau completion zsh > \"${fpath[1]}/_kubectl-juneau\"
  kubectl juneau completion fish > ~/.config/fish/completions/kubectl-juneau.fish

kubectl completes its plugins by a program kubectl_complete-juneau in the path: a link to this one is enough.
  ln -s \"$(command -v kubectl-juneau)\" /usr/local/bin/kubectl_complete-juneau";

/// What Juneau's objects say, what belongs together, and what is off.
#[derive(Debug, Parser)]
#[command(name = "kubectl-juneau", bin_name = "kubectl juneau", version, about, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) global: Global,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Kubeconfig file. Without it: $KUBECONFIG, ~/.kube/config, or the ServiceAccount of the Pod.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Without it: the current one.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace. Without it: the context's for kinds that have one, and all for what is shown of others.
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// All Namespaces.
    #[arg(short = 'A', long, global = true, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// How long a request may take: 10s, 1m; 0: for ever.
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) request_timeout: Duration,
    /// Namespace of the operator and the agents.
    #[arg(long, global = true, value_name = "NAMESPACE", default_value = SYSTEM_NAMESPACE)]
    pub(crate) system_namespace: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show an object with all that belongs to it, what is off and what helps.
    #[command(after_help = DESCRIBE)]
    Describe {
        /// Kind of the object.
        #[arg(value_name = "KIND")]
        kind: Kind,
        /// Its name; namespace/name for kinds that have a Namespace.
        name: String,
        /// How it is written.
        #[arg(short, long, value_name = "FORMAT", default_value = "tree")]
        output: TreeFormat,
    },
    /// Show the whole cluster on one screen: operator, webhook, nodes, objects, and everything that is off.
    #[command(after_help = STATUS)]
    Status {
        /// How it is written.
        #[arg(short, long, value_name = "FORMAT", default_value = "text")]
        output: TextFormat,
    },
    /// Tell what would become of a packet, as the agents of all nodes on its way see it.
    #[command(after_help = TRACE)]
    Trace {
        /// The sending Pod: NAME or NAMESPACE/NAME.
        pod: String,
        /// Where to: an address, NAMESPACE/POD, a Pod of the sender's Namespace, or a Node; :PORT behind it.
        #[arg(value_name = "DEST[:PORT]")]
        destination: String,
        /// Protocol. Without it: tcp with a port, icmp without.
        #[arg(long, value_name = "PROTOCOL")]
        protocol: Option<Protocol>,
        /// The sender's interface.
        #[arg(long, value_name = "NAME", default_value = "eth0")]
        interface: String,
        /// How it is written.
        #[arg(short, long, value_name = "FORMAT", default_value = "tree")]
        output: TreeFormat,
    },
    /// Write everything that who helps asks for into one file, without secrets.
    #[command(after_help = BUNDLE)]
    SupportBundle {
        /// The file. Without it: juneau-support-DATE.tar.gz here.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// How long it may take; what is not had by then is left out.
        #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
        timeout: Duration,
    },
    /// Show versions: of this program, the API server and Juneau's definitions there.
    Version {
        /// Do not ask the API server.
        #[arg(long)]
        client: bool,
        /// How it is written.
        #[arg(short, long, value_name = "FORMAT", default_value = "text")]
        output: TextFormat,
    },
    /// Print a script that completes commands in a shell.
    #[command(after_help = COMPLETION)]
    Completion {
        /// The shell.
        shell: Shell,
    },
}

/// Kinds that can be described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Kind {
    #[value(alias = "vpcs")]
    Vpc,
    #[value(alias = "subnets")]
    Subnet,
    #[value(aliases = ["routetables", "rt"])]
    RouteTable,
    #[value(aliases = ["nic", "ni", "iface", "interface", "nwiface", "nwinterface", "networkinterfaces", "nics"])]
    NetworkInterface,
    #[value(aliases = ["pods", "po"])]
    Pod,
}

impl From<Kind> for TargetKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Vpc => Self::Vpc,
            Kind::Subnet => Self::Subnet,
            Kind::RouteTable => Self::RouteTable,
            Kind::NetworkInterface => Self::NetworkInterface,
            Kind::Pod => Self::Pod,
        }
    }
}

/// Protocols that can be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Icmp,
}

impl Protocol {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TreeFormat {
    Tree,
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextFormat {
    Text,
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

fn duration(text: &str) -> Result<Duration, String> {
    // kubectl takes a bare number for seconds.
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    juneau_api::kinds::parse_duration(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn kinds_have_the_names_that_kubectl_knows() {
        for (name, kind) in [
            ("vpc", Kind::Vpc),
            ("nic", Kind::NetworkInterface),
            ("iface", Kind::NetworkInterface),
            ("ni", Kind::NetworkInterface),
            ("routetable", Kind::RouteTable),
            ("po", Kind::Pod),
        ] {
            let cli = Cli::try_parse_from(["kubectl-juneau", "describe", name, "x", "-n", "red"]).unwrap();
            assert!(matches!(cli.command, Command::Describe { kind: found, .. } if found == kind), "{name}");
            assert_eq!(cli.global.namespace.as_deref(), Some("red"));
        }
    }

    #[test]
    fn timeouts_are_kubectls() {
        assert_eq!(duration("5").unwrap(), Duration::from_secs(5));
        assert_eq!(duration("0").unwrap(), Duration::ZERO);
        assert_eq!(duration("1m30s").unwrap(), Duration::from_secs(90));
        assert!(duration("soon").is_err());
    }
}
