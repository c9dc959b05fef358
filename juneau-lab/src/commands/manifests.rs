//! `apply`, `delete`, `get`, `add-node`: the lab's directory of manifests.

use super::{columns, print, show};
use crate::cli::Format;
use crate::cluster::Cluster;
use crate::error::{Context, LabError, Result};
use crate::paths::Paths;
use crate::state::State;
use crate::supervise::{Ask, ask};
use juneau_api::source::decode;
use juneau_api::source::planned;
use juneau_api::source::store::{Outcome, Store, StoreError, Stored};
use juneau_api::view::{Key, Kind, Origin};
use std::collections::BTreeSet;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a change may take to be in force.
const SETTLE: Duration = Duration::from_secs(15);

/// Addresses of nodes that `add-node` makes are in this network.
const NETWORK: [u8; 3] = [192, 168, 77];

/// The last of them: the one after it is the control plane's, where there is one.
const LAST: u8 = 253;

fn failed(error: StoreError) -> LabError {
    LabError::Manifests(error.to_string())
}

/// Writes manifests into the lab's directory, or to its API server, and waits until they are in force. `-` is standard
/// input.
///
/// # Errors
/// When they cannot be used, or do not come into force.
pub fn apply(paths: &Paths, files: &[PathBuf]) -> Result<()> {
    if State::of_running(paths)?.kubernetes.is_some() {
        super::kubernetes::apply(paths, files)?;
        return settle(paths);
    }
    change(paths, files, Store::apply)
}

/// Removes what manifests name from the lab's directory or API server and waits until it is gone.
///
/// # Errors
/// When they cannot be read, something is in use, or the lab does not settle.
pub fn delete(paths: &Paths, files: &[PathBuf]) -> Result<()> {
    if State::of_running(paths)?.kubernetes.is_some() {
        let texts: Vec<String> = files.iter().map(|file| read(file)).collect::<Result<_>>()?;
        super::kubernetes::delete(paths, &texts)?;
        return settle(paths);
    }
    change(paths, files, Store::delete)
}

type Change = fn(&Store, &str) -> std::result::Result<Vec<(Key, Outcome)>, StoreError>;

fn change(paths: &Paths, files: &[PathBuf], change: Change) -> Result<()> {
    let store = Store::new(paths.manifests());
    for file in files {
        let text = read(file)?;
        for (key, outcome) in change(&store, &text).map_err(failed)? {
            print(&format!("{key} {outcome}\n"));
        }
    }
    settle(paths)
}

fn settle(paths: &Paths) -> Result<()> {
    let state = ask(paths, Ask::Settled, SETTLE)?;
    print(&show::list_problems(&show::problems(&state)));
    Ok(())
}

