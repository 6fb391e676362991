//! Statements one after the other that may stand between BEGIN and COMMIT.
//!
//! As in PostgreSQL, a statement that fails inside a transaction makes the transaction fail: every further one is refused
//! until ROLLBACK, or ROLLBACK TO a savepoint from before it. Two things differ. COMMIT of a failed transaction is an
//! error and not a quiet rollback, and ISOLATION LEVEL SERIALIZABLE is refused, since what there is is snapshot
//! isolation; the weaker levels get it too.

use datafusion::sql::sqlparser::ast::{
    Ident, Statement, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};
use engine::{OpenTransaction, Outcome};
use tokio::sync::oneshot;
use types::{Error, Kind, Lsn, Principal, Result, Value, name};

use crate::answer::{Answer, Done, DoneKind};
use crate::ddl::later;
use crate::options::Limits;
use crate::parse;
use crate::sql::Sql;

/// A longer text is no BEGIN or COMMIT.
const CONTROL_BYTES_MAX: usize = 1 << 10;

/// See the module. Dropping it rolls back what is open.
#[derive(Debug)]
pub struct Session {
    sql: Sql,
    principal: Principal,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    transaction: OpenTransaction,
    read_only: bool,
    /// A statement in it failed, or was cancelled.
    failed: bool,
}

impl Drop for Open {
    fn drop(&mut self) {
        // A statement that is being cancelled may hold it for a moment yet. Once it was committed this does nothing.
        self.transaction.rollback();
    }
}

/// What decides about a transaction.
#[derive(Debug, PartialEq, Eq)]
enum Control {
    Begin { read_only: bool },
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
}

impl Session {
    pub fn new(sql: Sql, principal: Principal) -> Self {
        Session { sql, principal, open: None }
    }

    /// Runs one statement: in the transaction that is open, else by itself. Dropping the future makes an open
    /// transaction fail, as an error does.
    pub async fn run(&mut self, text: &str, params: Vec<Value>, limits: Limits) -> Result<Answer> {
        if let Some(control) = control(text)? {
            if !params.is_empty() {
                return Err(crate::params::count_differs("statement", 0, params.len()));
            }
            return self.control(control).await.map(Answer::Done);
        }
        let Some(open) = &mut self.open else {
            return self.sql.run(&self.principal, text, params, limits).await;
        };
        if open.failed {
            return Err(failed());
        }
        // Unless the statement is seen to succeed.
        open.failed = true;
        let answer = match open.read_only {
            true => {
                let view = open.transaction.view()?;
                self.sql.read(view, text, params, limits).await.map(Answer::Rows)
            }
            false => self.sql.run_in(&open.transaction, text, params, limits).await,
        };
        open.failed = answer.is_err();
        answer
    }

    /// Notes that an answer broke off while its rows were read.
    pub fn fail(&mut self) {
        if let Some(open) = &mut self.open {
            open.failed = true;
        }
    }

    /// Whether a transaction is open, a failed one included.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    async fn control(&mut self, control: Control) -> Result<Done> {
        let done = |kind: DoneKind, lsn: Lsn| Done { kind, count: 0, lsn };
        match (control, &mut self.open) {
            (Control::Begin { .. }, Some(_)) => {
                Err(Error::invalid("a transaction is open already").hint("use SAVEPOINT for one within it"))
            }
            (Control::Begin { read_only }, None) => {
                let transaction = self.sql.begin(&self.principal)?;
                let lsn = transaction.lsn()?;
                self.open = Some(Open { transaction, read_only, failed: false });
                Ok(done(DoneKind::Begin, lsn))
            }
            (_, None) => Err(Error::invalid("no transaction is open").hint("BEGIN opens one")),
            (Control::Commit, Some(open)) if open.failed => {
                open.transaction.rollback();
                self.open = None;
                Err(Error::invalid("the transaction was rolled back: a statement in it had failed")
                    .hint("run it again from BEGIN"))
            }
            (Control::Commit, Some(_)) => {
                // It ends here, whether or not somebody waits for the answer.
                let Some(open) = self.open.take() else {
                    return Err(Error::internal("it was open just now"));
                };
                let outcome = commit(&open.transaction).await?;
                Ok(done(DoneKind::Commit, outcome.committed.lsn))
            }
            (Control::Rollback, Some(open)) => {
                // Of one that has ended by itself there is nothing left to undo.
                let lsn = open.transaction.lsn().unwrap_or(Lsn(0));
                open.transaction.rollback();
                self.open = None;
                Ok(done(DoneKind::Rollback, lsn))
            }
            (Control::RollbackTo(name), Some(open)) => {
                let result = open.transaction.rollback_to(&name);
                open.failed = result.is_err();
                result.and_then(|()| Ok(done(DoneKind::Rollback, open.transaction.lsn()?)))
            }
            (_, Some(open)) if open.failed => Err(failed()),
            (Control::Savepoint(name), Some(open)) => {
                let result = open.transaction.savepoint(&name);
                open.failed = result.is_err();
                result.and_then(|()| Ok(done(DoneKind::Savepoint, open.transaction.lsn()?)))
            }
            (Control::Release(name), Some(open)) => {
                let result = open.transaction.release(&name);
                open.failed = result.is_err();
                result.and_then(|()| Ok(done(DoneKind::Release, open.transaction.lsn()?)))
            }
        }
    }
}

