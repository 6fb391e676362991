//! Changes to a table's definition: the actions of ALTER TABLE, applied one after the other.
//!
//! Nothing here touches rows. A column keeps its id through a rename, and the id is never given to another column.
//! Rows that were written before a change are therefore read by column id under the new definition.

use crate::name::{self, printable};
use crate::{Column, ColumnId, DataType, EpochUnit, Error, HotLimit, Kind, Path, Result, TableDef, Value};

/// One action of ALTER TABLE. [`TableDef::alter`] looks up the column names when it applies the action, so an action
/// may name a column that an earlier one added or renamed.
#[derive(Clone, Debug, PartialEq)]
pub enum AlterAction {
    AddColumn {
        name: String,
        data_type: DataType,
        nullable: bool,
        default: Option<Value>,
        if_absent: bool,
    },
    RenameColumn {
        from: String,
        to: String,
    },
    /// Drops the column and every index over it.
    DropColumn {
        name: String,
        if_exists: bool,
    },
    /// Changes the type to one that holds every value of the old type: see [`DataType::widens_to`].
    Widen {
        name: String,
        to: DataType,
    },
    /// Sets the default for rows written from now on. `None` means null.
    SetDefault {
        name: String,
        value: Option<Value>,
    },
    SetNotNull {
        name: String,
    },
    DropNotNull {
        name: String,
    },
    /// Sets the age in microseconds at which rows are deleted. `None`: rows are never deleted.
    SetTtl {
        to: Option<i64>,
    },
    /// Sets the timestamp column that holds the time of a row. `None`: the time of arrival is used. Segments that are
    /// sorted by another column stay so until they are merged.
    SetTime {
        to: Option<String>,
    },
    /// Sets the path in JSON rows under which the values of a column are found. `None`: the column's name.
    SetPath {
        name: String,
        path: Option<Path>,
    },
    /// Sets the unit of the numbers that are written to a timestamp column. `None`: microseconds.
    SetInput {
        name: String,
        to: Option<EpochUnit>,
    },
    /// Sets the json column that takes fields without a column of their own. `None`: such fields become new columns.
    SetRest {
        to: Option<String>,
    },
    /// Sets how much of the table stays on this machine. `None`: all rows that are local now and all new ones; rows
    /// that were evicted before stay in the lake only.
    SetHot {
        to: Option<HotLimit>,
    },
    /// Sets the partition expressions, as parsed by [`TableDef::partitions`]. Empty: the table is not partitioned.
    /// Existing files stay as they are.
    SetPartitionBy {
        to: Vec<String>,
    },
    /// Sets the sort expressions, as parsed by [`TableDef::sort_columns`]. Empty: rows are in the order of their ids.
    /// Existing files stay as they are.
    SetSortBy {
        to: Vec<String>,
    },
    /// Renames the table to `[namespace.]table`.
    RenameTable {
        to: String,
    },
}

impl AlterAction {
    /// Returns true if the existing rows must be checked before the change may be committed.
    pub fn needs_row_check(&self) -> bool {
        matches!(self, AlterAction::SetNotNull { .. })
    }
}

impl TableDef {
    /// Returns the definition after these changes, with the next schema version, or `None` if they change nothing.
    ///
    /// Errors: [`Kind::Schema`] with the reason if a change is not possible; [`Kind::NotFound`] and [`Kind::Exists`]
    /// for columns.
    pub fn altered(&self, changes: &[AlterAction]) -> Result<Option<TableDef>> {
        let mut changed = self.clone();
        for change in changes {
            changed.alter(change).map_err(|e| e.with("table", name::short_table_name(&self.name)))?;
        }
        if changed == *self {
            return Ok(None);
        }
        changed.schema.version = self.schema.version.next();
        changed.check_stored()?;
        Ok(Some(changed))
    }

