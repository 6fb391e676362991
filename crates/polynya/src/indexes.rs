//! Indexes of a table: creating and dropping them, and waiting for them.

use std::time::{Duration, Instant};

use engine::{Committed, Op, Transaction};
use types::{Error, Kind, NewIndex, Result, name};

use crate::Database;

/// Time between two checks of an index under construction.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The state of one index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexStatus {
    pub name: String,
    /// The kind of index: `column` or `text`.
    pub kind: String,
    pub columns: Vec<String>,
    /// Rows that are not indexed yet. Readers find them all the same.
    pub missing_rows: u64,
    /// Bytes of the index files.
    pub bytes: u64,
    /// True if no two rows may have equal values in the columns.
    pub unique: bool,
    /// `building` or `ready`. For a unique index also `checking`, and `failed` if equal rows existed before.
    pub state: &'static str,
    /// The reason for the failure, or for waiting.
    pub error: Option<String>,
}

impl Database {
    /// Adds an index over columns. SQL uses it for single values, ranges and prefixes of texts. Returns once the index is
    /// declared. It is built in the background; answers are exact meanwhile.
    pub fn create_index(&self, table: &str, columns: &[&str]) -> Result<Committed> {
        self.add_index(table, index::column::KIND, columns, &[], false)
    }

    /// Adds a unique index: no two rows may have equal values in all of the columns. A row with a null in one of them equals no
    /// other row. A write that would violate this is refused with [`Kind::Exists`].
    ///
    /// For a table of up to 262,144 rows the existing rows are compared at once. [`Kind::Exists`] then names values of two equal
    /// rows, and no index is created. Rows of a larger table are compared in the background. Meanwhile [`IndexStatus::state`] is
    /// `checking`, and [`Database::wait_for_indexes`] reports a failure.
    pub fn create_unique_index(&self, table: &str, columns: &[&str]) -> Result<Committed> {
        self.add_index(table, index::column::KIND, columns, &[], true)
    }

    /// Adds a text index over string columns, with options such as `("language", "none")` or `("weights", "2,1")`. It is built in
    /// the background. Meanwhile the table stays readable and writable, and searchable unless it is large.
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

    /// Drops an index by its name, which joins the table, the columns and `idx`: `notes_title_body_idx`.
    pub fn drop_index(&self, table: &str, index: &str) -> Result<Committed> {
        let op = Op::AlterIndexes { table: table.into(), drop: vec![index.to_owned()], add: Vec::new() };
        self.commit(Transaction::new(vec![op]))
    }

    /// Returns the state of each index of a table.
    pub fn indexes(&self, table: &str) -> Result<Vec<IndexStatus>> {
        let view = self.engine.view(&self.principal)?;
        let snapshot = view.table(table)?;
        let def = snapshot.def();
        let standing = self.engine.materializer_progress(&snapshot);
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

    /// Waits until the indexes of a table cover every row that it has now and unique indexes are enforced. Answers are exact
    /// without this wait, only slower. Fails with [`Kind::Timeout`] after `longest`, with [`Kind::Exists`] for a unique index
    /// over equal rows, and with the error of an index that could not be built.
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
                if let Some(types::UniqueState::Failed(why)) = &index.unique {
                    let what = format!("index `{}` is not unique: {why}", index.name);
                    return Err(Error::new(Kind::Exists, what)
                        .with("table", name::short_table_name(&def.name))
                        .with("index", &index.name)
                        .hint("drop it, change the rows, and make it again"));
                }
                if reached < last || index.unique == Some(types::UniqueState::Checking) {
                    is_missing = true;
                    self.engine.hurry(materializer, def.id);
                }
            }
            if !is_missing {
                return Ok(());
            }
            let failed =
                self.engine.materializer_progress(&snapshot).into_iter().find_map(|standing| standing.error);
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
