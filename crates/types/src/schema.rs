//! The definition of a table: its columns, its key, its options. Definitions are immutable values; a change makes a
//! new one with a higher [`SchemaVersion`].

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Schema as ArrowSchema, SchemaRef};

use crate::codec::{Decoder, Encoder};
use crate::data_type::arrow_field;
use crate::{
    ColumnId, DataType, EpochUnit, Error, Kind, Path, Result, SchemaVersion, TableId, Value,
    check_new_column, name,
};

/// The system column that holds the row id: int64, first in every batch.
pub const ROW_ID: ColumnId = ColumnId(1);
pub const ROW_ID_NAME: &str = "_row_id";
/// The system column that holds the time of arrival: timestamp, second in every batch, never falling with the row id.
pub const TIME: ColumnId = ColumnId(2);
pub const TIME_NAME: &str = "_time";
/// The smallest id of a user's column. Lower ids are reserved for system columns.
pub const FIRST_USER_COLUMN: ColumnId = ColumnId(16);

pub const COLUMNS_MAX: usize = 1_000;
pub const TABLES_MAX: usize = 10_000;

/// The kind of index that finds rows by the values of columns, and may be unique.
pub const INDEX_COLUMN: &str = "column";

/// The option of a unique index of a keyless table by which new rows that repeat an existing one are skipped. Its
/// value is `skip`. Without the option such rows are refused.
pub const OPTION_REPEATS: &str = "repeats";

/// The option name under which the state of a unique index is stored.
const UNIQUE: &str = "unique";

/// The kind of index that makes a table a vault: `site` publishes the vault's notes.
pub const INDEX_SITE: &str = "site";

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub id: ColumnId,
    pub name: String,
    pub data_type: DataType,
    /// True if stored rows may hold nulls. It is set when the column is made and can only change to true, so that
    /// every value stored under this id can be read.
    pub nullable: bool,
    /// True if new rows must not hold null although the column is nullable. SET NOT NULL came after the column was
    /// made, and older, ended rows may hold nulls.
    pub refuses_null: bool,
    /// The value for new rows that are written without this column.
    pub default: Option<Value>,
    /// The value shown for rows that were written before the column was added. Fixed when the column is added.
    pub initial: Option<Value>,
}

/// The columns of a table at one version, in the user's order, without the system columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    pub version: SchemaVersion,
    pub columns: Vec<Column>,
}

/// An index that a table declares. A materializer builds it; this definition only declares that it must exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDef {
    pub name: String,
    /// `column`, `text`, `vector`, `space` or [`INDEX_SITE`].
    pub kind: String,
    pub columns: Vec<ColumnId>,
    /// Options of the kind, by name.
    pub options: Vec<(String, String)>,
    /// The state of the unique constraint, if there is one: no two rows may have equal values in all of the columns. A
    /// row with a null in one of them equals no other row.
    pub unique: Option<UniqueState>,
}

/// The state of a unique index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UniqueState {
    /// Rows that existed before the index are still being compared.
    Checking,
    /// All live rows are known to differ, and every write is checked to keep it so.
    Enforced,
    /// Two rows were equal; the text names them. Uniqueness is not guaranteed and writes are not checked any more.
    Failed(String),
}

/// The options of a table, as set by its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// True if the table is copied to the lake; `None` follows the server's setting.
    pub lake: Option<bool>,
    /// Age in microseconds after which rows may be deleted. Keyless tables only.
    pub retention: Option<i64>,
    /// The amount of the table that stays on this machine; older rows are in the lake only. `None`: everything. Only
    /// keyless tables with a lake may set it.
    pub hot: Option<HotLimit>,
    /// Age in microseconds after which rows are deleted, by the time column ([`TableDef::time`]) or else the time of
    /// arrival.
    pub ttl: Option<i64>,
    /// The partition expressions of the table's files in the lake, as written; parsed by [`TableDef::partitions`].
    pub partition_by: Vec<String>,
    /// The sort expressions of those files, as written; parsed by [`TableDef::sort_columns`]. Empty: the order of row
    /// ids.
    pub sort_by: Vec<String>,
    /// Paths of columns whose values are nested in the JSON objects that rows come as; one path for a column.
    pub paths: Vec<(ColumnId, Path)>,
    /// The json column that takes every field of a JSON row that has no column of its own.
    pub rest: Option<ColumnId>,
    /// The declared units of numbers in timestamp columns. Columns not listed take microseconds.
    pub inputs: Vec<(ColumnId, EpochUnit)>,
}

