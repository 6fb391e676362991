//! Sessions: statements in sequence, which may form a transaction between BEGIN and COMMIT, and [prepared
//! statements](named_statements) by name.
//!
//! As in PostgreSQL, a statement that fails inside a transaction makes the transaction fail: every further one is refused until
//! ROLLBACK, or ROLLBACK TO an earlier savepoint. There are two differences. COMMIT of a failed transaction is an error instead
//! of a silent rollback, and ISOLATION LEVEL SERIALIZABLE is refused, since the engine has snapshot isolation; the weaker levels
//! get snapshot isolation too.

mod named_statements;

use datafusion::sql::sqlparser::ast::{
    Ident, Statement, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};
use engine::{IdempotentRequest, Op, OpenTransaction, TransactionOutcome, WrittenRows};
use sql::not_yet;
use sql::parse;
use tokio::sync::oneshot;
use types::{Error, Kind, Lsn, Principal, Result, Value, name};

use crate::answer::{Answer, Completion, CompletionKind};
use crate::options::Limits;
use crate::statements::Sql;

use named_statements::{NamedStatements, PreparedCommand};

/// Letters of `deallocate`, the longest control word.
const WORD_MAX: usize = 11;
/// Bytes of the longest BEGIN, COMMIT or other control statement.
const CONTROL_BYTES_MAX: usize = 1 << 10;

/// A session; see the module. Dropping it rolls back an open transaction.
#[derive(Debug)]
pub struct Session {
    sql: Sql,
    principal: Principal,
    open: Option<SessionTransaction>,
    statements: NamedStatements,
}

#[derive(Debug)]
struct SessionTransaction {
    transaction: OpenTransaction,
    read_only: bool,
    /// True after a statement in it failed or was cancelled.
    failed: bool,
}

impl SessionTransaction {
    async fn run(&self, sql: &Sql, text: &str, params: Vec<Value>, limits: Limits) -> Result<Answer> {
        if !self.read_only {
            return sql.run_in(&self.transaction, text, params, limits).await;
        }
        let view = self.transaction.view()?;
        sql.read(view, text, params, limits).await.map(Answer::Rows)
    }
}

impl Drop for SessionTransaction {
    fn drop(&mut self) {
        // A statement that is being cancelled may still hold the transaction. After a commit this call does nothing.
        self.transaction.rollback();
    }
}

/// A statement that controls a transaction.
#[derive(Debug, PartialEq, Eq)]
enum TransactionControl {
    Begin { read_only: bool },
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
}

impl Session {
    pub fn new(sql: Sql, principal: Principal) -> Self {
        Session { sql, principal, open: None, statements: NamedStatements::default() }
    }

    /// Runs one statement: in the open transaction, or else in its own. Dropping the future makes an open transaction fail, like
    /// an error.
    pub async fn run(&mut self, text: &str, params: Vec<Value>, limits: Limits) -> Result<Answer> {
        if named_statements::is_word(&first_word(text)) {
            return self.run_prepared_command(text, params, limits).await;
        }
        if let Some(control) = parse_control(text)? {
            if !params.is_empty() {
                return Err(dialect::values::params::count_differs("statement", 0, params.len()));
            }
            return self.run_control(control).await.map(Answer::Done);
        }
        let Some(open) = &mut self.open else {
            return self.sql.run(&self.principal, text, params, limits).await;
        };
        if open.failed {
            return Err(transaction_failed());
        }
        // Reset below if the statement succeeds.
        open.failed = true;
        let answer = open.run(&self.sql, text, params, limits).await;
        open.failed = answer.is_err();
        answer
    }

    /// Applies operations that are not SQL, as one statement of the open transaction. Returns `None`, and does nothing, if no
    /// transaction is open.
    pub fn apply(&mut self, ops: Vec<Op>) -> Result<Option<Vec<WrittenRows>>> {
        let Some(open) = &mut self.open else { return Ok(None) };
        if open.failed {
            return Err(transaction_failed());
        }
        let written = if open.read_only {
            Err(Error::new(Kind::Forbidden, "the transaction is READ ONLY").hint("BEGIN one that writes"))
        } else {
            open.transaction.apply(ops)
        };
        open.failed = written.is_err();
        written.map(Some)
    }

