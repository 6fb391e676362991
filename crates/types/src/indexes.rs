//! The indexes of a table's definition: added and dropped by name.
//!
//! Only the rules common to all kinds of index are checked here. The crate that builds a kind checks its own rules.

use crate::name::{self, printable};
use crate::schema::{INDEX_COLUMN, OPTION_REPEATS};
use crate::{Error, INDEX_SITE, IndexDef, Kind, Result, TableDef, UniqueState};

/// The index kinds that users may declare.
pub const KINDS: [&str; 3] = ["column", "text", INDEX_SITE];
pub const INDEXES_MAX: usize = 32;
/// The total size limit, in bytes, of the names and values of one index's options.
const OPTION_BYTES_MAX: usize = 4_096;

/// A request for an index, with its columns by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewIndex {
    /// The index name. If empty, a name is made from those of the table and the columns.
    pub name: String,
    pub kind: String,
    pub columns: Vec<String>,
    pub options: Vec<(String, String)>,
    /// True if no two rows may have equal values in all of the columns.
    pub unique: bool,
}

impl TableDef {
    /// Finds an index by name: an exact match, else the only one that differs by case.
    pub fn index_named(&self, wanted: &str) -> Option<&IndexDef> {
        name::resolve(wanted, self.indexes.iter().map(|i| i.name.as_str())).map(|at| &self.indexes[at])
    }

