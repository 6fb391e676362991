//! Text to an optimized plan, and a plan to a stream of batches.
//!
//! What depends only on the text, the parameters' types and the definitions of the tables is kept (O1): a statement
//! that was planned before only gets today's snapshots and values put in. Functions, rules, configuration and the
//! task context are made once and shared by all statements.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType as Arrow, Field as ArrowField, FieldRef, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ParamValues, TableReference};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::{DefaultTableSource, provider_as_source};
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, TypePlanner};
use datafusion::logical_expr::{
    AggregateUDF, Expr, LogicalPlan, ScalarUDF, TableSource, Volatility, WindowUDF,
};
use datafusion::optimizer::analyzer::Analyzer;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{ApplyOrder, OptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Query, Statement, Visit, Visitor};
use engine::View;
use table::Snapshot;
use types::{Error, Result, SchemaVersion, TableId};

use crate::bounded::Bounds;
use crate::catalog;
use crate::checked::CheckedArithmetic;
use crate::coerce::{self, ReadAs, TextReader};
use crate::direct::Direct;
use crate::error::from_datafusion;
use crate::guard;
use crate::names::{self, Named, Tables, Used, Written};
use crate::options::Options;
use crate::params::Params;
use crate::parse::{self, merge_coalesce};
use crate::provider::{Provider, Table};
use crate::recursive;
use crate::single;
use crate::sql_type;
use crate::sum;
use crate::uuid::{TextMeetsUuid, UuidFunction};
use crate::views::unreadable;
use crate::weight;

/// Plans kept; beyond it all are forgotten at once.
const PLANS_MAX: usize = 512;
/// Plans of longer texts are not kept: their values stand in the text, and no text comes twice.
const KEPT_TEXT_BYTES_MAX: usize = 16 << 10;

/// Makes plans. One for all statements.
pub(crate) struct Planner {
    state: SessionState,
    context: Arc<TaskContext>,
    /// Of light statements: with memory of their own.
    light: Arc<TaskContext>,
    /// Looked up without a lock.
    plans: ArcSwap<imbl::HashMap<Key, Arc<Kept>>>,
    text_bytes_max: usize,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    text: String,
    types: Vec<Arrow>,
}

/// A plan that may be used again while its names mean the same tables with the same columns.
struct Kept {
    plan: LogicalPlan,
    tables: Vec<(Written, TableId, SchemaVersion)>,
    /// Views that were opened for it.
    views: Vec<Used>,
    /// If it is no more than a lookup.
    direct: Option<Direct>,
    /// [`weight::is_plain`].
    plain: bool,
    /// What it came to the last time: then it is not weighed where readers wait, and once more where it is run.
    heavy: AtomicBool,
}

/// A plan with its tables and values in place.
pub(crate) struct Planned {
    plan: LogicalPlan,
    state: Option<SessionState>,
}

