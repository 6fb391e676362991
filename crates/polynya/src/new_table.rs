//! The definition of a table to be created.

use types::{ColumnId, DataType, NewIndex, Result, TableDef, TableId, Value, name};

/// Describes a table for [`crate::Database::create_table`], which reports all mistakes.
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `create_table`"]
pub struct NewTable {
    name: String,
    columns: Vec<(String, DataType, bool, Option<Value>)>,
    primary_key: Vec<String>,
    if_absent: bool,
    indexes: Vec<(Vec<String>, bool)>,
    #[cfg(feature = "text")]
    text: Vec<Vec<String>>,
}

impl NewTable {
    /// Begins the definition of the table `[namespace.]table`.
    pub fn new(table: impl Into<String>) -> Self {
        NewTable {
            name: table.into(),
            columns: Vec::new(),
            primary_key: Vec::new(),
            if_absent: false,
            indexes: Vec::new(),
            #[cfg(feature = "text")]
            text: Vec::new(),
        }
    }

    /// Adds a nullable column.
    pub fn column(self, column: impl Into<String>, data_type: DataType) -> Self {
        self.column_with(column, data_type, true, None)
    }

    /// Adds a column that must have a value.
    pub fn required(self, column: impl Into<String>, data_type: DataType) -> Self {
        self.column_with(column, data_type, false, None)
    }

    /// Adds a column with a default for rows that do not name it.
    pub fn column_with(
        mut self,
        column: impl Into<String>,
        data_type: DataType,
        nullable: bool,
        default: Option<Value>,
    ) -> Self {
        self.columns.push((column.into(), data_type, nullable, default));
        self
    }

    /// Sets the columns of the primary key, in key order. They become NOT NULL.
    pub fn primary_key<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.primary_key = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an index as [`crate::Database::create_index`] does.
    pub fn index<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.indexes.push((columns.into_iter().map(Into::into).collect(), false));
        self
    }

    /// Adds a unique index as [`crate::Database::create_unique_index`] does.
    pub fn unique<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.indexes.push((columns.into_iter().map(Into::into).collect(), true));
        self
    }

    /// Adds a text index for [`crate::Database::search`] over string columns.
    #[cfg(feature = "text")]
    pub fn text_index<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.text.push(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Keeps an existing table of that name unchanged.
    pub fn if_absent(mut self) -> Self {
        self.if_absent = true;
        self
    }

    pub(crate) fn into_def(self) -> Result<(TableDef, bool)> {
        let mut def = TableDef::new(TableId(0), name::full_table_name(&self.name)?);
        for (column, data_type, nullable, default) in &self.columns {
            def.add_column(column, data_type, *nullable, default.clone())?;
        }
        def.set_primary_key(&self.primary_key)?;
        let declared = |kind: &str, columns: &[String]| NewIndex {
            kind: kind.to_owned(),
            columns: columns.to_vec(),
            ..NewIndex::default()
        };
        for (columns, unique) in &self.indexes {
            def.add_index(&NewIndex { unique: *unique, ..declared(index::column::KIND, columns) })?;
        }
        #[cfg(feature = "text")]
        for columns in &self.text {
            def.add_index(&declared(index::text::KIND, columns))?;
        }
        Ok((def, self.if_absent))
    }
}

impl NewTable {
    /// Adds a nullable column with its type as text: `"list<string>"`, `"vector(384)"`.
    pub fn column_of(self, column: impl Into<String>, data_type: &str) -> Result<Self> {
        // The ids given here are replaced when the column is added.
        let data_type = DataType::parse(data_type, &mut ColumnId(0))?;
        Ok(self.column(column, data_type))
    }
}
