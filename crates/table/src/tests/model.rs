//! Random operations on a keyed table, compared with a plain list of row versions.

mod index_rows;

use std::collections::BTreeSet;

use super::*;
use crate::segment::BlockCompression;
use crate::unique::{Key as Unique, Lookup};
use index_rows::IndexRows;

/// A row version that was written at some time.
struct Version {
    lsn: u64,
    time: i64,
    key: i64,
    values: HashMap<ColumnId, Value>,
    ended: Option<u64>,
}

/// An entry of the log, as the engine would replay it.
enum LogEntry {
    Rows { first: RowId, time: i64, runs: Vec<(Lsn, u64)>, batch: RecordBatch },
    Deletes { rows: Vec<RowId>, lsn: Lsn },
    Def(TableDef),
    Seal(SegmentMeta, Option<WrittenPast>),
    Compact(Vec<SegmentId>, Option<SegmentMeta>, Option<WrittenPast>),
    Forget(Vec<SegmentId>, Lsn),
}

/// A past segment: the lsn after which its rows ended, the last lsn at which one ended, the meta if there were rows, and the
/// floor afterwards.
type WrittenPast = (Lsn, Lsn, Option<SegmentMeta>, Option<Lsn>);

/// Expected rows: row id and values in the order of the definition.
type Content = Vec<(u64, Vec<Value>)>;

struct ModelTest {
    seed: u64,
    rng: Rng,
    sim: SimEnv,
    tip: Tip,
    lsn: u64,
    /// Row versions; index `i` has row id `i + 1`.
    versions: Vec<Version>,
    keys: BTreeMap<i64, u64>,
    log: Vec<(u64, LogEntry)>,
    next_segment: u64,
    held: Vec<(Arc<Snapshot>, Content)>,
    sealing: Option<(SegmentMeta, Option<WrittenPast>)>,
    compacting: Option<(Vec<SegmentId>, Option<SegmentMeta>, Option<WrittenPast>)>,
    /// The lsn after which ended rows are to be kept.
    wanted: u64,
    /// Former definitions, each with the commit that replaced it.
    defs: Vec<(u64, Arc<TableDef>)>,
    /// Numbers of reads of the past that succeeded, and that were refused.
    looked: [usize; 2],
    followers: Vec<(Lsn, BTreeSet<u64>)>,
    manifest: Option<State>,
    /// Numbers of seals, compactions and restarts from a manifest so far.
    done: [usize; 3],
}

impl ModelTest {
    fn new(seed: u64) -> ModelTest {
        let def = ModelTest::first_def(seed);
        ModelTest {
            seed,
            rng: Rng::new(seed),
            sim: SimEnv::new(seed),
            tip: Tip::new(def),
            lsn: 0,
            versions: Vec::new(),
            keys: BTreeMap::new(),
            log: Vec::new(),
            next_segment: 1,
            held: Vec::new(),
            sealing: None,
            compacting: None,
            wanted: 0,
            defs: Vec::new(),
            looked: [0; 2],
            followers: vec![(Lsn(0), BTreeSet::new())],
            manifest: None,
            done: [0; 3],
        }
    }

    /// Makes the first definition. Every second table has a time column, so that its rows are sorted by time.
    fn first_def(seed: u64) -> TableDef {
        let mut def = def();
        let n = def.add_column("n", &DataType::Int32, true, None).unwrap();
        def.indexes.push(types::IndexDef {
            name: "n".into(),
            kind: types::INDEX_COLUMN.into(),
            columns: vec![n],
            options: Vec::new(),
            unique: Some(types::UniqueState::Enforced),
        });
        if seed.is_multiple_of(2) {
            def.time = Some(def.add_column("at", &DataType::Timestamp, true, None).unwrap());
        }
        def
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.tip.snapshot(Lsn(self.lsn))
    }

