//! The real machine: its file systems, clocks and random numbers.

mod raw;
pub(crate) use raw::advise_cold;
#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rustix::fs::{Advice, FallocateFlags, FlockOperation};

use crate::clock::{Clock, Micros};
use crate::disk::{Access, Dir, Disk, Entry, File, Lock};
use crate::random::Random;

/// The largest number of bytes that [`File::allocate`] has on its way to the medium at once.
const ALLOCATE_STEP_BYTES: usize = 1 << 20;

/// The zeros that [`File::allocate`] writes. All calls share them; they are never changed, so they stay in the
/// binary's zero pages.
static ZEROS: Zeros = Zeros([0; ALLOCATE_STEP_BYTES]);

/// The buffer is aligned to a block, because direct I/O requires that.
#[repr(align(4096))]
struct Zeros([u8; ALLOCATE_STEP_BYTES]);

/// The alignment of direct writes: a multiple of the block size of most media.
const BLOCK_BYTES: u64 = align_of::<Zeros>() as u64;

/// Bytes of a large removed file that are freed in one step. If the file system tells the medium about freed space
/// (`discard`), freeing takes a millisecond for each MiB and blocks other writes: a sync of the log would wait for the
/// whole file.
const FREE_STEP_BYTES: u64 = 2 << 20;

/// Bytes of a [`Access::ReadOnce`] file that are read, and held in the page cache, at a time.
const ONCE_STEP_BYTES: usize = 256 << 10;

/// The largest unit in which the kernel caches a file: a huge page of x86-64 and of most other machines.
const BEHIND_BYTES: u64 = 2 << 20;

/// The mode of new files: only the owner has access, whatever the umask says. (A umask can only remove bits.)
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// The greatest number of parts that one `pwritev` takes (Linux: `UIO_MAXIOV`).
const PARTS_MAX: usize = 1024;

/// Opens a file that is large enough to be freed in steps, and returns its length.
fn large_file(path: &Path) -> Option<(fs::File, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    if !found.is_file() || found.len() <= 2 * FREE_STEP_BYTES {
        return None;
    }
    let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path).ok()?;
    Some((file, found.len()))
}

/// Frees the space of a file without a name in steps, from its end. Does nothing if another handle or mapping of the
/// file exists; the last of those frees the space.
fn free_in_steps(file: &fs::File, len: u64) {
    use std::os::unix::fs::MetadataExt;
    let has_a_name = file.metadata().map_or(true, |found| found.nlink() > 0);
    if has_a_name || !raw::has_sole_handle(file) {
        return;
    }
    let mut left = len;
    while left > FREE_STEP_BYTES {
        left -= FREE_STEP_BYTES;
        if file.set_len(left).is_err() {
            return;
        }
    }
}

