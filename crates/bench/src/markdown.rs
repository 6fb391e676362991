//! Renders a report for people: failures first, then figures, then the facts that a reader needs to believe them.

use std::fmt::Write;

use crate::ab::Spread;
use crate::report::{Report, Sheet};
use crate::run::BenchRun;

pub(crate) fn render(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(report, &mut out);
    out
}

fn write(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(out, "# {}\n", report.workload)?;
    for failure in report.failures() {
        writeln!(out, "**FAILED, believe no figure below:** {failure}\n")?;
    }
    let machine = &report.machine;
    writeln!(
        out,
        "{} cores, {}, {:.1} GiB, {} {}; load generator on the same machine{}.",
        machine.cores,
        machine.cpu,
        machine.memory_bytes as f64 / f64::from(1 << 30),
        machine.architecture,
        machine.kernel,
        if machine.optimised { "" } else { ", **compiled without optimisation**" },
    )?;
    let config: Vec<String> = report.config.iter().map(|(name, value)| format!("{name} {value}")).collect();
    writeln!(out, "Seed {}, work `{}`, {}.\n", report.seed, report.work_hash, config.join(", "))?;
    claims(report, out)?;
    report.sheets.iter().try_for_each(|sheet| self::sheet(sheet, out))?;
    if !report.runs.is_empty() {
        latencies(&report.runs, out)?;
        costs(&report.runs, out)?;
        machine_noise(&report.runs, out)?;
        threads(&report.runs, out)?;
        figures(&report.runs, out)?;
    }
    comparisons(report, out)
}

fn claims(report: &Report, out: &mut String) -> std::fmt::Result {
    if report.claims.is_empty() {
        return Ok(());
    }
    writeln!(out, "| wanted | found | |\n|---|---|---|")?;
    for claim in &report.claims {
        let verdict = if claim.holds { "held" } else { "**missed**" };
        writeln!(out, "| {} | {} | {verdict} |", claim.claim, claim.found)?;
    }
    writeln!(out)
}

/// Aligns the first column to the left and the figures to the right.
fn sheet(sheet: &Sheet, out: &mut String) -> std::fmt::Result {
    writeln!(out, "{}\n", sheet.title)?;
    writeln!(out, "| {} |", sheet.columns.join(" | "))?;
    writeln!(out, "|---{}|", "|--:".repeat(sheet.columns.len().saturating_sub(1)))?;
    sheet.rows.iter().try_for_each(|row| writeln!(out, "| {} |", row.join(" | ")))?;
    writeln!(out)
}

fn latencies(runs: &[BenchRun], out: &mut String) -> std::fmt::Result {
    writeln!(out, "Latency in milliseconds; in an open loop from the intended time.\n")?;
    writeln!(
        out,
        "| run | stream | pace | connections | operations/s | units/s | p50 | p90 | p99 | p99.9 | longest | cold p50 | cold longest |"
    )?;
    writeln!(out, "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for run in runs {
        for stream in &run.streams {
            let (warm, cold) = (&stream.warm, &stream.cold);
            let mut pace = stream.pace.clone();
            if stream.unsent > 0 {
                let _ = write!(pace, ", {} unsent", stream.unsent);
            }
            if stream.refused > 0 {
                let _ = write!(pace, ", {} refused", stream.refused);
            }
            writeln!(
                out,
                "| {} | {} | {pace} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                run.name,
                stream.name,
                stream.connections,
                thousands(stream.operations_per_second),
                thousands(stream.units_per_second),
                ms(warm.p50_ms),
                ms(warm.p90_ms),
                ms(warm.p99_ms),
                ms(warm.p999_ms),
                ms(warm.longest_ms),
                ms(cold.p50_ms),
                ms(cold.longest_ms),
            )?;
        }
    }
    writeln!(out)
}

/// Renders the server's resources per operation and per unit of the first stream.
fn costs(runs: &[BenchRun], out: &mut String) -> std::fmt::Result {
    if runs.iter().all(|run| run.server.is_none()) {
        return writeln!(out, "The server's process is not known, so its CPU and writes are not here.\n");
    }
    writeln!(out, "The server, per operation or unit of a run's first stream (all its work counted).\n")?;
    writeln!(
        out,
        "| run | CPU µs/unit | CPU µs/operation | cores used | voluntary switches/operation | involuntary/operation | run queue ms/s | device bytes written/unit | resident MiB |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for run in runs {
        let (Some(server), Some(stream)) = (&run.server, run.streams.first()) else { continue };
        let operations = stream.operations.max(1) as f64;
        let units = stream.units.max(1) as f64;
        let written =
            run.device_written_bytes.map_or("?".into(), |bytes| format!("{:.0}", bytes as f64 / units));
        writeln!(
            out,
            "| {} | {:.2} | {:.1} | {:.2} | {:.3} | {:.3} | {:.1} | {written} | {:.0} |",
            run.name,
            server.cpu_seconds * 1e6 / units,
            server.cpu_seconds * 1e6 / operations,
            server.cpu_seconds / server.seconds.max(1e-9),
            server.voluntary_switches as f64 / operations,
            server.involuntary_switches as f64 / operations,
            server.runqueue_seconds * 1e3 / server.seconds.max(1e-9),
            server.memory_bytes as f64 / f64::from(1 << 20),
        )?;
    }
    writeln!(out)
}

