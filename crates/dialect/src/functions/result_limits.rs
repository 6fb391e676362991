//! Functions whose result or running time may be far larger than their arguments.
//!
//! The first kind makes long results (`repeat`, padding, ranges), or results as long as all arguments together, which doubles
//! with every nesting. The second kind compares each part of one argument with each part of another, which may take days.
//!
//! DataFusion allocates such a result at once, and its memory pool does not know of it: `repeat('x', 1000000000)` takes a
//! gigabyte before anything can object. A call cannot be stopped once it has begun. Here each function is wrapped: the size of
//! the result is estimated from the arguments, and refused beyond [`BATCH_BYTES_MAX`], before the function is called. DataFusion
//! puts some functions into a plan without looking them up by name, and `||` is not a function: [`BoundedFunctions`] finds those
//! in the plan.

pub mod concat;
mod estimate;
pub mod long_constants;
mod overlay;
mod replace;
mod strpos;

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType as Arrow, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use types::{Error, Kind};

use estimate::Argument;

use crate::execution::interrupt;

/// Bytes that one call, for one batch of rows, may make.
pub const BATCH_BYTES_MAX: u128 = 64 << 20;

/// Bytes that a call may make if its result is hardly longer than its arguments: long texts can be read, and `body || '.'` should
/// not fail where `body` does not.
const PASSED_ON_BYTES_MAX: u128 = 512 << 20;

/// Pairs of characters or items that one call, for one batch of rows, may compare: some tenths of a second.
const PAIRS_MAX: u128 = 100_000_000;

/// The rule by which a function's result size or running time grows with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// `repeat(text, times)`.
    Repeats,
    /// `lpad(text, characters[, fill])`.
    Pads,
    /// `replace(text, from, to)`.
    Replaces,
    /// `regexp_replace(text, pattern, to[, flags])`.
    ReplacesMatches,
    /// `translate(text, from, to)`.
    Translates,
    /// `encode(bytes, form)`.
    Encodes,
    /// `string_to_array(text, between[, null])`.
    Splits,
    /// `concat(text, …)`, `array_concat`: appends the arguments to one another.
    Joins,
    /// `overlay(text placing new from start)`: at most as long as both texts.
    Overlays,
    /// `concat_ws(between, text, …)`.
    JoinsWith,
    /// `struct(value, …)`: puts columns side by side, without a copy.
    Holds,
    /// `array_to_string(array, between)`.
    JoinsItems,
    /// `array_repeat(element, times)`.
    RepeatsElement,
    /// `array_resize(array, length[, element])`.
    Resizes,
    /// `range([start,] stop[, step])`.
    Counts,
    /// `levenshtein(text, text)`, `array_has_all(array, array)`: compares pairs.
    Compares,
    /// `array_has_any(array, array)`: compares pairs, unless an array is constant: then it looks values up in it.
    ComparesOrLooksUp,
    /// `btrim(text, characters)`: compares each character of the text with each of the others.
    Trims,
    /// `strpos(text, part)`: DataFusion's compares the part at each position of the text, which takes hours for long texts.
    Finds,
    /// `to_char(time, format)`.
    Formats,
    /// `array_position(array, item, start)`: DataFusion's calculates with any start, also one out of range.
    StartsAt,
}

