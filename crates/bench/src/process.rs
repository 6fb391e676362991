//! Reads from `/proc` the resources that a process used between two moments: CPU, context switches, bytes written, memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use types::{Error, Result};

/// The counters of a process at one moment.
#[derive(Clone, Debug)]
pub struct ProcessSample {
    at: Instant,
    /// User and system time of all threads, including ended ones, in whole ticks (10 ms on most kernels).
    ticked: Duration,
    threads: BTreeMap<u32, Thread>,
    io: Option<Io>,
    memory_bytes: u64,
    memory_bytes_max: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Thread {
    name: String,
    /// Nanoseconds that the thread ran on a CPU.
    ran: u64,
    /// Nanoseconds that the thread was ready to run and waited for a CPU.
    waited: u64,
    voluntary: u64,
    involuntary: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Io {
    written_chars: u64,
    read_bytes: u64,
    written_bytes: u64,
}

/// Resources that a process used between two samples. Divide by the operations for the cost of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    pub seconds: f64,
    /// User and system time.
    pub cpu_seconds: f64,
    /// Times that a thread gave up the CPU: it waited for a lock, a disk, a socket, or for work.
    pub voluntary_switches: u64,
    /// Times that the scheduler took the CPU from a thread.
    pub involuntary_switches: u64,
    /// Time in which a thread could have run and no CPU was free.
    pub runqueue_seconds: f64,
    /// Bytes sent to the storage layer as the kernel counts them, which is far too many for small writes: see [`crate::device`].
    /// Absent if `/proc` hides the counter.
    pub written_bytes: Option<u64>,
    /// Bytes passed to `write` calls, to files and sockets alike.
    pub written_chars: Option<u64>,
    /// Bytes fetched from the storage layer.
    pub read_bytes: Option<u64>,
    /// Resident memory at the end.
    pub memory_bytes: u64,
    /// The largest resident memory since the process started.
    pub memory_bytes_max: u64,
    /// CPU and switches by thread name without trailing digits, most CPU first.
    pub threads: Vec<ThreadGroup>,
}

/// Names of the server's threads on which no acknowledgement waits, as ARCHITECTURE.md lists them. All other threads, new kinds
/// included, count as work on the path to an acknowledgement.
pub const BACKGROUND_THREADS: [&str; 9] = [
    "pn-background",
    "pn-reaper",
    "pn-archive",
    "pn-backup",
    "pn-doctor",
    "pn-folders",
    "pn-memory",
    "pn-warehouse",
    "recorder",
];

impl Usage {
    /// CPU seconds of work on which no acknowledgement waits: seals, compactions, the lake.
    pub fn background_seconds(&self) -> f64 {
        let behind = self.threads.iter().filter(|group| BACKGROUND_THREADS.contains(&group.name.as_str()));
        behind.map(|group| group.cpu_seconds).sum()
    }

    /// CPU seconds of all other work: connections, decoding, commits, syncs.
    pub fn acknowledging_seconds(&self) -> f64 {
        (self.cpu_seconds - self.background_seconds()).max(0.0)
    }
}

/// Threads that share a name, and their resources together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadGroup {
    pub name: String,
    pub threads: usize,
    pub cpu_seconds: f64,
    pub runqueue_seconds: f64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

impl ProcessSample {
    /// Reads the counters of process `pid`. Returns an error if there is no such process.
    pub fn of(pid: u32) -> Result<ProcessSample> {
        let root = PathBuf::from(format!("/proc/{pid}"));
        let gone = |error| Error::io(format_args!("reading the counters of process {pid}"), error);
        let stat = fs::read_to_string(root.join("stat")).map_err(gone)?;
        let status = fs::read_to_string(root.join("status")).map_err(gone)?;
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(root.join("task")).map_err(gone)?.flatten() {
            let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A thread may end while it is read; its CPU time remains in that of the process.
            let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
            let schedstat = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
            threads.insert(tid, Thread::parse(&status, &schedstat));
        }
        Ok(ProcessSample {
            at: Instant::now(),
            ticked: parse_ticks(&stat, rustix::param::clock_ticks_per_second()),
            threads,
            io: fs::read_to_string(root.join("io")).ok().map(|io| Io::parse(&io)),
            memory_bytes: kilobytes(&status, "VmRSS:"),
            memory_bytes_max: kilobytes(&status, "VmHWM:"),
        })
    }

    /// Reads the counters of this process.
    pub fn own() -> Result<ProcessSample> {
        ProcessSample::of(std::process::id())
    }

