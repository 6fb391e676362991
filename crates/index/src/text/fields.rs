//! The indexed columns of a table and their options.

use std::sync::Arc;

use tantivy::schema::{FAST, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::TokenizerManager;
use types::codec::Encoder;
use types::{ColumnId, DataType, Error, IndexDef, ROW_ID, Result, TableDef};
use xxhash_rust::xxh3::xxh3_64;

use super::analyzer::{self, Language};

/// The kind of index definitions that this module builds.
pub const KIND: &str = "text";

/// The largest weight of a column.
const WEIGHT_MAX: f32 = 1000.0;

/// One indexed column.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub column: ColumnId,
    pub name: String,
    pub language: Language,
    /// The factor of its part of a score.
    pub weight: f32,
}

/// The indexed columns of a table, ordered by column id.
#[derive(Clone, Debug, PartialEq)]
pub struct Fields {
    pub(super) list: Arc<[Field]>,
}

/// Returns the indexed columns of a table, or `None` if it declares no text index over a string column. Options that
/// [`check`] would refuse are ignored, so that a bad option does not make a table unsearchable.
pub fn fields(def: &TableDef) -> Option<Fields> {
    let mut list: Vec<Field> = Vec::new();
    for index in def.indexes.iter().filter(|index| index.kind == KIND) {
        let language =
            option(index, "language").and_then(|name| Language::parse(name).ok()).unwrap_or_default();
        let weights = weights(index).unwrap_or_default();
        for (at, id) in index.columns.iter().enumerate() {
            let Some(column) = def.schema.column(*id).filter(|c| c.data_type == DataType::String) else {
                continue;
            };
            if list.iter().any(|field| field.column == *id) {
                continue;
            }
            let weight = weights.get(at).copied().unwrap_or(1.0);
            list.push(Field { column: *id, name: column.name.clone(), language, weight });
        }
    }
    list.sort_by_key(|field| field.column);
    (!list.is_empty()).then(|| Fields { list: list.into() })
}

/// Checks an index definition that a user gives. Fails with the reason if it cannot be built.
pub fn check(def: &TableDef, index: &IndexDef) -> Result<()> {
    let table = types::name::short_table_name(&def.name);
    let wrong = |what: String| Error::invalid(what).with("table", table).with("index", &index.name);
    if index.columns.is_empty() {
        return Err(wrong("a text index names at least one column".into()));
    }
    for id in &index.columns {
        match def.schema.column(*id) {
            Some(column) if column.data_type == DataType::String => {}
            Some(column) => {
                return Err(wrong(format!(
                    "column `{}` is not a string, but {}",
                    column.name, column.data_type
                ))
                .hint("a text index takes string columns"));
            }
            None => return Err(wrong(format!("there is no column {id}"))),
        }
    }
    for (key, value) in &index.options {
        match key.as_str() {
            "language" => Language::parse(value).map(|_| ()).map_err(|e| e.with("language", value))?,
            "weights" => {
                let weights = weights(index)
                    .ok_or_else(|| wrong(format!("weights are numbers up to {WEIGHT_MAX}, such as `2,1`")))?;
                if weights.len() != index.columns.len() {
                    return Err(wrong("there must be one weight for each column".into()));
                }
            }
            _ => {
                return Err(
                    wrong(format!("a text index has no option `{key}`")).hint("`language` or `weights`")
                );
            }
        }
    }
    Ok(())
}

fn option<'a>(index: &'a IndexDef, key: &str) -> Option<&'a str> {
    index.options.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
}

fn weights(index: &IndexDef) -> Option<Vec<f32>> {
    let parse = |part: &str| part.trim().parse::<f32>().ok().filter(|w| *w > 0.0 && *w <= WEIGHT_MAX);
    option(index, "weights")?.split(',').map(parse).collect()
}

impl Fields {
    pub fn iter(&self) -> impl Iterator<Item = &Field> {
        self.list.iter()
    }

    /// Returns a hash of the settings on which the bytes of an index depend: columns, languages and the analyzer's
    /// version. Weights and names of columns do not count.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut e = Encoder::new();
        e.varint(analyzer::VERSION.into());
        e.list(&self.list, |e, field| {
            e.varint(field.column.0.into());
            e.str(field.language.name());
        });
        xxh3_64(&e.bytes)
    }

    /// Returns the columns to read from the table: `_row_id`, then the indexed columns in order.
    pub(super) fn columns(&self) -> Vec<ColumnId> {
        std::iter::once(ROW_ID).chain(self.list.iter().map(|field| field.column)).collect()
    }

    /// Returns the tantivy schema. Field 0 is the row id, field n the n-th column.
    pub(super) fn schema(&self) -> Schema {
        let mut builder = Schema::builder();
        builder.add_u64_field("row", FAST);
        for field in self.list.iter() {
            let indexing = TextFieldIndexing::default()
                .set_tokenizer(field.language.name())
                .set_index_option(IndexRecordOption::WithFreqsAndPositions);
            let options = TextOptions::default().set_indexing_options(indexing);
            builder.add_text_field(&format!("c{}", field.column), options);
        }
        builder.build()
    }

    pub(super) fn analyzers(&self) -> TokenizerManager {
        let manager = TokenizerManager::new();
        // tantivy requires a tokenizer for each field, even for the row id, which has no words.
        manager.register("default", Language::None.analyzer());
        for field in self.list.iter() {
            manager.register(field.language.name(), field.language.analyzer());
        }
        manager
    }
}
