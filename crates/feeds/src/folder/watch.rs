//! Change notifications by the kernel. Where there are none (systems other than Linux, network file systems, more
//! folders than can be watched), the folders are polled instead.

use std::time::Duration;

/// The events since the last wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Watches of folders in which a relevant file changed.
    pub files: std::collections::BTreeSet<i32>,
    /// Watches of folders in which a subfolder was made, removed or moved: the whole tree must be scanned.
    pub folders: std::collections::BTreeSet<i32>,
    /// Watches that have ended.
    pub gone: std::collections::BTreeSet<i32>,
    /// True if the kernel dropped events: everything must be scanned.
    pub lost: bool,
    /// True if [`Waker::wake`] was called.
    pub woken: bool,
}

#[cfg(target_os = "linux")]
pub use linux::{FolderWatcher, Waker};
#[cfg(not(target_os = "linux"))]
pub use other::{FolderWatcher, Waker};

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, Read, Write};
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

    use super::{Duration, Events};

    pub struct FolderWatcher {
        inotify: Option<OwnedFd>,
        wakes: UnixStream,
    }

    #[derive(Debug)]
    pub struct Waker(UnixStream);

    impl Waker {
        pub fn wake(&self) {
            // A full pipe wakes the thread too, and a closed one has no thread to wake.
            let _ = (&self.0).write(&[1]);
        }
    }

    impl FolderWatcher {
        pub fn new() -> io::Result<(FolderWatcher, Waker)> {
            let (wakes, waker) = UnixStream::pair()?;
            wakes.set_nonblocking(true)?;
            waker.set_nonblocking(true)?;
            let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
            Ok((FolderWatcher { inotify, wakes }, Waker(waker)))
        }

        /// Returns true if the kernel reports changes on the file system of a folder. Network file systems do not
        /// report those made by other machines.
        pub fn reports_changes(&self, folder: &Path) -> bool {
            /// NFS, CIFS, SMB, SMB2, FUSE, 9P, Ceph, AFS, Coda.
            const REMOTE: [u32; 9] = [
                0x6969,
                0xff53_4d42,
                0x517b,
                0xfe53_4d42,
                0x6573_5546,
                0x0102_1997,
                0x00c3_6400,
                0x5346_414f,
                0x7375_7245,
            ];
            let kind = rustix::fs::statfs(folder).map(|info| info.f_type as u32);
            self.inotify.is_some() && kind.is_ok_and(|kind| !REMOTE.contains(&kind))
        }

        /// Watches a folder. Adding the same folder again returns the same number.
        pub fn add(&mut self, folder: &Path) -> Option<i32> {
            let inotify = self.inotify.as_ref()?;
            let flags = WatchFlags::CLOSE_WRITE
                | WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR;
            inotify::add_watch(inotify, folder, flags).ok()
        }

        pub fn remove(&mut self, watch: i32) {
            if let Some(inotify) = &self.inotify {
                // This fails if the watch has ended with its folder already.
                let _ = inotify::remove_watch(inotify, watch);
            }
        }

        /// Waits for an event or the timeout.
        pub fn wait(&mut self, timeout: Duration) -> Events {
            let timeout = Timespec { tv_sec: timeout.as_secs() as _, tv_nsec: timeout.subsec_nanos() as _ };
            let mut fds = vec![PollFd::new(&self.wakes, PollFlags::IN)];
            fds.extend(self.inotify.as_ref().map(|inotify| PollFd::new(inotify, PollFlags::IN)));
            // An interrupted wait counts as a short one.
            let _ = poll(&mut fds, Some(&timeout));
            drop(fds);
            let mut events = Events::default();
            let mut bytes = [0; 64];
            while (&self.wakes).read(&mut bytes).is_ok_and(|read| read > 0) {
                events.woken = true;
            }
            self.read(&mut events);
            events
        }

        fn read(&self, events: &mut Events) {
            let Some(inotify) = &self.inotify else { return };
            let mut buffer = [MaybeUninit::uninit(); 8 << 10];
            let mut reader = Reader::new(inotify, &mut buffer);
            // The reader returns an error when no event is left.
            while let Ok(event) = reader.next() {
                let flags = event.events();
                let own = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
                let name = event.file_name().map(|name| name.to_string_lossy());
                let hidden = name.as_ref().is_some_and(|name| name.starts_with('.'));
                if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                    events.lost = true;
                } else if flags.contains(ReadFlags::IGNORED) {
                    events.gone.insert(event.wd());
                } else if flags.intersects(own) {
                    events.folders.insert(event.wd());
                } else if hidden {
                } else if flags.contains(ReadFlags::ISDIR) {
                    events.folders.insert(event.wd());
                } else if name.is_some_and(|name| site::is_note(&name) || site::is_file(&name)) {
                    events.files.insert(event.wd());
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::io;
    use std::path::Path;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::{Duration, Events};

    pub struct FolderWatcher(Receiver<()>);

    #[derive(Debug)]
    pub struct Waker(SyncSender<()>);

    impl Waker {
        pub fn wake(&self) {
            // If the channel is full, the thread wakes anyway.
            let _ = self.0.try_send(());
        }
    }

    impl FolderWatcher {
        pub fn new() -> io::Result<(FolderWatcher, Waker)> {
            let (sender, receiver) = sync_channel(1);
            Ok((FolderWatcher(receiver), Waker(sender)))
        }

        pub fn reports_changes(&self, _: &Path) -> bool {
            false
        }

        pub fn add(&mut self, _: &Path) -> Option<i32> {
            None
        }

        pub fn remove(&mut self, _: i32) {}

        pub fn wait(&mut self, timeout: Duration) -> Events {
            let woken = self.0.recv_timeout(timeout).is_ok();
            Events { woken, ..Events::default() }
        }
    }
}
