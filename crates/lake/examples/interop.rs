//! Creates a small warehouse for other programs to read, in phases; `tests/lake` runs it.
//!
//!     interop DIR PHASE [N]
//!
//! Makes the changes of the phase (once), lands the tables, and prints the contents of each as JSON. With N, the process kills
//! itself with SIGKILL before the Nth call that changes a file of the warehouse. Run again without N, it continues from
//! there.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, RecordBatch};
use bytes::Bytes;
use engine::{Engine, Mode, NewColumn, Op, Transaction};
use polynya_lake::{Lake, Materializer, MissingChanges, NAME, Options};
use serde_json::{Map, Value as Json, json};
use types::{AlterAction, ColumnId, DataType, Error, Principal, Result, RowId, TableDef, TableId, Value};
use vfs::{Access, Disk, Entry, Env, File, Lock, RealDisk};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, phase, rest @ ..] = &args[..] else { panic!("usage: interop DIR PHASE [N]") };
    let phase: u32 = phase.parse().expect("PHASE is a number");
    let kill_at = rest.first().map_or(u64::MAX, |n| n.parse().expect("N is a number"));
    let dir = std::path::absolute(dir).expect("an absolute path");
    std::fs::create_dir_all(&dir).expect("DIR can be made");
    match run(&dir, phase, kill_at) {
        Ok(made) => println!("{made}"),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

fn run(dir: &Path, phase: u32, kill_at: u64) -> Result<Json> {
    let calls = Arc::new(AtomicU64::new(0));
    let disk = Killer { calls: calls.clone(), kill_at };
    let env = Env { disk: Arc::new(disk), ..Env::real() };
    let warehouse = dir.join("lake");
    let options = Options {
        // Commits are made only on request, so that every run makes the same calls.
        commit_wait: Duration::from_secs(3_600),
        trickle_wait: Duration::from_secs(3_600),
        snapshots_min: 4,
        snapshots_max: 6,
        metadata_files_max: 4,
        ..Options::new(&warehouse, warehouse.to_str().expect("UTF-8"))
    };
    let mut small = engine::Options::default();
    // A new log is created for each kill, so that its files are small.
    small.log.file_bytes = 1 << 20;
    small.log.spare_files = 1;
    let engine = Engine::open(env, dir, small)?;
    let marker = dir.join(format!("phase-{phase}"));
    let work = || -> Result<()> {
        if marker.exists() {
            return Ok(());
        }
        match phase {
            1 => create(&engine)?,
            2 => change(&engine)?,
            3 => add_columns(&engine)?,
            _ => {}
        }
        std::fs::write(&marker, "").map_err(|e| Error::io("noting the phase", e))
    };
    work()?;
    engine.register(Arc::new(Materializer::new(options)))?;
    if phase == 4 {
        many(&engine)?;
    }
    let mut tables = Map::new();
    for table in TABLES {
        tables.insert(table.into(), land(&engine, table)?);
    }
    engine.close()?;
    Ok(json!({ "tables": tables, "calls": calls.load(Ordering::Relaxed) }))
}

const TABLES: [&str; 8] = [
    "main.types",
    "sensors.kv",
    "main.many",
    "main.gone",
    "main.altered",
    "main.parted",
    "main.each_way",
    "main.sorted",
];

/// Lands a table and describes its contents.
fn land(engine: &Engine, table: &str) -> Result<Json> {
    let snapshot = engine.root().table(table).cloned().ok_or_else(|| Error::not_found(table))?;
    let start = Instant::now();
    loop {
        engine.hurry(NAME, snapshot.def().id);
        let root = engine.root();
        if let Some(position) = root.derived(NAME, snapshot.def().id)
            && !MissingChanges::at(position, &snapshot)?.any()
            && let Some(lake) = position.published::<Lake>()
        {
            return describe(&snapshot, &lake);
        }
        if start.elapsed() > Duration::from_secs(60) {
            return Err(Error::internal(format!("{table} does not land")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn describe(table: &table::Snapshot, lake: &Lake) -> Result<Json> {
    let batch = table.scan_from(RowId(1), usize::MAX, table.all_columns())?;
    let columns: Vec<(String, DataType)> =
        [(polynya_lake::ROW_ID_NAME.to_owned(), DataType::Int64), ("_time".to_owned(), DataType::Timestamp)]
            .into_iter()
            .chain(table.def().schema.columns.iter().map(|c| (c.name.clone(), c.data_type.clone())))
            .collect();
    let row = |row: usize| {
        let cell = |(at, (name, data_type)): (usize, &(String, DataType))| {
            (name.clone(), to_json(&Value::from_array(batch.column(at), data_type, row), data_type))
        };
        Json::Object(columns.iter().enumerate().map(cell).collect())
    };
    Ok(json!({
        "dir": lake.dir,
        "metadata": lake.metadata_path(),
        "row": lake.row.0,
        "lsn": lake.lsn.0,
        "files": lake.data.len(),
        "delete_files": lake.deletes.len(),
        "types": columns.iter().map(|(name, t)| (name.clone(), t.to_string().into())).collect::<Map<_, _>>(),
        "rows": (0..batch.num_rows()).map(row).collect::<Vec<_>>(),
    }))
}

/// Converts a value to the normal form of the Python side: exact, and without types that JSON lacks.
fn to_json(value: &Value, data_type: &DataType) -> Json {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>().into();
    match (value, data_type) {
        (Value::Null, _) => Json::Null,
        (Value::Bool(v), _) => json!(v),
        (Value::Int32(v), _) | (Value::Date(v), _) => json!(v),
        (Value::Int64(v), _) | (Value::Timestamp(v), _) => json!(v),
        (Value::Float32(v), _) => float(f64::from(*v)),
        (Value::Float64(v), _) => float(*v),
        (Value::Decimal(v), _) => json!(v.to_string()),
        (Value::String(v) | Value::Json(v), _) => json!(v),
        (Value::Binary(v), _) => hex(v),
        (Value::Uuid(v), _) => hex(v),
        (Value::List(items), DataType::List(item)) => {
            items.iter().map(|v| to_json(v, &item.data_type)).collect()
        }
        (Value::Struct(values), DataType::Struct(fields)) => Json::Object(
            fields.iter().zip(values).map(|(f, v)| (f.name.clone(), to_json(v, &f.data_type))).collect(),
        ),
        (Value::Vector(v), _) => v.iter().map(|v| float(f64::from(*v))).collect(),
        (Value::Point([lon, lat]), _) => json!({ "lon": float(*lon), "lat": float(*lat) }),
        (Value::Point3d([x, y, z]), _) => json!({ "x": float(*x), "y": float(*y), "z": float(*z) }),
        (value, _) => panic!("{value:?} is no {data_type}"),
    }
}

/// Returns the bits, since NaN and the sign of zero count.
fn float(value: f64) -> Json {
    json!(format!("{:016x}", value.to_bits()))
}

fn commit(engine: &Engine, ops: Vec<Op>) -> Result<()> {
    engine.commit(&Principal::local(), Transaction::new(ops)).map(drop)
}

/// Builds a batch of columns, given by name and type with their values.
fn batch(columns: &[(&str, &str, Vec<Value>)]) -> Result<RecordBatch> {
    let array = |(name, data_type, values): &(&str, &str, Vec<Value>)| -> Result<(String, ArrayRef)> {
        Ok(((*name).to_owned(), Value::to_array(values, &parse(data_type)?)?))
    };
    let arrays = columns.iter().map(array).collect::<Result<Vec<_>>>()?;
    RecordBatch::try_from_iter_with_nullable(arrays.into_iter().map(|(name, array)| (name, array, true)))
        .map_err(|e| Error::internal(e.to_string()))
}

fn parse(data_type: &str) -> Result<DataType> {
    DataType::parse(data_type, &mut ColumnId(0))
}

fn table(name: &str, columns: &[(&str, &str)], key: &[&str]) -> Result<Op> {
    let mut def = TableDef::new(TableId(0), name);
    for (column, data_type) in columns {
        def.add_column(column, &parse(data_type)?, true, None)?;
    }
    def.set_primary_key(&key.iter().map(|k| (*k).to_owned()).collect::<Vec<_>>())?;
    Ok(Op::CreateTable { def, if_absent: false })
}

const ALTERED: [(&str, &str); 5] =
    [("id", "int64"), ("i", "int32"), ("f", "float32"), ("d", "decimal(9,2)"), ("text", "string")];

const TYPES: [(&str, &str); 21] = [
    ("bool", "bool"),
    ("int32", "int32"),
    ("int64", "int64"),
    ("float32", "float32"),
    ("float64", "float64"),
    ("small", "decimal(9,2)"),
    ("middle", "decimal(18,6)"),
    ("large", "decimal(38,10)"),
    ("string", "string"),
    ("binary", "binary"),
    ("date", "date"),
    ("timestamp", "timestamp"),
    ("uuid", "uuid"),
    ("json", "json"),
    ("list", "list<int64>"),
    ("struct", "struct<a: int64, b: string>"),
    ("vector", "vector(3)"),
    ("point", "point"),
    ("point3d", "point3d"),
    ("nested", NESTED),
    ("strict", "struct<at: point not null, to: point, ids: list<uuid not null> not null>"),
];

/// The table is partitioned by two columns, later by others, and sorted from then on.
const PARTED: [(&str, &str); 5] =
    [("id", "int64"), ("at", "timestamp"), ("country", "string"), ("score", "float64"), ("note", "string")];

/// A column for each partition transform and type: name, type and transform.
const EACH_WAY: [(&str, &str, &str); 16] = [
    ("a", "int32", "bucket(5, a)"),
    ("b", "int64", "bucket(5, b)"),
    ("c", "date", "bucket(3, c)"),
    ("d", "timestamp", "bucket(3, d)"),
    ("e", "decimal(18,2)", "bucket(3, e)"),
    ("f", "string", "bucket(3, f)"),
    ("g", "uuid", "bucket(3, g)"),
    ("h", "binary", "bucket(3, h)"),
    ("i", "int32", "truncate(10, i)"),
    ("j", "decimal(20,3)", "truncate(50, j)"),
    ("k", "string", "truncate(3, k)"),
    ("l", "timestamp", "hours(l)"),
    ("m", "timestamp", "years(m)"),
    ("n", "date", "months(n)"),
    ("o", "bool", "o"),
    ("p", "decimal(9,2)", "p"),
];

const NESTED: &str = "list<struct<a: int64, d: decimal(20,3), b: list<string>, v: vector(2)>>";

/// Returns the value of number `n` for a column: null for each 7th, and from [`EXTREME`] on the least and greatest of the type.
fn value(name: &str, n: i64) -> Value {
    if n % 7 == 6 {
        return Value::Null;
    }
    if n >= EXTREME {
        return extreme(name, n % 2 == 0);
    }
    let half = n as f64 / 2.0;
    match name {
        "bool" => Value::Bool(n % 2 == 0),
        "int32" => Value::Int32((n - 50) as i32),
        "int64" => Value::Int64((n - 50) * 10_000_000_000),
        "float32" => Value::Float32(half as f32),
        "float64" => Value::Float64(-half),
        "small" => Value::Decimal((n - 50).into()),
        "middle" => Value::Decimal(i128::from(n - 50) * 1_000_000_007),
        "large" => Value::Decimal(i128::from(n - 50) * 10i128.pow(30)),
        "string" => Value::String(format!("Wörter ❄ {n}, lang genug, um gekürzt zu werden")),
        "binary" => Value::Binary(vec![n as u8, 0xff, 0]),
        "date" => Value::Date(n as i32 * 100 - 4_000),
        "timestamp" => Value::Timestamp(1_700_000_000_000_000 + n * 1_000_001),
        "uuid" => Value::Uuid([n as u8; 16]),
        "json" => Value::Json(format!(r#"{{"n": {n}}}"#)),
        "list" => Value::List((0..n % 4).map(Value::Int64).collect()),
        "struct" => Value::Struct(vec![Value::Int64(n), Value::String(n.to_string())]),
        "vector" => Value::Vector(vec![half as f32, 0.0, -1.5]),
        "point" => Value::Point([half, -half]),
        "point3d" => Value::Point3d([half, 0.0, 1.0]),
        "nested" => Value::List((0..n % 3).map(|i| nested(n, i)).collect()),
        "strict" => Value::Struct(vec![
            Value::Point([half, 1.0]),
            if n % 2 == 0 { Value::Null } else { Value::Point([half, 2.0]) },
            Value::List((0..n % 5).map(|i| Value::Uuid([i as u8; 16])).collect()),
        ]),
        _ => Value::Null,
    }
}

/// Returns an item of `nested`, with nulls and empty lists at each level.
fn nested(n: i64, i: i64) -> Value {
    let texts =
        (0..(n + i) % 3).map(|t| if t == 1 { Value::Null } else { Value::String(format!("{n}.{i}")) });
    match (n + i) % 4 {
        0 => Value::Null,
        1 => Value::Struct(vec![Value::Null; 4]),
        _ => Value::Struct(vec![
            Value::Int64(n),
            Value::Decimal((n * i).into()),
            Value::List(texts.collect()),
            Value::Vector(vec![i as f32, -0.5]),
        ]),
    }
}

/// Numbers from here on give the least and greatest values of a type.
const EXTREME: i64 = 90;

/// The first and the last day and microsecond that Python supports.
const DAYS: [i32; 2] = [-719_162, 2_932_896];
const MICROS: [i64; 2] = [-62_135_596_800_000_000, 253_402_300_799_999_999];

fn extreme(name: &str, least: bool) -> Value {
    let sign = if least { -1 } else { 1 };
    let at = usize::from(!least);
    match name {
        "bool" => Value::Bool(!least),
        "int32" => Value::Int32(if least { i32::MIN } else { i32::MAX }),
        "int64" => Value::Int64(if least { i64::MIN } else { i64::MAX }),
        "float32" => Value::Float32(if least { f32::NEG_INFINITY } else { f32::NAN }),
        "float64" => Value::Float64(if least { f64::MIN_POSITIVE } else { f64::NAN }),
        "small" => Value::Decimal(sign * (10i128.pow(9) - 1)),
        "middle" => Value::Decimal(sign * (10i128.pow(18) - 1)),
        "large" => Value::Decimal(sign * (10i128.pow(38) - 1)),
        "string" => Value::String(if least { String::new() } else { "\u{10ffff}".repeat(40) }),
        "binary" => Value::Binary(if least { Vec::new() } else { vec![0xff; 40] }),
        "date" => Value::Date(DAYS[at]),
        "timestamp" => Value::Timestamp(MICROS[at]),
        "uuid" => Value::Uuid([if least { 0 } else { 0xff }; 16]),
        "json" => Value::Json(if least { "null".into() } else { "\"\\u0000\"".into() }),
        "list" => Value::List(if least { Vec::new() } else { vec![Value::Null, Value::Int64(i64::MAX)] }),
        "struct" => Value::Struct(vec![Value::Null, Value::String(String::new())]),
        "vector" => Value::Vector(vec![f32::MAX, f32::MIN, -0.0]),
        "point" => Value::Point([180.0, -90.0]),
        "point3d" => Value::Point3d([f64::MAX, f64::MIN, -0.0]),
        "nested" => Value::List(vec![Value::Struct(vec![
            Value::Int64(i64::MIN),
            Value::Decimal(sign * (10i128.pow(20) - 1)),
            Value::List(Vec::new()),
            Value::Null,
        ])]),
        _ => Value::Null,
    }
}

fn types_batch(numbers: std::ops::Range<i64>) -> Result<RecordBatch> {
    let column = |(name, data_type): &(&'static str, &'static str)| {
        (*name, *data_type, numbers.clone().map(|n| value(name, n)).collect())
    };
    batch(&TYPES.iter().map(column).collect::<Vec<_>>())
}

fn kv_batch(keys: impl Iterator<Item = i64> + Clone, round: i64) -> Result<RecordBatch> {
    batch(&[
        ("k", "int64", keys.clone().map(Value::Int64).collect()),
        ("v", "int64", keys.clone().map(|k| Value::Int64(k * 1_000 + round)).collect()),
        ("name", "string", keys.clone().map(|k| Value::String(format!("key {k} round {round}"))).collect()),
        ("price", "decimal(12,2)", keys.map(|k| Value::Decimal((k * 100 + round).into())).collect()),
    ])
}

fn insert(table: &str, batch: RecordBatch, mode: Mode) -> Op {
    Op::Insert { table: table.into(), batch, mode }
}

fn laid_out(op: Op, partition_by: &[&str], sort_by: &[&str]) -> Result<Op> {
    let Op::CreateTable { mut def, if_absent } = op else { return Ok(op) };
    let texts = |by: &[&str]| by.iter().map(|by| (*by).to_owned()).collect::<Vec<_>>();
    def.set_partition_by(&texts(partition_by))?;
    def.set_sort_by(&texts(sort_by))?;
    Ok(Op::CreateTable { def, if_absent })
}

/// Times of rows are an hour short of a day apart, beginning two weeks before 1970; each fifth is about 56 years later.
const PARTED_US: i64 = 23 * 3_600_000_000;
const LATER_US: i64 = 20_400 * 24 * 3_600_000_000;

fn parted_batch(ids: impl Iterator<Item = i64> + Clone, round: i64) -> Result<RecordBatch> {
    let of = |value: &dyn Fn(i64) -> Value| ids.clone().map(value).collect::<Vec<_>>();
    let later = |id: i64| if id % 5 == 0 { LATER_US } else { 0 };
    let at = |id: i64| Value::Timestamp((id % 40 - 14) * PARTED_US + later(id) + round);
    let country = |id: i64| match id % 4 {
        3 => Value::Null,
        n => Value::String(["AT", "Côte d'Ivoire", ""][n as usize].into()),
    };
    let score = |id: i64| Value::Float64(if id % 17 == 0 { f64::NAN } else { (id % 13 - 6) as f64 / 2.0 });
    batch(&[
        ("id", "int64", of(&Value::Int64)),
        ("at", "timestamp", of(&at)),
        ("country", "string", of(&country)),
        ("score", "float64", of(&score)),
        ("note", "string", of(&|id| Value::String(format!("note {id} of round {round}")))),
    ])
}

/// Values on both sides of zero and of 1970; each seventh is null.
fn each_way_batch(numbers: std::ops::Range<i64>) -> Result<RecordBatch> {
    let value = |name: &str, n: i64| match name {
        _ if n % 7 == 6 => Value::Null,
        "a" | "i" => Value::Int32(n as i32 * 7 - 100),
        "b" => Value::Int64((n - 15) * 1_000_000_007),
        "c" | "n" => Value::Date((n as i32 - 15) * 20),
        "d" | "l" => Value::Timestamp((n - 15) * 1_799_999_999),
        "m" => Value::Timestamp((n - 15) * 5_000_000_000_000),
        "e" | "p" => Value::Decimal(((n - 15) * 129).into()),
        "j" => Value::Decimal(i128::from(n - 15) * 77),
        "f" | "k" => Value::String(format!("{}ücke {n}", ["L", "Br", "❄❄", "T"][n as usize % 4])),
        "g" => Value::Uuid([(n * 17) as u8; 16]),
        "h" => Value::Binary((0..n % 5).map(|i| (n * 50 + i) as u8).collect()),
        "o" => Value::Bool(n % 3 == 0),
        _ => Value::Null,
    };
    let column = |(name, data_type, _): &(&'static str, &'static str, &str)| {
        (*name, *data_type, numbers.clone().map(|n| value(name, n)).collect())
    };
    batch(&EACH_WAY.iter().map(column).collect::<Vec<_>>())
}

fn sorted_batch(numbers: std::ops::Range<i64>) -> Result<RecordBatch> {
    let user =
        |n: i64| if n % 11 == 3 { Value::Null } else { Value::String(format!("user {}", n * 37 % 50)) };
    batch(&[
        ("user", "string", numbers.clone().map(user).collect()),
        ("n", "int64", numbers.map(Value::Int64).collect()),
    ])
}

fn create(engine: &Engine) -> Result<()> {
    let kv = [("k", "int64"), ("v", "int64"), ("name", "string"), ("price", "decimal(12,2)")];
    commit(engine, vec![table("main.types", &TYPES, &[])?])?;
    commit(engine, vec![table("sensors.kv", &kv, &["k"])?])?;
    commit(engine, vec![table("main.many", &[("n", "int64")], &[])?])?;
    commit(engine, vec![table("main.gone", &[("n", "int64")], &[])?])?;
    commit(engine, vec![table("main.altered", &ALTERED, &["id"])?])?;
    let parted = laid_out(table("main.parted", &PARTED, &["id"])?, &["days(at)", "country"], &[])?;
    commit(engine, vec![parted, insert("parted", parted_batch(0..160, 0)?, Mode::Append)])?;
    let each = EACH_WAY.map(|(name, data_type, _)| (name, data_type));
    let each = laid_out(table("main.each_way", &each, &[])?, &EACH_WAY.map(|(.., by)| by), &["b desc"])?;
    commit(engine, vec![each, insert("each_way", each_way_batch(0..30)?, Mode::Append)])?;
    let sorted = table("main.sorted", &[("user", "string"), ("n", "int64")], &[])?;
    let sorted = laid_out(sorted, &[], &["user desc nulls last", "n"])?;
    commit(engine, vec![sorted, insert("sorted", sorted_batch(0..500)?, Mode::Append)])?;
    let rows = batch(&[
        ("id", "int64", (0..50).map(Value::Int64).collect()),
        ("i", "int32", (0..50).map(|n| Value::Int32(i32::MAX - n)).collect()),
        ("f", "float32", (0..50).map(|n| Value::Float32(n as f32 / 4.0)).collect()),
        ("d", "decimal(9,2)", (0..50).map(|n| Value::Decimal(n - 25)).collect()),
        ("text", "string", (0..50).map(|n| Value::String(format!("old {n}"))).collect()),
    ])?;
    commit(engine, vec![insert("altered", rows, Mode::Append)])?;
    let rows = batch(&[("n", "int64", (0..10).map(Value::Int64).collect())])?;
    commit(engine, vec![insert("gone", rows, Mode::Append)])?;
    commit(engine, vec![insert("types", types_batch(0..100)?, Mode::Append)])?;
    commit(engine, vec![insert("sensors.kv", kv_batch(0..1_000, 1)?, Mode::Append)])
}

fn change(engine: &Engine) -> Result<()> {
    commit(engine, vec![insert("sensors.kv", kv_batch((0..1_000).step_by(3), 2)?, Mode::Upsert)])?;
    commit(engine, vec![insert("sensors.kv", kv_batch(1_000..1_050, 2)?, Mode::Upsert)])?;
    commit(engine, vec![insert("parted", parted_batch((0..160).step_by(9), 1)?, Mode::Upsert)])?;
    let keys = (5..160).step_by(40).map(|k| vec![Value::Int64(k)]).collect();
    commit(engine, vec![Op::DeleteKeys { table: "parted".into(), keys }])?;
    let rows = (1..500).step_by(23).map(RowId).collect();
    commit(engine, vec![Op::Delete { table: "sorted".into(), rows, must_exist: true }])?;
    let rows = [2, 9, 30].map(RowId).to_vec();
    commit(engine, vec![Op::Delete { table: "each_way".into(), rows, must_exist: true }])?;
    let keys = (0..1_000).step_by(50).map(|k| vec![Value::Int64(k)]).collect();
    commit(engine, vec![Op::DeleteKeys { table: "sensors.kv".into(), keys }])?;
    // All rows of this table are deleted.
    let rows = (1..=10).map(RowId).collect();
    commit(engine, vec![Op::Delete { table: "gone".into(), rows, must_exist: true }])?;
    let rows = [3, 4, 5, 90].map(RowId).to_vec();
    commit(engine, vec![Op::Delete { table: "types".into(), rows, must_exist: true }])
}

fn add_columns(engine: &Engine) -> Result<()> {
    let column = |name: &str, data_type: &str, default| -> Result<NewColumn> {
        Ok(NewColumn { name: name.into(), data_type: parse(data_type)?, nullable: true, default })
    };
    let plain = vec![column("later", "string", None)?];
    commit(engine, vec![Op::AddColumns { table: "types".into(), columns: plain }])?;
    let shown = vec![column("level", "int32", Some(Value::Int32(7)))?, column("note", "string", None)?];
    commit(engine, vec![Op::AddColumns { table: "sensors.kv".into(), columns: shown }])?;
    let later = |n: i64| Value::String(format!("later {n}"));
    let fresh = batch(&[
        ("int64", "int64", (0..10).map(Value::Int64).collect()),
        ("later", "string", (0..10).map(later).collect()),
    ])?;
    commit(engine, vec![insert("types", fresh, Mode::Append)])?;
    let fresh = batch(&[
        ("k", "int64", (500..520).map(Value::Int64).collect()),
        ("level", "int32", (0..20).map(Value::Int32).collect()),
    ])?;
    commit(engine, vec![insert("sensors.kv", fresh, Mode::Upsert)])?;
    lay_out_anew(engine)?;
    alter(engine)
}

/// Changes the partition spec and sort order of existing tables, and drops a column by which old files are partitioned.
fn lay_out_anew(engine: &Engine) -> Result<()> {
    let changes = vec![
        AlterAction::SetPartitionBy { to: vec!["years(at)".into(), "bucket(3, id)".into()] },
        AlterAction::SetSortBy { to: vec!["score desc".into(), "at".into()] },
        AlterAction::DropColumn { name: "country".into(), if_exists: false },
        // A new column takes the name; the partition values of the old one are not its values.
        AlterAction::AddColumn {
            name: "country".into(),
            data_type: DataType::Int32,
            nullable: true,
            default: None,
            if_absent: false,
        },
    ];
    commit(engine, vec![Op::AlterTable { table: "parted".into(), changes }])?;
    let fresh = parted_batch((0..200).step_by(7), 2)?;
    let at = fresh.schema().index_of("country").expect("a column");
    let mut fresh = fresh;
    fresh.remove_column(at);
    commit(engine, vec![insert("parted", fresh, Mode::Upsert)])?;
    let changes = vec![AlterAction::SetPartitionBy { to: vec!["truncate(100, n)".into()] }];
    commit(engine, vec![Op::AlterTable { table: "sorted".into(), changes }])?;
    commit(engine, vec![insert("sorted", sorted_batch(490..560)?, Mode::Append)])
}

/// Widens, renames and drops columns, and adds one under a former name.
fn alter(engine: &Engine) -> Result<()> {
    let widen = |name: &str, to: &str| -> Result<AlterAction> {
        Ok(AlterAction::Widen { name: name.into(), to: parse(to)? })
    };
    let changes = vec![
        widen("i", "int64")?,
        widen("f", "float64")?,
        widen("d", "decimal(20,2)")?,
        AlterAction::RenameColumn { from: "text".into(), to: "before".into() },
        AlterAction::RenameColumn { from: "id".into(), to: "key".into() },
        AlterAction::AddColumn {
            name: "text".into(),
            data_type: DataType::Int32,
            nullable: true,
            default: None,
            if_absent: false,
        },
    ];
    commit(engine, vec![Op::AlterTable { table: "altered".into(), changes }])?;
    let fresh = batch(&[
        ("key", "int64", (40..60).map(Value::Int64).collect()),
        ("i", "int64", (0..20).map(|n| Value::Int64(i64::MAX - n)).collect()),
        ("f", "float64", (0..20).map(|n| Value::Float64(n as f64 * 1e200)).collect()),
        ("d", "decimal(20,2)", (0..20).map(|n| Value::Decimal(n * 10i128.pow(17))).collect()),
        ("text", "int32", (0..20).map(Value::Int32).collect()),
    ])?;
    commit(engine, vec![insert("altered", fresh, Mode::Upsert)])?;
    let changes = vec![AlterAction::DropColumn { name: "before".into(), if_exists: false }];
    commit(engine, vec![Op::AlterTable { table: "altered".into(), changes }])
}

/// Makes many commits, so that files are merged and snapshots expire. Does not repeat the commits of an earlier run.
fn many(engine: &Engine) -> Result<()> {
    let done = engine.root().table("main.many").map_or(0, |table| table.rows() as i64 / 10);
    for round in done..20 {
        let rows = batch(&[("n", "int64", (0..10).map(|n| Value::Int64(round * 10 + n)).collect())])?;
        let keys = (round..1_000).step_by(31);
        let mut parted = parted_batch((round..160).step_by(31), 10 + round)?;
        parted.remove_column(parted.schema().index_of("country").expect("a column"));
        let ops = vec![
            insert("many", rows, Mode::Append),
            insert("sensors.kv", kv_batch(keys, 10 + round)?, Mode::Upsert),
            insert("parted", parted, Mode::Upsert),
        ];
        commit(engine, ops)?;
        land(engine, "main.many")?;
        land(engine, "sensors.kv")?;
        land(engine, "main.parted")?;
    }
    Ok(())
}

/// The real disk, which kills the process before a certain change of the warehouse.
#[derive(Debug)]
struct Killer {
    calls: Arc<AtomicU64>,
    kill_at: u64,
}

impl Killer {
    fn changes(&self, path: &Path) {
        count(&self.calls, self.kill_at, path);
    }

    fn file(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        let (calls, kill_at, path) = (self.calls.clone(), self.kill_at, path.to_owned());
        Arc::new(KillerFile { file, path, calls, kill_at })
    }
}

fn count(calls: &AtomicU64, kill_at: u64, path: &Path) {
    let ours = path.components().any(|part| part.as_os_str() == "lake");
    if ours && calls.fetch_add(1, Ordering::Relaxed) + 1 == kill_at {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .expect("a process may kill itself");
        loop {
            std::thread::park();
        }
    }
}

impl Disk for Killer {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.changes(path);
        Ok(self.file(path, RealDisk.create(path)?))
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        Ok(self.file(path, RealDisk.open(path, access)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.changes(to);
        RealDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.changes(path);
        RealDisk.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.changes(path);
        RealDisk.remove_dir(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.changes(path);
        RealDisk.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.changes(path);
        RealDisk.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        RealDisk.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        RealDisk.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        RealDisk.lock(path)
    }
}

#[derive(Debug)]
struct KillerFile {
    file: Arc<dyn File>,
    path: PathBuf,
    calls: Arc<AtomicU64>,
    kill_at: u64,
}

impl File for KillerFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        count(&self.calls, self.kill_at, &self.path);
        self.file.write_at(parts, offset)
    }
    fn sync(&self) -> io::Result<()> {
        count(&self.calls, self.kill_at, &self.path);
        self.file.sync()
    }
    fn write_back(&self, range: Range<u64>, awaited: bool) -> io::Result<()> {
        self.file.write_back(range, awaited)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        count(&self.calls, self.kill_at, &self.path);
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn map(&self) -> io::Result<Bytes> {
        self.file.map()
    }
}