impl Planned {
    /// What its columns are called.
    pub fn column_names(&self) -> Vec<String> {
        self.plan.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Whether it reads tables, and only such of Polynya's own namespace.
    pub fn reads_only_records(&self) -> bool {
        let (mut own, mut others) = (0, 0);
        let looked = self.plan.apply_with_subqueries(|plan| {
            if let LogicalPlan::TableScan(scan) = plan {
                let source = scan.source.as_any().downcast_ref::<DefaultTableSource>();
                let provider = source.and_then(|s| s.table_provider.as_any().downcast_ref::<Provider>());
                match provider.is_some_and(|p| is_record(p.snapshot())) {
                    true => own += 1,
                    false => others += 1,
                }
            }
            Ok(TreeNodeRecursion::Continue)
        });
        looked.is_ok() && own > 0 && others == 0
    }
}

impl Planner {
    /// `light` is where light statements are executed, `heavy` where all others are.
    pub fn new(options: &Options, light: Arc<RuntimeEnv>, heavy: Arc<RuntimeEnv>) -> Self {
        let mut config = SessionConfig::new()
            .with_target_partitions(options.threads.max(1))
            .with_batch_size(table::BATCH_ROWS)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(false);
        let settings = config.options_mut();
        settings.sql_parser.enable_ident_normalization = false;
        settings.sql_parser.map_string_types_to_utf8view = false;
        settings.sql_parser.collect_spans = true;
        // `coerce` makes floats of those that need not be exact.
        settings.sql_parser.parse_float_as_decimal = true;
        settings.execution.time_zone = Some("UTC".into());
        // A few rows are not worth a second thread.
        settings.execution.use_row_number_estimates_to_optimize_partitioning = true;
        // Each sorting partition sets this aside for merging; a small pool must still have room to sort.
        let per_part = options.memory_bytes / options.threads.max(1) / 8;
        settings.execution.sort_spill_reservation_bytes = per_part.min(10 << 20);
        let mut rules: Vec<Arc<dyn datafusion::optimizer::AnalyzerRule + Send + Sync>> =
            vec![Arc::new(TextMeetsUuid::new())];
        rules.extend(Analyzer::new().rules);
        let mut optimizer = guard::optimizer_rules();
        recursive::keep_columns(&mut optimizer);
        let mut state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(heavy)
            .with_default_features()
            .with_analyzer_rules(rules)
            .with_optimizer_rules(optimizer)
            .with_type_planner(Arc::new(OurTypes))
            .build();
        use datafusion::execution::FunctionRegistry;
        for function in [UuidFunction::from_text(), UuidFunction::to_text()] {
            state.register_udf(function).expect("the registry takes functions");
        }
        state.register_udaf(sum::function()).expect("the registry takes functions");
        let bounds = Bounds::register(&mut state).expect("these functions are there");
        state.add_analyzer_rule(Arc::new(CheckedArithmetic::new(bounds)));
        state.register_expr_planner(Arc::new(TextReader)).expect("the registry takes planners");
        let context = state.task_ctx();
        // What sorts little need not be ready to merge what it spilled.
        let config = state.config().clone().with_sort_spill_reservation_bytes(per_part.min(64 << 10));
        let light = Arc::new(TaskContext::from(&state).with_runtime(light).with_session_config(config));
        let text_bytes_max = options.text_bytes_max;
        Planner { state, context, light, plans: ArcSwap::default(), text_bytes_max }
    }

    pub fn context(&self) -> Arc<TaskContext> {
        self.context.clone()
    }

    pub fn text_bytes_max(&self) -> usize {
        self.text_bytes_max
    }

    pub fn light_context(&self) -> Arc<TaskContext> {
        self.light.clone()
    }

    /// Whether there is a plan made before for this text, using it again is little work, and it was light the last time.
    pub fn is_light(&self, text: &str, params: &Params) -> bool {
        self.kept(text, params).is_some_and(|kept| kept.plain && !kept.heavy.load(Ordering::Relaxed))
    }

    /// What a statement of this text was found to be.
    pub fn weighed(&self, text: &str, params: &Params, is_light: bool) {
        if let Some(kept) = self.kept(text, params) {
            kept.heavy.store(!is_light, Ordering::Relaxed);
        }
    }

    fn kept(&self, text: &str, params: &Params) -> Option<Arc<Kept>> {
        if text.len() > KEPT_TEXT_BYTES_MAX {
            return None;
        }
        let key = Key { text: text.to_owned(), types: params.types() };
        self.plans.load().get(&key).cloned()
    }

    /// The answer of a text that was planned before, and found to be a lookup; `None` if it is none, or too large a one. Takes no
    /// lock and waits for nothing. And whether it is made of Polynya's own records.
    pub fn direct(&self, text: &str, params: &Params, view: &View) -> Result<Option<(RecordBatch, bool)>> {
        let Some(kept) = self.kept(text, params) else { return Ok(None) };
        let (Some(direct), [(written, id, version)]) = (&kept.direct, &kept.tables[..]) else {
            return Ok(None);
        };
        let Some(snapshot) = view.table(&written.text()).ok().filter(|snapshot| {
            let def = snapshot.def();
            def.id == *id && def.schema.version == *version && written.admits(&def.name)
        }) else {
            return Ok(None);
        };
        let is_record = is_record(&snapshot);
        let rows = direct.run(&Table::of(view, snapshot), params)?;
        Ok(rows.map(|rows| (rows, is_record)))
    }

