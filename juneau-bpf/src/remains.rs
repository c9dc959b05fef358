//! What loads have left on a node, for who wants to take it all away: found and removed without a program of one's own.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::attach::{AttachPoint, MARK, Mechanism, clsact, kernel_error};
use crate::bpffs::{Lock, PinRoot};
use crate::dataplane::Constants;
use crate::error::{Error, Result};
use crate::failpoint::Operation;
use crate::sys;
use crate::sys::link::Target;
use crate::tables::KernelTables;

/// What every name of ours begins with: of a map, of a program, and of their pins.
const PREFIX: &str = "jn_";

/// A pin directory, of which no [`Dataplane`](crate::Dataplane) is open meanwhile.
#[derive(Debug)]
pub struct Remains {
    root: PinRoot,
    /// What libbpf's filters want as a program where none matters.
    directory: File,
    _lock: Lock,
}

/// A place where a program runs, or ran.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remainder {
    /// Where.
    pub point: AttachPoint,
    /// By what means.
    pub mechanism: Mechanism,
    /// The device; 0 for the cgroup, and for a device that is gone.
    pub ifindex: u32,
    /// The pin that stands for it.
    pub pin: PathBuf,
}

impl Remains {
    /// Opens a pin directory; none when it does not exist.
    ///
    /// # Errors
    /// [`Error::InUse`] when a process has it, [`Error::NotBpffs`], and the kernel's.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let error = || Error::kernel(Operation::PinRead, path.to_string_lossy().into_owned());
        match File::open(path) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(other) => Err(error()(other)),
            Ok(directory) => {
                let root = PinRoot::open(path)?;
                let lock = root.lock()?;
                Ok(Some(Self { root, directory, _lock: lock }))
            }
        }
    }

    /// Everything of ours that is attached, by its pins. What is pinned below `links/` and is none of ours is not
    /// among it; see [`Remains::foreign`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn attachments(&self) -> Result<Vec<Remainder>> {
        let names = self.root.list(&self.root.links())?;
        names.iter().filter_map(|name| self.attachment(name).transpose()).collect()
    }

    fn attachment(&self, name: &str) -> Result<Option<Remainder>> {
        let pin = self.root.links().join(name);
        // A replacement that was cut short has a pin of its own.
        let whole = name.strip_suffix('~').unwrap_or(name);
        if let Some((point, ifindex)) = whole.rsplit_once(MARK) {
            let (Some(point), Ok(ifindex)) = (AttachPoint::from_pin_name(point), ifindex.parse()) else {
                return Ok(None);
            };
            let ifindex = if self.filter_is_ours(ifindex) { ifindex } else { 0 };
            return Ok(Some(Remainder { point, mechanism: Mechanism::Clsact, ifindex, pin }));
        }
        let Some(point) = AttachPoint::from_pin_name(whole) else { return Ok(None) };
        // A program or map of somebody else under such a name is no link, and says so.
        let Ok(Some(link)) = self.root.get(&pin) else { return Ok(None) };
        let Ok(info) = sys::link::info(link.as_fd()) else { return Ok(None) };
        if !is_ours(info.program) {
            return Ok(None);
        }
        let (mechanism, ifindex) = match info.target {
            Target::Tcx { ifindex } => (Mechanism::Tcx, ifindex),
            _ => (Mechanism::Cgroup, 0),
        };
        Ok(Some(Remainder { point, mechanism, ifindex, pin }))
    }

    fn filter_is_ours(&self, ifindex: u32) -> bool {
        let query = clsact(ifindex, self.directory.as_fd()).ok().and_then(|mut hook| hook.query().ok());
        query.is_some_and(is_ours)
    }

    /// Ends an attachment. When it returns, the program sees no packet any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn detach(&self, remainder: &Remainder) -> Result<()> {
        let Remainder { point, mechanism, ifindex, pin } = remainder;
        let error = || Error::kernel(Operation::LinkDetach, point.to_string());
        match mechanism {
            Mechanism::Clsact if *ifindex != 0 => {
                let mut hook = clsact(*ifindex, self.directory.as_fd()).map_err(error())?;
                hook.detach().map_err(|source| error()(kernel_error(&source)))?;
            }
            Mechanism::Clsact => {}
            _ => {
                if let Some(link) = self.root.get(pin)? {
                    // A link whose device is gone cannot be detached again.
                    match sys::link::detach(link.as_fd()) {
                        Err(gone) if matches!(gone.raw_os_error(), Some(libc::ENOLINK)) => {}
                        other => other.map_err(error())?,
                    }
                }
            }
        }
        self.root.unpin(pin)
    }

    /// Directories of maps and programs: of every ABI that has one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn loads(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for abi in self.root.abis()? {
            let directory = self.root.abi(abi);
            let is_ours = |name: &String| name.starts_with(PREFIX) || name.starts_with("gen-");
            if self.root.list(&directory)?.iter().all(is_ours) {
                found.push(directory);
            }
        }
        Ok(found)
    }

    /// Next hops of other nodes, as the tables of all loads have them.
    ///
    /// # Errors
    /// The kernel's. Tables of another layout are left out.
    pub fn next_hops(&self) -> Result<BTreeSet<Ipv4Addr>> {
        let mut all = BTreeSet::new();
        for directory in self.loads()? {
            let Ok(tables) = KernelTables::pinned(&self.root, &directory) else { continue };
            let Ok(tables) = juneau_core::tables::TablesMut::snapshot(&tables) else { continue };
            all.extend(tables.vteps.values().map(|vtep| juneau_core::layout::ipv4(vtep.next_hop)));
        }
        Ok(all)
    }

    /// Removes one of [`Remains::loads`], our mark in it last: what a crash leaves is still known as ours.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_load(&self, directory: &Path) -> Result<()> {
        for name in self.root.list(directory)?.iter().filter(|name| *name != Constants::PIN) {
            let path = directory.join(name);
            if path.is_dir() { self.root.remove(&path)? } else { self.root.unpin(&path)? }
        }
        self.root.remove(directory)
    }

    /// What else lies in the directory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn foreign(&self) -> Result<Vec<PathBuf>> {
        let (loads, links) = (self.loads()?, self.root.links());
        let mut found: Vec<PathBuf> =
            self.root.list(self.root.path())?.into_iter().map(|name| self.root.path().join(name)).collect();
        found.retain(|path| *path != links && !loads.contains(path));
        let ours: Vec<PathBuf> = self.attachments()?.into_iter().map(|remainder| remainder.pin).collect();
        let others = self.root.list(&links)?.into_iter().map(|name| links.join(name));
        found.extend(others.filter(|path| !ours.contains(path)));
        Ok(found)
    }

    /// Removes the directory itself, once nothing is left in it; whether it is gone.
    ///
    /// # Errors
    /// The kernel's.
    pub fn close(self) -> Result<bool> {
        let is_empty = |directory: &Path| self.root.list(directory).map(|names| names.is_empty());
        if is_empty(&self.root.links())? {
            self.root.remove(&self.root.links())?;
        }
        if !is_empty(self.root.path())? {
            return Ok(false);
        }
        self.root.remove(self.root.path())?;
        Ok(true)
    }
}

/// Whether a program has a name of ours. One that is gone has none.
fn is_ours(program: u32) -> bool {
    let info = sys::prog::by_id(program).and_then(|fd| sys::prog::info(fd.as_fd()));
    info.is_ok_and(|info| info.name.starts_with(PREFIX))
}
