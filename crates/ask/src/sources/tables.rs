//! Answers from any table: counts, values, windows of time, averages, highest and latest rows.

use types::{Column, DataType, Result, TIME_NAME, TableDef, name};

use crate::cell::Cell;
use crate::comparison::{Comparison, Unit};
use crate::evaluation::{Context, ResultTable, SourceResult};
use crate::interpreter::{is_duration, is_number};
use crate::number::Number;
use crate::sources::{
    Statement, format_column_value, format_count, format_integer, not_understood_sentence, quoted,
    quoted_table, section, short_name, time_column,
};
use crate::task::{Aggregate, Conjunction, TableQuery};
use crate::time::{self, format_time};
use crate::vocabulary::singular;

const ROWS: usize = 5;
const GROUPS: usize = 20;
/// The number of columns of the shown rows.
const COLUMNS_MAX: usize = 12;
/// The number of columns in which a word is looked for as a value. The next constant limits the words.
const VALUE_COLUMNS_MAX: usize = 12;
const VALUE_WORDS_MAX: usize = 4;

pub(crate) async fn run(context: &Context, query: &TableQuery) -> Result<SourceResult> {
    let def = &query.def;
    if query.join == Conjunction::Unclear {
        let detail = "“and” together with “or” is not understood: ask one of them, or ask in SQL";
        return Ok(SourceResult { detail: Some(detail.into()), ..SourceResult::default() });
    }
    let mut statement = Statement::default();
    within(&mut statement, query);
    // The conditions besides the window, in SQL and in words.
    let (mut conditions, mut phrases) = (Vec::new(), Vec::new());
    let mut missing = Vec::new();
    for named in &query.values {
        let mut named = named.clone();
        for word in &named.unsure {
            if !has_value(context, def, named.column, word).await? {
                named.values.retain(|value| value != word);
                missing.push(word.clone());
            }
        }
        if named.values.is_empty() {
            continue;
        }
        let column = &def.schema.columns[named.column];
        let any: Vec<String> =
            named.values.iter().map(|value| is_value(&mut statement, column, value)).collect();
        conditions.push(one_of(&any, named.negated));
        let is = if named.negated { "is not" } else { "is" };
        phrases.push(format!("{} {is} {}", column.name, named.values.join(" or ")));
    }
    let mut left = values(context, query, &mut statement, &mut conditions, &mut phrases).await?;
    left.extend(missing);
    for (column, is_missing) in &query.missing {
        let name = &def.schema.columns[*column].name;
        let (is_null, is) = if *is_missing { ("IS NULL", "is") } else { ("IS NOT NULL", "is not") };
        conditions.push(format!("{} {is_null}", quoted(name)));
        phrases.push(format!("{name} {is} missing"));
    }
    let figured = query.figures();
    // `is the average price above 10` compares the average, not each row.
    let compared: Vec<&(usize, Comparison)> = query.compared().collect();
    let mut notes = Vec::new();
    for (column, comparison) in query.comparisons.iter().filter(|one| !compared.contains(one)) {
        let column = &def.schema.columns[*column];
        match number(column, comparison) {
            Ok((number, note)) => {
                let number = number_param(&mut statement, column, number);
                let condition = format!("{} {} {number}", quoted(&column.name), comparison.op.sql());
                let (condition, is) = if comparison.negated {
                    (one_of(&[condition], true), "is not")
                } else {
                    (condition, "is")
                };
                conditions.push(condition);
                phrases.push(format!("{} {is} {}", column.name, comparison.phrase));
                notes.extend(note);
            }
            Err(why) => notes.push(why),
        }
    }
    let unclear = !query.unclear.is_empty() || notes.iter().any(|note| note.starts_with("Cannot"));
    for comparison in &query.unclear {
        let numbers: Vec<&str> = (0..def.schema.columns.len())
            .filter(|column| is_number(def, *column))
            .map(|column| def.schema.columns[column].name.as_str())
            .take(COLUMNS_MAX)
            .collect();
        let of = if numbers.is_empty() {
            "has no column of numbers".to_owned()
        } else {
            format!("has {}", numbers.join(", "))
        };
        notes.push(format!(
            "It is not clear which column “{}” refers to: {} {of}.",
            comparison.phrase,
            short_name(&def.name)
        ));
    }
    let (join_sql, join) = if query.join == Conjunction::Any { (" OR ", " or ") } else { (" AND ", " and ") };
    if !conditions.is_empty() {
        statement.is(format!("({})", conditions.join(join_sql)));
    }
    let answer = TableQueryRun { context, query, statement, phrase: phrases.join(join) };
    let mut outcome = match (query.group, figured) {
        (Some(group), _) => answer.answer_groups(group).await?,
        (None, true) => answer.answer_aggregate(&compared).await?,
        (None, false) if query.distinct.is_some() => answer.answer_distinct().await?,
        (None, false) => answer.answer_count().await?,
    };
    if query.scope.negated {
        outcome.verdict = outcome.verdict.map(|holds| !holds);
    }
    notes.extend(not_understood_sentence(&left));
    if unclear || !left.is_empty() {
        outcome.verdict = None;
    }
    if let Some(section) = outcome.sections.first_mut() {
        if let (Some(holds), true) =
            (outcome.verdict, query.whether || !compared.is_empty() || query.count.is_some())
        {
            section.text = format!("{}: {}", if holds { "Yes" } else { "No" }, section.text);
        }
        for note in notes {
            section.text += &format!(" {note}");
        }
    }
    Ok(outcome)
}

