//! The debug client.

use super::{ClientArgs, Command, Output, table};
use crate::protocol::{
    Drops, Endpoints, ExplainRequest, Explanation, FlowFilter, Flows, Incoming, Method, Routes, ServiceFilter,
    Services, Status, call,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

/// Dumping a full flow table takes seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn run(command: Command) -> Result<(), String> {
    match command {
        Command::Run(_) | Command::Uninstall(_) => Ok(()),
        Command::Status(args) => {
            let mut is_ready = false;
            ask(&args.client, &Method::Status, |answer: &Status| is_ready = answer.ready, status)?;
            if args.ready && !is_ready { Err("the agent is not ready".to_owned()) } else { Ok(()) }
        }
        Command::Drops(client) => ask(&client, &Method::Drops, |_| {}, drops),
        Command::Routes(client) => ask(&client, &Method::Routes, |_| {}, routes),
        Command::Endpoints(client) => ask(&client, &Method::Endpoints, |_| {}, endpoints),
        Command::Flows(args) => {
            let filter = FlowFilter { address: args.address, limit: args.limit };
            ask(&args.client, &Method::Flows(filter), |_| {}, flows)
        }
        Command::Services(args) => {
            ask(&args.client, &Method::Services(ServiceFilter { vpc: args.vpc }), |_| {}, services)
        }
        Command::Explain(args) => {
            let (namespace, name) =
                args.pod.split_once('/').ok_or_else(|| format!("{}: write NAMESPACE/POD", args.pod))?;
            let incoming = match (args.from_node, args.vni, args.from) {
                (Some(vtep), Some(vni), Some(source)) => Some(Incoming { vtep, vni, source }),
                _ => None,
            };
            let request = ExplainRequest {
                namespace: namespace.into(),
                name: name.into(),
                interface: Some(args.interface),
                incoming,
                destination: args.to,
                protocol: args.protocol,
                port: args.port,
                source_port: args.source_port,
            };
            ask(&args.client, &Method::Explain(request), |_| {}, explanation)
        }
    }
}

fn ask<T: DeserializeOwned + Serialize>(
    client: &ClientArgs,
    method: &Method,
    look: impl FnOnce(&T),
    show: impl FnOnce(&mut io::StdoutLock<'_>, &T) -> io::Result<()>,
) -> Result<(), String> {
    let answer: T = call(&client.socket, method, TIMEOUT).map_err(|error| error.to_string())?;
    look(&answer);
    let mut out = io::stdout().lock();
    let written = match client.output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, &answer).map_err(io::Error::from).and_then(|()| writeln!(out))
        }
        Output::Table => show(&mut out, &answer),
    };
    match written {
        // Whoever reads us has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| error.to_string()),
    }
}

fn maybe<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn nonzero(value: u32) -> String {
    maybe((value != 0).then_some(value))
}

