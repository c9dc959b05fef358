//! From the command line to what is printed.

use crate::bundle;
use crate::cli::{Cli, Command, Global, Shell, TextFormat, TreeFormat};
use crate::client::{Access, Session};
use crate::error::CliError;
use crate::exec::Agents;
use crate::fetch::{Wanted, fetch};
use crate::problems::node_of;
use crate::render::{self, Style};
use crate::report::{self, Definition, TargetKind, Trace, TraceWish, Verdict, VersionReport};
use crate::snapshot::{Snapshot, What};
use clap::CommandFactory as _;
use juneau_api::view::ObjectName;
use juneau_api::{kinds, names};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// What a command gives: text, and the exit status.
struct Done {
    text: String,
    code: u8,
}

impl Done {
    const fn well(text: String) -> Self {
        Self { text, code: 0 }
    }
}

/// Runs a command; the exit status.
#[must_use]
pub fn main(cli: Cli) -> ExitCode {
    // It cannot be told, which some have a number for.
    let told = matches!(cli.command, Command::Status { .. } | Command::Trace { .. } | Command::SupportBundle { .. });
    let failed = if told { 2 } else { 1 };
    let ended = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::Output { why: error.to_string() })
        .and_then(|runtime| runtime.block_on(run(cli)));
    match ended {
        Ok(done) => match std::io::stdout().write_all(done.text.as_bytes()) {
            Ok(()) => ExitCode::from(done.code),
            // Whoever reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::from(done.code),
            Err(error) => complain(&CliError::Output { why: error.to_string() }, failed),
        },
        Err(error) => complain(&error, failed),
    }
}

fn complain(error: &CliError, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {error}");
    ExitCode::from(code)
}

async fn run(cli: Cli) -> Result<Done, CliError> {
    let style =
        Style { colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) };
    match cli.command {
        Command::Describe { kind, name, output } => describe(&cli.global, kind.into(), &name, output, style).await,
        Command::Status { output } => status(&cli.global, output, style).await,
        Command::Trace { pod, destination, protocol, interface, output } => {
            let protocol = protocol.map(|protocol| protocol.as_str().to_owned());
            let wish = |namespace: &str| {
                let (namespace, name) = pod.split_once('/').unwrap_or((namespace, &pod));
                TraceWish { pod: ObjectName::new(namespace, name), interface, destination, protocol }
            };
            trace(&cli.global, wish, output, style).await
        }
        Command::SupportBundle { output, timeout } => support_bundle(&cli.global, output, timeout).await,
        Command::Version { client, output } => version(&cli.global, client, output).await,
        Command::Completion { shell } => Ok(Done::well(completion(shell))),
    }
}

async fn open(global: &Global) -> Result<Session, CliError> {
    let access = Access {
        kubeconfig: global.kubeconfig.clone(),
        context: global.context.clone(),
        timeout: Some(global.request_timeout).filter(|timeout| !timeout.is_zero()),
    };
    Session::open(&access).await
}

async fn describe(
    global: &Global,
    kind: TargetKind,
    name: &str,
    output: TreeFormat,
    style: Style,
) -> Result<Done, CliError> {
    let session = open(global).await?;
    let chosen = match (&global.namespace, global.all_namespaces) {
        (Some(namespace), _) => Some(namespace.clone()),
        (None, false) if kind.is_namespaced() => Some(session.namespace.clone()),
        (None, _) => None,
    };
    let target = report::target(kind, name, chosen.clone());
    let wanted = Wanted {
        kinds: kinds_of(kind),
        namespace: if kind.is_namespaced() { target.namespace.clone() } else { chosen },
        system_namespace: global.system_namespace.clone(),
        pod: match kind {
            TargetKind::Pod => Some(target.name.clone()),
            // A name that was cut does not tell its Pod.
            TargetKind::NetworkInterface => {
                let parts = target.name.rsplit_once('.').filter(|(_, nic)| nic.len() <= names::INTERFACE_MAX);
                parts.map(|(pod, _)| pod.to_owned())
            }
            _ => None,
        },
        probe: false,
    };
    let snapshot = fetch(&session, &wanted).await?;
    let found = report::describe(&snapshot, &target)?;
    let text = match output {
        TreeFormat::Tree => {
            let trees: Vec<String> = found.iter().map(|found| render::description(found, style)).collect();
            trees.join("\n")
        }
        TreeFormat::Json if global.all_namespaces && kind.is_namespaced() => json(&found)?,
        TreeFormat::Yaml if global.all_namespaces && kind.is_namespaced() => yaml(&found)?,
        TreeFormat::Json => found.iter().map(json).collect::<Result<_, _>>()?,
        TreeFormat::Yaml => found.iter().map(yaml).collect::<Result<_, _>>()?,
    };
    Ok(Done::well(text))
}

