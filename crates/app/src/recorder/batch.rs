//! The definitions of the recorder's tables, and readings as Arrow batches.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use types::{DataType, Error, Micros, Result, TableDef, TableId};

use super::{METRICS_TABLE, MetricSample, PROCESSES_TABLE, Process, ROWS_PER_READING_MAX};

/// Defines `polynya.metrics`, with a retention of `keep` microseconds.
pub fn metrics_table(keep: Micros) -> Result<TableDef> {
    table(
        METRICS_TABLE,
        keep,
        &[
            ("time", DataType::Timestamp, false),
            ("name", DataType::String, false),
            ("device", DataType::String, true),
            ("value", DataType::Float64, false),
            ("unit", DataType::String, false),
        ],
    )
}

/// Defines `polynya.processes`, with a retention of `keep` microseconds.
pub fn processes_table(keep: Micros) -> Result<TableDef> {
    table(
        PROCESSES_TABLE,
        keep,
        &[
            ("time", DataType::Timestamp, false),
            ("pid", DataType::Int64, false),
            ("name", DataType::String, false),
            ("state", DataType::String, false),
            ("cpu_percent", DataType::Float64, false),
            ("rss_bytes", DataType::Int64, false),
            ("threads", DataType::Int64, false),
        ],
    )
}

fn table(name: &str, keep: Micros, columns: &[(&str, DataType, bool)]) -> Result<TableDef> {
    let mut def = TableDef::new(TableId(0), name);
    for (column, data_type, nullable) in columns {
        let id = def.add_column(column, data_type, *nullable, None)?;
        if *column == "time" {
            def.time = Some(id);
        }
    }
    def.options.retention = Some(keep);
    def.options.lake = Some(false);
    Ok(def)
}

/// Makes a batch of one reading's figures. Figures after the first [`ROWS_PER_READING_MAX`] are left out.
pub fn metrics(time: Micros, samples: &[MetricSample]) -> Result<RecordBatch> {
    let samples = &samples[..samples.len().min(ROWS_PER_READING_MAX)];
    batch(
        time,
        samples.len(),
        vec![
            ("name", Arc::new(StringArray::from_iter_values(samples.iter().map(|s| s.name)))),
            ("device", Arc::new(StringArray::from_iter(samples.iter().map(|s| s.device.as_deref())))),
            ("value", Arc::new(Float64Array::from_iter_values(samples.iter().map(|s| s.value)))),
            ("unit", Arc::new(StringArray::from_iter_values(samples.iter().map(|s| s.unit.name())))),
        ],
    )
}

/// Makes a batch of one reading's processes, at most `rows_max`: the rows that the figures left of the bound.
pub fn processes(time: Micros, processes: &[Process], rows_max: usize) -> Result<RecordBatch> {
    let processes = &processes[..processes.len().min(rows_max)];
    let integers = |get: fn(&Process) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(processes.iter().map(get)))
    };
    batch(
        time,
        processes.len(),
        vec![
            ("pid", integers(|p| p.pid)),
            ("name", Arc::new(StringArray::from_iter_values(processes.iter().map(|p| &p.name)))),
            ("state", Arc::new(StringArray::from_iter_values(processes.iter().map(|p| &p.state)))),
            (
                "cpu_percent",
                Arc::new(Float64Array::from_iter_values(processes.iter().map(|p| p.cpu_percent))),
            ),
            ("rss_bytes", integers(|p| p.rss_bytes)),
            ("threads", integers(|p| p.threads)),
        ],
    )
}

fn batch(time: Micros, rows: usize, columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    let times: ArrayRef = Arc::new(
        TimestampMicrosecondArray::from_iter_values(std::iter::repeat_n(time, rows)).with_timezone("UTC"),
    );
    let all = std::iter::once(("time", times)).chain(columns);
    RecordBatch::try_from_iter(all)
        .map_err(|error| Error::internal("a reading does not make a batch").caused_by(error))
}

#[cfg(test)]
mod tests {
    use super::super::Unit;
    use super::*;

    #[test]
    fn a_reading_never_passes_the_bound() {
        let samples = vec![MetricSample::of("disk_read", "sda", 1.0, Unit::BytesPerSecond); 500];
        assert_eq!(metrics(7, &samples).unwrap().num_rows(), ROWS_PER_READING_MAX);
        let process = Process {
            pid: 1,
            name: "init".into(),
            state: "S".into(),
            cpu_percent: 0.0,
            rss_bytes: 1,
            threads: 1,
        };
        assert_eq!(processes(7, &vec![process; 9], 4).unwrap().num_rows(), 4);
    }

    #[test]
    fn the_columns_are_those_of_the_tables() {
        for (def, batch) in [
            (metrics_table(1).unwrap(), metrics(7, &[]).unwrap()),
            (processes_table(1).unwrap(), processes(7, &[], 4).unwrap()),
        ] {
            let declared: Vec<_> =
                def.schema.columns.iter().map(|c| (c.name.clone(), c.data_type.to_arrow())).collect();
            let built: Vec<_> =
                batch.schema().fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect();
            assert_eq!(declared, built);
        }
    }
}
