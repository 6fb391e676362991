"""Spark on the Iceberg REST catalog of a server of its own.

    spark.py POLYNYA SCRATCH JAR

POLYNYA is the built program, SCRATCH a directory that may be emptied, JAR Iceberg's runtime for Spark.
"""

import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from server import Server


def session(server, jar, scratch):
    catalog = "spark.sql.catalog.polynya"
    builder = SparkSession.builder.master("local[2]").appName("polynya")
    for name, value in {
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        f"{catalog}.uri": server.catalog,
        f"{catalog}.token": server.key,
        "spark.sql.defaultCatalog": "polynya",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main(binary, scratch, jar):
    scratch = Path(scratch) / "spark-catalog"
    with Server(binary, scratch) as server:
        rows = [{"user": f"u{n % 7}", "n": n, "price": n / 8} for n in range(5000)]
        server.request("POST", "/v1/tables/events/rows", rows)
        server.request("PUT", "/v1/tables/stock", {
            "columns": [{"name": "sku", "type": "string"}, {"name": "pieces", "type": "int64"}], "primary_key": ["sku"],
        })
        for pieces in (1, 2):
            stock = [{"sku": f"s{n}", "pieces": n * pieces} for n in range(100)]
            server.request("POST", "/v1/tables/stock/rows", stock)
            server.request("POST", "/v1/tables/stock/commit")
        server.request("POST", "/v1/tables/events/commit")
        spark = session(server, jar, scratch)

        def one(sql):
            return tuple(spark.sql(sql).first())

        def refused(sql):
            try:
                spark.sql(sql).collect()
            except PySparkException as error:
                return str(error)
            except Exception as error:  # what Java threw without a class of Spark's own
                return str(error)
            raise AssertionError(f"`{sql}` was taken")

        try:
            assert [row.tableName for row in spark.sql("SHOW TABLES IN main").collect()] == ["events", "stock"]
            assert one("SELECT count(*), sum(n), max(price) FROM main.events") == (5000, sum(range(5000)), 4999 / 8)
            # Each key once, whatever was replaced: positions of deleted rows are applied.
            assert one("SELECT count(*), sum(pieces) FROM main.stock") == (100, 2 * sum(range(100)))
            assert one("SELECT count(*) FROM main.events WHERE n >= 4990 AND user = 'u0'") == (2,)
            # Iceberg for Spark takes a column `_row_id` for one of its own, and says so.
            assert "_row_id" in refused("SELECT * FROM main.events")
            last = spark.sql("SELECT * EXCEPT (_row_id) FROM main.events ORDER BY n DESC LIMIT 1").first()
            assert (last.n, last.user, last.price) == (4999, "u1", 4999 / 8), last
            for sql in (
                "INSERT INTO main.events VALUES (9, current_timestamp(), 'u', 1L, 1.0D)",
                "TRUNCATE TABLE main.events",
                "CALL polynya.system.expire_snapshots(table => 'main.stock', older_than => TIMESTAMP '2100-01-01 00:00:00')",
                "ALTER TABLE main.events ADD COLUMN other BIGINT",
            ):
                why = refused(sql)
                assert "table that Polynya writes" in why, f"{sql}: {why[:2000]}"
            assert "table of Polynya" in refused("DROP TABLE main.events")
            print("Spark reads Polynya's tables and changes none: ok", flush=True)

            spark.sql("CREATE NAMESPACE lab")
            spark.sql("CREATE TABLE lab.t (id BIGINT NOT NULL, day DATE, text STRING) USING iceberg PARTITIONED BY (days(day))")
            spark.sql("INSERT INTO lab.t SELECT id, date_add(DATE'2026-01-01', CAST(id % 5 AS INT)), concat('row ', id) FROM range(1000)")
            spark.sql("DELETE FROM lab.t WHERE id % 10 = 0")
            spark.sql("MERGE INTO lab.t t USING (SELECT 1 AS id, 'merged' AS text) s ON t.id = s.id "
                      "WHEN MATCHED THEN UPDATE SET text = s.text")
            assert one("SELECT count(*), sum(id) FROM lab.t") == (900, sum(n for n in range(1000) if n % 10))
            assert one("SELECT text FROM lab.t WHERE id = 1") == ("merged",)
            spark.sql("ALTER TABLE lab.t ADD COLUMN price DOUBLE")
            spark.sql("ALTER TABLE lab.t RENAME COLUMN text TO words")
            spark.sql("ALTER TABLE lab.t CREATE BRANCH audit")
            spark.sql("CALL polynya.system.rewrite_data_files(table => 'lab.t', options => map('min-input-files', '2'))")
            assert one("SELECT count(*), sum(id) FROM lab.t") == (900, sum(n for n in range(1000) if n % 10))
            spark.sql("CREATE TABLE lab.copy USING iceberg AS SELECT n, user FROM main.events WHERE n < 100")
            assert one("SELECT count(*) FROM lab.copy") == (100,)
            spark.sql("CREATE OR REPLACE TABLE lab.copy USING iceberg AS SELECT n FROM main.events WHERE n < 50")
            assert one("SELECT count(*) FROM lab.copy") == (50,)
            spark.sql("CREATE VIEW lab.few AS SELECT id FROM lab.t WHERE id < 20")
            assert one("SELECT count(*) FROM lab.few") == (18,)
            spark.sql("DROP VIEW lab.few")
            spark.sql("ALTER TABLE lab.copy RENAME TO lab.moved")
            assert one("SELECT count(*) FROM lab.moved") == (50,)
            assert "already exists" in refused("CREATE TABLE lab.t (a INT) USING iceberg").lower()
            assert "not empty" in refused("DROP NAMESPACE lab").lower()
            spark.sql("DROP TABLE lab.moved PURGE")
            spark.sql("DROP TABLE lab.t PURGE")
            spark.sql("DROP NAMESPACE lab")
            print("Spark makes, writes and drops tables of its own: ok", flush=True)
        finally:
            spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
