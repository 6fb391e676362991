//! Functions whose answer may be far larger than what they are given: `repeat`, padding, ranges; and those whose answer
//! is as large as all they are given, which doubles wherever it is given to one of them again. And functions that compare
//! each part of one argument with each part of another: they may take days, and nothing stops a call once it has begun.
//!
//! DataFusion's own take what they need at once, and its memory pool hears nothing of it: `repeat('x', 1000000000)` is a
//! gigabyte before anybody could object. Each is wrapped here: how much the answer will take is reckoned from the
//! arguments, and refused beyond [`BATCH_BYTES_MAX`], before the function is called. Some functions are put into a plan
//! without being looked up by name, and `||` is no function: [`Bounds`] finds those in the plan.

mod bytes;
pub(crate) mod concat;
pub(crate) mod constant;
mod find;
mod overlay;
mod replace;

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

use bytes::Argument;

use crate::interrupt;

/// What one call, for one batch of rows, may make.
pub(crate) const BATCH_BYTES_MAX: u128 = 64 << 20;

/// What a call may make that hands on what it was given with little more: rows of long texts are read as they are, and
/// `body || '.'` should not fail where `body` does not.
const HANDED_ON_BYTES_MAX: u128 = 512 << 20;

/// Pairs of characters or items that one call, for one batch of rows, may compare: some tenths of a second.
const PAIRS_MAX: u128 = 100_000_000;

/// What decides how large an answer gets, or how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Grows {
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
    /// `concat(text, …)`, `array_concat`: one behind the other.
    Joins,
    /// `overlay(text placing new from start)`: no more than both.
    Overlays,
    /// `concat_ws(between, text, …)`.
    JoinsWith,
    /// `struct(value, …)`: columns beside each other, copied later if at all.
    Holds,
    /// `array_to_string(array, between)`.
    JoinsItems,
    /// `array_repeat(element, times)`.
    RepeatsElement,
    /// `array_resize(array, length[, element])`.
    Resizes,
    /// `range([start,] stop[, step])`.
    Counts,
    /// `levenshtein(text, text)`, `array_has_all(array, array)`: they compare pairs.
    Compares,
    /// `array_has_any(array, array)`: does too, but looks things up in an array that is constant.
    ComparesOrLooksUp,
    /// `btrim(text, signs)`: compares each of the text's with each of the others.
    Trims,
    /// `strpos(text, part)`: DataFusion's compares each place of the text with the part, which takes hours for long ones.
    Finds,
    /// `to_char(time, format)`.
    Formats,
    /// `array_position(array, item, start)`: it calculates with the start, whatever it is.
    StartsAt,
}

const FUNCTIONS: [(&str, Grows); 31] = [
    ("repeat", Grows::Repeats),
    ("lpad", Grows::Pads),
    ("rpad", Grows::Pads),
    ("replace", Grows::Replaces),
    ("regexp_replace", Grows::ReplacesMatches),
    ("translate", Grows::Translates),
    ("encode", Grows::Encodes),
    ("string_to_array", Grows::Splits),
    ("concat", Grows::Joins),
    ("concat_ws", Grows::JoinsWith),
    ("overlay", Grows::Overlays),
    ("struct", Grows::Holds),
    ("named_struct", Grows::Holds),
    ("make_array", Grows::Joins),
    ("array_append", Grows::Joins),
    ("array_prepend", Grows::Joins),
    ("array_concat", Grows::Joins),
    ("array_to_string", Grows::JoinsItems),
    ("array_repeat", Grows::RepeatsElement),
    ("array_resize", Grows::Resizes),
    ("range", Grows::Counts),
    ("generate_series", Grows::Counts),
    ("levenshtein", Grows::Compares),
    ("array_has_all", Grows::Compares),
    ("array_has_any", Grows::ComparesOrLooksUp),
    ("btrim", Grows::Trims),
    ("ltrim", Grows::Trims),
    ("rtrim", Grows::Trims),
    ("strpos", Grows::Finds),
    ("to_char", Grows::Formats),
    ("array_position", Grows::StartsAt),
];

