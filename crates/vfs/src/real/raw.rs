//! System calls that the compiler cannot check: memory mapping, early write-back, detection of other openers of a
//! file. This is the only unsafe code of the crate.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;

/// A file mapped into memory for the lifetime of this value.
#[derive(Debug)]
pub(super) struct Mapping(memmap2::Mmap);

impl Mapping {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the bytes may be lent as `&[u8]` only if nobody changes or cuts the file meanwhile. Callers of
        // `vfs::File::map` guarantee that: Polynya maps only files that are never changed after they got their final
        // name, and removing the name leaves the mapping intact. A person who edits the data directory of a running
        // server can still break it, as with every program that maps its files.
        Ok(Mapping(unsafe { memmap2::Mmap::map(file)? }))
    }
}

impl Mapping {
    /// The ranges of the file that are not in the page cache now, in whole pages. The last range may reach beyond the
    /// file's end. Empty if the kernel does not tell.
    pub(super) fn absent(&self) -> Vec<Range<u64>> {
        let page = rustix::param::page_size();
        let mut pages = vec![1; self.0.len().div_ceil(page)];
        // SAFETY: the range is that of the mapping, and `pages` has a byte for each of its pages. If the call fails,
        // `pages` stays unchanged.
        unsafe { libc::mincore(self.0.as_ptr().cast_mut().cast(), self.0.len(), pages.as_mut_ptr()) };
        let mut absent: Vec<Range<u64>> = Vec::new();
        for (at, _) in pages.iter().enumerate().filter(|(_, there)| **there & 1 == 0) {
            let (start, end) = ((at * page) as u64, ((at + 1) * page) as u64);
            match absent.last_mut() {
                Some(gap) if gap.end == start => gap.end = end,
                _ => absent.push(start..end),
            }
        }
        absent
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Tells the kernel to reclaim these bytes before others when memory is short. They stay cached and valid until then.
/// A later access makes them as recent as any other page.
#[cfg(target_os = "linux")]
pub(crate) fn advise_cold(bytes: &[u8]) {
    let page = rustix::param::page_size();
    let start = (bytes.as_ptr() as usize).next_multiple_of(page);
    let end = (bytes.as_ptr() as usize + bytes.len()) / page * page;
    if start < end {
        // SAFETY: the range lies within borrowed bytes, so it is mapped. The advice changes no byte of it and revokes
        // no access. An error of a kernel that does not know the advice can be ignored.
        let _ = unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_COLD) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn advise_cold(_bytes: &[u8]) {}

/// Returns true if only this handle has the file open or mapped, over all processes. Returns false if the kernel does
/// not tell.
#[cfg(target_os = "linux")]
pub(super) fn has_sole_handle(file: &File) -> bool {
    use std::os::fd::AsRawFd;
    let fd = file.as_raw_fd();
    // While the lease is held, an open by another process sends a signal to this one. It is set to a signal that is
    // ignored, because the default one ends the process. SAFETY: the descriptor is open while `file` is borrowed; the
    // calls take no pointers. The kernel grants a write lease only if no other handle or mapping of the file exists.
    // The lease is released at once: only the kernel's answer matters.
    unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) == 0
            && libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) == 0
    }
}

/// The constant of `fcntl(2)`; it has this value on every architecture that Rust supports.
#[cfg(target_os = "linux")]
const F_SETSIG: libc::c_int = 10;

#[cfg(not(target_os = "linux"))]
pub(super) fn has_sole_handle(_file: &File) -> bool {
    false
}

/// Starts writing a range's dirty pages to the medium, and waits for the end if `awaited`. This neither flushes the
/// medium nor writes metadata. Nothing becomes durable by it, but the next `fdatasync` has less to do.
#[cfg(target_os = "linux")]
pub(super) fn write_back(file: &File, range: Range<u64>, awaited: bool) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (offset, len) =
        (range.start as libc::off64_t, range.end.saturating_sub(range.start) as libc::off64_t);
    if len == 0 {
        // The kernel takes a length of 0 as the whole file.
        return Ok(());
    }
    let flags = if awaited {
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER
    } else {
        libc::SYNC_FILE_RANGE_WRITE
    };
    // SAFETY: the descriptor is open while `file` is borrowed; the call takes no pointers.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) };
    if result == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // The call is only a hint; file systems that do not support it write at the next sync.
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
pub(super) fn write_back(file: &File, _range: Range<u64>, awaited: bool) -> io::Result<()> {
    if awaited { file.sync_data() } else { Ok(()) }
}
