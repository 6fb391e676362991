//! Interactive transactions, which stay open for a while: read, decide, write, read again, commit.
//!
//! [`Engine::begin`] pins the newest root. Writes of the transaction are applied to private tables that continue those of
//! that root ([`overlay`]). So every reader of [`OpenTransaction::view`] meets the transaction's own rows like any others,
//! and no commit of others that comes later (snapshot isolation). Committing turns the difference into one commit like that
//! of a [`crate::Transaction`]. It is refused if another writer has written a key or a row that it writes since the
//! beginning: the first committer wins. Reads are not checked, so two transactions that each read what the other writes may
//! both commit (write skew).
//!
//! ## Invariants
//! - S1, S2: a view of an open transaction is a value like any other, at the lsn of the beginning.
//! - R1: reading takes no lock, and beginning takes only the reaper's, to wake it where no transaction was open before. The
//!   state of a transaction is one atomic pointer; a statement that finds it changed meanwhile is refused.
//! - R2: the number of open transactions, their time, and the memory of each and of all are bounded by [`TransactionLimits`]. The
//!   reaper's thread ends a transaction whose client never comes back ([`registry`]).

mod overlay;
mod registry;

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use arc_swap::ArcSwap;
use types::{Error, Kind, Lsn, Principal, Result, RowId, Scope, TableId};

use crate::database_root::DatabaseRoot;
use crate::engine::Engine;
use crate::idempotency::IdempotentRequest;
use crate::transaction::{Committed, Op};
use crate::view::View;

use overlay::Overlay;
pub(crate) use overlay::RowIdRanges;
pub use overlay::WrittenRows;
pub(crate) use registry::Registry;

/// Limits of open transactions.
#[derive(Clone, Debug)]
pub struct TransactionLimits {
    /// Time after which an open transaction is rolled back.
    pub time_max: Duration,
    /// Bytes that one may write: its values, and 32 bytes for each row.
    pub bytes_max: u64,
    /// Number of transactions that may be open at once.
    pub open_max: usize,
    /// Bytes that all of them together may hold.
    pub bytes_of_all_max: u64,
}

impl Default for TransactionLimits {
    fn default() -> Self {
        TransactionLimits {
            time_max: Duration::from_secs(60),
            bytes_max: 64 << 20,
            open_max: 256,
            bytes_of_all_max: 512 << 20,
        }
    }
}

/// An open transaction. Clones are the same transaction; it is rolled back when the last of them is dropped. Any thread may
/// use it, one statement at a time: of two statements that write at once, one is refused.
#[derive(Clone)]
pub struct OpenTransaction(Arc<Handle>);

struct Handle {
    engine: Engine,
    principal: Principal,
    slot: Arc<TransactionSlot>,
}

/// The state of a transaction, kept apart from its handle, so that it can be ended without the client.
pub(crate) struct TransactionSlot {
    state: ArcSwap<State>,
    /// Time at which it expires, on the engine's monotonic clock.
    due: Duration,
    time_max: Duration,
}

enum State {
    Open(Overlay),
    Ended(EndReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    Committed,
    RolledBack,
    Expired,
    Closed,
}

/// Outcome of a committed transaction.
#[derive(Clone, Debug)]
pub struct TransactionOutcome {
    /// The rows and row versions of all tables. A row that was both inserted and ended within the transaction counts in
    /// neither.
    pub committed: Committed,
    pub(crate) final_rows: Vec<FinalRows>,
}

/// The final row ids of the rows of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FinalRows {
    pub table: TableId,
    /// The row ids within the transaction.
    pub own: RowIdRanges,
    pub first: RowId,
}

impl TransactionOutcome {
    /// Returns the first and the last row id that the rows of a statement have now; `None` if none of them is left. `first`
    /// and `last` are ids from within the transaction ([`WrittenRows`]).
    pub fn rows(&self, table: TableId, first: RowId, last: RowId) -> Option<(RowId, RowId)> {
        let rows_of = self.final_rows.iter().find(|rows| rows.table == table)?;
        let (mut before, mut through) = (0, 0);
        for (start, rows) in &rows_of.own {
            before += first.0.saturating_sub(*start).min(*rows);
            through += last.next().0.saturating_sub(*start).min(*rows);
        }
        (through > before).then(|| (RowId(rows_of.first.0 + before), RowId(rows_of.first.0 + through - 1)))
    }
}