/// The bounded functions, by name.
#[derive(Debug)]
pub(crate) struct Bounds {
    functions: HashMap<&'static str, Arc<ScalarUDF>>,
    /// `||` between texts.
    pub concat: Arc<ScalarUDF>,
}

impl Bounds {
    /// Puts the bounded functions in the place of DataFusion's.
    pub fn register(registry: &mut dyn FunctionRegistry) -> Result<Self> {
        let counter = registry.udf("regexp_count")?;
        let mut functions = HashMap::new();
        for (name, grows) in FUNCTIONS {
            let (inner, counter) = (registry.udf(name)?, counter.clone());
            let bounded = Arc::new(ScalarUDF::new_from_impl(Bounded { inner, grows, counter }));
            registry.register_udf(bounded.clone())?;
            functions.insert(name, bounded);
        }
        Ok(Bounds { functions, concat: concat::function() })
    }

    /// The bounded function for one that is not.
    pub fn of(&self, function: &ScalarUDF) -> Option<&Arc<ScalarUDF>> {
        let bounded = self.functions.get(function.name())?;
        (!function.inner().as_any().is::<Bounded>()).then_some(bounded)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    grows: Grows,
    /// `regexp_count`.
    counter: Arc<ScalarUDF>,
}

impl Bounded {
    fn bytes(&self, args: &ScalarFunctionArgs) -> Result<u128> {
        let bytes = bytes::of(self.grows, args)?;
        match self.grows {
            // Then it is worth counting.
            Grows::ReplacesMatches if bytes > BATCH_BYTES_MAX => Ok(bytes.min(self.matches_bytes(args)?)),
            _ => Ok(bytes),
        }
    }

    /// What `regexp_replace` will make, by the number of matches. Where patterns and flags differ by row it is not known.
    fn matches_bytes(&self, args: &ScalarFunctionArgs) -> Result<u128> {
        let (pattern, flags) = match &args.args[..] {
            [_, ColumnarValue::Scalar(pattern)] | [_, ColumnarValue::Scalar(pattern), _] => (pattern, None),
            [_, ColumnarValue::Scalar(pattern), _, ColumnarValue::Scalar(flags)] => {
                (pattern, flags.try_as_str().flatten())
            }
            _ => return Ok(u128::MAX),
        };
        // Every match is replaced, so it counts them all.
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
        Ok(bytes::matches_replaced(&text, &to, rows, count))
    }
}

/// Refuses a call that would make too much.
fn check(name: &str, grows: Grows, args: &ScalarFunctionArgs, bytes: u128) -> Result<()> {
    let most = match grows {
        _ if bytes <= BATCH_BYTES_MAX => return Ok(()),
        Grows::Holds => HANDED_ON_BYTES_MAX,
        Grows::Replaces
        | Grows::ReplacesMatches
        | Grows::Translates
        | Grows::Encodes
        | Grows::Splits
        | Grows::Joins
        | Grows::Overlays
        | Grows::JoinsWith => {
            let half_more = bytes::largest_column(args)? * 3 / 2;
            half_more.clamp(BATCH_BYTES_MAX, HANDED_ON_BYTES_MAX)
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

impl ScalarUDFImpl for Bounded {
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
        match self.grows {
            Grows::ComparesOrLooksUp if args.args.iter().any(|a| matches!(a, ColumnarValue::Scalar(_))) => {}
            Grows::Compares | Grows::ComparesOrLooksUp => check_pairs(self.name(), bytes::pairs(&args)?)?,
            Grows::Trims => check_pairs(self.name(), bytes::pairs_with_many(&args)?)?,
            Grows::Finds => {}
            Grows::StartsAt => bytes::check_start(self.name(), &args)?,
            grows => {
                let bytes = self.bytes(&args)?;
                check(self.name(), grows, &args, bytes)?;
                interrupt::foresee(bytes)?;
            }
        }
        match self.grows {
            Grows::Replaces => replace::invoke(&self.inner, args),
            Grows::Overlays => overlay::invoke(args),
            // DataFusion's is faster for short texts.
            Grows::Finds if bytes::pairs_with_constant(&args)? > PAIRS_MAX => find::invoke(args),
            _ => self.inner.invoke_with_args(args),
        }
    }
}