    /// Runs PREPARE, EXECUTE or DEALLOCATE. Inside a transaction, their errors make it fail.
    async fn run_prepared_command(
        &mut self,
        text: &str,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<Answer> {
        if let Some(open) = &mut self.open {
            if open.failed {
                return Err(transaction_failed());
            }
            open.failed = true;
        }
        let answer = self.dispatch_prepared_command(text, params, limits).await;
        if let Some(open) = &mut self.open {
            open.failed = answer.is_err();
        }
        answer
    }

    async fn dispatch_prepared_command(
        &mut self,
        text: &str,
        params: Vec<Value>,
        limits: Limits,
    ) -> Result<Answer> {
        let command = named_statements::parse_command(&self.sql, text).await?;
        let no_params = || {
            if params.is_empty() {
                Ok(())
            } else {
                Err(dialect::values::params::count_differs("statement", 0, params.len()))
            }
        };
        let done = |kind| Ok(Answer::Done(Completion { kind, count: 0, lsn: self.lsn()? }));
        match command {
            PreparedCommand::Prepare { name, text, types } => {
                no_params()?;
                self.statements.check_free(&name)?;
                let done = done(CompletionKind::Prepare)?;
                let prepared = self.sql.prepare(&self.principal, &text).await?;
                self.statements.insert(name, prepared, types);
                Ok(done)
            }
            PreparedCommand::Execute { name, values } => {
                let named = self.statements.get(&name)?;
                let values = named.values(&self.sql, &self.principal, values, params).await?;
                match &self.open {
                    None => named.prepared.run(&values, limits).await,
                    Some(open) => {
                        let values = named.prepared.values(&values, &open.transaction.view()?).await?;
                        open.run(&self.sql, named.prepared.text(), values, limits).await
                    }
                }
            }
            PreparedCommand::Deallocate(name) => {
                no_params()?;
                let done = done(CompletionKind::Deallocate)?;
                self.statements.remove(name.as_deref())?;
                Ok(done)
            }
        }
    }

    /// Returns the lsn at which the session reads.
    fn lsn(&self) -> Result<Lsn> {
        match &self.open {
            Some(open) => open.transaction.lsn(),
            None => Ok(self.sql.view(&self.principal)?.lsn()),
        }
    }

    /// Records that an answer broke off while its rows were read: an open transaction fails.
    pub fn fail(&mut self) {
        if let Some(open) = &mut self.open {
            open.failed = true;
        }
    }

    /// Returns true if a transaction is open, even a failed one.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    async fn run_control(&mut self, control: TransactionControl) -> Result<Completion> {
        let done = |kind: CompletionKind, lsn: Lsn| Completion { kind, count: 0, lsn };
        match (control, &mut self.open) {
            (TransactionControl::Begin { .. }, Some(_)) => {
                Err(Error::invalid("a transaction is open already").hint("use SAVEPOINT for one within it"))
            }
            (TransactionControl::Begin { read_only }, None) => {
                let transaction = self.sql.begin(&self.principal)?;
                let lsn = transaction.lsn()?;
                self.open = Some(SessionTransaction { transaction, read_only, failed: false });
                Ok(done(CompletionKind::Begin, lsn))
            }
            (_, None) => Err(Error::invalid("no transaction is open").hint("BEGIN opens one")),
            (TransactionControl::Commit, Some(open)) if open.failed => {
                open.transaction.rollback();
                self.open = None;
                Err(Error::invalid("the transaction was rolled back: a statement in it had failed")
                    .hint("run it again from BEGIN"))
            }
            (TransactionControl::Commit, Some(_)) => {
                // The transaction ends here, even if the caller no longer waits.
                let Some(open) = self.open.take() else {
                    return Err(Error::internal("it was open just now"));
                };
                let outcome = commit(&open.transaction, None).await?;
                Ok(done(CompletionKind::Commit, outcome.committed.lsn))
            }
            (TransactionControl::Rollback, Some(open)) => {
                // A transaction that has ended by itself has nothing left to undo.
                let lsn = open.transaction.lsn().unwrap_or(Lsn(0));
                open.transaction.rollback();
                self.open = None;
                Ok(done(CompletionKind::Rollback, lsn))
            }
            (TransactionControl::RollbackTo(name), Some(open)) => {
                let result = open.transaction.rollback_to(&name);
                open.failed = result.is_err();
                result.and_then(|()| Ok(done(CompletionKind::Rollback, open.transaction.lsn()?)))
            }
            (_, Some(open)) if open.failed => Err(transaction_failed()),
            (TransactionControl::Savepoint(name), Some(open)) => {
                let result = open.transaction.savepoint(&name);
                open.failed = result.is_err();
                result.and_then(|()| Ok(done(CompletionKind::Savepoint, open.transaction.lsn()?)))
            }
            (TransactionControl::Release(name), Some(open)) => {
                let result = open.transaction.release(&name);
                open.failed = result.is_err();
                result.and_then(|()| Ok(done(CompletionKind::Release, open.transaction.lsn()?)))
            }
        }
    }
}

