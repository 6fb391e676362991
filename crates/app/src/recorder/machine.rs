//! Takes a reading of the whole machine, and computes the rates since the reading before.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cpu::{self, CpuStat};
use super::disk::{self, Device};
use super::network::{self, Interface};
use super::pressure::{self, RESOURCES, StallTotals};
use super::processes::{Process, Processes};
use super::{Interval, MetricSample, Unit, memory};

/// All counters at one moment.
#[derive(Default)]
struct MachineReading {
    at: Duration,
    cpu: CpuStat,
    disks: Vec<Device>,
    interfaces: Vec<Interface>,
    pressure: [StallTotals; 3],
}

/// Reads this machine's figures. The first reading has no rates, which need two readings.
pub struct Machine {
    proc: PathBuf,
    sys: PathBuf,
    data: PathBuf,
    processes_count: usize,
    processes: Processes,
    before: Option<MachineReading>,
}

impl Machine {
    /// `data` is the directory whose file system is recorded. `processes_count` is the number of busiest and of largest
    /// processes; 0 records none.
    pub fn new(data: &Path, processes_count: usize) -> Self {
        Machine {
            proc: "/proc".into(),
            sys: "/sys".into(),
            data: data.to_owned(),
            processes_count,
            processes: Processes::default(),
            before: None,
        }
    }

    /// Takes a reading at the monotonic time `at`. Figures that the kernel does not provide are absent.
    pub fn read(&mut self, at: Duration) -> (Vec<MetricSample>, Vec<Process>) {
        let mut samples = Vec::with_capacity(64);
        let now = MachineReading {
            at,
            cpu: cpu::parse(&self.text("stat")),
            disks: disk::parse(&self.text("diskstats"), |name| self.sys.join("block").join(name).exists()),
            interfaces: network::parse(&self.text("net/dev")),
            pressure: RESOURCES.map(|resource| pressure::parse(&self.text(&format!("pressure/{resource}")))),
        };
        let mut elapsed = 0.0;
        if let Some(before) = &self.before {
            elapsed = at.saturating_sub(before.at).as_secs_f64();
            let interval = Interval::seconds(elapsed);
            cpu::samples(&before.cpu, &now.cpu, &interval, &mut samples);
            disk::samples(&before.disks, &now.disks, &interval, &mut samples);
            network::samples(&before.interfaces, &now.interfaces, &interval, &mut samples);
            for (i, resource) in RESOURCES.iter().enumerate() {
                pressure::samples(resource, &before.pressure[i], &now.pressure[i], &interval, &mut samples);
            }
        }
        let load = cpu::parse_load(&self.text("loadavg"));
        samples.extend(load.map(|load| MetricSample::new("load_1m", load, Unit::Count)));
        memory::samples(&self.text("meminfo"), &mut samples);
        disk::file_system(&self.data, &mut samples);
        self.before = Some(now);
        let processes = match self.processes_count {
            0 => Vec::new(),
            count => self.processes.top(&self.proc, count, elapsed),
        };
        (samples, processes)
    }

    /// Reads a file of `/proc`. A missing file counts as empty, because this kernel does not provide its figures.
    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.proc.join(name)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_reading_of_this_machine_has_rates() {
        let mut machine = Machine::new(Path::new("."), 3);
        let (first, processes) = machine.read(Duration::from_secs(1));
        assert!(first.iter().any(|s| s.name == "memory_total"));
        assert!(first.iter().all(|s| s.name != "cpu_busy") && processes.is_empty());
        // A tick is 10 ms. The loop uses a few of them, so that the kernel counts some.
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(60) {
            std::hint::spin_loop();
        }
        let (second, processes) = machine.read(Duration::from_secs(2));
        let busy = second.iter().find(|s| s.name == "cpu_busy").unwrap().value;
        assert!((0.0..=100.0).contains(&busy), "{busy}");
        assert!((1..=6).contains(&processes.len()));
        assert!(second.iter().all(|s| s.value.is_finite()));
    }

    #[test]
    fn a_machine_without_proc_gives_only_the_room_on_its_disk() {
        let mut machine = Machine::new(Path::new("."), 3);
        machine.proc = "/nowhere".into();
        machine.read(Duration::from_secs(1));
        let (samples, processes) = machine.read(Duration::from_secs(2));
        assert!(samples.iter().all(|s| s.name.starts_with("filesystem_")) && processes.is_empty());
    }
}
