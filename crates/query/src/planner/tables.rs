//! The tables that a statement names, in the form that DataFusion asks for them.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType as Arrow, Field as ArrowField, FieldRef, Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, TableReference};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, TypePlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{AggregateUDF, Expr, ScalarUDF, TableSource, Volatility, WindowUDF};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::DataType as SqlType;
use dialect::error::from_datafusion;
use dialect::rules::integer_casts;
use engine::View;
use sql::names::{FieldNames, ParsedTableName, TableCatalog};
use sql::sql_type;
use table::Snapshot;
use types::{Error, Lsn, Result, SchemaVersion, TableId, ViewDef};

use crate::catalog;
use crate::provider::{SnapshotProvider, Table};

use super::Planner;

/// The tables that one statement names, all from one view (S2).
pub(super) struct ViewTables<'a> {
    view: &'a View,
    extras: &'a [ExtraTable],
    planner: &'a Planner,
    /// False while the types of views' columns are being computed: that must not look them up again.
    knows_views: bool,
    found: HashMap<String, ResolvedTable>,
    pub written: Vec<(ParsedTableName, TableId, SchemaVersion)>,
    /// True if the statement reads something that holds for it alone, so that its plan is not cached.
    pub is_one_time: bool,
}

enum ResolvedTable {
    Table(Table),
    Information(Arc<dyn TableProvider>),
}

impl<'a> ViewTables<'a> {
    pub fn new(planner: &'a Planner, view: &'a View, extras: &'a [ExtraTable]) -> Self {
        let (found, written) = (HashMap::new(), Vec::new());
        ViewTables { view, extras, planner, knows_views: true, found, written, is_one_time: false }
    }

    /// Leaves the types of views' columns unknown: for planning a query only to learn its columns.
    pub fn without_views(self) -> Self {
        ViewTables { knows_views: false, ..self }
    }
}

impl ViewTables<'_> {
    fn information(&self, written: &ParsedTableName) -> Result<Option<(String, Arc<dyn TableProvider>)>> {
        catalog::information_table(self.view, Some(&self.planner.engine), &self.planner.advice, written)
    }

    fn table_at(&mut self, written: &ParsedTableName, lsn: Lsn) -> Result<(String, Vec<FieldNames>)> {
        // The plan names one point in time, so no other statement can use it.
        self.is_one_time = true;
        if self.extras.iter().any(|extra| extra.is(written)) || self.information(written)?.is_some() {
            return Err(Error::invalid(format!(
                "`{}` shows the present and has no past",
                types::name::printable(&written.text())
            )));
        }
        let view = self.view.at(lsn)?;
        let snapshot = resolve_table(&view, written)?;
        let columns = snapshot.arrow_schema().fields().iter().skip(2).map(|field| named(field)).collect();
        // The name of a table cannot contain an `@`.
        let full_name = format!("{}@{lsn}", snapshot.def().name);
        self.found.insert(full_name.clone(), ResolvedTable::Table(Table::of(&view, snapshot)));
        Ok((full_name, columns))
    }

    pub fn sources(&mut self, system: bool) -> Result<HashMap<String, Arc<dyn TableSource>>> {
        // At the top level of planning: the name itself may occur deep inside a statement.
        if self.knows_views
            && let Some(columns) = self.found.get_mut(catalog::COLUMNS)
        {
            let view_column_types =
                |def: &ViewDef| self.planner.view_column_types(def, self.view).unwrap_or_default();
            let batch = catalog::columns(self.view, &view_column_types)?;
            let provider = MemTable::try_new(batch.schema(), vec![vec![batch]]).map_err(from_datafusion)?;
            *columns = ResolvedTable::Information(Arc::new(provider));
        }
        let source = |found: ResolvedTable| match found {
            ResolvedTable::Table(table) => provider_as_source(Arc::new(SnapshotProvider::new(table, system))),
            ResolvedTable::Information(provider) => provider_as_source(provider),
        };
        Ok(self.found.drain().map(|(name, found)| (name, source(found))).collect())
    }
}

impl TableCatalog for ViewTables<'_> {
    fn table(&mut self, written: &ParsedTableName, at: Option<Lsn>) -> Result<(String, Vec<FieldNames>)> {
        if let Some(lsn) = at {
            return self.table_at(written, lsn);
        }
        if let Some(extra) = self.extras.iter().find(|extra| extra.is(written)) {
            self.is_one_time = true;
            self.found.insert(extra.full_name.clone(), ResolvedTable::Information(extra.provider.clone()));
            return Ok((extra.full_name.clone(), extra.columns.clone()));
        }
        if let Some((full_name, provider)) = self.information(written)? {
            self.is_one_time = true;
            let columns = provider.schema().fields().iter().map(|field| named(field)).collect();
            self.found.insert(full_name.clone(), ResolvedTable::Information(provider));
            return Ok((full_name, columns));
        }
        let snapshot = resolve_table(self.view, written)?;
        let def = snapshot.def().clone();
        self.written.push((written.clone(), def.id, def.schema.version));
        // Stored batches begin with the system columns.
        let columns = snapshot.arrow_schema().fields().iter().skip(2).map(|field| named(field)).collect();
        self.found.insert(def.name.clone(), ResolvedTable::Table(Table::of(self.view, snapshot)));
        Ok((def.name.clone(), columns))
    }
}

/// Rows that one statement reads as a table of the reserved namespace, where no stored table can have that name.
pub(crate) struct ExtraTable {
    full_name: String,
    /// The user's columns, without the system columns.
    columns: Vec<FieldNames>,
    provider: Arc<dyn TableProvider>,
}

