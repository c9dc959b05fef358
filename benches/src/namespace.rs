//! Network namespaces without names: each lives as long as somebody holds it, so nothing is left however the process
//! ends.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use futures::TryStreamExt;
use nix::sched::{CloneFlags, setns, unshare};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute, LinkMessage};
use rtnetlink::packet_route::neighbour::NeighbourFlags;
use rtnetlink::{Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, LinkVxlan, RouteMessageBuilder};
use tokio::runtime::Runtime;

use crate::error::{Context, Error, Result};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// What all namespaces share: the event loop behind their netlink sockets.
pub struct Fabric {
    runtime: Arc<Runtime>,
}

impl Fabric {
    /// Starts the event loop.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started.
    pub fn new() -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the event loop")?;
        Ok(Self { runtime: Arc::new(runtime) })
    }

    /// Makes a namespace whose loopback device is up and whose settings do not depend on the host's.
    ///
    /// # Errors
    /// [`Error::Io`] without the right to make one, [`Error::Netlink`] when it cannot be set up.
    pub fn namespace(&self) -> Result<Namespace> {
        let (file, handle) = on_thread("making a namespace", || {
            unshare(CloneFlags::CLONE_NEWNET)
                .context("a network namespace cannot be made (the benchmarks need root)")?;
            let file = File::open("/proc/thread-self/ns/net").context("opening the namespace")?;
            let guard = self.runtime.enter();
            let (connection, handle, _) = rtnetlink::new_connection().context("opening a netlink socket")?;
            drop(guard);
            self.runtime.spawn(connection);
            settings()?;
            Ok((file, handle))
        })?;
        let namespace = Namespace { runtime: Arc::clone(&self.runtime), file, handle };
        namespace.up("lo")?;
        Ok(namespace)
    }
}

/// Settings that the figures would otherwise depend on.
fn settings() -> Result<()> {
    const SETTINGS: [(&str, &str); 6] = [
        ("ipv6/conf/all/disable_ipv6", "1"),
        ("ipv6/conf/default/disable_ipv6", "1"),
        ("ipv4/ip_forward", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/tcp_congestion_control", "reno"),
        ("ipv4/ip_local_port_range", "1024 65000"),
    ];
    for (name, value) in SETTINGS {
        let path = format!("/proc/sys/net/{name}");
        // A kernel without IPv6 has nothing to switch off.
        if name.starts_with("ipv4") || fs::exists(&path).unwrap_or(false) {
            fs::write(&path, value).context(format!("setting {name}"))?;
        }
    }
    // Kubernetes wants bridged frames to pass the firewall's hooks; where the module is absent they cannot.
    let bridged = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    if fs::exists(bridged).unwrap_or(false) {
        fs::write(bridged, "1").context("setting bridge-nf-call-iptables")?;
    }
    Ok(())
}

/// Runs `work` on a thread of its own, which may change its namespaces as it likes.
fn on_thread<T: Send>(what: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(work).join()).map_err(|_| Error::Thread(what.into())).flatten()
}

/// A network namespace and a netlink socket in it.
pub struct Namespace {
    runtime: Arc<Runtime>,
    file: File,
    handle: Handle,
}

/// One end of a new veth pair.
pub struct End<'a> {
    /// Where it appears.
    pub namespace: &'a Namespace,
    /// Its name there.
    pub name: &'a str,
}

