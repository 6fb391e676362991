//! Builds SQL statements of every kind about a given name.

/// Returns spellings of the name of one of Polynya's own tables in SQL.
pub fn spellings(table: &str) -> Vec<String> {
    vec![
        format!("polynya.{table}"),
        format!("POLYNYA.{table}"),
        format!("PolyNya.{}", table.to_uppercase()),
        format!("\"polynya\".\"{table}\""),
        format!("\"POLYNYA\".\"{table}\""),
        format!("\"Polynya\".{}", table.to_uppercase()),
        format!("\"polynya.{table}\""),
        format!("\"POLYNYA.{}\"", table.to_uppercase()),
        format!("polynya . {table}"),
        format!("polynya/**/.\n{table}"),
        format!("polynya.polynya.{table}"),
        format!("main.polynya.{table}"),
        format!("\" polynya\".{table}"),
    ]
}

/// Returns statements that might create, change or remove an object of this name.
pub fn all(name: &str) -> Vec<String> {
    vec![
        format!("CREATE TABLE {name} (id bigint primary key)"),
        format!("CREATE TABLE IF NOT EXISTS {name} (id bigint)"),
        format!("CREATE TABLE {name} AS SELECT 1 AS id"),
        format!("CREATE VIEW {name} AS SELECT 1 AS id"),
        format!("CREATE OR REPLACE VIEW {name} AS SELECT 1 AS id"),
        format!("CREATE INDEX ON {name} (namespace)"),
        format!("CREATE INDEX IF NOT EXISTS mine ON {name} USING text (namespace)"),
        format!("ALTER TABLE {name} ADD COLUMN mine int"),
        format!("ALTER TABLE {name} DROP COLUMN note"),
        format!("ALTER TABLE {name} RENAME COLUMN note TO mine"),
        format!("ALTER TABLE {name} RENAME TO main.mine"),
        format!("ALTER TABLE {name} RENAME TO mine"),
        format!("ALTER TABLE {name} SET (ttl = '1 day')"),
        format!("ALTER TABLE open RENAME TO {name}"),
        format!("INSERT INTO {name} (note) VALUES ('x')"),
        format!("INSERT INTO {name} SELECT * FROM {name} ON CONFLICT DO NOTHING"),
        format!("UPDATE {name} SET note = 'x'"),
        format!("UPDATE {name} SET name = 'x'"),
        format!("DELETE FROM {name}"),
        format!("DELETE FROM {name} WHERE true RETURNING *"),
        format!("TRUNCATE {name}"),
        format!("TRUNCATE TABLE {name}"),
        format!("MERGE INTO {name} USING open ON true WHEN MATCHED THEN DELETE"),
        format!("COPY {name} FROM STDIN"),
        format!("DROP VIEW {name}"),
        format!("DROP VIEW IF EXISTS {name}"),
        format!("DROP TABLE {name}"),
        format!("DROP TABLE IF EXISTS {name}"),
        format!("DROP TABLE IF EXISTS absent, {name}"),
    ]
}
