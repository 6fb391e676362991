//! PREPARE, EXECUTE and DEALLOCATE: the named prepared statements of a session.
//!
//! As in PostgreSQL they belong to the session, not to a transaction: ROLLBACK does not undo them. The values of EXECUTE may be
//! any expressions without columns and queries; they are evaluated like a SELECT, and converted to the parameters' types.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType as Arrow;
use arrow::util::display::array_value_to_string;
use datafusion::sql::sqlparser::ast::{
    CastKind, Expr, ObjectName, ObjectNamePart, Statement, Visit, Visitor,
};
use dialect::values::params::count_differs;
use sql::parse;
use sql::sql_type;
use types::{Error, Kind, Principal, Result, Value, name};

use super::fold_case;
use crate::answer::Answer;
use crate::deadline::Deadline;
use crate::execute::LONG_TEXT_BYTES;
use crate::options::Limits;
use crate::prepared::Prepared;
use crate::statements::Sql;

/// Prepared statements of one session.
const STATEMENTS_MAX: usize = 256;

/// The prepared statements of a session, by name.
#[derive(Debug, Default)]
pub(super) struct NamedStatements(BTreeMap<String, NamedStatement>);

#[derive(Clone, Debug)]
pub(super) struct NamedStatement {
    pub prepared: Prepared,
    /// The types of the first parameters that PREPARE declares, as they are written.
    types: Vec<datafusion::sql::sqlparser::ast::DataType>,
}

/// A parsed PREPARE, EXECUTE or DEALLOCATE.
#[derive(Debug)]
pub(super) enum PreparedCommand {
    Prepare {
        name: String,
        text: String,
        types: Vec<datafusion::sql::sqlparser::ast::DataType>,
    },
    Execute {
        name: String,
        values: Vec<Expr>,
    },
    /// The name to remove; `None`: all of them.
    Deallocate(Option<String>),
}

/// Returns true if the first word of a statement is one of these three.
pub(super) fn is_word(word: &str) -> bool {
    ["prepare", "execute", "deallocate"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Parses on a thread with a large stack. A short text does not wait for heavy statements.
pub(super) async fn parse_command(sql: &Sql, text: &str) -> Result<PreparedCommand> {
    let (bytes_max, is_short, text) = (sql.text_bytes_max(), text.len() <= LONG_TEXT_BYTES, text.to_owned());
    let read = move || parse(&text, bytes_max);
    if is_short {
        sql.run_brief(sql.deadline(), read).await
    } else {
        sql.blocking(Deadline::after(sql.deadline()), read).await
    }
}

fn parse(text: &str, bytes_max: usize) -> Result<PreparedCommand> {
    Ok(match parse::statement(text, bytes_max)? {
        Statement::Prepare { name, data_types, statement } => {
            let is_kept = matches!(
                *statement,
                Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_)
            );
            if !is_kept {
                return Err(Error::invalid("PREPARE takes SELECT, VALUES, INSERT, UPDATE and DELETE")
                    .hint("run other statements as they are"));
            }
            // The original text: the text that the parser makes of the tree does not always parse to the same tree.
            let own = parse::prepared(text)
                .ok_or_else(|| Error::internal("a PREPARE whose statement does not begin"))?;
            data_types.iter().try_for_each(|data_type| sql_type::from_sql(data_type).map(drop))?;
            PreparedCommand::Prepare { name: fold_case(&name), text: own.to_owned(), types: data_types }
        }
        Statement::Execute {
            name: Some(called),
            parameters,
            immediate: false,
            into,
            using,
            output,
            default,
            ..
        } if into.is_empty() && using.is_empty() && !output && !default => {
            let name = statement_name(&called)?;
            parameters.iter().try_for_each(refuse_query)?;
            PreparedCommand::Execute { name, values: parameters }
        }
        Statement::Execute { .. } => {
            return Err(Error::invalid("EXECUTE names a prepared statement and its values")
                .hint("EXECUTE name (value, …)"));
        }
        Statement::Deallocate { name, .. } => {
            let all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
            PreparedCommand::Deallocate((!all).then(|| fold_case(&name)))
        }
        _ => return Err(Error::invalid("PREPARE, EXECUTE or DEALLOCATE is expected")),
    })
}

fn statement_name(called: &ObjectName) -> Result<String> {
    match called.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Ok(fold_case(ident)),
        _ => Err(Error::invalid(format!(
            "`{}` is not the name of a prepared statement",
            name::printable(&called.to_string())
        ))),
    }
}

