//! Changes the leaf columns of a Parquet file's Arrow schema, where Arrow's default type does not suit a value.

use std::sync::Arc;

use arrow::datatypes::{DataType as Arrow, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::Type;
use parquet::errors::Result;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

/// Returns the schema with the leaf fields that `change` replaces. `change` gets each leaf field with the file's column that it
/// comes from.
pub fn change_leaves(
    schema: &Schema,
    parquet: &SchemaDescriptor,
    change: &dyn Fn(&Field, &ColumnDescriptor) -> Option<Field>,
) -> SchemaRef {
    let mut leaves = LeafVisitor { parquet, next: 0, change };
    let fields = leaves.fields(schema.fields());
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Reads INT96 as microseconds. INT96 holds a day and the time of that day; Impala and Spark long wrote timestamps so. Arrow
/// reads it as nanoseconds since 1970, which silently changes times before 1677 and after 2262. Microseconds cover the years 1
/// to 9999.
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

/// Walks a schema in the order in which Parquet numbers its leaf columns: depth first, from left to right.
struct LeafVisitor<'a> {
    parquet: &'a SchemaDescriptor,
    next: usize,
    change: &'a dyn Fn(&Field, &ColumnDescriptor) -> Option<Field>,
}

impl LeafVisitor<'_> {
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