/// The amount of a table that stays on this machine beside its lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotLimit {
    /// Rows that arrived within this many microseconds.
    Micros(i64),
    /// About this many bytes of the newest rows.
    Bytes(u64),
}

impl HotLimit {
    fn encoded(self) -> (String, String) {
        match self {
            HotLimit::Micros(micros) => ("hot_us".to_owned(), micros.to_string()),
            HotLimit::Bytes(bytes) => ("hot_bytes".to_owned(), bytes.to_string()),
        }
    }
}

/// The complete definition of a table, without its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct TableDef {
    pub id: TableId,
    /// `namespace.table`.
    pub name: String,
    pub schema: Schema,
    /// The id of the next column or nested field to be added.
    pub next_column: ColumnId,
    /// The columns of the primary key, in key order. Empty for a keyless table.
    pub primary_key: Vec<ColumnId>,
    /// The column that queries by time use, if it is not [`TIME`].
    pub time: Option<ColumnId>,
    pub indexes: Vec<IndexDef>,
    pub options: TableOptions,
}

impl UniqueState {
    fn encoded(&self) -> String {
        match self {
            UniqueState::Checking => "checking".into(),
            UniqueState::Enforced => "enforced".into(),
            UniqueState::Failed(why) => format!("failed: {why}"),
        }
    }

    fn decoded(state: &str) -> Option<UniqueState> {
        Some(match state {
            "checking" => UniqueState::Checking,
            "enforced" => UniqueState::Enforced,
            other => UniqueState::Failed(other.strip_prefix("failed: ")?.to_owned()),
        })
    }
}

impl IndexDef {
    /// Returns true if writes are checked against this index.
    pub fn checks_writes(&self) -> bool {
        matches!(self.unique, Some(UniqueState::Checking | UniqueState::Enforced))
    }

    /// Returns true if the index skips new rows that repeat an existing one: [`OPTION_REPEATS`].
    pub fn skips_repeats(&self) -> bool {
        self.options.iter().any(|(key, _)| key == OPTION_REPEATS)
    }
}

impl Column {
    /// Returns true if a new row may hold null in this column.
    pub fn takes_null(&self) -> bool {
        self.nullable && !self.refuses_null
    }
}

impl Schema {
    pub fn column(&self, id: ColumnId) -> Option<&Column> {
        self.columns.iter().find(|column| column.id == id)
    }

    /// Finds a column by name: an exact match, else the only one that differs by case.
    pub fn column_named(&self, wanted: &str) -> Option<&Column> {
        let exact = self.columns.iter().find(|column| column.name == wanted);
        exact.or_else(|| {
            let found = name::resolve(wanted, self.columns.iter().map(|c| c.name.as_str()));
            found.map(|i| &self.columns[i])
        })
    }

    /// Returns true if each field name of `rows` means the same column, or no column, in both schemas.
    pub fn resolves_alike(&self, other: &Schema, rows: &ArrowSchema) -> bool {
        let id = |schema: &Schema, name: &str| schema.column_named(name).map(|column| column.id);
        rows.fields().iter().all(|field| id(self, field.name()) == id(other, field.name()))
    }

    /// Returns the Arrow schema of stored rows: `_row_id`, `_time`, then the columns.
    pub fn to_arrow(&self) -> SchemaRef {
        let row_id = arrow_field(ROW_ID_NAME, &DataType::Int64, false, ROW_ID);
        let time = arrow_field(TIME_NAME, &DataType::Timestamp, false, TIME);
        let columns = self.columns.iter().map(|c| arrow_field(&c.name, &c.data_type, c.nullable, c.id));
        Arc::new(ArrowSchema::new([row_id, time].into_iter().chain(columns).collect::<Vec<_>>()))
    }

