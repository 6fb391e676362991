//! A principal's view of a root (A1).

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use table::materializer::Position;
use table::unique::{Key, Lookup};
use types::{
    ColumnId, DataType, Error, INDEX_SITE, IndexDef, Kind, Lsn, Micros, Principal, ROW_ID, Result, RowId,
    Scope, TableDef, TableId, TableSet, ViewDef, name,
};

use crate::database_root::DatabaseRoot;
use crate::idempotency;
use crate::name_hints::{did_you_mean, similar_names};

/// The column that marks the rows of a vault that everybody may see.
const PUBLISHED: &str = "published";

/// A root as one principal may see it (A1): tables that it may not see do not exist.
///
/// A vault ([`TableDef::is_vault`]) holds private notes beside published ones. Its rows are for admins. For others it does
/// not exist, except for search: [`View::searchable`] with [`View::row_filter`].
#[derive(Clone, Debug)]
pub struct View {
    root: Arc<DatabaseRoot>,
    tables: TableSet,
    admin: bool,
    /// The lsn at which it reads, if that is not the root's.
    past_lsn: Option<Lsn>,
}

/// The rows and columns of a table that may be shown to a principal that may not read all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFilter {
    /// The bool column that is true in the rows that may be shown; `None` if no row may be.
    pub published: Option<ColumnId>,
    /// Columns of these rows that may be shown, searched in, filtered by and sorted by.
    pub columns: Vec<ColumnId>,
}

impl View {
    pub(crate) fn new(root: Arc<DatabaseRoot>, principal: &Principal) -> Result<Self> {
        principal.require(Scope::Read)?;
        let admin = principal.scope >= Scope::Admin;
        Ok(View { root, tables: principal.tables.clone(), admin, past_lsn: None })
    }

    /// Returns true if it reads this very root.
    pub(crate) fn is_of(&self, root: &Arc<DatabaseRoot>) -> bool {
        self.present().is_some_and(|own| Arc::ptr_eq(own, root))
    }

    /// The root that it reads, or `None` if it reads an earlier point.
    pub(crate) fn present(&self) -> Option<&Arc<DatabaseRoot>> {
        self.past_lsn.is_none().then_some(&self.root)
    }

    pub fn lsn(&self) -> Lsn {
        self.past_lsn.unwrap_or(self.root.lsn())
    }

    /// Time of its last commit; for a view of the past, to the millisecond.
    pub fn time(&self) -> Micros {
        self.past_lsn.and_then(|lsn| self.root.times.of(lsn)).unwrap_or(self.root.time())
    }

    /// [`DatabaseRoot::derived`] for a table of this view. `None` in a view of the past: derived data is not kept with it.
    pub fn derived(&self, materializer: &str, table: &table::Snapshot) -> Option<Arc<Position>> {
        if self.past_lsn.is_some() {
            return None;
        }
        self.root.derived(materializer, table.def().id).cloned()
    }

    pub(crate) fn lookup(&self, table: TableId) -> Option<&Arc<dyn Lookup>> {
        self.root.lookup(table)
    }

    /// Looks up the rows of `batch`, which has the columns of a unique index, in a table of this view. Returns their encoded
    /// values, which are equal for equal values and `None` if one is null, and the rows of the table that have these values.
    #[allow(clippy::type_complexity, reason = "two lists")]
    pub fn owners(
        &self,
        table: &table::Snapshot,
        index: &IndexDef,
        batch: &RecordBatch,
    ) -> Result<(Vec<Option<Box<[u8]>>>, Vec<Option<RowId>>)> {
        let missing =
            || Error::internal(format!("index `{}` is not unique, or not of this table", index.name));
        let unique = Key::of(table.def(), index).ok_or_else(missing)?;
        let keys = unique.encode(batch)?;
        let lookup = self.lookup(table.def().id).map(|lookup| &**lookup);
        let owners = table.owners(&unique, lookup, batch, &keys)?.ok_or_else(missing)?;
        Ok((keys, owners.rows))
    }

