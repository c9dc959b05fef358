//! Who a host veth belongs to. The record is the device's alias, so that it lives and dies with the device: after a
//! restart the attachments are read from the kernel, and there is no file that could tell another story.

use super::INTERFACE;
use juneau_api::names::{INTERFACE_MAX, is_label};
use std::fmt;

/// Longest alias that the kernel takes, in bytes (`IFALIASZ` less the terminating zero).
const ALIAS_MAX: usize = 255;
/// Longest container id: all known runtimes use 64 hexadecimal digits or less.
const CONTAINER_ID_MAX: usize = 64;
const PREFIX: &str = "juneau";
/// What is left for the subject: prefix, container id, interface and three spaces taken off.
const SUBJECT_MAX: usize = ALIAS_MAX - PREFIX.len() - CONTAINER_ID_MAX - INTERFACE_MAX - 3;

/// A Pod, as written in an alias: `namespace/name`. A pair too long for an alias is cut and told apart by a hash, so a
/// subject is compared with subjects made from objects, and never taken apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(String);

impl Subject {
    /// The subject of this Pod.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        let mut text = format!("{namespace}/{name}");
        if text.len() > SUBJECT_MAX {
            let hash = fnv1a(text.as_bytes());
            // Names of Kubernetes objects are ASCII; anything else is cut at the next boundary before.
            let mut end = SUBJECT_MAX - 17;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            text.push_str(&format!("~{hash:016x}"));
        }
        Self(text)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An interface of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nic {
    /// The Pod.
    pub subject: Subject,
    /// The interface's name in it.
    pub interface: String,
}

impl Nic {
    /// The interface of this Pod.
    #[must_use]
    pub fn new(namespace: &str, name: &str, interface: &str) -> Self {
        Self { subject: Subject::new(namespace, name), interface: interface.to_owned() }
    }
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.subject, self.interface)
    }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo): stable over releases, which `std`'s hasher does not promise.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Why names do not make a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The container id cannot be part of a device name or alias.
    #[error("container id {id:?} is not 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit")]
    ContainerId {
        /// The id that was given.
        id: String,
    },
    /// Namespace or name is none of a Kubernetes object.
    #[error("{what} {text:?} is not the name of a Kubernetes object")]
    Name {
        /// `namespace` or `name`.
        what: &'static str,
        /// The text that was given.
        text: String,
    },
    /// The interface's name is none that a Pod's can have.
    #[error("interface {interface:?} is not 1 to 8 lower-case letters, digits or '-'")]
    Interface {
        /// The name that was given.
        interface: String,
    },
}

/// What a host veth's alias says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// The Pod's interface.
    pub nic: Nic,
    /// Its sandbox.
    pub container_id: String,
}

impl Record {
    /// Checks the names.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn new(namespace: &str, name: &str, interface: &str, container_id: &str) -> Result<Self, RecordError> {
        for (what, text) in [("namespace", namespace), ("name", name)] {
            let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
            if text.is_empty() || text.len() > 253 || !text.bytes().all(legal) {
                return Err(RecordError::Name { what, text: text.to_owned() });
            }
        }
        let legal = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if container_id.len() > CONTAINER_ID_MAX
            || !container_id.bytes().all(legal)
            || !container_id.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        {
            return Err(RecordError::ContainerId { id: container_id.to_owned() });
        }
        if !is_label(interface) || interface.len() > INTERFACE_MAX {
            return Err(RecordError::Interface { interface: interface.to_owned() });
        }
        Ok(Self { nic: Nic::new(namespace, name, interface), container_id: container_id.to_owned() })
    }

    /// The alias. The interface that every Pod has goes without saying.
    #[must_use]
    pub fn to_alias(&self) -> String {
        let Self { nic: Nic { subject, interface }, container_id } = self;
        match interface.as_str() {
            INTERFACE => format!("{PREFIX} {container_id} {subject}"),
            other => format!("{PREFIX} {container_id} {subject} {other}"),
        }
    }

    /// Reads an alias; `None` when it is not ours.
    #[must_use]
    pub fn from_alias(alias: &str) -> Option<Self> {
        let mut words = alias.split(' ');
        let (prefix, container_id, subject) = (words.next()?, words.next()?, words.next()?);
        let interface = words.next().unwrap_or(INTERFACE);
        if prefix != PREFIX
            || container_id.is_empty()
            || !subject.contains('/')
            || !is_label(interface)
            || interface.len() > INTERFACE_MAX
            || words.next().is_some()
        {
            return None;
        }
        let nic = Nic { subject: Subject(subject.to_owned()), interface: interface.to_owned() };
        Some(Self { nic, container_id: container_id.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_round_trip_and_fit() {
        let id = "c".repeat(64);
        for (namespace, name) in
            [("red".to_owned(), "a".to_owned()), ("n".repeat(63), "p".repeat(253)), ("n".repeat(63), "p".repeat(252))]
        {
            for interface in ["eth0", "eth1", "storage1"] {
                let record = Record::new(&namespace, &name, interface, &id).unwrap();
                let alias = record.to_alias();
                assert!(alias.len() <= ALIAS_MAX, "{}", alias.len());
                assert_eq!(Record::from_alias(&alias).unwrap(), record);
            }
        }
        assert_eq!(Record::new("red", "a", "eth0", "0123").unwrap().to_alias(), "juneau 0123 red/a");
        assert_eq!(Record::new("red", "a", "eth1", "0123").unwrap().to_alias(), "juneau 0123 red/a eth1");
    }

    #[test]
    fn long_names_stay_distinct() {
        let base = "p".repeat(250);
        let one = Subject::new("n", &format!("{base}-a"));
        let other = Subject::new("n", &format!("{base}-b"));
        assert_ne!(one, other);
        assert_eq!(one, Subject::new("n", &format!("{base}-a")));
    }

    #[test]
    fn foreign_aliases_are_not_ours() {
        for alias in [
            "",
            "juneau",
            "juneau 0123",
            "juneau 0123 red/a eth1 extra",
            "juneau 0123 red/a Extra",
            "uplink to rack 4",
            "juneau  red/a",
        ] {
            assert_eq!(Record::from_alias(alias), None, "{alias}");
        }
    }

    #[test]
    fn ids_that_could_escape_a_name_are_refused() {
        for id in ["", "../x", "a b", "-a", "a/b", &"a".repeat(65)] {
            assert!(Record::new("red", "a", "eth0", id).is_err(), "{id}");
        }
        for name in ["", "a/b", "A", "a b"] {
            assert!(Record::new("red", name, "eth0", "0").is_err(), "{name}");
        }
        for interface in ["", "Eth0", "eth/0", "ninechars", ".."] {
            assert!(Record::new("red", "a", interface, "0").is_err(), "{interface}");
        }
    }
}
