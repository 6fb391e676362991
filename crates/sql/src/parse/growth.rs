//! What the planner makes more of than stands in the text: names of WITH, which it replaces by their queries, what
//! stands in CASE and COALESCE, through which it goes twice, and CUBE, of which it makes every subset. All three double
//! with every level or column, so all are bounded here, on a tree whose depth [`bounds`](super::bounds) has bounded.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, ObjectNamePart, Query,
    Statement, Visit, VisitMut, Visitor, VisitorMut,
};
use types::{Error, Kind, Result};

/// Tables that are read when every name of WITH is replaced by its query, as the planner does.
const EXPANDED_MAX: usize = 2_000;
/// CASE and COALESCE, those within one another counted double for each level. This is half a second.
const CONDITIONS_MAX: usize = 1 << 16;
/// Columns of all the groups that the planner writes out for CUBE, ROLLUP and GROUPING SETS. CUBE of 12 columns, the most
/// that PostgreSQL takes, is 49,152.
const GROUPED_MAX: usize = 1 << 16;

/// Refuses a statement of which the planner would make too much.
pub(super) fn check(statement: &Statement) -> Result<()> {
    let mut expanded = Expanded { named: BTreeMap::new(), bodies: BTreeMap::new(), open: vec![0] };
    let _ = statement.visit(&mut expanded);
    if expanded.open.first().is_some_and(|tables| *tables > EXPANDED_MAX) {
        return Err(Error::new(
            Kind::TooLarge,
            format!("with what stands behind the names of WITH, the statement reads more than {EXPANDED_MAX} tables"),
        )
        .hint("keep what is read many times in a table: CREATE TABLE … AS"));
    }
    let mut conditions = Conditions::default();
    if statement.visit(&mut conditions).is_break() {
        return Err(Error::new(Kind::TooLarge, "CASE or COALESCE nests too deep to be planned").hint(
            "write further WHENs in one CASE instead of a CASE in each ELSE, or look values up in a table",
        ));
    }
    let mut grouped = Grouped(0);
    if statement.visit(&mut grouped).is_break() {
        return Err(Error::new(
            Kind::TooLarge,
            "CUBE, ROLLUP and GROUPING SETS make too many groups to be planned",
        )
        .hint("CUBE takes up to 12 columns; name the groups that you want in GROUPING SETS"));
    }
    Ok(())
}

/// Counts columns of groups.
struct Grouped(usize);

impl Visitor for Grouped {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let columns = |groups: &[Vec<Expr>]| groups.iter().map(Vec::len).sum::<usize>();
        let written_out = match expr {
            Expr::Cube(of) => {
                let groups = u32::try_from(of.len()).ok().and_then(|of| 1usize.checked_shl(of));
                groups.unwrap_or(usize::MAX).saturating_mul(columns(of))
            }
            Expr::Rollup(of) => (of.len() + 1).saturating_mul(columns(of)),
            // Each group has a place for each column of all of them.
            Expr::GroupingSets(of) => of.len().saturating_mul(columns(of)),
            _ => 0,
        };
        self.0 = self.0.saturating_add(written_out);
        if self.0 > GROUPED_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Counts tables: ten queries that each read the one before twice are a thousand.
struct Expanded {
    /// By the name in WITH; of several queries of one name, the most.
    named: BTreeMap<String, usize>,
    /// The queries behind names, by where they are in memory.
    bodies: BTreeMap<usize, String>,
    /// What was counted so far in each query that is being walked.
    open: Vec<usize>,
}

fn place_of(query: &Query) -> usize {
    std::ptr::from_ref(query) as usize
}

impl Visitor for Expanded {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.bodies.insert(place_of(&cte.query), cte.alias.name.value.to_lowercase());
        }
        self.open.push(0);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = self.open.pop().unwrap_or(0);
        match (self.bodies.get(&place_of(query)), self.open.last_mut()) {
            (Some(name), _) => {
                let most = self.named.entry(name.clone()).or_insert(1);
                *most = tables.max(*most);
            }
            (None, Some(around)) => *around = around.saturating_add(tables),
            (None, None) => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let behind = match relation.0.as_slice() {
            [ObjectNamePart::Identifier(ident)] => self.named.get(&ident.value.to_lowercase()).copied(),
            _ => None,
        };
        if let Some(query) = self.open.last_mut() {
            *query = query.saturating_add(behind.unwrap_or(1));
        }
        ControlFlow::Continue(())
    }
}