fn read(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context(|| "reading standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).context(|| format!("reading {}", file.display()))
}

/// Shows the objects of the lab's directory: all, of a kind, or one.
///
/// # Errors
/// When there is no such kind or object.
pub fn get(paths: &Paths, kind: Option<&str>, name: Option<&str>, format: Format) -> Result<()> {
    if !paths.manifests().is_dir() {
        return Err(LabError::NotRunning { dir: paths.dir().to_owned() });
    }
    let wanted = match kind {
        None | Some("all") => None,
        Some(kind) => Some(Kind::from_argument(kind).ok_or_else(|| {
            LabError::Usage(format!(
                "no kind is called {kind}; there are {}",
                Kind::ALL.map(|k| k.to_string()).join(", ")
            ))
        })?),
    };
    let mut found = match State::read(paths)?.and_then(|state| state.kubernetes) {
        Some(kubernetes) => stored(&kubernetes.kubeconfig, wanted)?,
        None => planned::completed(&paths.manifests(), Store::new(paths.manifests()).get().map_err(failed)?),
    };
    found.retain(|stored| wanted.is_none_or(|kind| stored.key.kind == kind));
    found.retain(|stored| name.is_none_or(|name| stored.key.name.to_string() == name || stored.key.name.name == name));
    if let Some(name) = name
        && found.is_empty()
    {
        return Err(LabError::Usage(format!("there is no {} {name}", kind.unwrap_or("object"))));
    }
    match format {
        Format::Text => {
            let mut rows = vec![vec!["KIND".to_owned(), "NAME".to_owned(), "FILE".to_owned()]];
            rows.extend(found.iter().map(|stored| {
                vec![stored.key.kind.to_string(), stored.key.name.to_string(), stored.origin.to_string()]
            }));
            print(&columns(&rows));
        }
        Format::Json => show::print_json(paths, &found.iter().map(|stored| &stored.value).collect::<Vec<_>>())?,
        Format::Yaml => {
            for (index, stored) in found.iter().enumerate() {
                let text = serde_saphyr::to_string(&stored.value);
                let text = text.map_err(|error| LabError::Manifests(format!("{}: {error}", stored.key)))?;
                print(&format!("{}{}\n", if index == 0 { "" } else { "---\n" }, text.trim_end()));
            }
        }
    }
    Ok(())
}

/// The objects of an API server, as a directory would have them.
fn stored(kubeconfig: &Path, wanted: Option<Kind>) -> Result<Vec<Stored>> {
    let kinds = wanted.map_or_else(|| Kind::ALL.to_vec(), |kind| vec![kind]);
    let objects = crate::kubernetes::list(kubeconfig, &kinds)?;
    let stored = objects.into_iter().filter_map(|value| {
        let key = decode::identify(&value).ok()?;
        Some(Stored { key, origin: Origin { file: "API server".into(), document: 0 }, value })
    });
    Ok(stored.collect())
}

/// Adds a node to the lab: a Node object with the next free address.
///
/// # Errors
/// When there is such a node, or no address is free.
pub fn add_node(paths: &Paths, name: &str) -> Result<()> {
    let state = State::of_running(paths)?;
    let cluster = show::cluster(paths, &state)?;
    if cluster.nodes.contains_key(name) {
        return Err(LabError::Usage(format!("there is a node {name} already")));
    }
    let address = free_address(&cluster)?;
    if let Some(kubernetes) = &state.kubernetes {
        crate::kubernetes::add_node(&kubernetes.kubeconfig, name, address)?;
        settle(paths)?;
        print(&format!("node {name} is up at {address}\n"));
        return Ok(());
    }
    let text = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name },
        "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
    });
    Store::new(paths.manifests()).apply(&text.to_string()).map_err(failed)?;
    settle(paths)?;
    print(&format!("node {name} is up at {address}; Pods with spec.nodeName: {name} run on it\n"));
    Ok(())
}

/// The address after the highest that is taken, or, when that is the last, the lowest that is free.
fn free_address(cluster: &Cluster) -> Result<Ipv4Addr> {
    let [a, b, c] = NETWORK;
    let taken: BTreeSet<u8> =
        cluster.nodes.values().map(Ipv4Addr::octets).filter(|o| o[..3] == NETWORK).map(|o| o[3]).collect();
    let highest = taken.last().copied().unwrap_or(10);
    let mut free = (highest.saturating_add(1)..=LAST).chain(1..=LAST).filter(|last| !taken.contains(last));
    let last = free.next().ok_or_else(|| LabError::Usage("the underlay has no free address left".to_owned()))?;
    Ok(Ipv4Addr::new(a, b, c, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_node_gets_an_address_that_is_free() {
        let last = |taken: &[u8]| {
            let nodes = taken.iter().map(|last| (format!("node-{last}"), Ipv4Addr::new(192, 168, 77, *last))).collect();
            free_address(&Cluster { nodes, ..Cluster::default() }).map(|address| address.octets()[3]).ok()
        };
        assert_eq!(last(&[]), Some(11));
        assert_eq!(last(&[11, 12]), Some(13));
        assert_eq!(last(&[1, 253]), Some(2));
        assert_eq!(last(&(1..=253).collect::<Vec<_>>()), None);
    }
}
