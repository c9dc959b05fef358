//! Where programs run: TCX links and clsact filters on devices, a link on the cgroup.
//!
//! A link has a pin below `links/`, and its program is replaced in one step. clsact filters live as long as their
//! device and need no pin; a pin of the constants' map stands for each, with the ifindex in its name, so that it can be
//! found again.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use juneau_core::verdict::Hook;
use libbpf_rs::{TC_INGRESS, TcHook};

use crate::bpffs::{escape, unescape};
use crate::dataplane::{AttachMode, Dataplane, LoadId};
use crate::error::{Error, Result};
use crate::failpoint::Operation;
use crate::sys;
use crate::sys::link::Target;
use crate::sys::map::RawMap;

/// A place where one of our programs runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AttachPoint {
    /// Ingress of a Pod's host veth; the name is the caller's, by convention the device's.
    Pod(String),
    /// Ingress of the underlay device.
    Underlay,
    /// Ingress of the VXLAN device.
    Vxlan,
    /// Ingress of the node port's device.
    NodePort,
    /// Egress of the node's cgroup.
    Cgroup,
}

impl AttachPoint {
    /// The hook whose program runs there.
    #[must_use]
    pub fn hook(&self) -> Hook {
        match self {
            Self::Pod(_) => Hook::Pod,
            Self::Underlay => Hook::Overlay,
            Self::Vxlan => Hook::Vxlan,
            Self::NodePort => Hook::NodePort,
            Self::Cgroup => Hook::Cgroup,
        }
    }

    fn pin_name(&self) -> String {
        match self {
            Self::Pod(name) => format!("pod-{}", escape(name)),
            Self::Underlay => "underlay".to_owned(),
            Self::Vxlan => "vxlan".to_owned(),
            Self::NodePort => "node-port".to_owned(),
            Self::Cgroup => "cgroup".to_owned(),
        }
    }

    pub(crate) fn from_pin_name(name: &str) -> Option<Self> {
        match name {
            "underlay" => Some(Self::Underlay),
            "vxlan" => Some(Self::Vxlan),
            "node-port" => Some(Self::NodePort),
            "cgroup" => Some(Self::Cgroup),
            name => name.strip_prefix("pod-").map(|pod| Self::Pod(unescape(pod))),
        }
    }
}

impl fmt::Display for AttachPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(name) => write!(f, "Pod interface {name}"),
            Self::Underlay => f.write_str("underlay device"),
            Self::Vxlan => f.write_str("VXLAN device"),
            Self::NodePort => f.write_str("node port"),
            Self::Cgroup => f.write_str("cgroup"),
        }
    }
}

/// By what means a program runs somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mechanism {
    /// A TCX link.
    Tcx,
    /// A clsact filter.
    Clsact,
    /// A cgroup link.
    Cgroup,
}

/// One of our programs at work.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attachment {
    /// Where.
    pub point: AttachPoint,
    /// The device; 0 for the cgroup, and for a device that is gone.
    pub ifindex: u32,
    /// By what means.
    pub mechanism: Mechanism,
    /// The kernel's id of the program; 0 when none runs.
    pub program: u32,
    /// The load that the program belongs to; none if no pin of it is left.
    pub load: Option<LoadId>,
}

impl Attachment {
    /// Whether the program still sees packets: the device exists and has it.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.program != 0 && (self.ifindex != 0 || self.point == AttachPoint::Cgroup)
    }
}

/// A program of somebody else that sees a device's packets before ours does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForeignProgram {
    /// The kernel's id; 0 for a filter that is no program.
    pub id: u32,
    /// The kernel's name of the program, or the filter's kind.
    pub name: String,
}

/// The filter's handle and priority: fixed, so that an update replaces it and a query finds it. Priority 1 is the first.
const CLSACT_HANDLE: u32 = 0x4a4e;
const CLSACT_PRIORITY: u32 = 1;

/// Between point and ifindex in the name of a clsact filter's pin.
pub(crate) const MARK: char = '@';

/// How this kernel attaches.
#[derive(Debug)]
pub(crate) struct Attacher {
    tcx: bool,
    marker: RawMap,
}

impl Attacher {
    pub(crate) fn new(mode: AttachMode, program: BorrowedFd<'_>, marker: RawMap) -> Self {
        Self { tcx: mode == AttachMode::Best && sys::link::tcx_known(program), marker }
    }
}

/// What a pin below `links/` stands for.
enum Pinned {
    Link { fd: OwnedFd, info: sys::link::LinkInfo },
    Filter { ifindex: u32 },
}