fn machine_noise(runs: &[BenchRun], out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "Beside: how late a thread was that only slept 1 ms at a time, and the CPU time of each of its steps (where it is not \
         the same as ever, the core was slow or stood still); who else had the cores; one fsync.\n"
    )?;
    writeln!(
        out,
        "| run | sleeper p99 ms | p99.9 | longest | its CPU p50 ms | longest | stolen % | other programs % | load generator, cores | fsync p50 ms | p99 | on |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|")?;
    for run in runs {
        let late = &run.hiccups.late;
        let fsync = match &run.fsync {
            Some(fsync) => {
                format!("{} | {} | {}", ms(fsync.latency.p50_ms), ms(fsync.latency.p99_ms), fsync.file_system)
            }
            None => "? | ? | directory not known".into(),
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {:.1} | {:.1} | {:.2} | {fsync} |",
            run.name,
            ms(late.p99_ms),
            ms(late.p999_ms),
            ms(late.longest_ms),
            ms(run.hiccups.work.p50_ms),
            ms(run.hiccups.work.longest_ms),
            run.hiccups.steal * 100.0,
            run.elsewhere * 100.0,
            run.client.cpu_seconds / run.seconds.max(1e-9),
        )?;
    }
    writeln!(out)
}

fn threads(runs: &[BenchRun], out: &mut String) -> std::fmt::Result {
    let mut any = false;
    for run in runs {
        let (Some(server), Some(stream)) = (&run.server, run.streams.first()) else { continue };
        let operations = stream.operations.max(1) as f64;
        for group in server.threads.iter().take(8).filter(|group| group.cpu_seconds > 0.0) {
            if !any {
                any = true;
                writeln!(out, "The server's threads, by name, per operation of the first stream.\n")?;
                writeln!(
                    out,
                    "| run | threads | CPU µs | run queue µs | voluntary switches | involuntary |"
                )?;
                writeln!(out, "|---|---|--:|--:|--:|--:|")?;
            }
            writeln!(
                out,
                "| {} | {} × {} | {:.1} | {:.1} | {:.3} | {:.3} |",
                run.name,
                group.threads,
                group.name,
                group.cpu_seconds * 1e6 / operations,
                group.runqueue_seconds * 1e6 / operations,
                group.voluntary_switches as f64 / operations,
                group.involuntary_switches as f64 / operations,
            )?;
        }
    }
    if any { writeln!(out) } else { Ok(()) }
}

fn figures(runs: &[BenchRun], out: &mut String) -> std::fmt::Result {
    for run in runs.iter().filter(|run| !run.figures.is_empty()) {
        let all: Vec<String> =
            run.figures.iter().map(|(name, value)| format!("{name} {}", short(*value))).collect();
        writeln!(out, "- {}: {}", run.name, all.join(", "))?;
    }
    writeln!(out)
}

fn comparisons(report: &Report, out: &mut String) -> std::fmt::Result {
    if report.comparisons.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "Compared, interleaved: medians with lowest to highest; the ratio is B / A of neighbouring runs.\n"
    )?;
    writeln!(out, "| figure | A | B | ratio | clear |")?;
    writeln!(out, "|---|--:|--:|--:|---|")?;
    let spread = |spread: &Spread| {
        format!("{} ({} to {})", short(spread.median), short(spread.lowest), short(spread.highest))
    };
    for compared in &report.comparisons {
        writeln!(
            out,
            "| {} | {}: {} | {}: {} | {} | {} |",
            compared.figure,
            compared.a_name,
            spread(&compared.a),
            compared.b_name,
            spread(&compared.b),
            spread(&compared.ratio),
            if compared.clear { "yes" } else { "no" },
        )?;
    }
    writeln!(out)
}

pub(crate) fn ms(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

fn short(value: f64) -> String {
    if value.abs() >= 1000.0 { thousands(value) } else { format!("{value:.3}") }
}

/// Formats `1234567.8` as `1,234,568`.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
    let mut out = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(thousands(0.4), "0");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(thousands(1_234_567.8), "1,234,568");
        assert_eq!(thousands(-1000.0), "-1,000");
    }
}
