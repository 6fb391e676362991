//! Writes and deletes in a period of time.
//!
//! Rows carry the time of their commit, deletes only its lsn. So a moment is mapped to two lsns by the rows around it: that of
//! the last row of any table before it, and that of the first one after it. A delete committed between those two may have
//! happened before or after the moment. The answer then gives a range.

use std::sync::Arc;

use table::Snapshot;
use table::materializer::Checkpoint;
use types::{Column, DataType, Error, Kind, Lsn, Micros, Result, RowId, name};

use crate::answer::Section;
use crate::cell::Cell;
use crate::evaluation::{Context, SourceResult, few_at_once};
use crate::sources::tables::is_large;
use crate::sources::{
    Statement, column, format_count, format_integer, not_understood_sentence, quoted, quoted_table, section,
    short_name,
};
use crate::task::ChangesQuery;
use crate::time::Window;

/// The number of tables that are read; the others are only counted.
const TABLES_MAX: usize = 100;
/// The number of tables whose rows are shown.
const EXAMPLES_MAX: usize = 8;
const EXAMPLES: usize = 3;
/// The number of columns of an example row.
const COLUMNS_MAX: usize = 8;

/// The changes of one table.
struct TableChanges {
    table: Arc<Snapshot>,
    /// Live rows that were written in the window.
    written: i64,
    newest: Option<Micros>,
    /// The smallest and largest possible number of row versions deleted or replaced. `None` if the delete history does not reach
    /// back that far.
    ended: Option<(i64, i64)>,
}

/// The commits around a moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// The last commit known to be before the moment.
    before: Lsn,
    /// The first commit known not to be before it.
    after: Option<Lsn>,
}

pub(crate) async fn run(context: &Context, query: &ChangesQuery) -> Result<SourceResult> {
    if query.unseen_notes {
        let detail =
            if context.all { "there are no notes here" } else { "this key may not see which notes changed" };
        return Ok(SourceResult { detail: Some(detail.into()), ..SourceResult::default() });
    }
    let all = context.view.tables();
    let wanted: Vec<Arc<Snapshot>> = all
        .iter()
        .filter(|t| query.tables.is_empty() || query.tables.contains(&t.def().name))
        .cloned()
        .collect();
    let not_read = wanted.len().saturating_sub(TABLES_MAX);
    let (moments, window) = (all.clone(), query.window.clone());
    let last = (context.lsn, context.time);
    let find = move || bounds(&moments, &window, last);
    // This takes a few lookups in each table.
    let bounds =
        if all.len() <= TABLES_MAX { context.run_brief(find).await? } else { context.run(find).await? };
    let work =
        wanted.iter().take(TABLES_MAX).map(|table| changed(context, table, &query.window, bounds)).collect();
    let mut changed = Vec::new();
    for one in few_at_once(work).await {
        changed.push(one?);
    }
    let is_record =
        |changed: &TableChanges| name::is_reserved(&changed.table.def().name) && query.tables.is_empty();
    let happened =
        |changed: &&TableChanges| changed.written > 0 || changed.ended.is_some_and(|(_, most)| most > 0);
    let records: i64 = changed.iter().filter(|c| is_record(c)).map(|c| c.written).sum();
    let own: Vec<&TableChanges> = changed.iter().filter(|c| !is_record(c)).filter(happened).collect();
    // Vaults come first, then the tables with the newest rows.
    let mut own = own;
    own.sort_by_key(|c| (!c.table.def().is_vault(), std::cmp::Reverse(c.newest)));
    let unknown: Vec<&str> = changed
        .iter()
        .filter(|c| !is_record(c) && c.ended.is_none())
        .map(|c| short_name(&c.table.def().name))
        .collect();

    let phrase = &query.window.phrase;
    let mut text = match own.len() {
        _ if query.others => unchanged_sentence(phrase, &changed, is_record),
        0 => format!("Nothing changed {phrase}."),
        _ => format!("Changed {phrase}: {}.", own.iter().map(|c| describe(c)).collect::<Vec<_>>().join("; ")),
    };
    if query.default_window {
        text += " (No time was named, so the last day is shown.)";
    }
    if records > 0 && !query.others {
        text += &format!(
            " Polynya itself recorded {} about this machine and its requests.",
            format_count(records, "row")
        );
    }
    if !unknown.is_empty() {
        text += &format!(" Deletes are not remembered so far back in {}.", unknown.join(", "));
    }
    if not_read > 0 {
        text += &format!(" {} more were not checked.", format_count(not_read as i64, "table"));
    }
    let certain = own.iter().any(|c| c.written > 0 || c.ended.is_some_and(|(least, _)| least > 0));
    let open = !own.is_empty() || !unknown.is_empty() || not_read > 0;
    let mut verdict = if certain { Some(true) } else { (!open).then_some(false) };
    if query.others {
        verdict = None;
    } else if query.negated {
        verdict = verdict.map(|holds| !holds);
    }
    if let Some(unknown) = not_understood_sentence(&query.not_understood) {
        text += &format!(" {unknown}");
        verdict = None;
    }
    let shown: Vec<&TableChanges> = if query.others {
        changed.iter().filter(|c| !is_record(c) && c.is_certainly_unchanged()).collect()
    } else {
        changed.iter().filter(|c| c.written > 0 || !c.is_certainly_unchanged()).collect()
    };
    let mut sections = vec![overview(text, &shown)];
    let own = if query.others { Vec::new() } else { own };
    let mut examples = own.iter().filter(|c| c.written > 0).take(EXAMPLES_MAX);
    let work = examples.by_ref().map(|c| newest_rows(context, c, &query.window)).collect();
    for section in few_at_once(work).await {
        sections.push(section?);
    }
    // If no row was written, the answer holds as of the last commit.
    let as_of = changed.iter().filter_map(|c| c.newest).max().or(last.1.filter(|time| *time > 0));
    Ok(SourceResult { sections, answered: true, verdict, as_of, detail: None })
}