impl Dataplane {
    /// Lets the program see everything that a Pod sends.
    ///
    /// Attaching again replaces the program in one step; the same name on another device moves there. A TCX link takes
    /// the kernel about 10 ms to create.
    ///
    /// # Errors
    /// The kernel's; `ENODEV` when the device does not exist.
    pub fn attach_pod(&self, name: &str, ifindex: u32) -> Result<()> {
        self.attach_device(&AttachPoint::Pod(name.to_owned()), ifindex)
    }

    /// Lets the program see everything that arrives on the underlay.
    ///
    /// # Errors
    /// As [`Self::attach_pod`].
    pub fn attach_underlay(&self, ifindex: u32) -> Result<()> {
        self.attach_device(&AttachPoint::Underlay, ifindex)
    }

    /// Lets the program see what the VXLAN device decapsulated.
    ///
    /// # Errors
    /// As [`Self::attach_pod`].
    pub fn attach_vxlan(&self, ifindex: u32) -> Result<()> {
        self.attach_device(&AttachPoint::Vxlan, ifindex)
    }

    /// Lets the program see everything that the node sends to Pods.
    ///
    /// # Errors
    /// As [`Self::attach_pod`].
    pub fn attach_node_port(&self, ifindex: u32) -> Result<()> {
        self.attach_device(&AttachPoint::NodePort, ifindex)
    }

    /// Guards the VXLAN port against the sockets of a cgroup: a directory in a cgroup2 mount.
    ///
    /// # Errors
    /// The kernel's.
    pub fn attach_cgroup(&self, path: &Path) -> Result<()> {
        let point = AttachPoint::Cgroup;
        let error = || Error::kernel(Operation::LinkCreate, point.to_string());
        let cgroup = File::open(path).map_err(error())?;
        let id = std::os::unix::fs::MetadataExt::ino(&cgroup.metadata().map_err(error())?);
        let program = self.program(&point)?;
        if let Some(fd) = self.root.get(&self.pin(&point))? {
            let info = link_info(&fd, &point)?;
            if (info.target == Target::Cgroup { id }) {
                return self.update(&point, &fd, info.program);
            }
        }
        self.before(Operation::LinkCreate, &point)?;
        let link = sys::link::create_cgroup(program.fd.as_fd(), cgroup.as_fd()).map_err(error())?;
        self.root.replace(link.as_fd(), &self.pin(&point))
    }

    fn attach_device(&self, point: &AttachPoint, ifindex: u32) -> Result<()> {
        if self.attacher.tcx { self.attach_tcx(point, ifindex) } else { self.attach_clsact(point, ifindex) }
    }

    fn attach_tcx(&self, point: &AttachPoint, ifindex: u32) -> Result<()> {
        let program = self.program(point)?;
        if let Some(fd) = self.root.get(&self.pin(point))? {
            let info = link_info(&fd, point)?;
            if (info.target == Target::Tcx { ifindex }) {
                return self.update(point, &fd, info.program);
            }
        }
        self.before(Operation::LinkCreate, point)?;
        let link = sys::link::create_tcx(program.fd.as_fd(), ifindex)
            .map_err(Error::kernel(Operation::LinkCreate, format!("{point} (ifindex {ifindex})")))?;
        self.root.replace(link.as_fd(), &self.pin(point))?;
        self.detach_filters(point, None)
    }

    fn attach_clsact(&self, point: &AttachPoint, ifindex: u32) -> Result<()> {
        let program = self.program(point)?;
        // The pin comes first: a filter without one would not be found again.
        let pin = self.root.links().join(format!("{}{MARK}{ifindex}", point.pin_name()));
        if !pin.exists() {
            self.root.pin(self.attacher.marker.as_fd(), &pin)?;
        }
        let mut hook =
            clsact(ifindex, program.fd.as_fd()).map_err(device_error(Operation::LinkCreate, point, ifindex))?;
        self.before(Operation::LinkCreate, point)?;
        hook.create()
            .and_then(|mut hook| hook.attach())
            .map_err(|error| device_error(Operation::LinkCreate, point, ifindex)(kernel_error(&error)))?;
        self.root.unpin(&self.pin(point))?;
        self.detach_filters(point, Some(ifindex))
    }

    /// Gives every link that is pinned, of whatever load, this load's program. Pins of devices that are gone are
    /// removed.
    ///
    /// # Errors
    /// The kernel's; links before the failing one have the new program then, the others still the old one.
    pub fn adopt_links(&self) -> Result<Vec<Attachment>> {
        for (point, pin, pinned) in self.pinned()? {
            match pinned {
                Pinned::Link { info: sys::link::LinkInfo { target: Target::Tcx { ifindex: 0 }, .. }, .. } => {
                    self.root.unpin(&pin)?;
                }
                Pinned::Link { fd, info } => self.update(&point, &fd, info.program)?,
                Pinned::Filter { ifindex } if self.filter_program(ifindex).is_some() => {
                    self.attach_clsact(&point, ifindex)?;
                }
                Pinned::Filter { .. } => self.root.unpin(&pin)?,
            }
        }
        self.links()
    }