    fn random_value(&mut self, data_type: &DataType) -> Value {
        if self.rng.one_in(8) {
            return Value::Null;
        }
        match data_type {
            DataType::Int32 => Value::Int32(self.rng.next_u64() as i32),
            DataType::Int64 => Value::Int64(self.rng.next_u64() as i64),
            DataType::String => {
                let len = self.rng.index(20);
                Value::String(self.rng.word(len))
            }
            DataType::Float64 => Value::Float64(self.rng.unit()),
            DataType::Timestamp => Value::Timestamp(self.rng.below(1_000_000) as i64),
            other => unreachable!("the test makes no column of {other}"),
        }
    }

    /// Commits a group of one to three commits that upsert and delete.
    fn write(&mut self) {
        let def = self.tip.def().clone();
        let first = self.versions.len() as u64 + 1;
        let time = self.lsn as i64 * 10 - self.rng.below(30) as i64;
        let time = time.max(self.versions.last().map_or(i64::MIN, |v| v.time));
        let (mut runs, mut deletes, mut fresh) = (Vec::new(), Vec::new(), Vec::new());
        let span = 300;
        for _ in 0..1 + self.rng.below(3) {
            self.lsn += 1;
            let lsn = Lsn(self.lsn);
            let largest = *self.rng.pick(&[1u64, 4, 60, 9_000]);
            let count =
                if largest == 9_000 && !self.rng.one_in(12) { 1 } else { self.rng.below(largest + 1) };
            let mut deleted = Vec::new();
            let mut written = BTreeSet::new();
            for _ in 0..count {
                let key = self.rng.below(if largest == 9_000 { 1_000_000 } else { span }) as i64;
                if !written.insert(key) {
                    continue;
                }
                let mut values: HashMap<ColumnId, Value> = def.schema.columns[1..]
                    .iter()
                    .map(|column| (column.id, self.random_value(&column.data_type)))
                    .chain([(def.schema.columns[0].id, Value::Int64(key))])
                    .collect();
                let row = self.versions.len() as u64 + 1;
                let before = self.keys.insert(key, row);
                // Most changes keep the value of the unique index; others take a new one.
                let n = def.indexes[0].columns[0];
                if let Some(before) = before.filter(|_| self.rng.below(8) > 0) {
                    values.insert(n, self.versions[before as usize - 1].values[&n].clone());
                } else if values[&n] != Value::Null {
                    values.insert(n, Value::Int32((row as i32).wrapping_mul(0x1E37_79B1)));
                }
                deleted.extend(before);
                fresh.push(values.clone());
                self.versions.push(Version { lsn: lsn.0, time, key, values, ended: None });
            }
            let drop = self.rng.below(6);
            for _ in 0..drop {
                let key = self.rng.below(span) as i64;
                if !written.contains(&key) {
                    deleted.extend(self.keys.remove(&key));
                }
            }
            deleted.iter().for_each(|row| self.versions[*row as usize - 1].ended = Some(lsn.0));
            runs.push((lsn, written.len() as u64));
            deletes.push((lsn, deleted.into_iter().map(RowId).collect::<Vec<_>>()));
        }
        let column = |column: &types::Column| {
            let values: Vec<Value> = fresh.iter().map(|values| values[&column.id].clone()).collect();
            Value::to_array(&values, &column.data_type).unwrap()
        };
        let batch =
            RecordBatch::try_new(def.schema.to_arrow_user(), def.schema.columns.iter().map(column).collect())
                .unwrap();
        self.tip.append(RowId(first), time, &runs, &batch).unwrap();
        self.log.push((self.lsn, LogEntry::Rows { first: RowId(first), time, runs, batch }));
        for (lsn, rows) in deletes {
            assert_eq!(self.tip.delete(rows.iter().copied(), lsn), rows.len() as u64);
            self.log.push((self.lsn, LogEntry::Deletes { rows, lsn }));
        }
    }