/// A question with its statement.
struct TableQueryRun<'a> {
    context: &'a Context,
    query: &'a TableQuery,
    statement: Statement,
    phrase: String,
}

impl TableQueryRun<'_> {
    fn table(&self) -> String {
        quoted_table(&self.query.def.name)
    }

    fn name(&self) -> &str {
        short_name(&self.query.def.name)
    }

    /// Returns the window and the conditions in words, ` in the last hour where kind is click`, with the column that the window
    /// applies to.
    fn when(&self) -> String {
        let def = &self.query.def;
        let named = self.query.time.map(|column| def.schema.columns[column].name.as_str());
        let declared = def.time.and_then(|id| def.schema.column(id)).map(|column| column.name.as_str());
        let window = match (self.query.scope.window.as_ref().map(|window| &window.phrase), named.or(declared))
        {
            (None, _) => String::new(),
            (Some(phrase), _) if name::is_reserved(&def.name) => format!(" {phrase}"),
            (Some(phrase), Some(column)) => format!(" with {column} {phrase}"),
            (Some(phrase), None) => match phrase.strip_suffix(')') {
                Some(phrase) => format!(" stored {phrase}, by `_time`)"),
                None => format!(" stored {phrase} (by `_time`)"),
            },
        };
        let conditions =
            if self.phrase.is_empty() { String::new() } else { format!(" where {}", self.phrase) };
        window + &conditions
    }

    /// Returns the time column that orders the rows.
    fn time(&self) -> String {
        let def = &self.query.def;
        self.query.time.map_or_else(|| time_column(def), |c| quoted(&def.schema.columns[c].name))
    }

    /// Returns `` by `placed` `` if the newest or the oldest is asked for and the table has its own time columns that could
    /// decide it.
    fn by(&self) -> String {
        let is_asked = matches!(self.query.scope.aggregate, Some(Aggregate::Latest | Aggregate::Oldest));
        let def = &self.query.def;
        let is_time = |c: &&Column| matches!(c.data_type, DataType::Timestamp | DataType::Date);
        let is_open = def.schema.columns.iter().any(|c| is_time(&c)) && !name::is_reserved(&def.name);
        if is_asked && is_open { format!(" by `{}`", self.time().trim_matches('"')) } else { String::new() }
    }

    /// Answers with the number of rows and some of them.
    async fn answer_count(self) -> Result<SourceResult> {
        let def = &self.query.def;
        let time = self.time();
        let sql = format!("SELECT count(*), max({time}) FROM {}{}", self.table(), self.statement.filter());
        let row = self.context.rows(&sql, &self.statement.params, 1).await?.rows.pop().unwrap_or_default();
        let count = row.first().and_then(Cell::int).unwrap_or(0);
        let mut newest = row.get(1).and_then(Cell::time);
        if newest.is_none() {
            // Without any matching row, the newest row of the whole table gives the time.
            newest = self.context.newest(&def.name).await?;
        }
        let mut text = format!("{} has {}{}.", self.name(), format_count(count, "row"), self.when());
        // `do orders have a price?` asks about the column in a way that is not understood, so there is no verdict.
        let open = self.query.whether && self.phrase.is_empty() && !self.query.columns.is_empty();
        let mut verdict = ((self.query.whether && !open) || !self.phrase.is_empty()).then_some(count > 0);
        if let Some(comparison) = &self.query.count {
            let holds = comparison.op.fits(Number::from(count).order(comparison.number));
            text += &verdict_sentence(holds, &comparison.phrase);
            verdict = Some(holds);
        } else if verdict.is_none() && (self.query.scope.window.is_some() || self.query.scope.negated) {
            verdict = Some(count > 0);
        }
        let limit = self.query.scope.limit.unwrap_or(ROWS);
        let order = if self.query.scope.aggregate == Some(Aggregate::Oldest) { "ASC" } else { "DESC" };
        let sql = format!(
            "SELECT {} FROM {}{} ORDER BY {time} {order}{}, _row_id {order} LIMIT {limit}",
            self.shown_columns(),
            self.table(),
            self.statement.filter(),
            // A row without a time is neither the newest nor the oldest.
            if time == quoted(TIME_NAME) { "" } else { " NULLS LAST" }
        );
        let wants_rows = self.query.scope.aggregate != Some(Aggregate::Count);
        let (sql, rows) = match count > 0 && wants_rows {
            true => (sql.clone(), self.context.rows(&sql, &self.statement.params, limit).await?),
            false => {
                let sql =
                    format!("SELECT count(*) AS count FROM {}{}", self.table(), self.statement.filter());
                let columns = vec![crate::sources::column("count", "int64")];
                (sql, ResultTable { columns, rows: vec![vec![Cell::Int(count)]] })
            }
        };
        let which = if order == "ASC" { "oldest" } else { "newest" };
        let by = self.by();
        if wants_rows && rows.rows.len() < usize::try_from(count).unwrap_or(usize::MAX) {
            text += &match rows.rows.len() {
                1 => format!(" The {which}{by} is shown."),
                shown => format!(" The {} {which}{by} are shown.", format_integer(shown as i64)),
            };
        } else if wants_rows && count > 0 && self.query.scope.limit.is_some() {
            text += &format!(" All are shown, the {which}{by} first.");
        }
        if self.query.when && !by.is_empty() {
            let at = rows.columns.iter().position(|column| quoted(&column.name) == time);
            let first = at.and_then(|at| rows.rows.first()?.get(at)?.time());
            text +=
                &first.map_or(String::new(), |first| format!(" The {which} is of {}.", format_time(first)));
        }
        Ok(self.outcome(text, &rows, &sql, verdict, newest))
    }

    /// Answers with the number of distinct values of a column.
    async fn answer_distinct(self) -> Result<SourceResult> {
        let def = &self.query.def;
        let name = self.query.distinct.map_or("", |column| &def.schema.columns[column].name);
        let sql = format!(
            "SELECT count(DISTINCT {}) AS count, max(_time) AS newest FROM {}{}",
            quoted(name),
            self.table(),
            self.statement.filter()
        );
        let rows = self.context.rows(&sql, &self.statement.params, 1).await?;
        let row = rows.rows.first().cloned().unwrap_or_default();
        let count = row.first().and_then(Cell::int).unwrap_or(0);
        let mut text = format!(
            "{} has {} of {name}{}.",
            self.name(),
            format_count(count, "different value"),
            self.when()
        );
        let verdict = self.query.count.as_ref().map(|comparison| {
            let holds = comparison.op.fits(Number::from(count).order(comparison.number));
            text += &verdict_sentence(holds, &comparison.phrase);
            holds
        });
        Ok(self.outcome(text, &rows, &sql, verdict, row.get(1).and_then(Cell::time)))
    }

    /// Answers with an average, a sum, the highest or the lowest.
    async fn answer_aggregate(self, compared: &[&(usize, Comparison)]) -> Result<SourceResult> {
        let def = &self.query.def;
        let aggregate = self.query.scope.aggregate;
        let named = self.query.columns.iter().copied().find(|column| is_number(def, *column));
        let named = compared.first().map(|(column, _)| *column).or(named);
        let own: Vec<usize> = (0..def.schema.columns.len())
            .filter(|column| {
                is_number(def, *column) && !def.primary_key.contains(&def.schema.columns[*column].id)
            })
            .collect();
        let Some(column) = named.or(if let [only] = own[..] { Some(only) } else { None }) else {
            let names: Vec<&str> =
                own.iter().map(|c| def.schema.columns[*c].name.as_str()).take(COLUMNS_MAX).collect();
            let text = if names.is_empty() {
                format!("{} has no column of numbers.", self.name())
            } else {
                format!("Name one of the columns of {}: {}.", self.name(), names.join(", "))
            };
            return Ok(SourceResult { answered: false, detail: Some(text), ..SourceResult::default() });
        };
        let column = &def.schema.columns[column];
        let name = quoted(&column.name);
        let sql = format!(
            "SELECT count({name}) AS count, avg({name}) AS average, sum({name}) AS sum, min({name}) AS lowest, max({name}) AS highest, max({}) AS newest FROM {}{}",
            time_column(def),
            self.table(),
            self.statement.filter()
        );
        let figures = self.context.rows(&sql, &self.statement.params, 1).await?;
        let row = figures.rows.first().cloned().unwrap_or_default();
        let count = row.first().and_then(Cell::int).unwrap_or(0);
        let newest = row.get(5).and_then(Cell::time);
        if count == 0 {
            let text = format!("{} has no row with a {}{}.", self.name(), column.name, self.when());
            return Ok(self.outcome(text, &figures, &sql, None, newest));
        }
        let (at, word) = match aggregate {
            Some(Aggregate::Average) => (1, "average"),
            Some(Aggregate::Sum) => (2, "sum"),
            Some(Aggregate::Lowest) => (3, "lowest"),
            _ => (4, "highest"),
        };
        let value = row.get(at).filter(|cell| cell.number().is_some());
        let of = match word {
            "sum" => format!("The sum of {}", column.name),
            word => format!("The {word} {}", column.name),
        };
        let value_said =
            value.map_or("unknown".to_owned(), |value| format_column_value(&column.name, value, at == 1));
        let mut text = format!(
            "{of} in {}{} is {value_said}, of {}.",
            self.name(),
            self.when(),
            format_count(count, "row")
        );
        let mut verdicts = Vec::new();
        for comparison in compared.iter().map(|(_, comparison)| comparison) {
            match self::number(column, comparison) {
                Ok((bound, note)) => {
                    let Some(order) = value.and_then(|value| value.order(bound)) else { continue };
                    let holds = comparison.op.fits(order);
                    text += &verdict_sentence(holds, &comparison.phrase);
                    note.into_iter().for_each(|note| text += &format!(" {note}"));
                    verdicts.push(holds);
                }
                Err(why) => text += &format!(" {why}"),
            }
        }
        let holds = match self.query.join {
            Conjunction::Any => verdicts.contains(&true),
            _ => !verdicts.contains(&false),
        };
        let verdict = (!verdicts.is_empty() && verdicts.len() == compared.len()).then_some(holds);
        if at >= 3 {
            // The rows with the extreme value are shown.
            let order = if at == 3 { "ASC" } else { "DESC" };
            let limit = self.query.scope.limit.unwrap_or(1);
            let mut statement = self.statement.clone();
            statement.is(format!("{name} IS NOT NULL"));
            let sql = format!(
                "SELECT {} FROM {}{} ORDER BY {name} {order}, _row_id LIMIT {limit}",
                self.shown_columns(),
                self.table(),
                statement.filter()
            );
            let rows = self.context.rows(&sql, &statement.params, limit).await?;
            if rows.rows.len() > 1 {
                text +=
                    &format!(" The {} with the {word} are shown.", format_integer(rows.rows.len() as i64));
            }
            return Ok(self.outcome(text, &rows, &sql, verdict, newest));
        }
        Ok(self.outcome(text, &figures, &sql, verdict, newest))
    }

    /// Answers with one figure for each value of a column.
    async fn answer_groups(self, group: usize) -> Result<SourceResult> {
        let def = &self.query.def;
        let group = &def.schema.columns[group];
        let number = self.query.columns.iter().copied().find(|column| is_number(def, *column));
        let (figure_sql, word) = match (self.query.scope.aggregate, number) {
            (Some(Aggregate::Average), Some(column)) => {
                (format!("avg({})", quoted(&def.schema.columns[column].name)), "average")
            }
            (Some(Aggregate::Sum), Some(column)) => {
                (format!("sum({})", quoted(&def.schema.columns[column].name)), "sum")
            }
            (Some(Aggregate::Highest), Some(column)) => {
                (format!("max({})", quoted(&def.schema.columns[column].name)), "highest")
            }
            (Some(Aggregate::Lowest), Some(column)) => {
                (format!("min({})", quoted(&def.schema.columns[column].name)), "lowest")
            }
            _ => ("count(*)".to_owned(), "count"),
        };
        let order = if self.query.scope.aggregate == Some(Aggregate::Lowest) { "ASC" } else { "DESC" };
        // With other figures than counts, the number could mean groups or rows of each group, so it is ignored.
        let limit = self.query.scope.limit.filter(|_| word == "count").unwrap_or(GROUPS);
        let sql = format!(
            "SELECT {} AS {}, {figure_sql} AS {word}, max({}) AS newest FROM {}{} GROUP BY {} ORDER BY 2 {order} NULLS LAST, 1 LIMIT {limit}",
            quoted(&group.name),
            quoted(&group.name),
            time_column(def),
            self.table(),
            self.statement.filter(),
            quoted(&group.name)
        );
        let table = self.context.rows(&sql, &self.statement.params, limit).await?;
        let unit = number.filter(|_| word != "count").map(|column| def.schema.columns[column].name.as_str());
        let figure_of = |cell: &Cell| match unit {
            Some(column) => format_column_value(column, cell, word == "average"),
            None => cell.phrase(),
        };
        let some: Vec<String> = table
            .rows
            .iter()
            .take(5.max(if limit < GROUPS { limit } else { 0 }))
            .map(|row| format!("{}: {}", row[0].phrase(), figure_of(&row[1])))
            .collect();
        let of = match (word, unit) {
            ("sum", Some(column)) => format!("The sum of {column} in "),
            (_, Some(column)) => format!("The {word} {column} in "),
            (_, None) => String::new(),
        };
        let more = if table.rows.len() > some.len() { ", …" } else { "" };
        let text = match some.is_empty() {
            true => format!("{} has no rows{}.", self.name(), self.when()),
            false => {
                format!("{of}{} by {}{}: {}{more}.", self.name(), group.name, self.when(), some.join(", "))
            }
        };
        let newest = table.rows.iter().filter_map(|row| row.last().and_then(Cell::time)).max();
        Ok(self.outcome(text, &table, &sql, None, newest))
    }

    fn outcome(
        &self,
        text: String,
        rows: &ResultTable,
        sql: &str,
        verdict: Option<bool>,
        as_of: Option<i64>,
    ) -> SourceResult {
        let name = self.name();
        let section = section(name, name, text, rows, sql, &self.statement.params);
        SourceResult { sections: vec![section], answered: true, verdict, as_of, detail: None }
    }

    /// Returns the columns of the shown rows.
    fn shown_columns(&self) -> String {
        let def = &self.query.def;
        let large = |c: &&Column| c.data_type != DataType::Binary && !is_large(def, &c.name);
        let mut columns: Vec<String> =
            def.schema.columns.iter().filter(large).map(|c| quoted(&c.name)).take(COLUMNS_MAX).collect();
        columns.insert(0, "_time".into());
        columns.join(", ")
    }
}