    fn update(&self, point: &AttachPoint, link: &OwnedFd, present: u32) -> Result<()> {
        let program = self.program(point)?;
        if program.id == present {
            return Ok(());
        }
        self.before(Operation::LinkUpdate, point)?;
        sys::link::update(link.as_fd(), program.fd.as_fd())
            .map_err(Error::kernel(Operation::LinkUpdate, point.to_string()))
    }

    /// Ends an attachment; nothing happens if there is none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn detach(&self, point: &AttachPoint) -> Result<()> {
        // The pin holds the link: it ends with its last reference.
        self.root.unpin(&self.pin(point))?;
        self.detach_filters(point, None)
    }

    pub(crate) fn detach_all(&self) -> Result<()> {
        self.pinned()?.iter().try_for_each(|(point, ..)| self.detach(point))
    }

    /// Removes a point's clsact filters but the one on `keep`.
    fn detach_filters(&self, point: &AttachPoint, keep: Option<u32>) -> Result<()> {
        let prefix = format!("{}{MARK}", point.pin_name());
        for name in self.root.list(&self.root.links())? {
            let Some(ifindex) = name.strip_prefix(&prefix).and_then(|index| index.parse().ok()) else { continue };
            if keep == Some(ifindex) {
                continue;
            }
            let program = self.program(point)?;
            self.before(Operation::LinkDetach, point)?;
            if self.filter_program(ifindex).is_some() {
                let error = device_error(Operation::LinkDetach, point, ifindex);
                let mut hook = match clsact(ifindex, program.fd.as_fd()) {
                    Ok(hook) => hook,
                    Err(source) => return Err(error(source)),
                };
                hook.detach().map_err(|source| error(kernel_error(&source)))?;
            }
            self.root.unpin(&self.root.links().join(name))?;
        }
        Ok(())
    }

    /// Every attachment of ours.
    ///
    /// # Errors
    /// The kernel's.
    pub fn links(&self) -> Result<Vec<Attachment>> {
        let owners = self.program_owners()?;
        let load = |program: u32| owners.iter().find(|(id, _)| *id == program).map(|(_, load)| *load);
        let attachments = self.pinned()?.into_iter().map(|(point, _, pinned)| match pinned {
            Pinned::Link { info, .. } => {
                let (mechanism, ifindex) = match info.target {
                    Target::Tcx { ifindex } => (Mechanism::Tcx, ifindex),
                    Target::Cgroup { .. } | Target::Other { .. } => (Mechanism::Cgroup, 0),
                };
                Attachment { point, ifindex, mechanism, program: info.program, load: load(info.program) }
            }
            Pinned::Filter { ifindex } => {
                let program = self.filter_program(ifindex);
                Attachment {
                    point,
                    ifindex: program.map_or(0, |_| ifindex),
                    mechanism: Mechanism::Clsact,
                    program: program.unwrap_or_default(),
                    load: program.and_then(load),
                }
            }
        });
        Ok(attachments.collect())
    }

    /// Programs of others that see a device's packets before ours. They may drop or change them; who attached them
    /// should attach behind ours.
    ///
    /// # Errors
    /// The kernel's.
    pub fn foreign_programs_ahead(&self, point: &AttachPoint) -> Result<Vec<ForeignProgram>> {
        let links = self.links()?;
        links.iter().find(|link| link.point == *point).map_or_else(|| Ok(Vec::new()), Self::foreign_programs_ahead_of)
    }

    /// The same for one of [`Dataplane::links`], which costs much to list.
    ///
    /// # Errors
    /// The kernel's.
    pub fn foreign_programs_ahead_of(link: &Attachment) -> Result<Vec<ForeignProgram>> {
        if !link.is_live() || link.ifindex == 0 {
            return Ok(Vec::new());
        }
        let point = &link.point;
        let chain = match sys::link::query_tcx(link.ifindex) {
            Ok(chain) => chain,
            // Before 6.6 there is no chain.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Vec::new(),
            Err(error) => return Err(device_error(Operation::LinkRead, point, link.ifindex)(error)),
        };
        let ahead = chain.into_iter().take_while(|id| *id != link.program);
        let mut ahead: Vec<_> = ahead.map(|id| ForeignProgram { id, name: program_name(id) }).collect();
        // The whole chain comes before clsact.
        if link.mechanism == Mechanism::Clsact {
            let filters = crate::filters::ingress(link.ifindex).map_err(device_error(
                Operation::LinkRead,
                point,
                link.ifindex,
            ))?;
            let filters = filters.into_iter().take_while(|filter| filter.program != Some(link.program));
            ahead.extend(filters.map(|filter| match filter.program {
                Some(id) => ForeignProgram { id, name: program_name(id) },
                None => ForeignProgram { id: 0, name: filter.kind },
            }));
        }
        Ok(ahead)
    }

    fn pinned(&self) -> Result<Vec<(AttachPoint, PathBuf, Pinned)>> {
        let mut found = Vec::new();
        let directory = self.root.links();
        for name in self.root.list(&directory)? {
            let pin = directory.join(&name);
            if let Some((point, ifindex)) = name.rsplit_once(MARK) {
                if let (Some(point), Ok(ifindex)) = (AttachPoint::from_pin_name(point), ifindex.parse()) {
                    found.push((point, pin, Pinned::Filter { ifindex }));
                }
            } else if let Some(point) = AttachPoint::from_pin_name(&name) {
                let Some(fd) = self.root.get(&pin)? else { continue };
                let info = link_info(&fd, &point)?;
                found.push((point, pin, Pinned::Link { fd, info }));
            }
        }
        Ok(found)
    }

    /// Ids of all programs that any load has pinned.
    fn program_owners(&self) -> Result<Vec<(u32, LoadId)>> {
        let mut owners = Vec::new();
        for abi in self.root.abis()? {
            for generation in self.root.generations(abi)? {
                let directory = self.root.generation(abi, generation);
                for name in ["jn_pod", "jn_overlay", "jn_vxlan", "jn_node", "jn_cgroup"] {
                    let Some(fd) = self.root.get(&directory.join(name))? else { continue };
                    let info = sys::prog::info(fd.as_fd()).map_err(Error::kernel(Operation::LinkRead, name))?;
                    owners.push((info.id, LoadId { abi, generation }));
                }
            }
        }
        Ok(owners)
    }

    /// The program of our filter on a device; none if there is no filter, or no device.
    fn filter_program(&self, ifindex: u32) -> Option<u32> {
        // A query ignores the program, but the type wants one.
        let any = self.loaded.programs.values().next()?;
        clsact(ifindex, any.fd.as_fd()).ok()?.query().ok()
    }

    fn program(&self, point: &AttachPoint) -> Result<&crate::object::Program> {
        self.loaded.program(program_of(point.hook()))
    }

    fn pin(&self, point: &AttachPoint) -> PathBuf {
        self.root.links().join(point.pin_name())
    }

    fn before(&self, operation: Operation, point: &AttachPoint) -> Result<()> {
        let text = point.to_string();
        self.failpoints().before(operation, &text).map_err(Error::kernel(operation, text))
    }
}