impl Engine {
    /// Opens a transaction at the newest root. Fails with [`Kind::Busy`] while too many are open.
    pub fn begin(&self, principal: &Principal) -> Result<OpenTransaction> {
        principal.require(Scope::Read)?;
        let shared = self.shared();
        shared.check_open()?;
        let limits = &shared.options.transactions;
        let due = shared.env.clock.monotonic() + limits.time_max;
        let state = ArcSwap::from_pointee(State::Open(Overlay::new(self.root())));
        let slot = Arc::new(TransactionSlot { state, due, time_max: limits.time_max });
        let entered = shared.transactions.enter(&slot, limits);
        if entered.is_err() {
            shared.counters.refused_transactions.add(1);
        }
        self.watch_transactions(entered?);
        if let Err(closed) = shared.check_open() {
            // The database closed in between, and may have missed this transaction.
            slot.end(&shared.transactions, EndReason::Closed);
            return Err(closed);
        }
        Ok(OpenTransaction(Arc::new(Handle { engine: self.clone(), principal: principal.clone(), slot })))
    }
}

impl OpenTransaction {
    /// Returns a view of the database as of the beginning, with the transaction's own writes. Own rows get new row ids and a
    /// new `_time` when they are committed.
    pub fn view(&self) -> Result<View> {
        View::new(self.root()?, &self.0.principal)
    }

