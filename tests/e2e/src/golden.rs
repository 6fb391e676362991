//! The golden directory of format version 1, `tests/golden/v1`: how it is made, found and copied.
//!
//! Each released version of the format has a directory of its own, which later binaries must open. The directory of a released
//! version is never made again: then it would only show that a binary reads its own files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema};
use commitlog::edit::ApiKey;
use engine::{Committed, Engine, Mode, NewColumn, Op, Options, Step, Transaction};
use sim::{SimClock, SimRandom};
use types::{ColumnId, DataType, Principal, Result, RowId, Scope, TableDef, TableId, TableSet, Value};
use vfs::Env;

use crate::dump::dump;

/// The file with the expected contents of the database in [`DATA`], as [`dump`] writes them.
pub const EXPECTED: &str = "EXPECTED.json";
/// The folder of the database, inside a golden directory.
pub const DATA: &str = "data";

/// Returns `tests/golden`, which has a directory for each version.
pub fn home() -> PathBuf {
    testkit::package().parent().unwrap().join("golden")
}

/// Writes a database with all features of the format, and leaves it as a crash would: the last rows are only in the log. Clock
/// and randomness are fixed, so that the same code writes the same bytes. Returns the contents.
pub fn make(data: &Path) -> Result<String> {
    let env = Env { clock: Arc::new(SimClock::new()), random: Arc::new(SimRandom::new(1)), ..Env::real() };
    let options = Options {
        log: commitlog::Options { file_bytes: 32 << 10, spare_files: 0, ..commitlog::Options::default() },
        seal_rows: 40,
        ..Options::default()
    };
    let open = || Engine::open_stepped(env.clone(), data, options.clone()).map(SteppedEngine);
    let db = open()?;
    db.types()?;
    db.orders()?;
    db.events()?;
    db.keys()?;
    db.background();
    // Closing writes a manifest, so later rows are only in the log.
    db.0.close()?;
    let db = open()?;
    db.tail()?;
    dump(&db.0)
}

/// Copies a directory recursively.
pub fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?
        } else {
            std::fs::copy(entry.path(), target).map(drop)?
        }
    }
    Ok(())
}

/// A database without threads, so that it does the same work in the same order each time.
struct SteppedEngine(Engine);

impl SteppedEngine {
    fn commit(&self, ops: Vec<Op>) -> Result<Committed> {
        let (sender, receiver) = mpsc::channel();
        let done = move |answer| sender.send(answer).unwrap();
        self.0.submit(&Principal::local(), Transaction::new(ops), done);
        while self.0.step(Step::Commit) || self.0.step(Step::Sync) {}
        receiver.try_recv().expect("answered once it is synced")
    }

    /// Runs seals, compactions and manifests until no work is left.
    fn background(&self) {
        while self.0.step(Step::Background) {
            while self.0.step(Step::Commit) || self.0.step(Step::Sync) {}
        }
    }

    fn insert(&self, table: &str, columns: &[&str], rows: &[Vec<Value>], mode: Mode) -> Result<Committed> {
        self.commit(vec![self.insertion(table, columns, rows, mode)])
    }

