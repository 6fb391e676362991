//! Bounds the forms that the planner expands to more than their text: names of WITH, which it replaces by their queries; CASE and
//! COALESCE, whose operands it visits twice; and CUBE, which it expands to all subsets. Each can double the plan with every level
//! or column. The depth of the tree was bounded before, by [`bounds`](super::bounds).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, ObjectNamePart, Query,
    Statement, Visit, VisitMut, Visitor, VisitorMut,
};
use types::{Error, Kind, Result};

/// Tables that a statement reads when every name of WITH is replaced by its query, as the planner does.
const EXPANDED_MAX: usize = 2_000;
/// Weight of all CASE and COALESCE of a statement: each counts double for every further level of nesting. The limit is half a
/// second of planning.
const CONDITIONS_MAX: usize = 1 << 16;
/// Columns of all the groups to which the planner expands CUBE, ROLLUP and GROUPING SETS. A CUBE of 12 columns, the most that
/// PostgreSQL takes, has 49,152.
const GROUPED_MAX: usize = 1 << 16;

/// Refuses a statement whose plan would grow too large.
pub(super) fn check(statement: &Statement) -> Result<()> {
    let mut expanded = ExpandedTables { named: BTreeMap::new(), bodies: BTreeMap::new(), open: vec![0] };
    let _ = statement.visit(&mut expanded);
    if expanded.open.first().is_some_and(|tables| *tables > EXPANDED_MAX) {
        return Err(Error::new(
            Kind::TooLarge,
            format!("with the queries of WITH expanded, the statement reads more than {EXPANDED_MAX} tables"),
        )
        .hint("keep what is read many times in a table: CREATE TABLE … AS"));
    }
    let mut conditions = ConditionWeight::default();
    if statement.visit(&mut conditions).is_break() {
        return Err(Error::new(Kind::TooLarge, "CASE or COALESCE nests too deep to be planned").hint(
            "write further WHENs in one CASE instead of a CASE in each ELSE, or look values up in a table",
        ));
    }
    let mut grouped = GroupedColumns(0);
    if statement.visit(&mut grouped).is_break() {
        return Err(Error::new(
            Kind::TooLarge,
            "CUBE, ROLLUP and GROUPING SETS make too many groups to be planned",
        )
        .hint("CUBE takes up to 12 columns; name the groups that you want in GROUPING SETS"));
    }
    Ok(())
}

/// Counts the columns of all groups.
struct GroupedColumns(usize);

impl Visitor for GroupedColumns {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let columns = |groups: &[Vec<Expr>]| groups.iter().map(Vec::len).sum::<usize>();
        let written_out = match expr {
            Expr::Cube(of) => {
                let groups = u32::try_from(of.len()).ok().and_then(|of| 1usize.checked_shl(of));
                groups.unwrap_or(usize::MAX).saturating_mul(columns(of))
            }
            Expr::Rollup(of) => (of.len() + 1).saturating_mul(columns(of)),
            // Each group has a slot for every column of all the sets.
            Expr::GroupingSets(of) => of.len().saturating_mul(columns(of)),
            _ => 0,
        };
        self.0 = self.0.saturating_add(written_out);
        if self.0 > GROUPED_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Counts the tables of a statement with WITH expanded: ten queries that each read the previous one twice read a thousand.
struct ExpandedTables {
    /// Tables that each name in WITH reads; the most, where several queries have one name.
    named: BTreeMap<String, usize>,
    /// The names of queries in WITH, by the query's address in memory.
    bodies: BTreeMap<usize, String>,
    /// Tables counted so far in each query that the visitor is in.
    open: Vec<usize>,
}

fn address_of(query: &Query) -> usize {
    std::ptr::from_ref(query) as usize
}

impl Visitor for ExpandedTables {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.bodies.insert(address_of(&cte.query), cte.alias.name.value.to_lowercase());
        }
        self.open.push(0);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = self.open.pop().unwrap_or(0);
        match (self.bodies.get(&address_of(query)), self.open.last_mut()) {
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

/// Sums the weights of CASE, and of the functions that the planner turns into CASE.
#[derive(Default)]
struct ConditionWeight {
    weight: usize,
    levels: u32,
    /// The enclosing expressions of the visitor's position.
    around: Vec<EnclosingExpr>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EnclosingExpr {
    /// COALESCE, or a bracket around one of its arguments: [`merge_coalesce`] merges another COALESCE into it.
    Coalesce,
    Condition,
    /// A COALESCE that is merged into the enclosing one.
    Merged,
    Other,
}

impl Visitor for ConditionWeight {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let merges = matches!(self.around.last(), Some(EnclosingExpr::Coalesce | EnclosingExpr::Merged));
        let here = match expr {
            Expr::Case { .. } => EnclosingExpr::Condition,
            Expr::Function(function) if is_coalesce(function) && merges => EnclosingExpr::Merged,
            Expr::Function(function) if is_coalesce(function) => EnclosingExpr::Coalesce,
            Expr::Function(function) if is_condition(function) => EnclosingExpr::Condition,
            Expr::Nested(_) if merges => EnclosingExpr::Merged,
            _ => EnclosingExpr::Other,
        };
        if matches!(here, EnclosingExpr::Condition | EnclosingExpr::Coalesce) {
            self.levels += 1;
            let weight = 1usize.checked_shl(self.levels).unwrap_or(usize::MAX);
            self.weight = self.weight.saturating_add(weight);
        }
        self.around.push(here);
        if self.weight > CONDITIONS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        if let Some(EnclosingExpr::Condition | EnclosingExpr::Coalesce) = self.around.pop() {
            self.levels -= 1;
        }
        ControlFlow::Continue(())
    }
}

/// Turns `coalesce(a, coalesce(b, c))` into the equal `coalesce(a, b, c)`.
pub fn merge_coalesce(statement: &mut Statement) {
    struct Merge;
    impl VisitorMut for Merge {
        type Break = ();

        // After the children, so that a merged COALESCE has merged its own arguments.
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

/// Returns true for functions that the planner turns into CASE.
fn is_condition(function: &Function) -> bool {
    is_called(function, &["nvl", "nvl2", "ifnull"])
}

/// Returns true if the function has one of these names, and no FILTER or OVER.
fn is_called(function: &Function, names: &[&str]) -> bool {
    let [ObjectNamePart::Identifier(ident)] = function.name.0.as_slice() else { return false };
    let plain = function.filter.is_none() && function.over.is_none();
    plain && names.iter().any(|name| ident.value.eq_ignore_ascii_case(name))
}