/// The file systems of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?;
        Ok(Arc::new(RealFile { file, once: None }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let file = OpenOptions::new().read(true).write(access == Access::ReadWrite).open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let mut once = None;
        // The kernel refuses to map an empty range.
        if access == Access::ReadOnce && file.metadata()?.len() > 0 {
            once = Some(raw::Mapping::new(&file)?.absent());
        }
        Ok(Arc::new(RealFile { file, once }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        // The open handle keeps the space until `free_in_steps` releases it in steps. Without a handle all of it is
        // freed at once.
        let large = large_file(path);
        fs::remove_file(path)?;
        if let Some((file, len)) = large {
            free_in_steps(&file, len);
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDir::open(path)?.sync()
    }

    fn open_dir(&self, path: &Path) -> io::Result<Option<Arc<dyn Dir>>> {
        Ok(Some(Arc::new(RealDir::open(path)?)))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // The entry was removed after the directory was read, so it is no longer in it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // All names that Polynya gives are ASCII. Other programs' names are only displayed, so a lossy conversion
            // is enough.
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_dir = metadata.is_dir();
            entries.push(Entry { name, len: if is_dir { 0 } else { metadata.len() }, is_dir });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match fs::metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        // `f_bavail` is used instead of `f_bfree`, because the blocks reserved for root cannot be relied on.
        let stat = rustix::fs::statvfs(path)?;
        // Some file systems do not report their free space.
        let is_reported = stat.f_blocks > 0;
        Ok(if is_reported { stat.f_bavail.saturating_mul(stat.f_frsize) } else { u64::MAX })
    }

    /// Takes the lock by `flock`, not `fcntl`. An `flock` belongs to the open file: a second open in the same process
    /// is refused too, and closing another handle of the file does not release it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(RealLock { file }))
    }
}

/// A held lock file. Dropping it unlocks explicitly. Closing the file is not enough: a program that another thread
/// starts at that moment briefly has a copy of the handle, and the kernel releases the lock only with the last one.
#[derive(Debug)]
struct RealLock {
    file: fs::File,
}

impl Drop for RealLock {
    fn drop(&mut self) {
        // If unlocking fails, closing the file still releases the lock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl Lock for RealLock {}

#[derive(Debug)]
struct RealDir(fs::File);

impl RealDir {
    fn open(path: &Path) -> io::Result<Self> {
        // `Path::parent` returns the empty path for a bare file name.
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Ok(RealDir(OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path)?))
    }
}

impl Dir for RealDir {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    /// For [`Access::ReadOnce`]: the ranges, in whole pages, that were not in the page cache when the file was opened.
    once: Option<Vec<Range<u64>>>,
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.once {
            Some(absent) => self.read_once(absent, buf, offset),
            None => self.file.read_exact_at(buf, offset),
        }
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total == 0 {
            return Ok(());
        }
        // Nearly always the kernel takes all bytes in the first call, and then `parts` need not be copied.
        let mut written = self.write_some(&parts[..parts.len().min(PARTS_MAX)], offset)?;
        if written == total {
            return Ok(());
        }
        let mut rest = parts.to_vec();
        let mut rest = &mut rest[..];
        IoSlice::advance_slices(&mut rest, written);
        while written < total {
            let n = self.write_some(&rest[..rest.len().min(PARTS_MAX)], offset + written as u64)?;
            IoSlice::advance_slices(&mut rest, n);
            written += n;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write_back(&self, range: Range<u64>, awaited: bool) -> io::Result<()> {
        raw::write_back(&self.file, range, awaited)
    }

    /// Writes zeros, because `fallocate` alone would not suffice: it reserves blocks but marks them *unwritten*, and
    /// the first write to each turns its extent into a written one, which is a change of metadata. A log file prepared
    /// that way pays a journal commit beside the flush in every `fdatasync`. Writing zeros pays for all of it now, on
    /// the thread that prepares files. `fallocate` still comes first: it detects a full disk at once, and gets few,
    /// long extents.
    ///
    /// Each step is awaited before the next one is written, so the log's own flush, which runs meanwhile, finds at
    /// most one step queued before it. Zeros are written by direct I/O where possible, since copying them into the
    /// page cache takes more CPU than all the rest.
    fn allocate(&self, len: u64) -> io::Result<()> {
        let old = self.len()?;
        if old >= len {
            return Ok(());
        }
        let result = self.allocate_from(old, len);
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            // Space reserved beyond the old length would keep other files from growing. The caller learns of the full
            // disk either way, so a failure to give the space back is ignored.
            let _ = self.file.set_len(old);
        }
        result
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn drop_from_cache(&self) {
        // This is advice: if the kernel ignores it, the pages just stay cached.
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn map(&self) -> io::Result<Bytes> {
        if self.len()? == 0 {
            // The kernel refuses to map an empty range.
            return Ok(Bytes::new());
        }
        Ok(Bytes::from_owner(raw::Mapping::new(&self.file)?))
    }
}

impl RealFile {
    /// Makes one `pwritev` call, repeated only if a signal interrupted it before it wrote anything.
    fn write_some(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        loop {
            match rustix::io::pwritev(&self.file, parts, offset) {
                Ok(0) if parts.iter().any(|part| !part.is_empty()) => {
                    return Err(io::Error::from(io::ErrorKind::WriteZero));
                }
                Ok(n) => return Ok(n),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads and then drops the pages behind the read position that were not cached before. The kernel drops no page
    /// that another process has mapped and touched meanwhile.
    fn read_once(&self, absent: &[Range<u64>], buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for step in buf.chunks_mut(ONCE_STEP_BYTES) {
            self.file.read_exact_at(step, at)?;
            let end = at + step.len() as u64;
            // The dropped range begins further back than this step. The kernel drops a page, or a larger cache unit,
            // only when the range covers all of it. A unit that is read in several steps can thus be dropped only
            // after the last of them.
            let read = at.saturating_sub(BEHIND_BYTES) / BEHIND_BYTES * BEHIND_BYTES..end;
            for gap in &absent[absent.partition_point(|gap| gap.end <= read.start)..] {
                let (start, end) = (gap.start.max(read.start), gap.end.min(read.end));
                let Some(len) = end.checked_sub(start).and_then(NonZeroU64::new) else { break };
                let _ = rustix::fs::fadvise(&self.file, start, Some(len), Advice::DontNeed);
            }
            at = end;
        }
        Ok(())
    }

    fn allocate_from(&self, old: u64, len: u64) -> io::Result<()> {
        use rustix::io::Errno;
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, old, len - old) {
                // Not every file system can reserve space. On those, a full disk is detected by writing the zeros.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        let mut direct = self.reopen_direct();
        let mut offset = old;
        while offset < len {
            let left = (len - offset).min(ALLOCATE_STEP_BYTES as u64);
            let whole = left / BLOCK_BYTES * BLOCK_BYTES;
            if let Some(file) = direct.as_ref().filter(|_| offset.is_multiple_of(BLOCK_BYTES) && whole > 0) {
                use io::ErrorKind::{Interrupted, InvalidInput, Unsupported};
                match file.write_at(&ZEROS.0[..whole as usize], offset) {
                    Ok(n) if n > 0 => {
                        // Some file systems put the bytes into the page cache all the same.
                        raw::write_back(&self.file, offset..offset + n as u64, true)?;
                        offset += n as u64;
                    }
                    Err(error) if error.kind() == Interrupted => {}
                    Err(error) if !matches!(error.kind(), InvalidInput | Unsupported) => return Err(error),
                    // The file system requires other alignments, or does not support direct writes.
                    _ => direct = None,
                }
                continue;
            }
            // Writes up to the next block boundary only, so that the rest can be written directly.
            let n = left.min(match direct {
                Some(_) => BLOCK_BYTES - offset % BLOCK_BYTES,
                None => left,
            });
            self.file.write_all_at(&ZEROS.0[..n as usize], offset)?;
            raw::write_back(&self.file, offset..offset + n, true)?;
            offset += n;
        }
        Ok(())
    }

    /// Opens the file again for direct I/O, which bypasses the page cache: these zeros will not be read, so copying
    /// them there is wasted. `None` if direct I/O is not available, and on file systems with larger blocks, which
    /// would have to read a block before writing a part of it.
    #[cfg(target_os = "linux")]
    fn reopen_direct(&self) -> Option<fs::File> {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::MetadataExt;
        if self.file.metadata().ok()?.blksize() > BLOCK_BYTES {
            return None;
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn reopen_direct(&self) -> Option<fs::File> {
        None
    }
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// Makes a clock whose [`Clock::monotonic`] counts from now.
    pub fn new() -> Self {
        RealClock { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        RealClock::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Micros {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_micros() as Micros,
            Err(before) => -(before.duration().as_micros() as Micros),
        }
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The kernel's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealRandom;

impl Random for RealRandom {
    fn fill(&self, buf: &mut [u8]) {
        // Keys and tokens must never be made from weaker randomness, so a failure of the kernel's source ends the
        // process.
        getrandom::fill(buf).expect("the kernel gives random bytes");
    }
}