/// Counts CASE and the functions that the planner makes one of.
#[derive(Default)]
struct Conditions {
    weight: usize,
    levels: u32,
    /// The expressions around.
    around: Vec<Around>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    /// COALESCE, or a bracket around one of its arguments: [`merge_coalesce`] takes another COALESCE in.
    Coalesce,
    Condition,
    /// A COALESCE that goes into the one around it.
    Merged,
    Other,
}

impl Visitor for Conditions {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let merges = matches!(self.around.last(), Some(Around::Coalesce | Around::Merged));
        let here = match expr {
            Expr::Case { .. } => Around::Condition,
            Expr::Function(function) if is_coalesce(function) && merges => Around::Merged,
            Expr::Function(function) if is_coalesce(function) => Around::Coalesce,
            Expr::Function(function) if is_condition(function) => Around::Condition,
            Expr::Nested(_) if merges => Around::Merged,
            _ => Around::Other,
        };
        if matches!(here, Around::Condition | Around::Coalesce) {
            self.levels += 1;
            let weight = 1usize.checked_shl(self.levels).unwrap_or(usize::MAX);
            self.weight = self.weight.saturating_add(weight);
        }
        self.around.push(here);
        if self.weight > CONDITIONS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        if let Some(Around::Condition | Around::Coalesce) = self.around.pop() {
            self.levels -= 1;
        }
        ControlFlow::Continue(())
    }
}

/// `coalesce(a, coalesce(b, c))` becomes `coalesce(a, b, c)`, which is the same.
pub fn merge_coalesce(statement: &mut Statement) {
    struct Merge;
    impl VisitorMut for Merge {
        type Break = ();

        // After the children: what is taken in has taken in its own.
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Some(arguments) = coalesced(expr) {
                let mut merged = Vec::with_capacity(arguments.len());
                for argument in std::mem::take(arguments) {
                    merge(argument, &mut merged);
                }
                *arguments = merged;
            }
            ControlFlow::Continue(())
        }
    }
    let _ = statement.visit(&mut Merge);
}

fn merge(mut argument: FunctionArg, merged: &mut Vec<FunctionArg>) {
    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = &mut argument {
        let mut inner = expr;
        while let Expr::Nested(nested) = inner {
            inner = nested;
        }
        if let Some(arguments) = coalesced(inner) {
            merged.append(arguments);
            return;
        }
    }
    merged.push(argument);
}

fn coalesced(expr: &mut Expr) -> Option<&mut Vec<FunctionArg>> {
    match expr {
        Expr::Function(function) if is_coalesce(function) => match &mut function.args {
            FunctionArguments::List(list) => Some(&mut list.args),
            _ => None,
        },
        _ => None,
    }
}

fn is_coalesce(function: &Function) -> bool {
    is_called(function, &["coalesce"])
}

/// Functions that the planner turns into CASE.
fn is_condition(function: &Function) -> bool {
    is_called(function, &["nvl", "nvl2", "ifnull"])
}

/// Whether it is one of these functions, with nothing but arguments.
fn is_called(function: &Function, names: &[&str]) -> bool {
    let [ObjectNamePart::Identifier(ident)] = function.name.0.as_slice() else { return false };
    let plain = function.filter.is_none() && function.over.is_none();
    plain && names.iter().any(|name| ident.value.eq_ignore_ascii_case(name))
}
