//! The whole cluster on one screen.

use super::tree::{Tone, columns};
use super::{Style, span};
use crate::report::{NodeStatus, OperatorStatus, StatusReport, Verdict, WebhookStatus};

/// So many things that are off are shown; JSON has all.
const SHOWN: usize = 30;
/// So many nodes are shown when all is well with them.
const NODES: usize = 20;

/// The report as text.
#[must_use]
pub fn status(report: &StatusReport, style: Style) -> String {
    let mut lines: Vec<String> = Vec::new();
    let unknown = || (Tone::Faint, "not shown".to_owned());
    let (tone, text) = report.operator.as_ref().map_or_else(unknown, operator);
    lines.push(format!("operator  {}", style.paint(tone, &text)));
    let (tone, text) = report.webhook.as_ref().map_or_else(unknown, webhook);
    lines.push(format!("webhook   {}", style.paint(tone, &text)));
    nodes(report, style, &mut lines);
    objects(report, &mut lines);
    for pool in &report.pools {
        let values = &pool.values;
        let text = format!("{}: {} of {} used, {} free", pool.name, values.used, values.total, values.free);
        lines.push(format!("pool      {}", style.paint(Tone::Warning, &text)));
    }
    if !report.problems.is_empty() {
        lines.push(style.paint(Tone::Title, "\noff"));
    }
    for problem in report.problems.iter().take(SHOWN) {
        let text = format!("✗ {}  {}: {}", problem.object, problem.reason, problem.message);
        lines.push(format!("  {}", style.paint(Tone::Bad, &text)));
        lines.push(format!("    → {}", problem.remedy));
    }
    if let Some(more) = report.problems.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        lines.push(format!("  and {more} more; -o json lists all"));
    }
    if !report.warnings.is_empty() {
        lines.push(style.paint(Tone::Title, "\nwarned of within the last hour"));
    }
    for event in &report.warnings {
        let line = format!("{} ago  {}  {}: {}", span(event.seconds_ago), event.object, event.reason, event.message);
        lines.push(format!("  {line}"));
    }
    if !report.not_shown.is_empty() {
        lines.push(style.paint(Tone::Title, "\nnot shown"));
    }
    for why in &report.not_shown {
        lines.push(format!("  {}", style.paint(Tone::Faint, why)));
    }
    let hidden = if report.not_shown.is_empty() { "" } else { " that could be read" };
    lines.push(match (report.verdict, report.problems.len()) {
        (Verdict::Well, _) => style.paint(Tone::Good, &format!("\nnothing{hidden} is off")),
        (Verdict::Off, 1) => style.paint(Tone::Bad, "\n1 thing is off"),
        (Verdict::Off, count) => style.paint(Tone::Bad, &format!("\n{count} things are off")),
        (Verdict::Unknown, _) => style.paint(Tone::Bad, "\nit cannot be told whether anything is off"),
    });
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn operator(operator: &OperatorStatus) -> (Tone, String) {
    let renewed = operator.renewed_seconds_ago;
    match (&operator.leader, renewed) {
        (Some(leader), Some(seconds)) if !operator.writes => {
            (Tone::Bad, format!("none writes: {leader} renewed the Lease {} ago", span(seconds)))
        }
        (Some(leader), Some(seconds)) => (Tone::Plain, format!("{leader} writes; Lease renewed {} ago", span(seconds))),
        (Some(leader), None) => (Tone::Plain, format!("{leader} has the Lease")),
        (None, Some(seconds)) => (Tone::Bad, format!("none writes, since {}", span(seconds))),
        (None, None) => (Tone::Bad, "none has ever written".to_owned()),
    }
}

fn webhook(webhook: &WebhookStatus) -> (Tone, String) {
    if !webhook.installed {
        return (Tone::Bad, "not installed".to_owned());
    }
    let trusted = if webhook.trusted { "trusted" } else { "not trusted" };
    let ends = match webhook.certificate_ends_in_seconds {
        Some(seconds) if seconds <= 0 => format!("; its certificate ended {} ago", span(-seconds)),
        Some(seconds) => format!("; its certificate ends in {}", span(seconds)),
        None => String::new(),
    };
    let answers = match (webhook.answers, &webhook.not_asked) {
        (Some(true), _) => "; answers".to_owned(),
        (Some(false), _) => "; does not answer".to_owned(),
        (None, Some(why)) => format!("; not asked: {why}"),
        (None, None) => String::new(),
    };
    let is_well = webhook.trusted && webhook.answers != Some(false);
    (if is_well { Tone::Plain } else { Tone::Bad }, format!("{trusted}{ends}{answers}"))
}

fn nodes(report: &StatusReport, style: Style, lines: &mut Vec<String>) {
    if report.nodes.is_empty() {
        return;
    }
    let is_off = |node: &NodeStatus| node.agent_ready == Some(false) || node.attached < node.endpoints;
    // Those with something off come first when there are many.
    let mut shown: Vec<&NodeStatus> = report.nodes.iter().collect();
    if shown.len() > NODES {
        shown.sort_by_key(|node| !is_off(node));
    }
    let mut rows = vec![["nodes", "NODE", "AGENT", "ENDPOINTS", "ATTACHED"].map(str::to_owned).to_vec()];
    for node in shown.iter().take(NODES) {
        let agent = match node.agent_ready {
            Some(true) => "ready",
            Some(false) => "not ready",
            None if node.attached > 0 => "attaches",
            None => "?",
        };
        let cells = ["", node.name.as_str(), agent].map(str::to_owned);
        rows.push([cells.to_vec(), vec![node.endpoints.to_string(), node.attached.to_string()]].concat());
    }
    // The first column is as wide as those above.
    if let Some(cell) = rows.first_mut().and_then(|row| row.first_mut()) {
        *cell = "nodes   ".to_owned();
    }
    for (place, line) in columns(&rows).into_iter().enumerate() {
        let node = place.checked_sub(1).and_then(|place| shown.get(place));
        let tone = if node.is_some_and(|node| is_off(node)) { Tone::Warning } else { Tone::Plain };
        lines.push(style.paint(tone, &line));
    }
    if let Some(more) = shown.len().checked_sub(NODES).filter(|more| *more > 0) {
        lines.push(format!("          and {more} more; -o json lists all"));
    }
}

fn objects(report: &StatusReport, lines: &mut Vec<String>) {
    let mut rows = vec![["objects ", "KIND", "READY", "NOT READY"].map(str::to_owned).to_vec()];
    for count in &report.kinds {
        rows.push(vec![String::new(), count.kind.to_owned(), count.ready.to_string(), count.not_ready.to_string()]);
    }
    lines.extend(columns(&rows));
}
