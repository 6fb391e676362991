//! The commit thread's state: the tips, the log's writer, and the commits that are applied but not durable yet.
//!
//! It works on one group at a time. It checks each transaction against the tips, which include everything before it in the
//! group, and applies it. It writes one frame for the whole group, and once that is durable it publishes one root and
//! answers. A transaction is checked as a whole before any of it is applied, so it happens entirely or not at all.
//!
//! Changes that were applied but could not be logged (a failed write) are never published: the log is latched, writes are
//! refused, and reopening recovers the durable state.

mod alter;
mod check;
mod edits;
mod idempotency;
mod insert_conflicts;
mod log_room;
mod unique;
mod views;

pub(crate) use check::row_gone;
pub(crate) use insert_conflicts::PreparedRows;

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use commitlog::edit::{ApiKey, Edit};
use commitlog::record::{CommitRun, Deletes, InsertedRows};
use commitlog::{Purpose, frame};
use table::Tip;
use table::materializer::{Materializer, Position};
use table::unique::EnteredRows;
use types::{Error, Kind, Lsn, Micros, Result, RowId, SchemaVersion, TableDef, TableId, ViewDef};

use crate::background::SealProgress;
use crate::background::state::ObsoleteOutput;
use crate::database_root::{DatabaseRoot, Meta};
use crate::expire;
use crate::inbox::{BackgroundEdit, CommitCallback, InboxBatch, Request};
use crate::prepare::InsertedFirstRows;
use crate::root_reaper;
use crate::shared_state::Shared;
use crate::transaction::Committed;
use unique::UncheckedIndexes;

pub(crate) struct Core {
    shared: Arc<Shared>,
    log: commitlog::Writer,
    tips: HashMap<TableId, Tip>,
    /// Table ids by full name.
    names: HashMap<Arc<str>, TableId>,
    meta: Meta,
    meta_changed: bool,
    last_time: Micros,
    /// Rows deleted after this commit stay readable for a while: it is the newest commit that is older than
    /// `Options::history`.
    wanted_after: Lsn,
    /// The newest root that was built; published once its commits are durable.
    newest: DatabaseRoot,
    /// Tables changed since `newest` was built.
    dirty: BTreeSet<TableId>,
    /// Number of rows in segments that were deleted since background work was last woken for them.
    ended: u64,
    /// True if a table was given a time to live since `newest` was built: the background pool has to know.
    ttl_given: bool,
    /// Names of tables that were dropped or renamed since `newest` was built.
    gone: Vec<Arc<str>>,
    /// Bytes written by the seals whose head rows the next root no longer has.
    sealed: Vec<SealProgress>,
    /// Results of materializers since `newest` was built.
    derived: Vec<DerivedResult>,
    /// Answers for commits that were written since the last sync began; sent after the next sync.
    waiting: Vec<(CommitCallback, Committed)>,
    in_flight: Option<InFlight>,
    /// Set when the tips are ahead of the log: no root may be built from them any more.
    broken: Option<Error>,
    unchecked: UncheckedIndexes,
}

/// A running sync, with the root that it makes durable.
struct InFlight {
    root: Arc<DatabaseRoot>,
    /// The background work to wake once the root is published.
    wake: Wake,
    answers: Vec<(CommitCallback, Committed)>,
}

/// The background work for which a new root has something to do.
#[derive(Clone, Copy)]
enum Wake {
    Nobody,
    /// Materializers, which may wait for more rows first.
    Materializers,
    /// The whole pool: a head is to be sealed, or many rows of segments were deleted.
    Background,
}

/// Number of deleted segment rows that wakes background work. An eighth of the live rows suffices if that is fewer.
const ENDED_MANY: u64 = 1_024;