    /// Returns the [`Engine::root`] of the transaction: all of its contents, without regard to the principal.
    pub fn root(&self) -> Result<Arc<DatabaseRoot>> {
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

    /// Applies operations, all of them or none; each sees the effects of those before it. Only rows can be written: fails
    /// with [`Kind::Invalid`] for a change of a definition.
    ///
    /// Fails with [`Kind::TooLarge`] if an operation would exceed a limit; the transaction goes on without it.
    pub fn apply(&self, ops: Vec<Op>) -> Result<Vec<WrittenRows>> {
        self.change(|overlay| self.applied(overlay, ops))
    }

    /// Applies operations that follow from rows read in `view`, like [`OpenTransaction::apply`]. Fails with
    /// [`Kind::Conflict`] if another statement of this transaction has written since.
    pub fn apply_read(&self, view: &View, ops: Vec<Op>) -> Result<Vec<WrittenRows>> {
        self.change(|overlay| {
            if !view.is_of(overlay.root()) {
                return Err(concurrent_writes());
            }
            self.applied(overlay, ops)
        })
    }

    fn applied(&self, overlay: &Overlay, ops: Vec<Op>) -> Result<(Overlay, Vec<WrittenRows>)> {
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

    /// Marks a place to which the transaction can go back. A name may be used again; it then means the newer place.
    pub fn savepoint(&self, name: &str) -> Result<()> {
        let shared = self.0.engine.shared();
        let limits = &shared.options.transactions;
        self.change(|overlay| {
            let next = overlay.savepoint(name, limits)?;
            shared.check_room(next.held_bytes() - overlay.held_bytes())?;
            Ok((next, ()))
        })
    }

    /// Undoes the writes since a savepoint, which stays. Fails with [`Kind::NotFound`] if there is none of this name.
    pub fn rollback_to(&self, name: &str) -> Result<()> {
        self.change(|overlay| Ok((overlay.rolled_back_to(name)?, ())))
    }

    /// Removes a savepoint and those made after it; the writes stay.
    pub fn release(&self, name: &str) -> Result<()> {
        self.change(|overlay| Ok((overlay.released(name)?, ())))
    }

    /// Time for which it may still be open.
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

    /// Discards all writes. Does nothing once the transaction has ended.
    pub fn rollback(&self) {
        self.0.slot.end(&self.0.engine.shared().transactions, EndReason::RolledBack);
    }

    /// Commits, all at one lsn or not at all, and ends the transaction either way. `done` is called once, like that of
    /// [`Engine::submit`].
    ///
    /// [`Kind::Conflict`] names the table and the key (or the row) that another writer has written since the beginning. If
    /// nothing was written in the transaction, nothing is checked, logged or remembered.
    ///
    /// `remember` is an idempotency key as in [`crate::Transaction::remember`]; [`crate::RecordedRequest::outcome`] returns the
    /// outcome.
    pub fn submit_commit(
        &self,
        remember: Option<IdempotentRequest>,
        done: impl FnOnce(Result<TransactionOutcome>) + Send + 'static,
    ) {
        let engine = &self.0.engine;
        let registry = &engine.shared().transactions;
        let state = match self.state() {
            Ok(state) => state,
            Err(error) => return done(Err(error)),
        };
        let State::Open(overlay) = &*state else { return done(Err(self.ended(EndReason::Expired))) };
        if !self.0.slot.replace(registry, &state, State::Ended(EndReason::Committed)) {
            return done(Err(self.state().err().unwrap_or_else(concurrent_writes)));
        }
        let commit = match overlay.commit(&self.0.principal, remember) {
            Ok(Some(commit)) => commit,
            Ok(None) => {
                let committed = Committed { lsn: overlay.root().lsn(), ..Committed::default() };
                return done(Ok(TransactionOutcome { committed, final_rows: Vec::new() }));
            }
            Err(error) => return done(Err(error)),
        };
        let overlay::PreparedCommit { prepared, tables, own, first_rows } = commit;
        engine.submit_prepared(&tables, prepared, move |result| {
            done(result.map(|committed| {
                let firsts = first_rows.get().map(Vec::as_slice).unwrap_or_default();
                let final_rows_of = |(table, first): &(TableId, RowId)| {
                    let own = own.iter().find(|(of, _)| of == table)?.1.clone();
                    Some(FinalRows { table: *table, own, first: *first })
                };
                TransactionOutcome {
                    committed,
                    final_rows: firsts.iter().filter_map(final_rows_of).collect(),
                }
            }));
        });
    }

    /// Commits like [`OpenTransaction::submit_commit`], and waits for the answer.
    pub fn commit(&self) -> Result<TransactionOutcome> {
        let (sender, receiver) = mpsc::channel();
        self.submit_commit(None, move |result| {
            // The receiver is alive: it waits below.
            let _ = sender.send(result);
        });
        receiver.recv().unwrap_or_else(|_| Err(Error::new(Kind::Closed, "the database closed")))
    }

    /// Returns the state of an open transaction; fails once it has ended.
    fn state(&self) -> Result<Arc<State>> {
        let slot = &self.0.slot;
        if self.remaining().is_zero() {
            slot.end(&self.0.engine.shared().transactions, EndReason::Expired);
        }
        let state = slot.state.load_full();
        match &*state {
            State::Open(_) => Ok(state),
            State::Ended(end) => Err(self.ended(*end)),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&Overlay) -> Result<(Overlay, T)>) -> Result<T> {
        let state = self.state()?;
        let State::Open(overlay) = &*state else { return Err(self.ended(EndReason::Expired)) };
        let (next, value) = change(overlay)?;
        if self.0.slot.replace(&self.0.engine.shared().transactions, &state, State::Open(next)) {
            return Ok(value);
        }
        // The transaction ended meanwhile, and its error is returned; or another statement was faster.
        self.state()?;
        Err(concurrent_writes())
    }

    fn ended(&self, end: EndReason) -> Error {
        match end {
            EndReason::Committed | EndReason::RolledBack => Error::invalid("the transaction has ended"),
            EndReason::Expired => Error::new(
                Kind::Timeout,
                format!(
                    "the transaction was open for more than {} s and was rolled back",
                    self.0.slot.time_max.as_secs()
                ),
            )
            .hint("begin another one, and keep it short"),
            EndReason::Closed => Error::new(Kind::Closed, "the database is closed or closing"),
        }
    }
}

impl TransactionSlot {
    /// Replaces the state `known` by `next`. Returns false if the state has changed meanwhile.
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
    pub(crate) fn end(&self, registry: &Registry, end: EndReason) {
        loop {
            let known = self.state.load_full();
            if matches!(&*known, State::Ended(_)) {
                return;
            }
            if self.replace(registry, &known, State::Ended(end)) {
                if end == EndReason::Expired {
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
        self.slot.end(&self.engine.shared().transactions, EndReason::RolledBack);
    }
}

impl fmt::Debug for OpenTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTransaction").field("open", &self.is_open()).finish_non_exhaustive()
    }
}

fn concurrent_writes() -> Error {
    Error::conflict("two statements of one transaction wrote at once, and this one came second")
        .hint("run the statements of a transaction one after the other")
}
