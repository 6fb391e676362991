//! Figures of the CPU from `/proc/stat` and `/proc/loadavg`.

use super::{Interval, MetricSample, Unit};

/// Ticks since boot by their use. The kernel includes `guest` in `user`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    pub user: u64,
    pub system: u64,
    pub idle: u64,
    pub iowait: u64,
    pub steal: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    pub all: Option<Ticks>,
    /// Ticks of each core, by its name: `cpu0`, `cpu1`, …
    pub cores: Vec<(String, Ticks)>,
    pub context_switches: Option<u64>,
    pub running: Option<u64>,
    pub blocked: Option<u64>,
}

/// Largest number of cores that are recorded one by one; further cores count only in the figures of the whole machine.
const CORES_MAX: usize = 16;

impl Ticks {
    fn total(&self) -> u64 {
        self.user + self.system + self.idle + self.iowait + self.steal
    }

    fn since(&self, before: &Ticks) -> Ticks {
        Ticks {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            idle: self.idle.saturating_sub(before.idle),
            iowait: self.iowait.saturating_sub(before.iowait),
            steal: self.steal.saturating_sub(before.steal),
        }
    }

    /// Returns `part` in percent of all ticks; `None` if no tick has passed.
    fn percent(&self, part: u64) -> Option<f64> {
        (self.total() > 0).then(|| 100.0 * part as f64 / self.total() as f64)
    }

    fn busy(&self) -> u64 {
        self.user + self.system + self.steal
    }
}

pub fn parse(text: &str) -> CpuStat {
    let mut stat = CpuStat::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(name) = words.next() else { continue };
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        match name {
            "ctxt" => stat.context_switches = number(),
            "procs_running" => stat.running = number(),
            "procs_blocked" => stat.blocked = number(),
            _ if name.starts_with("cpu") => {
                let (Some(user), Some(nice), Some(system), Some(idle)) =
                    (number(), number(), number(), number())
                else {
                    continue;
                };
                let mut later = || number().unwrap_or(0);
                let (iowait, irq, softirq, steal) = (later(), later(), later(), later());
                let ticks = Ticks { user: user + nice, system: system + irq + softirq, idle, iowait, steal };
                match name {
                    "cpu" => stat.all = Some(ticks),
                    _ => stat.cores.push((name.to_owned(), ticks)),
                }
            }
            _ => {}
        }
    }
    stat
}

/// Parses the load average of the last minute.
pub fn parse_load(text: &str) -> Option<f64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Adds the shares of the ticks since `before`, and the other figures of the CPU.
pub fn samples(before: &CpuStat, now: &CpuStat, interval: &Interval, out: &mut Vec<MetricSample>) {
    if let (Some(old), Some(new)) = (&before.all, &now.all) {
        let spent = new.since(old);
        for (name, part) in [
            ("cpu_busy", spent.busy()),
            ("cpu_user", spent.user),
            ("cpu_system", spent.system),
            ("cpu_iowait", spent.iowait),
            ("cpu_steal", spent.steal),
        ] {
            out.extend(spent.percent(part).map(|value| MetricSample::new(name, value, Unit::Percent)));
        }
    }
    for (name, new) in now.cores.iter().take(CORES_MAX) {
        let Some((_, old)) = before.cores.iter().find(|(old_name, _)| old_name == name) else { continue };
        let spent = new.since(old);
        out.extend(
            spent
                .percent(spent.busy())
                .map(|value| MetricSample::of("core_busy", name, value, Unit::Percent)),
        );
    }
    let switches = interval.rate(before.context_switches, now.context_switches);
    out.extend(switches.map(|value| MetricSample::new("context_switches", value, Unit::PerSecond)));
    out.extend(now.running.map(|value| MetricSample::new("tasks_running", value as f64, Unit::Count)));
    out.extend(now.blocked.map(|value| MetricSample::new("tasks_blocked", value as f64, Unit::Count)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
cpu  100 0 50 800 50 0 0 0 0 0
cpu0 50 0 25 400 25 0 0 0 0 0
cpu1 50 0 25 400 25 0 0 0 0 0
intr 123 0 0
ctxt 1000
btime 1790000000
procs_running 2
procs_blocked 0
";
    const NOW: &str = "\
cpu  150 10 80 870 60 5 5 20 0 0
cpu0 100 10 55 400 25 5 5 0 0 0
cpu1 50 0 25 470 35 0 0 20 0 0
ctxt 3000
procs_running 3
procs_blocked 1
";

    #[test]
    fn shares_are_of_the_ticks_between_two_readings() {
        let mut out = Vec::new();
        samples(&parse(BEFORE), &parse(NOW), &Interval::seconds(2.0), &mut out);
        let value = |name: &str, device: Option<&str>| {
            out.iter().find(|s| s.name == name && s.device.as_deref() == device).map(|s| s.value)
        };
        // Between the readings are 200 ticks: 60 user, 40 system, 70 idle, 10 iowait, 20 steal.
        assert_eq!(value("cpu_busy", None), Some(60.0));
        assert_eq!(value("cpu_user", None), Some(30.0));
        assert_eq!(value("cpu_system", None), Some(20.0));
        assert_eq!(value("cpu_iowait", None), Some(5.0));
        assert_eq!(value("cpu_steal", None), Some(10.0));
        assert_eq!(value("core_busy", Some("cpu0")), Some(100.0));
        assert_eq!(value("core_busy", Some("cpu1")), Some(20.0));
        assert_eq!(value("context_switches", None), Some(1000.0));
        assert_eq!(value("tasks_running", None), Some(3.0));
    }

    #[test]
    fn figures_that_the_kernel_does_not_provide_are_absent() {
        let mut out = Vec::new();
        samples(&parse(""), &parse("cpu x\ncpu0 1 2\n"), &Interval::seconds(1.0), &mut out);
        assert_eq!(out, []);
        let old = parse("cpu 1 2 3 4\n");
        assert_eq!(old.all, Some(Ticks { user: 3, system: 3, idle: 4, iowait: 0, steal: 0 }));
        samples(&old, &old, &Interval::seconds(1.0), &mut out);
        assert_eq!(out, [], "no tick passed");
        assert_eq!(parse_load("0.52 0.58 0.59 1/467 12345\n"), Some(0.52));
        assert_eq!(parse_load(""), None);
    }
}
