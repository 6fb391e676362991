//! Tables that are created, altered and dropped, views over them, and one permanent table whose columns keep changing.

use std::time::Duration;

use serde_json::{Value, json};
use types::Result;

use super::Actor;
use super::client::SoakClient;

const ROWS: i64 = 200;

/// Runs one statement per step; after the last one the next table follows.
#[derive(Default)]
pub(super) struct SchemaChanges {
    round: u64,
    at: usize,
    /// Number in the name of the next column that the permanent table gains and loses.
    column: u64,
}

/// Statements that run one after the other. `{t}` is the table, `{v}` a view. Numbers make it a query and are its only row.
const STATEMENTS: &[(&str, Option<&[i64]>)] = &[
    ("CREATE TABLE {t} (id bigint PRIMARY KEY, a int NOT NULL, b text DEFAULT 'none', c double)", None),
    ("INSERT INTO {t} (id, a, c) SELECT value, value % 7, value * 0.5 FROM generate_series(1, 200)", None),
    ("SELECT count(*), sum(id), sum(a) FROM {t}", Some(&[ROWS, 20_100, 598])),
    ("CREATE INDEX ON {t} (a)", None),
    ("ALTER TABLE {t} ADD COLUMN d bigint DEFAULT 5, RENAME COLUMN b TO word", None),
    ("SELECT sum(d), count(*) FROM {t} WHERE word = 'none'", Some(&[5 * ROWS, ROWS])),
    ("ALTER TABLE {t} ALTER a TYPE bigint", None),
    ("UPDATE {t} SET a = a + 3000000000, d = id WHERE id <= 10", None),
    ("SELECT sum(a), sum(d) FROM {t} WHERE a > 1000000000", Some(&[30_000_000_027, 55])),
    ("CREATE VIEW {v} AS SELECT id, a + d AS x FROM {t} WHERE id > 190", None),
    ("SELECT count(*), sum(x) FROM {v}", Some(&[10, 80])),
    ("DROP VIEW {v}", None),
    ("CREATE TABLE {t}_copy AS SELECT id, a FROM {t} WHERE id > 100", None),
    ("DELETE FROM {t} USING {t}_copy c WHERE c.id = {t}.id", None),
    ("SELECT count(*), max(id) FROM {t}", Some(&[100, 100])),
    ("DROP TABLE {t}_copy", None),
    ("ALTER TABLE {t} DROP COLUMN a, ALTER d SET NOT NULL", None),
    ("ALTER TABLE {t} RENAME TO {t}_old", None),
    ("SELECT count(*), sum(d) FROM {t}_old", Some(&[100, 505])),
    ("TRUNCATE {t}_old", None),
    ("SELECT count(*) FROM {t}_old", Some(&[0])),
    ("DROP TABLE {t}_old", None),
];

impl SchemaChanges {
    fn run_next_statement(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let (sql, wanted) = STATEMENTS[self.at];
        // Every second table reuses one name; the others have names that never occur again.
        let table =
            if self.round.is_multiple_of(2) { "shape".to_owned() } else { format!("shape_{}", self.round) };
        let sql = sql.replace("{t}", &table).replace("{v}", &format!("{table}_view"));
        match wanted {
            Some(wanted) => {
                let found = client.query_numbers(&sql, json!([]))?;
                client.expect(|| sql, &found, &wanted.to_vec());
            }
            None => drop(client.execute(&sql, json!([]))?),
        }
        self.at += 1;
        if self.at == STATEMENTS.len() {
            (self.at, self.round) = (0, self.round + 1);
        }
        Ok(())
    }

    /// Adds a column to the permanent table, checks its values, and drops it.
    fn change_columns(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let column = format!("extra_{}", self.column);
        client.execute(&format!("ALTER TABLE changing ADD COLUMN {column} bigint DEFAULT 2"), json!([]))?;
        let id = client.below(ROWS as usize);
        client.execute(&format!("UPDATE changing SET {column} = 7, n = n + 1 WHERE id = $1"), json!([id]))?;
        let found =
            client.query_numbers(&format!("SELECT count(*), sum({column}) FROM changing"), json!([]))?;
        client.expect(|| format!("column {column}"), &found, &vec![ROWS, 2 * ROWS + 5]);
        client.execute(&format!("ALTER TABLE changing DROP COLUMN {column}"), json!([]))?;
        self.column += 1;
        Ok(())
    }
}

impl Actor for SchemaChanges {
    fn every(&self) -> Duration {
        Duration::from_millis(1_000)
    }

    fn prepare(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        client.execute("CREATE TABLE changing (id bigint PRIMARY KEY, n bigint NOT NULL)", json!([]))?;
        let rows: Vec<Value> = (0..ROWS).map(|id| json!({"id": id, "n": 0})).collect();
        client.send_write("POST", "/v1/tables/changing/rows", &json!(rows)).map(drop)
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        if client.below(12) == 0 { self.change_columns(client) } else { self.run_next_statement(client) }
    }

    fn verify(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        // Each acknowledged round over the permanent table added one to some row; the round in flight may have done so.
        let found = client.query_numbers("SELECT count(*), sum(n) FROM changing", json!([]))?;
        let rounds = self.column as i64;
        if found[0] != ROWS || !(rounds..=rounds + 1).contains(&found[1]) {
            client.state.report_wrong(format!(
                "table changing after the kill: {ROWS} rows, {rounds} updates expected, found {found:?}"
            ));
        }
        Ok(())
    }
}
