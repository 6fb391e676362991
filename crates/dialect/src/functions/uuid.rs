//! A text that meets a uuid is read as a uuid, as in PostgreSQL: `id = '0190…'`, `'0190…'::uuid`. To DataFusion a uuid is 16
//! bytes, to which it would not convert a text. This rule runs before types are coerced.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryBuilder, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType as Arrow, Field as ArrowField, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Between, Cast, InList, ScalarFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use types::{Error, name};

const UUID: Arrow = Arrow::FixedSizeBinary(16);

/// Reads `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, or the 32 digits without hyphens.
pub fn parse(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0u8; 16];
    let mut digits = 0;
    let trimmed = text.trim();
    let hyphens_ok = match trimmed.len() {
        32 => !trimmed.contains('-'),
        36 => [8, 13, 18, 23].iter().all(|i| trimmed.as_bytes()[*i] == b'-'),
        _ => false,
    };
    if !hyphens_ok {
        return None;
    }
    for c in trimmed.chars().filter(|c| *c != '-') {
        let digit = c.to_digit(16)? as u8;
        *bytes.get_mut(digits / 2)? |= if digits % 2 == 0 { digit << 4 } else { digit };
        digits += 1;
    }
    (digits == 32).then_some(bytes)
}

pub fn format(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

pub fn invalid_uuid(text: &str) -> Error {
    Error::invalid(format!("`{}` is not a valid uuid", name::printable(text)))
        .hint("write 32 hexadecimal digits as 8-4-4-4-12")
}

/// `uuid(text)` and its inverse `uuid_text(uuid)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct UuidFunction {
    reads: bool,
    signature: Signature,
}

impl UuidFunction {
    pub fn from_text() -> Arc<ScalarUDF> {
        Self::make(true, vec![Arrow::Utf8])
    }

    pub fn to_text() -> Arc<ScalarUDF> {
        Self::make(false, vec![UUID])
    }

    fn make(reads: bool, types: Vec<Arrow>) -> Arc<ScalarUDF> {
        let signature = Signature::one_of(vec![TypeSignature::Exact(types)], Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(UuidFunction { reads, signature }))
    }
}