    /// A plan made before for this text, over the tables of `view`; `None` if there is none that still holds.
    pub fn again(&self, text: &str, params: &Params, view: &View) -> Result<Option<Planned>> {
        let Some(kept) = self.kept(text, params) else { return Ok(None) };
        for (written, def) in &kept.views {
            // What it reads is among the tables; it may have been replaced, or be hidden from this principal.
            if view.view(&written.text()).is_none_or(|now| now != *def || !written.admits(&now.name)) {
                return Ok(None);
            }
        }
        let mut tables: HashMap<TableId, Table> = HashMap::new();
        for (written, id, version) in &kept.tables {
            let Ok(snapshot) = view.table(&written.text()) else { return Ok(None) };
            let def = snapshot.def();
            if def.id != *id || def.schema.version != *version || !written.admits(&def.name) {
                return Ok(None);
            }
            tables.insert(*id, Table::of(view, snapshot));
        }
        let plan = rebind(kept.plan.clone(), &tables).map_err(from_datafusion)?;
        let plan = self.fill(plan, params)?;
        Ok(Some(Planned { plan, state: None }))
    }

    /// Plans a query (or its EXPLAIN), whose parameters were counted. With `text`, the plan is kept for [`Planner::again`].
    pub fn plan(
        &self,
        mut statement: Statement,
        params: &Params,
        view: &View,
        text: Option<&str>,
    ) -> Result<Planned> {
        let views = names::expand(&mut statement, view, self.text_bytes_max, None)?;
        if !views.is_empty() {
            parse::check_size(&statement, self.text_bytes_max)?;
            self.check_views(&views, view)?;
        }
        let mut tables = ViewTables { view, found: HashMap::new(), written: Vec::new(), passing: false };
        let keep = !matches!(statement, Statement::Explain { .. });
        let plan = self.logical(statement, params, &mut tables)?;
        let keep = keep && !tables.passing;
        let written = std::mem::take(&mut tables.written);
        let keep = keep && !stands_in_time(&plan).map_err(from_datafusion)?;

        let mut state = self.state.clone();
        state.mark_start_execution();
        let kept = if keep { Some(coerce::coerce(plan.clone())?).filter(|c| !c.needs_values) } else { None };
        let Some(kept) = kept else {
            // Values are known: the optimizer may use them.
            let plan = coerce::coerce(self.substitute(plan, params)?)?.plan;
            let plan = state.optimize(&plan).map_err(from_datafusion)?;
            return Ok(Planned { plan, state: Some(state) });
        };
        let plan = kept.plan;
        let plan = state.optimize(&plan).map_err(from_datafusion)?;
        if let Some(text) = text.filter(|text| text.len() <= KEPT_TEXT_BYTES_MAX) {
            let key = Key { text: text.to_owned(), types: params.types() };
            let plain = weight::is_plain(&plan);
            let heavy = AtomicBool::new(false);
            let direct = match &written[..] {
                [(written, ..)] if views.is_empty() => Direct::of(&plan, &*table(view, written)?, &key.types),
                _ => None,
            };
            let kept = Arc::new(Kept { plan: plan.clone(), tables: written, views, direct, plain, heavy });
            self.plans.rcu(|plans| {
                let full = plans.len() >= PLANS_MAX;
                let others = if full { imbl::HashMap::new() } else { imbl::HashMap::clone(plans) };
                others.update(key.clone(), kept.clone())
            });
        }
        let plan = self.fill(plan, params)?;
        Ok(Planned { plan, state: Some(state) })
    }

    /// What a statement's names mean, before anything is made of it.
    fn logical(
        &self,
        mut statement: Statement,
        params: &Params,
        tables: &mut ViewTables<'_>,
    ) -> Result<LogicalPlan> {
        let system = names::bind(&mut statement, tables)?;
        let sources = tables.sources(system)?;
        let catalog = Catalog { state: &self.state, sources };
        let mut context = PlannerContext::new().with_prepare_param_data_types(params.fields.clone());
        let mut parser = ParserOptions::from(&self.state.config_options().sql_parser);
        // The first part of a recursive query says what type the others have, before any literal was looked at.
        parser.parse_float_as_decimal &= !is_recursive(&statement);
        merge_coalesce(&mut statement);
        coerce::prepare(&mut statement);
        SqlToRel::new_with_options(&catalog, parser)
            .sql_statement_to_plan_with_context(statement, &mut context)
            .and_then(single::rows)
            .map_err(from_datafusion)
    }

