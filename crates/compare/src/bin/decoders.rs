//! Compares JSON decoders that turn a body of events into Arrow arrays: ours and others, over the same bytes and with the same
//! result.
//!
//! Ours takes a table whose columns are known only at run time, checks each value against them and names values that do not fit.
//! The others have an easier task on purpose: two fields that are known at compile time (serde), or that are looked up in a tree
//! or tape of the whole body. arrow-json, which also gets its schema at run time, takes the same events as NDJSON, since it does
//! not accept an array.
//!
//! `cargo run --release -p polynya-compare --no-default-features --features decoders --bin decoders`

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Builder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType as Arrow, Field, Schema};
use arrow::json::ReaderBuilder;
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use simd_json::prelude::{ValueAsScalar, ValueIntoString};
use sonic_rs::{JsonContainerTrait, JsonValueTrait};
use types::{DataType, Error, Result, TableDef, TableId};

/// The length of an event's text in characters, as in `polynya bench ingest`.
const TEXT_CHARS: usize = 82;

#[derive(Parser)]
#[command(about = "JSON events into Arrow arrays: Polynya's decoder beside others")]
struct Options {
    /// Events of a body
    #[arg(long, default_value_t = 100)]
    batch: usize,
    /// Different bodies
    #[arg(long, default_value_t = 256)]
    bodies: usize,
    /// Rounds; in each, every decoder decodes all bodies, in turns
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

type Decode = fn(&mut Body) -> Result<RecordBatch>;

/// One body in the forms that the decoders take.
struct Body {
    array: Vec<u8>,
    lines: Vec<u8>,
    /// A copy for decoders that decode in place and overwrite their input.
    scratch: Vec<u8>,
    def: Arc<TableDef>,
}

const DECODERS: &[(&str, Decode)] = &[
    ("Polynya", ours),
    ("arrow-json, NDJSON", arrow_json),
    ("simd-json, serde", simd_json_typed),
    ("simd-json, tape", simd_json_tape),
    ("sonic-rs, serde", sonic_typed),
    ("sonic-rs, value", sonic_value),
    ("serde_json, serde", serde_json_typed),
];

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    payload: &'a str,
    timestamp_ms: i64,
}

fn schema() -> Arc<Schema> {
    let fields = [("payload", Arrow::Utf8), ("timestamp_ms", Arrow::Int64)];
    Arc::new(Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec()))
}

fn other(what: &str) -> impl Fn(String) -> Error + '_ {
    move |error| Error::internal(format!("{what} refused a body: {error}"))
}

fn ours(body: &mut Body) -> Result<RecordBatch> {
    let target = wire::DecodeTarget { table: "events", def: Some(&body.def), may_add_columns: false };
    let rows = wire::json::decode(&body.array, target, &wire::Limits::default());
    rows.map(|rows| rows.batch).map_err(|refused| refused.error)
}

fn arrow_json(body: &mut Body) -> Result<RecordBatch> {
    let failed = |e: arrow::error::ArrowError| other("arrow-json")(e.to_string());
    let mut decoder =
        ReaderBuilder::new(schema()).with_batch_size(1 << 20).build_decoder().map_err(failed)?;
    decoder.decode(&body.lines).map_err(failed)?;
    decoder.flush().map_err(failed)?.ok_or_else(|| Error::internal("arrow-json found no rows"))
}

/// Builders with room for the known number of rows, which our decoder cannot know.
struct Columns {
    payload: StringBuilder,
    time: Int64Builder,
}

impl Columns {
    fn new(rows: usize) -> Self {
        Columns {
            payload: StringBuilder::with_capacity(rows, rows * TEXT_CHARS),
            time: Int64Builder::with_capacity(rows),
        }
    }

    fn push(&mut self, payload: Option<&str>, time: Option<i64>) {
        self.payload.append_option(payload);
        self.time.append_option(time);
    }

    fn finish(mut self) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![Arc::new(self.payload.finish()), Arc::new(self.time.finish())];
        RecordBatch::try_new(schema(), columns).map_err(|e| Error::internal(e.to_string()))
    }
}

