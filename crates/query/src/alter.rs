//! Turns ALTER TABLE into changes of a definition. Each action is checked against the result of the previous ones.

use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, ColumnDef, ColumnOption, DropBehavior, Ident,
    RenameTableNameKind, SqlOption, TableConstraint,
};
use engine::{Op, View};
use sql::names::ParsedTableName;
use sql::not_yet;
use sql::sql_type;
use types::{AlterAction, Error, Kind, Result, TableDef, Value, name};

use crate::ddl::{default_value, hot, layout, time_column, time_to_live, unique_index};
use crate::planner::resolve_table;
use crate::write::column_position;

/// Returns the operations of an ALTER TABLE; none if it changes nothing.
pub(crate) fn ops(alter: &AlterTable, view: &View) -> Result<Vec<Op>> {
    if alter.table_type.is_some() || alter.location.is_some() || alter.on_cluster.is_some() {
        return Err(not_yet("this form of ALTER TABLE"));
    }
    let snapshot = match resolve_table(view, &ParsedTableName::of(&alter.name)?) {
        Ok(snapshot) => snapshot,
        Err(error) if alter.if_exists && error.kind() == Kind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    if let [operation] = alter.operations.as_slice()
        && let Some(ops) = constraint(operation, snapshot.def())?
    {
        return Ok(ops);
    }
    let mut def = TableDef::clone(snapshot.def());
    let mut all = Vec::with_capacity(alter.operations.len());
    for operation in &alter.operations {
        for change in changes(operation, &def)? {
            let error_in = |e: Error| e.with("table", name::short_table_name(&snapshot.def().name));
            def.alter(&change).map_err(error_in)?;
            all.push(change);
        }
    }
    if def == **snapshot.def() {
        return Ok(Vec::new());
    }
    Ok(vec![Op::AlterTable { table: snapshot.def().name.clone(), changes: all }])
}

/// Returns the operation that adds or drops a unique index as a constraint; `None` for any other action.
fn constraint(operation: &AlterTableOperation, def: &TableDef) -> Result<Option<Vec<Op>>> {
    let (drop, add) = match operation {
        AlterTableOperation::AddConstraint { constraint: TableConstraint::Unique(unique), .. } => {
            (Vec::new(), vec![unique_index(unique)?])
        }
        AlterTableOperation::DropConstraint { if_exists, name: wanted, .. } => {
            let known = def.index_named(&wanted.value).filter(|index| index.unique.is_some());
            match known {
                Some(index) => (vec![index.name.clone()], Vec::new()),
                None if *if_exists => return Ok(Some(Vec::new())),
                None => {
                    let shown = name::printable(&wanted.value);
                    return Err(Error::not_found(format!("there is no unique index `{shown}`"))
                        .with("table", name::short_table_name(&def.name))
                        .hint("the primary key stays"));
                }
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(vec![Op::AlterIndexes { table: def.name.clone(), drop, add }]))
}

fn changes(operation: &AlterTableOperation, def: &TableDef) -> Result<Vec<AlterAction>> {
    let column = |ident: &Ident| column_position(def, ident).map(|at| def.schema.columns[at].name.clone());
    Ok(vec![match operation {
        AlterTableOperation::AddColumn { column_position: None, column_def, if_not_exists, .. } => {
            add_column(column_def, *if_not_exists)?
        }
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
            AlterAction::RenameColumn { from: column(old_column_name)?, to: new_column_name.value.clone() }
        }
        AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
            if matches!(drop_behavior, Some(DropBehavior::Cascade)) {
                return Err(not_yet("DROP COLUMN … CASCADE")
                    .hint("indexes over the column go with it; views that read it have to be replaced"));
            }
            let is_there = |ident: &&Ident| !*if_exists || column(ident).is_ok();
            let drop = |ident| Ok(AlterAction::DropColumn { name: column(ident)?, if_exists: *if_exists });
            return column_names.iter().filter(is_there).map(drop).collect();
        }
        AlterTableOperation::RenameTable { table_name } => {
            let (RenameTableNameKind::To(to) | RenameTableNameKind::As(to)) = table_name;
            let ParsedTableName { namespace, table } = ParsedTableName::of(to)?;
            // The table stays in its namespace unless the new name has one.
            let own = || def.name.split('.').next().unwrap_or(name::DEFAULT_NAMESPACE).to_owned();
            let namespace = namespace.map_or_else(own, |(namespace, _)| namespace);
            AlterAction::RenameTable { to: format!("{namespace}.{}", table.0) }
        }
        AlterTableOperation::AlterColumn { column_name, op } => {
            let at = column_position(def, column_name)?;
            let column = &def.schema.columns[at];
            let name = column.name.clone();
            match op {
                AlterColumnOperation::SetNotNull => AlterAction::SetNotNull { name },
                AlterColumnOperation::DropNotNull => AlterAction::DropNotNull { name },
                AlterColumnOperation::SetDefault { value } => {
                    let value = default_value(value, &column.data_type, &name)?;
                    AlterAction::SetDefault { name, value }
                }
                AlterColumnOperation::DropDefault => AlterAction::SetDefault { name, value: None },
                AlterColumnOperation::SetDataType { data_type, using: None, .. } => {
                    AlterAction::Widen { name, to: sql_type::from_sql(data_type)? }
                }
                AlterColumnOperation::SetDataType { .. } => return Err(not_yet("TYPE … USING")),
                AlterColumnOperation::AddGenerated { .. } => return Err(not_yet("ADD GENERATED")),
            }
        }
        AlterTableOperation::SetOptionsParens { options } => return options.iter().map(option).collect(),
        other => return Err(not_yet(&format!("ALTER TABLE … `{other}`"))),
    }])
}

/// Parses an option of SET (…). Options that are not named keep their values.
fn option(option: &SqlOption) -> Result<AlterAction> {
    match option {
        SqlOption::KeyValue { key, value } if key.value.eq_ignore_ascii_case("ttl") => {
            Ok(AlterAction::SetTtl { to: time_to_live(value)? })
        }
        SqlOption::KeyValue { key, value } if key.value.eq_ignore_ascii_case("hot") => {
            Ok(AlterAction::SetHot { to: hot(value)? })
        }
        SqlOption::KeyValue { key, value } if key.value.eq_ignore_ascii_case("time") => {
            Ok(AlterAction::SetTime { to: time_column(value)? })
        }
        SqlOption::KeyValue { key, value } if key.value.eq_ignore_ascii_case("partition_by") => {
            Ok(AlterAction::SetPartitionBy { to: layout("partition_by", value)? })
        }
        SqlOption::KeyValue { key, value } if key.value.eq_ignore_ascii_case("sort_by") => {
            Ok(AlterAction::SetSortBy { to: layout("sort_by", value)? })
        }
        other => Err(not_yet(&format!("ALTER TABLE … SET ({other})"))
            .hint("`ttl`, `hot`, `time`, `partition_by` and `sort_by` may be set")),
    }
}

fn add_column(column: &ColumnDef, if_absent: bool) -> Result<AlterAction> {
    let name = column.name.value.clone();
    let data_type =
        sql_type::from_sql(&column.data_type).map_err(|e| e.with("column", name::printable(&name)))?;
    let (mut nullable, mut default): (bool, Option<Value>) = (true, None);
    for option in &column.options {
        match &option.option {
            ColumnOption::Null => nullable = true,
            ColumnOption::NotNull => nullable = false,
            ColumnOption::Default(expr) => default = default_value(expr, &data_type, &name)?,
            other => return Err(not_yet(&format!("`{other}` on a column that is added"))),
        }
    }
    Ok(AlterAction::AddColumn { name, data_type, nullable, default, if_absent })
}
