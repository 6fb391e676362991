//! `regexp_match(text, pattern[, flags])` returns the text of each group, and null for a group that took no part in the match.
//! DataFusion's leaves such groups out, so that `[1]` may be another group.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, ListBuilder, StringBuilder};
use arrow::datatypes::{DataType as Arrow, Field};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use types::Error;

use crate::functions::regexes::Patterns;
use crate::functions::text_or_number::TextOrNumber;

/// Returns the function that replaces DataFusion's.
pub fn function() -> Arc<ScalarUDF> {
    let texts = |count| TypeSignature::String(count);
    let signature = Signature::one_of(vec![texts(2), texts(3)], Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(RegexpMatch { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RegexpMatch {
    signature: Signature,
}

impl ScalarUDFImpl for RegexpMatch {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "regexp_match"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(Arrow::List(Arc::new(Field::new_list_field(Arrow::Utf8, true))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let arguments =
            args.args.iter().map(|arg| TextOrNumber::of(arg, rows)).collect::<Result<Vec<_>>>()?;
        let groups = groups(&arguments, rows)?;
        if is_constant {
            ScalarValue::try_from_array(&groups, 0).map(ColumnarValue::Scalar)
        } else {
            Ok(ColumnarValue::Array(groups))
        }
    }
}

fn groups(arguments: &[TextOrNumber], rows: usize) -> Result<ArrayRef> {
    let (texts, patterns, flags) = (&arguments[0], &arguments[1], arguments.get(2));
    let mut found = ListBuilder::new(StringBuilder::new());
    let mut compiled = Patterns::default();
    for row in 0..rows {
        let flags = flags.map_or(Some(""), |flags| flags.text(row));
        let (Some(text), Some(pattern), Some(flags)) = (texts.text(row), patterns.text(row), flags) else {
            found.append_null();
            continue;
        };
        if flags.contains('g') {
            let error = Error::invalid("`regexp_match` gives the first match: it does not take the flag `g`");
            return Err(DataFusionError::External(Box::new(error)));
        }
        let flags = Some(flags).filter(|flags| !flags.is_empty());
        let Some(captures) = compiled.regex_for(text, pattern, flags)?.captures(text) else {
            found.append_null();
            continue;
        };
        // Group 0 is the whole match: it is returned only if the pattern has no other groups.
        let skipped = usize::from(captures.len() > 1);
        for group in captures.iter().skip(skipped) {
            found.values().append_option(group.map(|group| group.as_str()));
        }
        found.append(true);
    }
    Ok(Arc::new(found.finish()))
}
