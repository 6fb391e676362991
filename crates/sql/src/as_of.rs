//! AS OF: reads tables of a statement as they were at an earlier commit.
//!
//! The parser knows `FROM t AS OF …` as `FROM t FOR SYSTEM_TIME AS OF …`. [`resolve`] replaces each such point by the lsn that it
//! means, before any other step looks at the statement; equal points get the same lsn. Names are then bound to the table at that
//! lsn.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Statement, TableFactor, TableVersion,
    Value as SqlValue, VisitMut, VisitorMut,
};
use types::{Error, Lsn, Result};

use crate::names::Ctes;

/// Name of the function call into which the parser's input turns `LSN n`.
pub const LSN: &str = "lsn";

/// The point of an AS OF clause as it is written: an lsn, or a time.
#[derive(Clone, Debug, PartialEq)]
pub enum AsOfPoint {
    Lsn(Expr),
    Time(Expr),
}

impl AsOfPoint {
    fn of(version: &TableVersion) -> Result<AsOfPoint> {
        match version {
            TableVersion::VersionAsOf(expr) => Ok(AsOfPoint::Lsn(expr.clone())),
            TableVersion::ForSystemTimeAsOf(expr) | TableVersion::TimestampAsOf(expr) => {
                Ok(lsn_argument(expr).map_or_else(|| AsOfPoint::Time(expr.clone()), AsOfPoint::Lsn))
            }
            TableVersion::Function(_) => Err(Error::invalid("a table is read as it was by AS OF").hint(
                "`FROM t AS OF LSN 123`, `AS OF TIMESTAMP '2026-01-01 12:00:00'`, `AS OF now() - interval '5 minutes'`",
            )),
        }
    }
}

fn lsn_argument(expr: &Expr) -> Option<Expr> {
    // `AS OF LSN 1 + 1`: the whole expression is returned, so that it is refused as an lsn.
    if let Expr::BinaryOp { left, .. } = expr {
        return lsn_argument(left).map(|_| expr.clone());
    }
    let Expr::Function(function) = expr else { return None };
    if !function.name.to_string().eq_ignore_ascii_case(LSN) {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))] => Some(expr.clone()),
        _ => None,
    }
}

/// Replaces the points of all AS OF clauses of a statement by lsns, which `meant` computes. Returns true if there is any AS OF
/// clause.
pub fn resolve(statement: &mut Statement, meant: &mut dyn FnMut(&AsOfPoint) -> Result<Lsn>) -> Result<bool> {
    let mut resolve = ResolvePoints { meant, known: Vec::new() };
    match statement.visit(&mut resolve) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(!resolve.known.is_empty()),
    }
}

struct ResolvePoints<'a> {
    meant: &'a mut dyn FnMut(&AsOfPoint) -> Result<Lsn>,
    known: Vec<(AsOfPoint, Lsn)>,
}

impl ResolvePoints<'_> {
    fn resolve(&mut self, version: &TableVersion) -> Result<Lsn> {
        let point = AsOfPoint::of(version)?;
        if let Some((_, lsn)) = self.known.iter().find(|(known, _)| *known == point) {
            return Ok(*lsn);
        }
        let lsn = (self.meant)(&point)?;
        self.known.push((point, lsn));
        Ok(lsn)
    }
}

impl VisitorMut for ResolvePoints<'_> {
    type Break = Error;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        let TableFactor::Table { version: version @ Some(_), args, .. } = factor else {
            return ControlFlow::Continue(());
        };
        if args.is_some() {
            return ControlFlow::Break(Error::invalid("AS OF is for tables, not for functions"));
        }
        match version.as_ref().map(|version| self.resolve(version)) {
            Some(Ok(lsn)) => *version = Some(resolved_version(lsn)),
            Some(Err(error)) => return ControlFlow::Break(error),
            None => {}
        }
        ControlFlow::Continue(())
    }
}

fn resolved_version(lsn: Lsn) -> TableVersion {
    TableVersion::VersionAsOf(Expr::Value(SqlValue::Number(lsn.0.to_string(), false).into()))
}

/// Removes the AS OF clause of a table and returns its lsn. It is an error if [`resolve`] has not replaced the point yet.
pub fn take_lsn(version: &mut Option<TableVersion>) -> Result<Option<Lsn>> {
    let Some(version) = version.take() else { return Ok(None) };
    let unsettled = || Error::internal("a point in time was not settled before names were bound");
    match version {
        TableVersion::VersionAsOf(expr) => {
            literal(&expr).and_then(|lsn| lsn.parse().ok()).map(|lsn| Some(Lsn(lsn))).ok_or_else(unsettled)
        }
        _ => Err(unsettled()),
    }
}

/// Returns the digits of a numeric literal, brackets aside; `None` for any other expression.
pub fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            SqlValue::Number(digits, _) => Some(digits),
            _ => None,
        },
        Expr::Nested(inner) => literal(inner),
        _ => None,
    }
}

/// Adds an AS OF clause to the tables of a view's query: the clause with which the statement reads the view. Tables that have one
/// of their own keep it; names of WITH get none.
pub fn apply_to_query(query: &mut Query, version: &TableVersion) {
    let mut apply = ApplyVersion { version, ctes: Ctes::default() };
    let _ = query.visit(&mut apply);
}

struct ApplyVersion<'a> {
    version: &'a TableVersion,
    ctes: Ctes,
}

impl VisitorMut for ApplyVersion<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.ctes.enter(&mut query.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.ctes.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: None, version, .. } = factor
            && !self.ctes.names(name)
        {
            version.get_or_insert_with(|| self.version.clone());
        }
        ControlFlow::Continue(())
    }
}

/// Removes all AS OF clauses of a statement. Returns true if there was any.
pub fn remove(statement: &mut Statement) -> bool {
    struct Clear(bool);
    impl VisitorMut for Clear {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { version, .. } = factor {
                self.0 |= version.take().is_some();
            }
            ControlFlow::Continue(())
        }
    }
    let mut clear = Clear(false);
    let _ = statement.visit(&mut clear);
    clear.0
}