    /// Returns true if output that a materializer published before a restart is still to be opened. Until then
    /// [`View::derived`] returns nothing for it.
    pub fn is_opening(&self, materializer: &str, table: &table::Snapshot) -> bool {
        let id = table.def().id;
        let known = self.root.meta.checkpoints.contains_key(&(materializer.to_owned(), id));
        self.past_lsn.is_none() && known && self.root.derived(materializer, id).is_none()
    }

    /// Returns true if all tables and views exist for this principal.
    pub fn sees_all(&self) -> bool {
        self.admin && self.tables == TableSet::All
    }

    /// The views that exist for this principal, in the order of their full names. Through a view it reads only rows that it
    /// may read itself.
    pub fn views(&self) -> Vec<Arc<ViewDef>> {
        self.root.views().filter(|view| self.tables.contains(&view.name)).cloned().collect()
    }

    /// Returns the view of this name, `[namespace.]view`: the exact one, or the only one that differs by case.
    pub fn view(&self, wanted: &str) -> Option<Arc<ViewDef>> {
        if self.root.meta.views.is_empty() {
            return None;
        }
        let full_name = name::full_table_name(wanted).ok()?;
        let visible = || self.root.views().filter(|view| self.tables.contains(&view.name));
        let at = name::resolve(&full_name, visible().map(|view| view.name.as_str()))?;
        visible().nth(at).cloned()
    }

    /// The tables that exist for this principal, in the order of their full names.
    pub fn tables(&self) -> Vec<Arc<table::Snapshot>> {
        if let Some(lsn) = self.past_lsn {
            return self.tables_at(lsn);
        }
        self.root.tables().filter(|t| self.sees(t.def())).cloned().collect()
    }

    /// Returns the table of this name, `[namespace.]table`: the exact one, or the only one that differs by case. Fails with
    /// [`Kind::NotFound`], which suggests similar names.
    pub fn table(&self, wanted: &str) -> Result<Arc<table::Snapshot>> {
        if self.past_lsn.is_none()
            && let Some(table) = self.root.table(&name::qualified(wanted)).filter(|t| self.sees(t.def()))
        {
            return Ok(table.clone());
        }
        let full_name = name::full_table_name(wanted)?;
        if let Some(lsn) = self.past_lsn {
            return self.table_at(&full_name, lsn);
        }
        self.find(&full_name).ok_or_else(|| self.missing(&full_name, &|def| self.sees(def)))
    }

    /// Returns the table of a name that is already full, like [`View::table`], or `None` if there is none.
    pub fn find(&self, full_name: &str) -> Option<Arc<table::Snapshot>> {
        if let Some(lsn) = self.past_lsn {
            return self.table_at(full_name, lsn).ok();
        }
        self.find_among(full_name, &|def| self.sees(def))
    }

    /// The tables in which this principal may search, in the order of their full names. Rows found in one of them may be
    /// shown as far as its [`View::row_filter`] allows. The past is not searched.
    pub fn searchables(&self) -> Vec<Arc<table::Snapshot>> {
        if self.past_lsn.is_some() {
            return Vec::new();
        }
        self.root.tables().filter(|t| self.may_search(t.def())).cloned().collect()
    }

    /// Returns the table of this name among [`View::searchables`]. Only the rows and columns that [`View::row_filter`] lets
    /// through may be shown, counted, or told apart by an error.
    pub fn searchable(&self, wanted: &str) -> Result<Arc<table::Snapshot>> {
        let full_name = name::full_table_name(wanted)?;
        if self.past_lsn.is_some() {
            return Err(Error::invalid("the past is not searched").hint("read it by SQL"));
        }
        let may_search = |def: &TableDef| self.may_search(def);
        self.find_among(&full_name, &may_search).ok_or_else(|| self.missing(&full_name, &may_search))
    }

    /// The part of a table found by [`View::searchable`] that the principal may see; `None` means all of it.
    pub fn row_filter(&self, table: &table::Snapshot) -> Option<RowFilter> {
        let def = table.def();
        if self.sees(def) {
            return None;
        }
        let site = def.indexes.iter().find(|index| index.kind == INDEX_SITE);
        let published = def.schema.columns.iter().find(|c| c.name == PUBLISHED);
        Some(RowFilter {
            published: published.filter(|c| c.data_type == DataType::Bool).map(|c| c.id),
            columns: site.map(|index| index.columns.clone()).unwrap_or_default(),
        })
    }

