//! The image that the tests' Pods run: `agnhost`, and beside it the programs that tests start in it by name.
//!
//! They are this machine's, with the libraries that they ask for: the image is used here and now, and not passed on.

use crate::error::{Context, Error, Result};
use juneau_cluster::image::libraries;
use juneau_images::{Architecture, Image, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where programs of the machine are.
const PLACES: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// A program that the tests start: its name there, how it may be called here, and Debian's package.
type Program = (&'static str, &'static [&'static str], &'static str);

/// Programs that busybox has otherwise than the tests want them: its shell runs its own `nc` whatever `PATH` says, and a
/// static one resolves no names.
const PROGRAMS: [Program; 11] = [
    ("sh", &["dash"], "dash"),
    ("bash", &["bash"], "bash"),
    ("curl", &["curl"], "curl"),
    ("nc", &["nc.openbsd"], "netcat-openbsd"),
    ("dig", &["dig"], "bind9-dnsutils"),
    ("nslookup", &["nslookup"], "bind9-dnsutils"),
    ("wget", &["wget"], "wget"),
    ("getent", &["getent"], "libc-bin"),
    ("ip", &["ip"], "iproute2"),
    ("ss", &["ss"], "iproute2"),
    ("timeout", &["timeout"], "coreutils"),
];

/// Libraries that the C library loads when a name is to be resolved; no program names them.
const RESOLVERS: [&str; 2] = ["libnss_dns.so.2", "libnss_files.so.2"];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n";
const GROUPS: &str = "root:x:0:\ngroup-defined-in-image:x:50000:user-defined-in-image\n";
const NAMES: &str = "hosts: files dns\n";

/// Writes the archive of the image to `file`, under the name `reference`.
///
/// # Errors
/// [`Error::Missing`] when this machine lacks a program; when something cannot be read or written.
pub fn write(file: &Path, reference: &str, agnhost: &Path, busybox: &Path) -> Result<()> {
    let image = Image {
        reference: reference.to_owned(),
        architecture: Architecture::of(std::env::consts::ARCH).ok_or(Error::Processor(std::env::consts::ARCH))?,
        created: 0,
        user: "0:0".to_owned(),
        path: "/bin".to_owned(),
        entrypoint: vec!["/agnhost".to_owned()],
        annotations: BTreeMap::new(),
        tree: tree(agnhost, busybox)?,
    };
    fs::write(file, image.quick_archive()?.bytes).on("writing", file)
}

fn tree(agnhost: &Path, busybox: &Path) -> Result<Tree> {
    let read = |path: &Path| fs::read(path).on("reading", path);
    let mut tree = Tree::default();
    tree.file("agnhost", 0o755, read(agnhost)?)?;
    tree.link("agnhost-2", "agnhost")?;
    // A server of the tests shows it; nobody verifies it.
    let served = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    tree.file("localhost.crt", 0o644, served.cert.pem())?;
    tree.file("localhost.key", 0o644, served.signing_key.serialize_pem())?;
    let mut loaded = BTreeSet::new();
    for program @ (name, ..) in PROGRAMS {
        let path = find(program)?;
        loaded.extend(libraries(&path)?);
        tree.file(&format!("bin/{name}"), 0o755, read(&path)?)?;
    }
    // Beside the C library, wherever that is.
    let beside = loaded.iter().find(|path| path.ends_with("libc.so.6")).and_then(|path| path.parent());
    let resolvers = beside.map(|dir| RESOLVERS.map(|name| dir.join(name))).into_iter().flatten();
    loaded.extend(resolvers.filter(|path| path.is_file()).collect::<Vec<_>>());
    for library in loaded {
        tree.file(library.to_string_lossy().trim_start_matches('/'), 0o755, read(&library)?)?;
    }
    tree.file("bin/busybox", 0o755, read(busybox)?)?;
    let taken: BTreeSet<&str> = PROGRAMS.iter().map(|program| program.0).chain(["busybox"]).collect();
    for applet in applets(busybox)?.iter().filter(|applet| !taken.contains(applet.as_str())) {
        tree.link(&format!("bin/{applet}"), "busybox")?;
    }
    for (path, text) in [("etc/passwd", PASSWD), ("etc/group", GROUPS), ("etc/nsswitch.conf", NAMES)] {
        tree.file(path, 0o644, text)?;
    }
    for (path, mode) in [("tmp", 0o1777), ("uploads", 0o777), ("root", 0o755), ("run", 0o755)] {
        tree.directory(path, mode)?;
    }
    tree.link("var/run", "../run")?;
    Ok(tree)
}

fn find((_, names, package): Program) -> Result<PathBuf> {
    let mut paths = names.iter().flat_map(|name| PLACES.iter().map(move |place| Path::new(place).join(name)));
    let program = names.first().copied().unwrap_or_default();
    paths.find(|path| path.is_file()).ok_or(Error::Missing { program, package })
}

/// What busybox does, by the names that it does it under.
fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = Command::new(busybox).arg("--list").output().context(|| format!("running {}", busybox.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
