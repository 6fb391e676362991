//! Finds texts by their words: notes of a vault, and every other table with a text index.

use query::search::{Hit, Request, SearchResult};
use types::{Kind, Result};

use crate::answer::Section;
use crate::cell::{self, Cell};
use crate::evaluation::{Context, SourceResult};
use crate::sources::{catalog, column, format_count, not_understood_sentence, short_name};
use crate::task::NotesQuery;

/// The number of hits that an answer shows.
const HITS: usize = 5;
/// The number of hits shown if they contain only some of the words.
const NEAR_HITS: usize = 3;
const SNIPPET_CHARS: usize = 240;

/// The rows of one table: names of the shown columns, values, keys.
type HitRows = (Vec<String>, Vec<Vec<Cell>>, Vec<Vec<Cell>>);

/// One text as an answer shows it.
struct TextHit {
    table: String,
    name: String,
    title: String,
    snippet: String,
    modified: Option<i64>,
}

pub(crate) async fn run(context: &Context, query: &NotesQuery) -> Result<SourceResult> {
    let mut outcome = search(context, query).await?;
    if let (Some(unknown), Some(section)) =
        (not_understood_sentence(&query.not_understood), outcome.sections.first_mut())
    {
        section.text += &format!(" {unknown} Texts are found by their words.");
    }
    Ok(outcome)
}

async fn search(context: &Context, query: &NotesQuery) -> Result<SourceResult> {
    let nothing = |detail: String| Ok(SourceResult { detail: Some(detail), ..SourceResult::default() });
    let searchables = context.view.searchables();
    let any = searchables.iter().any(|table| catalog::has_text(table.def()));
    let Some(search) = context.search.as_ref().filter(|_| any) else {
        return nothing(
            "there are no notes here, and no table with a text index, that this key may search".into(),
        );
    };
    if query.words.is_empty() && query.count {
        return how_many(context).await;
    }
    if query.words.is_empty() {
        return Ok(list_tables(context, query));
    }
    let quoted_words: Vec<String> = query.words.iter().map(|word| format!("“{word}”")).collect();
    let request = |sign: &str, limit: usize| Request {
        limit,
        snippet_chars: SNIPPET_CHARS,
        deadline: Some(context.due.saturating_duration_since(std::time::Instant::now())),
        fields: Some(vec!["title".into(), "modified".into()]),
        ..Request::new(query.words.iter().map(|word| term(sign, word)).collect::<Vec<_>>().join(" "))
    };
    let found = match search.run_in(context.view.clone(), request("+", HITS)).await {
        Err(error) if error.kind() == Kind::NotFound => return nothing(error.message().to_owned()),
        found => found?,
    };
    if found.hits.is_empty() {
        let detail = format!("no text has {}", quoted_words.join(" and "));
        if query.words.len() < 2 {
            return nothing(detail);
        }
        // Partial hits are not an answer, and the text says so.
        let near = text_hits(&search.run_in(context.view.clone(), request("", NEAR_HITS)).await?);
        if near.is_empty() {
            return nothing(detail);
        }
        let text = format!("No text has all of {}; these have some of them.", quoted_words.join(", "));
        return Ok(SourceResult {
            sections: vec![section(text, &near)],
            detail: Some(detail),
            ..SourceResult::default()
        });
    }
    let texts = text_hits(&found);
    let first = &texts[0];
    let what = if texts.iter().all(|text| text.table == "vault") { "note" } else { "text" };
    let at_least = if found.exact { "" } else { "At least " };
    let text = format!(
        "{at_least}{} with {}. The best is “{}” ({}): {}",
        format_count(i64::try_from(found.total).unwrap_or(i64::MAX), what),
        quoted_words.join(" and "),
        first.title,
        first.name,
        first.snippet
    );
    let newest = texts.iter().filter_map(|text| text.modified).max();
    Ok(SourceResult {
        sections: vec![section(text, &texts)],
        answered: true,
        as_of: newest,
        ..SourceResult::default()
    })
}

/// Returns a word as a term of the query language. A name of several words becomes a phrase.
fn term(sign: &str, word: &str) -> String {
    let plain = word.replace(['"', '“', '”', '„'], " ");
    if plain.trim().contains(|c: char| !c.is_alphanumeric()) {
        format!("{sign}\"{}\"", plain.trim())
    } else {
        format!("{sign}{}", plain.trim())
    }
}

