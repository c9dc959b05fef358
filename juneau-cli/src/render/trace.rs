//! The way of a packet as a tree.

use super::Style;
use super::tree::{Tone, Tree};
use crate::report::{End, Hop, TraceReport};

/// A trace as a tree.
#[must_use]
pub fn trace(report: &TraceReport, style: Style) -> String {
    let port = if report.port == 0 { String::new() } else { format!(" port {}", report.port) };
    let head = format!("{} → {}  {}{port}", end(&report.source), end(&report.destination), report.protocol);
    let mut tree = Tree::new(Tone::Title, head);
    for note in &report.notes {
        tree.push(Tree::new(Tone::Warning, note));
    }
    for problem in &report.problems {
        tree.push(Tree::problem(problem));
    }
    for one in &report.hops {
        tree.push(hop(one));
    }
    let (tone, word) =
        if report.delivered { (Tone::Good, "it would be delivered") } else { (Tone::Bad, "it would not be delivered") };
    tree.push(Tree::new(tone, word));
    tree.draw(style)
}

fn end(end: &End) -> String {
    let object = end.object.as_ref().map(|object| format!("{object} ")).unwrap_or_default();
    let interface = end.interface.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
    let vpc = end.vpc.as_ref().map(|vpc| format!(" in Vpc/{vpc}")).unwrap_or_default();
    format!("{object}{interface}{}{vpc}", end.address)
}

fn hop(hop: &Hop) -> Tree {
    let seen = if hop.hook == "overlay" { "from the overlay" } else { "from the Pod" };
    let (tone, what) = match &hop.to {
        Some(to) => (Tone::Plain, format!("goes to {to}")),
        None => (Tone::Bad, format!("✗ {}: {}", hop.reason, hop.text)),
    };
    let mut tree = Tree::new(tone, format!("{}, {seen}: {what}", hop.node));
    for step in &hop.steps {
        tree.push(Tree::new(Tone::Faint, step));
    }
    if hop.to.is_none() && hop.answered {
        tree.push(Tree::plain("the sender is told so by ICMP"));
    }
    if let Some(remedy) = &hop.remedy {
        tree.push(Tree::plain(format!("→ {remedy}")));
    }
    tree
}
