//! The programs on one node.

use juneau_bpf::{AttachMode, Dataplane, NodeConfig, Options};
use juneau_core::tables::{Diff, Tables, TablesMut};

use super::content::Cluster;
use super::pins;
use crate::error::{Context, Error, Result};
use crate::namespace::Namespace;

/// UDP port of the overlay.
pub(super) const VXLAN_PORT: u16 = 4789;

/// Loads the programs in a node's namespace and fills the tables. Nothing is attached yet.
///
/// # Errors
/// [`Error::Dataplane`] and [`Error::Tables`] with the cause.
pub fn open(node: &Namespace, underlay_ifindex: u32, vxlan_ifindex: u32, cluster: &Cluster) -> Result<Dataplane> {
    open_for(node, underlay_ifindex, vxlan_ifindex, cluster, AttachMode::Best)
}

/// The same, to be attached by `attach`.
///
/// # Errors
/// As [`open`].
pub fn open_for(
    node: &Namespace,
    underlay_ifindex: u32,
    vxlan_ifindex: u32,
    cluster: &Cluster,
    attach: AttachMode,
) -> Result<Dataplane> {
    let tables = cluster.tables()?;
    let config = NodeConfig { vtep: cluster.context.vtep, underlay_ifindex, vxlan_ifindex, vxlan_port: VXLAN_PORT };
    node.run(|| {
        let mut options = Options::new(pins::next(), config);
        options.attach = attach;
        let dataplane = Dataplane::open(options).context("loading our programs")?;
        dataplane
            .tables()
            .context("our tables")?
            .apply_diff(&Diff::between(&Tables::default(), &tables))
            .map_err(|source| Error::Tables { what: "filling our tables".into(), source })?;
        // As after the first full pass of a node's start.
        dataplane.generations().context("our generations")?.advance_all().context("moving all generations")?;
        Ok(dataplane)
    })
}
