//! Transactions that are open for a while: read, decide, write, read again, commit.
//!
//! [`Engine::begin`] pins the newest root. What the transaction writes is applied to private tables that go on from that
//! root's ([`overlay`]), so every reader of [`OpenTransaction::view`] meets the transaction's own rows where it would
//! meet anybody's, and nothing of what others commit meanwhile (snapshot isolation). Committing turns the difference
//! into one [`crate::Transaction`]-like commit that is refused if a key or a row that it writes was written by somebody
//! else since the beginning: the first committer wins. What was only read is not checked, so two transactions that each
//! read what the other writes may both commit (write skew).
//!
//! ## Invariants
//! - S1, S2: a view of an open transaction is a value like any other; it stands at the lsn of the beginning.
//! - R1: reading takes no lock, and beginning only the reaper's, to wake it where none was open before. What a
//!   transaction has come to is one atomic pointer; a statement that finds it changed under itself is refused.
//! - R2: how many are open, for how long, and what each and all of them hold is bounded by [`Limits`]. Who never comes
//!   back is ended by the reaper's thread ([`registry`]).

mod overlay;
mod registry;

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use arc_swap::ArcSwap;
use types::{Error, Kind, Lsn, Principal, Result, RowId, Scope, TableId};

use crate::engine::Engine;
use crate::remember::Remember;
use crate::root::Root;
use crate::transaction::{Committed, Op};
use crate::view::View;

use overlay::Overlay;
pub(crate) use overlay::Ranges;
pub use overlay::Written;
pub(crate) use registry::Registry;

/// What open transactions may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long one may be open; then it is rolled back.
    pub time_max: Duration,
    /// Bytes that one may write: its values, and 32 bytes for each row.
    pub bytes_max: u64,
    /// How many may be open at once.
    pub open_max: usize,
    /// Bytes that all of them together may hold.
    pub bytes_of_all_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            time_max: Duration::from_secs(60),
            bytes_max: 64 << 20,
            open_max: 256,
            bytes_of_all_max: 512 << 20,
        }
    }
}

/// An open transaction. Clones are the same one; it is rolled back when the last of them is dropped. May be used from any
/// thread, by one statement at a time: of two at once that write, one is refused.
#[derive(Clone)]
pub struct OpenTransaction(Arc<Handle>);

struct Handle {
    engine: Engine,
    principal: Principal,
    slot: Arc<Slot>,
}

/// What a transaction has come to, apart from who uses it, so that it can be ended without him.
pub(crate) struct Slot {
    state: ArcSwap<State>,
    /// On the engine's monotonic clock.
    due: Duration,
    time_max: Duration,
}

enum State {
    Open(Overlay),
    Ended(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Committed,
    RolledBack,
    Expired,
    Closed,
}

/// What a committed transaction came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The rows and row versions of all tables: what was inserted and ended within the transaction is in neither count.
    pub committed: Committed,
    pub(crate) landed: Vec<Landing>,
}

/// Where the rows of one table came to lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Landing {
    pub table: TableId,
    /// The transaction's own row ids.
    pub own: Ranges,
    pub first: RowId,
}

impl Outcome {
    /// The ids that the rows of a statement have now, first and last; `None` if none of them is left. `first` and `last`
    /// are ids from within the transaction ([`Written`]).
    pub fn rows(&self, table: TableId, first: RowId, last: RowId) -> Option<(RowId, RowId)> {
        let landing = self.landed.iter().find(|landing| landing.table == table)?;
        let (mut before, mut through) = (0, 0);
        for (start, rows) in &landing.own {
            before += first.0.saturating_sub(*start).min(*rows);
            through += last.next().0.saturating_sub(*start).min(*rows);
        }
        (through > before).then(|| (RowId(landing.first.0 + before), RowId(landing.first.0 + through - 1)))
    }
}

impl Engine {
    /// Opens a transaction at the newest root. [`Kind::Busy`] while too many are open.
    pub fn begin(&self, principal: &Principal) -> Result<OpenTransaction> {
        principal.require(Scope::Read)?;
        let shared = self.shared();
        shared.check_open()?;
        let limits = &shared.options.transactions;
        let due = shared.env.clock.monotonic() + limits.time_max;
        let state = ArcSwap::from_pointee(State::Open(Overlay::new(self.root())));
        let slot = Arc::new(Slot { state, due, time_max: limits.time_max });
        let entered = shared.transactions.enter(&slot, limits);
        if entered.is_err() {
            shared.counters.refused_transactions.add(1);
        }
        self.watch_transactions(entered?);
        if let Err(closed) = shared.check_open() {
            // It closed in between, and may not have found this one.
            slot.end(&shared.transactions, End::Closed);
            return Err(closed);
        }
        Ok(OpenTransaction(Arc::new(Handle { engine: self.clone(), principal: principal.clone(), slot })))
    }
}

