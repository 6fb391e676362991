//! The calls that the compiler cannot check: memory mapping and early write-back. The only unsafe code of the crate.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

/// A file's bytes as memory, for as long as this lives.
pub(super) struct Mapping(memmap2::Mmap);

impl Mapping {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the bytes may be lent as `&[u8]` only if nobody changes or cuts the file meanwhile. That is the
        // promise a caller of `vfs::File::map` gives, and Polynya maps only files that are never changed after
        // they got their name; removing the name leaves the mapping whole. A person who edits the data directory
        // of a running server can still break it, as with every program that maps its files.
        Ok(Mapping(unsafe { memmap2::Mmap::map(file)? }))
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Writes a range's dirty pages to the medium and waits until they got there. Neither a flush nor metadata: nothing
/// is durable by it, and the next `fdatasync` has less to do.
#[cfg(target_os = "linux")]
pub(super) fn write_back(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open while `file` is borrowed; the call takes no pointers.
    let result = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset as libc::off64_t, len as libc::off64_t, flags)
    };
    if result == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Only an early start was asked for; file systems that know none write at the next sync.
        error
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE | libc::EINTR)
            ) =>
        {
            Ok(())
        }
        error => Err(error),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn write_back(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}