    fn alter(&mut self) {
        let mut def = (**self.tip.def()).clone();
        let name = format!("c{}", self.rng.below(4));
        let at = def.schema.columns.iter().position(|c| c.name == name);
        match (at, self.rng.below(3)) {
            (Some(at), 0) => {
                def.schema.columns.remove(at);
            }
            (Some(at), _) if def.schema.columns[at].data_type == DataType::Int32 => {
                def.schema.columns[at].data_type = DataType::Int64;
            }
            (None, kind) => {
                let (data_type, default) = match kind {
                    0 => (DataType::Int32, Some(Value::Int32(5))),
                    1 => (DataType::String, None),
                    _ => (DataType::Float64, Some(Value::Float64(0.5))),
                };
                def.add_column(&name, &data_type, true, default).unwrap();
            }
            _ => return,
        }
        // A default that was given as int32 becomes one of int64 with its column.
        for column in &mut def.schema.columns {
            let cast = |v: Option<Value>| v.map(|v| v.cast(&column.data_type).unwrap());
            (column.default, column.initial) = (cast(column.default.clone()), cast(column.initial.clone()));
        }
        def.schema.version = def.schema.version.next();
        self.lsn += 1;
        self.defs.push((self.lsn, self.tip.def().clone()));
        self.tip.alter(def.clone(), Lsn(self.lsn)).unwrap();
        self.log.push((self.lsn, LogEntry::Def(def)));
    }

    fn seal(&mut self) {
        if let Some((meta, mut away)) = self.sealing.take() {
            self.lsn += 1;
            let kept = self.kept(&away);
            self.tip.apply_seal(open(&self.sim, self.tip.def(), meta.clone()), kept).unwrap();
            away.iter_mut().for_each(|away| away.3 = Some(self.tip.kept_from()));
            self.log.push((self.lsn, LogEntry::Seal(meta, away)));
            self.done[0] += 1;
            return;
        }
        let snapshot = self.snapshot();
        let rows = snapshot.next_row().0 - snapshot.sealed_next().0;
        if rows == 0 {
            return;
        }
        let below = if self.rng.one_in(2) { rows } else { 1 + self.rng.below(rows) };
        let below = RowId(snapshot.sealed_next().0 + below);
        let id = SegmentId(self.next_segment);
        self.next_segment += 1;
        let made = seal(&snapshot, &self.sim.env(), &dir(), id, below, &mut |_| Ok(())).unwrap();
        let away = self.write_past_segment(&snapshot, made.first_row, made.last_row);
        self.sealing = Some((made, away));
    }

    /// Writes the past segment of a seal or a compaction of these rows. Sometimes writes none, like a table whose past is not
    /// kept.
    fn write_past_segment(&mut self, snapshot: &Snapshot, first: RowId, last: RowId) -> Option<WrittenPast> {
        if self.rng.one_in(20) {
            return None;
        }
        let id = SegmentId(self.next_segment);
        self.next_segment += 1;
        let (env, after) = (self.sim.env(), snapshot.past_floor().max(Lsn(self.wanted)));
        let made = past::write_past_segment(snapshot, &env, &dir(), id, first, last, after, &mut |_| Ok(()))
            .unwrap();
        Some((after, snapshot.lsn(), made, None))
    }

    fn kept(&self, away: &Option<WrittenPast>) -> Option<RetainedRows> {
        let (after, last_end, meta, floor) = away.clone()?;
        let segment = meta.map(|meta| open(&self.sim, self.tip.def(), meta));
        Some(RetainedRows { after, last_end, segment, floor })
    }

    /// Lets time pass and removes past segments that are too old.
    fn forget(&mut self) {
        self.wanted = self.wanted.max(self.lsn.saturating_sub(self.rng.below(120)));
        self.tip.keep_deletes_after(Lsn(self.wanted));
        let snapshot = self.snapshot();
        let old = snapshot.past_segments().filter(|(_, last_end)| last_end.0 <= self.wanted);
        let (ids, ends): (Vec<SegmentId>, Vec<Lsn>) = old.map(|(s, last_end)| (s.id(), last_end)).unzip();
        let Some(floor) = ends.into_iter().max() else { return };
        self.lsn += 1;
        assert_eq!(self.tip.forget(&ids, floor).len(), ids.len());
        self.log.push((self.lsn, LogEntry::Forget(ids, floor)));
    }

