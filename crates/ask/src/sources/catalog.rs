//! The list of things that can be asked about.

use crate::answer::Section;
use crate::evaluation::{Context, SourceResult};
use crate::sources::{column, format_count, format_integer, is_user_table, short_name};

const TABLES_MAX: usize = 100;
const NAMED_MAX: usize = 12;

pub(crate) fn run(context: &Context) -> SourceResult {
    let tables = context.view.tables();
    let rows = tables.iter().take(TABLES_MAX).map(|table| {
        let columns: Vec<&str> =
            table.def().schema.columns.iter().map(|c| c.name.as_str()).take(50).collect();
        vec![short_name(&table.def().name).into(), table.rows().into(), columns.join(", ").into()]
    });
    let are = if tables.len() == 1 { "is" } else { "are" };
    let section = Section {
        title: "Tables".into(),
        text: format!("There {are} {}. {}", format_count(tables.len() as i64, "table"), help(context)),
        columns: vec![column("table", "string"), column("rows", "int64"), column("columns", "string")],
        rows: rows.collect(),
        source: "tables".into(),
        ..Section::default()
    };
    SourceResult { sections: vec![section], answered: true, as_of: context.time, ..SourceResult::default() }
}

/// Returns one paragraph on possible questions, for an asker whose question has no answer.
pub(crate) fn help(context: &Context) -> String {
    let tables = context.view.tables();
    let has = |name: &str| tables.iter().any(|table| table.def().name == name);
    let own: Vec<&str> = tables
        .iter()
        .filter(|table| is_user_table(table.def()))
        .map(|table| short_name(&table.def().name))
        .collect();
    let mut can = Vec::new();
    if !own.is_empty() {
        let named: Vec<String> = own.iter().take(NAMED_MAX).map(|name| format!("`{name}`")).collect();
        let more = own.len().saturating_sub(NAMED_MAX);
        let more =
            if more > 0 { format!(" and {} more", format_integer(more as i64)) } else { String::new() };
        can.push(format!(
            "the tables {}{more} (how many, average, highest, latest, of a time or a value)",
            named.join(", ")
        ));
    }
    if has("polynya.metrics") {
        can.push("this machine (disk, memory, CPU, load, network)".to_owned());
    }
    if has("polynya.requests") {
        can.push("requests to this server (slow, failed, how many)".to_owned());
    }
    if context.search.is_some() && context.view.searchables().iter().any(|table| has_text(table.def())) {
        can.push("notes and other texts, by their words".to_owned());
    }
    can.push("what changed (in the last hour, today, since 14:00)".to_owned());
    format!("You can ask about {}.", can.join("; "))
}

/// Returns true if a table has a text index.
pub(crate) fn has_text(def: &types::TableDef) -> bool {
    def.indexes.iter().any(|index| index.kind == "text")
}
