//! Plans statements: from text to an optimized logical plan, and on to a physical plan.
//!
//! A plan depends only on the text, the types of the parameters and the definitions of the tables, so it is cached under these
//! (O1). A statement that was planned before only gets the current snapshots and its values put in. Functions, rules,
//! configuration and the task context are made once and shared by all statements.

mod plans;
mod points_in_time;
mod tables;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType as Arrow, Field as ArrowField};
use datafusion::common::ParamValues;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::DefaultTableSource;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::OptimizerRule;
use datafusion::optimizer::analyzer::Analyzer;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast::Statement;
use dialect::aggregates::cast_names::CastNamePlanner;
use dialect::aggregates::floats;
use dialect::aggregates::max_by;
use dialect::aggregates::moving_min;
use dialect::aggregates::sum;
use dialect::error::from_datafusion;
use dialect::execution::asof_join;
use dialect::execution::interrupt::{self, PlanningScope};
use dialect::functions::arrays;
use dialect::functions::byte_lengths;
use dialect::functions::common_type;
use dialect::functions::nullif;
use dialect::functions::regexes;
use dialect::functions::regexp_match;
use dialect::functions::result_limits::BoundedFunctions;
use dialect::functions::times;
use dialect::functions::uuid::{UuidCoercion, UuidFunction};
use dialect::rewrites::coercion::{self, ReadAsFunction, UntypedTextPlanner};
use dialect::rewrites::correlated_scalars;
use dialect::rewrites::correlation;
use dialect::rewrites::distinct;
use dialect::rewrites::grouping_sets::{self, GroupingSets};
use dialect::rewrites::membership;
use dialect::rewrites::multiset_operations;
use dialect::rewrites::not_in_joins;
use dialect::rewrites::row_values;
use dialect::rewrites::single_row_subqueries;
use dialect::rewrites::spellings;
use dialect::rules::budget;
use dialect::rules::checked_arithmetic::CheckedArithmetic;
use dialect::rules::filter_pushdown;
use dialect::rules::mark_joins;
use dialect::rules::optimization_barrier;
use dialect::rules::property_barrier::InsertPropertyBarriers;
use dialect::rules::recursive_queries;
use dialect::rules::short_circuit;
use dialect::rules::simplify::{self, Simplify};
use dialect::rules::union_order::UnionOrder;
use dialect::values::params::Params;
use dialect::values::type_depth::ListPlanner;
use dialect::windows::named_windows;
use dialect::windows::ntile;
use dialect::windows::signed_ranks;
use dialect::windows::window_offset;
use engine::{Engine, View};
use sql::as_of;
use sql::names::{self, ParsedTableName};
use sql::parse::{self, merge_coalesce};
use sql::sql_type;
use table::Snapshot;
use types::{DataType, Result, SchemaVersion, TableId, ViewDef};

use crate::cost;
use crate::dynamic_filter::{ChooseBuildSide, JoinKeyPushdown};
use crate::index_advice::IndexAdvice;
use crate::index_pushdown::IndexPushdown;
use crate::large_limit::LargeLimit;
use crate::options::Options;
use crate::point_lookup::{Caller, PointLookup};
use crate::prepared::{InferredTypes, PreparedLookup};
use crate::provider::{SnapshotProvider, Table};
use crate::views::{self, ExpandedView, unreadable};

use plans::{depends_on_time, is_recursive, keep_meaning, replace_tables};
use tables::{CastTypes, StatementCatalog, ViewTables};
pub(crate) use tables::{ExtraTable, extra_schema, resolve_table};

/// Number of cached plans; a further one empties the cache first.
const PLANS_MAX: usize = 512;
/// Bytes of the longest text whose plan is cached. Longer texts contain their values, so they seldom come again.
const CACHED_TEXT_BYTES_MAX: usize = 16 << 10;

/// Bytes of constants in a cached plan; `repeat('x', 60000000)` has more.
const CACHED_LITERAL_BYTES_MAX: usize = 64 << 10;