    /// Reads the table as it was at some lsns, in every way that a snapshot offers.
    fn look_back(&mut self) {
        let snapshot = self.snapshot();
        for _ in 0..4 {
            let lsn = self.lsn - self.rng.below(200.min(self.lsn + 1));
            if lsn < snapshot.past_floor().0 {
                assert_eq!(snapshot.at(Lsn(lsn)).unwrap_err().kind(), types::Kind::NotFound);
                self.looked[1] += 1;
                continue;
            }
            self.looked[0] += 1;
            let (then, expected) = (snapshot.at(Lsn(lsn)).unwrap(), self.expected_at(lsn));
            assert_eq!(then.as_of(), Some(Lsn(lsn)));
            assert_eq!(then.def(), snapshot.def_at(Lsn(lsn)));
            assert_same(&then, &expected);
            let is_there = |row: u64| expected.binary_search_by_key(&row, |(row, _)| *row).is_ok();
            for _ in 0..20 {
                let row = 1 + self.rng.below(self.versions.len() as u64 + 1);
                assert_eq!(then.is_live(RowId(row)).unwrap(), is_there(row), "row {row} at lsn {lsn}");
                let version = self.versions.get(row as usize - 1).filter(|_| is_there(row));
                assert_eq!(then.lsn_of(RowId(row)).unwrap(), version.map(|v| Lsn(v.lsn)));
                let key = self.rng.below(300) as i64;
                let holds = |(row, _): &&(u64, Vec<Value>)| self.versions[*row as usize - 1].key == key;
                let row = expected.iter().find(holds).map(|(row, _)| RowId(*row));
                assert_eq!(then.find(&key_of(key)).unwrap(), row, "key {key} at lsn {lsn}");
            }
            let (from, limit) = (self.rng.below(self.versions.len() as u64 + 2), self.rng.index(3_000));
            let scanned = then.scan_from(RowId(from), limit, then.all_columns()).unwrap();
            let after = expected.iter().map(|(row, _)| *row).filter(|row| *row >= from);
            assert_eq!(row_ids(&scanned), after.take(limit).collect::<Vec<_>>());
            let last = from + self.rng.below(500);
            let within = expected.iter().filter(|(row, _)| (from..=last).contains(row)).count();
            assert_eq!(then.rows_between(RowId(from), RowId(last)).unwrap(), within as u64);
            let time = self.rng.below(self.lsn * 10 + 20) as i64 - 15;
            let first = then.row_at_time(time).unwrap().0;
            let is_later = |row: &u64| self.versions[*row as usize - 1].time >= time;
            assert!(expected.iter().all(|(row, _)| (*row >= first) == is_later(row)));
        }
    }

    fn compact(&mut self) {
        if let Some((inputs, output, mut away)) = self.compacting.take() {
            self.lsn += 1;
            let opened = output.clone().map(|meta| open(&self.sim, self.tip.def(), meta));
            let kept = self.kept(&away);
            self.tip.apply_compact(&inputs, opened, kept).unwrap();
            away.iter_mut().for_each(|away| away.3 = Some(self.tip.kept_from()));
            self.log.push((self.lsn, LogEntry::Compact(inputs, output, away)));
            self.done[1] += 1;
            return;
        }
        let snapshot = self.snapshot();
        let fan_in = 2 + self.rng.index(3);
        let policy = compaction::Policy { fan_in, compressed_bytes_min: 0, ..Default::default() };
        let planned = compaction::plan(&snapshot, &policy).filter(|_| !self.rng.one_in(4));
        let mut cold = compaction::compressible(&snapshot, &policy).map(|(segment, _)| segment.id());
        let Some(inputs) = planned.or_else(|| Some(vec![cold.next()?])) else { return };
        let form = *self.rng.pick(&[BlockCompression::Plain, BlockCompression::Zstd]);
        let id = SegmentId(self.next_segment);
        self.next_segment += 1;
        let env = self.sim.env();
        let output = compaction::merge(&snapshot, &inputs, &env, &dir(), id, form, &mut |_| Ok(())).unwrap();
        let range = |id: &SegmentId| {
            let meta = snapshot.segments().find(|s| s.id() == *id).unwrap().meta();
            (meta.first_row, meta.last_row)
        };
        let (first, last) = (range(&inputs[0]).0, range(&inputs[inputs.len() - 1]).1);
        let away = self.write_past_segment(&snapshot, first, last);
        self.compacting = Some((inputs, output, away));
    }

