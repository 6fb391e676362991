//! The size of test inputs, adapted to the machine.

use std::sync::OnceLock;
use std::thread;

/// A factor for the size of inputs: 1 on a machine with 8 cores and 16 GiB, less on a smaller one, at most 4.
/// `POLYNYA_TEST_SCALE` overrides it.
pub fn scale() -> f64 {
    static SCALE: OnceLock<f64> = OnceLock::new();
    *SCALE.get_or_init(|| match std::env::var("POLYNYA_TEST_SCALE") {
        Ok(text) => parse(&text).unwrap_or_else(|message| panic!("{message}")),
        Err(_) => of_machine(thread::available_parallelism().map_or(1, |n| n.get()), memory_bytes()),
    })
}

/// `count` times [`scale`], but at least 1.
pub fn scaled(count: usize) -> usize {
    ((count as f64 * scale()) as usize).max(1)
}

fn parse(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(scale) if scale.is_finite() && scale > 0.0 => Ok(scale),
        _ => Err(format!("POLYNYA_TEST_SCALE should be a number above 0, for example 0.5; it is {text:?}")),
    }
}

fn of_machine(cores: usize, memory: Option<u64>) -> f64 {
    let by_cores = cores as f64 / 8.0;
    let by_memory = memory.map_or(by_cores, |bytes| bytes as f64 / (16u64 << 30) as f64);
    by_cores.min(by_memory).clamp(0.125, 4.0)
}

/// Returns the machine's memory in bytes, if the kernel reports it in `/proc`.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_follows_the_scarcer_of_cores_and_memory() {
        assert_eq!(of_machine(8, Some(16 << 30)), 1.0);
        assert_eq!(of_machine(8, Some(4 << 30)), 0.25);
        assert_eq!(of_machine(4, Some(64 << 30)), 0.5);
        assert_eq!(of_machine(1, None), 0.125);
        assert_eq!(of_machine(256, Some(1 << 40)), 4.0);
    }

    #[test]
    fn only_positive_numbers_are_a_scale() {
        assert_eq!(parse(" 0.25 "), Ok(0.25));
        for text in ["", "0", "-1", "inf", "NaN", "fast"] {
            assert!(parse(text).unwrap_err().contains("POLYNYA_TEST_SCALE"), "{text:?} was taken");
        }
    }

    #[test]
    fn a_scaled_count_is_never_zero() {
        assert!(scaled(1) >= 1);
        assert_eq!(scaled(1000), (1000.0 * scale()) as usize);
    }
}