/// What is fetched to describe a kind.
fn kinds_of(kind: TargetKind) -> BTreeSet<What> {
    let mut all = BTreeSet::from([What::Vpc, What::Subnet, What::RouteTable, What::Event]);
    match kind {
        TargetKind::RouteTable => {}
        TargetKind::Vpc | TargetKind::Subnet => {
            all.extend(What::OWN);
            all.insert(What::Namespace);
        }
        TargetKind::NetworkInterface => all.extend(What::OWN),
        TargetKind::Pod => {
            all.extend(What::OWN);
            all.extend([What::Namespace, What::Pod, What::Agent]);
        }
    }
    all
}

async fn status(global: &Global, output: TextFormat, style: Style) -> Result<Done, CliError> {
    let session = open(global).await?;
    let mut all = BTreeSet::from(What::OWN);
    all.extend([What::Namespace, What::Node, What::Pod, What::Event, What::Agent, What::Lease, What::Webhook]);
    let wanted = Wanted {
        kinds: all,
        namespace: global.namespace.clone(),
        system_namespace: global.system_namespace.clone(),
        pod: None,
        probe: true,
    };
    let report = report::status(&fetch(&session, &wanted).await?);
    let code = match report.verdict {
        Verdict::Well => 0,
        Verdict::Off => 1,
        Verdict::Unknown => 2,
    };
    let text = written(&report, output, |report| render::status(report, style))?;
    Ok(Done { text, code })
}

async fn trace(
    global: &Global,
    wish: impl FnOnce(&str) -> TraceWish,
    output: TreeFormat,
    style: Style,
) -> Result<Done, CliError> {
    let session = open(global).await?;
    let wish = wish(global.namespace.as_deref().unwrap_or(&session.namespace));
    let mut kinds = BTreeSet::from([What::Vpc, What::Subnet, What::NetworkInterface, What::NetworkEndpoint]);
    kinds.extend([What::Node, What::Pod, What::Agent]);
    let system_namespace = global.system_namespace.clone();
    let wanted = Wanted { kinds, system_namespace, ..Wanted::default() };
    let snapshot = fetch(&session, &wanted).await?;
    let agents = Agents::new(global, agents_of(&snapshot));
    let mut trace = Trace::begin(&snapshot, &wish)?;
    while let Some(question) = trace.ask() {
        let words: Vec<&str> = question.words.iter().map(String::as_str).collect();
        let answer = agents.ask(&question.node, &words).await?;
        let answer = serde_json::from_slice(&answer).map_err(|error| CliError::Agent {
            node: question.node.clone(),
            why: format!("its answer cannot be read: {error}; use the kubectl-juneau of the release that is installed"),
        })?;
        trace.answered(&question, &answer);
    }
    let report = trace.end();
    let text = match output {
        TreeFormat::Tree => render::trace(&report, style),
        TreeFormat::Json => json(&report)?,
        TreeFormat::Yaml => yaml(&report)?,
    };
    Ok(Done { text, code: u8::from(!report.delivered) })
}

