//! A table to be made.

use types::{ColumnId, DataType, NewIndex, Result, TableDef, TableId, Value, name};

/// Describes a table for [`crate::Database::create_table`]. What is wrong with it is said there.
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
    /// `[namespace.]table`.
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

    /// A column that may be null.
    pub fn column(self, column: impl Into<String>, data_type: DataType) -> Self {
        self.column_with(column, data_type, true, None)
    }

    /// A column that must have a value.
    pub fn required(self, column: impl Into<String>, data_type: DataType) -> Self {
        self.column_with(column, data_type, false, None)
    }

    /// A column with a default for rows that do not name it.
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

    /// The columns, in key order, that name a row. They become NOT NULL.
    pub fn primary_key<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.primary_key = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Columns by whose values SQL finds rows: [`crate::Database::create_index`].
    pub fn index<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.indexes.push((columns.into_iter().map(Into::into).collect(), false));
        self
    }

    /// The same, and no two rows have equal values in all of the columns: [`crate::Database::create_unique_index`].
    pub fn unique<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.indexes.push((columns.into_iter().map(Into::into).collect(), true));
        self
    }

    /// String columns in which [`crate::Database::search`] finds words.
    #[cfg(feature = "text")]
    pub fn text_index<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.text.push(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Leaves a table of that name as it is.
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

/// Reads a type as users write it: `"list<string>"`, `"vector(384)"`.
impl NewTable {
    /// [`NewTable::column`] with the type as text.
    pub fn column_of(self, column: impl Into<String>, data_type: &str) -> Result<Self> {
        // The ids given here are replaced when the column is added.
        let data_type = DataType::parse(data_type, &mut ColumnId(0))?;
        Ok(self.column(column, data_type))
    }
}
