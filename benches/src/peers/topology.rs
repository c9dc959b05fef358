//! Nodes and Pods as namespaces, before anything forwards between them.

use std::net::Ipv4Addr;

use crate::error::Result;
use crate::namespace::{End, Fabric, Mac, Namespace};
use crate::path::Pods;

/// MTU of the underlay.
pub const UNDERLAY_MTU: u16 = 1500;
/// MTU of Pods whose packets cross the underlay: 50 bytes less for the overlay's headers, also on paths without.
pub const POD_MTU: u16 = 1450;
/// MTU of Pods that share a node.
pub const LOCAL_MTU: u16 = 1500;

/// The address that Pods have as their gateway; it exists nowhere else.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// A Pod and its place on a node.
pub struct Pod {
    /// The Pod's namespace.
    pub namespace: Namespace,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The other end of its veth pair, in the node.
    pub host_device: &'static str,
    /// That end's Ethernet address.
    pub host_mac: Mac,
    /// That end's index.
    pub host_index: u32,
}

impl Pod {
    fn new(fabric: &Fabric, node: &Namespace, host_device: &'static str, address: Ipv4Addr, mtu: u16) -> Result<Self> {
        let namespace = fabric.namespace()?;
        let end = End { namespace: node, name: host_device };
        namespace.veth("eth0", &end, mtu)?;
        Ok(Self {
            address,
            mac: namespace.mac("eth0")?,
            host_device,
            host_mac: node.mac(host_device)?,
            host_index: node.index(host_device)?,
            namespace,
        })
    }

    /// A /32 address and a default route over a gateway whose Ethernet address is known: nothing is resolved.
    ///
    /// # Errors
    /// [`crate::error::Error::Netlink`] with the kernel's answer.
    pub fn behind_gateway(&self, gateway_mac: Mac) -> Result<()> {
        self.namespace.address("eth0", self.address, 32)?;
        self.namespace.route((Ipv4Addr::UNSPECIFIED, 0), Some(GATEWAY), "eth0")?;
        self.namespace.neighbour("eth0", GATEWAY, gateway_mac)
    }
}

/// A node with two Pods.
pub struct OneNode {
    /// The node.
    pub node: Namespace,
    /// Client and server.
    pub pods: [Pod; 2],
}

impl OneNode {
    /// Makes the node and its Pods.
    ///
    /// # Errors
    /// [`crate::error::Error::Netlink`] with the kernel's answer.
    pub fn new(fabric: &Fabric) -> Result<Self> {
        let node = fabric.namespace()?;
        let pod = |device, last| Pod::new(fabric, &node, device, Ipv4Addr::new(10, 0, 1, last), LOCAL_MTU);
        Ok(Self { pods: [pod("pod1", 2)?, pod("pod2", 3)?], node })
    }

    /// The ends of the path, and the node that must outlive it.
    #[must_use]
    pub fn into_pods(self) -> (Pods, Namespace) {
        let [client, server] = self.pods;
        let pods = Pods { host: server.address, client: client.namespace, server: server.namespace };
        (pods, self.node)
    }
}

/// A node with one Pod, and its place on the underlay.
pub struct Node {
    /// The node.
    pub namespace: Namespace,
    /// Its address on the underlay.
    pub vtep: Ipv4Addr,
    /// Its device on the underlay.
    pub device: &'static str,
    /// That device's Ethernet address.
    pub mac: Mac,
    /// That device's index.
    pub index: u32,
    /// Its Pod.
    pub pod: Pod,
}

/// Two nodes that are joined by a veth pair, with a Pod each.
pub struct TwoNodes {
    /// The client's node and the server's.
    pub nodes: [Node; 2],
}

impl TwoNodes {
    /// Makes the nodes and their Pods.
    ///
    /// # Errors
    /// [`crate::error::Error::Netlink`] with the kernel's answer.
    pub fn new(fabric: &Fabric) -> Result<Self> {
        const DEVICE: &str = "underlay";
        let namespaces = [fabric.namespace()?, fabric.namespace()?];
        let [first, second] = &namespaces;
        let end = End { namespace: second, name: DEVICE };
        first.veth(DEVICE, &end, UNDERLAY_MTU)?;
        let [first, second] = namespaces;
        let node = |namespace: Namespace, number: u8| -> Result<Node> {
            let vtep = Ipv4Addr::new(192, 168, 9, number);
            namespace.address(DEVICE, vtep, 24)?;
            let address = Ipv4Addr::new(10, 0, number, 2);
            Ok(Node {
                vtep,
                device: DEVICE,
                mac: namespace.mac(DEVICE)?,
                index: namespace.index(DEVICE)?,
                pod: Pod::new(fabric, &namespace, "pod", address, POD_MTU)?,
                namespace,
            })
        };
        let nodes = [node(first, 1)?, node(second, 2)?];
        for (here, there) in both_ways(&nodes) {
            here.namespace.neighbour(DEVICE, there.vtep, there.mac)?;
        }
        Ok(Self { nodes })
    }

    /// Each node together with the other one.
    pub fn both_ways(&self) -> impl Iterator<Item = (&Node, &Node)> {
        both_ways(&self.nodes)
    }

    /// The ends of the path, and the nodes that must outlive it.
    #[must_use]
    pub fn into_pods(self) -> (Pods, [Namespace; 2]) {
        let [client, server] = self.nodes;
        let pods = Pods { host: server.pod.address, client: client.pod.namespace, server: server.pod.namespace };
        (pods, [client.namespace, server.namespace])
    }
}

fn both_ways([first, second]: &[Node; 2]) -> impl Iterator<Item = (&Node, &Node)> {
    [(first, second), (second, first)].into_iter()
}
