//! Figures of the memory from `/proc/meminfo`.

use super::{MetricSample, Unit};

/// Parses the lines that count kilobytes, and returns names and bytes. Lines that count something else are left out.
fn parse(text: &str) -> Vec<(&str, u64)> {
    let field = |line| -> Option<(&str, u64)> {
        let (name, rest): (&str, &str) = str::split_once(line, ':')?;
        let kilobytes: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some((name, kilobytes.checked_mul(1024)?))
    };
    text.lines().filter_map(field).collect()
}

pub fn samples(text: &str, out: &mut Vec<MetricSample>) {
    let fields = parse(text);
    let get = |name: &str| fields.iter().find(|(field, _)| *field == name).map(|(_, bytes)| *bytes);
    let less = |whole: Option<u64>, part: Option<u64>| Some(whole?.saturating_sub(part?));
    for (name, bytes) in [
        ("memory_total", get("MemTotal")),
        ("memory_used", less(get("MemTotal"), get("MemAvailable"))),
        ("memory_available", get("MemAvailable")),
        ("memory_cached", get("Cached")),
        ("memory_dirty", get("Dirty")),
        ("swap_used", less(get("SwapTotal"), get("SwapFree"))),
    ] {
        out.extend(bytes.map(|bytes| MetricSample::new(name, bytes as f64, Unit::Bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_memory_is_the_total_less_the_available() {
        let text = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\nCached: 7 kB\nHugePages_Total:  3\n";
        let mut out = Vec::new();
        samples(text, &mut out);
        let found: Vec<(&str, f64)> = out.iter().map(|s| (s.name, s.value / 1024.0)).collect();
        // The text has no Dirty and no Swap, so there are no rows for them.
        let expected = [
            ("memory_total", 1000.0),
            ("memory_used", 600.0),
            ("memory_available", 400.0),
            ("memory_cached", 7.0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_unreadable_file_gives_no_rows() {
        let mut out = Vec::new();
        samples("MemTotal: much kB\nnonsense\nMemAvailable: 99999999999999999999 kB", &mut out);
        assert_eq!(out, []);
    }
}