    fn insertion(&self, table: &str, columns: &[&str], rows: &[Vec<Value>], mode: Mode) -> Op {
        let root = self.0.root();
        let snapshot = root.table(&format!("main.{table}")).or_else(|| root.table(table)).unwrap();
        let (mut fields, mut arrays): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
        for (i, name) in columns.iter().enumerate() {
            let column = snapshot.def().schema.column_named(name).unwrap();
            let values: Vec<Value> = rows.iter().map(|row| row[i].clone()).collect();
            let array = Value::to_array(&values, &column.data_type).unwrap();
            fields.push(Field::new(&column.name, array.data_type().clone(), true));
            arrays.push(array);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
        Op::Insert { table: table.into(), batch, mode }
    }

    fn create(
        &self,
        name: &str,
        columns: &[(&str, &str, bool, Option<Value>)],
        key: &[&str],
    ) -> Result<Committed> {
        let mut def = TableDef::new(TableId(0), types::name::full_table_name(name)?);
        for (column, data_type, nullable, default) in columns {
            let data_type = DataType::parse(data_type, &mut ColumnId(0))?;
            def.add_column(column, &data_type, *nullable, default.clone())?;
        }
        def.set_primary_key(&key.iter().map(|name| name.to_string()).collect::<Vec<_>>())?;
        self.commit(vec![Op::CreateTable { def, if_absent: false }])
    }

    /// Creates a keyed table with a column of each type.
    fn types(&self) -> Result<()> {
        let columns: Vec<(&str, &str, bool, Option<Value>)> =
            TYPES.iter().map(|(name, data_type)| (*name, *data_type, *name != "id", None)).collect();
        self.create("types", &columns, &["id"])?;
        let names: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
        for first in (0..48).step_by(8) {
            let rows: Vec<_> = (first..first + 8).map(row_of_types).collect();
            self.insert("types", &names, &rows, Mode::Append)?;
        }
        let again = [3, 11].map(|id| {
            let mut row = row_of_types(id + 1000);
            row[0] = id.into();
            row
        });
        self.insert("types", &names, &again, Mode::Upsert)?;
        self.commit(vec![Op::DeleteKeys {
            table: "types".into(),
            keys: vec![vec![5i64.into()], vec![404i64.into()]],
        }])?;
        Ok(())
    }

    /// Creates a table with a key of two columns and a default, and changes a sealed row.
    fn orders(&self) -> Result<()> {
        let columns = [
            ("region", "string", false, None),
            ("no", "int32", false, None),
            ("state", "string", false, Some("new".into())),
        ];
        self.create("orders", &columns, &["region", "no"])?;
        let row = |i: i32| vec![Value::from(["north", "süd"][i as usize % 2]), Value::Int32(i / 2 - 10)];
        let rows: Vec<_> = (0..60).map(row).collect();
        self.insert("orders", &["region", "no"], &rows, Mode::Append)?;
        self.background();
        let paid = [
            vec!["north".into(), Value::Int32(-10), "paid".into()],
            vec!["ost".into(), Value::Int32(0), "paid".into()],
        ];
        self.insert("orders", &["region", "no", "state"], &paid, Mode::Upsert)?;
        self.insert("orders", &["region", "no", "state"], &paid, Mode::InsertIfAbsent)?;
        Ok(())
    }

    /// Creates a table without a key, in another namespace, with columns added after a seal and several segments. Also creates
    /// and drops a table.
    fn events(&self) -> Result<()> {
        self.create("lab.events", &[("kind", "string", true, None), ("size", "int64", true, None)], &[])?;
        let row =
            |i: i64| vec![format!("kind {}", i % 5).into(), if i % 7 == 0 { Value::Null } else { i.into() }];
        for part in 0..5 {
            let rows: Vec<_> = (part * 40..part * 40 + 40).map(row).collect();
            self.insert("lab.events", &["kind", "size"], &rows, Mode::Append)?;
            self.background();
        }
        let new = |name: &str, data_type, nullable, default| NewColumn {
            name: name.into(),
            data_type,
            nullable,
            default,
        };
        self.commit(vec![Op::AddColumns {
            table: "lab.events".into(),
            columns: vec![
                new("level", DataType::Int32, false, Some(Value::Int32(3))),
                new("note", DataType::String, true, None),
            ],
        }])?;
        let noted = |i: i64| [row(i), vec![format!("note {i}").into()]].concat();
        let rows: Vec<_> = (200..245).map(noted).collect();
        self.insert("lab.events", &["kind", "size", "note"], &rows, Mode::Append)?;
        self.background();
        let gone = [2, 3, 50, 230].map(RowId).into();
        self.commit(vec![Op::Delete { table: "lab.events".into(), rows: gone, must_exist: true }])?;
        self.create("gone", &[("x", "int64", true, None)], &[])?;
        self.insert("gone", &["x"], &[vec![1i64.into()]], Mode::Append)?;
        self.commit(vec![Op::DropTable { table: "gone".into(), if_exists: false }])?;
        Ok(())
    }

    fn keys(&self) -> Result<()> {
        let key = |name: &str, byte, scope, tables| {
            Op::PutKey(ApiKey {
                name: name.into(),
                hash: [byte; 32],
                scope,
                tables,
                created: 1_700_000_000_000_000,
            })
        };
        self.commit(vec![key("root", 0xab, Scope::Admin, TableSet::All)])?;
        self.commit(vec![key(
            "sensors",
            0x17,
            Scope::Write,
            TableSet::Only(vec!["lab.*".into(), "main.orders".into()]),
        )])?;
        self.commit(vec![key("lost", 0, Scope::Read, TableSet::All)])?;
        self.commit(vec![Op::RemoveKey { name: "lost".into() }])?;
        Ok(())
    }

    /// Writes changes that only the log has: rows, an upsert, and deletes of sealed rows, over two tables in one commit.
    fn tail(&self) -> Result<()> {
        let order = [vec!["süd".into(), Value::Int32(3), "sent".into()]];
        let event = [vec!["both".into(), Value::Int64(i64::MIN), Value::Int32(9), Value::Null]];
        self.commit(vec![
            self.insertion("orders", &["region", "no", "state"], &order, Mode::Upsert),
            self.insertion("lab.events", &["kind", "size", "level", "note"], &event, Mode::Append),
        ])?;
        self.commit(vec![
            Op::Delete { table: "lab.events".into(), rows: [7, 210].map(RowId).into(), must_exist: true },
            Op::DeleteKeys { table: "types".into(), keys: vec![vec![6i64.into()]] },
        ])?;
        Ok(())
    }
}

const TYPES: [(&str, &str); 18] = [
    ("id", "int64"),
    ("flag", "bool"),
    ("small", "int32"),
    ("large", "int64"),
    ("single", "float32"),
    ("double", "float64"),
    ("price", "decimal(10,2)"),
    ("wide", "decimal(38,0)"),
    ("text", "string"),
    ("bytes", "binary"),
    ("day", "date"),
    ("at", "timestamp"),
    ("uid", "uuid"),
    ("doc", "json"),
    ("tags", "list<string>"),
    ("place", "struct<name: string, spots: list<struct<x: int32, y: int32>>>"),
    ("embedding", "vector(3)"),
    ("where", "struct<flat: point, deep: point3d>"),
];

/// Returns a row of `types`. Row 0 has only its key, row 1 the least values, row 2 the greatest, and the others have values of
/// their own.
fn row_of_types(id: i64) -> Vec<Value> {
    let mut row = vec![Value::Int64(id)];
    let i = id as i32;
    row.extend(match id {
        0 => vec![Value::Null; 17],
        1 | 2 => {
            let (least, sign) = (id == 1, if id == 1 { -1.0 } else { 1.0 });
            vec![
                (!least).into(),
                if least { i32::MIN } else { i32::MAX }.into(),
                if least { i64::MIN } else { i64::MAX }.into(),
                (if least { f32::MIN_POSITIVE } else { f32::INFINITY }).into(),
                (sign * f64::MAX).into(),
                Value::Decimal(if least { -9_999_999_999 } else { 9_999_999_999 }),
                Value::Decimal((10i128.pow(38) - 1) * if least { -1 } else { 1 }),
                if least { "" } else { "\u{10ffff} ünïcödé \u{1f40b}" }.into(),
                Value::Binary(if least { vec![] } else { (0..=255).collect() }),
                Value::Date(if least { -719_162 } else { 2_932_896 }),
                Value::Timestamp(if least { -62_135_596_800_000_000 } else { 253_402_300_799_999_999 }),
                Value::Uuid([if least { 0 } else { 255 }; 16]),
                Value::Json(if least { "null" } else { r#"{"a":[1,2.5,{"b":"\u00e9"}]}"# }.into()),
                Value::List(if least { vec![] } else { vec!["a".into(), Value::Null, "".into()] }),
                Value::Struct(vec![Value::Null, Value::List(vec![])]),
                vec![sign as f32, f32::MIN, f32::EPSILON].into(),
                Value::Struct(vec![
                    [180.0 * sign, 90.0 * sign].into(),
                    [sign, -0.0, f64::MIN_POSITIVE].into(),
                ]),
            ]
        }
        _ => vec![
            (id % 2 == 0).into(),
            (i * 7 - 100).into(),
            (id << 40).into(),
            (i as f32 / 3.0).into(),
            (id as f64 / 7.0).into(),
            Value::Decimal(i128::from(id) * 101 - 5000),
            Value::Decimal(i128::from(id).pow(9)),
            format!("row {id}").into(),
            Value::Binary(id.to_le_bytes().to_vec()),
            Value::Date(i * 365),
            Value::Timestamp(id * 86_400_000_001),
            Value::Uuid([i as u8; 16]),
            Value::Json(format!("{{\"n\":{id}}}")),
            Value::List((0..id % 4).map(|n| format!("tag {n}").into()).collect()),
            Value::Struct(vec![
                format!("place {id}").into(),
                Value::List((0..i % 3).map(|n| Value::Struct(vec![n.into(), (-n).into()])).collect()),
            ]),
            if id % 5 == 0 { Value::Null } else { vec![i as f32, 0.5, -1.0].into() },
            Value::Struct(vec![
                [id as f64, -0.25].into(),
                if id % 3 == 0 { Value::Null } else { [1.0, 2.0, id as f64].into() },
            ]),
        ],
    });
    row
}
