//! `ntile(n)` splits the rows of a partition into n groups, of which the first ones get the additional rows, as in PostgreSQL.
//! DataFusion's gives them to groups in the middle.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, new_null_array};
use arrow::datatypes::{DataType as Arrow, Field, FieldRef};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::functions_window::ntile::ntile_udwf;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{PartitionEvaluator, Signature, WindowUDF, WindowUDFImpl};
use datafusion::physical_expr::expressions::Literal;
use datafusion::scalar::ScalarValue;
use types::Error;

/// Returns the function that replaces DataFusion's.
pub fn function() -> Arc<WindowUDF> {
    Arc::new(WindowUDF::new_from_impl(Ntile { inner: ntile_udwf() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Ntile {
    inner: Arc<WindowUDF>,
}

impl WindowUDFImpl for Ntile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), Arrow::Int64, true)))
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        let number = args.input_exprs().first().and_then(|expr| expr.as_any().downcast_ref::<Literal>());
        let number = number.map(|literal| literal.value().cast_to(&Arrow::Int64));
        match number.transpose()? {
            Some(ScalarValue::Int64(Some(groups))) if groups > 0 => {
                Ok(Box::new(Evaluator { groups: Some(groups.unsigned_abs()) }))
            }
            Some(ScalarValue::Int64(None)) => Ok(Box::new(Evaluator { groups: None })),
            _ => {
                let error = Error::invalid("`ntile` takes a number above 0, the same for all rows");
                Err(DataFusionError::External(Box::new(error)))
            }
        }
    }
}

#[derive(Debug)]
struct Evaluator {
    groups: Option<u64>,
}

impl PartitionEvaluator for Evaluator {
    fn evaluate_all(&mut self, _: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let Some(groups) = self.groups else { return Ok(new_null_array(&Arrow::Int64, rows)) };
        let (least, more) = (rows as u64 / groups, rows as u64 % groups);
        // Number of rows in the groups that have one more row.
        let longer = more * (least + 1);
        let group = |row: u64| match row.checked_sub(longer) {
            None => row / (least + 1),
            Some(rest) => more + rest / least.max(1),
        };
        Ok(Arc::new(Int64Array::from_iter_values((0..rows as u64).map(|row| group(row) as i64 + 1))))
    }
}