    /// Returns the Arrow schema of rows as users write them: without the system columns.
    pub fn to_arrow_user(&self) -> SchemaRef {
        let columns = self.columns.iter().map(|c| arrow_field(&c.name, &c.data_type, c.nullable, c.id));
        Arc::new(ArrowSchema::new(columns.collect::<Vec<_>>()))
    }
}

impl TableDef {
    /// Returns a definition without columns. `full_name` must have passed [`name::full_table_name`].
    pub fn new(id: TableId, full_name: impl Into<String>) -> Self {
        TableDef {
            id,
            name: full_name.into(),
            schema: Schema { version: SchemaVersion(1), columns: Vec::new() },
            next_column: FIRST_USER_COLUMN,
            primary_key: Vec::new(),
            time: None,
            indexes: Vec::new(),
            options: TableOptions::default(),
        }
    }

    pub fn is_keyed(&self) -> bool {
        !self.primary_key.is_empty()
    }

    /// Returns true if any of its indexes was declared unique, in whatever state it is now.
    pub fn has_unique(&self) -> bool {
        self.indexes.iter().any(|index| index.unique.is_some())
    }

    /// Returns true if a write may be refused because of existing rows: the table has a key or an enforced unique
    /// index.
    pub fn is_checked(&self) -> bool {
        self.is_keyed() || self.indexes.iter().any(IndexDef::checks_writes)
    }

    /// Returns true if new rows that repeat an existing one, by the columns of a unique index, are skipped.
    pub fn skips_repeats(&self) -> bool {
        self.indexes.iter().any(|index| index.skips_repeats() && index.checks_writes())
    }

    /// Returns true if the rows are notes and files of a site. Only admins may read them as rows; all others find just
    /// the published ones, by search.
    pub fn is_vault(&self) -> bool {
        self.indexes.iter().any(|index| index.kind == INDEX_SITE)
    }

    /// Returns the key's columns in key order.
    pub fn key_columns(&self) -> impl Iterator<Item = &Column> + Clone {
        self.primary_key.iter().filter_map(|id| self.schema.column(*id))
    }

    /// Returns the declared unit of numbers in a timestamp column.
    pub fn input_of(&self, column: ColumnId) -> Option<EpochUnit> {
        self.options.inputs.iter().find(|(id, _)| *id == column).map(|(_, unit)| *unit)
    }

    /// Adds a column at the end and gives it and its nested fields fresh ids; the ids in `data_type` are replaced. The
    /// caller increments the schema's version, since it may add several columns.
    pub fn add_column(
        &mut self,
        column_name: &str,
        data_type: &DataType,
        nullable: bool,
        default: Option<Value>,
    ) -> Result<ColumnId> {
        check_new_column(column_name, data_type)?;
        if self.schema.columns.len() >= COLUMNS_MAX {
            return Err(Error::new(
                Kind::TooLarge,
                format!(
                    "a table has at most {COLUMNS_MAX} columns; `{}` would be one more",
                    name::printable(column_name)
                ),
            )
            .with("table", &self.name)
            .hint("put rarely used fields into one json column"));
        }
        let folded = column_name.to_lowercase();
        if let Some(taken) = self.schema.columns.iter().find(|c| c.name.to_lowercase() == folded) {
            return Err(Error::new(Kind::Exists, format!("there is a column `{}` already", taken.name))
                .with("table", &self.name));
        }
        if let Some(value) = &default {
            value.check(data_type).map_err(|e| e.with("column", name::printable(column_name)))?;
        }
        let id = self.take_column_id();
        let data_type = self.with_fresh_ids(data_type);
        let initial = default.clone();
        let name = column_name.to_owned();
        let column = Column { id, name, data_type, nullable, refuses_null: false, default, initial };
        self.schema.columns.push(column);
        Ok(id)
    }

