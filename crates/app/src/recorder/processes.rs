//! The processes that used most CPU since the last reading, and the largest ones, from `/proc/PID/stat`.
//!
//! Only the command's short name is recorded. Its arguments are not, because they may contain passwords.

use std::collections::HashMap;
use std::path::Path;

/// One process at one reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    pub pid: i64,
    pub name: String,
    /// The kernel's letter for the state: `R` running, `S` sleeping, `D` in uninterruptible sleep, …
    pub state: String,
    /// CPU time since the last reading in percent of one core; above 100 for a process that used several cores.
    pub cpu_percent: f64,
    pub rss_bytes: i64,
    pub threads: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ProcessStat {
    pid: i64,
    name: String,
    state: String,
    ticks: u64,
    threads: i64,
    started: u64,
    rss_pages: i64,
}

/// Reads the processes, and keeps the ticks of the last reading.
pub struct Processes {
    page_bytes: i64,
    ticks_per_second: f64,
    /// Ticks by pid and start time, so that a reused pid counts as a new process.
    before: HashMap<(i64, u64), u64>,
}

impl Default for Processes {
    fn default() -> Self {
        Processes {
            page_bytes: rustix::param::page_size() as i64,
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            before: HashMap::new(),
        }
    }
}

impl Processes {
    /// Returns the `count` busiest and the `count` largest processes in the directory `proc`, each once, those with most CPU
    /// first. The first reading returns none, because it knows no rates.
    pub fn top(&mut self, proc: &Path, count: usize, elapsed_seconds: f64) -> Vec<Process> {
        let Ok(entries) = std::fs::read_dir(proc) else { return Vec::new() };
        let pids = entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
        // A process may end between the listing and the reading.
        let texts = pids.filter_map(|entry| std::fs::read(entry.path().join("stat")).ok());
        let stats: Vec<ProcessStat> =
            texts.filter_map(|text| parse(&String::from_utf8_lossy(&text))).collect();
        self.rank(stats, count, elapsed_seconds)
    }

    fn rank(&mut self, stats: Vec<ProcessStat>, count: usize, elapsed_seconds: f64) -> Vec<Process> {
        let first_reading = self.before.is_empty();
        let before = std::mem::take(&mut self.before);
        let mut found = Vec::with_capacity(stats.len());
        for stat in stats {
            let identity = (stat.pid, stat.started);
            // A process that started after the last reading used all its ticks since then.
            let old = before.get(&identity).copied().unwrap_or(0);
            let ticks = stat.ticks.saturating_sub(old) as f64;
            self.before.insert(identity, stat.ticks);
            found.push(Process {
                pid: stat.pid,
                name: stat.name,
                state: stat.state,
                cpu_percent: 100.0 * ticks / self.ticks_per_second / elapsed_seconds,
                rss_bytes: stat.rss_pages.saturating_mul(self.page_bytes),
                threads: stat.threads,
            });
        }
        if first_reading || elapsed_seconds <= 0.0 {
            return Vec::new();
        }
        found.sort_by(|a, b| b.rss_bytes.cmp(&a.rss_bytes).then(a.pid.cmp(&b.pid)));
        let (mut top, mut rest) = {
            let rest = found.split_off(count.min(found.len()));
            (found, rest)
        };
        // The sort is stable: equally busy processes stay in order of size.
        rest.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent));
        let busiest_of_all = |process: &Process, top: &[Process]| {
            top.iter().filter(|other| other.cpu_percent > process.cpu_percent).count() < count
        };
        let mut taken = Vec::new();
        for process in rest {
            if taken.len() == count || process.cpu_percent <= 0.0 || !busiest_of_all(&process, &top) {
                break;
            }
            taken.push(process);
        }
        top.append(&mut taken);
        top.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent));
        top
    }
}

/// Parses `42 (a name) S 1 42 …`. The name may contain any character, also `)`, so the last parenthesis ends it.
fn parse(text: &str) -> Option<ProcessStat> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let pid = text[..open].trim().parse().ok()?;
    let fields: Vec<&str> = text.get(close + 1..)?.split_ascii_whitespace().collect();
    // Fields are numbered as in proc(5), where the first one after the name is field 3.
    let field = |number: usize| fields.get(number - 3).copied();
    let number = |at: usize| field(at)?.parse::<u64>().ok();
    Some(ProcessStat {
        pid,
        name: text.get(open + 1..close)?.to_owned(),
        state: field(3)?.to_owned(),
        ticks: number(14)?.checked_add(number(15)?)?,
        threads: field(20)?.parse().ok()?,
        started: number(22)?,
        rss_pages: field(24)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: i64, ticks: u64, rss_pages: i64) -> ProcessStat {
        ProcessStat {
            pid,
            name: format!("p{pid}"),
            state: "S".into(),
            ticks,
            threads: 1,
            started: 7,
            rss_pages,
        }
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read_whole() {
        let text = "4242 (tmux: (x) y) S 1 4242 4242 0 -1 4194560 500 0 0 0 30 12 0 0 20 0 3 0 8800 9000000 250 184467";
        let found = parse(text).unwrap();
        assert_eq!((found.pid, found.name.as_str(), found.state.as_str()), (4242, "tmux: (x) y", "S"));
        assert_eq!((found.ticks, found.threads, found.started, found.rss_pages), (42, 3, 8800, 250));
        for broken in ["", "1", "1 (", "1 (a", "1 (a)", ") 1 (", "1 (a) S 1 2", "x (a) S"] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn the_busiest_and_the_largest_are_each_there_once() {
        let mut processes = Processes { page_bytes: 4096, ticks_per_second: 100.0, before: HashMap::new() };
        let before = vec![stat(1, 0, 900), stat(2, 0, 800), stat(3, 0, 1), stat(4, 0, 2), stat(5, 0, 3)];
        assert_eq!(processes.rank(before, 2, 1.0), [], "a first reading knows no rates");
        let now = vec![stat(1, 10, 900), stat(2, 0, 800), stat(3, 80, 1), stat(4, 50, 2), stat(5, 20, 3)];
        let top: Vec<(i64, f64)> =
            processes.rank(now, 2, 2.0).iter().map(|p| (p.pid, p.cpu_percent)).collect();
        assert_eq!(top, [(3, 40.0), (4, 25.0), (1, 5.0), (2, 0.0)]);
    }

    #[test]
    fn a_reused_pid_is_a_new_process() {
        let mut processes = Processes { page_bytes: 4096, ticks_per_second: 100.0, before: HashMap::new() };
        processes.rank(vec![stat(1, 1000, 1)], 3, 1.0);
        let mut reused = stat(1, 30, 1);
        reused.started = 8;
        assert_eq!(processes.rank(vec![reused], 3, 1.0)[0].cpu_percent, 30.0);
    }

    #[test]
    fn this_process_is_found_in_the_real_proc() {
        let mut processes = Processes::default();
        processes.top(Path::new("/proc"), 10_000, 1.0);
        let top = processes.top(Path::new("/proc"), 10_000, 1.0);
        let own = top.iter().find(|process| process.pid == i64::from(std::process::id())).unwrap();
        assert!(own.rss_bytes > 0 && own.threads > 0);
    }
}
