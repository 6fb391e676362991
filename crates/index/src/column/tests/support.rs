//! Test support: a table with columns of several types, and lookups in it with and without its indexes.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use sim::{Rng, SimEnv};
use table::Snapshot;
use table::materializer::{Budget, Materializer, MaterializerDir, Position, Progress};
use types::{ColumnId, DataType, IndexDef, Kind, Result, RowId, TableDef, TableId, Value};

use crate::column::{ColumnCondition, ColumnMaterializer, Indexes, KIND};

const NAME: ColumnId = ColumnId(17);
const PRICE: ColumnId = ColumnId(18);
const STOCK: ColumnId = ColumnId(19);

/// `(id int64, name string, price float64, stock int32)` with four indexes; one is declared twice.
pub fn goods(keyed: bool) -> TableDef {
    let mut def = TableDef::new(TableId(0), "main.goods");
    def.add_column("id", &DataType::Int64, true, None).unwrap();
    def.add_column("name", &DataType::String, true, None).unwrap();
    def.add_column("price", &DataType::Float64, true, None).unwrap();
    def.add_column("stock", &DataType::Int32, true, None).unwrap();
    for (name, columns) in
        [("names", vec![NAME]), ("prices", vec![PRICE]), ("both", vec![STOCK, NAME]), ("again", vec![PRICE])]
    {
        def.indexes.push(index(name, &columns));
    }
    if keyed {
        def.set_primary_key(&["id".into()]).unwrap();
    }
    def
}

pub fn index(name: &str, columns: &[ColumnId]) -> IndexDef {
    IndexDef {
        name: name.into(),
        kind: KIND.into(),
        columns: columns.to_vec(),
        options: Vec::new(),
        unique: None,
    }
}

fn names() -> Vec<Option<String>> {
    let long = |end: &str| Some("long ".repeat(300) + end);
    let short = ["", "\0", "a", "a\0", "a\0b", "aa", "ab", "b", "é", "zz"];
    let short = short.map(|name| Some(name.to_owned()));
    short.into_iter().chain([None, long("a"), long("b")]).collect()
}

const PRICES: [Option<f64>; 12] = [
    None,
    Some(f64::NEG_INFINITY),
    Some(-1e300),
    Some(-2.5),
    Some(-0.0),
    Some(0.0),
    Some(1e-300),
    Some(2.5),
    Some(2.5000001),
    Some(1e300),
    Some(f64::INFINITY),
    Some(f64::NAN),
];
const STOCKS: [Option<i32>; 7] = [None, Some(i32::MIN), Some(-1), Some(0), Some(1), Some(2), Some(i32::MAX)];