fn yes(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

fn status(out: &mut io::StdoutLock<'_>, status: &Status) -> io::Result<()> {
    writeln!(out, "node        {}", status.node)?;
    writeln!(out, "ready       {}", yes(status.ready))?;
    writeln!(out, "settled     {}", yes(status.settled))?;
    writeln!(out, "pid         {}", status.pid)?;
    writeln!(out, "load        {}", status.generation)?;
    if let Some(underlay) = &status.underlay {
        writeln!(out, "underlay    {} {} mtu {}", underlay.device, underlay.address, underlay.mtu)?;
    }
    if !status.problems.is_empty() {
        writeln!(out, "\nproblems")?;
        for problem in &status.problems {
            writeln!(out, "  {}: {}\n    {}", problem.object, problem.message, problem.remedy)?;
        }
    }
    if !status.attachments.is_empty() {
        writeln!(out)?;
        let rows: Vec<_> = status
            .attachments
            .iter()
            .map(|a| {
                vec![
                    format!("{}/{}", a.namespace, a.name),
                    a.interface.clone(),
                    a.host_interface.clone(),
                    a.ifindex.to_string(),
                    yes(a.programmed),
                ]
            })
            .collect();
        table::write(out, &["POD", "INTERFACE", "DEVICE", "IFINDEX", "PROGRAMMED"], &rows)?;
    }
    Ok(())
}

fn drops(out: &mut io::StdoutLock<'_>, answer: &Drops) -> io::Result<()> {
    let rows: Vec<_> = answer
        .drops
        .iter()
        .map(|d| {
            let end = if d.answered { "answered" } else { "dropped" };
            vec![d.hook.clone(), d.reason.clone(), end.into(), d.packets.to_string(), d.text.clone()]
        })
        .collect();
    table::write(out, &["HOOK", "REASON", "END", "PACKETS", "MEANS"], &rows)?;
    writeln!(out)?;
    let rows: Vec<_> = answer
        .delivered
        .iter()
        .map(|d| vec![d.vpc.to_string(), d.direction.clone(), d.packets.to_string(), d.bytes.to_string()])
        .collect();
    table::write(out, &["VPC", "DELIVERED", "PACKETS", "BYTES"], &rows)
}

fn flows(out: &mut io::StdoutLock<'_>, answer: &Flows) -> io::Result<()> {
    let rows: Vec<_> = answer
        .flows
        .iter()
        .map(|f| {
            let mut state = vec![if f.reply { "reply" } else { "original" }];
            if f.embryonic {
                state.push("embryonic");
            }
            vec![
                f.scope.clone(),
                f.protocol.clone(),
                format!("{}:{}", f.source, f.source_port),
                format!("{}:{}", f.destination, f.destination_port),
                f.egress.clone(),
                f.vtep.map_or_else(|| nonzero(f.ifindex), |vtep| vtep.to_string()),
                state.join(","),
                f.tcp_flags.clone(),
                format!("{:.1}s", f.idle_milliseconds as f64 / 1000.0),
            ]
        })
        .collect();
    let header = ["SCOPE", "PROTO", "SOURCE", "DESTINATION", "EGRESS", "TO", "STATE", "TCP", "IDLE"];
    table::write(out, &header, &rows)?;
    if answer.left_off > 0 {
        writeln!(out, "… and {} more (--limit)", answer.left_off)?;
    }
    Ok(())
}

fn routes(out: &mut io::StdoutLock<'_>, answer: &Routes) -> io::Result<()> {
    let rows: Vec<_> = answer
        .routes
        .iter()
        .map(|r| vec![r.table.to_string(), r.prefix.clone(), r.kind.clone(), maybe(r.next_hop), maybe(r.vni)])
        .collect();
    table::write(out, &["TABLE", "PREFIX", "KIND", "NEXT HOP", "VNI"], &rows)
}

fn endpoints(out: &mut io::StdoutLock<'_>, answer: &Endpoints) -> io::Result<()> {
    let rows: Vec<_> = answer
        .endpoints
        .iter()
        .map(|e| {
            vec![
                e.vpc.to_string(),
                e.address.to_string(),
                e.mac.clone(),
                e.vni.to_string(),
                e.vtep.map_or_else(|| format!("ifindex {}", e.ifindex), |vtep| vtep.to_string()),
                yes(e.policy_ready),
                yes(e.router),
                maybe(e.object.as_ref()),
            ]
        })
        .collect();
    table::write(out, &["VPC", "ADDRESS", "MAC", "VNI", "WHERE", "POLICY READY", "ROUTER", "OBJECT"], &rows)
}

fn services(out: &mut io::StdoutLock<'_>, answer: &Services) -> io::Result<()> {
    let mut rows = Vec::new();
    for service in &answer.services {
        let affinity = service.affinity.map(|seconds| format!("{seconds} s"));
        let mut head = vec![
            service.vpc.to_string(),
            format!("{}:{}", service.address, service.port),
            service.protocol.clone(),
            maybe(service.object.as_ref()),
            maybe(affinity),
        ];
        if service.backends.iter().all(|backend| backend.state != "chosen") {
            let mut row = head.clone();
            row.extend(["-".into(), if service.local_only { "dropped" } else { "rejected" }.into(), "-".into()]);
            rows.push(row);
            head = vec![String::new(); head.len()];
        }
        for backend in &service.backends {
            let mut row = std::mem::replace(&mut head, vec![String::new(); 5]);
            row.push(format!("{}:{}", backend.address, backend.port));
            row.extend([backend.state.clone(), maybe(backend.object.as_ref())]);
            rows.push(row);
        }
    }
    let header = ["VPC", "ADDRESS", "PROTO", "SERVICE", "AFFINITY", "BACKEND", "STATE", "ENDPOINT"];
    table::write(out, &header, &rows)
}

fn explanation(out: &mut io::StdoutLock<'_>, answer: &Explanation) -> io::Result<()> {
    for step in &answer.steps {
        writeln!(out, "{:<8} {}", step.stage, step.text)?;
    }
    let mut verdict = format!("{} ({}: {})", answer.action, answer.reason, answer.text);
    if let Some(ifindex) = answer.ifindex {
        verdict.push_str(&format!(", ifindex {ifindex}"));
    }
    if let Some(vtep) = answer.vtep {
        verdict.push_str(&format!(", node {vtep}, VNI {}", maybe(answer.vni)));
    }
    if answer.answered {
        verdict.push_str(", the sender gets an answer");
    }
    writeln!(out, "{verdict}")
}
