//! Bounds the depth of types, before anything recurses over them: of a type given as text, as in `arrow_cast(x, 'List(Int8)')`,
//! and of the types that functions derive from their arguments. Without a bound, DataFusion and Arrow would overflow the stack.

use std::sync::Arc;

use arrow::datatypes::DataType as Arrow;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::functions_nested::make_array::make_array_udf;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::{Expr, ScalarUDF};
use types::{Error, Kind};

use crate::execution::interrupt;

/// Name of the function that takes a type as text.
pub const FUNCTION: &str = "arrow_cast";

/// Depth of types. Brackets in a statement may nest as deep (`parse::NESTING_MAX`).
const DEPTH_MAX: usize = 64;

/// Number of types within a type, each counted wherever it appears: a struct of two structs of two … doubles with every level,
/// although only one of each is in memory.
const WITHIN_MAX: usize = 10_000;
/// Number of items or bytes of one value of a fixed-size type: a vector may have as many.
const FIXED_MAX: i64 = 65_536;

/// A planner extension that checks the types of lists in brackets while they are planned: `[[x]]` over `[[x]]` over … adds up
/// over queries.
#[derive(Debug)]
pub struct ListPlanner(Arc<ScalarUDF>);

impl Default for ListPlanner {
    fn default() -> Self {
        ListPlanner(interrupt::function::interruptible(make_array_udf()))
    }
}

impl ExprPlanner for ListPlanner {
    fn plan_array_literal(&self, items: Vec<Expr>, _: &DFSchema) -> Result<PlannerResult<Vec<Expr>>> {
        let list = ScalarFunction::new_udf(self.0.clone(), items);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(list)))
    }
}

/// Refuses a text that stands for too deep a type. Brackets within quotes count too, because no type needs them.
pub fn check(arguments: &[Option<&ScalarValue>]) -> Result<()> {
    let text = arguments.get(1).copied().flatten().and_then(|text| text.try_as_str().flatten());
    let mut depth = 0usize;
    for byte in text.unwrap_or_default().bytes() {
        match byte {
            b'(' | b'[' | b'<' | b'{' => depth += 1,
            b')' | b']' | b'>' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(too_deep());
        }
    }
    Ok(())
}

/// Refuses a type that nests too deep, or holds too many types, items or bytes.
pub fn check_depth(data_type: &Arrow) -> Result<()> {
    if !data_type.is_nested()
        && !matches!(data_type, Arrow::Dictionary(..) | Arrow::RunEndEncoded(..) | Arrow::FixedSizeBinary(_))
    {
        return Ok(());
    }
    let mut level = vec![data_type];
    let mut all = 0;
    let mut repeated = 1;
    for _ in 0..DEPTH_MAX {
        if let Some(wrong) = level.iter().find(|data_type| !is_taken(data_type)) {
            return Err(DataFusionError::External(Box::new(Error::invalid(format!(
                "no value has the type {wrong}"
            )))));
        }
        let here = level.iter().copied().map(size_of_fixed).max().unwrap_or(1);
        repeated = here.saturating_mul(repeated);
        if repeated > FIXED_MAX {
            return Err(too_large(format!(
                "a value of a type has more than {FIXED_MAX} items or bytes, also where it is null"
            )));
        }
        level = level.into_iter().flat_map(within).collect();
        all += level.len();
        if level.is_empty() {
            return Ok(());
        }
        if all > WITHIN_MAX {
            return Err(too_large(format!("a type holds more than {WITHIN_MAX} others")));
        }
    }
    Err(too_deep())
}

/// Returns true for types of which casts and functions can make values. Arrow's kernels panic for the others.
fn is_taken(data_type: &Arrow) -> bool {
    match data_type {
        Arrow::FixedSizeBinary(size) | Arrow::FixedSizeList(_, size) => *size >= 0,
        Arrow::RunEndEncoded(..) | Arrow::Union(..) => false,
        _ => true,
    }
}

/// Returns the number of items or bytes of each value of a fixed-size type; 1 for other types.
fn size_of_fixed(data_type: &Arrow) -> i64 {
    match data_type {
        Arrow::FixedSizeBinary(size) | Arrow::FixedSizeList(_, size) => i64::from(*size).max(1),
        _ => 1,
    }
}

fn within(data_type: &Arrow) -> Vec<&Arrow> {
    match data_type {
        Arrow::List(item)
        | Arrow::LargeList(item)
        | Arrow::ListView(item)
        | Arrow::LargeListView(item)
        | Arrow::FixedSizeList(item, _)
        | Arrow::Map(item, _) => vec![item.data_type()],
        Arrow::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        Arrow::Union(fields, _) => fields.iter().map(|(_, field)| field.data_type()).collect(),
        Arrow::Dictionary(keys, values) => vec![keys, values],
        Arrow::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        _ => Vec::new(),
    }
}

fn too_deep() -> DataFusionError {
    too_large(format!("a type nests deeper than {DEPTH_MAX} levels"))
}

fn too_large(what: String) -> DataFusionError {
    let error = Error::new(Kind::TooLarge, what).hint("keep rows of a table instead of lists in lists");
    DataFusionError::External(Box::new(error))
}