    /// Makes the named columns the primary key; they become NOT NULL.
    pub fn set_primary_key(&mut self, names: &[String]) -> Result<()> {
        let mut key = Vec::with_capacity(names.len());
        for wanted in names {
            let Some(column) = self.schema.column_named(wanted) else {
                return Err(Error::invalid(format!(
                    "key column `{}` is not a column of the table",
                    name::printable(wanted)
                ))
                .with("table", &self.name));
            };
            if !column.data_type.is_key() {
                return Err(Error::invalid(format!("a {} cannot be part of a key", column.data_type))
                    .with("table", &self.name)
                    .with("column", &column.name));
            }
            if key.contains(&column.id) {
                return Err(Error::invalid(format!("the key names column `{}` twice", column.name)));
            }
            key.push(column.id);
        }
        for column in &mut self.schema.columns {
            column.nullable &= !key.contains(&column.id);
        }
        self.primary_key = key;
        Ok(())
    }

    fn take_column_id(&mut self) -> ColumnId {
        let id = self.next_column;
        self.next_column = id.next();
        id
    }

    fn with_fresh_ids(&mut self, data_type: &DataType) -> DataType {
        match data_type {
            DataType::List(item) => {
                let id = self.take_column_id();
                let mut item = item.clone();
                item.id = id;
                item.data_type = self.with_fresh_ids(&item.data_type);
                DataType::List(item)
            }
            DataType::Struct(fields) => {
                let mut fields = fields.clone();
                for field in &mut fields {
                    field.id = self.take_column_id();
                }
                for field in &mut fields {
                    field.data_type = self.with_fresh_ids(&field.data_type);
                }
                DataType::Struct(fields)
            }
            other => other.clone(),
        }
    }

    pub fn encode(&self, e: &mut Encoder) {
        e.varint(self.id.0.into());
        e.str(&self.name);
        e.varint(self.schema.version.0.into());
        e.varint(self.next_column.0.into());
        e.list(&self.schema.columns, |e, column| {
            e.varint(column.id.0.into());
            e.str(&column.name);
            column.data_type.encode(e);
            e.bool(column.nullable);
            e.option(column.default.as_ref(), |e, v| v.encode(e));
            e.option(column.initial.as_ref(), |e, v| v.encode(e));
        });
        e.list(&self.primary_key, |e, id| e.varint(id.0.into()));
        e.option(self.time, |e, id| e.varint(id.0.into()));
        e.list(&self.indexes, |e, index| {
            e.str(&index.name);
            e.str(&index.kind);
            e.list(&index.columns, |e, id| e.varint(id.0.into()));
            match &index.unique {
                None => encode_pairs(e, &index.options),
                Some(unique) => {
                    let pair = (UNIQUE.to_owned(), unique.encoded());
                    let pairs: Vec<_> = index.options.iter().cloned().chain([pair]).collect();
                    encode_pairs(e, &pairs);
                }
            }
        });
        // Options are stored by name, so that a later version can add one without a new format.
        let options = &self.options;
        let mut pairs = Vec::new();
        if let Some(lake) = options.lake {
            pairs.push(("lake".to_owned(), lake.to_string()));
        }
        if let Some(retention) = options.retention {
            pairs.push(("retention_us".to_owned(), retention.to_string()));
        }
        if let Some(ttl) = options.ttl {
            pairs.push(("ttl_us".to_owned(), ttl.to_string()));
        }
        pairs.extend(options.hot.map(HotLimit::encoded));
        pairs.extend(options.partition_by.iter().map(|by| ("partition_by".to_owned(), by.clone())));
        pairs.extend(options.sort_by.iter().map(|by| ("sort_by".to_owned(), by.clone())));
        pairs.extend(self.null_refusing().map(|id| ("not_null".to_owned(), id.to_string())));
        pairs.extend(options.paths.iter().map(|(id, path)| ("path".to_owned(), format!("{id} {path}"))));
        pairs.extend(options.inputs.iter().map(|(id, unit)| ("input".to_owned(), format!("{id} {unit}"))));
        pairs.extend(options.rest.map(|id| ("rest".to_owned(), id.to_string())));
        encode_pairs(e, &pairs);
    }

