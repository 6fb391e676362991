//! Functions that compare the items of lists, with PostgreSQL's treatment of nulls, which DataFusion's functions lack.
//! `array_remove` treats two nulls as equal; the order of lists puts null after all other items; `= ANY` is null if no item is
//! equal and one item is null.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use crate::functions::common_type::is_text;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, UInt64Array, make_comparator};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{SortOptions, take};
use arrow::datatypes::DataType as Arrow;
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Name of the function behind `x = ANY(list)`, which takes the list and x. No statement can call it by this name.
pub const EQUALS_ANY: &str = "= any";
pub const LESS: &str = "list_less";
pub const REMOVE: &str = "array_remove";

/// Registers these functions, which replace DataFusion's.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for what in [ListFunctionKind::EqualsAny, ListFunctionKind::Remove] {
        registry.register_udf(function(what))?;
    }
    Ok(())
}

/// Returns `left op right` for two lists; `None` if `op` is not one of `<`, `<=`, `>`, `>=`.
pub fn less(left: Expr, op: Operator, right: Expr) -> Option<Expr> {
    let call = |args| Expr::ScalarFunction(ScalarFunction::new_udf(function(ListFunctionKind::Less), args));
    Some(match op {
        Operator::Lt => call(vec![left, right]),
        Operator::Gt => call(vec![right, left]),
        Operator::GtEq => Expr::Not(Box::new(call(vec![left, right]))),
        Operator::LtEq => Expr::Not(Box::new(call(vec![right, left]))),
        _ => return None,
    })
}

fn function(what: ListFunctionKind) -> Arc<ScalarUDF> {
    let aliases = if what == ListFunctionKind::Remove { vec!["list_remove".to_owned()] } else { Vec::new() };
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(ListFunction { what, aliases, signature }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ListFunctionKind {
    EqualsAny,
    Remove,
    Less,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListFunction {
    what: ListFunctionKind,
    aliases: Vec<String>,
    signature: Signature,
}

impl ScalarUDFImpl for ListFunction {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        match self.what {
            ListFunctionKind::EqualsAny => EQUALS_ANY,
            ListFunctionKind::Remove => REMOVE,
            ListFunctionKind::Less => LESS,
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        // The message for the client is built from the function's name and these types.
        let refused = || DataFusionError::Plan("a list and an item are expected".into());
        let [left, right] = types else { return Err(refused()) };
        match self.what {
            ListFunctionKind::Less => comparison_coercion(left, right)
                .filter(|one| matches!(one, Arrow::List(_)))
                .map(|one| vec![one.clone(), one]),
            _ => of_one_type(left, right),
        }
        .ok_or_else(refused)
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        match (self.what, types.first()) {
            (ListFunctionKind::Remove, Some(list)) => Ok(list.clone()),
            _ => Ok(Arrow::Boolean),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return Err(DataFusionError::Internal(format!("{} takes two arguments", self.name())));
        };
        let is_constant = [left, right].iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
        let answer = match self.what {
            ListFunctionKind::EqualsAny => equals_any(lists(&left)?, &right)?,
            ListFunctionKind::Remove => remove_items(lists(&left)?, &right)?,
            ListFunctionKind::Less => is_less(&left, &right)?,
        };
        if is_constant {
            ScalarValue::try_from_array(&answer, 0).map(ColumnarValue::Scalar)
        } else {
            Ok(ColumnarValue::Array(answer))
        }
    }
}

/// Returns the types of the list and of the element, after the items and the element are brought to one type.
fn of_one_type(list: &Arrow, element: &Arrow) -> Option<Vec<Arrow>> {
    let item = match list {
        Arrow::List(item) | Arrow::LargeList(item) | Arrow::FixedSizeList(item, _) => item.data_type(),
        Arrow::Null => element,
        _ => return None,
    };
    let one = match (item, element) {
        (Arrow::Null, Arrow::Null) => Arrow::Int64,
        // A text without a type is read as the type of the value that it meets.
        (item, text) if is_text(text) && !is_text(item) && !item.is_null() => item.clone(),
        _ => comparison_coercion(item, element)?,
    };
    let list = match list {
        Arrow::List(item) if *item.data_type() == one => list.clone(),
        _ => Arrow::new_list(one.clone(), true),
    };
    Some(vec![list, one])
}

fn lists(array: &ArrayRef) -> Result<&ListArray> {
    array.as_list_opt().ok_or_else(|| DataFusionError::Internal("a list is expected".into()))
}

/// Returns the positions of a row's items in the values of the array.
fn item_range(lists: &ListArray, row: usize) -> Range<usize> {
    let offsets = lists.value_offsets();
    offsets[row] as usize..offsets[row + 1] as usize
}

fn equals_any(lists: &ListArray, elements: &ArrayRef) -> Result<ArrayRef> {
    let items = lists.values();
    let compare = make_comparator(items, elements, SortOptions::default())?;
    let one = |row: usize| {
        let range = item_range(lists, row);
        if lists.is_null(row) {
            None
        } else if range.is_empty() {
            Some(false)
        } else if elements.is_null(row) {
            None
        } else if range.clone().any(|at| items.is_valid(at) && compare(at, row).is_eq()) {
            Some(true)
        } else if range.clone().any(|at| items.is_null(at)) {
            None
        } else {
            Some(false)
        }
    };
    Ok(Arc::new((0..lists.len()).map(one).collect::<BooleanArray>()))
}

/// Returns the lists without the items that equal the element.
fn remove_items(lists: &ListArray, elements: &ArrayRef) -> Result<ArrayRef> {
    let items = lists.values();
    // This comparator takes two nulls for equal.
    let compare = make_comparator(items, elements, SortOptions::default())?;
    let mut kept: Vec<u64> = Vec::with_capacity(items.len());
    let mut lengths = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        let before = kept.len();
        if lists.is_valid(row) {
            kept.extend(item_range(lists, row).filter(|at| compare(*at, row).is_ne()).map(|at| at as u64));
        }
        lengths.push(kept.len() - before);
    }
    let Arrow::List(field) = lists.data_type() else {
        return Err(DataFusionError::Internal("a list is expected".into()));
    };
    let items = take(items, &UInt64Array::from(kept), None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(field.clone(), offsets, items, lists.nulls().cloned())?))
}

fn is_less(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let nulls_last = SortOptions { descending: false, nulls_first: false };
    let compare = make_comparator(left, right, nulls_last)?;
    let one = |row: usize| {
        let is_known = left.is_valid(row) && right.is_valid(row);
        is_known.then(|| compare(row, row).is_lt())
    };
    Ok(Arc::new((0..left.len()).map(one).collect::<BooleanArray>()))
}