    /// Resolves and checks a requested index against this table, without adding it.
    pub fn index_of(&self, new: &NewIndex) -> Result<IndexDef> {
        let wrong = |what: String| Error::invalid(what).with("table", name::short_table_name(&self.name));
        if !new.name.is_empty() {
            name::check_column(&new.name)
                .map_err(|_| wrong(format!("`{}` is not a valid index name", printable(&new.name))))?;
        }
        if !KINDS.contains(&new.kind.as_str()) {
            return Err(wrong(format!("there is no index of kind `{}`", printable(&new.kind)))
                .hint(r#"for values: {"kind":"column","columns":["price"]}; for keyword search: {"kind":"text","columns":["title","body"]}"#));
        }
        let mut columns = Vec::with_capacity(new.columns.len());
        for wanted in &new.columns {
            let Some(column) = self.schema.column_named(wanted) else {
                let names: Vec<String> =
                    self.schema.columns.iter().take(20).map(|c| format!("`{}`", c.name)).collect();
                return Err(wrong(format!(
                    "the index names `{}`, which is not a column of the table",
                    printable(wanted)
                ))
                .hint(format!("its columns are {}", names.join(", "))));
            };
            if columns.contains(&column.id) {
                return Err(wrong(format!("the index names column `{}` twice", column.name)));
            }
            columns.push(column.id);
        }
        if columns.is_empty() {
            return Err(wrong("an index names at least one column".into()));
        }
        let bytes: usize = new.options.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > OPTION_BYTES_MAX {
            return Err(wrong(format!("the options of an index have at most {OPTION_BYTES_MAX} bytes")));
        }
        let mut options = new.options.clone();
        options.sort();
        if let Some(pair) = options.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(wrong(format!("the index has option `{}` twice", printable(&pair[0].0))));
        }
        if new.unique && new.kind != INDEX_COLUMN {
            return Err(wrong(format!("an index of kind `{}` cannot be unique", new.kind))
                .hint("one of columns can: CREATE UNIQUE INDEX ON goods (number)"));
        }
        if let Some((key, value)) = options.iter().find(|(key, _)| key == OPTION_REPEATS) {
            if !new.unique || self.is_keyed() {
                return Err(wrong(format!(
                    "`{key}` is an option of unique indexes of tables without a primary key"
                ))
                .hint("a table with a primary key does not need it: an upsert can be repeated"));
            }
            if value != "skip" {
                return Err(wrong(format!("`{key}` is `{}`, which is not a known value", printable(value)))
                    .hint("write WITH (repeats = 'skip'), or leave it out: then equal values are refused"));
            }
        }
        let name = if new.name.is_empty() { self.index_name(new) } else { new.name.clone() };
        let unique = new.unique.then_some(UniqueState::Checking);
        Ok(IndexDef { name, kind: new.kind.clone(), columns, options, unique })
    }

    /// Adds an index. Returns false if an equal one exists already; [`Kind::Exists`] if a different index has its
    /// name.
    pub fn add_index(&mut self, new: &NewIndex) -> Result<bool> {
        let index = self.index_of(new)?;
        let same = |other: &IndexDef| {
            (&other.kind, &other.columns, &other.options) == (&index.kind, &index.columns, &index.options)
                && other.unique.is_some() == index.unique.is_some()
        };
        if new.name.is_empty() && self.indexes.iter().any(same) {
            return Ok(false);
        }
        if let Some(other) = self.index_named(&index.name) {
            if other.name == index.name && same(other) {
                return Ok(false);
            }
            return Err(Error::new(Kind::Exists, format!("there is an index `{}` already", other.name))
                .with("table", name::short_table_name(&self.name))
                .hint("drop it first, or give this one another name"));
        }
        if self.indexes.len() >= INDEXES_MAX {
            return Err(Error::new(Kind::TooLarge, format!("a table has at most {INDEXES_MAX} indexes"))
                .with("table", name::short_table_name(&self.name)));
        }
        self.indexes.push(index);
        Ok(true)
    }

    /// Removes an index; [`Kind::NotFound`] if no index has this name.
    pub fn drop_index(&mut self, wanted: &str) -> Result<()> {
        let Some(found) = self.index_named(wanted).map(|index| index.name.clone()) else {
            let error = Error::not_found(format!("there is no index `{}`", printable(wanted)))
                .with("table", name::short_table_name(&self.name));
            let names: Vec<String> = self.indexes.iter().map(|i| format!("`{}`", i.name)).collect();
            return Err(if names.is_empty() {
                error.hint("the table has none")
            } else {
                error.hint(format!("it has {}", names.join(", ")))
            });
        };
        self.indexes.retain(|index| index.name != found);
        Ok(())
    }

    /// Makes a name such as `notes_title_body_idx`, with a number appended if the name is taken.
    fn index_name(&self, new: &NewIndex) -> String {
        let table = self.name.rsplit('.').next().unwrap_or_default();
        let mut stem = format!("{table}_{}", new.columns.join("_"));
        stem.truncate(stem.floor_char_boundary(name::COLUMN_BYTES_MAX - 16));
        // PostgreSQL names the index of a UNIQUE constraint in the same way.
        let kind = if new.unique { "key" } else { "idx" };
        let names = (1..).map(|n| match n {
            1 => format!("{stem}_{kind}"),
            n => format!("{stem}_{kind}{n}"),
        });
        let taken = |name: &String| self.index_named(name).is_some();
        names.into_iter().find(|name| !taken(name)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnId, DataType, TableId};

    fn notes() -> TableDef {
        let mut def = TableDef::new(TableId(1), "main.notes");
        def.add_column("title", &DataType::String, true, None).unwrap();
        def.add_column("body", &DataType::String, true, None).unwrap();
        def
    }

    fn over(columns: &[&str]) -> NewIndex {
        NewIndex {
            kind: "text".into(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            ..NewIndex::default()
        }
    }

    #[test]
    fn what_is_told_apart_by_its_id_has_a_unique_index_and_no_key() {
        let repeats = |value: &str, unique| NewIndex {
            kind: INDEX_COLUMN.into(),
            options: vec![(OPTION_REPEATS.to_owned(), value.to_owned())],
            unique,
            ..over(&["title"])
        };
        let mut def = notes();
        for (index, why) in [(repeats("skip", false), "unique"), (repeats("keep", true), "`keep`")] {
            assert!(def.add_index(&index).unwrap_err().message().contains(why), "{why}");
        }
        assert!(!def.skips_repeats());
        assert!(def.add_index(&repeats("skip", true)).unwrap());
        assert!(def.skips_repeats());
        // A unique index that failed its check refuses no rows, so it must not skip any either.
        def.indexes[0].unique = Some(UniqueState::Failed("two".into()));
        assert!(!def.skips_repeats());

        let mut keyed = TableDef::new(TableId(2), "main.keyed");
        keyed.add_column("title", &DataType::String, false, None).unwrap();
        keyed.set_primary_key(&["title".to_owned()]).unwrap();
        let error = keyed.add_index(&repeats("skip", true)).unwrap_err();
        assert!(error.hint_text().unwrap().contains("upsert"), "{error}");
    }

    #[test]
    fn an_index_gets_a_name_once_and_is_dropped_by_it() {
        let mut def = notes();
        assert!(def.add_index(&over(&["Title", "body"])).unwrap());
        assert!(!def.add_index(&over(&["title", "body"])).unwrap(), "the same again");
        assert_eq!(def.indexes[0].name, "notes_Title_body_idx");
        assert_eq!(def.indexes[0].columns, [ColumnId(16), ColumnId(17)]);
        let named = NewIndex { name: "NOTES_title_body_idx".into(), ..over(&["body"]) };
        assert_eq!(def.add_index(&named).unwrap_err().kind(), Kind::Exists);
        let other =
            NewIndex { options: vec![("language".into(), "none".into())], ..over(&["Title", "body"]) };
        assert!(def.add_index(&other).unwrap());
        assert_eq!(def.indexes[1].name, "notes_Title_body_idx2");
        def.drop_index("notes_title_body_idx").unwrap();
        assert_eq!(def.drop_index("notes_title_body_idx").unwrap_err().kind(), Kind::NotFound);
        assert_eq!(def.indexes.len(), 1);
    }

    #[test]
    fn what_no_kind_of_index_can_be_is_refused_with_a_reason() {
        let def = notes();
        for (new, part) in [
            (over(&[]), "at least one column"),
            (NewIndex { kind: "fulltext".into(), ..over(&["title"]) }, "no index of kind `fulltext`"),
            (over(&["titel"]), "its columns are `title`, `body`"),
            (over(&["title", "TITLE"]), "twice"),
            (NewIndex { name: "_x".into(), ..over(&["title"]) }, "not a valid index name"),
            (
                NewIndex {
                    options: vec![("a".into(), "1".into()), ("a".into(), "2".into())],
                    ..over(&["title"])
                },
                "twice",
            ),
        ] {
            let error = def.index_of(&new).unwrap_err();
            assert!(error.to_string().contains(part), "{new:?}: {error}");
        }
    }
}