impl OpenTransaction {
    /// The database as of the beginning, with what was written in here. Row ids and `_time` of own rows are given anew
    /// when they are committed.
    pub fn view(&self) -> Result<View> {
        View::new(self.root()?, &self.0.principal)
    }

    /// All of it, whoever may see it: [`Engine::root`] of the transaction.
    pub fn root(&self) -> Result<Arc<Root>> {
        match &*self.state()? {
            State::Open(overlay) => Ok(overlay.root().clone()),
            State::Ended(end) => Err(self.ended(*end)),
        }
    }

    /// The lsn of the beginning.
    pub fn lsn(&self) -> Result<Lsn> {
        Ok(self.view()?.lsn())
    }

    pub fn principal(&self) -> &Principal {
        &self.0.principal
    }

    /// Applies operations, each of which sees what those before it did; all of them or none. Only rows can be written:
    /// [`Kind::Invalid`] for a change of a definition.
    ///
    /// [`Kind::TooLarge`] for one operation too many; the transaction goes on without it.
    pub fn apply(&self, ops: Vec<Op>) -> Result<Vec<Written>> {
        self.change(|overlay| self.applied(overlay, ops))
    }

    /// The same for operations that follow from what was read in `view`; [`Kind::Conflict`] if another statement of this
    /// transaction has written since.
    pub fn apply_read(&self, view: &View, ops: Vec<Op>) -> Result<Vec<Written>> {
        self.change(|overlay| {
            if !view.is_of(overlay.root()) {
                return Err(at_once());
            }
            self.applied(overlay, ops)
        })
    }

    fn applied(&self, overlay: &Overlay, ops: Vec<Op>) -> Result<(Overlay, Vec<Written>)> {
        let shared = self.0.engine.shared();
        let limits = &shared.options.transactions;
        let time = shared.env.clock.now();
        let mut next = overlay.clone();
        let mut written = Vec::with_capacity(ops.len());
        for op in ops {
            written.push(next.apply(&self.0.principal, op, time, limits)?);
        }
        shared.check_room(next.held_bytes().saturating_sub(overlay.held_bytes()))?;
        Ok((next, written))
    }

    /// Notes a place to come back to. A name may be given again; then it means the newer place.
    pub fn savepoint(&self, name: &str) -> Result<()> {
        let shared = self.0.engine.shared();
        let limits = &shared.options.transactions;
        self.change(|overlay| {
            let next = overlay.savepoint(name, limits)?;
            shared.check_room(next.held_bytes() - overlay.held_bytes())?;
            Ok((next, ()))
        })
    }

    /// Undoes what was written since a savepoint, which stays. [`Kind::NotFound`] if there is none of this name.
    pub fn rollback_to(&self, name: &str) -> Result<()> {
        self.change(|overlay| Ok((overlay.rolled_back_to(name)?, ())))
    }

    /// Forgets a savepoint and those made after it; what was written stays.
    pub fn release(&self, name: &str) -> Result<()> {
        self.change(|overlay| Ok((overlay.released(name)?, ())))
    }