    /// Computes the resources used from `self` to `later`.
    pub fn until(&self, later: &ProcessSample) -> Usage {
        let mut groups: BTreeMap<String, ThreadGroup> = BTreeMap::new();
        let none = Thread::default();
        for (tid, after) in &later.threads {
            // A younger thread that reuses a tid starts from zero; the saturating subtraction turns that into a small loss.
            let before = self.threads.get(tid).unwrap_or(&none);
            let group = groups.entry(group_name(&after.name)).or_default();
            group.threads += 1;
            group.cpu_seconds += nanos(after.ran.saturating_sub(before.ran));
            group.runqueue_seconds += nanos(after.waited.saturating_sub(before.waited));
            group.voluntary_switches += after.voluntary.saturating_sub(before.voluntary);
            group.involuntary_switches += after.involuntary.saturating_sub(before.involuntary);
        }
        let mut threads: Vec<ThreadGroup> =
            groups.into_iter().map(|(name, group)| ThreadGroup { name, ..group }).collect();
        threads.sort_by(|a, b| b.cpu_seconds.total_cmp(&a.cpu_seconds));
        let living: f64 = threads.iter().map(|group| group.cpu_seconds).sum();
        let ticked = later.ticked.saturating_sub(self.ticked).as_secs_f64();
        let io = |field: fn(&Io) -> u64| match (&self.io, &later.io) {
            (Some(before), Some(after)) => Some(field(after).saturating_sub(field(before))),
            _ => None,
        };
        Usage {
            seconds: (later.at - self.at).as_secs_f64(),
            // The times of living threads are exact but exclude ended ones; ticks include ended threads but are coarse.
            cpu_seconds: living.max(ticked),
            voluntary_switches: threads.iter().map(|group| group.voluntary_switches).sum(),
            involuntary_switches: threads.iter().map(|group| group.involuntary_switches).sum(),
            runqueue_seconds: threads.iter().map(|group| group.runqueue_seconds).sum(),
            written_bytes: io(|io| io.written_bytes),
            written_chars: io(|io| io.written_chars),
            read_bytes: io(|io| io.read_bytes),
            memory_bytes: later.memory_bytes,
            memory_bytes_max: later.memory_bytes_max,
            threads,
        }
    }
}

/// The number of times that this thread has given up the CPU voluntarily: it waited for a lock, a disk, a socket, or for work.
pub fn own_voluntary_switches() -> Result<u64> {
    let status = fs::read_to_string("/proc/thread-self/status")
        .map_err(|error| Error::io("reading the counters of this thread", error))?;
    Ok(number(&status, "voluntary_ctxt_switches:"))
}

/// CPU time of this thread.
pub fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of all threads of this process, including ended ones.
pub fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Number of locks that threads of this process have taken or waited for on a read path since the process started.
pub fn read_path_locks() -> u64 {
    vfs::lock_stats().iter().map(|lock| lock.read_path_locks + lock.read_path_lock_waits).sum()
}

impl Thread {
    fn parse(status: &str, schedstat: &str) -> Self {
        let mut times = schedstat.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0));
        Thread {
            name: value(status, "Name:").unwrap_or_default().to_owned(),
            ran: times.next().unwrap_or(0),
            waited: times.next().unwrap_or(0),
            voluntary: number(status, "voluntary_ctxt_switches:"),
            involuntary: number(status, "nonvoluntary_ctxt_switches:"),
        }
    }
}

impl Io {
    fn parse(io: &str) -> Self {
        Io {
            written_chars: number(io, "wchar:"),
            read_bytes: number(io, "read_bytes:"),
            written_bytes: number(io, "write_bytes:"),
        }
    }
}

/// Parses `utime` and `stime`, the 14th and 15th field. The second field, a name in parentheses, may contain any character.
pub(crate) fn parse_ticks(stat: &str, ticks_per_second: u64) -> Duration {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = after_name
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    Duration::from_secs_f64(fields.iter().sum::<u64>() as f64 / ticks_per_second.max(1) as f64)
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

fn number(text: &str, key: &str) -> u64 {
    value(text, key).and_then(|value| value.split(' ').next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn kilobytes(text: &str, key: &str) -> u64 {
    number(text, key) * 1024
}

fn group_name(name: &str) -> String {
    let short = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['-', '_', '#', ' ']);
    if short.is_empty() { name.to_owned() } else { short.to_owned() }
}

fn nanos(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "17 (a) b) (c) S 1 17 17 0 -1 4194304 100 0 0 0 250 50 3 4 20 0 9 0 1234 1 2";
        assert_eq!(parse_ticks(stat, 100), Duration::from_secs(3));
        assert_eq!(parse_ticks("", 100), Duration::ZERO);
    }

    #[test]
    fn counters_of_a_thread_are_read() {
        let status = "Name:\twork-12\nVmRSS:\t  2048 kB\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n";
        let thread = Thread::parse(status, "123 456 7\n");
        assert_eq!((thread.ran, thread.waited, thread.voluntary, thread.involuntary), (123, 456, 5, 7));
        assert_eq!(group_name(&thread.name), "work");
        assert_eq!(kilobytes(status, "VmRSS:"), 2 << 20);
    }

    #[test]
    fn cpu_that_this_process_burns_is_charged_to_it() {
        let before = ProcessSample::own().expect("/proc is there");
        let started = Instant::now();
        let mut n = 0u64;
        while started.elapsed() < Duration::from_millis(60) {
            n = std::hint::black_box(n + 1);
        }
        let usage = before.until(&ProcessSample::own().expect("/proc is there"));
        // A busy machine gives less than one core, but a value far below would indicate a wrong unit.
        assert!(usage.cpu_seconds > 0.003, "{usage:?}");
        assert!(usage.memory_bytes > 0 && usage.memory_bytes_max >= usage.memory_bytes);
    }

    #[test]
    fn work_behind_the_acknowledgement_is_told_from_work_before_it() {
        let group = |name: &str, cpu_seconds| ThreadGroup {
            name: name.into(),
            cpu_seconds,
            ..ThreadGroup::default()
        };
        let threads = [
            ("pn-http", 4.0),
            ("pn-background-2", 3.0),
            ("pn-commit", 2.0),
            ("pn-reaper", 0.5),
            ("a-new-thread", 0.25),
        ];
        let threads = threads.map(|(name, cpu)| group(&group_name(name), cpu)).to_vec();
        // The remaining quarter of a second belongs to ended threads, whose kind is unknown.
        let usage = Usage { cpu_seconds: 10.0, threads, ..Usage::default() };
        assert_eq!((usage.background_seconds(), usage.acknowledging_seconds()), (3.5, 6.5));
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(ProcessSample::of(u32::MAX).is_err());
    }
}