impl Namespace {
    /// Runs `work` on a thread inside the namespace; processes that it starts are inside, too.
    ///
    /// # Errors
    /// [`Error::Io`] when the namespace cannot be entered; what `work` answers.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_thread("working inside a namespace", || {
            setns(&self.file, CloneFlags::CLONE_NEWNET).context("entering a namespace")?;
            work()
        })
    }

    /// A path by which other processes find the namespace while this one holds it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Makes a veth pair with one end in each of two namespaces, both up.
    ///
    /// # Errors
    /// [`Error::Netlink`] with the kernel's answer; so for all below.
    pub fn veth(&self, name: &str, peer: &End<'_>, mtu: u16) -> Result<()> {
        let far = LinkMessageBuilder::<LinkUnspec>::new()
            .name(peer.name)
            .mtu(mtu.into())
            .setns_by_fd(peer.namespace.file.as_raw_fd())
            .build();
        let near = LinkMessageBuilder::<LinkVeth>::new(name, peer.name)
            .mtu(mtu.into())
            .set_info_data(InfoData::Veth(InfoVeth::Peer(far)))
            .build();
        self.add_link(name, near)?;
        self.up(name)?;
        peer.namespace.up(peer.name)
    }

    /// Makes a veth pair with another namespace whose ends both have this index and the name `device<index>`, both up.
    ///
    /// # Errors
    /// As [`Self::veth`].
    pub fn pair(&self, other: &Self, index: u32) -> Result<()> {
        let name = format!("device{index}");
        let far = LinkMessageBuilder::<LinkUnspec>::new()
            .index(index)
            .name(name.as_str())
            .setns_by_fd(other.file.as_raw_fd())
            .build();
        let near = LinkMessageBuilder::<LinkVeth>::new(&name, &name)
            .index(index)
            .up()
            .set_info_data(InfoData::Veth(InfoVeth::Peer(far)))
            .build();
        self.add_link(&name, near)?;
        other.up(&name)
    }

    /// Makes a bridge and puts ports into it.
    ///
    /// # Errors
    /// As [`Self::veth`].
    pub fn bridge(&self, name: &str, mtu: u16, ports: &[&str]) -> Result<()> {
        self.add_link(name, LinkBridge::new(name).mtu(mtu.into()).build())?;
        let index = self.index(name)?;
        for port in ports {
            let message = LinkMessageBuilder::<LinkUnspec>::new().name(*port).controller(index).build();
            self.change(&format!("putting {port} into {name}"), message)?;
        }
        self.up(name)
    }

    /// Makes a VXLAN device for one VNI on an underlay device, without learning.
    ///
    /// # Errors
    /// As [`Self::veth`].
    pub fn vxlan(&self, name: &str, tunnel: &Vxlan<'_>, mtu: u16) -> Result<()> {
        let mut builder = LinkVxlan::new(name, tunnel.vni)
            .dev(self.index(tunnel.device)?)
            .port(tunnel.port)
            .learning(false)
            .mtu(mtu.into());
        if let Some(local) = tunnel.local {
            builder = builder.local(local);
        }
        self.add_link(name, builder.build())
    }

    /// Makes a VXLAN device whose tunnel is chosen packet by packet.
    ///
    /// # Errors
    /// As [`Self::veth`].
    pub fn vxlan_external(&self, name: &str, port: u16, mtu: u16) -> Result<()> {
        let message = LinkMessageBuilder::<LinkVxlan>::new(name)
            .collect_metadata(true)
            .port(port)
            .learning(false)
            .mtu(mtu.into())
            .up()
            .build();
        self.add_link(name, message)
    }

    /// Sets a device up.
    ///
    /// # Errors
    /// As [`Self::veth`].
    pub fn up(&self, name: &str) -> Result<()> {
        let message = LinkMessageBuilder::<LinkUnspec>::new().name(name).up().build();
        self.change(&format!("setting {name} up"), message)
    }

    /// Gives a device an address.
    ///
    /// # Errors
    /// As [`Self::veth`].
    pub fn address(&self, device: &str, address: Ipv4Addr, prefix_length: u8) -> Result<()> {
        let index = self.index(device)?;
        self.runtime
            .block_on(self.handle.address().add(index, IpAddr::V4(address), prefix_length).execute())
            .context(format!("giving {device} the address {address}"))
    }

    /// Adds a route, on the device's own link without `via`; the next hop needs no route of its own.
    ///
    /// # Errors
    /// As [`Self::veth`].
    pub fn route(
        &self,
        (destination, prefix_length): (Ipv4Addr, u8),
        via: Option<Ipv4Addr>,
        device: &str,
    ) -> Result<()> {
        let mut route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(destination, prefix_length)
            .output_interface(self.index(device)?);
        route = match via {
            Some(gateway) => route.gateway(gateway).onlink(),
            None => route.scope(rtnetlink::packet_route::route::RouteScope::Link),
        };
        self.runtime
            .block_on(self.handle.route().add(route.build()).execute())
            .context(format!("routing {destination}/{prefix_length} over {device}"))
    }

    /// Makes a neighbour known for good, so that no address resolution runs meanwhile.
    ///
    /// # Errors
    /// As [`Self::veth`].
    pub fn neighbour(&self, device: &str, address: Ipv4Addr, mac: Mac) -> Result<()> {
        let index = self.index(device)?;
        self.runtime
            .block_on(
                self.handle.neighbours().add(index, IpAddr::V4(address)).link_layer_address(&mac).replace().execute(),
            )
            .context(format!("neighbour {address} on {device}"))
    }

    /// Tells a VXLAN device behind which VTEP an Ethernet address is.
    ///
    /// # Errors
    /// As [`Self::veth`].
    pub fn forwarding(&self, device: &str, mac: Mac, vtep: Ipv4Addr) -> Result<()> {
        let index = self.index(device)?;
        self.runtime
            .block_on(
                self.handle
                    .neighbours()
                    .add_bridge(index, &mac)
                    .destination(IpAddr::V4(vtep))
                    .flags(NeighbourFlags::Own)
                    .execute(),
            )
            .context(format!("forwarding entry on {device}"))
    }

    /// Index of a device.
    ///
    /// # Errors
    /// [`Error::Netlink`] when there is none of that name.
    pub fn index(&self, name: &str) -> Result<u32> {
        Ok(self.link(name)?.header.index)
    }

    /// Ethernet address of a device.
    ///
    /// # Errors
    /// [`Error::Netlink`] when there is none of that name, [`Error::Missing`] when it has no address.
    pub fn mac(&self, name: &str) -> Result<Mac> {
        self.link(name)?
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Address(address) => address.as_slice().try_into().ok(),
                _ => None,
            })
            .ok_or_else(|| Error::Missing(format!("Ethernet address of {name}")))
    }

    fn link(&self, name: &str) -> Result<LinkMessage> {
        let what = format!("device {name}");
        let mut links = self.handle.link().get().match_name(name.to_owned()).execute();
        self.runtime
            .block_on(links.try_next())
            .context(what.clone())?
            .filter(|link| link.header.interface_family == AddressFamily::Unspec)
            .ok_or(Error::Missing(what))
    }

    fn add_link(&self, name: &str, message: LinkMessage) -> Result<()> {
        self.runtime.block_on(self.handle.link().add(message).execute()).context(format!("making {name}"))
    }

    fn change(&self, what: &str, message: LinkMessage) -> Result<()> {
        self.runtime.block_on(self.handle.link().set(message).execute()).context(what)
    }
}

/// A VXLAN device's tunnel.
pub struct Vxlan<'a> {
    /// Its VNI.
    pub vni: u32,
    /// UDP port of the tunnel.
    pub port: u16,
    /// Underlay device.
    pub device: &'a str,
    /// This node's VTEP.
    pub local: Option<Ipv4Addr>,
}
