//! What is said between responders, and to them.

use crate::error::{Context, ResponderError, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A protocol that is probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Echo request and reply.
    Icmp,
    /// A connection, a line each way.
    Tcp,
    /// A datagram each way.
    Udp,
}

impl Protocol {
    /// All that are probed, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Icmp, Self::Tcp, Self::Udp];

    /// Its name as people write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Icmp => "ICMP",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// A request to a responder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "kebab-case")]
pub enum Order {
    /// Probe these, all at once; answered with a [`ProbeReport`] for each.
    Probe(Vec<ProbeOrder>),
    /// Which probes of this check did the Pod see? Answered with [`Sighting`]s.
    Seen(u32),
}

/// One probe to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeOrder {
    /// The probe's number: the check's in the upper 32 bits.
    pub id: u64,
    /// With what.
    pub protocol: Protocol,
    /// To where.
    pub address: Ipv4Addr,
    /// How long to wait for an answer, in milliseconds.
    pub patience: u64,
}

/// What came of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The probe's number.
    pub id: u64,
    /// What came back.
    pub outcome: Outcome,
}

/// What came back of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// An answer.
    Answered {
        /// The Pod that says it answered; nothing for ICMP, which the kernel answers.
        by: Option<String>,
        /// Time until the answer.
        microseconds: u64,
    },
    /// Nothing in time.
    Silent,
    /// An error: an ICMP error or a reset.
    Refused(String),
}

/// A probe that reached a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// The probe's number.
    pub id: u64,
    /// By which protocol.
    pub protocol: Protocol,
}

/// The text of a probe.
pub(super) fn probe_line(id: u64, from: &str) -> String {
    format!("juneau-probe {id:016x} {from}\n")
}

/// The number in the text of a probe.
pub(super) fn parse_probe(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let digits = text.strip_prefix("juneau-probe ")?.split_whitespace().next()?;
    u64::from_str_radix(digits, 16).ok()
}

/// The text of the answer to whatever was received: to a probe with its number, to a browser as HTTP, else the name.
pub(super) fn answer(received: &[u8], name: &str) -> String {
    if let Some(id) = parse_probe(received) {
        return format!("juneau-answer {id:016x} {name}\n");
    }
    let body = format!("{name}\n");
    if received.starts_with(b"GET ") {
        return format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    }
    body
}

/// The Pod that answered probe `id`, from the answer's text.
pub(super) fn parse_answer(bytes: &[u8], id: u64) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut words = text.strip_prefix("juneau-answer ")?.split_whitespace();
    let answered = u64::from_str_radix(words.next()?, 16).ok()?;
    (answered == id).then(|| words.next().map(str::to_owned))?
}

/// Gives an order to the responder at `socket` and waits for what came of it.
///
/// # Errors
/// When it does not answer within `timeout`.
pub fn call<T: serde::de::DeserializeOwned>(socket: &Path, order: &Order, timeout: Duration) -> Result<T> {
    let what = || format!("asking the responder at {}", socket.display());
    let document = |source| ResponderError::Document { path: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket).context(what)?;
    stream.set_read_timeout(Some(timeout)).context(what)?;
    let mut line = serde_json::to_vec(order).map_err(document)?;
    line.push(b'\n');
    stream.write_all(&line).context(what)?;
    let mut answer = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut answer).context(what)?;
    serde_json::from_slice(&answer).map_err(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_answered_with_its_number_and_the_pods_name() {
        let id = 0xdead_beef_0000_0007;
        let probe = probe_line(id, "red/a");
        assert_eq!(parse_probe(probe.as_bytes()), Some(id));
        let answer = answer(probe.as_bytes(), "red/b");
        assert_eq!(parse_answer(answer.as_bytes(), id).as_deref(), Some("red/b"));
        assert_eq!(parse_answer(answer.as_bytes(), id + 1), None, "somebody else's answer is none");
        assert_eq!(parse_probe(b"hello"), None);
    }

    #[test]
    fn people_get_the_name() {
        assert_eq!(answer(b"hi\n", "red/b"), "red/b\n");
        assert!(answer(b"GET / HTTP/1.1\r\n", "red/b").ends_with("\r\n\r\nred/b\n"));
    }
}