impl ExtraTable {
    /// Makes the table `polynya.name`; `schema` is one that [`extra_schema`] returned.
    pub fn of(name: &str, schema: SchemaRef, columns: Vec<ArrayRef>) -> Result<ExtraTable> {
        let is_system = |name: &str| name == types::ROW_ID_NAME || name == types::TIME_NAME;
        let named =
            schema.fields().iter().filter(|field| !is_system(field.name())).map(|f| named(f)).collect();
        let rows = RecordBatch::try_new(schema.clone(), columns)
            .map_err(|e| Error::internal(format!("rows of a statement make no table: {e}")))?;
        let provider = MemTable::try_new(schema, vec![vec![rows]]).map_err(from_datafusion)?;
        let full_name = format!("{}.{name}", types::name::RESERVED_NAMESPACE);
        Ok(ExtraTable { full_name, columns: named, provider: Arc::new(provider) })
    }

    fn is(&self, written: &ParsedTableName) -> bool {
        written.text() == self.full_name
    }
}

/// Returns a schema of a table's columns, its system columns, and `more` fields.
pub(crate) fn extra_schema(snapshot: &Snapshot, more: &[ArrowField]) -> SchemaRef {
    // Stored batches begin with the system columns.
    let (system, user) = snapshot.arrow_schema().fields().split_at(2);
    let mut fields: Vec<FieldRef> = user.iter().chain(system).cloned().collect();
    fields.extend(more.iter().cloned().map(Arc::new));
    Arc::new(ArrowSchema::new(fields))
}

/// Returns the names of a column and of its nested fields. The fields of a list are those of its items.
fn named(field: &ArrowField) -> FieldNames {
    let mut data_type = field.data_type();
    while let Arrow::List(item) | Arrow::LargeList(item) | Arrow::FixedSizeList(item, _) = data_type {
        data_type = item.data_type();
    }
    let fields = match data_type {
        Arrow::Struct(fields) => fields.iter().map(|field| named(field)).collect(),
        _ => Vec::new(),
    };
    FieldNames { name: field.name().clone(), fields }
}

/// Returns the table that a written name means.
pub(crate) fn resolve_table(view: &View, written: &ParsedTableName) -> Result<Arc<Snapshot>> {
    let snapshot = view.table(&written.text()).map_err(|error| match view.view(&written.text()) {
        Some(def) => {
            let short = types::name::short_table_name(&def.name);
            Error::invalid(format!("`{short}` is a view, not a table"))
                .hint("it is read by SELECT; rows are written to the tables that it reads")
        }
        None => error,
    })?;
    let full_name = &snapshot.def().name;
    if !written.admits(full_name) {
        return Err(Error::not_found(format!(
            "there is no table `{}`",
            types::name::printable(&written.text())
        ))
        .hint(format!(
            "did you mean `{}`? A quoted name is taken exactly",
            types::name::short_table_name(full_name)
        )));
    }
    Ok(snapshot)
}

/// Plans the names of types in CAST.
#[derive(Debug)]
pub(super) struct CastTypes;

impl TypePlanner for CastTypes {
    fn plan_type(&self, sql: &SqlType) -> DfResult<Option<Arrow>> {
        sql_type::refuse_length(sql).map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(sql_type::cast_target(sql))
    }
}

/// The catalog of one statement, in DataFusion's form.
pub(super) struct StatementCatalog<'a> {
    pub state: &'a SessionState,
    /// The tables by full name.
    pub sources: HashMap<String, Arc<dyn TableSource>>,
    /// Folds constants with the statement's time.
    moment: SimplifyContext,
    /// Set to true if an argument of a table function depends on that time.
    pub depends_on_time: Cell<bool>,
}

impl<'a> StatementCatalog<'a> {
    pub fn new(state: &'a SessionState, sources: HashMap<String, Arc<dyn TableSource>>) -> Self {
        let moment = SimplifyContext::default().with_config_options(state.config_options().clone());
        StatementCatalog {
            state,
            sources,
            moment: moment.with_current_time(),
            depends_on_time: Cell::new(false),
        }
    }
}

impl ContextProvider for StatementCatalog<'_> {
    fn get_table_source(&self, name: TableReference) -> DfResult<Arc<dyn TableSource>> {
        let namespace = name.schema().unwrap_or(types::name::DEFAULT_NAMESPACE);
        let full_name = format!("{namespace}.{}", name.table());
        self.sources.get(&full_name).cloned().ok_or_else(|| {
            let text = types::name::printable(&name.to_string());
            DataFusionError::External(Box::new(Error::not_found(format!("there is no table `{text}`"))))
        })
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> DfResult<Arc<dyn TableSource>> {
        let function = self.state.table_functions().get(&name.to_lowercase()).ok_or_else(|| {
            DataFusionError::Plan(format!("there is no table function `{}`", types::name::printable(name)))
        })?;
        let schema = DFSchema::empty();
        let fold = |arg: Expr| -> DfResult<Expr> {
            let simplifier = ExprSimplifier::new(self.moment.clone());
            let arg = simplifier
                .coerce(arg, &schema)?
                .transform_up(|expr| Ok(integer_casts::rewrite(expr, &schema)))?;
            simplifier.simplify(arg.data)
        };
        for arg in &args {
            arg.apply(|expr| {
                if let Expr::ScalarFunction(function) = expr {
                    let is_stable = function.func.signature().volatility == Volatility::Stable;
                    self.depends_on_time.set(self.depends_on_time.get() || is_stable);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let args = args.into_iter().map(fold).collect::<DfResult<Vec<_>>>()?;
        Ok(provider_as_source(function.create_table_provider(&args)?))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> DfResult<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(CastTypes))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.state.scalar_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _: &[String]) -> Option<Arrow> {
        None
    }

    fn get_variable_field(&self, _: &[String]) -> Option<FieldRef> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.scalar_functions().keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}