fn describe(changed: &TableChanges) -> String {
    let def = changed.table.def();
    let name = short_name(&def.name);
    let (least, most) = changed.ended.unwrap_or((0, 0));
    // Replacing a row ends one version and writes another.
    let (what, wrote, version, ended) = match (def.is_vault(), def.is_keyed()) {
        (true, _) => ("file", "new or replaced", "version", "deleted or replaced"),
        (_, true) => ("row", "new or replaced", "version", "deleted or replaced"),
        (_, false) => ("row", "inserted", "row", "deleted"),
    };
    let mut parts = Vec::new();
    if changed.written > 0 {
        parts.push(format!("{} {wrote}", format_count(changed.written, what)));
    }
    match (least, most) {
        (_, 0) => {}
        (least, most) if least == most => parts.push(format!("{} {ended}", format_count(most, version))),
        (least, most) => {
            parts.push(format!("{} to {} {ended}", format_integer(least), format_count(most, version)))
        }
    }
    format!("{name} ({})", parts.join(", "))
}

impl TableChanges {
    fn is_certainly_unchanged(&self) -> bool {
        self.written == 0 && self.ended.is_some_and(|(_, most)| most == 0)
    }
}

/// Returns the sentences that list the tables without changes, and those for which this is uncertain.
fn unchanged_sentence(
    phrase: &str,
    changed: &[TableChanges],
    is_record: impl Fn(&TableChanges) -> bool,
) -> String {
    let names = |is: &dyn Fn(&TableChanges) -> bool| -> Vec<String> {
        let these = changed.iter().filter(|c| !is_record(c) && is(c));
        these.map(|c| short_name(&c.table.def().name).to_owned()).collect()
    };
    let same = names(&TableChanges::is_certainly_unchanged);
    let is_open =
        |c: &TableChanges| c.written == 0 && c.ended.is_some_and(|(least, most)| least == 0 && most > 0);
    let open = names(&is_open);
    let mut text = if same.is_empty() {
        format!("No table is known to be unchanged {phrase}.")
    } else {
        format!("Not changed {phrase}: {}.", same.join(", "))
    };
    if !open.is_empty() {
        text += &format!(" For {} it is not known.", open.join(", "));
    }
    text
}

