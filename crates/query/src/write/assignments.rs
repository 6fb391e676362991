//! The SET clause: computes the new values of a row's columns.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, Statement,
};
use dialect::values::convert;
use dialect::values::literal;
use sql::not_yet;
use sql::parse;
use types::{Error, Result, TableDef, Value};

use super::{cell_item, column_position, is_default};

/// The assignments of an UPDATE, compiled to expressions that a query evaluates.
pub(super) struct Assignments {
    /// The expressions that the query evaluates.
    cells: Vec<Expr>,
    /// The source of each column of the table.
    sources: Vec<ColumnSource>,
}

#[derive(Clone, Copy)]
enum ColumnSource {
    Default,
    Cell(usize),
    /// A field of the row value in a cell.
    Part(usize, usize),
}

impl Assignments {
    /// Compiles assignments. `called` is the qualifier of the table's columns, also in the names in SET. `kept` gives the
    /// expression of a column that is not set. `params` are the values of `$1`, `$2`, ….
    pub fn of(
        def: &TableDef,
        called: &Ident,
        assignments: &[Assignment],
        params: &[Value],
        kept: impl Fn(&str) -> Expr,
    ) -> Result<Assignments> {
        let mut cells = Vec::new();
        let mut set: BTreeMap<usize, ColumnSource> = BTreeMap::new();
        for Assignment { target, value } in assignments {
            let objects = match target {
                AssignmentTarget::ColumnName(object) => std::slice::from_ref(object),
                AssignmentTarget::Tuple(objects) => objects,
            };
            let is_row = matches!(target, AssignmentTarget::Tuple(_));
            let positions = objects
                .iter()
                .map(|object| column_position(def, assigned(def, called, object)?))
                .collect::<Result<Vec<_>>>()?;
            let sources =
                if is_row { row(value, positions.len(), &mut cells)? } else { vec![one(value, &mut cells)] };
            for (position, source) in positions.into_iter().zip(sources) {
                let column = &def.schema.columns[position];
                if set.insert(position, source).is_some() {
                    return Err(Error::invalid(format!("column `{}` is set twice", column.name)));
                }
                if let ColumnSource::Cell(cell) = source {
                    literal::keeps_digits(&cells[cell], &column.data_type, params)
                        .map_err(|e| e.with("column", &column.name))?;
                }
            }
        }
        let mut sources = Vec::with_capacity(def.schema.columns.len());
        for (position, column) in def.schema.columns.iter().enumerate() {
            sources.push(set.remove(&position).unwrap_or_else(|| {
                cells.push(kept(&column.name));
                ColumnSource::Cell(cells.len() - 1)
            }));
        }
        Ok(Assignments { cells, sources })
    }

    /// Returns the select items of the query that evaluates the expressions.
    pub fn items(&self) -> impl Iterator<Item = SelectItem> + '_ {
        self.cells.iter().cloned().enumerate().map(|(i, cell)| cell_item(cell, i))
    }

    /// Returns the table's columns, from the results of [`Assignments::items`].
    pub fn columns(&self, def: &TableDef, given: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
        let column = |(column, source): (&types::Column, &ColumnSource)| {
            let array = match *source {
                ColumnSource::Default => {
                    let value = column.default.clone().unwrap_or(Value::Null);
                    return Value::to_array(&vec![value; rows], &column.data_type);
                }
                ColumnSource::Cell(cell) => given[cell].clone(),
                ColumnSource::Part(cell, part) => part_of(&given[cell], part)?,
            };
            convert::to_column(&array, &column.data_type).map_err(|e| e.with("column", &column.name))
        };
        def.schema.columns.iter().zip(&self.sources).map(column).collect()
    }
}

fn one(value: &Expr, cells: &mut Vec<Expr>) -> ColumnSource {
    if is_default(value) {
        return ColumnSource::Default;
    }
    cells.push(value.clone());
    ColumnSource::Cell(cells.len() - 1)
}

/// Compiles the assignment of a row: `(a, b) = (1, DEFAULT)`, `= ROW(1, 2)` or `= (SELECT 1, 2)`.
fn row(value: &Expr, width: usize, cells: &mut Vec<Expr>) -> Result<Vec<ColumnSource>> {
    let values: Vec<&Expr> = match value {
        Expr::Tuple(values) => values.iter().collect(),
        Expr::Nested(value) => vec![value.as_ref()],
        Expr::Function(function) => row_function(function).ok_or_else(|| no_row(value))?,
        Expr::Subquery(query) => {
            cells.push(Expr::Subquery(Box::new(as_row(query, width)?)));
            let cell = cells.len() - 1;
            return Ok((0..width).map(|part| ColumnSource::Part(cell, part)).collect());
        }
        _ => return Err(no_row(value)),
    };
    check_width(width, values.len())?;
    Ok(values.into_iter().map(|value| one(value, cells)).collect())
}