    /// Fails with [`Kind::Schema`] if the table has the option `hot` but its rows must stay on this machine.
    pub fn check_hot(&self) -> Result<()> {
        let Some(hot) = self.options.hot else { return Ok(()) };
        let refuse = |what: &str, hint: &str| {
            let table = name::short_table_name(&self.name);
            Err(Error::new(Kind::Schema, format!("table `{table}` cannot have `hot`: {what}")).hint(hint))
        };
        if self.is_keyed() {
            return refuse(
                "a table with a key keeps all its rows on this machine",
                "leave `hot` out, or the key",
            );
        }
        if self.has_unique() {
            return refuse(
                "its unique index compares all rows, so they stay on this machine",
                "leave one of the two out",
            );
        }
        if self.is_vault() || self.options.lake == Some(false) {
            return refuse("it has no lake for its rows", "leave `hot` out, or let it have a lake");
        }
        if matches!(hot, HotLimit::Micros(micros) if micros < 1_000_000) {
            return refuse("that is less than a second", "say hours, or bytes");
        }
        Ok(())
    }

    /// Fails unless [`TableDef::decode`] reads the encoded definition back unchanged. This is the last check before a
    /// definition is logged: one that cannot be decoded would keep the whole database from opening.
    pub fn check_stored(&self) -> Result<()> {
        self.check_hot()?;
        for column in &self.schema.columns {
            column.data_type.check().map_err(|e| e.with("column", name::printable(&column.name)))?;
        }
        let bytes = |def: &TableDef| {
            let mut e = Encoder::new();
            def.encode(&mut e);
            e.bytes
        };
        let written = bytes(self);
        let mut d = Decoder::new(&written);
        let read = TableDef::decode(&mut d).and_then(|def| d.finish().map(|()| def));
        // The definitions are compared as bytes, since a default may be a NaN, which equals nothing.
        match read {
            Ok(read) if bytes(&read) == written => Ok(()),
            Ok(_) => Err(Error::invalid("the table's definition would be stored with changes")
                .with("table", &self.name)),
            Err(error) => {
                let what = format!("the table's definition could not be read back: {}", error.message());
                Err(Error::invalid(what).with("table", &self.name))
            }
        }
    }

