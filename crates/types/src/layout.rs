//! The layout of a table's files in the lake: parses the options `partition_by` and `sort_by`.
//!
//! Both options are stored in [`TableOptions`](crate::TableOptions) as their owner wrote them, and parsed here. A
//! partition expression is one of Iceberg's transforms applied to one column:
//!
//! | written | column types | partition value |
//! |---|---|---|
//! | `country`, `identity(country)` | bool, integers, floats, decimal, string, json, binary, date, timestamp, uuid | the value itself |
//! | `years(at)`, `months(at)`, `days(at)` | date, timestamp | since 1970 |
//! | `hours(at)` | timestamp | since 1970 |
//! | `bucket(16, user)` | integers, decimal, string, json, binary, date, timestamp, uuid | a hash, below 16 |
//! | `truncate(4, code)` | integers, decimal, string, json, binary | the multiple of 4 below, or the first 4 characters or bytes |
//!
//! `year`, `month`, `day`, `hour` are synonyms. A column name that is not a plain word is put in double quotes.
//! `sort_by` names columns: `user`, `at desc`, `at desc nulls last`. Nulls are the largest values, as in SQL here.

use std::fmt;

use crate::name::{self, printable};
use crate::{ColumnId, DataType, Error, ROW_ID, ROW_ID_NAME, Result, TIME, TIME_NAME, TableDef};

/// Iceberg's function from a column value to its partition value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    Identity,
    /// Hashes the value into this many buckets.
    Bucket(u32),
    /// Cuts a text to this many characters or bytes; rounds a number down to a multiple of this.
    Truncate(u32),
    Year,
    Month,
    Day,
    Hour,
}

/// One partition expression: a transform and its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionBy {
    pub transform: Transform,
    pub column: ColumnId,
}

/// One sort expression: a column and its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortBy {
    pub column: ColumnId,
    pub descending: bool,
    pub nulls_first: bool,
}

/// The greatest number of expressions in each of `partition_by` and `sort_by`.
pub const LAYOUT_MAX: usize = 16;

impl fmt::Display for Transform {
    /// Writes the transform in Iceberg's notation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transform::Identity => f.write_str("identity"),
            Transform::Bucket(count) => write!(f, "bucket[{count}]"),
            Transform::Truncate(width) => write!(f, "truncate[{width}]"),
            Transform::Year => f.write_str("year"),
            Transform::Month => f.write_str("month"),
            Transform::Day => f.write_str("day"),
            Transform::Hour => f.write_str("hour"),
        }
    }
}

impl Transform {
    /// Returns true if Iceberg defines this transform for values of the type.
    pub fn takes(self, data_type: &DataType) -> bool {
        use DataType::{
            Binary, Bool, Date, Decimal, Float32, Float64, Int32, Int64, Json, String, Timestamp, Uuid,
        };
        let is_hashed = matches!(
            data_type,
            Int32 | Int64 | Decimal { .. } | String | Json | Binary | Date | Timestamp | Uuid
        );
        match self {
            Transform::Identity => is_hashed || matches!(data_type, Bool | Float32 | Float64),
            Transform::Bucket(_) => is_hashed,
            Transform::Truncate(_) => is_hashed && !matches!(data_type, Date | Timestamp | Uuid),
            Transform::Year | Transform::Month | Transform::Day => matches!(data_type, Date | Timestamp),
            Transform::Hour => matches!(data_type, Timestamp),
        }
    }