/// Restricts the rows to the window, by the column that the question names, the table's time column or `_time`.
fn within(statement: &mut Statement, query: &TableQuery) {
    let def = &query.def;
    let named = query.time.map(|column| &def.schema.columns[column]);
    let time = named.map_or_else(|| time_column(def), time_of);
    statement.within(&time, query.scope.window.as_ref());
}

/// Returns a column of dates or times in the form that compares with a timestamp.
fn time_of(column: &Column) -> String {
    match column.data_type {
        DataType::Date => format!("CAST({} AS TIMESTAMP)", quoted(&column.name)),
        _ => quoted(&column.name),
    }
}

/// Returns true if a column has the value; asked of words that are also small words of English.
async fn has_value(context: &Context, def: &TableDef, column: usize, word: &str) -> Result<bool> {
    let mut statement = Statement::default();
    let is = is_value(&mut statement, &def.schema.columns[column], word);
    let sql = format!("SELECT 1 FROM {} WHERE {is} LIMIT 1", quoted_table(&def.name));
    Ok(!context.rows(&sql, &statement.params, 1).await?.rows.is_empty())
}

/// Looks for the words that were not understood among the values of the table. Returns those that are not there either.
async fn values(
    context: &Context,
    query: &TableQuery,
    statement: &mut Statement,
    conditions: &mut Vec<String>,
    phrases: &mut Vec<String>,
) -> Result<Vec<String>> {
    let def = &query.def;
    let texts: Vec<&Column> = def
        .schema
        .columns
        .iter()
        .filter(|c| c.data_type == DataType::String)
        .take(VALUE_COLUMNS_MAX)
        .collect();
    if query.value_words.is_empty() || texts.is_empty() {
        let nots = query.value_words.iter().filter_map(|bare| bare.not.clone());
        return Ok(query.scope.not_understood.iter().cloned().chain(nots).collect());
    }
    let mut lookup = Statement::default();
    let mut counts = Vec::new();
    let words: Vec<&String> =
        query.value_words.iter().flat_map(|bare| &bare.words).take(VALUE_WORDS_MAX).collect();
    for word in &words {
        let params = singular_and_plural(&mut lookup, word);
        for column in &texts {
            counts.push(format!("count(CASE WHEN lower({}) IN ({params}) THEN 1 END)", quoted(&column.name)));
        }
    }
    let sql = format!("SELECT {} FROM {}", counts.join(", "), quoted_table(&def.name));
    let row = context.rows(&sql, &lookup.params, 1).await?.rows.pop().unwrap_or_default();
    let mut left = query.scope.not_understood.clone();
    // Returns the columns that have a word as a value.
    let columns_of = |word: &String| -> Vec<&str> {
        let Some(nth) = words.iter().position(|known| *known == word) else { return Vec::new() };
        let of_word = row.iter().skip(nth * texts.len()).take(texts.len()).zip(&texts);
        of_word
            .filter(|(count, _)| count.int().unwrap_or(0) > 0)
            .map(|(_, column)| column.name.as_str())
            .collect()
    };
    for bare in &query.value_words {
        let columns: Vec<Vec<&str>> = bare.words.iter().map(columns_of).collect();
        // `click or something` is understood as a whole or not at all.
        if columns.iter().any(Vec::is_empty) {
            left.extend(bare.not.clone());
            continue;
        }
        let mut any = Vec::new();
        let mut alternatives = Vec::new();
        let negated = bare.not.is_some();
        let is = if negated { "is not" } else { "is" };
        let is_same = columns.windows(2).all(|two| two[0] == two[1]);
        for (word, columns) in bare.words.iter().zip(&columns) {
            let params = singular_and_plural(statement, word);
            any.extend(columns.iter().map(|name| format!("lower({}) IN ({params})", quoted(name))));
            alternatives.push(format!("{} {is} {word}", columns.join(" or ")));
        }
        conditions.push(one_of(&any, negated));
        phrases.push(match (negated, is_same) {
            // `country is not DE or AT` excludes both.
            (true, true) => format!("{} is not {}", columns[0].join(" or "), bare.words.join(" or ")),
            (true, false) => alternatives.join(" and "),
            (false, _) => alternatives.join(" or "),
        });
        left.retain(|other| !bare.words.contains(other));
    }
    Ok(left)
}