    pub(crate) fn root(&self) -> &Arc<DatabaseRoot> {
        &self.root
    }

    pub(crate) fn past_lsn(&self) -> Option<Lsn> {
        self.past_lsn
    }

    pub(crate) fn at_lsn(&self, lsn: Lsn) -> View {
        View { past_lsn: Some(lsn), ..self.clone() }
    }

    pub(crate) fn sees(&self, def: &TableDef) -> bool {
        exists_for(&self.tables, self.admin, def)
    }

    /// Returns true if a table of this full name would exist for this principal.
    pub(crate) fn may_name(&self, full_name: &str) -> bool {
        self.tables.contains(full_name)
    }

    fn may_search(&self, def: &TableDef) -> bool {
        // Vaults are searched besides the tables that the principal reads.
        self.tables.contains(&def.name) && (def.is_vault() || self.sees(def))
    }

    fn find_among(
        &self,
        full_name: &str,
        is_there: &dyn Fn(&TableDef) -> bool,
    ) -> Option<Arc<table::Snapshot>> {
        if let Some(table) = self.root.table(full_name).filter(|t| is_there(t.def())) {
            return Some(table.clone());
        }
        let visible = || self.root.tables().filter(|t| is_there(t.def()));
        let position = name::resolve(full_name, visible().map(|t| t.def().name.as_str()))?;
        visible().nth(position).cloned()
    }

    pub(crate) fn missing(&self, full_name: &str, is_there: &dyn Fn(&TableDef) -> bool) -> Error {
        let short = name::short_table_name(full_name);
        let error = Error::new(Kind::NotFound, format!("there is no table `{}`", name::printable(short)));
        let visible = self.root.tables().map(|t| t.def()).filter(|def| is_there(def));
        let similar = similar_names(full_name, visible.map(|def| def.name.as_str()));
        if similar.is_empty() {
            return error.hint("`GET /v1/tables` or `SHOW TABLES` lists the tables");
        }
        let names: Vec<&str> = similar.iter().map(|n| name::short_table_name(n)).collect();
        error.hint(did_you_mean(&names))
    }
}

/// Tables of Polynya's own that hold answers given to others, or names of their objects. They exist only for a principal
/// that sees everything.
const FOR_OWNERS: [&str; 2] = [idempotency::TABLE, "polynya.catalog"];

/// Returns true if a table exists for a principal with this set of tables; `admin` tells whether it is an admin.
pub fn exists_for(tables: &TableSet, admin: bool, def: &TableDef) -> bool {
    let sees_all = admin && *tables == TableSet::All;
    tables.contains(&def.name)
        && (admin || !def.is_vault())
        && (sees_all || !FOR_OWNERS.contains(&def.name.as_str()))
}

impl RowFilter {
    /// Returns the rows of a table that the filter lets through. Reads one column of the whole table: a vault has some
    /// thousands of rows.
    pub fn rows(&self, table: &table::Snapshot) -> Result<VisibleRows> {
        let Some(published) = self.published else { return Ok(VisibleRows(Vec::new())) };
        let projection = table.projection(&[ROW_ID, published])?;
        let mut rows = Vec::with_capacity(usize::try_from(table.rows()).unwrap_or_default());
        for piece in table.pieces() {
            push_published(&piece.read(&projection)?, &mut rows)?;
        }
        Ok(VisibleRows(rows))
    }
}

fn push_published(batch: &RecordBatch, rows: &mut Vec<RowId>) -> Result<()> {
    let unexpected = || Error::internal("a row id and a bool were asked for");
    let ids = batch.column(0).as_primitive_opt::<Int64Type>().ok_or_else(unexpected)?;
    let published = batch.column(1).as_boolean_opt().ok_or_else(unexpected)?;
    for (at, id) in ids.values().iter().enumerate() {
        if published.is_valid(at) && published.value(at) {
            rows.push(RowId(*id as u64));
        }
    }
    Ok(())
}

/// Ids of the rows that may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleRows(Vec<RowId>);

impl VisibleRows {
    pub fn contains(&self, row: RowId) -> bool {
        self.0.binary_search(&row).is_ok()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