fn overview(text: String, shown: &[&TableChanges]) -> Section {
    let shown = || shown.iter();
    let ranges = shown().any(|c| c.ended.is_some_and(|(least, most)| least < most));
    let rows = shown().map(|c| {
        let mut row = vec![Cell::Text(short_name(&c.table.def().name).to_owned()), Cell::Int(c.written)];
        row.push(c.ended.map_or(Cell::Null, |(least, _)| Cell::Int(least)));
        if ranges {
            row.push(c.ended.map_or(Cell::Null, |(_, most)| Cell::Int(most)));
        }
        row.push(c.newest.map_or(Cell::Null, Cell::Time));
        row.iter().map(Cell::json).collect()
    });
    let mut columns =
        vec![column("table", "string"), column("inserted", "int64"), column("deleted", "int64")];
    if ranges {
        columns.push(column("deleted_at_most", "int64"));
    }
    columns.push(column("newest", "timestamp"));
    Section {
        title: "What changed".into(),
        text,
        columns,
        rows: rows.collect(),
        source: "changes".into(),
        ..Section::default()
    }
}

async fn changed(
    context: &Context,
    table: &Arc<Snapshot>,
    window: &Window,
    bounds: (Moment, Option<Moment>),
) -> Result<TableChanges> {
    let ended = match deleted_range(table, bounds) {
        Ok(ended) => Some(ended),
        Err(error) if error.kind() == Kind::NotFound => None,
        Err(error) => return Err(error),
    };
    let untouched = window.from > Micros::MIN && table.row_at_time(window.from)? >= table.next_row();
    if untouched {
        return Ok(TableChanges { table: table.clone(), written: 0, newest: None, ended });
    }
    // If no row is older than the window, all rows of the table are in it; only the newest remains to be found.
    let is_whole =
        window.to.is_none() && table.row_at_time(window.from)? == table.row_at_time(Micros::MIN)?;
    if is_whole && table.rows() > 0 {
        let near = near_end(table, window);
        let sql = format!("SELECT max(_time) FROM {}{}", quoted_table(&table.def().name), near.filter());
        let rows = context.rows(&sql, &near.params, 1).await?.rows;
        if let Some(newest) = rows.first().and_then(|row| row[0].time()) {
            let written = i64::try_from(table.rows()).unwrap_or(i64::MAX);
            return Ok(TableChanges { table: table.clone(), written, newest: Some(newest), ended });
        }
    }
    let mut statement = Statement::default();
    statement.within("_time", Some(window));
    let sql =
        format!("SELECT count(*), max(_time) FROM {}{}", quoted_table(&table.def().name), statement.filter());
    let rows = context.rows(&sql, &statement.params, 1).await?.rows;
    let row = rows.first().ok_or_else(|| Error::internal("a count has a row"))?;
    Ok(TableChanges {
        table: table.clone(),
        written: row[0].int().unwrap_or(0),
        newest: row[1].time(),
        ended,
    })
}

fn deleted_range(table: &Snapshot, (from, to): (Moment, Option<Moment>)) -> Result<(i64, i64)> {
    let since = |lsn: Lsn| {
        table
            .deleted_since(&Checkpoint { row: RowId(u64::MAX), lsn, state: Vec::new() })
            .map(|rows| rows.len() as i64)
    };
    // The commit of the row at the boundary may itself contain deletes.
    let certainly_after =
        |moment: Moment| moment.after.map_or(Ok(0), |after| since(Lsn(after.0.saturating_sub(1))));
    let perhaps_after = |moment: Moment| since(moment.before);
    let most = perhaps_after(from)? - to.map_or(Ok(0), certainly_after)?;
    let least = certainly_after(from)? - to.map_or(Ok(0), perhaps_after)?;
    Ok((least.max(0), most.max(0)))
}