/// [`OpenTransaction::submit_commit`] as a future of any runtime. Once it was polled the commit is on its way, and
/// dropping it does not take that back.
pub async fn commit(transaction: &OpenTransaction) -> Result<Outcome> {
    let (sender, receiver) = oneshot::channel();
    transaction.submit_commit(move |result| {
        // Nobody waits any more if the future was dropped.
        let _ = sender.send(result);
    });
    receiver.await.unwrap_or_else(|_| Err(Error::new(Kind::Closed, "the database closed")))
}

fn failed() -> Error {
    Error::invalid("a statement of this transaction has failed, and no other is run until it is rolled back")
        .hint("ROLLBACK, or ROLLBACK TO a savepoint")
}

/// The refusal of BEGIN, COMMIT and their like where statements are run one by one.
pub(crate) fn needs_session(statement: &Statement) -> Option<Error> {
    let what = match statement {
        Statement::StartTransaction { .. } => "BEGIN",
        Statement::Commit { .. } => "COMMIT",
        Statement::Rollback { .. } => "ROLLBACK",
        Statement::Savepoint { .. } => "SAVEPOINT",
        Statement::ReleaseSavepoint { .. } => "RELEASE",
        _ => return None,
    };
    Some(Error::invalid(format!("{what} needs a session: statements here are transactions of their own")).hint(
        "the library has `Database::session` for SQL and `Database::begin` for code; over HTTP, POST /v1/transactions takes several operations at once",
    ))
}

/// `None` for every other statement.
fn control(text: &str) -> Result<Option<Control>> {
    if text.len() > CONTROL_BYTES_MAX || !begins_as_control(text) {
        return Ok(None);
    }
    Ok(Some(match parse::statement(text, CONTROL_BYTES_MAX)? {
        Statement::StartTransaction { modes, statements, exception, modifier, .. } => {
            if !statements.is_empty() || exception.is_some() || modifier.is_some() {
                return Err(
                    later("a block of statements after BEGIN").hint("send the statements one at a time")
                );
            }
            let mut read_only = false;
            for mode in modes {
                match mode {
                    TransactionMode::AccessMode(mode) => read_only = mode == TransactionAccessMode::ReadOnly,
                    TransactionMode::IsolationLevel(TransactionIsolationLevel::Serializable) => {
                        return Err(later("ISOLATION LEVEL SERIALIZABLE")
                            .hint("transactions have snapshot isolation: REPEATABLE READ"));
                    }
                    TransactionMode::IsolationLevel(_) => {}
                }
            }
            Control::Begin { read_only }
        }
        Statement::Commit { chain: true, .. } | Statement::Rollback { chain: true, .. } => {
            return Err(later("AND CHAIN").hint("BEGIN anew"));
        }
        Statement::Commit { .. } => Control::Commit,
        Statement::Rollback { savepoint: None, .. } => Control::Rollback,
        Statement::Rollback { savepoint: Some(savepoint), .. } => Control::RollbackTo(folded(&savepoint)),
        Statement::Savepoint { name } => Control::Savepoint(folded(&name)),
        Statement::ReleaseSavepoint { name } => Control::Release(folded(&name)),
        _ => return Ok(None),
    }))
}

/// Whether the first word, behind comments, is one of those.
fn begins_as_control(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        let behind = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n').map(|(_, rest)| rest),
            (_, Some(comment)) => comment.split_once("*/").map(|(_, rest)| rest),
            _ => break,
        };
        let Some(behind) = behind else { return false };
        rest = behind.trim_start();
    }
    let word: String = rest.chars().take_while(char::is_ascii_alphabetic).take(10).collect();
    ["begin", "start", "commit", "end", "rollback", "savepoint", "release"]
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known))
}

fn folded(ident: &Ident) -> String {
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
        let begin = |read_only| Some(Control::Begin { read_only });
        for (text, expected) in [
            ("BEGIN", begin(false)),
            (" begin transaction;", begin(false)),
            ("-- why\n/* so */ START TRANSACTION READ ONLY", begin(true)),
            ("BEGIN ISOLATION LEVEL REPEATABLE READ, READ WRITE", begin(false)),
            ("START TRANSACTION ISOLATION LEVEL READ COMMITTED", begin(false)),
            ("COMMIT", Some(Control::Commit)),
            ("END", Some(Control::Commit)),
            ("ROLLBACK WORK", Some(Control::Rollback)),
            ("SAVEPOINT A1", Some(Control::Savepoint("a1".into()))),
            ("rollback to savepoint \"A1\"", Some(Control::RollbackTo("A1".into()))),
            ("ROLLBACK TO a1", Some(Control::RollbackTo("a1".into()))),
            ("RELEASE SAVEPOINT a1", Some(Control::Release("a1".into()))),
            ("RELEASE a1", Some(Control::Release("a1".into()))),
            ("SELECT 1", None),
            ("SELECT 'BEGIN'", None),
            ("-- COMMIT", None),
            ("", None),
        ] {
            assert_eq!(control(text).unwrap(), expected, "{text}");
        }
        for text in
            ["BEGIN ISOLATION LEVEL SERIALIZABLE", "COMMIT AND CHAIN", "BEGIN nonsense", "COMMIT; SELECT 1"]
        {
            assert_eq!(control(text).unwrap_err().kind(), Kind::Invalid, "{text}");
        }
    }
}
