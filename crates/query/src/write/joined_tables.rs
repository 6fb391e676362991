//! The rows of other tables that UPDATE … FROM and DELETE … USING join, for RETURNING.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::FieldRef;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, SelectItem, SelectItemQualifiedWildcardKind, TableFactor,
    TableWithJoins, Value, WildcardAdditionalOptions,
};

/// Prefix of the name of a marker column before the columns of each table. No user can name a column so.
const MARK: &str = "polynya other ";

/// The columns of one joined table, with one row for each changed row.
#[derive(Clone)]
pub(super) struct JoinedTable {
    /// The qualifier of its columns.
    pub called: Ident,
    pub fields: Vec<FieldRef>,
    pub columns: Vec<ArrayRef>,
}

/// Returns the names of the joined tables, and the select items from which [`extract`] extracts their columns.
pub(super) fn select_items(others: &[TableWithJoins]) -> (Vec<Ident>, Vec<SelectItem>) {
    let mut called = Vec::new();
    others.iter().for_each(|from| names(from, &mut called));
    let items = called.iter().enumerate().flat_map(|(i, name)| {
        let mark = SelectItem::ExprWithAlias {
            expr: Expr::Value(Value::Null.into()),
            alias: Ident::with_quote('"', format!("{MARK}{i}")),
        };
        let object = ObjectName(vec![ObjectNamePart::Identifier(name.clone())]);
        let all = SelectItem::QualifiedWildcard(
            SelectItemQualifiedWildcardKind::ObjectName(object),
            WildcardAdditionalOptions::default(),
        );
        [mark, all]
    });
    let items = items.collect();
    (called, items)
}

fn names(from: &TableWithJoins, called: &mut Vec<Ident>) {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation));
    for factor in factors {
        match factor {
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. }
            | TableFactor::UNNEST { alias: Some(alias), .. }
            | TableFactor::NestedJoin { alias: Some(alias), .. } => called.push(alias.name.clone()),
            TableFactor::Table { name, args: None, .. } => {
                if let Some(ObjectNamePart::Identifier(last)) = name.0.last() {
                    called.push(last.clone());
                }
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => names(table_with_joins, called),
            // The columns of a relation without a name cannot be named.
            _ => {}
        }
    }
}

/// Extracts the columns of the joined tables from the result of [`select_items`].
pub(super) fn extract(called: Vec<Ident>, batch: &RecordBatch) -> Vec<JoinedTable> {
    let schema = batch.schema();
    let place = |i: usize| schema.fields().iter().position(|field| *field.name() == format!("{MARK}{i}"));
    let end = |i: usize| place(i + 1).unwrap_or(schema.fields().len());
    let other = |(i, called): (usize, Ident)| {
        let columns = place(i)? + 1..end(i);
        Some(JoinedTable {
            called,
            fields: schema.fields()[columns.clone()].to_vec(),
            columns: batch.columns()[columns].to_vec(),
        })
    };
    called.into_iter().enumerate().filter_map(other).collect()
}
