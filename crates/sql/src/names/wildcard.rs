//! Leaves the system columns out of `*`.

use sqlparser::ast::{
    ExcludeSelectItem, Ident, ObjectName, ObjectNamePart, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableAlias, TableFactor, TableWithJoins, WildcardAdditionalOptions,
};
use types::{ROW_ID_NAME, TIME_NAME};

/// Turns `*` over tables that show their system columns into `* EXCLUDE (_row_id, _time)`; over several relations, into one
/// `relation.*` for each.
pub(super) fn hide_system(select: &mut Select, has_system: impl Fn(&TableFactor) -> bool) {
    let factors: Vec<&TableFactor> = select.from.iter().flat_map(factors_of).collect();
    let relations: Vec<(ObjectName, bool)> =
        factors.iter().filter_map(|factor| Some((relation_name(factor)?, has_system(factor)))).collect();
    let whole = relations.len() == factors.len();
    let mut projection = Vec::with_capacity(select.projection.len());
    for mut item in std::mem::take(&mut select.projection) {
        match &mut item {
            SelectItem::Wildcard(options) if has_no_exclusions(options) => match relations.as_slice() {
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
                        let is_new =
                            |system: &Ident| columns.iter().all(|column| column.value != system.value);
                        let system: Vec<Ident> = system_columns().into_iter().filter(is_new).collect();
                        columns.extend(system);
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

/// Returns the relations of a FROM, including those in brackets.
fn factors_of<'a>(from: &'a TableWithJoins) -> Vec<&'a TableFactor> {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation));
    let within = |factor: &'a TableFactor| match factor {
        TableFactor::NestedJoin { table_with_joins, alias: None } => factors_of(table_with_joins),
        factor => vec![factor],
    };
    factors.flat_map(within).collect()
}

/// Returns the name that qualifies a relation's columns, if it has one.
pub(super) fn relation_name(factor: &TableFactor) -> Option<ObjectName> {
    let of = |alias: &TableAlias| ObjectName(vec![ObjectNamePart::Identifier(alias.name.clone())]);
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::TableFunction { alias: Some(alias), .. }
        | TableFactor::NestedJoin { alias: Some(alias), .. } => Some(of(alias)),
        TableFactor::Table { name, .. } => Some(name.clone()),
        _ => None,
    }
}

pub(super) fn star_of(relation: &ObjectName, without: Vec<Ident>) -> SelectItem {
    let options = WildcardAdditionalOptions {
        opt_exclude: (!without.is_empty()).then(|| exclude(without)),
        ..WildcardAdditionalOptions::default()
    };
    SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(relation.clone()), options)
}

pub(super) fn idents(name: &ObjectName) -> Vec<Ident> {
    let ident = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => Some(ident.clone()),
        ObjectNamePart::Function(_) => None,
    };
    name.0.iter().filter_map(ident).collect()
}

fn last(name: &ObjectName) -> String {
    idents(name).pop().map(|ident| ident.value).unwrap_or_default()
}

pub(super) fn has_no_exclusions(options: &WildcardAdditionalOptions) -> bool {
    options.opt_exclude.is_none() && options.opt_except.is_none()
}

fn exclude(columns: Vec<Ident>) -> ExcludeSelectItem {
    ExcludeSelectItem::Multiple(columns)
}

fn system_columns() -> Vec<Ident> {
    vec![Ident::new(ROW_ID_NAME), Ident::new(TIME_NAME)]
}
