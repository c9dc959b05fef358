//! What the runtime says in the environment.

use crate::error::{CniError, Code};
use std::ffi::OsString;
use std::path::PathBuf;

/// Longest container id that the agent can record, in bytes.
const CONTAINER_ID_MAX: usize = 64;
/// Longest name of a network device, in bytes.
const DEVICE_MAX: usize = 15;
/// Longest path, in bytes.
const PATH_MAX: usize = 4095;
/// Longest `CNI_ARGS`, in bytes.
const ARGS_MAX: usize = 16 * 1024;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// Gives a container its interfaces.
    Add,
    /// Takes them away.
    Del,
    /// Compares them with what they should be.
    Check,
    /// Takes away those of all containers that are not named.
    Gc,
    /// Whether containers can be added.
    Status,
    /// Which versions are supported.
    Version,
}

/// The variables as they are, before anything is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables {
    /// `CNI_COMMAND`.
    pub command: Option<OsString>,
    /// `CNI_CONTAINERID`.
    pub container_id: Option<OsString>,
    /// `CNI_NETNS`.
    pub netns: Option<OsString>,
    /// `CNI_IFNAME`.
    pub interface: Option<OsString>,
    /// `CNI_ARGS`.
    pub args: Option<OsString>,
}

impl Variables {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let get = |name| std::env::var_os(name);
        Self {
            command: get("CNI_COMMAND"),
            container_id: get("CNI_CONTAINERID"),
            netns: get("CNI_NETNS"),
            interface: get("CNI_IFNAME"),
            args: get("CNI_ARGS"),
        }
    }
}

/// What the variables say; fields that the command does not need are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// What is to be done.
    pub command: Command,
    /// The container.
    pub container_id: String,
    /// Its network namespace.
    pub netns: PathBuf,
    /// The interface that is asked for.
    pub interface: String,
    /// The Pod's Kubernetes namespace.
    pub namespace: String,
    /// The Pod's name.
    pub name: String,
    /// The Pod's uid, if the runtime says it.
    pub uid: Option<String>,
}

impl Environment {
    /// Checks the variables that the command needs. Others are not looked at: a runtime may set what it likes.
    ///
    /// # Errors
    /// [`Code::InvalidEnvironment`], naming the variable.
    pub fn read(variables: &Variables) -> Result<Self, CniError> {
        let command = match text("CNI_COMMAND", variables.command.as_ref())? {
            "ADD" => Command::Add,
            "DEL" => Command::Del,
            "CHECK" => Command::Check,
            "GC" => Command::Gc,
            "STATUS" => Command::Status,
            "VERSION" => Command::Version,
            "" => {
                let remedy =
                    "this is a CNI plugin: a container runtime starts it, with a configuration on standard input";
                return Err(CniError::new(Code::InvalidEnvironment, "CNI_COMMAND is not set", remedy));
            }
            other => {
                return Err(invalid(
                    "CNI_COMMAND",
                    other,
                    "is none that is known",
                    "use ADD, DEL, CHECK, GC, STATUS or VERSION",
                ));
            }
        };
        let mut environment = Self {
            command,
            container_id: String::new(),
            netns: PathBuf::new(),
            interface: String::new(),
            namespace: String::new(),
            name: String::new(),
            uid: None,
        };
        if matches!(command, Command::Add | Command::Del | Command::Check) {
            environment.container_id = container_id(variables)?;
            environment.interface = interface(variables)?;
        }
        // DEL comes without a namespace once that is gone, and its container id says enough.
        if matches!(command, Command::Add | Command::Check) {
            environment.netns = netns(variables)?;
            environment.read_args(variables)?;
        }
        Ok(environment)
    }

    fn read_args(&mut self, variables: &Variables) -> Result<(), CniError> {
        const ARGS: &str = "CNI_ARGS";
        let args = text(ARGS, variables.args.as_ref())?;
        if args.len() > ARGS_MAX {
            return Err(invalid(ARGS, args, "is too long", format!("use at most {ARGS_MAX} bytes")));
        }
        let (mut namespace, mut name, mut uid) = (None, None, None);
        for pair in args.split(';').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(invalid(ARGS, pair, "is not KEY=VALUE", "write KEY=VALUE;KEY=VALUE"));
            };
            let field = match key {
                "K8S_POD_NAMESPACE" => &mut namespace,
                "K8S_POD_NAME" => &mut name,
                "K8S_POD_UID" => &mut uid,
                // What others want to know.
                _ => continue,
            };
            if field.replace(value).is_some_and(|before| before != value) {
                return Err(invalid(ARGS, key, "is there twice", "say it once"));
            }
        }
        self.namespace = required("K8S_POD_NAMESPACE", namespace, is_label)?;
        self.name = required("K8S_POD_NAME", name, is_subdomain)?;
        self.uid = match uid {
            None | Some("") => None,
            Some(uid) if is_uid(uid) => Some(uid.to_owned()),
            Some(other) => return Err(invalid(ARGS, other, "is not the uid of a Pod", "correct K8S_POD_UID")),
        };
        Ok(())
    }
}