fn of_events(events: &[Event<'_>]) -> Result<RecordBatch> {
    let mut columns = Columns::new(events.len());
    events.iter().for_each(|event| columns.push(Some(event.payload), Some(event.timestamp_ms)));
    columns.finish()
}

fn simd_json_typed(body: &mut Body) -> Result<RecordBatch> {
    body.scratch.clone_from(&body.array);
    let events: Vec<Event<'_>> =
        simd_json::from_slice(&mut body.scratch).map_err(|e| other("simd-json")(e.to_string()))?;
    of_events(&events)
}

fn simd_json_tape(body: &mut Body) -> Result<RecordBatch> {
    body.scratch.clone_from(&body.array);
    let tape = simd_json::to_tape(&mut body.scratch).map_err(|e| other("simd-json")(e.to_string()))?;
    let value = tape.as_value();
    let rows = value.as_array().ok_or_else(|| Error::internal("simd-json found no array"))?;
    let mut columns = Columns::new(rows.len());
    for row in rows.iter() {
        let payload = row.get("payload").and_then(|value| value.into_string());
        columns.push(payload, row.get("timestamp_ms").and_then(|value| value.as_i64()));
    }
    columns.finish()
}

fn sonic_typed(body: &mut Body) -> Result<RecordBatch> {
    let events: Vec<Event<'_>> =
        sonic_rs::from_slice(&body.array).map_err(|e| other("sonic-rs")(e.to_string()))?;
    of_events(&events)
}

fn sonic_value(body: &mut Body) -> Result<RecordBatch> {
    let value: sonic_rs::Value =
        sonic_rs::from_slice(&body.array).map_err(|e| other("sonic-rs")(e.to_string()))?;
    let rows = value.as_array().ok_or_else(|| Error::internal("sonic-rs found no array"))?;
    let mut columns = Columns::new(rows.len());
    for row in rows.iter() {
        let time = row.get("timestamp_ms").and_then(|value| value.as_i64());
        columns.push(row.get("payload").and_then(|value| value.as_str()), time);
    }
    columns.finish()
}

fn serde_json_typed(body: &mut Body) -> Result<RecordBatch> {
    let events: Vec<Event<'_>> =
        serde_json::from_slice(&body.array).map_err(|e| other("serde_json")(e.to_string()))?;
    of_events(&events)
}

/// Returns an array of events, each with a random text and a time in milliseconds.
fn body(random: &mut fastrand::Rng, events: usize) -> String {
    let mut event = || {
        let payload: String = (0..TEXT_CHARS).map(|_| random.alphanumeric()).collect();
        format!(
            "{{\"payload\":\"{payload}\",\"timestamp_ms\":{}}}",
            1_767_225_600_000 + random.u64(..1 << 30)
        )
    };
    format!("[{}]", (0..events).map(|_| event()).collect::<Vec<_>>().join(","))
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("decoders: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Compares the arrays of all decoders for each body, then times the decoders in turns, by the CPU time of this thread.
fn run(options: &Options) -> Result<()> {
    let mut def = TableDef::new(TableId(1), "main.events");
    def.add_column("payload", &DataType::String, true, None)?;
    def.add_column("timestamp_ms", &DataType::Int64, true, None)?;
    let def = Arc::new(def);
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut bodies: Vec<Body> = (0..options.bodies.max(1))
        .map(|_| {
            let array = body(&mut random, options.batch.max(1));
            // No event's text contains a brace.
            let lines = array.trim_matches(['[', ']']).replace("},{", "}\n{").into_bytes();
            Body { array: array.into_bytes(), lines, scratch: Vec::new(), def: def.clone() }
        })
        .collect();
    for body in &mut bodies {
        let wanted = ours(body)?;
        for (name, decode) in DECODERS {
            let found = decode(body)?;
            if found.columns() != wanted.columns() {
                return Err(Error::internal(format!("{name} makes other arrays of a body")));
            }
        }
    }
    let events = (bodies.len() * options.batch.max(1)) as f64;
    let mut nanos: Vec<Vec<f64>> = vec![Vec::new(); DECODERS.len()];
    for round in 0..options.rounds.max(1) {
        for turn in 0..DECODERS.len() {
            let at = (turn + round) % DECODERS.len();
            let began = cpu_time();
            for body in &mut bodies {
                black_box((DECODERS[at].1)(body)?);
            }
            nanos[at].push((cpu_time() - began).as_nanos() as f64 / events);
        }
    }
    let bytes = bodies.iter().map(|body| body.array.len()).sum::<usize>() as f64 / events;
    println!("{} bodies of {} events of {bytes:.1} bytes, arrays equal\n", bodies.len(), options.batch);
    println!("| decoder | ns of CPU an event | lowest to highest | MB/s | against Polynya |");
    println!("|---|--:|--:|--:|--:|");
    nanos.iter_mut().for_each(|all| all.sort_by(f64::total_cmp));
    let median = |all: &[f64]| all[all.len() / 2];
    for ((name, _), all) in DECODERS.iter().zip(&nanos) {
        let (rate, times) = (bytes / median(all) * 1e3, median(all) / median(&nanos[0]));
        let (lowest, highest) = (all[0], all[all.len() - 1]);
        println!("| {name} | {:.1} | {lowest:.1} to {highest:.1} | {rate:.0} | {times:.2} |", median(all));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_decoders_make_the_same_arrays() {
        let _limit = testkit::limit(120);
        run(&Options { batch: 7, bodies: 3, rounds: 1, seed: 5 }).unwrap();
    }
}