const FUNCTIONS: [(&str, Growth); 31] = [
    ("repeat", Growth::Repeats),
    ("lpad", Growth::Pads),
    ("rpad", Growth::Pads),
    ("replace", Growth::Replaces),
    ("regexp_replace", Growth::ReplacesMatches),
    ("translate", Growth::Translates),
    ("encode", Growth::Encodes),
    ("string_to_array", Growth::Splits),
    ("concat", Growth::Joins),
    ("concat_ws", Growth::JoinsWith),
    ("overlay", Growth::Overlays),
    ("struct", Growth::Holds),
    ("named_struct", Growth::Holds),
    ("make_array", Growth::Joins),
    ("array_append", Growth::Joins),
    ("array_prepend", Growth::Joins),
    ("array_concat", Growth::Joins),
    ("array_to_string", Growth::JoinsItems),
    ("array_repeat", Growth::RepeatsElement),
    ("array_resize", Growth::Resizes),
    ("range", Growth::Counts),
    ("generate_series", Growth::Counts),
    ("levenshtein", Growth::Compares),
    ("array_has_all", Growth::Compares),
    ("array_has_any", Growth::ComparesOrLooksUp),
    ("btrim", Growth::Trims),
    ("ltrim", Growth::Trims),
    ("rtrim", Growth::Trims),
    ("strpos", Growth::Finds),
    ("to_char", Growth::Formats),
    ("array_position", Growth::StartsAt),
];

/// The bounded functions by name.
#[derive(Debug)]
pub struct BoundedFunctions {
    functions: HashMap<&'static str, Arc<ScalarUDF>>,
    /// The function behind `||` between texts.
    pub concat: Arc<ScalarUDF>,
}

impl BoundedFunctions {
    /// Registers the bounded functions, which replace DataFusion's.
    pub fn register(registry: &mut dyn FunctionRegistry) -> Result<Self> {
        let counter = registry.udf("regexp_count")?;
        let mut functions = HashMap::new();
        for (name, growth) in FUNCTIONS {
            let (inner, counter) = (registry.udf(name)?, counter.clone());
            let bounded = Arc::new(ScalarUDF::new_from_impl(BoundedFunction { inner, growth, counter }));
            registry.register_udf(bounded.clone())?;
            functions.insert(name, bounded);
        }
        Ok(BoundedFunctions { functions, concat: concat::function() })
    }

