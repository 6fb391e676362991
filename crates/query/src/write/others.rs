//! The rows of other tables that UPDATE … FROM and DELETE … USING join, for RETURNING.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::FieldRef;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, SelectItem, SelectItemQualifiedWildcardKind, TableFactor,
    TableWithJoins, Value, WildcardAdditionalOptions,
};

/// Stands before the columns of each table. No column that a user names is called so.
const MARK: &str = "polynya other ";

/// The columns of one of them, a row for each row that is changed.
#[derive(Clone)]
pub(super) struct Other {
    /// What its columns are qualified by.
    pub called: Ident,
    pub fields: Vec<FieldRef>,
    pub columns: Vec<ArrayRef>,
}

/// What is selected so that [`taken`] finds them, and what they are called.
pub(super) fn selected(others: &[TableWithJoins]) -> (Vec<Ident>, Vec<SelectItem>) {
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
            // Without a name its columns cannot be asked for.
            _ => {}
        }
    }
}

/// Their columns in what was selected.
pub(super) fn taken(called: Vec<Ident>, batch: &RecordBatch) -> Vec<Other> {
    let schema = batch.schema();
    let place = |i: usize| schema.fields().iter().position(|field| *field.name() == format!("{MARK}{i}"));
    let end = |i: usize| place(i + 1).unwrap_or(schema.fields().len());
    let other = |(i, called): (usize, Ident)| {
        let columns = place(i)? + 1..end(i);
        Some(Other {
            called,
            fields: schema.fields()[columns.clone()].to_vec(),
            columns: batch.columns()[columns].to_vec(),
        })
    };
    called.into_iter().enumerate().filter_map(other).collect()
}
