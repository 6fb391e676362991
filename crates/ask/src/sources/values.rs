//! Looks for words that name no table or column as values, in tables small enough to be scanned.

use std::sync::Arc;

use table::Snapshot;
use types::{Column, DataType, Result};

use crate::cell::Cell;
use crate::evaluation::{Context, SourceResult, few_at_once};
use crate::sources::tables::{is_user_table, singular_and_plural};
use crate::sources::{Statement, format_count, quoted, quoted_table, section, short_name};

/// The number of rows up to which a table is scanned.
const ROWS_MAX: u64 = 100_000;
const TABLES_MAX: usize = 8;
const COLUMNS_MAX: usize = 12;
const WORDS_MAX: usize = 4;
const SHOWN: usize = 3;

pub(crate) async fn run(context: &Context, words: &[Vec<String>]) -> Result<SourceResult> {
    let tables: Vec<Arc<Snapshot>> = context
        .view
        .tables()
        .into_iter()
        .filter(|table| {
            is_user_table(table.def())
                && (1..=ROWS_MAX).contains(&table.rows())
                && texts(table).next().is_some()
        })
        .take(TABLES_MAX)
        .collect();
    let many = words.iter().map(Vec::len).sum::<usize>() > WORDS_MAX;
    if words.is_empty() || many || tables.is_empty() {
        return Ok(SourceResult::default());
    }
    let work = tables.iter().map(|table| find(context, table, words)).collect();
    let mut outcome = SourceResult::default();
    for found in few_at_once(work).await {
        if let Some((section, as_of)) = found? {
            outcome.answered = true;
            outcome.as_of = outcome.as_of.max(as_of);
            outcome.sections.push(section);
        }
    }
    if !outcome.answered {
        outcome.detail = Some("no table has such a value".into());
    }
    Ok(outcome)
}

fn texts(table: &Snapshot) -> impl Iterator<Item = &Column> {
    table.def().schema.columns.iter().filter(|c| c.data_type == DataType::String).take(COLUMNS_MAX)
}

/// Returns the rows that have, for every word, that word or one of its alternatives as a value.
async fn find(
    context: &Context,
    table: &Snapshot,
    words: &[Vec<String>],
) -> Result<Option<(crate::answer::Section, Option<i64>)>> {
    let mut statement = Statement::default();
    for alternatives in words {
        let params: Vec<String> =
            alternatives.iter().map(|word| singular_and_plural(&mut statement, word)).collect();
        let params = params.join(", ");
        let any: Vec<String> =
            texts(table).map(|c| format!("lower({}) IN ({params})", quoted(&c.name))).collect();
        statement.is(format!("({})", any.join(" OR ")));
    }
    let def = table.def();
    let from = quoted_table(&def.name);
    let sql = format!("SELECT count(*), max(_time) FROM {from}{}", statement.filter());
    let row = context.rows(&sql, &statement.params, 1).await?.rows.pop().unwrap_or_default();
    let count = row.first().and_then(Cell::int).unwrap_or(0);
    if count == 0 {
        return Ok(None);
    }
    let shown = def.schema.columns.iter().filter(|c| c.data_type != DataType::Binary).take(COLUMNS_MAX);
    let columns: Vec<String> =
        std::iter::once("_time".to_owned()).chain(shown.map(|c| quoted(&c.name))).collect();
    let sql = format!(
        "SELECT {} FROM {from}{} ORDER BY _row_id DESC LIMIT {SHOWN}",
        columns.join(", "),
        statement.filter()
    );
    let rows = context.rows(&sql, &statement.params, SHOWN).await?;
    let name = short_name(&def.name);
    let one = |alternatives: &Vec<String>| {
        alternatives.iter().map(|word| format!("“{word}”")).collect::<Vec<_>>().join(" or ")
    };
    let phrases: Vec<String> = words.iter().map(one).collect();
    let text = format!("{name} has {} with {}.", format_count(count, "row"), phrases.join(" and "));
    Ok(Some((section(name, name, text, &rows, &sql, &statement.params), row.get(1).and_then(Cell::time))))
}