    /// Applies one change. The caller increments the version, since it may apply several.
    pub fn alter(&mut self, change: &AlterAction) -> Result<()> {
        if self.is_vault() && !matches!(change, AlterAction::AddColumn { .. }) {
            return Err(Error::new(Kind::Schema, "the definition of a vault cannot be changed")
                .hint("columns may be added to it"));
        }
        match change {
            AlterAction::AddColumn { name, data_type, nullable, default, if_absent } => {
                if *if_absent && self.schema.column_named(name).is_some() {
                    return Ok(());
                }
                if !nullable && default.is_none() {
                    return Err(Error::invalid(format!(
                        "column `{}` is NOT NULL and has no default, so existing rows would have no value",
                        printable(name)
                    ))
                    .hint("give it a default or let it be null"));
                }
                self.add_column(name, data_type, *nullable, default.clone()).map(drop)
            }
            AlterAction::RenameColumn { from, to } => self.rename_column(from, to),
            AlterAction::DropColumn { name, if_exists } => match self.schema.column_named(name) {
                None if *if_exists => Ok(()),
                _ => self.drop_column(name),
            },
            AlterAction::Widen { name, to } => self.widen(name, to),
            AlterAction::SetDefault { name, value } => {
                let column = self.column_to_change(name)?;
                if let Some(value) = value {
                    value.check(&column.data_type).map_err(|e| e.with("column", printable(name)))?;
                }
                column.default.clone_from(value);
                Ok(())
            }
            AlterAction::SetNotNull { name } => {
                let column = self.column_to_change(name)?;
                column.refuses_null |= column.nullable;
                Ok(())
            }
            AlterAction::DropNotNull { name } => {
                let column = self.column_to_change(name)?;
                let (id, called) = (column.id, column.name.clone());
                if self.primary_key.contains(&id) {
                    return Err(key_stays(&called, "NOT NULL"));
                }
                let column = self.column_to_change(name)?;
                (column.nullable, column.refuses_null) = (true, false);
                Ok(())
            }
            AlterAction::SetTtl { to } => {
                if to.is_some_and(|ttl| ttl < 1_000_000) {
                    return Err(Error::invalid("rows live for a second at least"));
                }
                self.options.ttl = *to;
                Ok(())
            }
            AlterAction::SetHot { to } => {
                self.set_hot(*to);
                self.check_hot()
            }
            AlterAction::SetTime { to } => {
                self.time = to.as_ref().map(|name| self.time_column(name)).transpose()?;
                Ok(())
            }
            AlterAction::SetPath { name, path } => self.set_path(name, path.clone()),
            AlterAction::SetInput { name, to } => self.set_input(name, *to),
            AlterAction::SetRest { to } => self.set_rest(to.as_deref()),
            AlterAction::SetPartitionBy { to } => self.set_partition_by(to),
            AlterAction::SetSortBy { to } => self.set_sort_by(to),
            AlterAction::RenameTable { to } => {
                let full_name = name::full_table_name(to)?;
                if full_name != self.name {
                    name::check_new_table(&full_name)?;
                    self.name = full_name;
                }
                Ok(())
            }
        }
    }

    /// Sets the `hot` option. Setting an amount also turns the lake on for this table, so that a later change of the
    /// server's default cannot leave its evicted rows without a lake.
    pub fn set_hot(&mut self, to: Option<HotLimit>) {
        self.options.hot = to;
        if to.is_some() {
            self.options.lake.get_or_insert(true);
        }
    }

    fn column_to_change(&mut self, wanted: &str) -> Result<&mut Column> {
        let found = name::resolve(wanted, self.schema.columns.iter().map(|c| c.name.as_str()));
        let Some(at) = found else {
            let have: Vec<String> =
                self.schema.columns.iter().take(20).map(|c| format!("`{}`", c.name)).collect();
            return Err(Error::not_found(format!("there is no column `{}`", printable(wanted)))
                .hint(format!("its columns are {}", have.join(", "))));
        };
        Ok(&mut self.schema.columns[at])
    }

    /// Returns the id of a column that can be the table's time column. [`Kind::Schema`] if it is not a timestamp.
    pub fn time_column(&mut self, wanted: &str) -> Result<ColumnId> {
        let column = self.column_to_change(wanted)?;
        if column.data_type != DataType::Timestamp {
            let what =
                format!("column `{}` is {}, so it cannot be the time column", column.name, column.data_type);
            return Err(Error::new(Kind::Schema, what).hint("the time column must be a timestamp"));
        }
        Ok(column.id)
    }

    fn rename_column(&mut self, from: &str, to: &str) -> Result<()> {
        name::check_column(to)?;
        let column = self.column_to_change(from)?;
        let (id, old) = (column.id, column.name.clone());
        let folded = to.to_lowercase();
        let is_taken = |c: &&Column| c.id != id && c.name.to_lowercase() == folded;
        if let Some(taken) = self.schema.columns.iter().find(is_taken) {
            return Err(Error::new(Kind::Exists, format!("there is a column `{}` already", taken.name)));
        }
        if old != to {
            self.check_not_laid_out_by(id)?;
        }
        to.clone_into(&mut self.column_to_change(from)?.name);
        self.check_rest()
    }