/// Returns the sentence of a verdict: ` That is above 5.`
fn verdict_sentence(holds: bool, phrase: &str) -> String {
    match (holds, phrase.strip_prefix("not ")) {
        (true, _) => format!(" That is {phrase}."),
        (false, Some(turned)) => format!(" That is {turned}."),
        (false, None) => format!(" That is not {phrase}."),
    }
}

/// Joins conditions by OR, or negates their disjunction. A null value counts as different from every named one.
fn one_of(conditions: &[String], negated: bool) -> String {
    let any = conditions.join(" OR ");
    match (negated, conditions.len()) {
        (true, _) => format!("({any}) IS NOT TRUE"),
        (false, 1) => any,
        (false, _) => format!("({any})"),
    }
}

/// Returns the parameters for a word and its singular: `clicks` may be the value `click`.
pub(crate) fn singular_and_plural(statement: &mut Statement, word: &str) -> String {
    let lower = word.to_lowercase();
    let one = singular(&lower);
    let mut params = statement.param(lower.as_str());
    if one != lower {
        let one = statement.param(one);
        params = format!("{params}, {one}");
    }
    params
}

fn is_value(statement: &mut Statement, column: &Column, value: &str) -> String {
    let name = quoted(&column.name);
    match &column.data_type {
        DataType::Bool => {
            let value = statement.param(matches!(value.to_lowercase().as_str(), "true" | "yes" | "on" | "1"));
            format!("{name} = {value}")
        }
        DataType::String => {
            let value = statement.param(value.to_lowercase());
            format!("lower({name}) = {value}")
        }
        DataType::Timestamp | DataType::Date => {
            let mut within =
                Statement { params: std::mem::take(&mut statement.params), ..Statement::default() };
            within.within(&time_of(column), time::window_of_word(value).as_ref());
            statement.params = within.params;
            format!("({})", within.conditions.join(" AND "))
        }
        _ => match Number::parse(value) {
            Some(number) => {
                let number = number_param(statement, column, number);
                format!("{name} = {number}")
            }
            None => {
                let value = statement.param(value.to_lowercase());
                format!("lower(CAST({name} AS VARCHAR)) = {value}")
            }
        },
    }
}