fn refuse_query(value: &Expr) -> Result<()> {
    struct Look;
    impl Visitor for Look {
        type Break = ();

        fn pre_visit_query(&mut self, _: &datafusion::sql::sqlparser::ast::Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    match value.visit(&mut Look) {
        ControlFlow::Break(()) => Err(Error::invalid("a value of EXECUTE cannot be a query")
            .hint("select it first and give it as a value, or write the query into the prepared statement")),
        ControlFlow::Continue(()) => Ok(()),
    }
}

impl NamedStatements {
    /// Returns [`Kind::Exists`] if the name is taken, and [`Kind::TooLarge`] if the session has too many.
    pub fn check_free(&self, name: &str) -> Result<()> {
        if self.0.contains_key(name) {
            return Err(Error::new(
                Kind::Exists,
                format!("there is a prepared statement `{}` already", name::printable(name)),
            )
            .hint("DEALLOCATE it, or take another name"));
        }
        if self.0.len() >= STATEMENTS_MAX {
            let what = format!("a session keeps at most {STATEMENTS_MAX} prepared statements");
            return Err(Error::new(Kind::TooLarge, what).hint("DEALLOCATE those that are not needed"));
        }
        Ok(())
    }

    pub fn insert(
        &mut self,
        name: String,
        prepared: Prepared,
        types: Vec<datafusion::sql::sqlparser::ast::DataType>,
    ) {
        self.0.insert(name, NamedStatement { prepared, types });
    }

    /// Returns [`Kind::NotFound`] if there is no statement of this name.
    pub fn get(&self, name: &str) -> Result<NamedStatement> {
        self.0.get(name).cloned().ok_or_else(|| not_found(name))
    }

    pub fn remove(&mut self, name: Option<&str>) -> Result<()> {
        match name {
            Some(name) => self.0.remove(name).map(drop).ok_or_else(|| not_found(name)),
            None => {
                self.0.clear();
                Ok(())
            }
        }
    }
}

fn not_found(name: &str) -> Error {
    Error::not_found(format!("there is no prepared statement `{}`", name::printable(name)))
        .hint("PREPARE it in this session first")
}

impl NamedStatement {
    /// Evaluates the values of an EXECUTE, and casts them to the declared types. `params` are the parameters of EXECUTE itself.
    pub async fn values(
        &self,
        sql: &Sql,
        principal: &Principal,
        given: Vec<Expr>,
        params: Vec<Value>,
    ) -> Result<Vec<Value>> {
        let wanted = self.prepared.parameter_types().len();
        if given.len() != wanted {
            return Err(count_differs("prepared statement", wanted, given.len()));
        }
        if given.is_empty() {
            if !params.is_empty() {
                return Err(count_differs("statement", 0, params.len()));
            }
            return Ok(Vec::new());
        }
        let typed = given.into_iter().enumerate().map(|(at, value)| match self.types.get(at) {
            Some(data_type) => Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(value),
                data_type: data_type.clone(),
                array: false,
                format: None,
            },
            None => value,
        });
        let columns: Vec<String> =
            typed.enumerate().map(|(at, value)| format!("{} AS v{at}", parse::text_of(&value))).collect();
        let text = format!("SELECT {}", columns.join(", "));
        let Answer::Rows(mut rows) = sql.run(principal, &text, params, Limits::default()).await? else {
            return Err(Error::internal("a query has no rows"));
        };
        let batches = rows.collect().await?;
        let Some(batch) = batches.iter().find(|batch| batch.num_rows() == 1) else {
            return Err(Error::internal("values of one statement are not one row"));
        };
        let fields = batch.schema();
        batch.columns().iter().zip(fields.fields()).map(|(array, field)| value(array, field)).collect()
    }
}

fn value(array: &ArrayRef, field: &arrow::datatypes::Field) -> Result<Value> {
    if array.is_null(0) || *array.data_type() == Arrow::Null {
        return Ok(Value::Null);
    }
    // A decimal alone has no declared scale; a text is converted to the parameter's type.
    if matches!(array.data_type(), Arrow::Decimal128(..) | Arrow::Decimal256(..)) {
        let text = array_value_to_string(array, 0);
        return text
            .map(Value::String)
            .map_err(|e| Error::internal(format!("a number cannot be written as text: {e}")));
    }
    let data_type = sql_type::from_arrow(field)?;
    Ok(Value::from_array(array, &data_type, 0))
}