    fn drop_column(&mut self, wanted: &str) -> Result<()> {
        let column = self.column_to_change(wanted)?;
        let (id, called) = (column.id, column.name.clone());
        let stays = |why: String, hint: &str| Err(Error::new(Kind::Schema, why).hint(hint));
        if self.primary_key.contains(&id) {
            return Err(key_stays(&called, "there"));
        }
        if self.time == Some(id) {
            return stays(
                format!("`{called}` is the time column of the table"),
                "ALTER TABLE … SET (time = none) first",
            );
        }
        self.check_not_laid_out_by(id)?;
        if self.schema.columns.len() == 1 {
            return stays(format!("`{called}` is the only column"), "DROP TABLE drops the table");
        }
        self.schema.columns.retain(|column| column.id != id);
        self.indexes.retain(|index| !index.columns.contains(&id));
        self.options.paths.retain(|(column, _)| *column != id);
        self.options.inputs.retain(|(column, _)| *column != id);
        self.options.rest = self.options.rest.filter(|column| *column != id);
        Ok(())
    }

    /// Applies [`AlterAction::SetPath`].
    pub fn set_path(&mut self, wanted: &str, path: Option<Path>) -> Result<()> {
        let id = self.column_to_change(wanted)?.id;
        self.options.paths.retain(|(column, _)| *column != id);
        if let Some(path) = path {
            if let Some((other, _)) = self.options.paths.iter().find(|(_, known)| *known == path) {
                let other = self.schema.column(*other).map_or("", |column| column.name.as_str());
                return Err(Error::new(Kind::Schema, format!("`{path}` is the path of column `{other}`")));
            }
            self.options.paths.push((id, path));
            self.options.paths.sort_by_key(|(column, _)| *column);
        }
        self.check_rest()
    }

    /// Applies [`AlterAction::SetInput`].
    fn set_input(&mut self, wanted: &str, to: Option<EpochUnit>) -> Result<()> {
        let column = self.column_to_change(wanted)?;
        let (id, data_type) = (column.id, column.data_type.clone());
        if to.is_some() && data_type != DataType::Timestamp {
            let what =
                format!("column `{}` is {data_type}, so `input` does not apply to it", printable(wanted));
            return Err(Error::new(Kind::Schema, what).hint("`input` is for timestamp columns"));
        }
        self.options.inputs.retain(|(column, _)| *column != id);
        self.options.inputs.extend(to.map(|unit| (id, unit)));
        self.options.inputs.sort_by_key(|(column, _)| *column);
        Ok(())
    }

    /// Applies [`AlterAction::SetRest`].
    pub fn set_rest(&mut self, to: Option<&str>) -> Result<()> {
        self.options.rest = match to {
            None => None,
            Some(wanted) => {
                let column = self.column_to_change(wanted)?;
                if column.data_type != DataType::Json {
                    let what = format!(
                        "column `{}` is {}, so it cannot take the rest",
                        column.name, column.data_type
                    );
                    return Err(
                        Error::new(Kind::Schema, what).hint("only a json column can take fields of any type")
                    );
                }
                Some(column.id)
            }
        };
        self.check_rest()
    }

    /// Checks that the rest column has no path of its own and that no path begins with its name: its content comes
    /// from the fields without a column.
    fn check_rest(&self) -> Result<()> {
        let Some(rest) = self.options.rest.and_then(|id| self.schema.column(id)) else { return Ok(()) };
        let clashes = |(id, path): &&(ColumnId, Path)| {
            *id == rest.id || path.parts()[0].eq_ignore_ascii_case(&rest.name)
        };
        match self.options.paths.iter().find(clashes) {
            None => Ok(()),
            Some((_, path)) => Err(Error::new(
                Kind::Schema,
                format!("column `{}` takes the rest, and the path `{path}` is in its way", rest.name),
            )
            .hint("give the column another name, or leave the path out")),
        }
    }

    fn widen(&mut self, wanted: &str, to: &DataType) -> Result<()> {
        let column = self.column_to_change(wanted)?;
        let (id, called, from) = (column.id, column.name.clone(), column.data_type.clone());
        if from.to_string() == to.to_string() {
            return Ok(());
        }
        if self.primary_key.contains(&id) {
            return Err(key_stays(&called, "of its type"));
        }
        if !from.widens_to(to) {
            return Err(Error::new(Kind::Schema, format!("column `{called}` cannot become {to}: it is {from}"))
                .hint("int32 becomes int64, float32 becomes float64, decimal(p,s) more digits before the point; for all else add a column, fill it by UPDATE, and drop the old one"));
        }
        let column = self.column_to_change(wanted)?;
        column.default = column.default.take().map(|value| value.cast(to)).transpose()?;
        column.initial = column.initial.take().map(|value| value.cast(to)).transpose()?;
        column.data_type = to.clone();
        Ok(())
    }