    fn follow(&mut self) {
        let (snapshot, who) = (self.snapshot(), self.rng.index(self.followers.len()));
        let limit = *self.rng.pick(&[1, 10, 1_000, 100_000]);
        let pages = self.rng.below(5);
        let (after, rows) = &mut self.followers[who];
        for _ in 0..pages {
            let page = snapshot.changes(*after, limit, snapshot.all_columns()).unwrap();
            assert!(page.next > *after || page.next == snapshot.lsn());
            let mut total = page.deleted.len();
            for inserted in &page.inserted {
                let ids = row_ids(&inserted.batch);
                assert_eq!(inserted.runs.iter().map(|(_, n)| n).sum::<usize>(), ids.len());
                let lsns = inserted.runs.iter().flat_map(|(lsn, n)| std::iter::repeat_n(lsn.0, *n));
                for (row, lsn) in ids.iter().zip(lsns) {
                    assert_eq!(lsn, self.versions[*row as usize - 1].lsn);
                    assert!(lsn > after.0 && lsn <= page.next.0);
                    assert!(rows.insert(*row), "row {row} came twice");
                }
                total += ids.len();
            }
            assert!(page.deleted.is_sorted_by_key(|(row, lsn)| (*lsn, *row)));
            for (row, lsn) in &page.deleted {
                assert!(*lsn > *after && *lsn <= page.next);
                rows.remove(&row.0);
            }
            // A single commit may be larger than the limit.
            assert!(total <= limit.max(20_000));
            *after = page.next;
        }
        if *after == snapshot.lsn() {
            let live: BTreeSet<u64> = self.keys.values().copied().collect();
            assert_eq!(*rows, live, "M1: the change feed replayed is the table");
        }
        let lsn = self.rng.below(self.lsn + 2);
        let last = snapshot.last_row_at(Lsn(lsn)).unwrap().0;
        let is_before = |row: &&u64| self.versions[**row as usize - 1].lsn <= lsn;
        assert!(last < snapshot.next_row().0);
        assert!(self.keys.values().all(|row| (*row <= last) == is_before(&row)), "the rows up to lsn {lsn}");
        if self.rng.one_in(10) && self.followers.len() < 6 {
            let live = self.keys.values().copied().collect();
            self.followers.push((Lsn(self.lsn), live));
        }
    }

    /// Kills the process: a new one opens the manifest and replays the log.
    fn restart(&mut self) {
        (self.sealing, self.compacting) = (None, None);
        let encoded = self.manifest.as_ref().map(|state| {
            let mut e = Encoder::new();
            state.encode(&mut e);
            e.bytes
        });
        let (mut tip, since) = match encoded {
            None => (Tip::new(ModelTest::first_def(self.seed)), 0),
            Some(bytes) => {
                let state = State::decode(&mut Decoder::new(&bytes)).unwrap();
                let since = state.lsn.0;
                let segments =
                    state.segments.iter().map(|meta| open(&self.sim, &state.def, meta.clone())).collect();
                let put_away = state.past.segments.iter();
                let past = put_away.map(|(meta, _)| open(&self.sim, &state.def, meta.clone())).collect();
                (Tip::restore(state, segments, past).unwrap(), since)
            }
        };
        for (lsn, entry) in &self.log {
            let is_new = *lsn > since;
            match entry {
                LogEntry::Rows { first, time, runs, batch } => {
                    tip.append(*first, *time, runs, batch).unwrap()
                }
                LogEntry::Deletes { rows, lsn } => {
                    tip.delete(rows.iter().copied(), *lsn);
                }
                LogEntry::Def(def) if is_new => tip.alter(def.clone(), Lsn(*lsn)).unwrap(),
                LogEntry::Seal(meta, away) if is_new => {
                    tip.apply_seal(open(&self.sim, tip.def(), meta.clone()), self.kept(away)).unwrap();
                }
                LogEntry::Forget(segments, floor) if is_new => drop(tip.forget(segments, *floor)),
                LogEntry::Compact(inputs, output, away) if is_new => {
                    let output = output.clone().map(|meta| open(&self.sim, tip.def(), meta));
                    tip.apply_compact(inputs, output, self.kept(away)).unwrap();
                }
                _ => {}
            }
        }
        self.done[2] += usize::from(since > 0);
        self.tip = tip;
        self.tip.keep_deletes_after(Lsn(self.wanted));
    }

