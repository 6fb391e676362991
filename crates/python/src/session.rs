//! The session of one connection: runs its statements in turn, and begins transactions implicitly as DB-API 2.0 requires.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::RecordBatch;
use parking_lot::{Mutex, MutexGuard};
use polynya::{AnswerRows, CompletionKind, Database, Error, Reply, Value};
use pyo3::prelude::*;

use crate::error::{OrRaise, database, interface};
use crate::open_databases::Lease;
use crate::text::{first_word, numbered};
use crate::wait;

/// The result of a statement.
pub enum StatementResult {
    /// Rows, with the number of their transaction.
    Rows(AnswerRows, Option<u64>),
    /// The number of changed rows, for a statement that changes rows.
    Done(Option<u64>),
}

/// The part of a connection without Python objects. Methods that wait must be called detached.
pub struct Session {
    lease: Mutex<Option<Arc<Lease>>>,
    state: Mutex<State>,
    autocommit: AtomicBool,
    /// The newest transaction in which reading rows failed.
    broken: AtomicU64,
}

struct State {
    /// The session; `None` after closing.
    session: Option<polynya::Session>,
    /// The number of the open transaction, or of the last one; counted from 1.
    transaction: u64,
    /// True if the transaction has written.
    written: bool,
}

/// Statements for which no transaction is begun.
const WITHOUT_TRANSACTION: [&str; 9] =
    ["create", "alter", "drop", "copy", "show", "describe", "explain", "prepare", "deallocate"];
/// The statements among them that must run outside transactions.
const OUTSIDE_TRANSACTIONS: [&str; 4] = ["create", "alter", "drop", "copy"];
/// Statements that control transactions.
const TRANSACTION_CONTROL: [&str; 7] =
    ["begin", "start", "commit", "end", "rollback", "savepoint", "release"];

impl Session {
    pub fn new(lease: Lease, autocommit: bool) -> PyResult<Session> {
        let session = lease.database().session().or_raise()?;
        Ok(Session {
            lease: Mutex::new(Some(Arc::new(lease))),
            state: Mutex::new(State { session: Some(session), transaction: 0, written: false }),
            autocommit: AtomicBool::new(autocommit),
            broken: AtomicU64::new(0),
        })
    }

    /// Returns the open database, which stays open as long as the result.
    pub fn lease(&self) -> PyResult<Arc<Lease>> {
        let lease = self.lease.lock().clone().ok_or_else(closed)?;
        lease.check_process()?;
        Ok(lease)
    }

    pub fn is_closed(&self) -> bool {
        self.lease.lock().is_none()
    }

    pub fn autocommit(&self) -> bool {
        self.autocommit.load(Ordering::Relaxed)
    }

    pub fn set_autocommit(&self, autocommit: bool) -> PyResult<()> {
        self.lease()?;
        if autocommit {
            self.state()?.end_reading("autocommit = True")?;
        }
        self.autocommit.store(autocommit, Ordering::Relaxed);
        Ok(())
    }

    /// Runs one statement.
    pub fn run(&self, text: &str, params: &[Value]) -> PyResult<StatementResult> {
        let lease = self.lease()?;
        self.state()?.run(lease.database(), self.autocommit(), text, params)
    }

    /// Runs one statement with each of several lists of values. If no transaction is open or begun implicitly, they run in one
    /// transaction of their own. Returns the number of changed rows.
    pub fn run_many(
        &self,
        text: &str,
        mut lists: impl Iterator<Item = PyResult<Vec<Vec<Value>>>>,
    ) -> PyResult<u64> {
        let lease = self.lease()?;
        let own = self.autocommit() && !self.is_open()?;
        if own {
            self.state()?.control("BEGIN")?;
        }
        let mut count = 0;
        let result = lists.try_for_each(|lists| {
            let lists = lists?;
            let mut state = self.state()?;
            for params in lists {
                match state.run(lease.database(), self.autocommit(), text, &params)? {
                    StatementResult::Done(changed) => count += changed.unwrap_or_default(),
                    StatementResult::Rows(..) => {
                        let error = "executemany is for statements that give no rows";
                        return Err(interface(error, "run `execute` for each"));
                    }
                }
            }
            Ok(())
        });
        match (result, own) {
            (Ok(()), true) => self.commit()?,
            (Err(error), true) => return self.rollback().and(Err(error)),
            (result, false) => result?,
        }
        Ok(count)
    }

    /// Inserts Arrow rows, in the open transaction if there is one.
    pub fn insert(&self, table: &str, batch: RecordBatch, upsert: bool) -> PyResult<polynya::Result<u64>> {
        self.lease()?;
        let mut state = self.state()?;
        state.begin_for("insert", self.autocommit())?;
        let session = state.session.as_mut().ok_or_else(closed)?;
        let count = if upsert { session.upsert(table, batch) } else { session.insert(table, batch) };
        state.written |= state.is_open();
        Ok(count)
    }

    /// Returns true while a transaction is open, even a failed one.
    pub fn is_open(&self) -> PyResult<bool> {
        Ok(self.state()?.is_open())
    }

