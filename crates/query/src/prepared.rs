//! Prepared statements: parsed once, and planned once for as long as the definitions of their tables stay the same.
//!
//! A lookup by key or by an index has a fast path ([`Prepared::lookup`]): the caller's thread finds the rows, without parsing,
//! hashing the text, or another thread.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use arrow::array::RecordBatch;
use arrow::datatypes::DataType as Arrow;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::Statement;
use dialect::values::convert;
use dialect::values::params::{self, Params};
use engine::View;
use sql::names::{self, ParsedTableName};
use sql::parse;
use types::{DataType, Error, Principal, Result, SchemaVersion, TableId, Value};

use crate::answer::Answer;
use crate::deadline::Deadline;
use crate::execute::{LONG_TEXT_BYTES, block_in_place_if};
use crate::options::Limits;
use crate::planner::resolve_table;
use crate::point_lookup::{Caller, KeyLookup, PointLookup, has_type};
use crate::provider::Table;
use crate::statements::Sql;

/// A prepared statement. Cheap to clone; clones share what was inferred about it.
///
/// It stays valid when tables change: types and plans are inferred again at the next run, which fails if the statement has become
/// invalid.
#[derive(Clone)]
pub struct Prepared(Arc<Inner>);

struct Inner {
    sql: Sql,
    principal: Principal,
    text: String,
    statement: Arc<Statement>,
    parameters: usize,
    inferred: ArcSwapOption<InferredTypes>,
    lookup: ArcSwapOption<PreparedLookup>,
}

/// Facts about a statement that hold while its tables keep these definitions.
pub(crate) struct InferredTypes {
    /// The type of each parameter; `None` if any value is accepted, or if only a run shows the type.
    pub types: Vec<Option<DataType>>,
    pub tables: Vec<(ParsedTableName, TableId, SchemaVersion)>,
}

/// A point lookup in a table of this definition.
pub(crate) struct PreparedLookup {
    /// The lookup by key, if the statement is one.
    pub key_lookup: Option<KeyLookup>,
    pub point_lookup: Arc<PointLookup>,
    /// The types of the parameters with which it was planned.
    pub types: Vec<Arrow>,
    pub full_name: String,
    pub id: TableId,
    pub version: SchemaVersion,
}

impl Sql {
    /// Parses a statement, and plans it if it is a query. All runs have the rights of `principal`.
    ///
    /// Returns [`types::Kind::Invalid`] and [`types::Kind::NotFound`] like [`Sql::run`].
    pub async fn prepare(&self, principal: &Principal, text: &str) -> Result<Prepared> {
        let (sql, text, principal) = (self.clone(), text.to_owned(), principal.clone());
        let prepare = move || {
            let statement = parse::statement(&text, sql.text_bytes_max())?;
            let parameters = names::parameters(&statement)?;
            let prepared = Prepared(Arc::new(Inner {
                sql,
                principal,
                text,
                statement: Arc::new(statement),
                parameters,
                inferred: ArcSwapOption::empty(),
                lookup: ArcSwapOption::empty(),
            }));
            let view = prepared.0.sql.view(&prepared.0.principal)?;
            prepared.infer(&view)?;
            Ok(prepared)
        };
        // Deeply nested text needs threads with a large stack.
        self.blocking(Deadline::after(self.deadline()), prepare).await
    }
}

impl Prepared {
    /// Returns the type of each parameter; `None` if any value is accepted, or if only a run shows the type.
    pub fn parameter_types(&self) -> Vec<Option<DataType>> {
        match &*self.0.inferred.load() {
            Some(inferred) => inferred.types.clone(),
            None => vec![None; self.0.parameters],
        }
    }

    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Answers a point lookup on the calling thread. Returns `None` if the statement is not a lookup, or has not run before: call
    /// [`Prepared::run`] then. Never waits (R1). With `is_waiting`, the thread would only wait for another one to answer, so the
    /// lookup may have thousands of rows.
    pub fn lookup(&self, values: &[Value], is_waiting: bool) -> Result<Option<RecordBatch>> {
        let lookup = self.0.lookup.load();
        let Some(lookup) = lookup.as_ref().filter(|_| values.len() == self.0.parameters) else {
            return Ok(None);
        };
        let view = self.0.sql.view(&self.0.principal)?;
        let Some(snapshot) = view.find(&lookup.full_name) else { return Ok(None) };
        let def = snapshot.def();
        if def.id != lookup.id || def.schema.version != lookup.version {
            return Ok(None);
        }
        let key_lookup = match &lookup.key_lookup {
            Some(key_lookup) => key_lookup.run(&snapshot, values)?,
            None => None,
        };
        let found = match key_lookup {
            Some(row) => Some(row),
            None => {
                // `run` handles values that no expression can hold.
                let Ok(scalars) = values.iter().map(params::scalar).collect::<Result<Vec<_>>>() else {
                    return Ok(None);
                };
                if !scalars.iter().map(ScalarValue::data_type).eq(lookup.types.iter().cloned()) {
                    return Ok(None);
                }
                let caller = if is_waiting { Caller::Waiting } else { Caller::Shared };
                lookup.point_lookup.run(&Table::of(&view, snapshot), &scalars, caller)?
            }
        };
        // `run` handles answers with more rows than allowed.
        let found = found.filter(|rows| rows.num_rows() as u64 <= self.0.sql.rows_max());
        if found.is_some() {
            self.0.sql.count_lookup();
        }
        Ok(found)
    }