    fn expected(&self) -> Content {
        let mut rows: Vec<u64> = self.keys.values().copied().collect();
        rows.sort_unstable();
        self.contents(self.tip.def(), rows)
    }

    /// Returns the rows that were visible at `lsn`, under the definition of that time.
    fn expected_at(&self, lsn: u64) -> Content {
        let is_there = |v: &Version| v.lsn <= lsn && v.ended.is_none_or(|ended| ended > lsn);
        let rows = self.versions.iter().zip(1..).filter(|(v, _)| is_there(v)).map(|(_, row)| row);
        let def = self.defs.iter().find(|(replaced, _)| *replaced > lsn).map(|(_, def)| def);
        self.contents(def.unwrap_or(self.tip.def()), rows.collect())
    }

    fn contents(&self, def: &TableDef, rows: Vec<u64>) -> Content {
        let values = |row: u64| {
            let version = &self.versions[row as usize - 1];
            let value = |column: &types::Column| match version.values.get(&column.id) {
                Some(value) => value.clone().cast(&column.data_type).unwrap(),
                None => column.initial.clone().unwrap_or(Value::Null),
            };
            def.schema.columns.iter().map(value).collect()
        };
        rows.into_iter().map(|row| (row, values(row))).collect()
    }

    /// Reads the present snapshot in every way that it offers.
    fn check(&mut self) {
        let (snapshot, expected) = (self.snapshot(), self.expected());
        assert_same(&snapshot, &expected);
        assert_eq!(snapshot.next_row().0, self.versions.len() as u64 + 1);
        for (row, version) in self.versions.iter().enumerate().map(|(i, v)| (i as u64 + 1, v)) {
            if self.rng.one_in(30) {
                assert_eq!(snapshot.is_live(RowId(row)).unwrap(), version.ended.is_none());
                let lsn = (version.ended.is_none()).then_some(Lsn(version.lsn));
                assert_eq!(snapshot.lsn_of(RowId(row)).unwrap(), lsn);
                let found = snapshot.find(&key_of(version.key)).unwrap();
                assert_eq!(found, self.keys.get(&version.key).map(|row| RowId(*row)));
                assert_eq!(self.tip.find(&key_of(version.key)).unwrap(), found);
            }
        }
        for _ in 0..10 {
            let picks: Vec<RowId> = (0..self.rng.below(40))
                .map(|_| RowId(self.rng.below(self.versions.len() as u64 + 2)))
                .collect();
            let fetched = snapshot.fetch(&picks, snapshot.all_columns()).unwrap();
            let live = |row: &&RowId| expected.binary_search_by_key(&row.0, |(row, _)| *row).is_ok();
            assert_eq!(row_ids(&fetched), picks.iter().filter(live).map(|row| row.0).collect::<Vec<_>>());

            let (from, limit) = (self.rng.below(self.versions.len() as u64 + 2), self.rng.index(20_000));
            let scanned = snapshot.scan_from(RowId(from), limit, snapshot.all_columns()).unwrap();
            let after = expected.iter().map(|(row, _)| *row).filter(|row| *row >= from);
            assert_eq!(row_ids(&scanned), after.take(limit).collect::<Vec<_>>());

            let time = self.rng.below(self.lsn * 10 + 20) as i64 - 15;
            let first = snapshot.row_at_time(time).unwrap().0;
            assert!(
                expected
                    .iter()
                    .all(|(row, _)| (*row >= first) == (self.versions[*row as usize - 1].time >= time))
            );
        }
    }