impl ScalarUDFImpl for UuidFunction {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        if self.reads { "uuid" } else { "uuid_text" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        Ok(if self.reads { UUID } else { Arrow::Utf8 })
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        let field = ArrowField::new(self.name(), self.return_type(&[])?, true);
        if !self.reads {
            return Ok(Arc::new(field));
        }
        let metadata = [("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())];
        Ok(Arc::new(field.with_metadata(metadata.into())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [argument] = args.args.as_slice() else {
            return Err(DataFusionError::Internal("uuid takes one argument".into()));
        };
        let is_scalar = matches!(argument, ColumnarValue::Scalar(_));
        let array = argument.to_array(if is_scalar { 1 } else { rows })?;
        let array = if self.reads { read_all(&array)? } else { write_all(&array) };
        if is_scalar {
            return ScalarValue::try_from_array(&array, 0).map(ColumnarValue::Scalar);
        }
        Ok(ColumnarValue::Array(array))
    }
}

fn read_all(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &Arrow::Utf8)?;
    let texts = texts.as_string::<i32>();
    let mut out = FixedSizeBinaryBuilder::with_capacity(texts.len(), 16);
    for text in texts {
        match text {
            Some(text) => {
                let bytes =
                    parse(text).ok_or_else(|| DataFusionError::External(Box::new(invalid_uuid(text))))?;
                out.append_value(bytes)?;
            }
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

pub fn write_all(uuids: &ArrayRef) -> ArrayRef {
    let uuids = uuids.as_fixed_size_binary();
    let mut out = StringBuilder::with_capacity(uuids.len(), uuids.len() * 36);
    for i in 0..uuids.len() {
        if uuids.is_null(i) {
            out.append_null();
        } else {
            out.append_value(format(uuids.value(i)));
        }
    }
    Arc::new(out.finish())
}

/// The analyzer rule that converts a text to a uuid where it meets one.
#[derive(Debug)]
pub struct UuidCoercion {
    from_text: Arc<ScalarUDF>,
    to_text: Arc<ScalarUDF>,
}

impl Default for UuidCoercion {
    fn default() -> Self {
        UuidCoercion { from_text: UuidFunction::from_text(), to_text: UuidFunction::to_text() }
    }
}

impl UuidCoercion {
    fn call(&self, function: &Arc<ScalarUDF>, argument: Expr) -> Expr {
        Expr::ScalarFunction(ScalarFunction::new_udf(function.clone(), vec![argument]))
    }

    fn as_uuid(&self, expr: Expr) -> Result<Expr> {
        Ok(match expr {
            Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) => {
                let bytes =
                    parse(&text).ok_or_else(|| DataFusionError::External(Box::new(invalid_uuid(&text))))?;
                Expr::Literal(ScalarValue::FixedSizeBinary(16, Some(bytes.to_vec())), metadata)
            }
            other => self.call(&self.from_text, other),
        })
    }

    /// Converts the text to a uuid if one of the expressions is a text and the other a uuid. Returns true if it did.
    fn pair(&self, left: Expr, right: Expr, schema: &DFSchema) -> Result<(Expr, Expr, bool)> {
        Ok(match (kind(&left, schema), kind(&right, schema)) {
            (Some(true), Some(false)) => (left, self.as_uuid(right)?, true),
            (Some(false), Some(true)) => (self.as_uuid(left)?, right, true),
            _ => (left, right, false),
        })
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
                let (left, right, changed) = self.pair(*left, *right, schema)?;
                let expr = Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)));
                if changed { Transformed::yes(expr) } else { Transformed::no(expr) }
            }
            Expr::InList(InList { expr, list, negated }) if kind(&expr, schema) == Some(true) => {
                let one = |item: Expr| match kind(&item, schema) {
                    Some(false) => self.as_uuid(item),
                    _ => Ok(item),
                };
                let list = list.into_iter().map(one).collect::<Result<_>>()?;
                Transformed::yes(Expr::InList(InList { expr, list, negated }))
            }
            Expr::Between(Between { expr, negated, low, high }) if kind(&expr, schema) == Some(true) => {
                let one = |item: Expr| match kind(&item, schema) {
                    Some(false) => self.as_uuid(item),
                    _ => Ok(item),
                };
                let (low, high) = (Box::new(one(*low)?), Box::new(one(*high)?));
                Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
            }
            Expr::Cast(Cast { expr, data_type }) => match (kind(&expr, schema), &data_type) {
                (Some(false), Arrow::FixedSizeBinary(16)) => Transformed::yes(self.as_uuid(*expr)?),
                (Some(true), Arrow::Utf8 | Arrow::Utf8View | Arrow::LargeUtf8) => {
                    Transformed::yes(self.call(&self.to_text, *expr))
                }
                _ => Transformed::no(Expr::Cast(Cast { expr, data_type })),
            },
            other => Transformed::no(other),
        })
    }
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Returns `true` for a uuid, `false` for a text, and `None` for other types.
fn kind(expr: &Expr, schema: &DFSchema) -> Option<bool> {
    match expr.get_type(schema).ok()? {
        Arrow::FixedSizeBinary(16) => Some(true),
        Arrow::Utf8 | Arrow::Utf8View | Arrow::LargeUtf8 => Some(false),
        _ => None,
    }
}

impl AnalyzerRule for UuidCoercion {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !mentions_uuid(&plan)? {
            return Ok(plan);
        }
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            let schema = match &plan {
                LogicalPlan::TableScan(scan) => scan.projected_schema.as_ref().clone(),
                other => merge_schema(&other.inputs()),
            };
            plan.map_expressions(|expr| {
                let name =
                    datafusion::logical_expr::expr_rewriter::NamePreserver::new_for_projection().save(&expr);
                let rewritten = expr.transform_up(|expr| self.rewrite(expr, &schema))?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })?
            .map_data(|plan| plan.recompute_schema())
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &str {
        "text_meets_uuid"
    }
}

/// Returns true if a table has a uuid column, or an expression makes a uuid: else the rule has nothing to do.
fn mentions_uuid(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::TableScan(scan) = plan {
            found |= scan.source.schema().fields().iter().any(|f| *f.data_type() == UUID);
        }
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                found |= match expr {
                    Expr::Cast(cast) => cast.data_type == UUID,
                    Expr::ScalarFunction(function) => function.name() == "uuid",
                    Expr::Placeholder(p) => p.field.as_ref().is_some_and(|f| *f.data_type() == UUID),
                    _ => false,
                };
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_as_it_is_written() {
        let text = "0190a2b3-c4d5-7e6f-8899-aabbccddeeff";
        assert_eq!(format(&parse(text).unwrap()), text);
        assert_eq!(parse("0190A2B3C4D57E6F8899AABBCCDDEEFF"), parse(text));
        for bad in
            ["", "0190a2b3", "0190a2b3-c4d5-7e6f-8899-aabbccddeefg", "0190a2b3c-4d5-7e6f-8899-aabbccddeeff"]
        {
            assert!(parse(bad).is_none(), "{bad}");
        }
        assert!(parse(&"é".repeat(18)).is_none());
    }
}