    /// Returns the bounded function for one that is not bounded; `None` if there is none, or if it is bounded already.
    pub fn of(&self, function: &ScalarUDF) -> Option<&Arc<ScalarUDF>> {
        let bounded = self.functions.get(function.name())?;
        (!function.inner().as_any().is::<BoundedFunction>()).then_some(bounded)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct BoundedFunction {
    inner: Arc<ScalarUDF>,
    growth: Growth,
    /// The function `regexp_count`, which counts the matches that `regexp_replace` would replace.
    counter: Arc<ScalarUDF>,
}

impl BoundedFunction {
    fn bytes(&self, args: &ScalarFunctionArgs) -> Result<u128> {
        let bytes = estimate::bytes(self.growth, args)?;
        match self.growth {
            // Counting the matches takes time, and is worth it only for a call that would be refused.
            Growth::ReplacesMatches if bytes > BATCH_BYTES_MAX => Ok(bytes.min(self.matches_bytes(args)?)),
            _ => Ok(bytes),
        }
    }

    /// Estimates the bytes that `regexp_replace` will make from the number of matches. Returns `u128::MAX` if patterns or flags
    /// differ by row.
    fn matches_bytes(&self, args: &ScalarFunctionArgs) -> Result<u128> {
        let (pattern, flags) = match &args.args[..] {
            [_, ColumnarValue::Scalar(pattern)] | [_, ColumnarValue::Scalar(pattern), _] => (pattern, None),
            [_, ColumnarValue::Scalar(pattern), _, ColumnarValue::Scalar(flags)] => {
                (pattern, flags.try_as_str().flatten())
            }
            _ => return Ok(u128::MAX),
        };
        // The flag `g` is removed, because `regexp_count` counts all matches anyway.
        let flags = flags.unwrap_or_default().replace('g', "");
        let Some(pattern) = pattern.try_as_str().flatten() else { return Ok(0) };
        let pattern = if flags.is_empty() { pattern.to_owned() } else { format!("(?{flags}){pattern}") };
        let rows = args.number_rows;
        let texts = args.args[0].cast_to(&Arrow::Utf8, None)?;
        let count = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
        let counts = self.counter.invoke_with_args(ScalarFunctionArgs {
            args: vec![texts, ColumnarValue::Scalar(ScalarValue::from(pattern))],
            arg_fields: vec![count("text", Arrow::Utf8), count("pattern", Arrow::Utf8)],
            number_rows: rows,
            return_field: count("count", Arrow::Int64),
            config_options: args.config_options.clone(),
        })?;
        let single = matches!(counts, ColumnarValue::Scalar(_));
        let counts = counts.to_array(if single { 1 } else { rows })?;
        let counts = counts.as_primitive::<Int64Type>();
        let text = Argument::new(&args.args[0], rows)?;
        let to = Argument::new(&args.args[2], rows)?;
        let count = |row| counts.value(if single { 0 } else { row }).unsigned_abs().into();
        let rows = if single && to.is_single() { 1 } else { rows };
        Ok(estimate::matches_replaced(&text, &to, rows, count))
    }
}

/// Refuses a call that would make too many bytes.
fn check(name: &str, growth: Growth, args: &ScalarFunctionArgs, bytes: u128) -> Result<()> {
    let most = match growth {
        _ if bytes <= BATCH_BYTES_MAX => return Ok(()),
        Growth::Holds => PASSED_ON_BYTES_MAX,
        Growth::Replaces
        | Growth::ReplacesMatches
        | Growth::Translates
        | Growth::Encodes
        | Growth::Splits
        | Growth::Joins
        | Growth::Overlays
        | Growth::JoinsWith => {
            let half_more = estimate::largest_column(args)? * 3 / 2;
            half_more.clamp(BATCH_BYTES_MAX, PASSED_ON_BYTES_MAX)
        }
        _ => BATCH_BYTES_MAX,
    };
    if bytes <= most {
        return Ok(());
    }
    let message = format!("`{name}` would make {} MiB at once, more than {} MiB", bytes >> 20, most >> 20);
    let error = Error::new(Kind::TooLarge, message).hint(
        "make shorter texts or lists, or of fewer rows; `FROM generate_series(…)` makes rows one by one",
    );
    Err(DataFusionError::External(Box::new(error)))
}

/// Refuses a call that would take too long.
fn check_pairs(name: &str, pairs: u128) -> Result<()> {
    if pairs <= PAIRS_MAX {
        return Ok(());
    }
    let (found, most) = (pairs / 1_000_000, PAIRS_MAX / 1_000_000);
    let message = format!("`{name}` would compare {found} million pairs at once, more than {most} million");
    let hint = "compare shorter texts or lists, as by `left(text, 100)`; one call is for up to 8,192 rows";
    Err(DataFusionError::External(Box::new(Error::new(Kind::TooLarge, message).hint(hint))))
}

impl ScalarUDFImpl for BoundedFunction {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[Arrow]) -> Result<Arrow> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[Arrow]) -> Result<Vec<Arrow>> {
        self.inner.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.growth {
            Growth::ComparesOrLooksUp if args.args.iter().any(|a| matches!(a, ColumnarValue::Scalar(_))) => {}
            Growth::Compares | Growth::ComparesOrLooksUp => {
                check_pairs(self.name(), estimate::pairs(&args)?)?
            }
            Growth::Trims => check_pairs(self.name(), estimate::pairs_with_many(&args)?)?,
            Growth::Finds => {}
            Growth::StartsAt => estimate::check_start(self.name(), &args)?,
            growth => {
                let bytes = self.bytes(&args)?;
                check(self.name(), growth, &args, bytes)?;
                interrupt::check_memory(bytes)?;
            }
        }
        match self.growth {
            Growth::Replaces => replace::invoke(&self.inner, args),
            Growth::Overlays => overlay::invoke(args),
            // DataFusion's is faster for short texts.
            Growth::Finds if estimate::pairs_with_constant(&args)? > PAIRS_MAX => strpos::invoke(args),
            _ => self.inner.invoke_with_args(args),
        }
    }
}