    pub fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        let id = TableId(d.varint32()?);
        let table_name = d.str()?.to_owned();
        let version = SchemaVersion(d.varint32()?);
        let next_column = ColumnId(d.varint32()?);
        let mut columns = d.list(|d| {
            Ok(Column {
                id: ColumnId(d.varint32()?),
                name: d.str()?.to_owned(),
                data_type: DataType::decode(d, 0)?,
                nullable: d.bool()?,
                refuses_null: false,
                default: d.option(Value::decode)?,
                initial: d.option(Value::decode)?,
            })
        })?;
        let primary_key = d.list(|d| d.varint32().map(ColumnId))?;
        let time = d.option(|d| d.varint32().map(ColumnId))?;
        let indexes = d.list(|d| {
            let (name, kind) = (d.str()?.to_owned(), d.str()?.to_owned());
            let columns = d.list(|d| d.varint32().map(ColumnId))?;
            let mut options = decode_pairs(d)?;
            let mut unique = None;
            if kind == INDEX_COLUMN
                && let Some(at) = options.iter().position(|(key, _)| key == UNIQUE)
            {
                let (_, state) = options.remove(at);
                let known = UniqueState::decoded(&state);
                unique = Some(known.ok_or_else(|| d.damaged("a unique index in an unknown state"))?);
            }
            Ok(IndexDef { name, kind, columns, options, unique })
        })?;
        let mut options = TableOptions::default();
        for (key, value) in decode_pairs(d)? {
            match key.as_str() {
                "lake" => options.lake = Some(value == "true"),
                "retention_us" => {
                    options.retention =
                        Some(value.parse().map_err(|_| d.damaged("a retention that is not a number"))?);
                }
                "hot_us" => {
                    let hot = value.parse().ok().filter(|hot| *hot > 0).map(HotLimit::Micros);
                    options.hot = Some(hot.ok_or_else(|| d.damaged("an invalid time limit of hot rows"))?);
                }
                "hot_bytes" => {
                    let hot = value.parse().ok().map(HotLimit::Bytes);
                    options.hot = Some(hot.ok_or_else(|| d.damaged("an invalid byte limit of hot rows"))?);
                }
                "ttl_us" => {
                    let ttl = value.parse().ok().filter(|ttl| *ttl > 0);
                    options.ttl = Some(ttl.ok_or_else(|| d.damaged("an invalid time to live"))?);
                }
                "partition_by" => options.partition_by.push(value),
                "sort_by" => options.sort_by.push(value),
                "not_null" => {
                    let id = value.parse().map(ColumnId).ok();
                    let column = columns.iter_mut().find(|column: &&mut Column| Some(column.id) == id);
                    column
                        .ok_or_else(|| d.damaged("NOT NULL for a column that does not exist"))?
                        .refuses_null = true;
                }
                "path" => {
                    let read = || {
                        let (id, path) = value.split_once(' ')?;
                        let id = id.parse().map(ColumnId).ok()?;
                        let path = Path::parse(path).ok()?;
                        columns.iter().any(|column| column.id == id).then_some((id, path))
                    };
                    let path = read().ok_or_else(|| d.damaged("a path for a column that does not exist"))?;
                    options.paths.push(path);
                }
                "input" => {
                    let read = || {
                        let (id, unit) = value.split_once(' ')?;
                        let id = id.parse().map(ColumnId).ok()?;
                        let is_there = columns.iter().any(|column| column.id == id);
                        Some((id, EpochUnit::parse(unit).ok()?)).filter(|_| is_there)
                    };
                    options.inputs.push(
                        read().ok_or_else(|| d.damaged("a time unit for a column that does not exist"))?,
                    );
                }
                "rest" => {
                    let id = value.parse().map(ColumnId).ok();
                    let id = id.filter(|id| columns.iter().any(|column| column.id == *id));
                    options.rest = Some(id.ok_or_else(|| d.damaged("a rest column that does not exist"))?);
                }
                // The option was written by a later version of the same format; this version ignores it.
                _ => {}
            }
        }
        let schema = Schema { version, columns };
        if primary_key.iter().any(|id| schema.column(*id).is_none()) {
            return Err(d.damaged("a key column that does not exist"));
        }
        Ok(TableDef { id, name: table_name, schema, next_column, primary_key, time, indexes, options })
    }
}

fn encode_pairs(e: &mut Encoder, pairs: &[(String, String)]) {
    e.list(pairs, |e, (key, value)| {
        e.str(key);
        e.str(value);
    });
}

fn decode_pairs(d: &mut Decoder<'_>) -> Result<Vec<(String, String)>> {
    d.list(|d| Ok((d.str()?.to_owned(), d.str()?.to_owned())))
}