/// Makes and caches plans. All statements share one planner.
pub(crate) struct Planner {
    state: SessionState,
    context: Arc<TaskContext>,
    /// The context of light statements, which have memory of their own.
    light: Arc<TaskContext>,
    pub advice: Arc<IndexAdvice>,
    pub engine: Engine,
    /// The cached plans; readers take no lock.
    plans: ArcSwap<imbl::HashMap<PlanKey, Arc<CachedPlan>>>,
    text_bytes_max: usize,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct PlanKey {
    text: String,
    types: Vec<Arrow>,
}

/// A cached plan. It may be used again while its names mean the same tables with the same columns.
struct CachedPlan {
    /// The plan over tables without rows.
    plan: LogicalPlan,
    tables: Vec<(ParsedTableName, TableId, SchemaVersion)>,
    /// Views that were expanded in it.
    views: Vec<ExpandedView>,
    /// The point lookup that replaces the plan, if it is no more than that.
    direct: Option<Arc<PointLookup>>,
    /// The result of [`cost::is_cheap_to_bind`].
    plain: bool,
    /// True if its last run was heavy. Then it is not estimated on the light threads, where other readers wait, but only where it
    /// runs.
    heavy: AtomicBool,
}

/// A plan with its tables and values in place.
pub(crate) struct PlannedQuery {
    plan: LogicalPlan,
    state: Option<SessionState>,
}

impl PlannedQuery {
    /// Returns the names of its output columns.
    pub fn column_names(&self) -> Vec<String> {
        self.plan.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Returns true if it reads tables, and only those of Polynya's own namespace.
    pub fn reads_only_records(&self) -> bool {
        let (mut own, mut others) = (0, 0);
        let looked = self.plan.apply_with_subqueries(|plan| {
            if let LogicalPlan::TableScan(scan) = plan {
                let source = scan.source.as_any().downcast_ref::<DefaultTableSource>();
                let provider =
                    source.and_then(|s| s.table_provider.as_any().downcast_ref::<SnapshotProvider>());
                if provider.is_some_and(|p| is_record_table(p.snapshot())) { own += 1 } else { others += 1 }
            }
            Ok(TreeNodeRecursion::Continue)
        });
        looked.is_ok() && own > 0 && others == 0
    }
}

/// The algorithm of equality joins. A hash join is faster but holds one side in memory; sorts can spill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinAlgorithm {
    Hash,
    SortMerge,
}

impl Planner {
    /// Makes a planner. Light statements run in `light`, all others in `heavy`.
    pub fn new(engine: Engine, options: &Options, light: Arc<RuntimeEnv>, heavy: Arc<RuntimeEnv>) -> Self {
        let mut config = SessionConfig::new()
            .with_target_partitions(options.threads.max(1))
            .with_batch_size(batch_rows(options.memory_bytes))
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(false);
        let settings = config.options_mut();
        settings.sql_parser.enable_ident_normalization = false;
        settings.sql_parser.map_string_types_to_utf8view = false;
        settings.sql_parser.collect_spans = true;
        // `coerce` turns the literals that need not be exact into floats.
        settings.sql_parser.parse_float_as_decimal = true;
        settings.execution.time_zone = Some("UTC".into());
        // `dynamic_filter` does this itself: for more kinds of joins, and by the position of columns instead of their names.
        settings.optimizer.enable_join_dynamic_filter_pushdown = false;
        // DataFusion's version loses the group of nulls: `SELECT DISTINCT x … ORDER BY x LIMIT 5`.
        settings.optimizer.enable_topk_aggregation = false;
        // The check refuses a UNION of columns of several tables, because their fields have different ids. Names and types are
        // checked before.
        settings.execution.skip_physical_aggregate_schema_check = true;
        // A few rows are not worth a second thread.
        settings.execution.use_row_number_estimates_to_optimize_partitioning = true;
        // Each sorting partition sets this aside for merging; a small pool must still have room to sort.
        let per_part = options.memory_bytes / options.threads.max(1) / 8;
        settings.execution.sort_spill_reservation_bytes = per_part.min(10 << 20);
        let mut rules: Vec<Arc<dyn datafusion::optimizer::AnalyzerRule + Send + Sync>> =
            vec![Arc::new(UuidCoercion::default())];
        rules.extend(Analyzer::new().rules);
        let mut optimizer = short_circuit::optimizer_rules();
        recursive_queries::keep_columns(&mut optimizer);
        grouping_sets::keep_totals(&mut optimizer);
        grouping_sets::keep_constants(&mut optimizer);
        mark_joins::remove_marks(&mut optimizer);
        simplify::simplify_exactly(&mut optimizer);
        let at = optimizer.iter().position(|rule| rule.name() == "push_down_filter");
        optimizer.insert(at.unwrap_or(0), Arc::new(asof_join::FilterLeftOfAsOf));
        let mut physical: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> =
            vec![Arc::new(IndexPushdown), Arc::new(GroupingSets)];
        physical.extend(PhysicalOptimizer::new().rules);
        let at = physical.iter().position(|rule| rule.name() == "join_selection");
        let at = at.map_or(physical.len(), |at| at + 1);
        physical.insert(at, Arc::new(InsertPropertyBarriers));
        physical.insert(at, Arc::new(ChooseBuildSide));
        let large_limit = Arc::new(LargeLimit::for_memory(options.memory_bytes, options.threads));
        let at = physical.iter().position(|rule| rule.name() == "FilterPushdown(Post)");
        physical.insert(at.unwrap_or(physical.len()), large_limit);
        let at = physical.iter().position(|rule| rule.name() == "SanityCheckPlan");
        physical.insert(at.unwrap_or(physical.len()), Arc::new(UnionOrder));
        physical.push(Arc::new(JoinKeyPushdown));
        filter_pushdown::add_fences(&mut physical);
        budget::wrap_rules(&mut optimizer, &mut physical);
        // Before DataFusion's own planner, which would call its own function.
        let extract = Arc::new(times::ExtractPlanner::default());
        let mut state = SessionStateBuilder::new()
            .with_expr_planners(vec![
                Arc::new(interrupt::DeadlinePlanner),
                extract.clone(),
                Arc::new(ListPlanner::default()),
            ])
            .with_config(config)
            .with_runtime_env(heavy)
            .with_default_features()
            .with_analyzer_rules(budget::wrap_analyzer(rules))
            .with_optimizer_rules(optimizer)
            .with_physical_optimizer_rules(physical)
            .with_query_planner(Arc::new(asof_join::AsOfPlanner))
            .with_type_planner(Arc::new(CastTypes))
            .build();
        use datafusion::execution::FunctionRegistry;
        let own = [nullif::function(), regexp_match::function(), asof_join::marker()];
        for function in own.into_iter().chain([UuidFunction::from_text(), UuidFunction::to_text()]) {
            state.register_udf(function).expect("the registry takes functions");
        }
        common_type::register(&mut state).expect("these functions are there");
        arrays::register(&mut state).expect("the registry takes functions");
        byte_lengths::register(&mut state).expect("these functions are there");
        times::register(&mut state, &extract).expect("these functions are there");
        times::series::register(&mut state).expect("these functions are there");
        for function in floats::functions().into_iter().chain([sum::function(), moving_min::function()]) {
            state.register_udaf(function).expect("the registry takes functions");
        }
        let windows = signed_ranks::functions().into_iter().chain([ntile::function()]);
        for function in windows.chain(window_offset::functions()) {
            state.register_udwf(function).expect("the registry takes functions");
        }
        regexes::register(&mut state).expect("these functions are there");
        interrupt::function::register(&mut state).expect("the registry takes functions");
        let bounds = BoundedFunctions::register(&mut state).expect("these functions are there");
        state.add_analyzer_rule(Arc::new(CheckedArithmetic::new(bounds)));
        state.register_expr_planner(Arc::new(UntypedTextPlanner)).expect("the registry takes planners");
        state.register_expr_planner(Arc::new(CastNamePlanner)).expect("the registry takes planners");
        let context = state.task_ctx();
        // A small sort needs little memory for the merge of spill files.
        let config = state.config().clone().with_sort_spill_reservation_bytes(per_part.min(64 << 10));
        let light = Arc::new(TaskContext::from(&state).with_runtime(light).with_session_config(config));
        let text_bytes_max = options.text_bytes_max;
        Planner {
            state,
            context,
            light,
            advice: Arc::default(),
            engine,
            plans: ArcSwap::default(),
            text_bytes_max,
        }
    }