    /// How long it may still be open.
    pub fn remaining(&self) -> Duration {
        self.0.slot.due.saturating_sub(self.0.engine.shared().env.clock.monotonic())
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state().as_deref(), Ok(State::Open(_)))
    }

    /// Full names of the tables that were written to.
    pub fn tables_written(&self) -> Vec<String> {
        match self.state().as_deref() {
            Ok(State::Open(overlay)) => overlay.tables_written(),
            _ => Vec::new(),
        }
    }

    /// Forgets everything that was written. Does nothing once the transaction has ended.
    pub fn rollback(&self) {
        self.0.slot.end(&self.0.engine.shared().transactions, End::RolledBack);
    }

    /// Commits, all at one lsn or not at all, and ends the transaction either way. `done` is called once, as that of
    /// [`Engine::submit`].
    ///
    /// [`Kind::Conflict`] names the table and the key (or the row) that somebody else has written since the beginning.
    /// Nothing is checked, and nothing written to the log, if nothing was written in here; nor is it remembered then.
    ///
    /// `remember`: as [`crate::Transaction::remember`]; [`crate::Remembered::outcome`] tells what it came to.
    pub fn submit_commit(
        &self,
        remember: Option<Remember>,
        done: impl FnOnce(Result<Outcome>) + Send + 'static,
    ) {
        let engine = &self.0.engine;
        let registry = &engine.shared().transactions;
        let state = match self.state() {
            Ok(state) => state,
            Err(error) => return done(Err(error)),
        };
        let State::Open(overlay) = &*state else { return done(Err(self.ended(End::Expired))) };
        if !self.0.slot.replace(registry, &state, State::Ended(End::Committed)) {
            return done(Err(self.state().err().unwrap_or_else(at_once)));
        }
        let commit = match overlay.commit(&self.0.principal, remember) {
            Ok(Some(commit)) => commit,
            Ok(None) => {
                let committed = Committed { lsn: overlay.root().lsn(), ..Committed::default() };
                return done(Ok(Outcome { committed, landed: Vec::new() }));
            }
            Err(error) => return done(Err(error)),
        };
        let overlay::Commit { prepared, tables, own, landed } = commit;
        engine.submit_prepared(&tables, prepared, move |result| {
            done(result.map(|committed| {
                let firsts = landed.get().map(Vec::as_slice).unwrap_or_default();
                let landing = |(table, first): &(TableId, RowId)| {
                    let own = own.iter().find(|(of, _)| of == table)?.1.clone();
                    Some(Landing { table: *table, own, first: *first })
                };
                Outcome { committed, landed: firsts.iter().filter_map(landing).collect() }
            }));
        });
    }

    /// [`OpenTransaction::submit_commit`], waiting for the answer.
    pub fn commit(&self) -> Result<Outcome> {
        let (sender, receiver) = mpsc::channel();
        self.submit_commit(None, move |result| {
            // The receiver waits below.
            let _ = sender.send(result);
        });
        receiver.recv().unwrap_or_else(|_| Err(Error::new(Kind::Closed, "the database closed")))
    }

    /// What it has come to; an error once it has ended.
    fn state(&self) -> Result<Arc<State>> {
        let slot = &self.0.slot;
        if self.remaining().is_zero() {
            slot.end(&self.0.engine.shared().transactions, End::Expired);
        }
        let state = slot.state.load_full();
        match &*state {
            State::Open(_) => Ok(state),
            State::Ended(end) => Err(self.ended(*end)),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&Overlay) -> Result<(Overlay, T)>) -> Result<T> {
        let state = self.state()?;
        let State::Open(overlay) = &*state else { return Err(self.ended(End::Expired)) };
        let (next, value) = change(overlay)?;
        if self.0.slot.replace(&self.0.engine.shared().transactions, &state, State::Open(next)) {
            return Ok(value);
        }
        // Either it ended meanwhile, and that is said, or another statement was faster.
        self.state()?;
        Err(at_once())
    }

    fn ended(&self, end: End) -> Error {
        match end {
            End::Committed | End::RolledBack => Error::invalid("the transaction has ended"),
            End::Expired => Error::new(
                Kind::Timeout,
                format!(
                    "the transaction was open for more than {} s and was rolled back",
                    self.0.slot.time_max.as_secs()
                ),
            )
            .hint("begin another one, and keep it short"),
            End::Closed => Error::new(Kind::Closed, "the database is closed or closing"),
        }
    }
}

impl Slot {
    /// Makes `next` of `known`; false if it is something else by now.
    fn replace(&self, registry: &Registry, known: &Arc<State>, next: State) -> bool {
        let (before, after) = (known.held_bytes(), next.held_bytes());
        let ends = matches!(next, State::Ended(_));
        let found = self.state.compare_and_swap(known, Arc::new(next));
        let replaced = Arc::ptr_eq(&found, known);
        if replaced {
            registry.resize(before, after);
            if ends {
                registry.leave(self);
            }
        }
        replaced
    }

    /// Ends the transaction unless it has ended.
    pub(crate) fn end(&self, registry: &Registry, end: End) {
        loop {
            let known = self.state.load_full();
            if matches!(&*known, State::Ended(_)) {
                return;
            }
            if self.replace(registry, &known, State::Ended(end)) {
                if end == End::Expired {
                    registry.expired();
                }
                return;
            }
        }
    }
}

impl State {
    fn held_bytes(&self) -> u64 {
        match self {
            State::Open(overlay) => overlay.held_bytes(),
            State::Ended(_) => 0,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.slot.end(&self.engine.shared().transactions, End::RolledBack);
    }
}

impl fmt::Debug for OpenTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTransaction").field("open", &self.is_open()).finish_non_exhaustive()
    }
}

fn at_once() -> Error {
    Error::conflict("two statements of one transaction wrote at once, and this one came second")
        .hint("run the statements of a transaction one after the other")
}
