//! Loads bpf-src/bench/peers.bpf.c.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, Program};

use crate::error::{Context, Error, Result};
use crate::kernel::{self, Attachment};
use crate::namespace::Namespace;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/peers.bpf.o"));

/// `struct bench_config`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Config {
    /// Device that a wire leads to.
    pub ifindex: u32,
    /// VNI of the only segment.
    pub vni: u32,
    /// This node's address on the underlay.
    pub vtep: Option<Ipv4Addr>,
}

impl Config {
    fn bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        let words =
            [self.ifindex.to_ne_bytes(), self.vni.to_ne_bytes(), self.vtep.unwrap_or(Ipv4Addr::UNSPECIFIED).octets()];
        bytes.copy_from_slice(words.as_flattened());
        bytes
    }
}

/// One load of the peers' object, and what of it is attached.
pub struct PeerObject {
    object: Object,
    attachments: Vec<Attachment>,
}

impl PeerObject {
    /// Loads the named programs only.
    ///
    /// # Errors
    /// [`Error::Bpf`] when the kernel refuses.
    pub fn load(config: &Config, programs: &[&str]) -> Result<Self> {
        let what = "loading the peers' programs";
        let mut open = ObjectBuilder::default().open_memory(OBJECT).context(what)?;
        for mut program in open.progs_mut() {
            let wanted = programs.iter().any(|name| program.name() == *name);
            program.set_autoload(wanted);
        }
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata")
                && let Some(constants) = map.initial_value_mut()
                && let Some(ours) = constants.get_mut(..12)
            {
                ours.copy_from_slice(&config.bytes());
            }
        }
        Ok(Self { object: open.load().context(what)?, attachments: Vec::new() })
    }

    /// Writes one element of a map.
    ///
    /// # Errors
    /// [`Error::Bpf`] when the kernel refuses, [`Error::Missing`] when there is no such map.
    pub fn update(&self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        self.object
            .maps()
            .find(|m| m.name() == map)
            .ok_or_else(|| Error::Missing(format!("map {map}")))?
            .update(key, value, MapFlags::ANY)
            .context(format!("writing to {map}"))
    }

    /// Attaches a program to the ingress of a node's device.
    ///
    /// # Errors
    /// As [`kernel::attach`]; [`Error::Missing`] when the program was not loaded.
    pub fn attach(&mut self, node: &Namespace, program: &str, ifindex: u32) -> Result<()> {
        let found = self.program(program)?;
        let fd = found.as_fd();
        let attachment = node.run(|| kernel::attach(fd, ifindex))?;
        self.attachments.push(attachment);
        Ok(())
    }

    /// The kernel's id of a loaded program.
    ///
    /// # Errors
    /// As [`Self::program`]; [`Error::Bpf`] with the kernel's answer.
    pub fn id(&self, name: &str) -> Result<u32> {
        Program::id_from_fd(self.program(name)?.as_fd()).context(format!("the id of {name}"))
    }

    /// A loaded program.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is none of that name.
    pub fn program(&self, name: &str) -> Result<Program<'_>> {
        self.object
            .progs()
            .find(|p| p.name() == name && p.autoload())
            .ok_or_else(|| Error::Missing(format!("program {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_as_the_programs_see_it() {
        let config = Config { ifindex: 3, vni: 7, vtep: Some(Ipv4Addr::new(192, 168, 9, 1)) };
        let [ifindex, vni] = [3_u32.to_ne_bytes(), 7_u32.to_ne_bytes()];
        assert_eq!(config.bytes(), *[ifindex, vni, [192, 168, 9, 1]].as_flattened());
    }
}
