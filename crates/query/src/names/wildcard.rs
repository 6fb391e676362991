//! What `*` means: not the system columns, and a column that is joined by USING once, first.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    CaseWhen, ExcludeSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart,
    Query, Select, SelectItem, SelectItemQualifiedWildcardKind, TableAlias, TableFactor, TableWithJoins,
    VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use types::{ROW_ID_NAME, TIME_NAME};

/// Which side of a join has the value of a column that both have.
enum Side {
    Left,
    Right,
    /// FULL JOIN: whichever is not null.
    Either,
}

/// `*` over tables that show their system columns becomes `* EXCLUDE (_row_id, _time)`; over several relations, one
/// `relation.*` for each.
pub(super) fn hide_system(select: &mut Select, has_system: impl Fn(&TableFactor) -> bool) {
    let factors: Vec<&TableFactor> = select.from.iter().flat_map(factors_of).collect();
    let relations: Vec<(ObjectName, bool)> =
        factors.iter().filter_map(|factor| Some((called(factor)?, has_system(factor)))).collect();
    let whole = relations.len() == factors.len();
    let mut projection = Vec::with_capacity(select.projection.len());
    for mut item in std::mem::take(&mut select.projection) {
        match &mut item {
            SelectItem::Wildcard(options) if plain(options) => match relations.as_slice() {
                [(_, true)] if whole => options.opt_exclude = Some(exclude(system_columns())),
                several if whole && several.iter().any(|(_, has)| *has) => {
                    projection.extend(several.iter().map(|(relation, has)| {
                        star_of(relation, if *has { system_columns() } else { Vec::new() })
                    }));
                    continue;
                }
                _ => {}
            },
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(object), options) => {
                let wanted = last(object).to_lowercase();
                let found = relations.iter().find(|(relation, _)| last(relation).to_lowercase() == wanted);
                if found.is_some_and(|(_, has)| *has) {
                    let mut columns = match options.opt_exclude.take() {
                        Some(ExcludeSelectItem::Multiple(columns)) => columns,
                        Some(ExcludeSelectItem::Single(column)) => vec![column],
                        None => Vec::new(),
                    };
                    if options.opt_except.is_none() {
                        columns.extend(system_columns());
                    }
                    options.opt_exclude = Some(exclude(columns));
                }
            }
            _ => {}
        }
        projection.push(item);
    }
    select.projection = projection;
}

/// In a join of two relations by USING: `*` becomes the joined columns, then the others of both sides, and in WHERE the
/// joined columns need no qualifier. (DataFusion has them where the second relation has them, and ambiguous in WHERE.)
pub(super) fn spell_out_using(select: &mut Select) {
    let [from] = select.from.as_slice() else { return };
    let [join] = from.joins.as_slice() else { return };
    let Some((side, columns)) = using(join) else { return };
    let (Some(left), Some(right)) = (called(&from.relation), called(&join.relation)) else { return };
    let column = |relation: &ObjectName, column: &Ident| {
        let mut parts = idents(relation);
        parts.push(column.clone());
        Expr::CompoundIdentifier(parts)
    };
    let joined = |ident: &Ident| match side {
        Side::Left => column(&left, ident),
        Side::Right => column(&right, ident),
        Side::Either => coalesce(column(&left, ident), column(&right, ident)),
    };
    let mut projection = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        match item {
            SelectItem::Wildcard(options) if plain(&options) => {
                let item = |ident: &Ident| {
                    let alias = Ident::with_quote('"', &ident.value);
                    SelectItem::ExprWithAlias { expr: joined(ident), alias }
                };
                projection.extend(columns.iter().map(item));
                projection.push(star_of(&left, columns.clone()));
                projection.push(star_of(&right, columns.clone()));
            }
            other => projection.push(other),
        }
    }
    select.projection = projection;
    if let Some(selection) = &mut select.selection {
        let _ = selection.visit(&mut Qualify { columns: &columns, joined: &joined, depth: 0 });
    }
}

/// Replaces unqualified mentions of the joined columns, but not within subqueries, whose own columns they may be.
struct Qualify<'a> {
    columns: &'a [Ident],
    joined: &'a dyn Fn(&Ident) -> Expr,
    depth: usize,
}

impl VisitorMut for Qualify<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    // After the children, so that what is put in is not looked at again.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(ident) = expr
            && self.depth == 0
            && let Some(column) = self.columns.iter().find(|c| {
                c.value == ident.value
                    || ident.quote_style.is_none() && c.value.eq_ignore_ascii_case(&ident.value)
            })
        {
            *expr = (self.joined)(column);
        }
        ControlFlow::Continue(())
    }
}

fn using(join: &Join) -> Option<(Side, Vec<Ident>)> {
    let (side, constraint) = match &join.join_operator {
        JoinOperator::Join(c)
        | JoinOperator::Inner(c)
        | JoinOperator::Left(c)
        | JoinOperator::LeftOuter(c) => (Side::Left, c),
        JoinOperator::Right(c) | JoinOperator::RightOuter(c) => (Side::Right, c),
        JoinOperator::FullOuter(c) => (Side::Either, c),
        _ => return None,
    };
    let JoinConstraint::Using(columns) = constraint else { return None };
    let ident = |name: &ObjectName| match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Some(ident.clone()),
        _ => None,
    };
    Some((side, columns.iter().map(ident).collect::<Option<_>>()?))
}

fn coalesce(left: Expr, right: Expr) -> Expr {
    let when = CaseWhen { condition: Expr::IsNotNull(Box::new(left.clone())), result: left };
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![when],
        else_result: Some(Box::new(right)),
    }
}

fn factors_of(from: &TableWithJoins) -> impl Iterator<Item = &TableFactor> {
    std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
}

/// The name by which a relation's columns are qualified, if it has one.
fn called(factor: &TableFactor) -> Option<ObjectName> {
    let of = |alias: &TableAlias| ObjectName(vec![ObjectNamePart::Identifier(alias.name.clone())]);
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. } => Some(of(alias)),
        TableFactor::Table { name, .. } => Some(name.clone()),
        _ => None,
    }
}

fn star_of(relation: &ObjectName, without: Vec<Ident>) -> SelectItem {
    let options = WildcardAdditionalOptions {
        opt_exclude: (!without.is_empty()).then(|| exclude(without)),
        ..WildcardAdditionalOptions::default()
    };
    SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(relation.clone()), options)
}

fn idents(name: &ObjectName) -> Vec<Ident> {
    let ident = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => Some(ident.clone()),
        ObjectNamePart::Function(_) => None,
    };
    name.0.iter().filter_map(ident).collect()
}

fn last(name: &ObjectName) -> String {
    idents(name).pop().map(|ident| ident.value).unwrap_or_default()
}

fn plain(options: &WildcardAdditionalOptions) -> bool {
    options.opt_exclude.is_none() && options.opt_except.is_none()
}

fn exclude(columns: Vec<Ident>) -> ExcludeSelectItem {
    ExcludeSelectItem::Multiple(columns)
}

fn system_columns() -> Vec<Ident> {
    vec![Ident::new(ROW_ID_NAME), Ident::new(TIME_NAME)]
}