/// The agents' Pods by their nodes.
fn agents_of(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let pods = snapshot.agents.iter();
    pods.filter_map(|(name, pod)| Some((node_of(pod)?.to_owned(), name.name.clone()))).collect()
}

async fn support_bundle(global: &Global, output: Option<PathBuf>, limit: Duration) -> Result<Done, CliError> {
    let session = open(global).await?;
    let mut progress = |what: &str| {
        let _ = writeln!(std::io::stderr(), "{what} …");
    };
    let collector = bundle::Collector::new(&session, &global.system_namespace, &mut progress);
    let limit = if limit.is_zero() { Duration::MAX } else { limit };
    let archive = collector.collect(limit, |pods| Agents::new(global, pods)).await;
    let missing = archive.errors().len();
    let time = u64::try_from(session.now.as_second()).unwrap_or_default();
    let bytes = archive.bytes(time).map_err(|error| CliError::Output { why: error.to_string() })?;
    let path =
        output.unwrap_or_else(|| format!("juneau-support-{}.tar.gz", session.now.strftime("%Y%m%d-%H%M%S")).into());
    bundle::write(&path, &bytes)?;
    let size = bytes.len().div_ceil(1024);
    let mut text = format!("{}  {size} KiB\n", path.display());
    if missing > 0 {
        text.push_str(&format!("{missing} things are missing: see errors.txt in it\n"));
    }
    Ok(Done { text, code: u8::from(missing > 0) })
}

async fn version(global: &Global, only_client: bool, output: TextFormat) -> Result<Done, CliError> {
    let mut report = VersionReport {
        client: env!("CARGO_PKG_VERSION").to_owned(),
        server: None,
        definitions: Vec::new(),
        missing: Vec::new(),
        not_shown: None,
    };
    let mut code = 0;
    if !only_client && let Err(error) = versions_there(global, &mut report).await {
        report.not_shown = Some(error.to_string());
        code = 1;
    }
    let text = written(&report, output, render::version)?;
    Ok(Done { text, code })
}

async fn versions_there(global: &Global, report: &mut VersionReport) -> Result<(), CliError> {
    let session = open(global).await?;
    report.server.clone_from(&session.version);
    let groups = session.within(session.client.list_api_groups()).await?;
    let own = groups.groups.into_iter().find(|group| group.name == kinds::GROUP);
    let Some(own) = own else { return Err(CliError::NoDefinitions { server: session.server }) };
    for version in own.versions {
        let list = session.within(session.client.list_api_group_resources(&version.group_version)).await?;
        // Parts such as vpcs/status are not kinds.
        let whole = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
        let kinds: BTreeSet<String> = whole.map(|resource| resource.kind).collect();
        report.definitions.push(Definition { api_version: version.group_version, kinds: kinds.into_iter().collect() });
    }
    let there = report.definitions.iter().find(|definition| definition.api_version == kinds::API_VERSION);
    let there = there.map(|definition| definition.kinds.clone()).unwrap_or_default();
    let missing = What::OWN.iter().map(|what| what.as_str()).filter(|kind| !there.iter().any(|one| one == kind));
    report.missing = missing.map(str::to_owned).collect();
    Ok(())
}

fn written<T: Serialize>(report: &T, output: TextFormat, text: impl Fn(&T) -> String) -> Result<String, CliError> {
    match output {
        TextFormat::Text => Ok(text(report)),
        TextFormat::Json => json(report),
        TextFormat::Yaml => yaml(report),
    }
}

fn json<T: Serialize>(report: &T) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(report).map_err(|error| CliError::Output { why: error.to_string() })?;
    Ok(text + "\n")
}

fn yaml<T: Serialize>(report: &T) -> Result<String, CliError> {
    serde_saphyr::to_string(report).map_err(|error| CliError::Output { why: error.to_string() })
}

fn completion(shell: Shell) -> String {
    let mut text = Vec::new();
    let mut command = Cli::command().bin_name("kubectl-juneau");
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "kubectl-juneau", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