    /// Describes wrong results that readers of Iceberg return for such partitions, measured with DuckDB 1.4.4 and
    /// PyIceberg 0.12.
    fn fault_of_readers(self, data_type: &DataType) -> Option<&'static str> {
        match (self, data_type) {
            (Transform::Identity, DataType::Date | DataType::Timestamp | DataType::Decimal { .. }) => {
                Some("DuckDB leaves out rows where the column is compared by < or >")
            }
            (Transform::Identity, DataType::Uuid) => {
                Some("PyIceberg leaves out rows where the column is compared")
            }
            (Transform::Identity, DataType::Float64) => Some(
                "PyIceberg leaves out rows where the column is compared, unless the value is a 32-bit float",
            ),
            (Transform::Month, DataType::Date) => {
                Some("DuckDB leaves out rows where the column is compared by =, and rows before 1970")
            }
            (Transform::Day | Transform::Month | Transform::Hour, _) => {
                Some("DuckDB leaves out rows before 1970 where the column is compared")
            }
            (Transform::Truncate(_), DataType::Int32 | DataType::Int64 | DataType::Decimal { .. }) => {
                Some("PyIceberg, Spark and Trino do not find the least values of the type by =")
            }
            _ => None,
        }
    }

    fn is_of_time(self) -> bool {
        matches!(self, Transform::Year | Transform::Month | Transform::Day | Transform::Hour)
    }
}

impl TableDef {
    /// Parses `partition_by`. [`crate::Kind::Invalid`] for an expression that Iceberg does not have.
    pub fn partitions(&self) -> Result<Vec<PartitionBy>> {
        let by = &self.options.partition_by;
        check_count("partition_by", by.len())?;
        let mut all: Vec<PartitionBy> = Vec::with_capacity(by.len());
        for text in by {
            let one = self.partition(text)?;
            // Iceberg's own rule: of several time transforms of one column, the finest implies the others.
            let says_the_same = |other: &&PartitionBy| {
                other.column == one.column
                    && (other.transform == one.transform
                        || other.transform.is_of_time() && one.transform.is_of_time())
            };
            if all.iter().any(|other| says_the_same(&other)) {
                return Err(Error::invalid(format!("`{}` repeats another partition field", printable(text)))
                    .with("table", &self.name)
                    .hint(
                        "name each column once; of years, months, days and hours only the finest is needed",
                    ));
            }
            all.push(one);
        }
        Ok(all)
    }

    /// Parses `sort_by`. Empty: rows are in the order of their ids.
    pub fn sort_columns(&self) -> Result<Vec<SortBy>> {
        let by = &self.options.sort_by;
        check_count("sort_by", by.len())?;
        let mut all: Vec<SortBy> = Vec::with_capacity(by.len());
        for text in by {
            let one = self.sort_column(text)?;
            if all.iter().any(|other| other.column == one.column) {
                return Err(Error::invalid(format!(
                    "`{}` names a column for the second time",
                    printable(text)
                ))
                .with("table", &self.name)
                .hint("sort_by names each column once"));
            }
            all.push(one);
        }
        Ok(all)
    }

    /// Sets the partition expressions of the table's lake for files written from now on. Empty: not partitioned.
    pub fn set_partition_by(&mut self, by: &[String]) -> Result<()> {
        let before = std::mem::replace(&mut self.options.partition_by, trimmed(by));
        self.partitions().map(drop).inspect_err(|_| self.options.partition_by = before)
    }

    /// Returns a warning for each expression of `partition_by` for which some reader of Iceberg, by a fault of its
    /// own, leaves out rows. `docs/lake.md` has the details.
    pub fn partition_warnings(&self) -> Vec<String> {
        let warning = |text: &String| {
            let by = self.partition(text).ok()?;
            let data_type = match by.column {
                TIME => &DataType::Timestamp,
                ROW_ID => &DataType::Int64,
                column => &self.schema.column(column)?.data_type,
            };
            // No row arrived before 1970.
            let fault = by
                .transform
                .fault_of_readers(data_type)
                .filter(|_| by.column != TIME || by.transform == Transform::Identity)?;
            Some(format!("partitioned by `{}`: {fault}", printable(text)))
        };
        self.options.partition_by.iter().filter_map(warning).collect()
    }