/// Returns a number as an operand for a column. Integers stay integers, so that blocks and keys can be pruned by them. A number
/// that a float would round is not passed as a float.
fn number_param(statement: &mut Statement, column: &Column, number: Number) -> String {
    let is_float = matches!(column.data_type, DataType::Float32 | DataType::Float64);
    let is_decimal = matches!(column.data_type, DataType::Decimal { .. });
    match number.to_i64().filter(|_| !is_float) {
        Some(int) => statement.param(int),
        None if is_float || (number.fits_in_float() && !is_decimal) => statement.param(number.to_f64()),
        // The text consists only of digits and a point, so it is safe in SQL.
        None => number.to_string(),
    }
}

/// Returns the number of a comparison in the unit of a column, and a remark on how it was interpreted.
fn number(column: &Column, comparison: &Comparison) -> Result<(Number, Option<String>), String> {
    let cannot = || format!("Cannot compare {} with “{}”.", column.name, comparison.phrase);
    match comparison.unit {
        None | Some(Unit::Percent) => Ok((comparison.number, None)),
        Some(Unit::Bytes(factor)) => Ok((comparison.number.times(factor).ok_or_else(cannot)?, None)),
        Some(Unit::Time(micros)) => {
            let micros = comparison.number.times(micros).ok_or_else(cannot)?;
            let name = column.name.to_lowercase();
            let unit = [
                ("_us", 1.0, "µs"),
                ("_ms", 1e3, "ms"),
                ("_s", 1e6, "s"),
                ("_sec", 1e6, "s"),
                ("_seconds", 1e6, "s"),
                ("_min", 6e7, "min"),
            ]
            .into_iter()
            .find(|(ending, ..)| name.ends_with(ending));
            let per = |per: f64| Number::parse(&(micros.to_f64() / per).to_string()).ok_or_else(cannot);
            match unit {
                Some((_, 1.0, _)) => Ok((micros, None)),
                Some((_, other, _)) => Ok((per(other)?, None)),
                None if is_duration(&name) => {
                    Ok((per(1e3)?, Some(format!("({} was taken to be in milliseconds.)", column.name))))
                }
                None => Err(cannot()),
            }
        }
    }
}

/// Returns true if a column holds whole notes.
pub(crate) fn is_large(def: &TableDef, column: &str) -> bool {
    def.is_vault() && matches!(column, "text" | "source")
}

/// Returns true if the values of a table may be searched for a word: not for system tables and vaults.
pub(crate) fn is_user_table(def: &TableDef) -> bool {
    !name::is_reserved(&def.name) && !def.is_vault()
}
