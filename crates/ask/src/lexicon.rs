//! The names that the asker can see: tables and their columns.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use engine::View;
use types::{TableDef, name};

use crate::vocabulary::singular;
use crate::words::Words;

/// The names of a view's tables and columns. They depend on definitions only, so a lexicon is built once per change of them.
#[derive(Debug)]
pub(crate) struct Lexicon {
    pub fingerprint: u64,
    pub tables: Vec<Entry>,
    /// Tables by the first word of each of their names, in the singular.
    first: HashMap<String, Vec<(usize, Vec<String>)>>,
    /// Columns by the first word of their name: table, column, words of the name.
    columns: HashMap<String, Vec<(usize, usize, Vec<String>)>>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub def: Arc<TableDef>,
}

/// The number of columns whose names are indexed. Tables beyond this number are found by their own names only.
const COLUMNS_MAX: usize = 20_000;

/// Returns a hash of all definitions in a view: tables, columns, keys and indexes.
pub(crate) fn fingerprint(view: &View) -> u64 {
    let mut hasher = DefaultHasher::new();
    for table in view.tables() {
        let def = table.def();
        (def.id.0, def.schema.version.0, def.name.as_str(), def.time, &def.primary_key).hash(&mut hasher);
        for index in &def.indexes {
            (&index.kind, &index.columns).hash(&mut hasher);
        }
    }
    hasher.finish()
}

impl Lexicon {
    pub fn new(view: &View, fingerprint: u64) -> Lexicon {
        let mut lexicon =
            Lexicon { fingerprint, tables: Vec::new(), first: HashMap::new(), columns: HashMap::new() };
        let mut columns = 0;
        for table in view.tables() {
            let def = table.def().clone();
            let at = lexicon.tables.len();
            let short = name::short_table_name(&def.name);
            let mut names = vec![vec![def.name.to_lowercase()], vec![short.to_lowercase()]];
            // The vocabulary already maps the words `metrics` and `requests` to these two tables.
            if !matches!(def.name.as_str(), "polynya.metrics" | "polynya.requests") {
                names.push(split(def.name.rsplit('.').next().unwrap_or(short)));
            }
            names.dedup();
            for words in names {
                if let Some(first) = words.first() {
                    lexicon.first.entry(singular(first)).or_default().push((at, words));
                }
            }
            for (nth, column) in def.schema.columns.iter().enumerate().take(COLUMNS_MAX - columns) {
                for words in [vec![column.name.to_lowercase()], split(&column.name)] {
                    let Some(first) = words.first() else { continue };
                    let known = lexicon.columns.entry(singular(first)).or_default();
                    if !known.contains(&(at, nth, words.clone())) {
                        known.push((at, nth, words));
                    }
                }
            }
            columns = (columns + def.schema.columns.len()).min(COLUMNS_MAX);
            lexicon.tables.push(Entry { def });
        }
        lexicon
    }

    /// Returns the tables that a question names, with the position of each name. A longer name wins over a part of it.
    pub fn tables_in(&self, words: &Words) -> Vec<(usize, std::ops::Range<usize>)> {
        let mut found: Vec<(usize, std::ops::Range<usize>)> = Vec::new();
        let mut at = 0;
        while at < words.len() {
            if words.list[at].used {
                at += 1;
                continue;
            }
            let known = self.first.get(&singular(&words.list[at].text)).into_iter().flatten();
            let fitting: Vec<_> = known.filter(|(_, name)| fits(words, at, name)).collect();
            let longest = fitting.iter().map(|(_, name)| name.len()).max();
            let Some(longest) = longest else {
                at += 1;
                continue;
            };
            for (table, _) in fitting.into_iter().filter(|(_, name)| name.len() == longest) {
                if found.iter().all(|(other, _)| other != table) {
                    found.push((*table, at..at + longest));
                }
            }
            at += longest;
        }
        found
    }

    /// Returns every mention of a column in a question: table, column, position.
    pub fn columns_in(
        &self,
        words: &Words,
        table: Option<usize>,
    ) -> Vec<(usize, usize, std::ops::Range<usize>)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < words.len() {
            let known = self.columns.get(&singular(&words.list[at].text)).into_iter().flatten();
            let known = known.filter(|(of, ..)| table.is_none_or(|table| table == *of));
            let fitting: Vec<_> = known.filter(|(_, _, name)| fits(words, at, name)).collect();
            let longest = fitting.iter().map(|(_, _, name)| name.len()).max();
            let Some(longest) = longest else {
                at += 1;
                continue;
            };
            for (of, column, _) in fitting.into_iter().filter(|(_, _, name)| name.len() == longest) {
                let name = (*of, *column, at..at + longest);
                if found.last() != Some(&name) {
                    found.push(name);
                }
            }
            at += longest;
        }
        found
    }
}

fn fits(words: &Words, at: usize, name: &[String]) -> bool {
    name.iter().enumerate().all(|(i, part)| {
        words.list.get(at + i).is_some_and(|word| {
            word.text == *part || (!word.quoted && singular(&word.text) == singular(part))
        })
    })
}

/// Splits a name into words: `web_logs`, `webLogs` and `web-logs` each give two.
fn split(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut was_lower = false;
    for c in name.chars() {
        let begins = !c.is_alphanumeric() || (was_lower && c.is_uppercase());
        if begins && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart_into_words() {
        assert_eq!(split("web_logs"), ["web", "logs"]);
        assert_eq!(split("webLogs2"), ["web", "logs2"]);
        assert_eq!(split("HTTP-status code"), ["http", "status", "code"]);
        assert!(split("__").is_empty());
    }
}
