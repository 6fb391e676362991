//! Prints answers on standard output, as tables on a terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns of the terminal that a cell takes at most; wider cells are cut.
const CELL_WIDTH_MAX: usize = 80;

/// A table of text: rows under titles.
#[derive(Clone, Debug, Default)]
pub struct Table {
    titles: Vec<String>,
    right: Vec<bool>,
    whole: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(titles: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let titles: Vec<String> = titles.into_iter().map(Into::into).collect();
        Table { right: vec![false; titles.len()], whole: vec![false; titles.len()], titles, rows: Vec::new() }
    }

    /// Aligns the columns to the right for whose titles `is_number` returns true.
    #[must_use]
    pub fn right(mut self, is_number: impl Fn(&str) -> bool) -> Self {
        self.right = self.titles.iter().map(|title| is_number(title)).collect();
        self
    }

    /// Never cuts the cells of columns for whose titles `is_copied` returns true, such as paths that a user copies.
    #[must_use]
    pub fn whole(mut self, is_copied: impl Fn(&str) -> bool) -> Self {
        self.whole = self.titles.iter().map(|title| is_copied(title)).collect();
        self
    }

    pub fn push(&mut self, row: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }

    /// Formats the table as text, with aligned columns and a rule under the titles.
    pub fn render(&self) -> String {
        let cell = |(at, text): (usize, &String)| {
            let width_max = if self.whole.get(at) == Some(&true) { usize::MAX } else { CELL_WIDTH_MAX };
            cut(&visible(&text.replace(['\n', '\r', '\t'], " ")), width_max)
        };
        let cells = |row: &Vec<String>| -> Vec<String> { row.iter().enumerate().map(cell).collect() };
        let titles = cells(&self.titles);
        let rows: Vec<Vec<String>> = self.rows.iter().map(cells).collect();
        let width_of = |i: usize| {
            let cells = rows.iter().filter_map(|row| row.get(i)).chain(titles.get(i));
            cells.map(|text| text.width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..titles.len()).map(width_of).collect();
        let line = |cells: &[String]| {
            let padded: Vec<String> = cells
                .iter()
                .enumerate()
                .map(|(i, text)| {
                    let space =
                        " ".repeat(widths.get(i).map_or(0, |width| width.saturating_sub(text.width())));
                    if self.right.get(i) == Some(&true) { space + text } else { text.clone() + &space }
                })
                .collect();
            format!(" {}", padded.join(" │ ")).trim_end().to_owned() + "\n"
        };
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
        let body: String = rows.iter().map(|row| line(row)).collect();
        format!("{}{}\n{body}", line(&titles), rule.join("┼"))
    }
}

/// Escapes the characters that control a terminal (escape sequences, C1 controls) or change the direction of text (U+202E
/// and the like), as JSON does: `\u001b`. Newlines, also as CR LF in CSV, and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.chars().any(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if obeyed(c) && !(c == '\r' && rest.as_str().starts_with('\n')) {
            shown.push_str(&format!("\\u{:04x}", u32::from(c)))
        } else {
            shown.push(c)
        }
    }
    Cow::Owned(shown)
}

/// Cuts a text to `width_max` columns of a terminal, with `…` at its end if it was longer.
fn cut(text: &str, width_max: usize) -> String {
    if text.width() <= width_max {
        return text.to_owned();
    }
    let mut width = 1;
    let fits = text.chars().take_while(|c| {
        width += c.width().unwrap_or(0);
        width <= width_max
    });
    fits.collect::<String>() + "…"
}

/// Makes a table of an answer of `POST /v1/sql`.
pub fn sql_table(answer: &Value) -> Table {
    let empty = Vec::new();
    let columns = answer["columns"].as_array().unwrap_or(&empty);
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let mut table = Table::new(columns.iter().map(|column| text(column, "name")));
    table.right = columns.iter().map(|column| is_number_type(&text(column, "type"))).collect();
    for row in answer["rows"].as_array().unwrap_or(&empty) {
        table.push(row.as_array().unwrap_or(&empty).iter().map(cell_text));
    }
    table
}

fn is_number_type(name: &str) -> bool {
    ["int", "uint", "float", "decimal"].iter().any(|prefix| name.starts_with(prefix))
}

/// Formats a JSON value as a cell: text without quotes, null as `NULL`.
pub fn cell_text(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns true if standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints a text. Exits with status 0 if the reader has closed the pipe (`| head`), which is not an error.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let answer = serde_json::json!({
            "columns": [{"name": "name", "type": "string"}, {"name": "n", "type": "int64"}],
            "rows": [["é漢", 5], [null, 1234], ["two\nlines", null]],
        });
        let expected = " \
name      │    n
───────────┼──────
 é漢       │    5
 NULL      │ 1234
 two lines │ NULL
";
        assert_eq!(sql_table(&answer).render(), expected);
    }

    #[test]
    fn control_characters_are_escaped_on_a_terminal() {
        let answer = serde_json::json!({
            "columns": [{"name": "a\u{1b}[31m", "type": "string"}],
            "rows": [["\u{1b}]0;title\u{7}"], ["\u{9b}2J\u{7f}"], ["\u{202e}gpj.exe"], ["fine é\u{301}漢"]],
        });
        let text = sql_table(&answer).render();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        for shown in [
            "a\\u001b[31m",
            "\\u001b]0;title\\u0007",
            "\\u009b2J\\u007f",
            "\\u202egpj.exe",
            "fine é\u{301}漢",
        ] {
            assert!(text.contains(shown), "{shown} in {text}");
        }
        // Lines of JSON and CSV keep their newlines and tabs.
        assert_eq!(visible("{\"a\":1}\n\tb\n"), "{\"a\":1}\n\tb\n");
        // Regression: each line of CSV on a terminal ended in a visible `\u000d`.
        assert_eq!(visible("a,b\r\n1,\u{1b}\r\n"), "a,b\r\n1,\\u001b\r\n");
        assert_eq!(visible("over\rwritten"), "over\\u000dwritten");
    }

    #[test]
    fn a_wide_cell_is_cut_unless_it_is_to_be_copied() {
        let path = "x".repeat(2 * CELL_WIDTH_MAX);
        let mut table = Table::new(["text", "path"]).whole(|title| title == "path");
        table.push([path.as_str(), path.as_str()]);
        assert_eq!(table.render().matches(&path).count(), 1, "{}", table.render());
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("漢漢漢", 4), "漢…");
    }
}
