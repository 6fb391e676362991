//! Partition specs, as written in metadata files and manifests.
//!
//! A table has one for each partitioning in its history; a file keeps the spec that it was written under. Everything that
//! depends on a spec alone, such as the Avro schema of its manifests, is made once when the spec is parsed (O1).

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::Value as Json;
use types::{Error, Result};

use crate::avro::{Body, Record};
use crate::manifest::FieldSummary;
use crate::metadata::Metadata;
use crate::single_value::{PrimitiveType, SingleValue};

/// The specs of a table by id.
pub type Specs = BTreeMap<i32, Arc<Spec>>;

#[derive(Debug)]
pub struct Spec {
    pub id: i32,
    pub fields: Vec<SpecField>,
    /// The fields as JSON, for a manifest's header.
    pub json: String,
    /// The Avro schema of entries in its manifests.
    pub entry_schema: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SpecField {
    pub id: i32,
    pub name: String,
    /// Field id of the source column.
    pub source: i32,
    /// The transform in Iceberg's notation.
    pub transform: String,
    /// Type of the values; `None` if the column's type or the transform is unknown.
    pub result: Option<PrimitiveType>,
}

/// The partition values that all rows of a file share: one for each field of its spec, `None` for null.
#[derive(Clone, Debug, Default)]
pub struct Partition {
    pub values: Vec<Option<SingleValue>>,
    /// The values encoded as bytes, for equality and hashing.
    key: Vec<u8>,
}

impl PartialEq for Partition {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Partition {}

impl Hash for Partition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl Partition {
    pub fn new(values: Vec<Option<SingleValue>>) -> Partition {
        let mut key = Vec::new();
        for value in &values {
            match value {
                None => key.push(0),
                Some(SingleValue::Bool(value)) => key.extend([1, u8::from(*value)]),
                Some(SingleValue::Int(value)) => put(&mut key, 2, &value.to_be_bytes()),
                Some(SingleValue::Float(value)) => {
                    let value = if value.is_nan() { f64::NAN } else { *value };
                    put(&mut key, 3, &value.to_bits().to_be_bytes());
                }
                Some(SingleValue::Decimal(value)) => put(&mut key, 4, &value.to_be_bytes()),
                Some(SingleValue::Bytes(bytes)) => {
                    put(&mut key, 5, &(bytes.len() as u64).to_be_bytes());
                    key.extend_from_slice(bytes);
                }
            }
        }
        Partition { values, key }
    }
}

fn put(key: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    key.push(tag);
    key.extend_from_slice(bytes);
}

/// Parses all specs of a table's metadata.
pub fn specs_of(metadata: &Metadata) -> Result<Specs> {
    let spec = |json: &Json| Spec::parse(json, metadata).map(|spec| (spec.id, Arc::new(spec)));
    metadata.partition_specs.iter().map(spec).collect()
}

/// Returns the spec with this id. Fails with `Damaged` if there is none.
pub fn find(specs: &Specs, id: i32) -> Result<&Arc<Spec>> {
    specs.get(&id).ok_or_else(|| {
        Error::damaged(format!("a file is of the partition spec {id}, which the metadata does not have"))
    })
}

impl Spec {
    fn parse(json: &Json, metadata: &Metadata) -> Result<Spec> {
        let number = |json: &Json, key: &str| {
            let number = json[key].as_i64().and_then(|n| i32::try_from(n).ok());
            number.ok_or_else(|| Error::damaged(format!("a partition spec without `{key}`")))
        };
        let text = |json: &Json, key: &str| {
            let text = json[key].as_str().map(str::to_owned);
            text.ok_or_else(|| Error::damaged(format!("a partition spec without `{key}`")))
        };
        let listed = json["fields"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut fields = Vec::with_capacity(listed.len());
        for field in listed {
            let (source, transform) = (number(field, "source-id")?, text(field, "transform")?);
            let result = result_of(&transform, metadata.type_of(source));
            let (id, name) = (number(field, "field-id")?, text(field, "name")?);
            fields.push(SpecField { id, name, source, transform, result });
        }
        Ok(Spec {
            id: number(json, "spec-id")?,
            json: Json::from(listed).to_string(),
            entry_schema: crate::manifest::entry_schema(&partition_fields(&fields)),
            fields,
        })
    }

    /// Returns true if files of this spec are not partitioned.
    pub fn is_unpartitioned(&self) -> bool {
        self.fields.is_empty()
    }

    /// Writes a file's partition values as an Avro record.
    pub fn put_avro(&self, body: &mut Body, partition: &Partition) {
        for (at, field) in self.fields.iter().enumerate() {
            let value = partition.values.get(at).and_then(Option::as_ref).zip(field.result);
            body.some(value.is_some());
            if let Some((value, result)) = value {
                result.put_avro(body, value);
            }
        }
    }

    /// Reads a file's partition values from an Avro record.
    pub fn partition(&self, record: Option<&Record>) -> Arc<Partition> {
        let value = |field: &SpecField| {
            let datum = record.and_then(|record| record.get(field.id))?;
            field.result.unwrap_or(PrimitiveType::Binary).of_datum(datum)
        };
        Arc::new(Partition::new(self.fields.iter().map(value).collect()))
    }

    /// Returns one summary for each field, over the partitions of all files in a manifest.
    pub fn summaries<'a>(
        &self,
        partitions: impl Iterator<Item = &'a Partition> + Clone,
    ) -> Vec<FieldSummary> {
        let of_field = |(at, field): (usize, &SpecField)| {
            let values = partitions.clone().map(|p| p.values.get(at).and_then(Option::as_ref));
            let is_nan = |value: &SingleValue| matches!(value, SingleValue::Float(value) if value.is_nan());
            let (mut least, mut most): (Option<&SingleValue>, Option<&SingleValue>) = (None, None);
            let mut summary = FieldSummary::default();
            for value in values {
                match value {
                    None => summary.contains_null = true,
                    Some(value) if is_nan(value) => summary.contains_nan = true,
                    Some(value) => {
                        least = least.filter(|least| *least <= value).or(Some(value));
                        most = most.filter(|most| *most >= value).or(Some(value));
                    }
                }
            }
            let bytes = |value: Option<&SingleValue>| Some(field.result?.to_bytes(value?));
            (summary.lower, summary.upper) = (bytes(least), bytes(most));
            summary
        };
        self.fields.iter().enumerate().map(of_field).collect()
    }
}

/// Returns the type of a transform's results.
fn result_of(transform: &str, source: Option<PrimitiveType>) -> Option<PrimitiveType> {
    match transform {
        "identity" => source,
        "year" | "month" | "hour" => Some(PrimitiveType::Int),
        "day" => Some(PrimitiveType::Date),
        // A void field is always null, whatever its transform was before.
        "void" => source.or(Some(PrimitiveType::Int)),
        other if other.starts_with("bucket[") => Some(PrimitiveType::Int),
        other if other.starts_with("truncate[") => source,
        _ => None,
    }
}

/// Returns the Avro fields of an entry's partition record, as JSON text.
fn partition_fields(fields: &[SpecField]) -> String {
    let mut out = String::new();
    let mut taken = HashSet::new();
    for field in fields {
        let mut name = avro_name(&field.name);
        if !taken.insert(name.to_lowercase()) {
            write!(name, "_{}", field.id).expect("a String takes all");
        }
        let avro = field.result.unwrap_or(PrimitiveType::Binary).avro(field.id);
        let comma = if out.is_empty() { "" } else { "," };
        let own_name = if name == field.name {
            String::new()
        } else {
            format!(r#""iceberg-field-name":{},"#, Json::from(field.name.as_str()))
        };
        write!(
            out,
            r#"{comma}{{"name":"{name}","type":["null",{avro}],"default":null,{own_name}"field-id":{}}}"#,
            field.id
        )
        .expect("a String takes all");
    }
    out
}

/// Returns a valid Avro name: other characters than letters, digits and `_` become their code point, as Iceberg prescribes.
fn avro_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, c) in name.chars().enumerate() {
        match c {
            'a'..='z' | 'A'..='Z' | '_' => out.push(c),
            '0'..='9' if at > 0 => out.push(c),
            '0'..='9' => out.extend(['_', c]),
            other => write!(out, "_x{:X}", u32::from(other)).expect("a String takes all"),
        }
    }
    out
}

#[cfg(test)]
mod tests;
