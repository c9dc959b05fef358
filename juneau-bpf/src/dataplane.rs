//! One load of the programs, and the maps that all loads share.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use juneau_core::layout::{self, Config, Seeds, be32};

use crate::attach::Attacher;
use crate::bpffs::{Lock, PinRoot, escape, pin_all};
use crate::clock::Clock;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::failpoint::{Failpoints, Operation};
use crate::flows::Flows;
use crate::generation::{Generations, HotLine};
use crate::object::{Loaded, MapSizes, Maps, Opened, SHARED};
use crate::sweep::Sweeper;
use crate::sys;
use crate::sys::map::RawMap;
use crate::tables::KernelTables;

/// What the programs must know of their node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeConfig {
    /// The node's address on the underlay.
    pub vtep: Ipv4Addr,
    /// The underlay device.
    pub underlay_ifindex: u32,
    /// The VXLAN device, for what the fast way cannot take.
    pub vxlan_ifindex: u32,
    /// UDP port of VXLAN.
    pub vxlan_port: u16,
}

/// How programs are attached to devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AttachMode {
    /// TCX where the kernel has it (6.6), else clsact.
    #[default]
    Best,
    /// clsact, whatever the kernel has.
    Clsact,
}

/// What [`Dataplane::open`] needs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// A directory in a bpffs, by convention `juneau` in its root. It is created.
    pub pin_root: PathBuf,
    /// The node.
    pub node: NodeConfig,
    /// Sizes of maps that do not exist yet.
    pub sizes: MapSizes,
    /// Seeds of the flow hash for a pin directory that has none yet; by default random.
    pub seeds: Option<Seeds>,
    /// The programs' stamps come from [`HotLine::set_clock`] instead of the kernel.
    pub test_clock: bool,
    /// How to attach.
    pub attach: AttachMode,
    /// Is told of every write to the kernel.
    pub failpoints: Failpoints,
    /// ABI number of the object: the name of its directory.
    pub abi: u32,
    /// The object file; by default the one that this crate was built with.
    pub object: &'static [u8],
}

impl Options {
    /// The defaults for a node.
    #[must_use]
    pub fn new(pin_root: impl Into<PathBuf>, node: NodeConfig) -> Self {
        Self {
            pin_root: pin_root.into(),
            node,
            sizes: MapSizes::default(),
            seeds: None,
            test_clock: false,
            attach: AttachMode::default(),
            failpoints: Failpoints::default(),
            abi: layout::ABI,
            object: crate::OBJECT,
        }
    }
}

/// Which load a program or link belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadId {
    /// The ABI number of its maps.
    pub abi: u32,
    /// Its number among the loads of that ABI, from 1.
    pub generation: u32,
}

impl std::fmt::Display for LoadId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "abi-{}/gen-{}", self.abi, self.generation)
    }
}

/// Seeds and clock rate: what must be the same in every load that shares flows. Lies in a map of its own beside the
/// shared ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub(crate) struct Constants {
    seed1: u64,
    seed2: u64,
    hz: u32,
    zero: u32,
}

impl Constants {
    /// Name of the pin.
    pub(crate) const PIN: &'static str = "jn_constants";

    pub(crate) fn seeds(&self) -> Seeds {
        Seeds { first: self.seed1, second: self.seed2 }
    }

    pub(crate) fn hz(&self) -> u32 {
        self.hz
    }

    /// Reads what is pinned.
    pub(crate) fn read(root: &PinRoot, directory: &Path) -> Result<Option<(Self, RawMap)>> {
        let path = directory.join(Self::PIN);
        let Some(fd) = root.get(&path)? else { return Ok(None) };
        let error = || Error::kernel(Operation::MapRead, path.to_string_lossy().into_owned());
        let map = RawMap::from_fd(fd).map_err(error())?;
        let mut constants = Self::default();
        map.lookup(&[0; 4], zerocopy::IntoBytes::as_mut_bytes(&mut constants)).map_err(error())?;
        Ok(Some((constants, map)))
    }

