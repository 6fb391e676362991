"""Tests Spark on the Iceberg REST catalog of a server of its own.

    spark.py POLYNYA SCRATCH JAR

POLYNYA is the built program, SCRATCH a directory that may be emptied, JAR Iceberg's runtime for Spark.
"""

import subprocess
import sys
import threading
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


def rewrites(server, spark, one):
    """Runs Spark's own maintenance on tables that Polynya writes, while Polynya goes on writing them."""
    def commit(table):
        server.request("POST", f"/v1/tables/{table}/commit")

    server.request("PUT", "/v1/tables/parted", {
        "columns": [{"name": "day", "type": "date"}, {"name": "place", "type": "string"}, {"name": "n", "type": "int64"},
                    {"name": "at", "type": "point"}, {"name": "parts", "type": "list<decimal(12,3)>"},
                    {"name": "id", "type": "uuid"}, {"name": "f", "type": "float64"}],
        "partition_by": ["months(day)", "bucket(2, place)"], "sort_by": ["n desc"],
    })
    for piece in range(5):
        server.request("POST", "/v1/tables/events/rows", [{"user": "more", "n": n, "price": -0.0} for n in range(400)])
        server.request("POST", "/v1/tables/stock/rows", [{"sku": f"s{n}", "pieces": n} for n in range(piece, 100, 7)])
        server.request("POST", "/v1/tables/parted/rows", [{
            "day": f"2026-0{1 + n % 3}-11", "place": f"place {n % 5}", "n": n if n % 9 else None, "f": n / 3,
            "at": {"lon": n % 90, "lat": -1.5}, "parts": [f"{n}.125", None], "id": f"00000000-0000-4000-8000-{n:012d}",
        } for n in range(200)])
        for table in ("events", "stock", "parted"):
            commit(table)

    going, came = threading.Event(), []

    def write():
        while not going.wait(0.1):
            n = len(came)
            server.request("POST", "/v1/tables/events/rows", [{"user": "late", "n": n, "price": 0.5}] * 20)
            server.request("POST", "/v1/tables/stock/rows", [{"sku": f"new {n}", "pieces": n}])
            came.append(n)

    def call(procedure, table, options):
        """Calls a procedure until it succeeds. Rows replaced meanwhile cause a conflict that Spark does not resolve."""
        for _ in range(5):
            try:
                return spark.sql(f"CALL polynya.system.{procedure}(table => 'main.{table}'{options})").first()
            except Exception as error:  # thrown by Java
                last = str(error)
        raise AssertionError(f"{procedure} of {table}: {last[:3000]}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        all_files = ", options => map('rewrite-all', 'true')"
        for table in ("events", "stock", "parted"):
            done = call("rewrite_data_files", table, all_files)
            assert done.rewritten_data_files_count >= 1, f"{table}: {done}"
            newest = one(f"SELECT operation, summary['engine-name'] FROM main.{table}.snapshots "
                         "WHERE operation = 'replace' AND summary['engine-name'] IS NOT NULL LIMIT 1")
            assert newest == ("replace", "spark"), newest
        # Deletes rows of the files that Spark wrote.
        for pieces in range(3):
            server.request("POST", "/v1/tables/stock/rows", [{"sku": f"s{n}", "pieces": pieces} for n in range(pieces, 100, 9)])
            commit("stock")
        call("rewrite_position_delete_files", "stock", all_files)
        for table in ("events", "stock", "parted"):
            call("rewrite_manifests", table, "")
        call("rewrite_data_files", "parted", ", strategy => 'sort', sort_order => 'n DESC', options => map('rewrite-all', 'true')")
    finally:
        going.set()
        writer.join()
    assert len(came) > 5, "rows came in meanwhile"
    for table in ("events", "stock", "parted"):
        commit(table)
        counted = server.request("POST", "/v1/sql", {"sql": f"SELECT count(*) FROM {table}"})["rows"][0][0]
        # Spark caches a table's state for half a minute.
        spark.sql(f"REFRESH TABLE main.{table}")
        found = one(f"SELECT count(*) FROM main.{table}")
        assert found == (counted,), f"{table}: {found} and not {counted}"
    # Compares the files alone with the table, value by value.
    said = subprocess.run(
        [server.binary, "lake", "verify", "events", "stock", "parted", "--data", str(server.data)],
        capture_output=True, text=True, timeout=120,
    )
    assert said.returncode == 0 and said.stdout.count(": equal.") == 3, said.stdout + said.stderr


def vectors(server, spark, one):
    """Imports a table of format 3, whose deleted rows are in deletion vectors."""
    spark.sql("CREATE TABLE lab.v3 (id BIGINT, text STRING) USING iceberg PARTITIONED BY (bucket(3, id)) "
              "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')")
    for piece in range(2):
        spark.sql(f"INSERT INTO lab.v3 SELECT id, concat('row ', id) FROM range({piece * 1000}, {piece * 1000 + 1000})")
        spark.sql("DELETE FROM lab.v3 WHERE id % 10 = 3")
    spark.sql("DELETE FROM lab.v3 WHERE id BETWEEN 500 AND 599")
    assert one("SELECT count(*) FROM lab.v3.delete_files WHERE file_format = 'PUFFIN'")[0] >= 3
    said = subprocess.run(
        [server.binary, "lake", "import", "lab.v3", "taken", "--data", str(server.data)], capture_output=True, text=True, timeout=120,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    found = server.request("POST", "/v1/sql", {"sql": "SELECT count(*), count(DISTINCT text), sum(id) FROM taken"})["rows"][0]
    assert tuple(found) == one("SELECT count(*), count(DISTINCT text), sum(id) FROM lab.v3"), found
    left = [n for n in range(2000) if n % 10 != 3 and not 500 <= n < 600]
    assert found == [len(left), len(left), sum(left)], found
    spark.sql("DROP TABLE lab.v3 PURGE")


def main(binary, scratch, jar):
    scratch = Path(scratch) / "spark-catalog"
    # The default interval between lake commits leaves Spark enough time between two of them.
    with Server(binary, scratch, environment={"POLYNYA_LAKE_COMMIT_WAIT": "5s"}) as server:
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
            except Exception as error:  # thrown by Java without a class of Spark's own
                return str(error)
            raise AssertionError(f"`{sql}` was taken")

        try:
            assert [row.tableName for row in spark.sql("SHOW TABLES IN main").collect()] == ["events", "stock"]
            assert one("SELECT count(*), sum(n), max(price) FROM main.events") == (5000, sum(range(5000)), 4999 / 8)
            # Each key is read once, even if its row was replaced: position deletes are applied.
            assert one("SELECT count(*), sum(pieces) FROM main.stock") == (100, 2 * sum(range(100)))
            assert one("SELECT count(*) FROM main.events WHERE n >= 4990 AND user = 'u0'") == (2,)
            # Row ids have another name there, because Iceberg for Spark reserves a column `_row_id`.
            last = spark.sql("SELECT * FROM main.events ORDER BY n DESC LIMIT 1").first()
            assert last.__fields__[:2] == ["_polynya_row_id", "_time"], last
            assert (last._polynya_row_id, last.n, last.user, last.price) == (5000, 4999, "u1", 4999 / 8), last
            for sql in (
                "INSERT INTO main.events VALUES (9, current_timestamp(), 'u', 1L, 1.0D)",
                "TRUNCATE TABLE main.events",
                "CALL polynya.system.expire_snapshots(table => 'main.stock', older_than => TIMESTAMP '2100-01-01 00:00:00')",
                "ALTER TABLE main.events ADD COLUMN other BIGINT",
            ):
                why = refused(sql)
                assert "table that Polynya writes" in why, f"{sql}: {why[:2000]}"
            assert "table of Polynya" in refused("DROP TABLE main.events")
            print("Spark reads Polynya's tables and changes no row of them: ok", flush=True)
            rewrites(server, spark, one)
            print("Spark writes the files of Polynya's tables anew while rows come in: ok", flush=True)

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
            spark.sql("CREATE TABLE lab.copy USING iceberg AS SELECT n, user FROM main.events WHERE n < 100 AND user LIKE 'u%'")
            assert one("SELECT count(*) FROM lab.copy") == (100,)
            spark.sql("CREATE OR REPLACE TABLE lab.copy USING iceberg AS SELECT n FROM main.events WHERE n < 50 AND user LIKE 'u%'")
            assert one("SELECT count(*) FROM lab.copy") == (50,)
            spark.sql("CREATE VIEW lab.few AS SELECT id FROM lab.t WHERE id < 20")
            assert one("SELECT count(*) FROM lab.few") == (18,)
            spark.sql("DROP VIEW lab.few")
            spark.sql("ALTER TABLE lab.copy RENAME TO lab.moved")
            assert one("SELECT count(*) FROM lab.moved") == (50,)
            assert "already exists" in refused("CREATE TABLE lab.t (a INT) USING iceberg").lower()
            vectors(server, spark, one)
            print("Deletion vectors of Spark's are read: ok", flush=True)
            assert "not empty" in refused("DROP NAMESPACE lab").lower()
            spark.sql("DROP TABLE lab.moved PURGE")
            spark.sql("DROP TABLE lab.t PURGE")
            spark.sql("DROP NAMESPACE lab")
            print("Spark makes, writes and drops tables of its own: ok", flush=True)
        finally:
            spark.stop()
        # After a kill and a restart the lake continues from its last commit.
        server.kill()
        server.start()
        server.request("POST", "/v1/tables/stock/rows", [{"sku": "s5", "pieces": 5}])
        assert subprocess.run([server.binary, "lake", "verify", "--data", str(server.data)], timeout=120).returncode == 0
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
