//! Maps by bytes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What the kernel says of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawInfo {
    pub(crate) id: u32,
    pub(crate) kind: u32,
    pub(crate) name: String,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) flags: u32,
}

/// A map of any type, its elements as bytes.
#[derive(Debug)]
pub(crate) struct RawMap {
    fd: OwnedFd,
    info: RawInfo,
    /// Bytes of one value as user space sees it: per-CPU maps hold one, rounded up to 8, for each possible CPU.
    value_length: usize,
}

/// What one batch command did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Elements that were read or written.
    pub(crate) count: usize,
    /// The error number that ended the command, if one did. `count` elements are done all the same.
    pub(crate) error: Option<i32>,
}

fn wrong_length() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "key or value of a wrong length")
}

impl RawMap {
    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the kernel fills `bpf_map_info` for a map and refuses other descriptors; it has no pointers.
        let raw: libbpf_sys::bpf_map_info = unsafe { super::info(fd.as_fd())? };
        let info = RawInfo {
            id: raw.id,
            kind: raw.type_,
            name: super::name(&raw.name),
            key_size: raw.key_size,
            value_size: raw.value_size,
            max_entries: raw.max_entries,
            flags: raw.map_flags,
        };
        let per_cpu = matches!(
            info.kind,
            libbpf_sys::BPF_MAP_TYPE_PERCPU_ARRAY
                | libbpf_sys::BPF_MAP_TYPE_PERCPU_HASH
                | libbpf_sys::BPF_MAP_TYPE_LRU_PERCPU_HASH
        );
        let size = info.value_size as usize;
        let value_length = if per_cpu {
            let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
            size.next_multiple_of(8) * cpus
        } else {
            size
        };
        Ok(Self { fd, info, value_length })
    }

    pub(crate) fn create(
        kind: u32,
        name: &str,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
    ) -> io::Result<Self> {
        let name = std::ffi::CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: flags,
            ..Default::default()
        };
        // SAFETY: name and options outlive the call.
        let fd = super::owned(unsafe {
            libbpf_sys::bpf_map_create(kind, name.as_ptr(), key_size, value_size, max_entries, &raw const options)
        })?;
        Self::from_fd(fd)
    }

    pub(crate) fn info(&self) -> &RawInfo {
        &self.info
    }

    pub(crate) fn value_length(&self) -> usize {
        self.value_length
    }

    fn key_length(&self) -> usize {
        self.info.key_size as usize
    }

    /// Reads the element at `key`; false: there is none.
    pub(crate) fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        if key.len() != self.key_length() || value.len() != self.value_length {
            return Err(wrong_length());
        }
        // SAFETY: both buffers have the lengths that the map's type prescribes.
        let ret = unsafe {
            libbpf_sys::bpf_map_lookup_elem(self.fd.as_raw_fd(), key.as_ptr().cast(), value.as_mut_ptr().cast())
        };
        found(ret)
    }

    /// Writes an element. `flags`: `BPF_ANY`, `BPF_NOEXIST` or `BPF_EXIST`.
    pub(crate) fn update(&self, key: &[u8], value: &[u8], flags: u64) -> io::Result<()> {
        if key.len() != self.key_length() || value.len() != self.value_length {
            return Err(wrong_length());
        }
        // SAFETY: both buffers have the lengths that the map's type prescribes.
        super::check(unsafe {
            libbpf_sys::bpf_map_update_elem(self.fd.as_raw_fd(), key.as_ptr().cast(), value.as_ptr().cast(), flags)
        })
        .map(drop)
    }

    /// Removes an element; false: there was none.
    pub(crate) fn delete(&self, key: &[u8]) -> io::Result<bool> {
        if key.len() != self.key_length() {
            return Err(wrong_length());
        }
        // SAFETY: the key has the length that the map's type prescribes.
        found(unsafe { libbpf_sys::bpf_map_delete_elem(self.fd.as_raw_fd(), key.as_ptr().cast()) })
    }

    /// Bytes of the token that carries a batch read from one call to the next: a bucket number for hashes, a key for
    /// every other type.
    pub(crate) fn token_length(&self) -> usize {
        self.key_length().max(4)
    }

    /// One `BPF_MAP_LOOKUP_BATCH`: as many elements as fit into `keys` and `values`. `from`: the token that an earlier
    /// call left in `next`; none: from the start.
    pub(crate) fn lookup_batch(
        &self,
        from: Option<&[u8]>,
        next: &mut [u8],
        keys: &mut [u8],
        values: &mut [u8],
    ) -> io::Result<Batch> {
        let mut count = self.elements(keys.len(), values.len())?;
        if next.len() != self.token_length() || from.is_some_and(|t| t.len() != next.len()) {
            return Err(wrong_length());
        }
        let options = batch_options();
        let from = from.map_or(std::ptr::null(), <[u8]>::as_ptr);
        // SAFETY: keys and values hold `count` elements, both tokens are as long as the kernel may read or write.
        let ret = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                self.fd.as_raw_fd(),
                from.cast_mut().cast(),
                next.as_mut_ptr().cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                &raw const options,
            )
        };
        Ok(batch(ret, count))
    }

    /// One `BPF_MAP_UPDATE_BATCH`; elements before an error are written.
    pub(crate) fn update_batch(&self, keys: &[u8], values: &[u8]) -> io::Result<Batch> {
        let mut count = self.elements(keys.len(), values.len())?;
        let options = batch_options();
        // SAFETY: keys and values hold `count` elements.
        let ret = unsafe {
            libbpf_sys::bpf_map_update_batch(
                self.fd.as_raw_fd(),
                keys.as_ptr().cast(),
                values.as_ptr().cast(),
                &raw mut count,
                &raw const options,
            )
        };
        Ok(batch(ret, count))
    }

    /// One `BPF_MAP_DELETE_BATCH`; it ends at the first key that does not exist.
    pub(crate) fn delete_batch(&self, keys: &[u8]) -> io::Result<Batch> {
        if self.key_length() == 0 || !keys.len().is_multiple_of(self.key_length()) {
            return Err(wrong_length());
        }
        let mut count = u32::try_from(keys.len() / self.key_length()).map_err(|_| wrong_length())?;
        let options = batch_options();
        // SAFETY: keys hold `count` elements.
        let ret = unsafe {
            libbpf_sys::bpf_map_delete_batch(
                self.fd.as_raw_fd(),
                keys.as_ptr().cast(),
                &raw mut count,
                &raw const options,
            )
        };
        Ok(batch(ret, count))
    }

    fn elements(&self, keys: usize, values: usize) -> io::Result<u32> {
        let (key, value) = (self.key_length(), self.value_length);
        if key == 0 || value == 0 || !keys.is_multiple_of(key) || keys / key * value != values {
            return Err(wrong_length());
        }
        u32::try_from(keys / key).map_err(|_| wrong_length())
    }
}

impl AsFd for RawMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn found(ret: i32) -> io::Result<bool> {
    match super::check(ret) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn batch_options() -> libbpf_sys::bpf_map_batch_opts {
    libbpf_sys::bpf_map_batch_opts {
        sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as libbpf_sys::size_t,
        ..Default::default()
    }
}

fn batch(ret: i32, count: u32) -> Batch {
    // ENOSPC says that nothing fitted; the count is then the one that went in.
    let error = (ret < 0).then_some(-ret);
    let count = if matches!(error, Some(libc::ENOSPC | libc::EFAULT | libc::EINVAL)) { 0 } else { count as usize };
    Batch { count, error }
}