fn no_row(value: &Expr) -> Error {
    Error::invalid(format!("`{}` is not a row of values", types::name::printable(&value.to_string())))
        .hint("write SET (a, b) = (1, 2) or SET (a, b) = (SELECT …)")
}

fn check_width(width: usize, given: usize) -> Result<()> {
    if width != given {
        return Err(Error::invalid(format!("{width} columns are set, {given} values are given")));
    }
    Ok(())
}

fn row_function(function: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    if !function.name.to_string().eq_ignore_ascii_case("row") {
        return None;
    }
    let value = |arg| match arg {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Some(expr),
        _ => None,
    };
    list.args.iter().map(value).collect()
}

/// Combines the output columns of a query into one struct, so that it is evaluated once for all of them.
fn as_row(query: &Query, width: usize) -> Result<Query> {
    let mut query = query.clone();
    let whole =
        || not_yet("SET (a, b) = (SELECT …) of such a query").hint("name its columns: SELECT x, y FROM …");
    let SetExpr::Select(select) = query.body.as_mut() else { return Err(whole()) };
    if select.distinct.is_some() {
        return Err(whole());
    }
    let mut values = Vec::with_capacity(width);
    for item in &select.projection {
        match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                values.push(expr.clone())
            }
            _ => return Err(whole()),
        }
    }
    check_width(width, values.len())?;
    select.projection = vec![SelectItem::UnnamedExpr(struct_of(values)?)];
    Ok(query)
}

/// Returns an expression of one struct with these values as its fields.
fn struct_of(values: Vec<Expr>) -> Result<Expr> {
    let unexpected = || Error::internal("a call of a function was read as something else");
    let places = (0..values.len()).map(|i| format!("'{i}', NULL")).collect::<Vec<_>>().join(", ");
    let statement = parse::statement(&format!("SELECT named_struct({places})"), 64 << 10)?;
    let Statement::Query(query) = statement else { return Err(unexpected()) };
    let SetExpr::Select(mut select) = *query.body else { return Err(unexpected()) };
    let Some(SelectItem::UnnamedExpr(mut row)) = select.projection.pop() else { return Err(unexpected()) };
    let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut row else {
        return Err(unexpected());
    };
    for (arg, value) in list.args.iter_mut().skip(1).step_by(2).zip(values) {
        *arg = FunctionArg::Unnamed(FunctionArgExpr::Expr(value));
    }
    Ok(row)
}

/// Returns a field of a row value; null if the row value is null.
fn part_of(row: &ArrayRef, part: usize) -> Result<ArrayRef> {
    let Some(row) = row.as_struct_opt() else {
        return Err(Error::internal("a query for a row gave none"));
    };
    let values = row.column(part);
    let Some(nulls) = row.nulls() else { return Ok(values.clone()) };
    let is_missing = BooleanArray::new(!nulls.inner(), None);
    arrow::compute::nullif(values, &is_missing)
        .map_err(|e| Error::internal(format!("taking a row apart failed: {e}")))
}

/// Returns the column that SET names: `column`, or `table.column` unless a column has the table's name. `column.field` is a field
/// of a struct, and must not be taken for a column with the field's name.
fn assigned<'o>(def: &TableDef, called: &Ident, object: &'o ObjectName) -> Result<&'o Ident> {
    let refused = || not_yet(&format!("SET of a part of a column, `{object}`,")).hint("set the whole column");
    match object.0.as_slice() {
        [ObjectNamePart::Identifier(column)] => Ok(column),
        [ObjectNamePart::Identifier(table), ObjectNamePart::Identifier(column)] => {
            let names = |ident: &Ident, name: &str| {
                ident.value == name
                    || ident.quote_style.is_none() && ident.value.to_lowercase() == name.to_lowercase()
            };
            let is_column = def.schema.columns.iter().any(|column| names(table, &column.name));
            if is_column || !names(table, &called.value) { Err(refused()) } else { Ok(column) }
        }
        _ => Err(refused()),
    }
}