    /// Sets the sort expressions of the table's lake for files written from now on. Empty: sorted by row id.
    pub fn set_sort_by(&mut self, by: &[String]) -> Result<()> {
        let before = std::mem::replace(&mut self.options.sort_by, trimmed(by));
        self.sort_columns().map(drop).inspect_err(|_| self.options.sort_by = before)
    }

    /// Fails if `partition_by` or `sort_by` cannot be parsed. Earlier versions stored any text.
    pub fn check_layout(&self) -> Result<()> {
        self.partitions()?;
        self.sort_columns().map(drop)
    }

    /// Finds the first layout expression that uses a column: `partitioned by` or `sorted by`, the option's name, and
    /// the expression.
    pub fn laid_out_by(&self, column: ColumnId) -> Option<(&'static str, &'static str, &str)> {
        let options = &self.options;
        let partitions = options.partition_by.iter().map(|by| (self.partition(by).map(|p| p.column), by));
        let sorts = options.sort_by.iter().map(|by| (self.sort_column(by).map(|s| s.column), by));
        let named = |of: (Result<ColumnId>, _)| of.0.is_ok_and(|id| id == column).then_some(of.1);
        let partition = partitions.filter_map(named).next();
        let found = partition.map(|by: &String| ("partitioned by", "partition_by", by.as_str()));
        found.or_else(|| {
            let by: Option<&String> = sorts.filter_map(named).next();
            by.map(|by| ("sorted by", "sort_by", by.as_str()))
        })
    }

    fn partition(&self, text: &str) -> Result<PartitionBy> {
        let unknown = || {
            Error::invalid(format!("`{}` is not a partition field", printable(text)))
                .with("table", &self.name)
                .hint("use a column, years(c), months(c), days(c), hours(c), bucket(16, c) or truncate(4, c)")
        };
        if let Some((column, data_type)) = self.column_of_layout(text) {
            return self.checked(text, Transform::Identity, column, &data_type);
        }
        let (word, inner) = text
            .strip_suffix(')')
            .and_then(|rest| rest.split_once('('))
            .ok_or_else(|| if is_plain_word(text) { self.no_column(text) } else { unknown() })?;
        let word = word.trim().to_ascii_lowercase();
        let number = |what: &str| {
            let (count, rest) = inner.split_once(',').ok_or_else(unknown)?;
            let count = count.trim().parse().ok().filter(|n| (1..=i32::MAX as u32).contains(n));
            let count = count.ok_or_else(|| {
                Error::invalid(format!("`{}`: {what} is a whole number from 1 on", printable(text)))
                    .with("table", &self.name)
            });
            count.map(|count: u32| (count, rest))
        };
        let (transform, column) = match word.as_str() {
            "identity" => (Transform::Identity, inner),
            "year" | "years" => (Transform::Year, inner),
            "month" | "months" => (Transform::Month, inner),
            "day" | "days" => (Transform::Day, inner),
            "hour" | "hours" => (Transform::Hour, inner),
            "bucket" => number("the count of buckets").map(|(n, rest)| (Transform::Bucket(n), rest))?,
            "truncate" => number("the width").map(|(n, rest)| (Transform::Truncate(n), rest))?,
            _ => return Err(unknown()),
        };
        let (id, data_type) = self.column_of_layout(column).ok_or_else(|| self.no_column(column.trim()))?;
        self.checked(text, transform, id, &data_type)
    }

    fn checked(
        &self,
        text: &str,
        transform: Transform,
        column: ColumnId,
        of: &DataType,
    ) -> Result<PartitionBy> {
        if transform.takes(of) {
            return Ok(PartitionBy { transform, column });
        }
        let takes = match transform {
            Transform::Identity => "single values: no lists, structs, vectors and points",
            Transform::Bucket(_) => "all single values but bool and floats",
            Transform::Truncate(_) => "integers, decimals, strings and binary",
            Transform::Year | Transform::Month | Transform::Day => "dates and timestamps",
            Transform::Hour => "timestamps",
        };
        Err(Error::invalid(format!("`{}` is not possible: the column is {of}", printable(text)))
            .with("table", &self.name)
            .hint(format!("Iceberg partitions {takes} in this way")))
    }

