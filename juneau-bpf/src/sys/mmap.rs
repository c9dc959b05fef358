//! Array maps in this process's memory: atomic words that programs use at the same time.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32};

use super::map::RawMap;

/// The values of an ARRAY with `BPF_F_MMAPABLE`, mapped shared. Whole words are read and changed atomically.
#[derive(Debug)]
pub(crate) struct MappedArray {
    start: NonNull<u8>,
    /// Bytes mapped.
    length: usize,
    /// Bytes of all values.
    used: usize,
}

// SAFETY: the memory belongs to the kernel's map, is reachable from every thread, and is only touched through atomics.
unsafe impl Send for MappedArray {}
// SAFETY: as above.
unsafe impl Sync for MappedArray {}

impl MappedArray {
    pub(crate) fn new(map: &RawMap) -> io::Result<Self> {
        let info = map.info();
        // Array elements are aligned to 8 bytes in the kernel.
        let used = (info.value_size as usize).next_multiple_of(8) * info.max_entries as usize;
        // SAFETY: sysconf has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let length = used.next_multiple_of(page);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                std::os::fd::AsFd::as_fd(map).as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, length, used })
    }

    /// The 32-bit word at this byte offset; none beyond the map or unaligned.
    pub(crate) fn word(&self, offset: usize) -> Option<&AtomicU32> {
        (offset.is_multiple_of(4) && offset.checked_add(4)? <= self.used).then(|| {
            // SAFETY: inside the mapping, aligned (mappings begin at a page), alive as long as `self`, and only ever
            // accessed atomically.
            unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
        })
    }

    /// The signed 64-bit word at this byte offset; none beyond the map or unaligned.
    pub(crate) fn long(&self, offset: usize) -> Option<&AtomicI64> {
        (offset.is_multiple_of(8) && offset.checked_add(8)? <= self.used).then(|| {
            // SAFETY: as in `word`.
            unsafe { AtomicI64::from_ptr(self.start.as_ptr().add(offset).cast()) }
        })
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