    /// Looks up owners of values in the unique index: in the table, again for a writer that looked in an older snapshot, and in a
    /// private tip of an open transaction.
    fn ask_owners(&mut self) {
        let (def, snapshot) = (self.tip.def().clone(), self.snapshot());
        let key = Unique::of(&def, &def.indexes[0]).unwrap();
        let column = key.columns[0].0;
        let lookup = IndexRows::up_to(self.rng.below(self.versions.len() as u64 + 1), &self.versions, column);
        let lookup: Option<&dyn Lookup> = self.rng.one_in(4).then_some(&lookup);
        let picks: Vec<usize> = (0..20).map(|_| self.rng.index(self.versions.len().max(1))).collect();
        let picks: Vec<usize> = picks.into_iter().filter(|at| *at < self.versions.len()).collect();
        let values: Vec<Value> = picks.iter().map(|at| self.versions[*at].values[&column].clone()).collect();
        let schema = def.schema.to_arrow_user().project(&[2]).unwrap();
        let asked = Value::to_array(&values, &DataType::Int32).unwrap();
        let asked = RecordBatch::try_new(Arc::new(schema), vec![asked]).unwrap();
        let keys = key.encode(&asked).unwrap();
        let mut live: HashMap<i32, RowId> = HashMap::new();
        for row in self.keys.values() {
            if let Value::Int32(value) = self.versions[*row as usize - 1].values[&column] {
                assert_eq!(live.insert(value, RowId(*row)), None, "no two rows are equal");
            }
        }
        let owner = |value: &Value| match value {
            Value::Int32(value) => live.get(value).copied(),
            _ => None,
        };
        let expected: Vec<Option<RowId>> = values.iter().map(owner).collect();
        let found = snapshot.owners(&key, lookup, &asked, &keys).unwrap().unwrap();
        assert!(found.complete && found.rows == expected, "{:?} {expected:?}", found.rows);
        for (base, _) in self.held.iter().filter(|(base, _)| base.def() == &def) {
            let then = base.owners(&key, lookup, &asked, &keys).unwrap().unwrap();
            for (at, bytes) in keys.iter().enumerate() {
                let Some(bytes) = bytes else { continue };
                let of = || Ok(vec![values[at].clone()]);
                let again = self.tip.owner_again(base, &key, lookup, &of, bytes, then.rows[at]).unwrap();
                assert!(again.is_none_or(|again| again == expected[at]), "{again:?} {:?}", expected[at]);
            }
        }
        let mut own = Tip::over(&snapshot);
        let first = own.next_row();
        own.append(first, self.lsn as i64, &[(Lsn(self.lsn + 1), 1)], &self.row_of(&def, column, -7))
            .unwrap();
        let mine = Value::to_array(&[Value::Int32(-7)], &DataType::Int32).unwrap();
        let mine = RecordBatch::try_new(asked.schema(), vec![mine]).unwrap();
        let mine_keys = key.encode(&mine).unwrap();
        let of = |tip: &Tip| {
            tip.snapshot(Lsn(self.lsn)).owners(&key, lookup, &mine, &mine_keys).unwrap().unwrap().rows
        };
        assert_eq!((of(&own), of(&self.tip)), (vec![Some(first)], vec![None]));
        if let Some(lookup) = lookup {
            self.tip.forget_uniques(lookup);
        }
    }

    /// Makes one row that is null except for its key and this column.
    fn row_of(&self, def: &TableDef, column: ColumnId, value: i32) -> RecordBatch {
        let one = |c: &types::Column| {
            let value = match c.id {
                id if id == def.schema.columns[0].id => Value::Int64(-1),
                id if id == column => Value::Int32(value),
                _ => Value::Null,
            };
            Value::to_array(&[value], &c.data_type).unwrap()
        };
        let columns = def.schema.columns.iter().map(one).collect();
        RecordBatch::try_new(def.schema.to_arrow_user(), columns).unwrap()
    }

    fn step(&mut self) {
        match self.rng.below(40) {
            0..20 => self.write(),
            20..24 => self.seal(),
            24..28 => self.compact(),
            28 | 29 => self.alter(),
            30..34 => self.follow(),
            34 if self.held.len() < 12 => self.held.push((self.snapshot(), self.expected())),
            38 => self.look_back(),
            39 => self.forget(),
            35 => self.manifest = Some(self.snapshot().state()),
            36 if self.rng.one_in(3) => self.restart(),
            37 => {
                self.check();
                self.ask_owners();
            }
            _ => {}
        }
    }
}