fn text_hits(found: &SearchResult) -> Vec<TextHit> {
    let rows: Vec<HitRows> = found
        .tables
        .iter()
        .map(|searched| {
            let names = searched.rows.schema().fields().iter().map(|field| field.name().clone()).collect();
            (names, cell::rows(&searched.rows), cell::rows(&searched.keys))
        })
        .collect();
    let one = |hit: &Hit| {
        let (names, rows, keys) = &rows[hit.table];
        let field = |name: &str| {
            let at = names.iter().position(|known| known == name)?;
            rows.get(hit.at)?.get(at)
        };
        let key: Vec<String> = keys
            .get(hit.at)
            .into_iter()
            .flatten()
            .filter_map(|cell| cell.text().map(cell::truncate))
            .collect();
        let name = if key.is_empty() { format!("row {}", hit.row) } else { key.join(", ") };
        let title = field("title").and_then(Cell::text).map_or_else(|| name.clone(), cell::truncate);
        // The title is shown already.
        let snippet = hit.snippets.iter().find(|(column, _)| column != "title").or(hit.snippets.first());
        TextHit {
            table: short_name(&found.tables[hit.table].table.def().name).to_owned(),
            name,
            title,
            snippet: snippet.map_or_else(String::new, |(_, html)| plain(html)),
            modified: field("modified").and_then(Cell::time),
        }
    };
    found.hits.iter().map(one).collect()
}

/// Returns the text of a snippet's HTML, on one line.
fn plain(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        rest = rest[at..].find('>').map_or("", |end| &rest[at + end + 1..]);
    }
    text.push_str(rest);
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
    // `&amp;` comes last, so that its result is not taken for another entity.
    text.replace("&amp;", "&").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn section(text: String, texts: &[TextHit]) -> Section {
    let rows = texts.iter().map(|shown| {
        let modified = shown.modified.map_or(Cell::Null, Cell::Time);
        let texts =
            [&shown.table, &shown.name, &shown.title, &shown.snippet].map(|text| Cell::Text(text.clone()));
        texts.iter().chain([&modified]).map(Cell::json).collect()
    });
    Section {
        title: "Notes and texts".into(),
        text,
        columns: vec![
            column("table", "string"),
            column("name", "string"),
            column("title", "string"),
            column("text", "string"),
            column("modified", "timestamp"),
        ],
        rows: rows.collect(),
        source: "notes".into(),
        ..Section::default()
    }
}

/// Answers `how many notes are there`: counts the notes that the asker may find.
async fn how_many(context: &Context) -> Result<SourceResult> {
    let view = context.view.clone();
    let mut as_of = None;
    for table in view.searchables().into_iter().filter(|table| catalog::has_text(table.def())) {
        // For unpublished notes even the time is private.
        if view.row_filter(&table).is_none() {
            as_of = as_of.max(context.newest(&table.def().name).await?);
        }
    }
    let counts = context.run(move || {
        let searchables = view.searchables().into_iter().filter(|table| catalog::has_text(table.def()));
        let count = |table: std::sync::Arc<table::Snapshot>| {
            let rows = match view.row_filter(&table) {
                Some(filter) => filter.rows(&table)?.len(),
                None => usize::try_from(table.rows()).unwrap_or(usize::MAX),
            };
            let what = if table.def().is_vault() { "note" } else { "text" };
            let count = format_count(i64::try_from(rows).unwrap_or(i64::MAX), what);
            Ok(format!("{} has {count}", short_name(&table.def().name)))
        };
        searchables.map(count).collect::<Result<Vec<_>>>()
    });
    let text = format!("{}.", counts.await?.join("; "));
    let section =
        Section { title: "Notes and texts".into(), text, source: "notes".into(), ..Section::default() };
    Ok(SourceResult { sections: vec![section], answered: true, as_of, ..SourceResult::default() })
}

/// Answers `list my notes` with the tables that hold texts.
fn list_tables(context: &Context, query: &NotesQuery) -> SourceResult {
    if !query.named {
        return SourceResult {
            detail: Some("the question has no word to look for".into()),
            ..SourceResult::default()
        };
    }
    let searchables = context.view.searchables();
    let tables = searchables.iter().filter(|table| catalog::has_text(table.def()));
    let texts: Vec<String> = tables
        .map(|table| {
            let name = short_name(&table.def().name);
            match context.view.row_filter(table) {
                // The total would reveal the number of unpublished notes.
                Some(_) => name.to_owned(),
                None => {
                    format!(
                        "{name} ({})",
                        format_count(i64::try_from(table.rows()).unwrap_or(i64::MAX), "row")
                    )
                }
            }
        })
        .collect();
    let text = format!("Texts are kept in {}. Ask with one of their words.", texts.join(", "));
    let section =
        Section { title: "Notes and texts".into(), text, source: "notes".into(), ..Section::default() };
    SourceResult { sections: vec![section], answered: true, ..SourceResult::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snippet_is_plain_again() {
        assert_eq!(plain("… a &lt;b&gt; &amp;amp; <mark>c</mark>\n d"), "… a <b> &amp; c d");
        assert_eq!(plain("<open"), "");
    }

    #[test]
    fn words_cannot_become_syntax() {
        assert_eq!(
            (term("+", "disk"), term("+", "New York"), term("+", "a\" -b")),
            ("+disk".into(), "+\"New York\"".into(), "+\"a  -b\"".into())
        );
        assert_eq!(term("", "-x"), "\"-x\"");
    }
}