/// Wraps [`OpenTransaction::submit_commit`] in a future for any runtime. Once it was polled the commit was handed to the engine,
/// and dropping the future does not undo it.
pub async fn commit(
    transaction: &OpenTransaction,
    remember: Option<IdempotentRequest>,
) -> Result<TransactionOutcome> {
    let (sender, receiver) = oneshot::channel();
    transaction.submit_commit(remember, move |result| {
        // The receiver is gone if the future was dropped.
        let _ = sender.send(result);
    });
    receiver.await.unwrap_or_else(|_| Err(Error::new(Kind::Closed, "the database closed")))
}

fn transaction_failed() -> Error {
    Error::invalid("a statement of this transaction has failed, and no other is run until it is rolled back")
        .hint("ROLLBACK, or ROLLBACK TO a savepoint")
}

/// Returns the error for BEGIN, COMMIT, PREPARE and the like, if they are run without a session.
pub(crate) fn needs_session(statement: &Statement) -> Option<Error> {
    let what = match statement {
        Statement::StartTransaction { .. } => "BEGIN",
        Statement::Commit { .. } => "COMMIT",
        Statement::Rollback { .. } => "ROLLBACK",
        Statement::Savepoint { .. } => "SAVEPOINT",
        Statement::ReleaseSavepoint { .. } => "RELEASE",
        Statement::Prepare { .. } | Statement::Execute { .. } | Statement::Deallocate { .. } => {
            let what =
                "PREPARE, EXECUTE and DEALLOCATE need a session, which the library has: `Database::session`";
            return Some(Error::invalid(what).hint(
                "send the statement with `$1`, `$2`, … and its values as `params`: a text that is sent again is not planned again",
            ));
        }
        _ => return None,
    };
    Some(Error::invalid(format!("{what} needs a session: here every statement is its own transaction")).hint(
        "the library has `Database::session` for SQL and `Database::begin` for code; over HTTP, POST /v1/transactions takes several operations at once",
    ))
}