fn row_ids(batch: &RecordBatch) -> Vec<u64> {
    use arrow::array::AsArray;
    let ids = batch.column(0).as_primitive::<arrow::datatypes::Int64Type>();
    ids.values().iter().map(|row| *row as u64).collect()
}

fn assert_same(snapshot: &Snapshot, expected: &Content) {
    let def = snapshot.def();
    let mut found: Content = Vec::new();
    for piece in snapshot.pieces() {
        let batch = piece.read(snapshot.all_columns()).unwrap();
        assert_eq!(batch.num_rows(), piece.rows());
        let (first, last) = piece.row_range();
        let ids = row_ids(&batch);
        assert!(ids.iter().all(|row| (first.0..=last.0).contains(row)));
        for (at, row) in ids.into_iter().enumerate() {
            let columns = def.schema.columns.iter().zip(&batch.columns()[2..]);
            found.push((row, columns.map(|(c, a)| Value::from_array(a, &c.data_type, at)).collect()));
        }
    }
    // The pieces of a snapshot of the past are in no order.
    if snapshot.as_of().is_some() {
        found.sort_by_key(|(row, _)| *row);
    }
    assert_eq!(found.len() as u64, snapshot.rows(), "S1");
    assert!(found == *expected, "S1: {} rows found, {} expected", found.len(), expected.len());
    // Reads the same rows in stored order.
    let mut stored = Vec::new();
    for piece in snapshot.stored_pieces() {
        let batch = piece.read(snapshot.all_columns()).unwrap();
        assert!(!piece.is_counted() || batch.num_rows() == piece.rows());
        let ids = row_ids(&batch);
        assert!(!piece.is_in_row_order() || ids.is_sorted());
        for (at, row) in ids.into_iter().enumerate() {
            let columns = def.schema.columns.iter().zip(&batch.columns()[2..]);
            let values = columns.map(|(c, a)| Value::from_array(a, &c.data_type, at));
            stored.push((row, values.collect::<Vec<_>>()));
        }
    }
    stored.sort_unstable_by_key(|(row, _)| *row);
    assert!(stored == *expected, "S1: as they lie");
    for (row, values) in expected.iter().step_by(17) {
        let Value::Int64(key) = values[0] else { unreachable!("the key") };
        let found = snapshot.get_row(&key_of(key)).unwrap().unwrap();
        assert_eq!(found.row_id(), RowId(*row));
        let read: Vec<Value> = def.schema.columns.iter().map(|c| found.value(c.id).unwrap()).collect();
        assert_eq!(read, *values);
    }
}

#[test]
fn a_table_equals_a_list_of_row_versions_whatever_happens() {
    let _limit = testkit::limit(300);
    let (mut done, mut looked, mut ordered, mut compressed) = ([0; 3], [0; 2], 0, 0);
    testkit::for_each_seed(25, |seed| {
        let mut world = ModelTest::new(seed);
        for _ in 0..250 {
            world.step();
        }
        world.check();
        world.look_back();
        world.restart();
        world.check();
        world.look_back();
        world.ask_owners();
        for (snapshot, expected) in &world.held {
            assert_same(snapshot, expected);
        }
        for segment in world.snapshot().segments() {
            ordered += usize::from(!segment.is_in_row_order());
            compressed += usize::from(segment.is_compressed());
            assert!(segment.verify().is_empty(), "{:?}", segment.verify());
        }
        done.iter_mut().zip(world.done).for_each(|(all, one)| *all += one);
        looked.iter_mut().zip(world.looked).for_each(|(all, one)| *all += one);
    });
    assert!(ordered > 0 && compressed > 0, "{ordered} in the order of their times, {compressed} compressed");
    assert!(done.iter().all(|count| *count > 0), "seals, compactions, restarts: {done:?}");
    assert!(looked.iter().all(|count| *count > 100), "read and refused: {looked:?}");
}
