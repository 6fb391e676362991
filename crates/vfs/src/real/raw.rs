//! The calls that the compiler cannot check: memory mapping, early write-back, and who else has a file open. The only unsafe
//! code of the crate.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;

/// A file's bytes as memory, for as long as this lives.
#[derive(Debug)]
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

impl Mapping {
    /// What of the file is not in memory now, in whole pages; the last one may reach beyond its end. Where the kernel does not
    /// tell, all is.
    pub(super) fn absent(&self) -> Vec<Range<u64>> {
        let page = rustix::param::page_size();
        let mut pages = vec![1; self.0.len().div_ceil(page)];
        // SAFETY: the range is that of the mapping, and there is a byte for each of its pages. Where the call fails they stay
        // as they are.
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

/// Tells the kernel that these bytes are the first to make way when memory is wanted. They stay what they are and where
/// they are until then; whoever touches them makes them young again.
#[cfg(target_os = "linux")]
pub(crate) fn first_to_go(bytes: &[u8]) {
    let page = rustix::param::page_size();
    let start = (bytes.as_ptr() as usize).next_multiple_of(page);
    let end = (bytes.as_ptr() as usize + bytes.len()) / page * page;
    if start < end {
        // SAFETY: the range lies within bytes that are borrowed, so it is mapped; the advice changes no byte of it and takes
        // no access away. A kernel that does not know it says so, which is as good as no memory being wanted.
        let _ = unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_COLD) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn first_to_go(_bytes: &[u8]) {}

/// Whether nobody but this handle has a file open or mapped, in this process or another; `false` where that is not told.
#[cfg(target_os = "linux")]
pub(super) fn is_alone(file: &File) -> bool {
    use std::os::fd::AsRawFd;
    let fd = file.as_raw_fd();
    // Whoever opened the file while the lease is held would have a signal sent here: one that is ignored, not the one that
    // ends a process.
    // SAFETY: the descriptor is open while `file` is borrowed; the calls take no pointers. A lease is given only to the one
    // holder of a file, mappings counted, and is given back at once: nothing but the answer is wanted.
    unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) == 0
            && libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) == 0
    }
}

/// `fcntl(2)`; the same on every architecture that Rust knows.
#[cfg(target_os = "linux")]
const F_SETSIG: libc::c_int = 10;

#[cfg(not(target_os = "linux"))]
pub(super) fn is_alone(_file: &File) -> bool {
    false
}

/// Has the medium take a range's dirty pages, and waits until it has if that is `awaited`. Neither a flush nor metadata:
/// nothing is durable by it, and the next `fdatasync` has less to do.
#[cfg(target_os = "linux")]
pub(super) fn write_back(file: &File, range: Range<u64>, awaited: bool) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (offset, len) =
        (range.start as libc::off64_t, range.end.saturating_sub(range.start) as libc::off64_t);
    if len == 0 {
        // For the kernel that would be all of the file.
        return Ok(());
    }
    let flags = match awaited {
        true => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
        false => libc::SYNC_FILE_RANGE_WRITE,
    };
    // SAFETY: the descriptor is open while `file` is borrowed; the call takes no pointers.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) };
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
pub(super) fn write_back(file: &File, _range: Range<u64>, awaited: bool) -> io::Result<()> {
    if awaited { file.sync_data() } else { Ok(()) }
}
