//! Measures the cost of a commit after many others: `measure DIR [COMMITS] [ROWS] [PARTITION_BY] [SORT_BY]`. Each commit lands
//! ROWS rows of `at, kind, n, text` and deletes one older row. After the 1st, 10th, 100th … commit the program prints time and
//! CPU (the median of the last ten commits, and the maximum since the previous line among commits that merged no files) and the
//! number of files on the disk. At the end it prints the longest commit that merged files with the number of their rows, the
//! cost of a row, and the bytes of a row. In a partitioned table each commit has rows of the present hour and of earlier ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use polynya_lake::{Lake, Materializer, Options};
use table::Tip;
use table::materializer::{Budget, Materializer as _, MaterializerDir, Position, Progress};
use types::{DataType, Lsn, Result, RowId, TableDef, TableId};
use vfs::Env;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let dir = std::path::absolute(args.get(1).expect("usage: measure DIR [COMMITS] [ROWS]")).expect("a path");
    let number =
        |at: usize, default: u64| args.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (commits, rows) = (number(2, 1_000), number(3, 100));
    let env = Env::real();
    let place = MaterializerDir { env: env.clone(), dir: dir.join("derived/lake/1") };
    env.disk.create_dir_all(&place.dir).expect("DIR can be made");
    let warehouse = dir.join("lake");
    let materializer = Materializer::new(Options::new(&warehouse, warehouse.to_str().expect("UTF-8")));

    let mut def = TableDef::new(TableId(1), "main.events");
    for (name, data_type) in [
        ("at", DataType::Timestamp),
        ("kind", DataType::String),
        ("n", DataType::Int64),
        ("text", DataType::String),
    ] {
        def.add_column(name, &data_type, true, None)?;
    }
    let text = |at: usize| args.get(at).map(|text| types::layout::split_list(text)).unwrap_or_default();
    def.set_partition_by(&text(4))?;
    def.set_sort_by(&text(5))?;
    let mut tip = Tip::new(def);
    let mut position: Option<Arc<Position>> = None;
    let mut lsn = 0;
    let mut taken: Vec<(Duration, Duration)> = Vec::new();
    let mut largest = (Duration::ZERO, Duration::ZERO);
    // Time, CPU, rows.
    let mut largest_merge = (Duration::ZERO, Duration::ZERO, 0);
    println!(
        "commit      median ms   CPU ms   most ms   of CPU   data files   position files   manifests   files"
    );
    for commit in 0..=commits {
        if commit > 0 {
            let first = tip.next_row();
            lsn += 1;
            tip.append(first, lsn as i64, &[(Lsn(lsn), rows)], &batch(&tip, first.0, rows)?)?;
            lsn += 1;
            tip.delete([RowId(1 + first.0 * 7 / 11)], Lsn(lsn));
        }
        let snapshot = tip.snapshot(Lsn(lsn.max(1)));
        let mut took = (Duration::ZERO, Duration::ZERO);
        loop {
            let (start, cpu) = (Instant::now(), cpu_time());
            let tick: &mut dyn FnMut(u64) -> Result<()> = &mut |_| Ok(());
            let mut budget = Budget { rows: 1 << 16, urgent: true, tick };
            let progress = materializer.step(&place, &snapshot, position.as_ref(), &mut budget)?;
            let next = match progress {
                Progress::Advanced(next) => {
                    let next = Arc::new(next);
                    materializer.clean(&place, &next)?;
                    Some(next)
                }
                _ => None,
            };
            let (time, cpu) = (start.elapsed(), cpu_time() - cpu);
            took = (took.0 + time, took.1 + cpu);
            let Some(next) = next else { break };
            match merged_rows(position.as_deref(), &next) {
                0 => largest = (largest.0.max(time), largest.1.max(cpu)),
                rows if time > largest_merge.0 => largest_merge = (time, cpu, rows),
                _ => {}
            }
            position = Some(next);
        }
        taken.push(took);
        if commit > 0 && (commit.ilog10() as f64 == (commit as f64).log10() || commit == commits) {
            let lake = position.as_ref().and_then(|position| position.published::<Lake>()).expect("landed");
            let last = &taken[taken.len().saturating_sub(10).max(1)..];
            let median = |of: fn(&(Duration, Duration)) -> Duration| {
                let mut all: Vec<Duration> = last.iter().map(of).collect();
                all.sort();
                all[all.len() / 2].as_secs_f64() * 1e3
            };
            let files =
                ["data", "metadata"].map(|sub| env.disk.list(&lake.dir.join(sub)).map_or(0, |l| l.len()));
            println!(
                "{commit:>6} {:>14.2} {:>8.2} {:>9.2} {:>8.2} {:>12} {:>16} {:>11} {:>7}",
                median(|t| t.0),
                median(|t| t.1),
                largest.0.as_secs_f64() * 1e3,
                largest.1.as_secs_f64() * 1e3,
                lake.data.len(),
                lake.deletes.len(),
                lake.manifests.len(),
                files[0] + files[1],
            );
            largest = (Duration::ZERO, Duration::ZERO);
        }
    }
    let lake = position.as_ref().and_then(|position| position.published::<Lake>()).expect("landed");
    println!(
        "the longest merge: {:.2} ms, {:.2} ms of it CPU, of files of {} rows",
        largest_merge.0.as_secs_f64() * 1e3,
        largest_merge.1.as_secs_f64() * 1e3,
        largest_merge.2
    );
    let all = (commits * rows).max(1) as f64;
    let (time, cpu) =
        taken.iter().fold((Duration::ZERO, Duration::ZERO), |sum, t| (sum.0 + t.0, sum.1 + t.1));
    let snapshot = tip.snapshot(Lsn(lsn.max(1)));
    println!(
        "a row: {:.2} µs of CPU, {:.2} µs in all; {:.1} bytes in the lake, {} in memory",
        cpu.as_secs_f64() * 1e6 / all,
        time.as_secs_f64() * 1e6 / all,
        lake.bytes() as f64 / lake.rows().max(1) as f64,
        snapshot.row_bytes(),
    );
    Ok(())
}

/// Returns the number of rows in the data files that a commit replaced.
fn merged_rows(before: Option<&Position>, after: &Position) -> u64 {
    let lakes = (before.and_then(|before| before.published::<Lake>()), after.published::<Lake>());
    let (Some(before), Some(after)) = lakes else { return 0 };
    let is_gone = |path: &str| after.data.iter().all(|live| *live.path != *path);
    before.data.iter().filter(|live| is_gone(&live.path)).map(|live| live.entry.file.rows).sum()
}

fn batch(tip: &Tip, first: u64, rows: u64) -> Result<RecordBatch> {
    let ids = || (first..first + rows).map(|n| n as i64);
    // Every tenth row is up to five hours late.
    let late = |n: i64| if n % 10 == 0 { n * 7919 % (5 * 3_600_000_000) } else { 0 };
    let at = |n: i64| n * 1_000_000 - late(n);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from_iter_values(ids().map(at)).with_timezone("UTC")),
        Arc::new(StringArray::from_iter_values(ids().map(|n| ["view", "click", "buy"][n as usize % 3]))),
        Arc::new(Int64Array::from_iter_values(ids().map(|n| n * 7 % 1_000))),
        Arc::new(StringArray::from_iter_values(ids().map(|n| format!("event {n} of a small measurement")))),
    ];
    RecordBatch::try_new(tip.def().schema.to_arrow_user(), columns)
        .map_err(|e| types::Error::internal(e.to_string()))
}

/// Returns the CPU time of this thread; zero if the kernel does not tell it.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
    Duration::from_nanos(nanos)
}