    /// Reads what is pinned, or decides and pins. The pin comes last: it is complete or absent.
    fn establish(root: &PinRoot, directory: &Path, seeds: Option<Seeds>) -> Result<(Self, RawMap)> {
        if let Some(found) = Self::read(root, directory)? {
            return Ok(found);
        }
        let error = |operation| Error::kernel(operation, Self::PIN);
        let random = || sys::file::random().map_err(error(Operation::Probe));
        let seeds = match seeds {
            Some(seeds) => seeds,
            None => Seeds { first: random()?, second: random()? },
        };
        let hz = Clock::calibrate()?.hz();
        let constants = Self { seed1: seeds.first, seed2: seeds.second, hz, zero: 0 };
        let size = u32::try_from(size_of::<Self>()).unwrap_or(u32::MAX);
        root.failpoints().before(Operation::MapCreate, Self::PIN).map_err(error(Operation::MapCreate))?;
        let map = RawMap::create(libbpf_sys::BPF_MAP_TYPE_ARRAY, Self::PIN, 4, size, 1, 0)
            .map_err(error(Operation::MapCreate))?;
        map.update(&[0; 4], zerocopy::IntoBytes::as_bytes(&constants), 0).map_err(error(Operation::MapUpdate))?;
        root.pin(map.as_fd(), &directory.join(Self::PIN))?;
        Ok((constants, map))
    }
}

/// The running data path: programs of one load, and the shared maps. Holds the pin directory's lock.
#[derive(Debug)]
pub struct Dataplane {
    pub(crate) root: PinRoot,
    pub(crate) loaded: Loaded,
    pub(crate) attacher: Attacher,
    options: Options,
    load: LoadId,
    constants: Constants,
    config: Config,
    clock: Clock,
    _lock: Lock,
}

impl Dataplane {
    /// Takes over what is pinned, loads the programs as a new generation beside those that run, and pins it. Nothing
    /// runs yet that did not before: see [`Dataplane::adopt_links`] and the `attach` functions.
    ///
    /// # Errors
    /// [`Error::InUse`] when another process has the directory, [`Error::ForeignMap`] when a pinned map is another
    /// than this version would create (nothing was changed then), [`Error::Load`] when the kernel refuses a program,
    /// [`Error::NotBpffs`], and the kernel's.
    pub fn open(options: Options) -> Result<Self> {
        let root = PinRoot::create(&options.pin_root, options.failpoints.clone())?;
        let lock = root.lock()?;
        let directory = root.abi(options.abi);
        let mut object = Opened::new(options.object, &options.sizes)?;
        let shared = object.adopt(&root, &directory)?;
        root.directory(&directory)?;
        root.directory(&root.links())?;
        let (constants, marker) = Constants::establish(&root, &directory, options.seeds)?;
        let clock = Clock::new(constants.hz)?;
        let vpc_capacity = object.max_entries("jn_vpcs")?;
        let config = configuration(&options, &constants, vpc_capacity);

        root.failpoints()
            .before(Operation::Load, "the object")
            .map_err(Error::kernel(Operation::Load, "the object"))?;
        let loaded = object.load(&config, &shared)?;
        let new = loaded.maps.iter().filter(|(name, _)| SHARED.contains(&name.as_str()) && !shared.contains_key(*name));
        pin_all(&root, &directory, new.map(|(name, map)| (name.as_str(), map.as_fd())))?;

        // A generation that a crash left half pinned is never taken up again: this one gets a number of its own.
        let generation = root.generations(options.abi)?.last().map_or(1, |last| last + 1);
        let load = LoadId { abi: options.abi, generation };
        let programs = loaded.programs.iter().map(|(name, program)| (name.as_str(), program.fd.as_fd()));
        pin_all(&root, &root.generation(load.abi, load.generation), loaded.own_maps().chain(programs))?;

        let attacher = Attacher::new(options.attach, loaded.program("jn_pod")?.fd.as_fd(), marker);
        tracing::info!(%load, adopted = shared.len(), "loaded");
        Ok(Self { root, loaded, attacher, options, load, constants, config, clock, _lock: lock })
    }

    /// Which load this is.
    #[must_use]
    pub fn load(&self) -> LoadId {
        self.load
    }

    /// The configuration that the programs were loaded with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The seeds of the flow hash.
    #[must_use]
    pub fn seeds(&self) -> Seeds {
        self.constants.seeds()
    }

    /// The programs' clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The tables, to read and to write.
    ///
    /// # Errors
    /// [`Error::WrongLayout`].
    pub fn tables(&self) -> Result<KernelTables> {
        KernelTables::of(&self.loaded.maps, self.failpoints())
    }

    /// The generations.
    ///
    /// # Errors
    /// The kernel's.
    pub fn generations(&self) -> Result<Generations> {
        Generations::of(&self.loaded.maps, self.failpoints())
    }

