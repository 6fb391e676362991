//! Verifies that every acknowledged event is there exactly once: by SQL, and by the files of the lake alone.

use std::path::{Path, PathBuf};

use lake::Store;
use lake::digest::Digest;
use lake::reader::Reader;
use serde_json::json;
use types::{Error, Result};
use vfs::Env;

use crate::events::FIRST_MS;
use crate::http::HttpClient;
use crate::report::Claim;
use crate::wire;

/// Rows read by one statement, few enough to stay far below its deadline.
const ROWS: u64 = 25_000_000;

/// The compared facts about a table's contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub rows: u64,
    /// Sum of `timestamp_ms` minus [`FIRST_MS`] over all rows.
    pub offsets: i128,
}

pub(super) struct VerifiedContents {
    sql: Contents,
    lake: Contents,
    metadata: PathBuf,
}

/// Commits the remaining rows to the lake and reads everything twice, by SQL and from the files.
pub(super) fn verify(client: &mut HttpClient, table: &str, expected: &Contents) -> Result<VerifiedContents> {
    let landed = client.json("POST", &format!("/v1/tables/{table}/commit?deadline_ms=600000"), None)?;
    let metadata = landed["metadata"].as_str().map(PathBuf::from).ok_or_else(|| {
        Error::invalid(format!("expected the server to say where the lake of {table} is, found {landed}"))
    })?;
    Ok(VerifiedContents { sql: by_sql(client, table, expected.rows)?, lake: by_files(&metadata)?, metadata })
}

fn by_sql(client: &mut HttpClient, table: &str, rows: u64) -> Result<Contents> {
    let mut found = Contents::default();
    let mut first = 1;
    loop {
        // The last statement has no upper bound, so that it also counts rows that should not exist.
        let (end, bound) = if first + ROWS > rows {
            (u64::MAX, String::new())
        } else {
            (first + ROWS - 1, format!(" AND _row_id <= {}", first + ROWS - 1))
        };
        let text = format!(
            "SELECT count(*), sum(timestamp_ms - {FIRST_MS}) FROM {} WHERE _row_id >= {first}{bound}",
            wire::quoted(table)
        );
        let answer = wire::sql(client, &text, json!([]))?;
        let number = |at: usize| answer.first().and_then(|row| wire::whole(row.get(at)?)).unwrap_or_default();
        found.rows += number(0);
        found.offsets += i128::from(number(1));
        if end == u64::MAX {
            return Ok(found);
        }
        first = end + 1;
    }
}

/// Reads the table in the way of any Iceberg reader.
fn by_files(metadata: &Path) -> Result<Contents> {
    let dir = metadata.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    let reader = Reader::open(&Store::local(&Env::real()), dir)?;
    let mut digest = Digest::of_columns(reader.schema());
    reader.read(&mut |batch| digest.add(&batch, u64::MAX))?;
    let sum = digest.columns.get("timestamp_ms").and_then(|column| column.sum).unwrap_or_default();
    Ok(Contents { rows: digest.rows, offsets: sum - i128::from(digest.rows) * i128::from(FIRST_MS) })
}

impl VerifiedContents {
    pub(super) fn claim(&self, expected: &Contents) -> Claim {
        let shown = |of: &Contents| format!("{} rows, sum {}", of.rows, of.offsets);
        Claim {
            claim: "the lake right at the end: count and sum".into(),
            holds: self.failures(expected).is_empty(),
            found: format!(
                "acknowledged {}; SQL {}; the lake's files {}",
                shown(expected),
                shown(&self.sql),
                shown(&self.lake)
            ),
        }
    }

    pub(super) fn failures(&self, expected: &Contents) -> Vec<String> {
        let differs = |(what, found): (&str, &Contents)| {
            (found != expected).then(|| {
                format!("{what} differs from what was acknowledged: {found:?}, expected {expected:?}")
            })
        };
        [("SQL", &self.sql), ("the lake", &self.lake)].into_iter().filter_map(differs).collect()
    }

    /// Lists facts for other readers of the lake: the table's location, the expected result, and queries that compute it.
    pub(super) fn config(&self, expected: &Contents, kept: bool) -> Vec<(&'static str, String)> {
        let path = self.metadata.display();
        let mut config = vec![("rows", expected.rows.to_string()), ("sum", expected.offsets.to_string())];
        if !kept {
            return config;
        }
        let sum = format!("count(*), sum(timestamp_ms - {FIRST_MS})");
        config.push(("metadata", path.to_string()));
        config.push(("DuckDB", format!("`SELECT {sum} FROM iceberg_scan('{path}')`")));
        config.push((
            "PyIceberg",
            format!(
                "`t = pyiceberg.table.StaticTable.from_metadata('{path}').scan(selected_fields=('timestamp_ms',)).to_arrow(); \
                 print(len(t), pyarrow.compute.sum(pyarrow.compute.subtract(t['timestamp_ms'], {FIRST_MS})))`"
            ),
        ));
        let warehouse = self.metadata.ancestors().nth(4).unwrap_or(Path::new("")).display();
        let table =
            self.metadata.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        config.push((
            "Spark",
            format!(
                "`spark-sql --conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog --conf \
                 spark.sql.catalog.lake.type=hadoop --conf spark.sql.catalog.lake.warehouse={warehouse} -e 'SELECT {sum} FROM \
                 lake.main.{table}'`"
            ),
        ));
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_missing_twice_or_changed_are_each_noticed() {
        let right = Contents { rows: 1000, offsets: 51_200 };
        let found = |sql, lake| VerifiedContents {
            sql,
            lake,
            metadata: "/w/main/t/metadata/v1.metadata.json".into(),
        };
        assert!(found(right, right).claim(&right).holds);
        for wrong in [
            Contents { rows: 999, ..right },
            Contents { rows: 1001, ..right },
            Contents { offsets: 1, ..right },
        ] {
            for found in [found(wrong, right), found(right, wrong)] {
                assert_eq!((found.failures(&right).len(), found.claim(&right).holds), (1, false));
            }
        }
        let config = found(right, right).config(&right, true);
        let spark = &config.iter().find(|(name, _)| *name == "Spark").expect("it is named").1;
        assert!(spark.contains("warehouse=/w ") && spark.contains("lake.main.t'"), "{spark}");
    }
}
