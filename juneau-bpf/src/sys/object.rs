//! What libbpf knows of an opened object and libbpf-rs does not tell.

use libbpf_rs::btf::types::{DataSec, Struct};
use libbpf_rs::btf::{Btf, BtfType};
use libbpf_rs::{AsRawLibbpf, OpenObject};

/// Offset and size of the variable of type `struct NAME` in a data section. libbpf fills offsets in when it opens the
/// object; the file itself has none.
pub(crate) fn variable(object: &OpenObject, section: &str, name: &str) -> Option<(usize, usize)> {
    let pointer = object.as_libbpf_object();
    // SAFETY: the object outlives this function, and nothing changes it meanwhile.
    let btf = Btf::from_bpf_object(unsafe { pointer.as_ref() }).ok()??;
    let section = btf.type_by_name::<DataSec<'_>>(section)?;
    section.iter().find_map(|member| {
        let variable: BtfType<'_> = btf.type_by_id(member.ty)?;
        let of: BtfType<'_> = variable.next_type()?.skip_mods_and_typedefs();
        let is_it = Struct::try_from(of).is_ok() && of.name().is_some_and(|n| n == name);
        is_it.then_some((member.offset as usize, member.size))
    })
}