    /// Commits the open transaction. Signals do not end the wait, since then the result would be unknown.
    pub fn commit(&self) -> PyResult<()> {
        self.lease()?;
        self.state()?.end("COMMIT")
    }

    pub fn rollback(&self) -> PyResult<()> {
        self.lease()?;
        self.state()?.end("ROLLBACK")
    }

    /// Rolls back the open transaction and releases the database.
    pub fn close(&self) -> PyResult<()> {
        let Some(lease) = self.lease.lock().take() else { return Ok(()) };
        if lease.check_process().is_err() {
            // In a forked process the threads to wait for do not exist.
            std::mem::forget((lease, self.state.try_lock().and_then(|mut state| state.session.take())));
            return Ok(());
        }
        let session = self.state()?.session.take();
        drop(session);
        match Arc::into_inner(lease) {
            Some(lease) => lease.release(),
            // A statement or a snapshot still uses it.
            None => Ok(()),
        }
    }

    /// Marks a transaction as failed because reading its rows failed: decisions based on them may be wrong. Never waits, since
    /// any thread that reads rows may call it.
    pub fn mark_failed(&self, transaction: u64) {
        self.broken.fetch_max(transaction, Ordering::AcqRel);
    }

    fn state(&self) -> PyResult<MutexGuard<'_, State>> {
        let mut state = wait::lock(&self.state)?;
        if state.is_open() && self.broken.load(Ordering::Acquire) >= state.transaction {
            state.fail();
        }
        Ok(state)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Closing may take a moment in which other threads need the interpreter. No caller is left to receive an error, and
        // committed data are durable.
        let _ = wait::detached(|| self.close());
    }
}

impl State {
    fn is_open(&self) -> bool {
        self.session.as_ref().is_some_and(polynya::Session::is_open)
    }

    fn fail(&mut self) {
        if let Some(session) = &mut self.session {
            session.fail();
        }
    }

    fn run(
        &mut self,
        db: &Database,
        autocommit: bool,
        text: &str,
        params: &[Value],
    ) -> PyResult<StatementResult> {
        let text = match params {
            [] => text.into(),
            _ => numbered(text).or_raise()?,
        };
        let word = first_word(&text);
        let begun = self.begin_for(&word, autocommit)?;
        if word == "copy" {
            let answer = wait::wait(db.sql_async(&text, params))?.or_raise()?;
            return Ok(StatementResult::Done(Some(answer.count)));
        }
        if matches!(word.as_str(), "commit" | "end") {
            // COMMIT does not check for signals.
            return self.control(&text).map(|()| StatementResult::Done(None));
        }
        let was_open = self.is_open();
        let session = self.session.as_mut().ok_or_else(closed)?;
        let reply = wait::wait(session.query(&text, params)).and_then(|reply| reply.map_err(database));
        if begun && reply.is_err() {
            // The transaction contained only this statement.
            self.end("ROLLBACK")?;
        }
        if !was_open && self.is_open() {
            (self.transaction, self.written) = (self.transaction + 1, false);
        }
        Ok(match reply? {
            Reply::Rows(rows) => {
                self.written |= rows.is_returned();
                StatementResult::Rows(rows, self.is_open().then_some(self.transaction))
            }
            Reply::Done(done) => {
                use CompletionKind::{Delete, Insert, Truncate, Update};
                let changes = matches!(done.kind, Insert | Update | Delete | Truncate);
                self.written |= changes;
                StatementResult::Done(changes.then_some(done.count))
            }
        })
    }

    /// Begins a transaction for a statement that needs one. Returns true if it did.
    fn begin_for(&mut self, word: &str, autocommit: bool) -> PyResult<bool> {
        if self.session.is_none() {
            return Err(closed());
        }
        if OUTSIDE_TRANSACTIONS.contains(&word) {
            self.end_reading(&word.to_uppercase())?;
            return Ok(false);
        }
        if autocommit
            || self.is_open()
            || word.is_empty()
            || WITHOUT_TRANSACTION.contains(&word)
            || TRANSACTION_CONTROL.contains(&word)
        {
            return Ok(false);
        }
        self.control("BEGIN").map(|()| true)
    }

    /// Ends a transaction that has only read, before a statement that runs outside transactions. Fails if it has written.
    fn end_reading(&mut self, what: &str) -> PyResult<()> {
        if self.written && self.is_open() {
            let error = Error::invalid(format!(
                "{what} runs outside of transactions, and one is open that has written"
            ));
            return Err(database(error.hint("commit or roll back before it")));
        }
        self.end("ROLLBACK")
    }

    fn end(&mut self, text: &str) -> PyResult<()> {
        if !self.is_open() {
            return Ok(());
        }
        self.control(text)
    }

    /// Runs BEGIN, COMMIT or ROLLBACK.
    fn control(&mut self, text: &str) -> PyResult<()> {
        let session = self.session.as_mut().ok_or_else(closed)?;
        session.sql(text, &[]).or_raise()?;
        if session.is_open() {
            (self.transaction, self.written) = (self.transaction + 1, false);
        }
        Ok(())
    }
}

pub fn closed() -> PyErr {
    interface("the connection is closed", "`polynya.connect` opens another one")
}