pub fn random_rows(rng: &mut Rng, count: usize, ids: u64) -> RecordBatch {
    let mut keys: Vec<i64> = (0..count).map(|_| rng.below(ids) as i64).collect();
    keys.sort_unstable();
    keys.dedup();
    let names = names();
    let one_of = |rng: &mut Rng, len: usize| rng.below(len as u64) as usize;
    let columns: [(&str, ArrayRef); 4] = [
        (
            "name",
            Arc::new(StringArray::from_iter(keys.iter().map(|_| names[one_of(rng, names.len())].clone()))),
        ),
        ("price", Arc::new(Float64Array::from_iter(keys.iter().map(|_| PRICES[one_of(rng, PRICES.len())])))),
        ("stock", Arc::new(Int32Array::from_iter(keys.iter().map(|_| STOCKS[one_of(rng, STOCKS.len())])))),
        ("id", Arc::new(Int64Array::from(keys.clone()))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// A lookup in an index: the values of the first columns, and a condition on the next.
struct Lookup {
    index: usize,
    equal: Vec<Value>,
    next: Condition,
}

enum Condition {
    Any,
    Between(Bound<Value>, Bound<Value>),
    StartsWith(&'static str),
}

fn text(text: &str) -> Value {
    Value::String(text.into())
}

fn lookups() -> Vec<Lookup> {
    let mut all = Vec::new();
    let mut lookup = |index, equal: Vec<Value>, next| all.push(Lookup { index, equal, next });
    for name in names() {
        let value = name.map_or(Value::Null, Value::String);
        lookup(0, vec![value.clone()], Condition::Any);
        if value != Value::Null {
            lookup(0, vec![], Condition::Between(Bound::Excluded(value.clone()), Bound::Unbounded));
            lookup(0, vec![], Condition::Between(Bound::Unbounded, Bound::Included(value)));
        }
    }
    for prefix in ["", "a", "a\0", "long long", "x"] {
        lookup(0, vec![], Condition::StartsWith(prefix));
        lookup(2, vec![Value::Int32(1)], Condition::StartsWith(prefix));
    }
    for low in PRICES.into_iter().flatten() {
        lookup(1, vec![Value::Float64(low)], Condition::Any);
        for high in [-2.5, 0.0, 1e300] {
            let bounds = (Bound::Included(Value::Float64(low)), Bound::Excluded(Value::Float64(high)));
            lookup(3, vec![], Condition::Between(bounds.0, bounds.1));
        }
    }
    lookup(1, vec![Value::Null], Condition::Any);
    for stock in STOCKS {
        let stock = stock.map_or(Value::Null, Value::Int32);
        lookup(2, vec![stock.clone()], Condition::Any);
        lookup(2, vec![stock.clone(), text("a")], Condition::Any);
        lookup(2, vec![stock.clone(), Value::Null], Condition::Any);
        let after_a = Condition::Between(Bound::Excluded(text("a")), Bound::Excluded(text("b")));
        lookup(2, vec![stock], after_a);
    }
    all
}

fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Float64(a), Value::Float64(b)) => a.total_cmp(b),
        (Value::Int32(a), Value::Int32(b)) => a.cmp(b),
        other => panic!("{other:?}"),
    }
}

impl Lookup {
    /// Evaluates the lookup on the values of a row. It is the model of the test, so it shares no code with the index.
    fn is_met(&self, row: &[Value]) -> bool {
        let same = |(wanted, value): (&Value, &Value)| match (wanted, value) {
            (Value::Null, value) => *value == Value::Null,
            (_, Value::Null) => false,
            (wanted, value) => order(wanted, value).is_eq(),
        };
        if !self.equal.iter().zip(row).all(same) {
            return false;
        }
        match (&self.next, row.get(self.equal.len())) {
            (Condition::Any, _) => true,
            (_, None | Some(Value::Null)) => false,
            (Condition::StartsWith(prefix), Some(Value::String(text))) => text.starts_with(prefix),
            (Condition::StartsWith(_), Some(other)) => panic!("{other:?}"),
            (Condition::Between(low, high), Some(value)) => {
                let above = match low {
                    Bound::Unbounded => true,
                    Bound::Included(low) => order(value, low).is_ge(),
                    Bound::Excluded(low) => order(value, low).is_gt(),
                };
                above
                    && match high {
                        Bound::Unbounded => true,
                        Bound::Included(high) => order(value, high).is_le(),
                        Bound::Excluded(high) => order(value, high).is_lt(),
                    }
            }
        }
    }

    /// Appends the rows of `batch` that meet the lookup. The first column of `batch` is the row id; the columns of the
    /// index follow.
    fn of_batch(&self, batch: &RecordBatch, types: &[DataType], out: &mut Vec<RowId>) {
        for at in 0..batch.num_rows() {
            let value = |column: usize, t: &DataType| Value::from_array(batch.column(column), t, at);
            let row: Vec<Value> = types.iter().enumerate().map(|(i, t)| value(i + 1, t)).collect();
            let Value::Int64(id) = value(0, &DataType::Int64) else { panic!("a row id") };
            if self.is_met(&row) {
                out.push(RowId(id as u64));
            }
        }
    }

    /// Finds rows as a reader does: through the index as far as it has come, then in the tail by a scan. Scans the
    /// whole table if the index is damaged.
    fn find(&self, table: &Snapshot, position: Option<&Position>) -> Result<Vec<RowId>> {
        let def = table.def();
        let declared = &def.indexes[self.index];
        let columns = crate::column::IndexColumns::of(def, declared).unwrap();
        let types: Vec<DataType> =
            (0..declared.columns.len()).map(|at| columns.data_type(at).clone()).collect();
        let wanted: Vec<ColumnId> = [types::ROW_ID].into_iter().chain(columns.ids()).collect();
        let projection = table.projection(&wanted)?;
        let next = match &self.next {
            Condition::Any => ColumnCondition::Any,
            Condition::StartsWith(prefix) => ColumnCondition::StartsWith(prefix),
            Condition::Between(low, high) => ColumnCondition::Between(low.as_ref(), high.as_ref()),
        };
        let ranges = [columns.range(&self.equal, next)?];
        let indexes = position.and_then(|position| position.published::<Indexes>()).unwrap_or_default();
        let index = indexes.of(def, declared);
        let (found, after) = match index.map(|index| (index.rows(&ranges), index.count(&ranges), index)) {
            Some((Ok(rows), Ok(count), index)) => {
                assert_eq!(rows.len() as u64, count);
                assert_eq!(in_order(index, &ranges[0], self.equal.len() + 1), rows);
                assert!(rows.iter().all(|row| *row <= index.reached()));
                (rows, index.reached())
            }
            Some((Err(e), ..)) | Some((_, Err(e), _)) => {
                assert_eq!(e.kind(), Kind::Damaged);
                (Vec::new(), RowId(0))
            }
            None => (Vec::new(), RowId(0)),
        };
        let mut rows = Vec::new();
        self.of_batch(&table.fetch(&found, &projection)?, &types, &mut rows);
        self.of_batch(&table.scan_from(after.next(), usize::MAX, &projection)?, &types, &mut rows);
        Ok(rows)
    }
}

/// Returns the rows of a range, ascending, by walking over its entries. Also checks that descending and skipping walks
/// agree; a skip leaves out the entries with the same first `columns` columns.
fn in_order(index: &crate::column::Index, range: &crate::column::EntryRange, columns: usize) -> Vec<RowId> {
    let collect = |descending| {
        let mut walk = index.walk(range.clone(), descending).unwrap();
        let (mut entries, mut rows) = (Vec::new(), Vec::new());
        while let Some((entry, of_entry)) = walk.next().unwrap() {
            entries.push(entry);
            rows.extend(of_entry);
        }
        rows.sort_unstable();
        (entries, rows)
    };
    let (mut up, rows) = collect(false);
    let (mut down, rows_down) = collect(true);
    assert!(up.is_sorted() && down.iter().rev().is_sorted());
    assert_eq!(rows, rows_down);
    up.dedup();
    down.dedup();
    down.reverse();
    assert_eq!(up, down);
    let columns = columns.min(index.columns().ids().len());
    let prefix = |entry: &[u8]| index.columns().prefix_len(entry, columns).unwrap_or(entry.len());
    let mut first_of_each = up.clone();
    first_of_each.dedup_by(|b, a| b.starts_with(&a[..prefix(a)]));
    let mut walk = index.walk(range.clone(), false).unwrap();
    for expected in first_of_each {
        let (entry, _) = walk.next().unwrap().unwrap();
        assert_eq!(entry, expected);
        walk.skip(&entry[..prefix(entry)]).unwrap();
    }
    assert!(walk.next().unwrap().is_none());
    rows
}

/// Runs many lookups, checks that each finds the same rows as a scan, and returns those rows.
pub fn observe(table: &Arc<Snapshot>, position: Option<&Position>) -> Result<Vec<Vec<RowId>>> {
    let _reads = vfs::read_path();
    let mut seen = Vec::new();
    for lookup in lookups() {
        let found = lookup.find(table, position)?;
        assert_eq!(found, lookup.find(table, None)?, "index {} at {position:?}", lookup.index);
        seen.push(found);
    }
    Ok(seen)
}

/// A table in memory with an index whose steps the test calls.
pub struct IndexBench {
    pub tip: table::Tip,
    pub column: Arc<ColumnMaterializer>,
    pub place: MaterializerDir,
    pub position: Option<Arc<Position>>,
    pub machine: SimEnv,
    lsn: u64,
}

impl IndexBench {
    pub fn new(seed: u64, def: TableDef) -> IndexBench {
        let def = TableDef { id: TableId(7), ..def };
        let machine = SimEnv::new(seed);
        let place = MaterializerDir { env: machine.env(), dir: "7".into() };
        place.env.disk.create_dir_all(&place.dir).unwrap();
        IndexBench {
            tip: table::Tip::new(def),
            column: ColumnMaterializer::new(),
            place,
            position: None,
            machine,
            lsn: 0,
        }
    }

    pub fn append(&mut self, rows: &RecordBatch) {
        self.lsn += 1;
        let rows = self.table().conform(rows).unwrap();
        let count = rows.num_rows() as u64;
        self.tip.append(self.tip.next_row(), 0, &[(types::Lsn(self.lsn), count)], &rows).unwrap();
    }

    pub fn delete(&mut self, rows: &[RowId]) {
        self.lsn += 1;
        let table = self.table();
        let mut live: Vec<RowId> = rows.iter().copied().filter(|row| table.is_live(*row).unwrap()).collect();
        live.sort_unstable();
        live.dedup();
        self.tip.delete(live, types::Lsn(self.lsn));
    }

    pub fn table(&self) -> Arc<Snapshot> {
        self.tip.snapshot(types::Lsn(self.lsn))
    }

    /// Makes one step of at most `rows` rows. Returns false if there is nothing to do.
    pub fn step(&mut self, rows: usize) -> Result<bool> {
        let tick: &mut dyn FnMut(u64) -> Result<()> = &mut |_| Ok(());
        let mut budget = Budget { rows, urgent: true, tick };
        match self.column.step(&self.place, &self.table(), self.position.as_ref(), &mut budget)? {
            Progress::Advanced(next) => {
                let next = Arc::new(next);
                self.position = Some(next.clone());
                self.column.clean(&self.place, &next)?;
                Ok(true)
            }
            Progress::UpToDate => Ok(false),
            Progress::Later(_) => panic!("an urgent step does not wait"),
        }
    }

    pub fn catch_up(&mut self, rows: usize) {
        while self.step(rows).unwrap() {}
    }

    pub fn indexes(&self) -> Arc<Indexes> {
        self.position.as_ref().unwrap().published::<Indexes>().unwrap()
    }

    pub fn files(&self) -> usize {
        self.place.env.disk.list(&self.place.dir).unwrap().len()
    }
}
