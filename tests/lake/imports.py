"""Imports Iceberg tables and Parquet files of PyIceberg and pyarrow with the built program, and compares them row by row.

    imports.py POLYNYA SCRATCH

POLYNYA is the built program, SCRATCH a directory that may be emptied.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from datetime import date, datetime, timedelta, timezone
from datetime import time as clock
from decimal import Decimal
from pathlib import Path

import duckdb
import duckdb_ext
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.expressions import EqualTo, LessThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, StaticTable, Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType, BooleanType, DateType, DecimalType, DoubleType, FixedType, FloatType, IntegerType, ListType, LongType,
    MapType, NestedField, StringType, StructType, TimestampType, TimestamptzType, TimeType, UUIDType,
)

from handmade import HandmadeTable

LONGEST = 300


class Polynya:
    """The program with a data directory of its own."""

    def __init__(self, binary, home):
        self.binary, self.home = binary, home

    def command(self, *arguments):
        return [self.binary, *arguments, "--data", str(self.home / "data")]

    def ran(self, *arguments, fails=False):
        """Runs a command to its end. Returns its standard output and its standard error."""
        ran = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=LONGEST, check=False)
        assert (ran.returncode != 0) == fails, f"{arguments}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
        return ran.stdout, ran.stderr

    def run(self, *arguments, fails=False):
        return "".join(self.ran(*arguments, fails=fails))

    def rows(self, sql):
        """Returns the rows of a statement, each as a list. Its log is passed on."""
        answer, logged = self.ran("sql", "--json", sql)
        print(logged, end="", file=sys.stderr)
        # Split only at newlines: JSON does not escape U+2028 and similar characters.
        return [list(json.loads(line).values()) for line in answer.split("\n") if line]


def normal(value):
    """Converts a value of PyIceberg to the form of SQL's output."""
    if isinstance(value, datetime):
        value = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, clock):
        # SQL prints three digits of a second if they suffice, else six.
        return value.isoformat("milliseconds" if value.microsecond % 1_000 == 0 else "microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {name: normal(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [normal(inner) for inner in value]
    return value


class FolderCatalog(MetastoreCatalog):
    """A catalog in memory for the tables of one folder, sufficient for a single writer."""

    def __init__(self, folder):
        super().__init__("folder", warehouse=f"file://{folder}")
        self.known = {}

    def create_table(self, identifier, schema, location=None, partition_spec=PartitionSpec(spec_id=0), sort_order=SortOrder(order_id=0),
                     properties={}):
        staged = self._create_staged_table(identifier, schema, location, partition_spec, sort_order, properties)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self.known[staged.name()] = staged.metadata_location
        return self.load_table(identifier)

    def load_table(self, identifier):
        name = self.identifier_to_tuple(identifier)
        location = self.known[name]
        io = self._load_file_io({}, location)
        metadata = FromInputFile.table_metadata(io.new_input(location))
        return Table(name, metadata, location, io, self)

    def commit_table(self, table, requirements, updates):
        name = table.name()
        staged = self._update_and_stage_table(self.load_table(name), name, requirements, updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self.known[name] = staged.metadata_location
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def load_namespace_properties(self, namespace):
        return {}


FolderCatalog.__abstractmethods__ = frozenset()


def catalog(scratch):
    warehouse = scratch / "warehouse"
    warehouse.mkdir(parents=True)
    return FolderCatalog(warehouse)


def place(table):
    return Path(table.location().removeprefix("file://"))


def trips(made, version):
    """Makes a partitioned table whose rows are changed and deleted over several commits."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "at", TimestamptzType(), required=False),
        NestedField(3, "city", StringType(), required=False),
        NestedField(4, "fare", IntegerType(), required=False),
        NestedField(5, "zone", IntegerType(), required=False),
    )
    spec = PartitionSpec(
        PartitionField(source_id=3, field_id=1000, transform=IdentityTransform(), name="city"),
        PartitionField(source_id=5, field_id=1001, transform=IdentityTransform(), name="zone"),
    )
    properties = {"format-version": str(version)}
    table = made.create_table(f"db.trips{version}", schema=schema, partition_spec=spec, properties=properties)
    begin = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def rows(ids, fare):
        batch = {
            "id": list(ids),
            "at": [begin + timedelta(hours=n % 60) for n in ids],
            "city": [None if n % 11 == 0 else ["Kiel", "Bremen", "Ulm"][n % 3] for n in ids],
            "fare": [fare + n for n in ids],
            "zone": [n % 2 for n in ids],
        }
        return pa.table(batch, schema=table.schema().as_arrow())

    table.append(rows(range(200), 1))
    table.append(rows(range(200, 400), 2))
    table.delete(EqualTo("city", "Ulm"))
    table.delete(LessThan("id", 17))
    with table.update_schema() as update:
        update.add_column("note", StringType())
        update.rename_column("fare", "cents")
        update.update_column("fare", LongType())
    later = pa.table(
        {
            "id": list(range(400, 500)),
            "at": [begin + timedelta(hours=n % 60) for n in range(400, 500)],
            "city": ["Kiel"] * 100,
            "cents": [2**40 + n for n in range(400, 500)],
            "zone": [7] * 100,
            "note": [f"trip {n}" for n in range(400, 500)],
        },
        schema=table.schema().as_arrow(),
    )
    table.append(later)
    with table.update_spec() as update:
        update.remove_field("city")
    table.append(later.slice(0, 10))
    return table


def kinds(made):
    """Makes a table with a column of each type."""
    schema = Schema(
        NestedField(1, "_id", LongType(), required=False),
        NestedField(2, "flag", BooleanType(), required=False),
        NestedField(3, "single", FloatType(), required=False),
        NestedField(4, "double", DoubleType(), required=False),
        NestedField(5, "money", DecimalType(12, 2), required=False),
        NestedField(6, "day", DateType(), required=False),
        NestedField(7, "clock", TimeType(), required=False),
        NestedField(8, "local", TimestampType(), required=False),
        NestedField(9, "at", TimestamptzType(), required=False),
        NestedField(10, "raw", BinaryType(), required=False),
        NestedField(11, "fixed", FixedType(4), required=False),
        NestedField(12, "who", UUIDType(), required=False),
        NestedField(13, "tags", ListType(14, StringType(), element_required=False), required=False),
        NestedField(
            15, "inner",
            StructType(NestedField(16, "x", IntegerType(), required=False), NestedField(17, "y", StringType(), required=False)),
            required=False,
        ),
        NestedField(18, "counts", MapType(19, StringType(), 20, LongType(), value_required=False), required=False),
    )
    table = made.create_table("db.kinds", schema=schema)
    arrow = table.schema().as_arrow()
    random.seed(7)
    rows = [
        {
            "_id": n,
            "flag": n % 2 == 0,
            "single": n / 4,
            "double": n / 8,
            "money": Decimal(n * 101) / 100,
            "day": date(2026, 1, 1) + timedelta(days=n),
            "clock": clock(n % 24, 5, 6, 7_000 + n),
            "local": datetime(2026, 1, 1, 1, 2, 3, 456_000 + n),
            "at": datetime(2026, 1, 1, 1, 2, 3, 456_000 + n, tzinfo=timezone.utc),
            "raw": bytes([n, 255]),
            "fixed": bytes([n, 0, 1, 2]),
            "who": uuid.UUID(int=random.getrandbits(128)).bytes,
            "tags": [f"t{n}", None],
            "inner": {"x": n, "y": f"y{n}"},
            "counts": [("a", n), ("b", None)],
        }
        for n in range(50)
    ]
    rows.append({name: None for name in arrow.names} | {"_id": 99})
    table.append(pa.Table.from_pylist(rows, schema=arrow))
    with table.update_schema() as update:
        update.add_column(("inner", "z"), DoubleType())
        update.rename_column(("inner", "y"), "why")
    return table


def compare_trips(polynya, table, name):
    wanted = table.scan().to_arrow().to_pylist()
    wanted = sorted([[normal(row[c]) for c in ("id", "at", "city", "cents", "zone", "note")] for row in wanted], key=repr)
    found = polynya.rows(f"SELECT id, at, city, cents, zone, note FROM {name}")
    # Only integers beyond 2^53 are texts; these are smaller.
    assert sorted(stamped(found), key=repr) == sorted(stamped(wanted), key=repr), f"{name}: {len(found)} and {len(wanted)} rows"
    print(f"  {name}: {len(found)} rows are equal")


def stamped(rows):
    """Converts times to one form, since their writers print them differently."""
    def one(value):
        if isinstance(value, str) and len(value) > 18 and value[10] in "T " and value.endswith("Z"):
            return datetime.fromisoformat(value.replace("Z", "+00:00")).isoformat()
        return value
    return [[one(value) for value in row] for row in rows]


def iceberg(polynya, made, scratch):
    for version in (1, 2):
        table = trips(made, version)
        said = polynya.run("lake", "import", str(place(table)), f"trips{version}")
        assert f"trips{version}: " in said, said
        compare_trips(polynya, table, f"trips{version}")
        again = polynya.run("lake", "import", str(place(table)), f"trips{version}")
        assert "nothing new" in again, again
        compare_trips(polynya, table, f"trips{version}")
    # Imports a moved table by the path of its metadata file.
    moved = scratch / "moved"
    shutil.copytree(place(table), moved)
    newest = max((moved / "metadata").glob("*.metadata.json"))
    polynya.run("lake", "import", str(newest), "moved")
    compare_trips(polynya, table, "moved")
    # The table has changed since its import, and the changes cannot be told apart.
    table.append(table.scan(limit=5).to_arrow())
    refused = polynya.run("lake", "import", str(place(table)), "trips2", fails=True)
    assert "--again" in refused, refused
    polynya.run("lake", "import", str(place(table)), "trips2b")
    compare_trips(polynya, table, "trips2b")

    table = kinds(made)
    said = polynya.run("lake", "import", str(place(table)), "kinds")
    for note in ("`_id` becomes `id`", "times of day become text", "maps become JSON"):
        assert note in said, said
    described = json.loads(polynya.ran("tables", "kinds", "--json")[0])
    types = {column["name"]: column["type"] for column in described["columns"]}
    assert types == {
        "id": "int64", "flag": "bool", "single": "float32", "double": "float64", "money": "decimal(12,2)", "day": "date",
        "clock": "string", "local": "timestamp", "at": "timestamp", "raw": "binary", "fixed": "binary", "who": "uuid",
        "tags": "list<string>", "inner": "struct<x: int32, why: string, z: float64>", "counts": "json",
    }, types
    wanted = table.scan().to_arrow().to_pylist()
    for row in wanted:
        row["counts"] = None if row["counts"] is None else dict(row["counts"])
        row["who"] = None if row["who"] is None else str(uuid.UUID(bytes=row["who"]) if isinstance(row["who"], bytes) else row["who"])
    names = ["id", "flag", "single", "double", "day", "clock", "local", "at", "who", "tags", "inner", "counts"]
    found = polynya.rows(f"SELECT {', '.join(names)}, money::text, encode(raw, 'hex'), encode(fixed, 'hex') FROM kinds ORDER BY id")
    source = ["_id", *names[1:], "money", "raw", "fixed"]
    wanted = sorted(wanted, key=lambda row: row["_id"])
    wanted = [[normal(row[name]) for name in source] for row in wanted]
    loaded = [[json.loads(v) if at == 11 and isinstance(v, str) else v for at, v in enumerate(row)] for row in found]
    for ours, theirs in zip(stamped(loaded), stamped(wanted), strict=True):
        assert ours == theirs, f"kinds:\n  {ours}\n  {theirs}"
    # The structs of the imported table are those of the source.
    assert "nothing new" in polynya.run("lake", "import", str(place(table)), "kinds")
    polynya.run("lake", "import", str(place(table)), "kinds", "--again")
    assert polynya.rows("SELECT count(*), count(DISTINCT id), count(\"inner\") FROM kinds") == [[102, 51, 100]]
    print(f"  kinds: {len(found)} rows of {len(names) + 3} types are equal")


def interrupted(polynya, made):
    """Kills an import repeatedly; each row must be imported once."""
    schema = Schema(NestedField(1, "n", LongType(), required=False), NestedField(2, "text", StringType(), required=False))
    table = made.create_table("db.large", schema=schema)
    count = 600_000
    for part in range(3):
        ids = range(part * count // 3, (part + 1) * count // 3)
        table.append(pa.table({"n": list(ids), "text": [f"row {n} " * 8 for n in ids]}, schema=table.schema().as_arrow()))
    table.delete(LessThan("n", 1000))
    kills, partly = killed(polynya, place(table), "large")
    said = polynya.run("lake", "import", str(place(table)), "large")
    rows = polynya.rows("SELECT count(*), count(DISTINCT n), min(n), max(n) FROM large")
    assert rows == [[count - 1000, count - 1000, 1000, count - 1]], (rows, said)
    print(f"  large: {count - 1000} rows once each after {kills} kills, with {partly} on the way")


def killed(polynya, source, name):
    """Kills an import until one succeeds. Returns the number of kills and the row counts in between."""
    command = polynya.command("lake", "import", str(source), name)
    kills, partly, patience = 0, set(), 0.1
    while True:
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert running.wait(patience) == 0
            break
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()
        kills += 1
        patience *= 1.2
        if name in polynya.run("tables"):
            partly.add(polynya.rows(f"SELECT count(*) FROM {name}")[0][0])
    assert partly - {0}, f"{kills} kills left {partly} rows"
    return kills, sorted(partly)


CITY = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="city"), spec_id=1)
PLAIN = PartitionSpec(spec_id=0)


def deleted(polynya, scratch, version):
    """Imports a table with equality deletes and position deletes, and columns that changed meanwhile."""
    def fields(fare, *more):
        return [NestedField(1, "id", LongType(), required=False), NestedField(2, "city", StringType(), required=False),
                NestedField(3, "fare", fare, required=False), *more]

    code = NestedField(5, "code", IntegerType(), required=False)
    note = NestedField(4, "note", StringType(), required=False)
    schemas = [Schema(*fields(IntegerType(), code), schema_id=0), Schema(*fields(LongType(), note), schema_id=1)]
    table = HandmadeTable(scratch / f"deleted{version}", version, schemas, [PLAIN, CITY], {4: "none"} if version == 3 else {})
    live = []

    def data(sequence, ids, city, is_old, spec):
        said = {"spec": spec, "partition": (city,) if spec else ()}
        columns = {
            (1, "id"): pa.array(ids, pa.int64()), (2, "city"): pa.array([city] * len(ids), pa.string()),
            (3, "fare"): pa.array([None if n % 13 == 0 else n % 50 for n in ids], pa.int32() if is_old else pa.int64()),
        }
        last = (5, "code") if is_old else (4, "note")
        columns[last] = pa.array([n % 9 for n in ids], pa.int32()) if is_old else pa.array([f"trip {n}" for n in ids])
        path = table.data(sequence, columns, **said)
        shown = "none" if version == 3 else None
        rows = [dict(zip([name for _, name in columns], row)) for row in zip(*(values.to_pylist() for values in columns.values()))]
        for row in rows:
            row.update({"code": row.get("code"), "note": row.get("note", shown), "of": (sequence, spec, said["partition"])})
        live.extend(rows)
        return path, rows, said

    def equality(sequence, columns, spec=0, partition=()):
        table.equality(sequence, [field for field, _ in columns], columns, spec=spec, partition=partition)
        keys = set(zip(*(values.to_pylist() for values in columns.values())))
        for row in list(live):
            older, is_near = row["of"][0] < sequence, spec == 0 or row["of"][1:] == (spec, partition)
            if older and is_near and tuple(row[name] for _, name in columns) in keys:
                live.remove(row)

    old = [data(1, range(n * 100, n * 100 + 60), city, True, 1) for n, city in enumerate(["Kiel", "Ulm", None])]
    old.append(data(1, range(300, 340), "Kiel", True, 0))
    data(2, range(400, 460), "Kiel", False, 1)
    data(4, range(500, 520), "Bonn", False, 0)
    equality(2, {(1, "id"): pa.array([3, 4, 103, 305, 401], pa.int64())}, 1, ("Kiel",))
    equality(3, {(3, "fare"): pa.array([10, 17, None], pa.int32())})
    equality(3, {(2, "city"): pa.array([None, "Kiel"]), (1, "id"): pa.array([205, 206], pa.int64())})
    equality(3, {(5, "code"): pa.array([7], pa.int64())})
    equality(4, {(1, "id"): pa.array([450, 501], pa.int64())})
    if version == 3:
        # The vector repeats the deletes of earlier position delete files.
        path, rows, said = old[0]
        table.positions(2, [(path, 0)], **said)
        gone = [(path, [0, 1, 59], said), (old[3][0], [2], old[3][2])]
        table.vectors(3, gone)
        live = [row for row in live if row not in [rows[at] for at in (0, 1, 59)] + [old[3][1][2]]]
    else:
        path, rows, said = old[1]
        table.positions(2, [(path, 0), (path, 30)], **said)
        live = [row for row in live if row not in [rows[0], rows[30]]]
    metadata = table.write()
    said = polynya.run("lake", "import", str(table.folder), f"deleted{version}")
    found = polynya.rows(f"SELECT id, city, fare, note FROM deleted{version}")
    wanted = [[row["id"], row["city"], row["fare"], row["note"]] for row in live]
    assert sorted(found, key=repr) == sorted(wanted, key=repr), f"{len(found)} and {len(wanted)} rows: {said}"
    assert f"{len(wanted)} rows" in said, said
    assert "nothing new" in polynya.run("lake", "import", str(table.folder), f"deleted{version}")
    print(f"  deleted{version}: {len(found)} rows are equal")
    return metadata, wanted


def told_by_others(scratch):
    """Checks such tables with other readers, as far as they support them."""
    rows = pa.array(range(1000), pa.int64())
    schema = [Schema(NestedField(1, "n", LongType(), required=False))]
    table = HandmadeTable(scratch / "told2", 2, schema, [PLAIN])
    table.data(1, {(1, "n"): rows})
    table.data(3, {(1, "n"): rows})
    table.equality(2, [1], {(1, "n"): pa.array([5, 7, 2000], pa.int64())})
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ["avro", "iceberg"]:
        [path] = (Path(list(duckdb_ext.__path__)[0]) / "extensions").glob(f"*/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    equality = connection.execute(f"SELECT count(*), sum(n) FROM iceberg_scan('{table.write()}')").fetchall()
    assert equality == [(1998, 2 * sum(range(1000)) - 12)], equality
    vectors = HandmadeTable(scratch / "told3", 3, schema, [PLAIN])
    path = vectors.data(1, {(1, "n"): rows})
    vectors.vectors(2, [(path, [5, 7, *range(100, 200)], {})])
    found = StaticTable.from_metadata(str(vectors.write())).scan().to_arrow()["n"].to_pylist()
    assert sorted(found) == [n for n in range(1000) if n not in (5, 7) and not 100 <= n < 200], len(found)
    return table, vectors


def by_equality(polynya, scratch):
    for version in (2, 3):
        deleted(polynya, scratch, version)
    for table in told_by_others(scratch):
        polynya.run("lake", "import", str(table.folder), table.folder.name)
    assert polynya.rows("SELECT count(*), sum(n) FROM told2") == [[1998, 2 * sum(range(1000)) - 12]]
    assert polynya.rows("SELECT count(*), sum(n) FROM told3") == [[898, sum(range(1000)) - 12 - sum(range(100, 200))]]
    print("  told2 and told3: as DuckDB and PyIceberg read them")
    # The import is killed repeatedly, and skips rows that were deleted at the end.
    schema = [Schema(NestedField(1, "n", LongType(), required=False), NestedField(2, "text", StringType(), required=False))]
    table = HandmadeTable(scratch / "thinned", 2, schema, [PLAIN])
    count = 600_000
    for part in range(3):
        ids = range(part * count // 3, (part + 1) * count // 3)
        columns = {(1, "n"): pa.array(ids, pa.int64()), (2, "text"): pa.array([f"row {n} " * 8 for n in ids])}
        table.data(1, columns)
    table.equality(2, [1], {(1, "n"): pa.array([*range(0, count, 3), *range(count - 30_000, count)], pa.int64())})
    table.write()
    wanted = [n for n in range(count - 30_000) if n % 3]
    kills, partly = killed(polynya, table.folder, "thinned")
    rows = polynya.rows("SELECT count(*), count(DISTINCT n), sum(n) FROM thinned")
    assert rows == [[len(wanted), len(wanted), sum(wanted)]], rows
    assert "nothing new" in polynya.run("lake", "import", str(table.folder), "thinned")
    print(f"  thinned: {len(wanted)} rows once each after {kills} kills, with {partly} on the way")
    # A damaged deletion vector prevents the import.
    [puffin] = (scratch / "told3/data").glob("*.puffin")
    content = bytearray(puffin.read_bytes())
    content[30] ^= 1
    puffin.write_bytes(content)
    said = polynya.run("lake", "import", str(scratch / "told3"), "nothing", fails=True)
    assert puffin.name in said and "deletion vector" in said, said


def parquet(polynya, scratch):
    files = scratch / "files"
    (files / "deeper").mkdir(parents=True)
    for n, sub in enumerate([".", ".", "deeper"]):
        batch = pa.table({"n": pa.array(range(n * 10, n * 10 + 10), pa.int64()), "_word": [f"w{n}"] * 10})
        pq.write_table(batch, files / sub / f"{n}.parquet")
    said = polynya.run("lake", "import", str(files), "words")
    assert "`_word` becomes `word`" in said, said
    assert polynya.rows("SELECT count(*), count(DISTINCT n), count(DISTINCT word) FROM words") == [[30, 30, 3]]
    # Only a file added since is imported.
    pq.write_table(pa.table({"n": pa.array([99], pa.int64()), "_word": ["late"]}), files / "9.parquet")
    polynya.run("lake", "import", str(files), "words")
    assert polynya.rows("SELECT count(*) FROM words") == [[31]]
    polynya.run("lake", "import", str(files / "*.parquet"), "some", "--rename", "_word=term")
    assert polynya.rows("SELECT count(term) FROM some") == [[21]]
    # Rows that do not fit are reported before anything is imported.
    pq.write_table(pa.table({"n": ["text"], "_word": ["x"]}), files / "odd.parquet")
    said = polynya.run("lake", "import", str(files), "nothing", fails=True)
    assert "odd.parquet" in said, said
    assert "no table" in polynya.run("tables", "nothing", fails=True)
    hive = scratch / "hive" / "country=DE"
    hive.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), hive / "1.parquet")
    assert "country=DE" in polynya.run("lake", "import", str(scratch / "hive"), "nothing", fails=True)
    delta = scratch / "delta" / "_delta_log"
    delta.mkdir(parents=True)
    assert "Delta" in polynya.run("lake", "import", str(delta.parent), "nothing", fails=True)
    print("  Parquet: files, directories and patterns")


def times(polynya, scratch):
    """Imports INT96 timestamps, which Impala and Spark wrote for long, over all years."""
    wanted = [datetime(1, 1, 1), datetime(1600, 2, 29, 1, 2, 3, 456_789), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 31), None]
    batch = pa.table({
        "n": range(len(wanted)),
        "at": pa.array(wanted, pa.timestamp("us")),
        "many": pa.array([[at, None] for at in wanted], pa.list_(pa.timestamp("us"))),
        "one": pa.array([{"at": at} for at in wanted], pa.struct([("at", pa.timestamp("us"))])),
    })
    for store_schema in (False, True):
        name = f"times_{store_schema}".lower()
        file = scratch / f"{name}.parquet"
        pq.write_table(batch, file, use_deprecated_int96_timestamps=True, store_schema=store_schema)
        assert pq.read_metadata(file).schema.column(1).physical_type == "INT96"
        polynya.run("lake", "import", str(file), name)
        found = polynya.rows(f"SELECT at, many[1], one['at'] FROM {name} ORDER BY n")
        assert stamped(found) == stamped([[normal(at)] * 3 for at in wanted]), found
    print("  times: of the years 1 to 9999")


def maps(polynya, scratch):
    """Imports types of Parquet that Arrow's plain types lack."""
    ids = [uuid.UUID(int=n).bytes for n in range(3)]
    batch = pa.table({
        "counts": pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int64())),
        "who": pa.array(ids, pa.binary(16)).cast(pa.uuid()) if hasattr(pa, "uuid") else pa.array(ids, pa.binary(16)),
    })
    file = scratch / "maps.parquet"
    pq.write_table(batch, file)
    polynya.run("lake", "import", str(file), "maps")
    described = json.loads(polynya.ran("tables", "maps", "--json")[0])
    types = {column["name"]: column["type"] for column in described["columns"]}
    assert types == {"counts": "json", "who": "uuid" if hasattr(pa, "uuid") else "binary"}, types
    found = polynya.rows("SELECT counts FROM maps WHERE counts IS NOT NULL ORDER BY counts::text DESC")
    assert found == [[{}], [{"a": 1, "b": None}]], found
    print("  maps: are JSON")


def without_ids(polynya, made, scratch):
    """Imports files that are older than their table and have no field ids. The table's name mapping gives the columns."""
    file = scratch / "plain.parquet"
    pq.write_table(pa.table({"n": pa.array([1, 2, 3], pa.int64()), "word": ["a", "b", "c"]}), file)
    schema = Schema(NestedField(1, "n", LongType(), required=False), NestedField(2, "word", StringType(), required=False))
    table = made.create_table("db.plain", schema=schema)
    table.add_files([f"file://{file}"])
    polynya.run("lake", "import", str(place(table)), "plain")
    assert polynya.rows("SELECT n, word FROM plain ORDER BY n") == [[1, "a"], [2, "b"], [3, "c"]]
    print("  plain: found by their names")


def main(binary, scratch):
    scratch = Path(scratch)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    polynya = Polynya(os.path.abspath(binary), scratch)
    made = catalog(scratch)
    iceberg(polynya, made, scratch)
    without_ids(polynya, made, scratch)
    interrupted(polynya, made)
    by_equality(polynya, scratch)
    parquet(polynya, scratch)
    times(polynya, scratch)
    maps(polynya, scratch)
    print("imports: equal")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