    /// Fails if `partition_by` or `sort_by` names the column: these options store the name, not the id.
    fn check_not_laid_out_by(&self, column: ColumnId) -> Result<()> {
        let Some((how, option, by)) = self.laid_out_by(column) else { return Ok(()) };
        Err(Error::new(Kind::Schema, format!("the table is {how} `{by}`"))
            .hint(format!("ALTER TABLE … SET ({option} = none), or another, first")))
    }

    /// Returns the columns that refuse new nulls although older, ended rows may hold some.
    pub fn null_refusing(&self) -> impl Iterator<Item = ColumnId> + '_ {
        self.schema.columns.iter().filter(|c| c.refuses_null).map(|c| c.id)
    }
}

fn key_stays(column: &str, how: &str) -> Error {
    Error::new(Kind::Schema, format!("`{column}` is part of the primary key and stays {how}"))
        .hint("make a new table and copy the rows")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Decoder, Encoder};
    use crate::{NewIndex, SchemaVersion, TableId};

    fn goods() -> TableDef {
        let mut def = TableDef::new(TableId(1), "main.goods");
        def.add_column("id", &DataType::Int64, true, None).unwrap();
        def.add_column("stock", &DataType::Int32, true, Some(Value::Int32(7))).unwrap();
        def.add_column("name", &DataType::String, true, None).unwrap();
        def.set_primary_key(&["id".into()]).unwrap();
        def
    }

    fn named(name: &str) -> String {
        name.to_owned()
    }

    fn ids(def: &TableDef) -> Vec<(u32, &str)> {
        def.schema.columns.iter().map(|c| (c.id.0, c.name.as_str())).collect()
    }

    #[test]
    fn a_column_keeps_its_id_and_its_name_may_be_used_again() {
        let changes = [
            AlterAction::RenameColumn { from: named("Stock"), to: named("amount") },
            AlterAction::AddColumn {
                name: named("stock"),
                data_type: DataType::String,
                nullable: true,
                default: None,
                if_absent: false,
            },
            AlterAction::DropColumn { name: named("name"), if_exists: false },
            AlterAction::DropColumn { name: named("none"), if_exists: true },
        ];
        let def = goods().altered(&changes).unwrap().unwrap();
        assert_eq!(ids(&def), [(16, "id"), (17, "amount"), (19, "stock")]);
        assert_eq!(def.schema.version, SchemaVersion(2));
        let again = AlterAction::AddColumn {
            name: named("name"),
            data_type: DataType::String,
            nullable: true,
            default: None,
            if_absent: true,
        };
        let def = def.altered(std::slice::from_ref(&again)).unwrap().unwrap();
        assert_eq!(ids(&def)[3], (20, "name"), "an id is never used again");
        assert_eq!(def.altered(&[again]).unwrap(), None, "it is there");
    }

    #[test]
    fn a_wider_type_takes_the_defaults_along() {
        let widen = |to| AlterAction::Widen { name: named("stock"), to };
        let def = goods().altered(&[widen(DataType::Int64)]).unwrap().unwrap();
        let column = def.schema.column_named("stock").unwrap();
        assert_eq!((&column.default, &column.initial), (&Some(Value::Int64(7)), &Some(Value::Int64(7))));
        for to in [DataType::Int32, DataType::Float64, DataType::String, DataType::Timestamp] {
            let error = def.altered(&[widen(to.clone())]).unwrap_err();
            assert!(error.message().contains("cannot become"), "{to}: {error}");
        }
        assert_eq!(def.altered(&[widen(DataType::Int64)]).unwrap(), None);
    }

    #[test]
    fn what_others_hang_on_stays_or_goes_with_the_column() {
        let mut def = goods();
        let index = NewIndex { kind: "column".into(), columns: vec!["stock".into()], ..NewIndex::default() };
        def.add_index(&index).unwrap();
        def.options.partition_by = vec!["bucket(4, name)".into()];
        let drop = |name: &str| AlterAction::DropColumn { name: name.into(), if_exists: false };
        let rename = |from: &str, to: &str| AlterAction::RenameColumn { from: from.into(), to: to.into() };
        for (change, part) in [
            (drop("id"), "primary key"),
            (AlterAction::Widen { name: named("id"), to: DataType::Float64 }, "primary key"),
            (AlterAction::DropNotNull { name: named("id") }, "primary key"),
            (drop("name"), "partitioned"),
            (rename("name", "title"), "partitioned"),
            (rename("stock", "ID"), "already"),
            (rename("stock", "_x"), "not a valid column name"),
            (rename("nothing", "x"), "its columns are `id`, `stock`, `name`"),
            (AlterAction::RenameTable { to: named("9") }, "not a valid table name"),
        ] {
            let error = def.altered(std::slice::from_ref(&change)).unwrap_err();
            assert!(error.to_string().contains(part), "{change:?}: {error}");
        }
        let renamed = def.altered(&[rename("stock", "STOCK"), rename("id", "key")]).unwrap().unwrap();
        assert_eq!(ids(&renamed)[..2], [(16, "key"), (17, "STOCK")]);
        assert_eq!(renamed.indexes, def.indexes, "indexes know columns by id");
        assert!(def.altered(&[drop("stock")]).unwrap().unwrap().indexes.is_empty());
    }

    #[test]
    fn a_time_column_is_a_timestamp_and_stays_as_long_as_it_is_one() {
        let mut def = goods();
        let at = def.add_column("at", &DataType::Timestamp, true, None).unwrap();
        let set = |name: Option<&str>| AlterAction::SetTime { to: name.map(named) };
        let drop = AlterAction::DropColumn { name: named("at"), if_exists: false };
        let timed = def.altered(&[set(Some("AT"))]).unwrap().unwrap();
        assert_eq!(timed.time, Some(at));
        assert!(timed.altered(std::slice::from_ref(&drop)).unwrap_err().to_string().contains("time = none"));
        assert_eq!(timed.altered(&[set(None), drop]).unwrap().unwrap().time, None);
        assert!(def.altered(&[set(Some("stock"))]).unwrap_err().to_string().contains("is int32"));
        assert_eq!(def.altered(&[set(Some("none"))]).unwrap_err().kind(), Kind::NotFound);
    }

    #[test]
    fn paths_and_the_rest_go_with_their_columns() {
        let mut def = goods();
        def.add_column("extra", &DataType::Json, true, None).unwrap();
        let path = |name: &str, path: &str| AlterAction::SetPath {
            name: named(name),
            path: (!path.is_empty()).then(|| Path::parse(path).unwrap()),
        };
        let rest = |name: &str| AlterAction::SetRest { to: Some(named(name)) };
        let changes = [path("name", "a.b"), path("STOCK", "a.c"), rest("Extra")];
        let def = def.altered(&changes).unwrap().unwrap();
        assert_eq!(def.options.paths.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [17, 18]);
        assert_eq!(def.altered(&changes).unwrap(), None);
        for (change, part) in [
            (path("id", "a.b"), "is the path of column `name`"),
            (rest("name"), "is string"),
            (path("extra", "x"), "in its way"),
            (path("id", "extra.x"), "in its way"),
            (rest("none"), "there is no column `none`"),
            (AlterAction::RenameColumn { from: named("extra"), to: named("a") }, "in its way"),
        ] {
            let error = def.altered(std::slice::from_ref(&change)).unwrap_err().to_string();
            assert!(error.contains(part), "{change:?}: {error}");
        }
        let drop = |name: &str| AlterAction::DropColumn { name: named(name), if_exists: false };
        let renamed = AlterAction::RenameColumn { from: named("stock"), to: named("amount") };
        let less = def.altered(&[renamed, drop("name"), drop("extra")]).unwrap().unwrap();
        assert_eq!((less.options.paths.len(), less.options.rest), (1, None));
        assert_eq!(less.schema.column(less.options.paths[0].0).unwrap().name, "amount");
        let none = less.altered(&[path("amount", "")]).unwrap().unwrap();
        assert!(none.options.paths.is_empty());
    }

    #[test]
    fn what_refuses_nulls_later_survives_storage() {
        let set = AlterAction::SetNotNull { name: named("name") };
        let def = goods().altered(std::slice::from_ref(&set)).unwrap().unwrap();
        assert!(!def.schema.column_named("name").unwrap().takes_null());
        let mut e = Encoder::new();
        def.encode(&mut e);
        assert_eq!(TableDef::decode(&mut Decoder::new(&e.bytes)).unwrap(), def);
        let free = def.altered(&[AlterAction::DropNotNull { name: named("name") }]).unwrap().unwrap();
        assert!(free.schema.column_named("name").unwrap().takes_null());
        assert_eq!(def.altered(&[set]).unwrap(), None);
        assert_eq!(goods().altered(&[AlterAction::SetNotNull { name: named("id") }]).unwrap(), None);
    }
}