/// Parses a transaction control statement; returns `None` for every other statement.
fn parse_control(text: &str) -> Result<Option<TransactionControl>> {
    if text.len() > CONTROL_BYTES_MAX || !begins_as_control(text) {
        return Ok(None);
    }
    Ok(Some(match parse::statement(text, CONTROL_BYTES_MAX)? {
        Statement::StartTransaction { modes, statements, exception, modifier, .. } => {
            if !statements.is_empty() || exception.is_some() || modifier.is_some() {
                return Err(
                    not_yet("a block of statements after BEGIN").hint("send the statements one at a time")
                );
            }
            let mut read_only = false;
            for mode in modes {
                match mode {
                    TransactionMode::AccessMode(mode) => read_only = mode == TransactionAccessMode::ReadOnly,
                    TransactionMode::IsolationLevel(TransactionIsolationLevel::Serializable) => {
                        return Err(not_yet("ISOLATION LEVEL SERIALIZABLE")
                            .hint("transactions have snapshot isolation: REPEATABLE READ"));
                    }
                    TransactionMode::IsolationLevel(_) => {}
                }
            }
            TransactionControl::Begin { read_only }
        }
        Statement::Commit { chain: true, .. } | Statement::Rollback { chain: true, .. } => {
            return Err(not_yet("AND CHAIN").hint("start the next transaction with BEGIN"));
        }
        Statement::Commit { .. } => TransactionControl::Commit,
        Statement::Rollback { savepoint: None, .. } => TransactionControl::Rollback,
        Statement::Rollback { savepoint: Some(savepoint), .. } => {
            TransactionControl::RollbackTo(fold_case(&savepoint))
        }
        Statement::Savepoint { name } => TransactionControl::Savepoint(fold_case(&name)),
        Statement::ReleaseSavepoint { name } => TransactionControl::Release(fold_case(&name)),
        _ => return Ok(None),
    }))
}

/// Returns true if the first word begins a transaction control statement.
fn begins_as_control(text: &str) -> bool {
    let word = first_word(text);
    ["begin", "start", "commit", "end", "rollback", "savepoint", "release"]
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known))
}

/// Returns the first word after comments, cut to [`WORD_MAX`] letters; empty if there is none.
pub(crate) fn first_word(text: &str) -> String {
    let mut rest = text.trim_start();
    loop {
        let behind = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n').map(|(_, rest)| rest),
            (_, Some(comment)) => comment.split_once("*/").map(|(_, rest)| rest),
            _ => break,
        };
        let Some(behind) = behind else { return String::new() };
        rest = behind.trim_start();
    }
    rest.chars().take_while(char::is_ascii_alphabetic).take(WORD_MAX).collect()
}

fn fold_case(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => name::printable(&ident.value.to_lowercase()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_about_a_transaction_is_told_from_what_stands_in_it() {
        let begin = |read_only| Some(TransactionControl::Begin { read_only });
        for (text, expected) in [
            ("BEGIN", begin(false)),
            (" begin transaction;", begin(false)),
            ("-- why\n/* so */ START TRANSACTION READ ONLY", begin(true)),
            ("BEGIN ISOLATION LEVEL REPEATABLE READ, READ WRITE", begin(false)),
            ("START TRANSACTION ISOLATION LEVEL READ COMMITTED", begin(false)),
            ("COMMIT", Some(TransactionControl::Commit)),
            ("END", Some(TransactionControl::Commit)),
            ("ROLLBACK WORK", Some(TransactionControl::Rollback)),
            ("SAVEPOINT A1", Some(TransactionControl::Savepoint("a1".into()))),
            ("rollback to savepoint \"A1\"", Some(TransactionControl::RollbackTo("A1".into()))),
            ("ROLLBACK TO a1", Some(TransactionControl::RollbackTo("a1".into()))),
            ("RELEASE SAVEPOINT a1", Some(TransactionControl::Release("a1".into()))),
            ("RELEASE a1", Some(TransactionControl::Release("a1".into()))),
            ("SELECT 1", None),
            ("SELECT 'BEGIN'", None),
            ("-- COMMIT", None),
            ("", None),
        ] {
            assert_eq!(parse_control(text).unwrap(), expected, "{text}");
        }
        for text in
            ["BEGIN ISOLATION LEVEL SERIALIZABLE", "COMMIT AND CHAIN", "BEGIN nonsense", "COMMIT; SELECT 1"]
        {
            assert_eq!(parse_control(text).unwrap_err().kind(), Kind::Invalid, "{text}");
        }
    }
}