fn invalid(variable: &str, value: &str, what: &str, remedy: impl Into<String>) -> CniError {
    let mut shown: String = value.chars().take(80).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    CniError::new(Code::InvalidEnvironment, format!("{variable}: {shown:?} {what}"), remedy)
}

/// A variable's text; empty when it is not set.
fn text<'a>(name: &str, value: Option<&'a OsString>) -> Result<&'a str, CniError> {
    value.map_or(Ok(""), |value| {
        value.to_str().ok_or_else(|| invalid(name, &value.to_string_lossy(), "is not UTF-8", "write it in UTF-8"))
    })
}

fn set<'a>(name: &str, value: Option<&'a OsString>) -> Result<&'a str, CniError> {
    match text(name, value)? {
        "" => Err(CniError::new(Code::InvalidEnvironment, format!("{name} is not set"), format!("set {name}"))),
        value => Ok(value),
    }
}

fn container_id(variables: &Variables) -> Result<String, CniError> {
    const NAME: &str = "CNI_CONTAINERID";
    let id = set(NAME, variables.container_id.as_ref())?;
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins = id.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if id.len() > CONTAINER_ID_MAX || !begins || !id.bytes().all(legal) {
        let remedy = format!(
            "use 1 to {CONTAINER_ID_MAX} letters, digits, '.', '_' and '-', beginning with a letter or a digit"
        );
        return Err(invalid(NAME, id, "is not a container id", remedy));
    }
    Ok(id.to_owned())
}

/// As the specification and the kernel (`dev_valid_name`) have it; which names a Pod's interfaces have, the agent knows.
fn interface(variables: &Variables) -> Result<String, CniError> {
    const NAME: &str = "CNI_IFNAME";
    let name = set(NAME, variables.interface.as_ref())?;
    let legal = |c: char| !c.is_whitespace() && !c.is_control() && c != '/' && c != ':';
    if name.len() > DEVICE_MAX || matches!(name, "." | "..") || !name.chars().all(legal) {
        let remedy = format!("use at most {DEVICE_MAX} bytes without '/', ':' and white space, as in eth0");
        return Err(invalid(NAME, name, "cannot be the name of an interface", remedy));
    }
    Ok(name.to_owned())
}

fn netns(variables: &Variables) -> Result<PathBuf, CniError> {
    const NAME: &str = "CNI_NETNS";
    let path = set(NAME, variables.netns.as_ref())?;
    if !path.starts_with('/') || path.len() > PATH_MAX {
        return Err(invalid(NAME, path, "is not an absolute path", "name the file of a network namespace"));
    }
    Ok(PathBuf::from(path))
}

fn required(key: &str, value: Option<&str>, legal: impl Fn(&str) -> bool) -> Result<String, CniError> {
    match value {
        None | Some("") => Err(CniError::new(
            Code::InvalidEnvironment,
            format!("CNI_ARGS has no {key}"),
            "this plugin serves Pods of Kubernetes only: let their runtime start it, or give CNI_ARGS as it does",
        )),
        Some(value) if legal(value) => Ok(value.to_owned()),
        Some(value) => Err(invalid("CNI_ARGS", value, "is not the name of an object", format!("correct {key}"))),
    }
}

/// A DNS label (RFC 1123).
fn is_label(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
        && bytes.first().is_some_and(|byte| alphanumeric(*byte))
        && bytes.last().is_some_and(|byte| alphanumeric(*byte))
}

/// A DNS subdomain as Kubernetes wants objects' names to be: labels without a limit of their own.
fn is_subdomain(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|label| {
            let bytes = label.as_bytes();
            bytes.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
                && bytes.first().is_some_and(|byte| alphanumeric(*byte))
                && bytes.last().is_some_and(|byte| alphanumeric(*byte))
        })
}

fn is_uid(text: &str) -> bool {
    text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}