    /// Whether each view can be read by itself: within a statement a name that is gone could be taken for another of the
    /// query around it.
    fn check_views(&self, views: &[Used], view: &View) -> Result<()> {
        for (_, def) in views.iter().rev() {
            let read = || {
                let query = names::query_of(def, self.text_bytes_max)?;
                let mut statement = Statement::Query(Box::new(query));
                names::expand(&mut statement, view, self.text_bytes_max, None)?;
                let mut tables =
                    ViewTables { view, found: HashMap::new(), written: Vec::new(), passing: false };
                self.logical(statement, &Params::new(Vec::new()), &mut tables)
            };
            read().map_err(|error| unreadable(def, view, error))?;
        }
        Ok(())
    }

    /// The physical plan.
    pub async fn physical(&self, planned: &Planned) -> Result<Arc<dyn ExecutionPlan>> {
        let state = planned.state.as_ref().unwrap_or(&self.state);
        let plan = guard::guarded(&planned.plan, state.execution_props()).map_err(from_datafusion)?;
        state.query_planner().create_physical_plan(&plan, state).await.map_err(from_datafusion)
    }

    /// Puts the values into an optimized plan, and folds what becomes constant by them.
    fn fill(&self, plan: LogicalPlan, params: &Params) -> Result<LogicalPlan> {
        if params.values.is_empty() {
            return Ok(plan);
        }
        let plan = self.substitute(plan, params)?;
        let rule = SimplifyExpressions::new();
        let folded = match rule.apply_order() {
            Some(ApplyOrder::BottomUp) => {
                plan.transform_up_with_subqueries(|plan| rule.rewrite(plan, &self.state))
            }
            Some(ApplyOrder::TopDown) => {
                plan.transform_down_with_subqueries(|plan| rule.rewrite(plan, &self.state))
            }
            None => rule.rewrite(plan, &self.state),
        };
        folded.map(|folded| folded.data).map_err(from_datafusion)
    }

    fn substitute(&self, plan: LogicalPlan, params: &Params) -> Result<LogicalPlan> {
        if params.values.is_empty() {
            return Ok(plan);
        }
        let scalars = params.scalars()?;
        let given = |id: &str| scalars.get(id.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)?);
        // Before the optimizer could take a text that is refused for one that is refused when a row is met.
        let read = plan.transform_up_with_subqueries(|plan| {
            let name = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = name.save(&expr);
                let read = expr.transform_up(|expr| {
                    let value =
                        ReadAs::filled(&expr, given).map_err(|e| DataFusionError::External(Box::new(e)))?;
                    Ok(match value {
                        Some(value) => Transformed::yes(Expr::Literal(value, None)),
                        None => Transformed::no(expr),
                    })
                })?;
                Ok(if read.transformed { read.update_data(|expr| name.restore(expr)) } else { read })
            })
        });
        let plan = read.map_err(from_datafusion)?.data;
        let values = scalars.iter().map(|v| ScalarAndMetadata::new(v.clone(), None)).collect();
        plan.replace_params_with_values(&ParamValues::List(values)).map_err(from_datafusion)
    }
}