    /// Runs the statement with one value for each parameter. A value of another type is converted if nothing is lost, else
    /// refused ([`types::Kind::Invalid`]).
    pub async fn run(&self, values: &[Value], limits: Limits) -> Result<Answer> {
        let inner = &self.0;
        if values.len() != inner.parameters {
            return Err(params::count_differs("statement", inner.parameters, values.len()));
        }
        let view = inner.sql.view(&inner.principal)?;
        let values = self.convert_values(values, &view).await?;
        let answer = inner
            .sql
            .run_parsed(&inner.principal, &inner.text, inner.statement.clone(), values.clone(), limits)
            .await?;
        if matches!(answer, Answer::Rows(_)) {
            // There is a plan now, which may be a lookup.
            let known = inner.lookup.load();
            let holds = |lookup: &Arc<PreparedLookup>| {
                view.find(&lookup.full_name)
                    .is_some_and(|t| t.def().id == lookup.id && t.def().schema.version == lookup.version)
            };
            if !known.as_ref().is_some_and(holds) {
                let lookup = inner.sql.lookup(&inner.text, &Params::new(values), &view);
                inner.lookup.store(lookup.map(Arc::new));
            }
        }
        Ok(answer)
    }

    /// Converts values as [`Prepared::run`] does, over the tables of `view`.
    pub(crate) async fn values(&self, values: &[Value], view: &View) -> Result<Vec<Value>> {
        let inner = &self.0;
        if values.len() != inner.parameters {
            return Err(params::count_differs("statement", inner.parameters, values.len()));
        }
        self.convert_values(values, view).await
    }

    async fn convert_values(&self, values: &[Value], view: &View) -> Result<Vec<Value>> {
        let inner = &self.0;
        let inferred = match inner.inferred.load_full().filter(|inferred| inferred.is_current(view)) {
            Some(inferred) => inferred,
            None => {
                let (prepared, view) = (self.clone(), view.clone());
                inner
                    .sql
                    .blocking(Deadline::after(inner.sql.deadline()), move || prepared.infer(&view))
                    .await?
            }
        };
        let read =
            |(at, (value, wanted)): (usize, (&Value, &Option<DataType>))| convert(value, wanted.as_ref(), at);
        values.iter().zip(&inferred.types).enumerate().map(read).collect()
    }

    /// Infers the types of the parameters over the tables of `view`.
    fn infer(&self, view: &View) -> Result<Arc<InferredTypes>> {
        let inner = &self.0;
        let unknown = || InferredTypes { types: vec![None; inner.parameters], tables: Vec::new() };
        let inferred = match &*inner.statement {
            Statement::Query(query) if parse::reads_only(query) => {
                let long = inner.text.len() > LONG_TEXT_BYTES;
                block_in_place_if(long, || inner.sql.infer(&inner.statement, inner.parameters, view))?
            }
            _ => unknown(),
        };
        let inferred = Arc::new(inferred);
        inner.inferred.store(Some(inferred.clone()));
        Ok(inferred)
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("text", &self.0.text).finish()
    }
}

impl InferredTypes {
    fn is_current(&self, view: &View) -> bool {
        self.tables.iter().all(|(written, id, version)| {
            resolve_table(view, written)
                .is_ok_and(|t| t.def().id == *id && t.def().schema.version == *version)
        })
    }
}

/// Converts a value to the parameter's type.
fn convert(value: &Value, wanted: Option<&DataType>, at: usize) -> Result<Value> {
    let Some(wanted) = wanted.filter(|wanted| *value != Value::Null && !has_type(value, wanted)) else {
        return Ok(value.clone());
    };
    let scalar = params::scalar(value)?;
    let array = scalar.to_array().map_err(dialect::error::from_datafusion)?;
    let column = convert::keeps_digits(value, wanted).and_then(|()| convert::to_column(&array, wanted));
    let column = column.map_err(|e| {
        let mut error = Error::invalid(format!("a value is not a valid {wanted}: {}", e.message()));
        if let Some(hint) = e.hint_text() {
            error = error.hint(hint);
        }
        error.with("parameter", format!("${}", at + 1))
    })?;
    Ok(Value::from_array(&column, wanted, 0))
}