    #[cfg(test)]
    pub fn scalar_functions(&self) -> impl Iterator<Item = String> {
        self.state.scalar_functions().keys().cloned()
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

    /// Returns true if this text has a cached plan that is cheap to fill with values, and that was light in its last run.
    pub fn has_light_plan(&self, text: &str, params: &Params) -> bool {
        self.cached(text, params).is_some_and(|kept| kept.plain && !kept.heavy.load(Ordering::Relaxed))
    }

    /// Records whether the statement of this text was light.
    pub fn record_weight(&self, text: &str, params: &Params, is_light: bool) {
        if let Some(kept) = self.cached(text, params) {
            kept.heavy.store(!is_light, Ordering::Relaxed);
        }
    }

    fn cached(&self, text: &str, params: &Params) -> Option<Arc<CachedPlan>> {
        if text.len() > CACHED_TEXT_BYTES_MAX {
            return None;
        }
        let key = PlanKey { text: text.to_owned(), types: params.types() };
        self.plans.load().get(&key).cloned()
    }

    /// Answers a text whose cached plan is a point lookup. Returns `None` if it is not, or if the lookup is too large for the
    /// caller. It takes no lock and never waits. The flag is true if the rows are Polynya's own records.
    pub fn point_lookup(
        &self,
        text: &str,
        params: &Params,
        view: &View,
        caller: Caller,
    ) -> Result<Option<(RecordBatch, bool)>> {
        let Some(kept) = self.cached(text, params) else { return Ok(None) };
        let (Some(direct), [(written, id, version)]) = (&kept.direct, &kept.tables[..]) else {
            return Ok(None);
        };
        let Some(snapshot) = view.table(&written.text()).ok().filter(|snapshot| {
            let def = snapshot.def();
            def.id == *id && def.schema.version == *version && written.admits(&def.name)
        }) else {
            return Ok(None);
        };
        let is_record = is_record_table(&snapshot);
        let rows = direct.run(&Table::of(view, snapshot), params.scalars()?, caller)?;
        Ok(rows.map(|rows| (rows, is_record)))
    }

    /// Returns the cached plan of this text over the tables of `view`; `None` if there is none, or if its definitions changed.
    pub fn cached_plan(&self, text: &str, params: &Params, view: &View) -> Result<Option<PlannedQuery>> {
        let Some(kept) = self.cached(text, params) else { return Ok(None) };
        for (written, def) in &kept.views {
            // The view's tables are checked below; the view itself may have been replaced, or be hidden from this principal.
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
        let today = |table: &Table| {
            let found = tables.get(&table.snapshot.def().id).cloned();
            let unlisted = || "a kept plan reads a table that it does not list".to_owned();
            found.ok_or_else(|| DataFusionError::Internal(unlisted()))
        };
        let plan = replace_tables(kept.plan.clone(), &today).map_err(from_datafusion)?;
        let plan = self.bind_params(plan, params)?;
        Ok(Some(PlannedQuery { plan, state: None }))
    }

    /// Plans a query (or its EXPLAIN), whose parameters were counted. With `text`, the plan is cached for
    /// [`Planner::cached_plan`].
    pub fn plan(
        &self,
        statement: Statement,
        params: &Params,
        view: &View,
        text: Option<&str>,
    ) -> Result<PlannedQuery> {
        self.plan_with(statement, params, view, &[], text)
    }

    /// Infers the types of a query's parameters from their positions, and returns the tables that it reads.
    pub fn infer(&self, statement: &Statement, parameters: usize, view: &View) -> Result<InferredTypes> {
        let mut statement = statement.clone();
        if as_of::remove(&mut statement) {
            // The columns are those of a point in time that is known only when it runs, and tables may have had other names then.
            return Ok(InferredTypes { types: vec![None; parameters], tables: Vec::new() });
        }
        views::expand(&mut statement, view, self.text_bytes_max, None)?;
        let mut tables = ViewTables::new(self, view, &[]);
        let planned = self.logical_plan(statement, &Params::new(Vec::new()), &mut tables);
        let types = match planned {
            // DataFusion infers nothing for a parameter that stands beside two types.
            Ok(plan) => plan.get_parameter_types().unwrap_or_default(),
            Err(error) if parameters == 0 => return Err(error),
            // Planning may have failed only for lack of the parameters' types. Any other error will come again when it runs.
            Err(_) => HashMap::new(),
        };
        let own = |at: usize| {
            let data_type = types.get(&format!("${at}"))?.as_ref()?;
            sql_type::from_arrow(&ArrowField::new("", data_type.clone(), true)).ok()
        };
        // A text parameter is converted to the type that it is compared with.
        let exact = |data_type: &DataType| !matches!(data_type, DataType::Decimal { .. } | DataType::String);
        let types = (1..=parameters).map(|at| own(at).filter(exact)).collect();
        Ok(InferredTypes { types, tables: tables.written })
    }

    /// Returns a handle for repeated point lookups by a text that was planned before; `None` if its plan is not a point lookup.
    pub fn lookup(&self, text: &str, params: &Params, view: &View) -> Option<PreparedLookup> {
        let kept = self.cached(text, params)?;
        let (Some(direct), [(written, id, version)]) = (&kept.direct, &kept.tables[..]) else { return None };
        let snapshot = resolve_table(view, written).ok()?;
        let def = snapshot.def();
        if def.id != *id || def.schema.version != *version {
            return None;
        }
        let (key_lookup, types) = (direct.key_lookup(&snapshot), params.types());
        let (point_lookup, full_name) = (direct.clone(), def.name.clone());
        Some(PreparedLookup { key_lookup, point_lookup, types, full_name, id: *id, version: *version })
    }

    /// Plans a query that runs once and may read rows of its own (`extras`) beside the tables.
    pub fn plan_with_extras(
        &self,
        statement: Statement,
        params: &Params,
        view: &View,
        extras: &[ExtraTable],
    ) -> Result<PlannedQuery> {
        self.plan_with(statement, params, view, extras, None)
    }

    fn plan_with(
        &self,
        mut statement: Statement,
        params: &Params,
        view: &View,
        extras: &[ExtraTable],
        text: Option<&str>,
    ) -> Result<PlannedQuery> {
        let _planning = PlanningScope::begin();
        let has_points = self.resolve_points(&mut statement, params, view)?;
        let views = views::expand(&mut statement, view, self.text_bytes_max, None)?;
        if !views.is_empty() {
            if has_points {
                // The parser writes AS OF after the table's alias, where its own parser does not read it.
                let mut text = statement.clone();
                as_of::remove(&mut text);
                parse::check_size(&text, self.text_bytes_max)?;
            } else {
                parse::check_size(&statement, self.text_bytes_max)?;
            }
            self.check_views(&views, view)?;
        }
        let mut tables = ViewTables::new(self, view, extras);
        let keep = !matches!(statement, Statement::Explain { .. });
        let plan = self.logical_plan(statement, params, &mut tables)?;
        let keep = keep && !tables.is_one_time;
        let written = std::mem::take(&mut tables.written);
        let keep = keep && !depends_on_time(&plan).map_err(from_datafusion)?;

        let mut state = self.state.clone();
        state.mark_start_execution();
        let kept =
            if keep { Some(coercion::coerce(plan.clone())?).filter(|c| !c.needs_values) } else { None };
        let Some(kept) = kept else {
            // The values are known, so the optimizer may use them.
            let plan = coercion::coerce(self.substitute_params(plan, params)?)?.plan;
            let plan = state.optimize(&plan).and_then(keep_meaning).map_err(from_datafusion)?;
            return Ok(PlannedQuery { plan, state: Some(state) });
        };
        let plan = kept.plan;
        let optimized = state.optimize(&plan).map_err(from_datafusion)?;
        let direct = match &written[..] {
            [(written, ..)] if views.is_empty() && text.is_some() => {
                PointLookup::of(&optimized, &*resolve_table(view, written)?, &params.types()).map(Arc::new)
            }
            _ => None,
        };
        let plan = keep_meaning(optimized).map_err(from_datafusion)?;
        if let Some(text) = text.filter(|text| text.len() <= CACHED_TEXT_BYTES_MAX)
            && budget::literal_bytes(&plan).map_err(from_datafusion)? <= CACHED_LITERAL_BYTES_MAX
        {
            let key = PlanKey { text: text.to_owned(), types: params.types() };
            let plain = cost::is_cheap_to_bind(&plan);
            let heavy = AtomicBool::new(false);
            // A caller of the cached plan brings its own tables; the current snapshots must not live as long as the cache.
            let bare =
                replace_tables(plan.clone(), &|table| Ok(table.without_rows())).map_err(from_datafusion)?;
            let kept = Arc::new(CachedPlan { plan: bare, tables: written, views, direct, plain, heavy });
            self.plans.rcu(|plans| {
                let full = plans.len() >= PLANS_MAX;
                let others = if full { imbl::HashMap::new() } else { imbl::HashMap::clone(plans) };
                others.update(key.clone(), kept.clone())
            });
        }
        let plan = self.bind_params(plan, params)?;
        Ok(PlannedQuery { plan, state: Some(state) })
    }

    /// Binds the names of a statement and makes its logical plan, before the optimizer.
    fn logical_plan(
        &self,
        mut statement: Statement,
        params: &Params,
        tables: &mut ViewTables<'_>,
    ) -> Result<LogicalPlan> {
        budget::check_statement(&statement, &|name| self.state.aggregate_functions().contains_key(name))
            .map_err(from_datafusion)?;
        let system = names::bind(&mut statement, tables)?;
        asof_join::rewrite(&mut statement)?;
        max_by::rewrite(&mut statement);
        named_windows::expand(&mut statement)?;
        spellings::rewrite(&mut statement)?;
        // The plan contains values that `arrays::rewrite` put in, so it would be wrong for other parameters.
        tables.is_one_time |= arrays::rewrite(&mut statement, &params.values)?;
        row_values::rewrite(&mut statement)?;
        distinct::order_distinct_on(&mut statement);
        let sources = tables.sources(system)?;
        let catalog = StatementCatalog::new(&self.state, sources);
        let mut context = PlannerContext::new().with_prepare_param_data_types(params.fields.clone());
        let mut parser = ParserOptions::from(&self.state.config_options().sql_parser);
        // The first part of a recursive query determines the types of the others, before any literal is coerced.
        parser.parse_float_as_decimal &= !is_recursive(&statement);
        merge_coalesce(&mut statement);
        coercion::prepare(&mut statement)?;
        let plan = SqlToRel::new_with_options(&catalog, parser)
            .sql_statement_to_plan_with_context(statement, &mut context)
            .and_then(budget::within_budget)
            .and_then(multiset_operations::count_duplicates)
            .and_then(grouping_sets::refuse_correlated_totals)
            .and_then(grouping_sets::compute_keys_below)
            .and_then(row_values::refuse_correlated)
            .and_then(correlation::rewrite)
            .and_then(single_row_subqueries::ensure_single_rows)
            .and_then(correlated_scalars::separate)
            .and_then(membership::rewrite)
            .and_then(correlation::prepare_joins)
            .and_then(asof_join::plan_nodes)
            .and_then(budget::within_budget)
            .map_err(from_datafusion);
        tables.is_one_time |= catalog.depends_on_time.get();
        plan
    }

    /// Plans each view by itself and returns its error. Inside a statement, a missing name could be taken for one of the
    /// enclosing query.
    fn check_views(&self, views: &[ExpandedView], view: &View) -> Result<()> {
        for (_, def) in views.iter().rev() {
            self.plan_view(def, view)?;
        }
        Ok(())
    }

    /// Plans the query of a view by itself.
    fn plan_view(&self, def: &ViewDef, view: &View) -> Result<LogicalPlan> {
        let read = || {
            let query = views::query_of(def, self.text_bytes_max)?;
            let mut statement = Statement::Query(Box::new(query));
            views::expand(&mut statement, view, self.text_bytes_max, None)?;
            views::check_reads(def, view)?;
            let mut tables = ViewTables::new(self, view, &[]).without_views();
            self.logical_plan(statement, &Params::new(Vec::new()), &mut tables)
        };
        read().map_err(|error| unreadable(def, view, error))
    }

    /// Returns the types of a view's columns; an error if it cannot be planned.
    pub fn view_column_types(&self, def: &ViewDef, view: &View) -> Result<Vec<DataType>> {
        let plan = coercion::coerce(self.plan_view(def, view)?)?.plan;
        // The analyzer brings branches to one type.
        let analyzer = self.state.analyzer();
        let plan = analyzer
            .execute_and_check(plan, self.state.config_options(), |_, _| ())
            .map_err(from_datafusion)?;
        plan.schema().fields().iter().map(|field| sql_type::from_arrow(field)).collect()
    }

    /// Makes the physical plan.
    pub async fn physical_plan(
        &self,
        planned: &PlannedQuery,
        joins: JoinAlgorithm,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut state = planned.state.as_ref().unwrap_or(&self.state);
        let mut sorting;
        if joins == JoinAlgorithm::SortMerge {
            sorting = state.clone();
            let options = sorting.config_mut().options_mut();
            options.optimizer.prefer_hash_join = false;
            // With one partition DataFusion would still join by hash.
            options.execution.target_partitions = options.execution.target_partitions.max(2);
            state = &sorting;
        }
        let stepped = match joins {
            JoinAlgorithm::Hash => None,
            JoinAlgorithm::SortMerge => {
                Some(not_in_joins::split(planned.plan.clone()).map_err(from_datafusion)?)
            }
        };
        let plan = stepped.as_ref().unwrap_or(&planned.plan);
        let plan = short_circuit::insert(plan, state.execution_props()).map_err(from_datafusion)?;
        interrupt::planning_scope(state.query_planner().create_physical_plan(&plan, state))
            .await
            .map_err(from_datafusion)
    }

    /// Puts the parameters' values into an optimized plan, and folds the expressions that become constant.
    fn bind_params(&self, plan: LogicalPlan, params: &Params) -> Result<LogicalPlan> {
        if params.values.is_empty() {
            return Ok(plan);
        }
        let _planning = PlanningScope::begin();
        let plan = self.substitute_params(plan, params)?;
        let folded = plan.transform_up_with_subqueries(|plan| {
            let plan = regexes::node_with_calls(plan)?.data;
            Simplify.rewrite(plan, &self.state)?.transform_data(optimization_barrier::hide_greatest)
        });
        folded.map(|folded| folded.data).map_err(from_datafusion)
    }

    fn substitute_params(&self, plan: LogicalPlan, params: &Params) -> Result<LogicalPlan> {
        if params.values.is_empty() {
            return Ok(plan);
        }
        let scalars = params.scalars()?;
        let given = |id: &str| scalars.get(id.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)?);
        // This precedes the optimizer, which might turn the error of an unreadable text into one that only a row raises.
        let read = plan.transform_up_with_subqueries(|plan| {
            let name = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = name.save(&expr);
                let read = expr.transform_up(|expr| {
                    let value = ReadAsFunction::fill_parameter(&expr, given)
                        .map_err(|e| DataFusionError::External(Box::new(e)))?;
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

/// Rows of the batches that plan nodes pass on. A merge of spilled rows holds two batches of each of its files, and has at least
/// two files, so batches are shorter where memory is small: the sorts of all threads must find room.
fn batch_rows(memory_bytes: usize) -> usize {
    (memory_bytes >> 13).clamp(1_024, table::BATCH_ROWS)
}

fn is_record_table(table: &Snapshot) -> bool {
    types::name::is_reserved(&table.def().name)
}
