//! `polynya search`.

use std::process::ExitCode;

use clap::Args;
use http::Method;
use serde_json::{Value, json};
use types::{Error, Kind, Result};

use crate::cli::ServerArgs;
use crate::client::{HttpClient, escaped};
use crate::config::Config;
use crate::connection::DataConnection;
use crate::output;
use crate::units::{counted, grouped};

use super::tables::number;

/// Largest number of columns without a match that are shown for a hit; its JSON has all of them.
const SHOWN_MAX: usize = 4;
/// Indentation of a hit's text.
const INDENT: &str = "   ";

#[derive(Debug, Args)]
#[command(
    long_about = "Find rows by words, best first. Words, \"a phrase\", +must, -not, prefix*, column:word. Without a table \
                  every table with a text index is searched; a first word that is the name of a table says which. Options \
                  may stand anywhere; after `--` everything is a word. A table \
                  without a text index is read as a whole when it is named.",
    after_help = "Examples:\n  polynya search water ice\n  polynya search docs '\"crash recovery\" -windows'\n  \
                  polynya search --table docs --filter \"path LIKE 'guide/%'\" backup\n  \
                  polynya search --json --limit 100 error | jq .row\n\n\
                  A table gets a text index with:\n  polynya sql \"CREATE INDEX ON docs USING text (title, body)\""
)]
pub struct Options {
    /// The words to find; the first one may be a table
    #[arg(required = true, value_name = "QUERY")]
    words: Vec<String>,
    /// Search this table; may be given several times
    #[arg(short, long = "table", value_name = "TABLE")]
    tables: Vec<String>,
    /// Rows to show, 1 to 1000
    #[arg(short, long, value_name = "N", default_value_t = 10)]
    limit: u64,
    /// Rows to leave out at the beginning
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// Find only rows that match this SQL predicate
    #[arg(long, value_name = "PREDICATE")]
    filter: Option<String>,
    /// Search in these columns only, with commas between them
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    columns: Vec<String>,
    /// Print one JSON object a hit
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[cfg(test)]
impl Options {
    pub fn words(&self) -> &[String] {
        &self.words
    }
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let is_json = options.json || !output::is_terminal();
    let ask = async |connection: &mut DataConnection| {
        let ParsedQuery { tables, words, near } = parse_query(connection.client(), options).await?;
        let mut body = json!({
            "q": words.join(" "),
            "limit": options.limit,
            "offset": options.offset,
            "columns": options.columns,
        });
        if let Some(filter) = &options.filter {
            body["filter"] = json!(filter);
        }
        let path = match tables.as_slice() {
            [one] => format!("/v1/tables/{}/search", escaped(one)),
            several => {
                body["tables"] = json!(several);
                "/v1/search".to_owned()
            }
        };
        let answered = connection.client().json(Method::POST, &path, Some(&body)).await;
        let near = near.map(|near| format!("did you mean the table `{near}`?"));
        match (answered, near) {
            // The search failed because no table has a text index.
            (Err(error), Some(near)) if error.kind() == Kind::NotFound => Err(error.hint(near)),
            (answered, near) => answered.map(|answer| (answer, near)),
        }
    };
    let (answer, near) =
        super::block_on(async { DataConnection::open(config, &options.server).await?.with(ask).await })?;
    let hits = answer["hits"].as_array().cloned().unwrap_or_default();
    if is_json {
        output::print(&hits.iter().map(|hit| format!("{hit}\n")).collect::<String>());
    } else {
        output::print(&page(&answer, &hits, options.offset));
    }
    if let Some(near) = near.filter(|_| number(&answer["total"]) == 0) {
        eprintln!("polynya: {near}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The query after its first word was checked for a table's name.
struct ParsedQuery {
    tables: Vec<String>,
    words: Vec<String>,
    /// A table whose name is similar to the first word, which is not a table's name itself.
    near: Option<String>,
}

/// Takes the first word as the table to search, if it names one and more words follow.
async fn parse_query(client: &mut HttpClient, options: &Options) -> Result<ParsedQuery> {
    let words = options.words.clone();
    if !options.tables.is_empty() || words.len() < 2 {
        return Ok(ParsedQuery { tables: options.tables.clone(), words, near: None });
    }
    let known = super::tables::list(client).await?;
    let names = known["tables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let first = words[0].as_str();
    let mut names = names.iter().filter_map(|table| table["name"].as_str());
    if !names.clone().any(|name| name == first) {
        // Words of one or two letters are similar to too many names.
        let near = match first.chars().count() {
            0..=2 => None,
            _ => engine::name_hints::similar_names(first, &mut names)
                .first()
                .map(|near| output::visible(near).into_owned()),
        };
        return Ok(ParsedQuery { tables: Vec::new(), words, near });
    }
    let rest = words[1..].to_vec();
    if rest.is_empty() {
        return Err(Error::invalid("say what to look for"));
    }
    Ok(ParsedQuery { tables: vec![first.to_owned()], words: rest, near: None })
}

/// Formats hits for a terminal.
fn page(answer: &Value, hits: &[Value], offset: u64) -> String {
    let mut out = String::new();
    for (at, hit) in hits.iter().enumerate() {
        let key = match &hit["key"] {
            Value::Null => format!("row {}", hit["row_id"]),
            key => output::cell_text(key),
        };
        let name = plain(&format!("{} · {key}", output::cell_text(&hit["table"])));
        out += &format!("\x1b[1m{:>2} {name}\x1b[0m\n", offset + at as u64 + 1);
        let snippets = hit["snippets"].as_object();
        for (column, html) in snippets.into_iter().flatten() {
            let text = highlighted(html.as_str().unwrap_or_default());
            out += &format!("{INDENT}\x1b[2m{}\x1b[0m  {text}\n", plain(column));
        }
        out += &other_columns(hit);
    }
    let total = number(&answer["total"]);
    let more = if answer["exact"] == Value::Bool(false) { "more than " } else { "" };
    let found = match (total, hits.len() as u64) {
        (0, _) => "nothing found".to_owned(),
        (_, 0) => format!("{more}{} in all, none beyond {}", counted(total, "row"), grouped(offset)),
        (_, shown) if shown < total => format!("{} of {more}{} rows", grouped(shown), grouped(total)),
        (_, shown) => format!("{more}{}", counted(shown, "row")),
    };
    let took = answer["took_ms"].as_f64().unwrap_or_default();
    let scanned =
        if answer["scanned"] == Value::Bool(true) { ", without an index: every row was read" } else { "" };
    format!("{out}{found} in {took:.1} ms{scanned}\n")
}

/// Formats some of the columns that no snippet shows.
fn other_columns(hit: &Value) -> String {
    let Some(row) = hit["row"].as_object() else { return String::new() };
    let is_shown = |column: &str| hit["snippets"].get(column).is_some();
    let short = |(column, value): (&String, &Value)| {
        let text = output::cell_text(value);
        let fits = !value.is_null() && text.chars().count() <= 60 && !text.contains('\n');
        (fits && !is_shown(column)).then(|| format!("{column}: {text}"))
    };
    let parts: Vec<String> = row.iter().filter_map(short).take(SHOWN_MAX).collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!("{INDENT}\x1b[2m{}\x1b[0m\n", plain(&parts.join(" · ")))
    }
}

/// Returns a text as one line without control characters.
fn plain(text: &str) -> String {
    output::visible(&text.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
}

/// Converts a snippet's HTML for a terminal: marked words become bold, everything else plain text.
fn highlighted(html: &str) -> String {
    let mut out = String::with_capacity(html.len());
    for (at, part) in html.split("<mark>").enumerate() {
        match part.split_once("</mark>") {
            Some((word, rest)) if at > 0 => {
                out += &format!("\x1b[1;33m{}\x1b[0m{}", text_of(word), text_of(rest));
            }
            _ => out += &text_of(part),
        }
    }
    out
}

/// Returns the plain text of escaped HTML. Leading and trailing spaces stay, because the text is a part of a sentence.
fn text_of(html: &str) -> String {
    let text = html
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
        .replace(['\n', '\r', '\t'], " ");
    output::visible(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snippet_is_shown_as_it_was_written_and_cannot_command_the_terminal() {
        assert_eq!(
            highlighted("a &lt;b&gt; <mark>ice</mark> &amp;lt; \u{1b}[2J"),
            "a <b> \u{1b}[1;33mice\u{1b}[0m &lt; \\u001b[2J"
        );
        assert_eq!(highlighted("no mark"), "no mark");
    }

    #[test]
    fn a_page_says_how_much_there_is_and_how_it_was_found() {
        let hit = json!({"table": "docs", "row_id": 3, "key": "a.md", "snippets": {"title": "<mark>Ice</mark>"},
            "row": {"title": "Ice", "path": "a.md", "text": "long\nlong"}});
        let answer = json!({"hits": [hit], "total": 12, "exact": true, "took_ms": 1.25, "scanned": true});
        let text = page(&answer, answer["hits"].as_array().unwrap(), 0);
        assert!(
            text.contains(" 1 docs · a.md") && text.contains("path: a.md") && !text.contains("long"),
            "{text}"
        );
        assert!(text.ends_with("1 of 12 rows in 1.2 ms, without an index: every row was read\n"), "{text}");
        let nothing = json!({"hits": [], "total": 0, "exact": true, "took_ms": 0.2, "scanned": false});
        assert_eq!(page(&nothing, &[], 0), "nothing found in 0.2 ms\n");
        let beyond = json!({"hits": [], "total": 8, "exact": true, "took_ms": 0.2, "scanned": false});
        assert_eq!(page(&beyond, &[], 20), "8 rows in all, none beyond 20 in 0.2 ms\n");
    }
}