/// A materializer's result for a table. The position is `None` once it no longer follows the table.
type DerivedResult = (TableId, &'static str, Option<Arc<Position>>);

/// One change of a checked transaction. Applying it cannot fail because of the user's input.
enum Action {
    Create(TableDef),
    Alter(TableDef, Vec<EnteredRows>),
    Drop(TableId),
    Rows {
        table: TableId,
        version: SchemaVersion,
        batch: RecordBatch,
        deletes: Vec<RowId>,
        /// True if the rows were not compared with all rows under a unique index that is still being checked.
        unchecked: bool,
    },
    PutView(ViewDef),
    DropView(String),
    PutKey(ApiKey),
    RemoveKey(String),
    /// The last action of its transaction: records the outcome of the others under the idempotency key.
    Remember(idempotency::RequestRecord),
}

/// A commit group under construction.
struct Group {
    frame: frame::Builder,
    answers: Vec<(CommitCallback, Committed)>,
    /// Appends to keyless tables, gathered so that many small commits become one batch.
    staged: Vec<Staged>,
}

struct Staged {
    table: TableId,
    version: SchemaVersion,
    first_row: RowId,
    rows: u64,
    runs: Vec<CommitRun>,
    batches: Vec<RecordBatch>,
}

impl Group {
    fn lsn(&self, offset: u32) -> Lsn {
        Lsn(self.frame.first_lsn().0 + u64::from(offset))
    }
}

impl Core {
    pub fn new(shared: Arc<Shared>, log: commitlog::Writer, tips: HashMap<TableId, Tip>, meta: Meta) -> Self {
        let names = tips.iter().map(|(id, tip)| (Arc::from(tip.def().name.as_str()), *id)).collect();
        let newest = DatabaseRoot::clone(&shared.root.load());
        let unchecked = UncheckedIndexes::of(&tips);
        Core {
            log,
            tips,
            names,
            meta,
            meta_changed: false,
            last_time: newest.time,
            wanted_after: Lsn(0),
            newest,
            dirty: BTreeSet::new(),
            ttl_given: false,
            gone: Vec::new(),
            sealed: Vec::new(),
            derived: Vec::new(),
            waiting: Vec::new(),
            in_flight: None,
            ended: 0,
            broken: None,
            unchecked,
            shared,
        }
    }

    pub fn syncing(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Answers the writers whose sync ended and writes the taken requests. Returns true if a sync should start now.
    pub fn step(&mut self, taken: InboxBatch) -> bool {
        self.answer_and_write(taken);
        self.begin_sync()
    }

    /// Answers the writers whose sync ended and writes the taken requests, without starting the next sync.
    pub fn answer_and_write(&mut self, taken: InboxBatch) {
        if let Some(result) = taken.synced {
            self.synced(result);
        }
        if !taken.requests.is_empty() {
            self.commit(taken.requests);
        }
    }

    /// Returns true if no sync is running and one is due: something is written, or a writer must be told that it cannot be.
    pub fn owes_sync(&self) -> bool {
        let is_ahead = || self.log.next_lsn() != self.newest.lsn.next();
        self.in_flight.is_none() && (!self.waiting.is_empty() || self.broken.is_none() && is_ahead())
    }

    /// Returns the number of writers that the running sync answers, and of those that the next one answers.
    pub fn answers_due(&self) -> (usize, usize) {
        (self.in_flight.as_ref().map_or(0, |flight| flight.answers.len()), self.waiting.len())
    }

    /// Answers all waiting writers with an error after a panic: nothing else answers them any more.
    pub fn abandon(&mut self) {
        let error = Error::new(
            Kind::Latched,
            "the commit thread failed; whether this was kept shows after a restart",
        );
        let in_flight = self.in_flight.take().map_or_else(Vec::new, |flight| flight.answers);
        for (answer, _) in in_flight.into_iter().chain(self.waiting.drain(..)) {
            // One of these callbacks may have caused the panic.
            let _ = catch_unwind(AssertUnwindSafe(|| answer(Err(error.clone()))));
        }
    }

    /// Trims the log below `below`, which the last manifest does not need, and closes it cleanly. Every writer has been
    /// answered.
    pub fn close(self, below: Lsn) -> Result<()> {
        debug_assert!(self.waiting.is_empty() && self.in_flight.is_none(), "everything was answered");
        let trimmed = self.log.trim(below);
        self.log.close().and(trimmed)
    }

    /// Builds the root that the next sync makes durable. Returns false if nothing was written since the last one, or if a
    /// sync is running.
    pub fn begin_sync(&mut self) -> bool {
        if let Some(error) = &self.broken {
            // The commits may become durable one day but are never shown: their writers are told that the outcome is
            // unknown.
            self.waiting.drain(..).for_each(|(answer, _)| answer(Err(error.clone())));
            return false;
        }
        if self.in_flight.is_some() || self.log.next_lsn() == self.newest.lsn.next() {
            return false;
        }
        let (root, wake) = self.build_root();
        self.in_flight = Some(InFlight { root, wake, answers: std::mem::take(&mut self.waiting) });
        true
    }

    /// Handles the end of a sync: publishes and answers, or refuses all writes from now on.
    fn synced(&mut self, result: Result<Lsn>) {
        let Some(done) = self.in_flight.take() else { return };
        match result {
            Ok(durable) => {
                assert!(
                    durable >= done.root.lsn,
                    "L1: a root is published only when its last commit is durable"
                );
                let old = self.shared.root.swap(done.root);
                self.shared.commit_waiters.notify();
                if let Some(archive) = &self.shared.archive {
                    archive.wake();
                }
                match done.wake {
                    Wake::Nobody => {}
                    Wake::Materializers => self.shared.wake_materializers(),
                    Wake::Background => self.shared.wake_background(),
                }
                // A simulator has no reaper: the time at which a root is freed must follow from the seed alone.
                if !self.shared.stepped {
                    root_reaper::retire(old);
                }
                for (answer, committed) in done.answers {
                    answer(Ok(committed));
                }
            }
            Err(error) => {
                self.shared.refuse_writes(error.clone());
                self.broken = Some(error.clone());
                let waiting = std::mem::take(&mut self.waiting);
                for (answer, _) in done.answers.into_iter().chain(waiting) {
                    answer(Err(error.clone()));
                }
            }
        }
    }

    fn commit(&mut self, requests: Vec<Request>) {
        // Room is reserved before anything is applied, so a full disk refuses the group and changes nothing.
        let room = self.shared.check_log().and_then(|()| self.reserve(&requests, Purpose::Any));
        let requests = match room {
            Ok(()) => requests,
            Err(error) => self.requests_that_fit(requests, &error),
        };
        if requests.is_empty() {
            return;
        }
        self.last_time = self.shared.env.clock.now().max(self.last_time);
        let history = i64::try_from(self.shared.options.history.as_micros()).unwrap_or(i64::MAX);
        let oldest = self.last_time.saturating_sub(history);
        self.newest.times.trim(oldest);
        self.wanted_after = self.newest.times.at(oldest).unwrap_or(Lsn(0));
        let frame = frame::Builder::new(self.log.next_lsn(), self.last_time);
        let mut group = Group { frame, answers: Vec::with_capacity(requests.len()), staged: Vec::new() };
        let outcome = requests.into_iter().try_for_each(|request| self.request(&mut group, request));
        match outcome.and_then(|()| self.flush_staged(&mut group)).and_then(|()| self.write(group.frame)) {
            Ok(()) => {
                self.newest.times.push(self.last_time, Lsn(self.log.next_lsn().0 - 1));
                self.waiting.extend(group.answers);
            }
            Err(error) => {
                self.shared.refuse_writes(error.clone());
                self.broken = Some(error.clone());
                group.answers.into_iter().for_each(|(answer, _)| answer(Err(error.clone())));
            }
        }
    }

    fn write(&mut self, frame: frame::Builder) -> Result<()> {
        if frame.is_empty() {
            return Ok(());
        }
        let counters = &self.shared.counters;
        counters.groups.add(1);
        counters.commits.add(frame.commits().into());
        if self.log.append(frame)?.rotated {
            self.prepare_files();
        }
        Ok(())
    }

    /// Has the next log file prepared: the log began a new file, and another one should be ready when that is full.
    fn prepare_files(&self) {
        if let Some(archive) = &self.shared.archive {
            archive.hurry();
        }
        self.shared.wants_file.store(true, Ordering::Relaxed);
        self.shared.wake_background();
    }

    /// Takes one request into the group. An error means that the tips are in doubt; a refused request is not an error.
    fn request(&mut self, group: &mut Group, request: Request) -> Result<()> {
        match request {
            Request::Write { mut prepared, done } => {
                if prepared.needs_row_check() {
                    self.flush_staged(group)?;
                }
                let first_rows = prepared.first_rows.take();
                match self.check(group, prepared) {
                    Ok(actions) => {
                        let committed = self.apply(group, actions, first_rows.as_ref())?;
                        group.answers.push((done, committed));
                    }
                    Err(error) => {
                        if matches!(error.kind(), Kind::Conflict | Kind::Exists) {
                            self.shared.counters.conflicts.add(1);
                        }
                        done(Err(error));
                    }
                }
            }
            // A trim writes nothing to the log, so its answer waits for no sync.
            Request::Edit { edit: BackgroundEdit::Trimmed, done } => done(Ok(Committed::default())),
            Request::Edit { edit, done } => {
                let committed = self.edit(group, edit)?;
                if committed.lsn == Lsn(0) {
                    // It logged nothing, so no sync may come to answer it.
                    done(Ok(committed));
                } else {
                    group.answers.push((done, committed));
                }
            }
        }
        Ok(())
    }

    // ---- applying ----

    fn apply(
        &mut self,
        group: &mut Group,
        actions: Vec<Action>,
        first_rows: Option<&InsertedFirstRows>,
    ) -> Result<Committed> {
        let mut firsts = Vec::new();
        let offset = group.frame.commit();
        let lsn = group.lsn(offset);
        let mut committed = Committed { lsn, time: self.last_time, ..Committed::default() };
        for action in actions {
            match action {
                Action::Rows { table, version, batch, deletes, unchecked } => {
                    let rows = batch.num_rows();
                    self.apply_rows(group, offset, table, version, batch, deletes, &mut committed)?;
                    if unchecked {
                        self.note_unchecked(table);
                    }
                    if first_rows.is_some() && rows > 0 {
                        firsts.extend(committed.first_row.map(|first| (table, first)));
                    }
                }
                Action::Create(def) => {
                    group.frame.edit(offset, Edit::CreateTable(def.clone()));
                    self.create(def, lsn);
                }
                Action::Alter(def, entered) => {
                    self.flush_staged(group)?;
                    group.frame.edit(offset, Edit::AlterTable(def.clone()));
                    let table = def.id;
                    self.alter(def, lsn)?;
                    self.adopt(table, entered)?;
                }
                Action::Drop(table) => {
                    self.flush_staged(group)?;
                    group.frame.edit(offset, Edit::DropTable(table));
                    self.drop_table(table, lsn);
                }
                Action::PutView(view) => {
                    group.frame.edit(offset, Edit::PutView(view.clone()));
                    self.meta.views.insert(view.name.clone(), Arc::new(view));
                    self.meta_changed = true;
                }
                Action::DropView(name) => {
                    self.meta.views.remove(&name);
                    self.meta_changed = true;
                    group.frame.edit(offset, Edit::DropView { name });
                }
                Action::PutKey(api_key) => {
                    group.frame.edit(offset, Edit::PutKey(api_key.clone()));
                    self.meta.put_key(api_key);
                    self.meta_changed = true;
                }
                Action::RemoveKey(name) => {
                    self.meta.keys.retain(|key| key.name != name);
                    self.meta_changed = true;
                    group.frame.edit(offset, Edit::RemoveKey { name });
                }
                Action::Remember(row) => {
                    let firsts = first_rows.map(|_| &firsts[..]);
                    self.apply_remember(group, offset, row, &committed, firsts)?;
                }
            }
        }
        self.shared.counters.rows.add(committed.count);
        self.shared.counters.deletes.add(committed.deleted);
        if let Some(first_rows) = first_rows {
            // This request alone sets it, so it is still empty.
            let _ = first_rows.set(firsts);
        }
        Ok(committed)
    }

    #[allow(clippy::too_many_arguments, reason = "one place, and each is a thing of its own")]
    fn apply_rows(
        &mut self,
        group: &mut Group,
        offset: u32,
        table: TableId,
        version: SchemaVersion,
        batch: RecordBatch,
        deletes: Vec<RowId>,
        committed: &mut Committed,
    ) -> Result<()> {
        let lsn = group.lsn(offset);
        let tip = self.tips.get_mut(&table).ok_or_else(|| Error::internal("a checked table has no tip"))?;
        let count = batch.num_rows() as u64;
        if count > 0 {
            let run = CommitRun { lsn_offset: offset, count: count as u32 };
            let staged = group.staged.iter_mut().find(|s| s.table == table);
            let first_row = match staged {
                Some(staged) if staged.version == version => {
                    let first_row = RowId(staged.first_row.0 + staged.rows);
                    match staged.runs.last_mut() {
                        // Several inserts of one transaction share a run.
                        Some(last) if last.lsn_offset == offset => last.count += run.count,
                        _ => staged.runs.push(run),
                    }
                    staged.rows += count;
                    staged.batches.push(batch);
                    first_row
                }
                other => {
                    let behind = other.map_or(tip.next_row(), |s| RowId(s.first_row.0 + s.rows));
                    let staged = Staged {
                        table,
                        version,
                        first_row: behind,
                        rows: count,
                        runs: vec![run],
                        batches: vec![batch],
                    };
                    // A table has at most one open stage: rows of an older schema are flushed first.
                    if group.staged.iter().any(|s| s.table == table) {
                        self.flush_staged(group)?;
                    }
                    group.staged.push(staged);
                    behind
                }
            };
            committed.first_row = Some(first_row);
            committed.last_row = Some(RowId(first_row.0 + count - 1));
            committed.count += count;
        }
        // Later commits of the group may look these rows up by key or id.
        let tip = self.tips.get_mut(&table).ok_or_else(|| Error::internal("a checked table has no tip"))?;
        let is_checked = tip.def().is_checked();
        if !deletes.is_empty() {
            tip.keep_deletes_after(self.wanted_after);
            committed.deleted += tip.delete(deletes.iter().copied(), lsn);
            let runs = vec![CommitRun { lsn_offset: offset, count: deletes.len() as u32 }];
            group.frame.deletes(Deletes { table, runs, rows: deletes });
        }
        self.dirty.insert(table);
        if is_checked {
            self.flush_staged(group)?;
        }
        Ok(())
    }

    /// Appends the staged rows to the tips and to the frame.
    fn flush_staged(&mut self, group: &mut Group) -> Result<()> {
        for staged in std::mem::take(&mut group.staged) {
            let Staged { table, version, first_row, runs, mut batches, .. } = staged;
            let batch = if batches.len() == 1 {
                batches.remove(0)
            } else {
                concat_batches(&batches[0].schema(), &batches)
                    .map_err(|e| Error::internal(format!("joining the rows of a group failed: {e}")))?
            };
            let lsn_runs: Vec<(Lsn, u64)> =
                runs.iter().map(|run| (group.lsn(run.lsn_offset), u64::from(run.count))).collect();
            let tip =
                self.tips.get_mut(&table).ok_or_else(|| Error::internal("a staged table has no tip"))?;
            debug_assert_eq!(tip.next_row(), first_row, "row ids are given without gaps");
            tip.append(first_row, group.frame.time(), &lsn_runs, &batch)?;
            group.frame.rows(InsertedRows { table, schema_version: version, first_row, runs, batch });
        }
        Ok(())
    }

    fn create(&mut self, def: TableDef, lsn: Lsn) {
        self.meta.next_table = def.id.next();
        self.meta_changed = true;
        self.names.insert(Arc::from(def.name.as_str()), def.id);
        self.dirty.insert(def.id);
        self.shared.note_empty(&def);
        self.ttl_given |= def.options.ttl.is_some();
        self.tips.insert(def.id, Tip::created(def, lsn));
    }

    fn alter(&mut self, def: TableDef, lsn: Lsn) -> Result<()> {
        let Some(tip) = self.tips.get_mut(&def.id) else { return Ok(()) };
        let table = def.id;
        self.dirty.insert(table);
        let before = tip.def().clone();
        let derived_changed = before.indexes != def.indexes || !alter::same_types(&before, &def);
        let full_name = def.name.clone();
        self.ttl_given |= def.options.ttl.is_some() && def.options.ttl != before.options.ttl;
        tip.alter(def, lsn)?;
        self.note_new_uniques(&before, table, lsn);
        if before.name != full_name {
            if let Some((old, _)) = self.names.remove_entry(before.name.as_str()) {
                self.gone.push(old);
            }
            self.names.insert(Arc::from(full_name), table);
        }
        if derived_changed && let Some(tip) = self.tips.get(&table) {
            let def = tip.def().clone();
            let is_empty = tip.next_row() == RowId(1);
            // Materializers that still follow the table may have to rebuild.
            self.shared.note_unsteady(table);
            if is_empty {
                self.shared.note_empty(&def);
            }
            let materializers = self.shared.materializers.load_full();
            for materializer in materializers.iter().filter(|m| !m.follows(&def)) {
                self.stop_following(table, materializer, None, lsn);
            }
        }
        Ok(())
    }

    fn drop_table(&mut self, table: TableId, lsn: Lsn) {
        let Some(tip) = self.tips.remove(&table) else { return };
        if let Some((full_name, _)) = self.names.remove_entry(tip.def().name.as_str()) {
            self.gone.push(full_name);
        }
        self.dirty.remove(&table);
        let materializers = self.shared.materializers.load_full();
        materializers.iter().for_each(|materializer| self.stop_following(table, materializer, None, lsn));
        // The checkpoints of materializers that this process does not have go too.
        self.meta.checkpoints.retain(|(_, of), _| *of != table);
        self.meta_changed = true;
        let snapshot = tip.snapshot(lsn);
        let past = snapshot.past_segments().map(|(segment, _)| segment);
        self.retire_segments(table, snapshot.segments().chain(past).cloned(), lsn);
    }

    /// Stops a materializer from following a table: its output is removed once no reader holds it. `unpublished` is its
    /// newest position if no root has it yet.
    fn stop_following(
        &mut self,
        table: TableId,
        materializer: &Arc<dyn Materializer>,
        unpublished: Option<Arc<Position>>,
        since: Lsn,
    ) {
        let name = materializer.name();
        // Positions made by one process share their files, which are removed with the newest of them.
        let position = unpublished.or_else(|| self.published(table, name));
        let had_checkpoint = self.meta.checkpoints.remove(&(name.to_owned(), table)).is_some();
        self.meta_changed |= had_checkpoint;
        self.derived.push((table, name, None));
        self.shared.forget_note(table, name);
        let output = ObsoleteOutput { materializer: materializer.clone(), table, position, since };
        self.shared.background.lock().obsolete_outputs.push(output);
        self.shared.wake_background();
    }

    /// Returns the newest position of a materializer in a table, whether or not a root has it yet.
    fn published(&self, table: TableId, name: &str) -> Option<Arc<Position>> {
        let made = self.derived.iter().rev().find(|(of, made_by, _)| (*of, *made_by) == (table, name));
        match made {
            Some((_, _, made)) => made.clone(),
            None => self.newest.derived(name, table).cloned(),
        }
    }

    // ---- publishing ----

    /// Builds the root of everything written so far. Also returns the background work to wake for it.
    fn build_root(&mut self) -> (Arc<DatabaseRoot>, Wake) {
        let lsn = Lsn(self.log.next_lsn().0 - 1);
        let root = &mut self.newest;
        let counters = &self.shared.counters;
        let mut head_bytes = counters.head_bytes.get();
        let mut seal = std::mem::take(&mut self.ttl_given);
        for full_name in self.gone.drain(..) {
            if let Some(old) = root.tables.remove(&full_name) {
                head_bytes -= old.head_bytes();
            }
        }
        let changed = !self.dirty.is_empty();
        for table in std::mem::take(&mut self.dirty) {
            let Some(tip) = self.tips.get(&table) else { continue };
            let snapshot = tip.snapshot(lsn);
            let options = &self.shared.options;
            seal |= snapshot.head_bytes() >= options.seal_bytes || snapshot.head_rows() >= options.seal_rows;
            head_bytes += snapshot.head_bytes();
            let sealed_live = snapshot.sealed_live();
            let before = root.tables.get(tip.def().name.as_str());
            seal |= before.is_some_and(|before| expire::has_too_many(before, &snapshot, options));
            if let Some(old) = root.tables.insert(Arc::from(tip.def().name.as_str()), snapshot) {
                head_bytes -= old.head_bytes();
                let ended = old.sealed_live().saturating_sub(sealed_live);
                self.ended += ended;
                // Background work finds out whether a segment is worth rewriting without the deleted rows.
                seal |= ended > 0 && (self.ended >= ENDED_MANY || self.ended > sealed_live / 8);
            }
        }
        if seal {
            self.ended = 0;
        }
        counters.head_bytes.set(head_bytes);
        self.sealed.clear();
        for (table, name, made) in self.derived.drain(..) {
            match made {
                Some(position) => drop(root.derived.insert((table, name), position)),
                None => drop(root.derived.remove(&(table, name))),
            }
        }
        if std::mem::take(&mut self.meta_changed) {
            root.meta = Arc::new(self.meta.clone());
        }
        root.lsn = lsn;
        root.time = self.last_time;
        root.made = self.shared.env.clock.monotonic();
        let wake = if seal || head_bytes >= self.shared.options.debt_soft_bytes / 2 {
            Wake::Background
        } else if changed {
            Wake::Materializers
        } else {
            Wake::Nobody
        };
        (Arc::new(root.clone()), wake)
    }
}

impl Shared {
    /// Fails once the log takes no more writes, for any reason. Unlike [`Shared::check_writable`] it lets requests through
    /// that were admitted before the database began to close.
    fn check_log(&self) -> Result<()> {
        match self.write_error.load().as_deref() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Returns true if a manifest at or above `lsn` is durable.
    pub fn manifest_covers(&self, lsn: Lsn) -> bool {
        self.manifest_lsn.load(Ordering::Acquire) >= lsn.0
    }
}