    /// The words that every packet reads.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hot(&self) -> Result<HotLine> {
        HotLine::of(&self.loaded.maps)
    }

    /// The flow state, to read.
    ///
    /// # Errors
    /// [`Error::WrongLayout`], the kernel's.
    pub fn flows(&self) -> Result<Flows> {
        Flows::of(&self.loaded.maps, self.failpoints(), self.constants.seeds(), self.constants.hz)
    }

    /// The sweep of the flow state.
    ///
    /// # Errors
    /// As [`Dataplane::flows`].
    pub fn sweeper(&self) -> Result<Sweeper> {
        Ok(Sweeper::new(self.flows()?, self.generations()?))
    }

    /// The counters.
    ///
    /// # Errors
    /// [`Error::WrongLayout`].
    pub fn counters(&self) -> Result<Counters> {
        Counters::of(&self.loaded.maps)
    }

    /// Instructions that the verifier walked through, by program.
    pub fn verified_instructions(&self) -> impl Iterator<Item = (&str, u32)> {
        self.loaded.programs.iter().map(|(name, program)| (name.as_str(), program.verified))
    }

    /// The kernel's id of a map, by the name in the object (`jn_hot` for the section `.data.hot`).
    #[must_use]
    pub fn map_id(&self, name: &str) -> Option<u32> {
        self.loaded.maps.get(name).map(|map| map.info().id)
    }

    pub(crate) fn failpoints(&self) -> &Failpoints {
        &self.options.failpoints
    }

    /// Loads the object once more over the same shared maps, with a configuration of its own. Nothing is pinned.
    pub(crate) fn load_beside(&self, change: impl FnOnce(&mut Config)) -> Result<Loaded> {
        let mut config = self.config;
        change(&mut config);
        let shared: Maps = self
            .loaded
            .maps
            .iter()
            .filter(|(name, _)| SHARED.contains(&name.as_str()))
            .map(|(name, map)| (name.clone(), Arc::clone(map)))
            .collect();
        Opened::new(self.options.object, &self.options.sizes)?.load(&config, &shared)
    }

    /// Removes the pins of older loads of this ABI that no link runs any more; returns which.
    ///
    /// # Errors
    /// The kernel's.
    pub fn retire_old_generations(&self) -> Result<Vec<LoadId>> {
        let running: Vec<LoadId> = self.links()?.iter().filter_map(|link| link.load).collect();
        let mut retired = Vec::new();
        for generation in self.root.generations(self.load.abi)? {
            let load = LoadId { abi: self.load.abi, generation };
            if load != self.load && !running.contains(&load) {
                self.root.remove(&self.root.generation(load.abi, generation))?;
                retired.push(load);
            }
        }
        Ok(retired)
    }

    /// ABI numbers of other directories below the pin root. Nothing here touches them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn other_abis(&self) -> Result<Vec<u32>> {
        let mut abis = self.root.abis()?;
        abis.retain(|abi| *abi != self.load.abi);
        Ok(abis)
    }

    /// Detaches everything and removes every pin of every ABI: the node is as before the first load.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(self) -> Result<()> {
        self.detach_all()?;
        self.root.remove(self.root.path())
    }

    /// Path of a pin of this load, for tools that read it by themselves.
    #[must_use]
    pub fn pin_path(&self, name: &str) -> PathBuf {
        let directory = if SHARED.contains(&name) {
            self.root.abi(self.load.abi)
        } else {
            self.root.generation(self.load.abi, self.load.generation)
        };
        directory.join(escape(name))
    }
}

fn configuration(options: &Options, constants: &Constants, vpc_capacity: u32) -> Config {
    /// `BPF_FUNC_get_netns_cookie`.
    const GET_NETNS_COOKIE: u32 = 122;
    /// `BPF_F_ADJ_ROOM_DECAP_L4_UDP`: the decapsulated packet's GSO type loses the tunnel.
    const DECAP_L4_UDP: u32 = 1 << 10;

    let mut flags = 0;
    if options.test_clock {
        flags |= layout::CONFIG_TEST_CLOCK;
    }
    let cookie_known = sys::prog::helper_known(libbpf_sys::BPF_PROG_TYPE_CGROUP_SKB, GET_NETNS_COOKIE);
    let netns_cookie = sys::file::netns_cookie().ok().filter(|_| cookie_known);
    if netns_cookie.is_some() {
        flags |= layout::CONFIG_NETNS_COOKIE;
    }
    if sys::prog::adjust_room_takes(DECAP_L4_UDP).unwrap_or(false) {
        flags |= layout::CONFIG_DECAP_FLAG;
    }
    Config {
        abi: options.abi,
        dry_run: 0,
        vtep: be32(options.node.vtep),
        underlay_ifindex: options.node.underlay_ifindex,
        vxlan_ifindex: options.node.vxlan_ifindex,
        vxlan_port: options.node.vxlan_port.into(),
        vpc_capacity: u16::try_from(vpc_capacity).unwrap_or(u16::MAX),
        hz: constants.hz,
        flags,
        seed1: constants.seed1,
        seed2: constants.seed2,
        netns_cookie: netns_cookie.unwrap_or_default(),
    }
}