/// Returns the column ids of an Arrow schema made by [`Schema::to_arrow`], in its order; `None` for a field without an
/// id.
pub fn column_ids(schema: &ArrowSchema) -> Vec<Option<ColumnId>> {
    let id_of = |metadata: &HashMap<String, String>| {
        metadata.get(crate::data_type::FIELD_ID_KEY).and_then(|id| id.parse().ok()).map(ColumnId)
    };
    schema.fields().iter().map(|field| id_of(field.metadata())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Field;
    use crate::data_type::NESTING_MAX;

    #[test]
    fn a_definition_survives_storage() {
        let mut def = TableDef::new(TableId(7), "main.events");
        let nested = DataType::parse("struct<a: list<int64>, b: string>", &mut ColumnId(0)).unwrap();
        def.add_column("id", &DataType::Int64, true, None).unwrap();
        def.add_column("shape", &nested, true, None).unwrap();
        def.add_column("kind", &DataType::String, false, Some(Value::String("x".into()))).unwrap();
        def.set_primary_key(&["ID".into()]).unwrap();
        def.indexes.push(IndexDef {
            name: "by_kind".into(),
            kind: "column".into(),
            columns: vec![ColumnId(18)],
            options: vec![("a".into(), "b".into())],
            unique: None,
        });
        for (name, unique) in [
            ("c", UniqueState::Checking),
            ("e", UniqueState::Enforced),
            ("f", UniqueState::Failed("x = 1: \0 é".into())),
        ] {
            let index = def.indexes[0].clone();
            def.indexes.push(IndexDef { name: name.into(), unique: Some(unique), ..index });
        }
        def.options = TableOptions {
            lake: Some(false),
            retention: Some(5),
            hot: Some(HotLimit::Bytes(7)),
            ttl: Some(6),
            partition_by: vec!["days(_time)".into()],
            sort_by: vec!["kind desc".into(), "id".into()],
            paths: vec![
                (ColumnId(16), Path::parse("payload.id").unwrap()),
                (ColumnId(21), Path::parse("a.\"b c\"").unwrap()),
            ],
            rest: None,
            inputs: vec![(ColumnId(21), EpochUnit::Millis)],
        };
        let rest = def.add_column("rest", &DataType::Json, true, None).unwrap();
        def.options.rest = Some(rest);
        let mut e = Encoder::new();
        def.encode(&mut e);
        let mut d = Decoder::new(&e.bytes);
        assert_eq!(TableDef::decode(&mut d).unwrap(), def);
        d.finish().unwrap();
        assert!(!def.schema.columns[0].nullable, "a key column is NOT NULL");
        for cut in 0..e.bytes.len() {
            assert!(TableDef::decode(&mut Decoder::new(&e.bytes[..cut])).is_err());
        }
    }

    #[test]
    fn no_id_is_given_twice_not_even_to_nested_fields() {
        let mut def = TableDef::new(TableId(1), "main.t");
        let nested = DataType::parse("struct<a: list<int64>, b: string>", &mut ColumnId(0)).unwrap();
        def.add_column("x", &nested, true, None).unwrap();
        let y = def.add_column("y", &DataType::Bool, true, None).unwrap();
        let DataType::Struct(fields) = &def.schema.columns[0].data_type else { panic!("a struct") };
        let DataType::List(item) = &fields[0].data_type else { panic!("a list") };
        let mut ids = [def.schema.columns[0].id, fields[0].id, fields[1].id, item.id, y].map(|id| id.0);
        ids.sort_unstable();
        assert_eq!(ids, [16, 17, 18, 19, 20]);
    }

    /// A type `INT[][]…` with 17 or more brackets was accepted and logged, and could never be decoded again.
    #[test]
    fn a_type_that_storage_cannot_read_back_enters_no_definition() {
        let nested = |levels: usize| {
            let item =
                |data_type| Field { id: ColumnId(0), name: "element".into(), data_type, nullable: true };
            (0..levels).fold(DataType::Int32, |inner, _| DataType::List(Box::new(item(inner))))
        };
        let mut def = TableDef::new(TableId(1), "main.t");
        def.add_column("fits", &nested(NESTING_MAX), true, None).unwrap();
        def.check_stored().unwrap();
        let error = def.add_column("deep", &nested(NESTING_MAX + 1), true, None).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        def.schema.columns[0].data_type = nested(NESTING_MAX + 1);
        assert_eq!(def.check_stored().unwrap_err().kind(), Kind::Invalid);
        def.schema.columns[0].data_type = DataType::Int32;
        def.primary_key = vec![ColumnId(99)];
        assert_eq!(def.check_stored().unwrap_err().kind(), Kind::Invalid, "a key of no column");
    }

    #[test]
    fn two_columns_that_differ_by_case_are_refused() {
        let mut def = TableDef::new(TableId(1), "main.t");
        def.add_column("Id", &DataType::Int64, true, None).unwrap();
        assert_eq!(def.add_column("iD", &DataType::Int64, true, None).unwrap_err().kind(), Kind::Exists);
    }

    #[test]
    fn a_float_is_no_key() {
        let mut def = TableDef::new(TableId(1), "main.t");
        def.add_column("x", &DataType::Float64, true, None).unwrap();
        assert!(def.set_primary_key(&["x".into()]).is_err());
        assert!(def.set_primary_key(&["y".into()]).is_err());
    }
}
