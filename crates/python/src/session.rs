//! Statements of one connection, one after the other, with the transaction that DB-API 2.0 begins by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::RecordBatch;
use parking_lot::{Mutex, MutexGuard};
use polynya::{Database, DoneKind, Error, Reply, Rows, Value};
use pyo3::prelude::*;

use crate::error::{OrRaise, database, interface};
use crate::opened::Lease;
use crate::text::{first_word, numbered};
use crate::wait;

/// What a statement came to.
pub enum Outcome {
    /// With the number of the transaction that it stands in.
    Rows(Rows, Option<u64>),
    /// Rows that it changed, if it is one that changes rows.
    Done(Option<u64>),
}

/// A connection without its Python. All that waits is called in threads that are detached.
pub struct Session {
    lease: Mutex<Option<Arc<Lease>>>,
    state: Mutex<State>,
    autocommit: AtomicBool,
    /// The newest transaction of which rows broke off.
    broken: AtomicU64,
}

struct State {
    /// `None`: closed.
    session: Option<polynya::Session>,
    /// Transactions are counted from 1; this is the one that is open, or was last.
    transaction: u64,
    /// Whether it has changed something.
    written: bool,
}

/// Statements that no transaction is begun for.
const APART: [&str; 9] =
    ["create", "alter", "drop", "copy", "show", "describe", "explain", "prepare", "deallocate"];
/// Those of them that run outside of transactions alone.
const OUTSIDE: [&str; 4] = ["create", "alter", "drop", "copy"];
/// What begins and ends transactions.
const CONTROL: [&str; 7] = ["begin", "start", "commit", "end", "rollback", "savepoint", "release"];

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

    /// The open database, which stays open as long as what is returned.
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
    pub fn run(&self, text: &str, params: &[Value]) -> PyResult<Outcome> {
        let lease = self.lease()?;
        self.state()?.run(lease.database(), self.autocommit(), text, params)
    }

    /// Runs one statement with each of several lists of values; if no transaction is open and none is begun by itself, in one
    /// of its own. Gives how many rows were changed.
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
                    Outcome::Done(changed) => count += changed.unwrap_or_default(),
                    Outcome::Rows(..) => {
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

    /// Inserts rows that are Arrow already, in the transaction if there is one.
    pub fn insert(&self, table: &str, batch: RecordBatch, upsert: bool) -> PyResult<polynya::Result<u64>> {
        self.lease()?;
        let mut state = self.state()?;
        state.begin_for("insert", self.autocommit())?;
        let session = state.session.as_mut().ok_or_else(closed)?;
        let count = if upsert { session.upsert(table, batch) } else { session.insert(table, batch) };
        state.written |= state.is_open();
        Ok(count)
    }

    /// Whether a transaction is open, a failed one included.
    pub fn is_open(&self) -> PyResult<bool> {
        Ok(self.state()?.is_open())
    }

    /// Ends the transaction, if one is open. No signal ends the wait: whether it happened would not be known.
    pub fn commit(&self) -> PyResult<()> {
        self.lease()?;
        self.state()?.end("COMMIT")
    }

    pub fn rollback(&self) -> PyResult<()> {
        self.lease()?;
        self.state()?.end("ROLLBACK")
    }

    /// Rolls back what is open and lets go of the database.
    pub fn close(&self) -> PyResult<()> {
        let Some(lease) = self.lease.lock().take() else { return Ok(()) };
        if lease.check_process().is_err() {
            // What would have to be waited for runs in another process.
            std::mem::forget((lease, self.state.try_lock().and_then(|mut state| state.session.take())));
            return Ok(());
        }
        let session = self.state()?.session.take();
        drop(session);
        match Arc::into_inner(lease) {
            Some(lease) => lease.end(),
            // A statement or a snapshot has it still.
            None => Ok(()),
        }
    }

    /// Rows of a statement of a transaction broke off. What is decided by them may be wrong, so it fails. Waits for nobody,
    /// since it is called from wherever rows are read.
    pub fn broke_off(&self, transaction: u64) {
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
        // Closing may take a moment, in which others want the interpreter. Nobody is left to hear of an error, and what was
        // committed is durable.
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

    fn run(&mut self, db: &Database, autocommit: bool, text: &str, params: &[Value]) -> PyResult<Outcome> {
        let text = match params {
            [] => text.into(),
            _ => numbered(text).or_raise()?,
        };
        let word = first_word(&text);
        let begun = self.begin_for(&word, autocommit)?;
        if word == "copy" {
            let answer = wait::wait(db.sql_async(&text, params))?.or_raise()?;
            return Ok(Outcome::Done(Some(answer.count)));
        }
        if matches!(word.as_str(), "commit" | "end") {
            // Without a look at signals.
            return self.control(&text).map(|()| Outcome::Done(None));
        }
        let was_open = self.is_open();
        let session = self.session.as_mut().ok_or_else(closed)?;
        let reply = wait::wait(session.query(&text, params)).and_then(|reply| reply.map_err(database));
        if begun && reply.is_err() {
            // It had nothing but this statement.
            self.end("ROLLBACK")?;
        }
        if !was_open && self.is_open() {
            (self.transaction, self.written) = (self.transaction + 1, false);
        }
        Ok(match reply? {
            Reply::Rows(rows) => {
                self.written |= rows.is_returned();
                Outcome::Rows(rows, self.is_open().then_some(self.transaction))
            }
            Reply::Done(done) => {
                use DoneKind::{Delete, Insert, Truncate, Update};
                let changes = matches!(done.kind, Insert | Update | Delete | Truncate);
                self.written |= changes;
                Outcome::Done(changes.then_some(done.count))
            }
        })
    }

    /// Begins the transaction that a statement stands in, if it needs one. Says whether it did.
    fn begin_for(&mut self, word: &str, autocommit: bool) -> PyResult<bool> {
        if self.session.is_none() {
            return Err(closed());
        }
        if OUTSIDE.contains(&word) {
            self.end_reading(&word.to_uppercase())?;
            return Ok(false);
        }
        if autocommit || self.is_open() || word.is_empty() || APART.contains(&word) || CONTROL.contains(&word)
        {
            return Ok(false);
        }
        self.control("BEGIN").map(|()| true)
    }

    /// Ends a transaction that has only read, for something that stands in none.
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

    /// BEGIN, COMMIT or ROLLBACK.
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