/// The object's program for a hook.
pub(crate) fn program_of(hook: Hook) -> &'static str {
    match hook {
        Hook::Overlay => "jn_overlay",
        Hook::Vxlan => "jn_vxlan",
        Hook::NodePort => "jn_node",
        Hook::Cgroup => "jn_cgroup",
        _ => "jn_pod",
    }
}

fn link_info(fd: &OwnedFd, point: &AttachPoint) -> Result<sys::link::LinkInfo> {
    sys::link::info(fd.as_fd()).map_err(Error::kernel(Operation::LinkRead, point.to_string()))
}

fn program_name(id: u32) -> String {
    sys::prog::by_id(id).and_then(|fd| sys::prog::info(fd.as_fd())).map_or_else(|_| String::new(), |info| info.name)
}

pub(crate) fn clsact(ifindex: u32, program: BorrowedFd<'_>) -> io::Result<TcHook> {
    let ifindex = i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    let mut hook = TcHook::new(program);
    hook.ifindex(ifindex).attach_point(TC_INGRESS).handle(CLSACT_HANDLE).priority(CLSACT_PRIORITY).replace(true);
    Ok(hook)
}

fn device_error(operation: Operation, point: &AttachPoint, ifindex: u32) -> impl FnOnce(io::Error) -> Error + use<> {
    Error::kernel(operation, format!("{point} (ifindex {ifindex})"))
}

/// The error number inside an error of libbpf-rs.
pub(crate) fn kernel_error(error: &libbpf_rs::Error) -> io::Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(errno);
        }
        source = error.source();
    }
    io::Error::other(error.to_string())
}
