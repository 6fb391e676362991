//! The columns of a Parquet file at their innermost, where Arrow's idea of a value is not Parquet's own.

use std::sync::Arc;

use arrow::datatypes::{DataType as Arrow, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::Type;
use parquet::errors::Result;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

/// A schema in which `change` has put other fields for those that hold values themselves. It is given each with the column of
/// the file that it comes from.
pub fn change_leaves(
    schema: &Schema,
    parquet: &SchemaDescriptor,
    change: &dyn Fn(&Field, &ColumnDescriptor) -> Option<Field>,
) -> SchemaRef {
    let mut leaves = Leaves { parquet, next: 0, change };
    let fields = leaves.fields(schema.fields());
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// INT96 holds a day and a time of it, as Impala and Spark wrote times for long. Arrow reads it as nanoseconds since 1970, in
/// which times before 1677 and after 2262 become others without a word; microseconds hold every one of the years 1 to 9999.
pub fn int96_as_micros(metadata: ArrowReaderMetadata) -> Result<ArrowReaderMetadata> {
    let parquet = metadata.parquet_schema();
    if parquet.columns().iter().all(|column| column.physical_type() != Type::INT96) {
        return Ok(metadata);
    }
    let schema = change_leaves(metadata.schema(), parquet, &|field, column| match field.data_type() {
        Arrow::Timestamp(_, zone) if column.physical_type() == Type::INT96 => {
            let micros = Arrow::Timestamp(TimeUnit::Microsecond, zone.clone());
            Some(field.clone().with_data_type(micros))
        }
        _ => None,
    });
    ArrowReaderMetadata::try_new(metadata.metadata().clone(), ArrowReaderOptions::new().with_schema(schema))
}

/// Walks a schema as Parquet numbers its columns: from left to right, each before what is behind its parent.
struct Leaves<'a> {
    parquet: &'a SchemaDescriptor,
    next: usize,
    change: &'a dyn Fn(&Field, &ColumnDescriptor) -> Option<Field>,
}

impl Leaves<'_> {
    fn fields(&mut self, fields: &Fields) -> Fields {
        fields.iter().map(|field| self.field(field)).collect()
    }

    fn field(&mut self, field: &FieldRef) -> FieldRef {
        let nested = match field.data_type() {
            Arrow::Struct(fields) => Arrow::Struct(self.fields(fields)),
            Arrow::List(item) => Arrow::List(self.field(item)),
            Arrow::LargeList(item) => Arrow::LargeList(self.field(item)),
            Arrow::ListView(item) => Arrow::ListView(self.field(item)),
            Arrow::LargeListView(item) => Arrow::LargeListView(self.field(item)),
            Arrow::FixedSizeList(item, len) => Arrow::FixedSizeList(self.field(item), *len),
            Arrow::Map(entries, sorted) => Arrow::Map(self.field(entries), *sorted),
            _ => {
                let at = self.next;
                self.next += 1;
                let column = self.parquet.columns().get(at);
                let changed = column.and_then(|column| (self.change)(field, column));
                return changed.map_or_else(|| field.clone(), Arc::new);
            }
        };
        Arc::new(field.as_ref().clone().with_data_type(nested))
    }
}
