//! Indexes of a table: declared, dropped, waited for.

use std::time::{Duration, Instant};

use engine::{Committed, Op, Transaction};
use types::{Error, Kind, NewIndex, Result, name};

use crate::Database;

/// Between two looks at an index that is being built.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// One index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexStatus {
    pub name: String,
    /// `column` or `text`.
    pub kind: String,
    pub columns: Vec<String>,
    /// Rows that it has not taken in yet. Readers find them all the same.
    pub missing_rows: u64,
    /// Of its files.
    pub bytes: u64,
    /// Whether no two rows may be equal in its columns.
    pub unique: bool,
    /// `building`, `ready`; of a unique one also `checking`, and `failed` where rows were equal before.
    pub state: &'static str,
    /// Why it failed, or what it waits for.
    pub error: Option<String>,
}

impl Database {
    /// Adds an index over columns, by which SQL finds single values, ranges, and beginnings of texts. Returns once the index is
    /// declared; it is built in the background, and every answer is exact meanwhile.
    pub fn create_index(&self, table: &str, columns: &[&str]) -> Result<Committed> {
        self.add_index(table, index::column::KIND, columns, &[], false)
    }

    /// The same, and no two rows may have equal values in all of the columns; a row with a null in one of them is equal to none.
    /// A write that would make two such rows is refused with [`Kind::Exists`].
    ///
    /// Of a table of up to 262,144 rows they are compared at once: [`Kind::Exists`] names values that two rows have, and there is
    /// no index then. Those of a larger one are compared in the background: until then [`IndexStatus::state`] is `checking`, and
    /// [`Database::wait_for_indexes`] tells if it fails.
    pub fn create_unique_index(&self, table: &str, columns: &[&str]) -> Result<Committed> {
        self.add_index(table, index::column::KIND, columns, &[], true)
    }

    /// Adds a text index over string columns, with options such as `("language", "none")` or `("weights", "2,1")`. It is built
    /// in the background; the table stays readable, writable and, unless it is large, searchable meanwhile.
    #[cfg(feature = "text")]
    pub fn create_text_index(
        &self,
        table: &str,
        columns: &[&str],
        options: &[(&str, &str)],
    ) -> Result<Committed> {
        self.add_index(table, index::text::KIND, columns, options, false)
    }

    fn add_index(
        &self,
        table: &str,
        kind: &str,
        columns: &[&str],
        options: &[(&str, &str)],
        unique: bool,
    ) -> Result<Committed> {
        let index = NewIndex {
            name: String::new(),
            kind: kind.to_owned(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            options: options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            unique,
        };
        let op = Op::AlterIndexes { table: table.into(), drop: Vec::new(), add: vec![index] };
        self.commit(Transaction::new(vec![op]))
    }

    /// Removes an index by its name, which is the table's, the columns' and `idx`: `notes_title_body_idx`.
    pub fn drop_index(&self, table: &str, index: &str) -> Result<Committed> {
        let op = Op::AlterIndexes { table: table.into(), drop: vec![index.to_owned()], add: Vec::new() };
        self.commit(Transaction::new(vec![op]))
    }

    /// The indexes of a table, and how far each has come.
    pub fn indexes(&self, table: &str) -> Result<Vec<IndexStatus>> {
        let view = self.engine.view(&self.principal)?;
        let snapshot = view.table(table)?;
        let def = snapshot.def();
        let standing = self.engine.standing(&snapshot);
        let status = |index: &types::IndexDef| {
            let position = view.derived(index::materializer(&index.kind)?, &snapshot);
            let at = index::progress(def, index, position.as_deref())?;
            let column = |id: &types::ColumnId| def.schema.column(*id).map(|column| column.name.clone());
            let missing_rows = (snapshot.next_row().0 - 1).saturating_sub(at.reached.0);
            let (state, error) = index::state(index, missing_rows);
            let materializer = index::materializer(&index.kind);
            let waits = standing.iter().find(|standing| Some(standing.materializer) == materializer);
            let waits = waits.and_then(|standing| standing.error.as_ref()).map(Error::to_string);
            Some(IndexStatus {
                name: index.name.clone(),
                kind: index.kind.clone(),
                columns: index.columns.iter().filter_map(column).collect(),
                missing_rows,
                bytes: at.bytes,
                unique: index.unique.is_some(),
                state,
                error: error.map(str::to_owned).or(waits),
            })
        };
        Ok(def.indexes.iter().filter_map(status).collect())
    }

    /// Waits until the indexes of a table hold every row that it has now, and unique ones are enforced. [`Kind::Timeout`] after
    /// `longest`; [`Kind::Exists`] of a unique index over rows that are equal; the error of an index that fails to be built. Nothing needs to wait for this: what is asked meanwhile has the same answer, later.
    pub fn wait_for_indexes(&self, table: &str, longest: Duration) -> Result<()> {
        let start = Instant::now();
        let wanted = self.engine.view(&self.principal)?.table(table)?;
        let last = wanted.next_row().0 - 1;
        loop {
            let view = self.engine.view(&self.principal)?;
            let snapshot = view.table(table)?;
            let def = snapshot.def();
            let mut is_missing = false;
            for index in &def.indexes {
                let Some(materializer) = index::materializer(&index.kind) else { continue };
                let position = view.derived(materializer, &snapshot);
                let reached = index::progress(def, index, position.as_deref()).map_or(0, |at| at.reached.0);
                if let Some(types::Unique::Failed(why)) = &index.unique {
                    let what = format!("index `{}` is not unique: {why}", index.name);
                    return Err(Error::new(Kind::Exists, what)
                        .with("table", name::short_table_name(&def.name))
                        .with("index", &index.name)
                        .hint("drop it, change the rows, and make it again"));
                }
                if reached < last || index.unique == Some(types::Unique::Checking) {
                    is_missing = true;
                    self.engine.hurry(materializer, def.id);
                }
            }
            if !is_missing {
                return Ok(());
            }
            let failed = self.engine.standing(&snapshot).into_iter().find_map(|standing| standing.error);
            if let Some(error) = failed {
                return Err(error);
            }
            if start.elapsed() >= longest {
                return Err(Error::new(
                    Kind::Timeout,
                    format!("the indexes of `{}` are still being built", name::short_table_name(&def.name)),
                )
                .hint("they go on; what is asked meanwhile is answered without them"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