/// Returns the commits around both ends of a window. `last` is the newest commit that may be revealed. Without its time, that
/// commit may be older than the window or inside it.
fn bounds(
    tables: &[Arc<Snapshot>],
    window: &Window,
    last: (Lsn, Option<Micros>),
) -> Result<(Moment, Option<Moment>)> {
    let moment = |time: Micros| -> Moment {
        let (lsn, newest) = last;
        if newest.is_some_and(|newest| newest < time) {
            return Moment { before: lsn, after: None };
        }
        let mut moment = Moment { before: Lsn(0), after: newest.map(|_| lsn) };
        for table in tables {
            // A damaged table gives no bounds; the other tables do.
            let Ok(first) = table.row_at_time(time) else { continue };
            moment.before = moment.before.max(last_before(table, first));
            moment.after = moment.after.into_iter().chain(first_from(table, first)).min();
        }
        moment
    };
    let from = match window.from {
        Micros::MIN => Moment { before: Lsn(0), after: Some(Lsn(1)) },
        from => moment(from),
    };
    Ok((from, window.to.map(moment)))
}

/// The number of row ids searched for a live row. Deleted rows have no lsn.
const LOOK: u64 = 64;

/// Returns the commit of the last live row below `first`.
fn last_before(table: &Snapshot, first: RowId) -> Lsn {
    let from = first.0.saturating_sub(LOOK).max(1);
    (from..first.0).rev().find_map(|row| table.lsn_of(RowId(row)).ok().flatten()).unwrap_or(Lsn(0))
}

/// Returns the commit of the first live row from `first` on.
fn first_from(table: &Snapshot, first: RowId) -> Option<Lsn> {
    let end = first.0.saturating_add(LOOK).min(table.next_row().0);
    (first.0..end).find_map(|row| table.lsn_of(RowId(row)).ok().flatten())
}

/// The number of rows at the end of a table that are searched first for the newest ones. So a large table is not read for three
/// rows.
const NEAR_END: u64 = 10_000;

fn near_end(table: &Snapshot, window: &Window) -> Statement {
    let mut statement = Statement::default();
    statement.within("_time", Some(window));
    // The bound is a parameter, so that one cached plan serves while rows arrive.
    let from = statement.param(table.next_row().0.saturating_sub(NEAR_END) as i64);
    statement.is(format!("_row_id >= {from}"));
    statement
}

async fn newest_rows(context: &Context, changed: &TableChanges, window: &Window) -> Result<Section> {
    let def = changed.table.def();
    let mut columns = vec!["_time".to_owned()];
    let is_small = |c: &&Column| c.data_type != DataType::Binary && !is_large(def, &c.name);
    let shown = def.schema.columns.iter().filter(is_small);
    columns.extend(shown.map(|c| quoted(&c.name)).take(COLUMNS_MAX));
    let mut statement = Statement::default();
    statement.within("_time", Some(window));
    let select = |filter: &str| {
        let (columns, table) = (columns.join(", "), quoted_table(&def.name));
        format!("SELECT {columns} FROM {table}{filter} ORDER BY _row_id DESC LIMIT {EXAMPLES}")
    };
    let sql = select(&statement.filter());
    let mut rows = None;
    if window.to.is_none() {
        let near = near_end(&changed.table, window);
        let found = context.rows(&select(&near.filter()), &near.params, EXAMPLES).await?;
        rows = (found.rows.len() == EXAMPLES).then_some(found);
    }
    let rows = match rows {
        Some(rows) => rows,
        None => context.rows(&sql, &statement.params, EXAMPLES).await?,
    };
    let name = short_name(&def.name);
    let title = format!("Newest in {name}");
    Ok(section("changes", title, String::new(), &rows, &sql, &statement.params))
}
