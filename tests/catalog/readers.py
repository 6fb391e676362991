"""Tests PyIceberg and DuckDB on the Iceberg REST catalog of a server of its own. They read Polynya's tables, create and
write their own, and are refused forbidden operations.

    readers.py POLYNYA SCRATCH

POLYNYA is the built program, SCRATCH a directory that may be emptied.
"""

import sys
import time
from pathlib import Path

import duckdb
import duckdb_ext
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    ForbiddenError, NamespaceAlreadyExistsError, NamespaceNotEmptyError, NoSuchNamespaceError,
    NoSuchTableError, OAuthError, TableAlreadyExistsError, UnauthorizedError,
)
from pyiceberg.expressions import GreaterThan

from server import Server

ROWS = pa.table({
    "id": pa.array(range(1000), pa.int64()),
    "text": [f"row {n}" for n in range(1000)],
    "when": pa.array([n * 1_000_000 for n in range(1000)], pa.timestamp("us", tz="UTC")),
})


def raised(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        return str(error)
    raise AssertionError(f"{call} did not raise {kind}")


def connect(server, **how):
    how = how or {"token": server.key}
    return load_catalog("polynya", type="rest", uri=server.catalog, **how)


def land(server, table):
    """Waits until the lake has every row of the table."""
    return server.request("POST", f"/v1/tables/{table}/commit")


def pyiceberg_reads_polynyas_tables(server):
    rows = [{"user": f"u{n % 7}", "n": n, "price": n / 8} for n in range(5000)]
    server.request("POST", "/v1/tables/events/rows", rows)
    server.request("POST", "/v1/tables/sensors.readings/rows", [{"celsius": 21.5}])
    land(server, "events")
    land(server, "sensors.readings")
    catalog = connect(server)
    assert ("main",) in catalog.list_namespaces() and ("sensors",) in catalog.list_namespaces()
    assert catalog.list_tables("main") == [("main", "events")], catalog.list_tables("main")
    assert catalog.table_exists("main.events") and not catalog.table_exists("main.nothing")
    table = catalog.load_table("main.events")
    found = table.scan().to_arrow().sort_by("n")
    assert found.num_rows == 5000 and found["n"].to_pylist() == list(range(5000))
    assert table.scan(row_filter=GreaterThan("n", 4989)).to_arrow().num_rows == 10
    server.request("POST", "/v1/tables/events/rows", [{"user": "late", "n": 5000, "price": 0.5}])
    land(server, "events")
    assert table.refresh().scan().to_arrow().num_rows == 5001
    # No other program can add rows to the table, change it or drop it.
    rows = pa.table({"n": pa.array([1], pa.int64())})
    begun = time.monotonic()
    why = raised(ForbiddenError, table.append, found.slice(0, 1).cast(table.schema().as_arrow()))
    assert "Polynya writes" in why and "append" in why, why
    # PyIceberg does not retry, which would take seconds.
    assert time.monotonic() - begun < 2
    why = raised(ForbiddenError, lambda: table.transaction().set_properties(a="b").commit_transaction())
    assert "Polynya writes" in why, why
    assert "table of Polynya" in raised(ForbiddenError, catalog.drop_table, "main.events")
    raised(TableAlreadyExistsError, catalog.create_table, "main.events", rows.schema)
    raised(NamespaceAlreadyExistsError, catalog.create_namespace, "sensors")
    raised(NamespaceNotEmptyError, catalog.drop_namespace, "sensors")
    assert catalog.load_table("main.events").scan().to_arrow().num_rows == 5001


def pyiceberg_keeps_tables_of_its_own(server):
    catalog = connect(server)
    raised(NoSuchNamespaceError, catalog.create_table, "lab.t", ROWS.schema)
    catalog.create_namespace("lab", {"owner": "me"})
    said = catalog.load_namespace_properties("lab")
    assert said.pop("location").endswith("/lake/_catalog/lab") and said == {"owner": "me"}, said
    table = catalog.create_table("lab.t", ROWS.schema)
    table.append(ROWS)
    table.append(ROWS)
    table.delete("id < 500")
    with table.update_schema() as update:
        update.rename_column("text", "words")
    again = connect(server).load_table("lab.t")
    assert again.scan().to_arrow().num_rows == 1000
    assert [field.name for field in again.schema().fields] == ["id", "words", "when"]
    assert again.scan(snapshot_id=again.history()[0].snapshot_id).to_arrow().num_rows == 1000
    # Of two writers that began at the same state, the second is refused and retries on top of the first.
    one, other = connect(server).load_table("lab.t"), connect(server).load_table("lab.t")
    rows = again.scan().to_arrow().slice(0, 1)
    one.append(rows)
    other.append(rows)
    assert connect(server).load_table("lab.t").scan().to_arrow().num_rows == 1002
    # The table belongs to Iceberg clients: no table of Polynya can get its name.
    catalog.create_table("main.theirs", ROWS.schema).append(ROWS)
    try:
        server.request("POST", "/v1/tables/theirs/rows", [{"a": 1}])
        raise AssertionError("a table of Polynya got the name of another")
    except Exception as error:
        assert getattr(error, "code", None) == 400, error
    catalog.rename_table("main.theirs", "lab.moved")
    server.request("POST", "/v1/tables/theirs/rows", [{"a": 1}])
    assert catalog.load_table("lab.moved").scan().to_arrow().num_rows == 1000
    # After a crash every answered change is there.
    server.kill()
    server.start()
    catalog = connect(server)
    assert catalog.load_table("lab.t").scan().to_arrow().num_rows == 1002
    location = Path(catalog.load_table("lab.t").location().removeprefix("file://"))
    assert location.is_dir()
    raised(NamespaceNotEmptyError, catalog.drop_namespace, "lab")
    catalog.purge_table("lab.t")
    assert not location.exists(), sorted(location.rglob("*"))
    kept = Path(catalog.load_table("lab.moved").metadata_location.removeprefix("file://"))
    catalog.drop_table("lab.moved")
    assert kept.exists()
    catalog.register_table("lab.back", str(kept)).scan().to_arrow()
    assert catalog.load_table("lab.back").scan().to_arrow().num_rows == 1000
    catalog.purge_table("lab.back")
    catalog.drop_namespace("lab")
    assert ("lab",) not in catalog.list_namespaces()


def keys_see_what_they_may(server):
    key = server.new_key("reader", "read", "--tables", "events")
    catalog = connect(server, token=key)
    assert catalog.list_namespaces() == [("main",)], catalog.list_namespaces()
    assert catalog.list_tables("main") == [("main", "events")]
    raised(NoSuchTableError, catalog.load_table, "sensors.readings")
    raised(NoSuchNamespaceError, catalog.list_tables, "sensors")
    raised(ForbiddenError, catalog.create_namespace, "mine")
    raised(UnauthorizedError, connect, server, token="pk_wrong")
    # Clients that require OAuth get the API key as their token.
    catalog = connect(server, credential=f"anybody:{key}", **{"oauth2-server-uri": f"{server.catalog}/v1/oauth/tokens"})
    assert catalog.load_table("main.events").scan().to_arrow().num_rows == 5001
    wrong = {"credential": "anybody:pk_wrong", "oauth2-server-uri": f"{server.catalog}/v1/oauth/tokens"}
    raised((OAuthError, UnauthorizedError), connect, server, **wrong)


def duckdb_attaches(server):
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as db:
        found = Path(list(duckdb_ext.__path__)[0]) / "extensions"
        for name in ("avro", "httpfs", "iceberg"):
            [path] = found.glob(f"*/*/{name}.duckdb_extension")
            db.execute(f"LOAD '{path}'")
        db.execute(f"CREATE SECRET (TYPE iceberg, TOKEN '{server.key}')")
        db.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{server.catalog}')")
        assert db.execute("SELECT count(*), sum(n) FROM lake.main.events").fetchone() == (5001, sum(range(5001)))
        db.execute("CREATE SCHEMA lake.ducks")
        db.execute("CREATE TABLE lake.ducks.t (a BIGINT, b VARCHAR)")
        db.execute("INSERT INTO lake.ducks.t SELECT range, 'row ' || range FROM range(1000)")
        assert db.execute("SELECT count(*), sum(a) FROM lake.ducks.t").fetchone() == (1000, sum(range(1000)))
        table = connect(server).load_table("ducks.t")
        assert table.scan().to_arrow().num_rows == 1000
        why = raised(duckdb.Error, db.execute, "INSERT INTO lake.main.events VALUES (9999, now(), 'd', 1, 1.0)")
        assert "Polynya writes" in why, why
        db.execute("DELETE FROM lake.ducks.t WHERE a < 10")
        assert db.execute("SELECT count(*) FROM lake.ducks.t").fetchone() == (990,)
        db.execute("DROP TABLE lake.ducks.t")
        # A staged create writes the files before the table exists.
        db.execute("CREATE TABLE lake.ducks.made AS SELECT range AS a FROM range(1000)")
        assert db.execute("SELECT count(*), sum(a) FROM lake.ducks.made").fetchone() == (1000, sum(range(1000)))
        db.execute("BEGIN")
        db.execute("CREATE TABLE lake.ducks.both (a BIGINT)")
        db.execute("INSERT INTO lake.ducks.both SELECT range FROM range(10)")
        db.execute("COMMIT")
        assert db.execute("SELECT count(*) FROM lake.ducks.both").fetchone() == (10,)


def main(binary, scratch):
    with Server(binary, Path(scratch) / "readers") as server:
        for test in (
            pyiceberg_reads_polynyas_tables, pyiceberg_keeps_tables_of_its_own, keys_see_what_they_may, duckdb_attaches,
        ):
            test(server)
            print(f"{test.__name__.replace('_', ' ')}: ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