fn is_recursive(statement: &Statement) -> bool {
    struct Look;
    impl Visitor for Look {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let recursive = query.with.as_ref().is_some_and(|with| with.recursive);
            if recursive { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    statement.visit(&mut Look).is_break()
}

/// Whether a plan holds a function whose value belongs to one moment, as `now()`: then it is not kept.
fn stands_in_time(plan: &LogicalPlan) -> DfResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(function) = expr {
                    found |= function.func.signature().volatility == Volatility::Stable;
                }
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn is_record(table: &Snapshot) -> bool {
    table
        .def()
        .name
        .split_once('.')
        .is_some_and(|(namespace, _)| namespace == types::name::RESERVED_NAMESPACE)
}

/// Puts the tables of today into a plan.
fn rebind(plan: LogicalPlan, tables: &HashMap<TableId, Table>) -> DfResult<LogicalPlan> {
    let bound = plan.transform_up_with_subqueries(|plan| {
        let LogicalPlan::TableScan(mut scan) = plan else { return Ok(Transformed::no(plan)) };
        let source = scan.source.as_any().downcast_ref::<DefaultTableSource>();
        let provider = source.and_then(|s| s.table_provider.as_any().downcast_ref::<Provider>());
        let Some(provider) = provider else { return Ok(Transformed::no(LogicalPlan::TableScan(scan))) };
        let table = tables.get(&provider.snapshot().def().id).ok_or_else(|| {
            DataFusionError::Internal("a kept plan reads a table that it does not list".into())
        })?;
        scan.source = provider_as_source(Arc::new(provider.at(table.clone())));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(bound.data)
}

/// The tables that one statement names, all out of one view (S2).
struct ViewTables<'a> {
    view: &'a View,
    found: HashMap<String, Found>,
    written: Vec<(Written, TableId, SchemaVersion)>,
    /// Whether something is read that holds for this statement alone.
    passing: bool,
}

enum Found {
    Table(Table),
    Information(Arc<dyn TableProvider>),
}

impl ViewTables<'_> {
    fn sources(&mut self, system: bool) -> Result<HashMap<String, Arc<dyn TableSource>>> {
        let source = |found: Found| match found {
            Found::Table(table) => provider_as_source(Arc::new(Provider::new(table, system))),
            Found::Information(provider) => provider_as_source(provider),
        };
        Ok(self.found.drain().map(|(name, found)| (name, source(found))).collect())
    }
}

impl Tables for ViewTables<'_> {
    fn table(&mut self, written: &Written) -> Result<(String, Vec<Named>)> {
        if let Some((full_name, provider)) = catalog::information(self.view, written)? {
            self.passing = true;
            let columns = provider.schema().fields().iter().map(|field| named(field)).collect();
            self.found.insert(full_name.clone(), Found::Information(provider));
            return Ok((full_name, columns));
        }
        let snapshot = table(self.view, written)?;
        let def = snapshot.def().clone();
        self.written.push((written.clone(), def.id, def.schema.version));
        // Stored batches begin with the system columns.
        let columns = snapshot.arrow_schema().fields().iter().skip(2).map(|field| named(field)).collect();
        self.found.insert(def.name.clone(), Found::Table(Table::of(self.view, snapshot)));
        Ok((def.name.clone(), columns))
    }
}

/// The fields of a list are those of its items.
fn named(field: &ArrowField) -> Named {
    let mut data_type = field.data_type();
    while let Arrow::List(item) | Arrow::LargeList(item) | Arrow::FixedSizeList(item, _) = data_type {
        data_type = item.data_type();
    }
    let fields = match data_type {
        Arrow::Struct(fields) => fields.iter().map(|field| named(field)).collect(),
        _ => Vec::new(),
    };
    Named { name: field.name().clone(), fields }
}

/// The table that is meant by what is written.
pub(crate) fn table(view: &View, written: &Written) -> Result<Arc<Snapshot>> {
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

/// Names of types in CAST.
#[derive(Debug)]
struct OurTypes;

impl TypePlanner for OurTypes {
    fn plan_type(&self, sql: &SqlType) -> DfResult<Option<Arrow>> {
        Ok(sql_type::cast_target(sql))
    }
}

/// What DataFusion may see while it plans one statement.
struct Catalog<'a> {
    state: &'a SessionState,
    /// By full name.
    sources: HashMap<String, Arc<dyn TableSource>>,
}

impl ContextProvider for Catalog<'_> {
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
            use datafusion::logical_expr::simplify::SimplifyContext;
            use datafusion::optimizer::simplify_expressions::ExprSimplifier;
            let simplifier = ExprSimplifier::new(
                SimplifyContext::default().with_config_options(self.state.config_options().clone()),
            );
            simplifier.simplify(simplifier.coerce(arg, &schema)?)
        };
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
        Some(Arc::new(OurTypes))
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