    fn sort_column(&self, text: &str) -> Result<SortBy> {
        let given = |column, descending, nulls_first: Option<bool>| SortBy {
            column,
            descending,
            nulls_first: nulls_first.unwrap_or(descending),
        };
        let checked = |(id, data_type): (ColumnId, DataType), sort: SortBy| {
            if Transform::Identity.takes(&data_type) {
                return Ok(SortBy { column: id, ..sort });
            }
            Err(Error::invalid(format!("rows are not sorted by `{}`: it is {data_type}", printable(text)))
                .with("table", &self.name)
                .hint("sort by columns of single values"))
        };
        if let Some(found) = self.column_of_layout(text) {
            return checked(found, given(ROW_ID, false, None));
        }
        let mut rest = text.trim();
        let mut nulls_first = None;
        for (words, first) in [(["nulls", "first"], true), (["nulls", "last"], false)] {
            if let Some(before) = without_last(rest, words[1]).and_then(|rest| without_last(rest, words[0])) {
                (rest, nulls_first) = (before, Some(first));
            }
        }
        let mut descending = false;
        if let Some(before) = without_last(rest, "desc") {
            (rest, descending) = (before, true);
        } else if let Some(before) = without_last(rest, "asc") {
            rest = before;
        }
        let found = self.column_of_layout(rest).ok_or_else(|| {
            self.no_column(rest).hint("write `column`, `column desc` or `column desc nulls last`")
        })?;
        checked(found, given(ROW_ID, descending, nulls_first))
    }

    fn no_column(&self, text: &str) -> Error {
        Error::invalid(format!("there is no column `{}`", printable(text))).with("table", &self.name)
    }

    /// Finds a column by its name, quoted or not, system columns included.
    fn column_of_layout(&self, text: &str) -> Option<(ColumnId, DataType)> {
        let text = text.trim();
        let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let unquoted = quoted.map(|inner| inner.replace("\"\"", "\""));
        let wanted = unquoted.as_deref().unwrap_or(text);
        match wanted {
            ROW_ID_NAME => Some((ROW_ID, DataType::Int64)),
            TIME_NAME => Some((TIME, DataType::Timestamp)),
            _ => self.schema.column_named(wanted).map(|column| (column.id, column.data_type.clone())),
        }
    }
}

/// Splits a list at its commas outside of brackets and quotes: `days(at), bucket(16, user)` has two parts.
pub fn split_list(text: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let (mut depth, mut in_quotes) = (0usize, false);
    for c in text.chars() {
        match c {
            '"' => in_quotes = !in_quotes,
            '(' if !in_quotes => depth += 1,
            ')' if !in_quotes => depth = depth.saturating_sub(1),
            ',' if !in_quotes && depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    trimmed(&parts).into_iter().filter(|part| !part.is_empty()).collect()
}

fn trimmed(by: &[String]) -> Vec<String> {
    by.iter().map(|text| text.trim().to_owned()).collect()
}

fn check_count(option: &str, count: usize) -> Result<()> {
    if count > LAYOUT_MAX {
        return Err(Error::invalid(format!(
            "`{option}` has {count} parts, at most {LAYOUT_MAX} are allowed"
        )));
    }
    Ok(())
}

fn is_plain_word(text: &str) -> bool {
    name::check_column(text).is_ok() && !text.contains(['(', ')', ','])
}

/// Returns the text before its last word if that word is `word`.
fn without_last<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let text = text.trim_end();
    let at = text.len().checked_sub(word.len()).filter(|at| text.is_char_boundary(*at))?;
    let (before, last) = text.split_at(at);
    (last.eq_ignore_ascii_case(word) && before.ends_with([' ', '\t', '"'])).then(|| before.trim_end())
}

#[cfg(test)]
mod tests;
