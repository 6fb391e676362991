"""Reads the lake with PyIceberg and DuckDB and compares it, row by row, with Polynya's tables.

    interop.py INTEROP SCRATCH [--every]

INTEROP is the built example of crates/lake. It makes a warehouse in phases. Each phase is also killed with SIGKILL before
every single change of a file in the warehouse; without --every, only before some of the repetitive ones. After each
kill both programs must read every table in a state before or after some commit. Once the phase was run again, they must
read what is in Polynya.
"""

import json
import math
import os
import queue
import shutil
import struct
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import duckdb
import duckdb_ext
import pyarrow.parquet as pq
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, IsNaN, IsNull, LessThanOrEqual
from pyiceberg.table import StaticTable
from pyiceberg.types import ListType, StructType

NESTED = "list<struct<a: int64, d: decimal(20,3), b: list<string>, v: vector(2)>>"
STRICT = "struct<at: point not null, to: point, ids: list<uuid not null> not null>"
SCALARS = [
    "bool", "int32", "int64", "float32", "float64", "small", "middle", "large", "string", "binary", "date", "timestamp",
    "uuid",
]
PHASES = ["made", "changed", "columns added", "many commits"]


def normal(value):
    """Converts a value to the form that the example prints."""
    if isinstance(value, datetime):
        delta = value.astimezone(timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        number = int("".join(map(str, digits)) or "0")
        return str(-number if sign else number)
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    if isinstance(value, uuid.UUID):
        return value.hex
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {name: normal(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [normal(inner) for inner in value]
    return value


def iceberg_type(polynya):
    """Returns PyIceberg's name of a type."""
    fixed = {
        "bool": "boolean", "int32": "int", "int64": "long", "float32": "float", "float64": "double",
        "json": "string", "timestamp": "timestamptz", "list<int64>": "list<long>",
        "struct<a: int64, b: string>": "struct<a: long, b: string>",
        "point": "struct<lon: double, lat: double>", "point3d": "struct<x: double, y: double, z: double>",
        NESTED: "list<struct<a: long, d: decimal(20, 3), b: list<string>, v: list<float>>>",
        STRICT: "struct<at: struct<lon: double, lat: double>, to: struct<lon: double, lat: double>, ids: list<uuid>>",
    }
    if polynya.startswith("decimal("):
        return polynya.replace(",", ", ")
    if polynya.startswith("vector("):
        return "list<float>"
    return fixed.get(polynya, polynya)


def duckdb_type(polynya):
    fixed = {
        "bool": "BOOLEAN", "int32": "INTEGER", "int64": "BIGINT", "float32": "FLOAT", "float64": "DOUBLE",
        "string": "VARCHAR", "json": "VARCHAR", "binary": "BLOB", "date": "DATE",
        "timestamp": "TIMESTAMP WITH TIME ZONE", "uuid": "UUID", "list<int64>": "BIGINT[]",
        "struct<a: int64, b: string>": "STRUCT(a BIGINT, b VARCHAR)", "point": "STRUCT(lon DOUBLE, lat DOUBLE)",
        "point3d": "STRUCT(x DOUBLE, y DOUBLE, z DOUBLE)",
        NESTED: "STRUCT(a BIGINT, d DECIMAL(20,3), b VARCHAR[], v FLOAT[])[]",
        STRICT: 'STRUCT("at" STRUCT(lon DOUBLE, lat DOUBLE), "to" STRUCT(lon DOUBLE, lat DOUBLE), ids UUID[])',
    }
    if polynya.startswith("decimal("):
        return polynya.upper()
    if polynya.startswith("vector("):
        return "FLOAT[]"
    return fixed[polynya]


def newest_metadata(table):
    files = table.glob("metadata/v*.metadata.json")
    return max(files, key=lambda path: int(path.name[1:].split(".")[0]), default=None)


class DuckDB:
    """DuckDB with the extensions from the Python package, so that the tests fetch nothing."""

    def __init__(self):
        self.connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        found = Path(list(duckdb_ext.__path__)[0]) / "extensions"
        for name in ["avro", "httpfs", "iceberg"]:
            [path] = found.glob(f"*/*/{name}.duckdb_extension")
            self.connection.execute(f"LOAD '{path}'")
        self.connection.execute("SET TimeZone = 'UTC'")
        # The cache would keep the files of every kill, up to most of the machine's memory.
        self.connection.execute("SET enable_external_file_cache = false")

    def read(self, table):
        cursor = self.connection.cursor()
        cursor.execute("SET TimeZone = 'UTC'")
        # Only the directory is given, so version-hint.text must lead to the newest metadata.
        cursor.execute(f"SELECT * FROM iceberg_scan('{table}')")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, map(normal, row))) for row in cursor.fetchall()]

    def seen(self, name, value):
        return value

    def types(self, table):
        cursor = self.connection.cursor()
        described = cursor.execute(f"DESCRIBE SELECT * FROM iceberg_scan('{table}')").fetchall()
        return {name: column for name, column, *_ in described}

    def one(self, sql, parameters=()):
        cursor = self.connection.cursor()
        cursor.execute("SET TimeZone = 'UTC'")
        return cursor.execute(sql, list(parameters)).fetchone()

    def column(self, table, name):
        cursor = self.connection.cursor()
        cursor.execute("SET TimeZone = 'UTC'")
        return cursor.execute(f"SELECT _polynya_row_id, \"{name}\" FROM iceberg_scan('{table}')").fetchall()


def plain(of):
    """Formats a type as PyIceberg prints it, without field ids and required marks."""
    if isinstance(of, StructType):
        return "struct<" + ", ".join(f"{field.name}: {plain(field.field_type)}" for field in of.fields) + ">"
    return f"list<{plain(of.element_type)}>" if isinstance(of, ListType) else str(of)


class PyIceberg:
    def read(self, table):
        reader = StaticTable.from_metadata(str(newest_metadata(table))).scan().to_arrow_batch_reader()
        # The batches are read into a table, since an empty table may have a list of uuids.
        rows = reader.read_all()
        return [{name: normal(value) for name, value in row.items()} for row in rows.to_pylist()]

    def seen(self, name, value):
        # PyIceberg reads a null list of structs as an empty one: its conversion loses the nulls of lists.
        return [] if name == "nested" and value is None else value

    def types(self, table):
        schema = StaticTable.from_metadata(str(newest_metadata(table))).schema()
        return {field.name: plain(field.field_type) for field in schema.fields}


READERS = [DuckDB(), PyIceberg()]


def by_row(rows):
    found = {row["_polynya_row_id"]: row for row in rows}
    assert len(found) == len(rows), f"{len(rows) - len(found)} rows are there twice"
    return found


def same(reader, table, expected, where, other_run=False):
    """Asserts that a table's rows equal one of the states in `expected`. In another run their times differ."""
    without = {"_time"} if other_run else set()

    def rows(of):
        return by_row([{name: reader.seen(name, row[name]) for name in row.keys() - without} for row in of])

    found = rows(reader.read(table))
    if any(found == rows(state["rows"]) for state in expected):
        return
    state = rows(expected[-1]["rows"])
    missing, extra = sorted(state.keys() - found.keys()), sorted(found.keys() - state.keys())
    other = [(found[row], state[row]) for row in found.keys() & state.keys() if found[row] != state[row]][:1]
    raise AssertionError(
        f"{where}: {type(reader).__name__} reads {table.name} otherwise: {len(found)} rows of {len(state)}, "
        f"missing {missing[:5]}, too many {extra[:5]}, different {other}"
    )


def run(interop, directory, phase, kill_at=None):
    command = [interop, str(directory), str(phase)] + ([str(kill_at)] if kill_at else [])
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode == -9 and kill_at:
        return None
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stderr}"
    return json.loads(done.stdout)


def check_types(state, table):
    duck, py = READERS
    types = state["types"]
    wanted = {name: duckdb_type(polynya) for name, polynya in types.items()}
    assert duck.types(table) == wanted, f"DuckDB: {duck.types(table)} and not {wanted}"
    py_types = py.types(table)
    for name, polynya in types.items():
        assert py_types[name] == iceberg_type(polynya), f"PyIceberg: {name} is {py_types[name]}"


def check_aggregates(state, table):
    """Checks queries that use the readers' pruning by bounds, beyond whole scans."""
    duck, py = READERS
    rows = state["rows"]
    if table.name == "kv":
        count, total, price = duck.one(f"SELECT count(*), sum(v), sum(price) FROM iceberg_scan('{table}')")
        values = [row["v"] for row in rows if row["v"] is not None]
        prices = [int(row["price"]) for row in rows if row["price"] is not None]
        assert (count, total, int(price * 100)) == (len(rows), sum(values), sum(prices))
        for low, high in [(0, 0), (17, 400), (999, 1_049), (5_000, 6_000)]:
            wanted = sorted(row["_polynya_row_id"] for row in rows if low <= row["k"] <= high)
            where = f"k >= {low} and k <= {high}"
            sql = f"SELECT list(_polynya_row_id ORDER BY _polynya_row_id) FROM iceberg_scan('{table}') WHERE {where}"
            assert (duck.one(sql)[0] or []) == wanted, where
            scan = StaticTable.from_metadata(str(newest_metadata(table))).scan(row_filter=where)
            assert sorted(scan.to_arrow()["_polynya_row_id"].to_pylist()) == wanted, where
    if table.name == "altered":
        # Files written before the column was widened have bounds of the narrower type.
        for low, high in [(2**31 - 10, 2**31 - 1), (0, 2**31 - 40), (2**31, 2**63 - 1), (0, 5)]:
            wanted = sorted(row["_polynya_row_id"] for row in rows if low <= row["i"] <= high)
            where = f"i >= {low} and i <= {high}"
            sql = f"SELECT list(_polynya_row_id ORDER BY _polynya_row_id) FROM iceberg_scan('{table}') WHERE {where}"
            assert (duck.one(sql)[0] or []) == wanted, where
            # PyIceberg refuses a literal that does not fit an int column.
            if state["types"]["i"] == "int32" and high >= 2**31:
                continue
            scan = StaticTable.from_metadata(str(newest_metadata(table))).scan(row_filter=where)
            assert sorted(scan.to_arrow()["_polynya_row_id"].to_pylist()) == wanted, where
    if table.name == "parted":
        check_parted(state, table)
    if table.name == "each_way":
        check_each_way(state, table)
    if table.name == "sorted":
        check_sorted(state, table)
    if table.name == "types":
        for name in [*SCALARS, "later"]:
            if name in state["types"]:
                wanted = rows_where(rows, lambda row: row[name] is None)
                assert planned(table, IsNull(name))[2] == wanted, f"PyIceberg: {name} IS NULL"
                sql = f"SELECT list(_polynya_row_id ORDER BY _polynya_row_id) FROM iceberg_scan('{table}') WHERE \"{name}\" IS NULL"
                assert (duck.one(sql)[0] or []) == wanted, f"DuckDB: {name} IS NULL"
        for name in SCALARS:
            values = [value for _, value in duck.column(table, name) if value is not None and value == value]
            # Tests the ends, where a wrong bound loses rows, and some values in between.
            ordered = sorted(set(values))
            for value in {ordered[at] for at in [0, 1, len(ordered) // 2, -2, -1]}:
                wanted = sorted(row for row, other in duck.column(table, name) if other == value)
                where = f"{name} = {value!r}"
                # The literal needs the column's own type: DuckDB fails to compare a converted value with bounds.
                typed = f"CAST(? AS {duckdb_type(state['types'][name])})"
                sql = f"SELECT list(_polynya_row_id ORDER BY _polynya_row_id) FROM iceberg_scan('{table}') WHERE \"{name}\" = {typed}"
                assert duck.one(sql, [value])[0] == wanted, f"DuckDB: {where}"
                if name == "float32" and value == -math.inf:
                    # PyIceberg takes this for a number below the range of a float.
                    continue
                scan = StaticTable.from_metadata(str(newest_metadata(table))).scan(row_filter=EqualTo(name, value))
                assert sorted(scan.to_arrow()["_polynya_row_id"].to_pylist()) == wanted, f"PyIceberg: {where}"


def planned(table, row_filter=None):
    """Returns the opened table, the files that PyIceberg would read after pruning by partitions and bounds, and their row ids."""
    opened = StaticTable.from_metadata(str(newest_metadata(table)))
    scan = opened.scan() if row_filter is None else opened.scan(row_filter=row_filter)
    return opened, list(scan.plan_files()), sorted(scan.to_arrow()["_polynya_row_id"].to_pylist())


def rows_where(rows, keeps):
    return sorted(row["_polynya_row_id"] for row in rows if keeps(row))


def utc(micros):
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)


def check_parted(state, table):
    duck, _ = READERS
    rows = state["rows"]
    _, all_files, found = planned(table)
    assert found == rows_where(rows, lambda row: True)
    count, total = duck.one(f"SELECT count(*), sum(id) FROM iceberg_scan('{table}')")
    assert (count, total) == (len(rows), sum(row["id"] for row in rows))
    day = 24 * 3_600_000_000
    for first, last in [(-9, -8), (-1, 0), (0, 1), (3, 9), (400, 500), (20_388, 20_395), (30_000, 40_000)]:
        wanted = rows_where(rows, lambda row: first * day <= row["at"] < last * day)
        where = f"at >= '{utc(first * day).isoformat()}' and at < '{utc(last * day).isoformat()}'"
        _, files, found = planned(table, where)
        assert found == wanted, f"PyIceberg: {where}: {found} and not {wanted}"
        assert len(files) < len(all_files) / 2, f"{where} reads {len(files)} of {len(all_files)} files"
        # `at` is a keyword of DuckDB.
        where = where.replace("at ", '"at" ')
        sql = f"SELECT list(_polynya_row_id ORDER BY _polynya_row_id) FROM iceberg_scan('{table}') WHERE {where}"
        assert (duck.one(sql)[0] or []) == wanted, f"DuckDB: {where}"
    if state["types"]["country"] == "string":
        for where, keeps in [
            ("country = 'AT'", lambda row: row["country"] == "AT"),
            ("country = ''", lambda row: row["country"] == ""),
            ("country IS NULL", lambda row: row["country"] is None),
            ("country > 'B'", lambda row: (row["country"] or "") > "B"),
        ]:
            wanted = rows_where(rows, keeps)
            _, files, found = planned(table, where)
            assert found == wanted, f"PyIceberg: {where}"
            assert len(files) < len(all_files) / 2, f"{where} reads {len(files)} of {len(all_files)} files"
            sql = f"SELECT list(_polynya_row_id ORDER BY _polynya_row_id) FROM iceberg_scan('{table}') WHERE {where}"
            assert (duck.one(sql)[0] or []) == wanted, f"DuckDB: {where}"
    for key in [0, 7, 100, 158]:
        wanted = rows_where(rows, lambda row: row["id"] == key)
        assert planned(table, EqualTo("id", key))[2] == wanted
        assert (duck.one(f"SELECT list(_polynya_row_id) FROM iceberg_scan('{table}') WHERE id = {key}")[0] or []) == wanted
    opened = planned(table)[0]
    nan_files = [task for task in all_files if sum((task.file.nan_value_counts or {}).values())]
    assert nan_files, "NaNs are counted"
    field = {f.name: f.field_id for f in opened.schema().fields}["score"]
    nans = [row for row in rows if row["score"] is not None and math.isnan(as_float(row["score"]))]
    assert sum(task.file.nan_value_counts[field] for task in all_files) >= len(nans) > 0
    _, files, found = planned(table, IsNaN("score"))
    assert {task.file.file_path for task in files} == {task.file.file_path for task in nan_files}
    wanted = sorted(row["_polynya_row_id"] for row in nans)
    # pyarrow takes all rows of a group with equal bounds for equal, even NaNs. So with this condition PyIceberg finds only the
    # rows of groups without bounds. Without the condition it reads all of them from the same files.
    read = opened.scan(selected_fields=("_polynya_row_id", "score")).to_arrow().to_pylist()
    read = sorted(row["_polynya_row_id"] for row in read if row["score"] is not None and math.isnan(row["score"]))
    assert read == wanted, f"PyIceberg: NaNs: {read} and not {wanted}"
    assert set(found) <= set(wanted) and found, f"PyIceberg: isnan(score): {found} of {wanted}"
    sql = f"SELECT list(_polynya_row_id ORDER BY _polynya_row_id) FROM iceberg_scan('{table}') WHERE isnan(score)"
    assert duck.one(sql)[0] == wanted


def as_float(bits):
    return struct.unpack(">d", bytes.fromhex(bits))[0]


def duckdb_knows(name, value):
    """Returns false for values whose files DuckDB 1.4.4 skips by mistake: it rounds hours and days before 1970 towards it,
    and takes a month for 30 days."""
    if name == "l":
        return value >= utc(0)
    if name == "n":
        days, months = (value - date(1970, 1, 1)).days, (value.year - 1970) * 12 + value.month - 1
        return int(days / 30) == months
    return True


def check_each_way(state, table):
    """Looks up values that PyIceberg transforms itself: a wrong hash of ours would lose the row."""
    duck, _ = READERS
    opened, all_files, found = planned(table)
    assert found == rows_where(state["rows"], lambda row: True)
    # Rows with two nulls or more may share a file; all others differ in some value.
    assert len(all_files) >= 20, len(all_files)
    assert len(opened.spec().fields) == 16
    for name in state["types"]:
        if name.startswith("_"):
            continue
        column = duck.column(table, name)
        for value in {value for _, value in column if value is not None}:
            wanted = sorted(row for row, other in column if other == value)
            _, files, found = planned(table, EqualTo(name, value))
            assert found == wanted, f"{name} = {value!r}: {found} and not {wanted}"
            assert len(files) <= max(len(wanted), 1), f"{name} = {value!r} reads {len(files)} files"
            typed = f"CAST(? AS {duckdb_type(state['types'][name])})"
            sql = f"SELECT list(_polynya_row_id ORDER BY _polynya_row_id) FROM iceberg_scan('{table}') WHERE \"{name}\" = {typed}"
            if duckdb_knows(name, value):
                assert duck.one(sql, [value])[0] == wanted, f"DuckDB: {name} = {value!r}"
        values = sorted({value for _, value in column if value is not None})
        if name != "o":
            for low, high in [(0, len(values) // 3), (len(values) // 2, len(values) - 1)]:
                low, high = values[low], values[high]
                wanted = sorted(row for row, other in column if other is not None and low <= other <= high)
                between = And(GreaterThanOrEqual(name, low), LessThanOrEqual(name, high))
                assert planned(table, between)[2] == wanted, f"{low!r} <= {name} <= {high!r}"
        nulls = sorted(row for row, other in column if other is None)
        assert planned(table, IsNull(name))[2] == nulls, f"{name} is null"


def check_sorted(state, table):
    duck, _ = READERS
    rows = state["rows"]
    opened, files, found = planned(table)
    assert found == rows_where(rows, lambda row: True)
    order = opened.sort_order()
    shown = [(field.source_id, str(field.direction), str(field.null_order)) for field in order.fields]
    assert shown == [(16, "DESC", "NULLS LAST"), (17, "ASC", "NULLS LAST")], shown
    for task in files:
        assert task.file.sort_order_id == order.order_id
        read = pq.read_table(task.file.file_path.removeprefix("file://"), columns=["user", "n"]).to_pylist()
        for a, b in zip(read, read[1:]):
            same_user = a["user"] == b["user"] and a["n"] < b["n"]
            follows = same_user or a["user"] is not None and (b["user"] is None or a["user"] > b["user"])
            assert follows, f"{task.file.file_path}: {b} after {a}"
    for key in ["user 7", "user 49", "nobody"]:
        wanted = rows_where(rows, lambda row: row["user"] == key)
        assert planned(table, EqualTo("user", key))[2] == wanted
        sql = f"SELECT list(_polynya_row_id ORDER BY _polynya_row_id) FROM iceberg_scan('{table}') WHERE \"user\" = ?"
        assert (duck.one(sql, [key])[0] or []) == wanted


class DataDirectory:
    """A data directory in which kills are tried, and which is then restored. Its path stays the same, since paths in Iceberg
    are absolute."""

    def __init__(self, interop, directory):
        self.interop, self.directory = interop, directory
        self.copies = {}

    def at(self, phase):
        """Restores the directory to the state after a phase."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if phase == 0:
            return self.directory
        if phase not in self.copies:
            self.at(phase - 1)
            made = run(self.interop, self.directory, phase)
            copy = self.directory.with_name(f"{self.directory.name}-{phase}")
            shutil.copytree(self.directory, copy)
            self.copies[phase] = (copy, made)
        else:
            shutil.copytree(self.copies[phase][0], self.directory)
        return self.directory

    def state(self, phase):
        if phase not in self.copies:
            self.at(phase)
        return self.copies[phase][1]


def killed(interop, directories, phase, after, kill_at):
    """Kills one phase at one change. Checks what the readers find then, and after the phase was run again."""
    home = directories.get()
    try:
        before = home.state(phase - 1)["tables"] if phase > 1 else {}
        directory = home.at(phase - 1)
        made = run(interop, directory, phase, kill_at)
        where = f"phase {phase}, killed before change {kill_at}"
        if made is None:
            for name, state in after["tables"].items():
                table = directory / "lake" / name.replace(".", "/")
                newest, hint = newest_metadata(table), table / "metadata/version-hint.text"
                if newest and name in before and newest.name == Path(before[name]["metadata"]).name:
                    # No commit happened yet, and the readers checked this metadata before.
                    assert hint.read_text() == newest.name[1:].split(".")[0], where
                    continue
                if newest is None or not hint.exists():
                    # The kill came while the table was created; later the hint is replaced and never missing.
                    assert newest is None or newest.name == "v1.metadata.json", where
                    continue
                for reader in READERS:
                    first = before.get(name, dict(rows=[]))
                    # A table may be at any commit of the phase.
                    if phase == 4:
                        check_between(reader, table, first, state, where)
                    else:
                        same(reader, table, [first, state], where, other_run=True)
            made = run(interop, directory, phase)
        for name, state in made["tables"].items():
            if name in before and state["metadata"] == before[name]["metadata"]:
                continue
            for reader in READERS:
                same(reader, Path(state["dir"]), [state], where + ", run again")
    finally:
        directories.put(home)


def check_between(reader, table, before, after, where):
    found = by_row(reader.read(table))
    first, last = by_row(before["rows"]), by_row(after["rows"])
    lasting = first.keys() & last.keys()
    assert lasting <= found.keys(), f"{where}: {type(reader).__name__} lost rows of {table.name}"
    keys = [row["k"] for row in found.values() if "k" in row]
    assert len(set(keys)) == len(keys), f"{where}: {type(reader).__name__} reads a key of {table.name} twice"


def main():
    interop, scratch = sys.argv[1], Path(sys.argv[2]).absolute()
    every = "--every" in sys.argv[3:]
    shutil.rmtree(scratch, ignore_errors=True)
    base = scratch / "base"
    states = []
    for phase, name in enumerate(PHASES, 1):
        state = run(interop, base, phase)
        states.append(state)
        for table_name, table_state in state["tables"].items():
            table = Path(table_state["dir"])
            for reader in READERS:
                same(reader, table, [table_state], f"phase {phase}")
            check_types(table_state, table)
            check_aggregates(table_state, table)
        sizes = ", ".join(
            f"{n} {len(s['rows'])} rows in {s['files']}+{s['delete_files']} files" for n, s in state["tables"].items()
        )
        print(f"phase {phase}, {name}: {state['calls']} changes of files; read alike: {sizes}", flush=True)
    kills = 0
    # The workers mostly wait for fsyncs.
    workers = 2 * max(2, os.cpu_count() or 2)
    directories = queue.Queue()
    for worker in range(workers):
        directories.put(DataDirectory(interop, scratch / f"home-{worker}"))
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for phase, after in enumerate(states, 1):
            # The first phase makes similar tables, the last one commits sixty times.
            step = 1 if every else {1: 3, 2: 1, 3: 1, 4: max(1, after["calls"] // 40)}[phase]
            points = range(1, after["calls"] + 1, step)
            jobs = [pool.submit(killed, interop, directories, phase, after, point) for point in points]
            for job in jobs:
                job.result()
            kills += len(jobs)
            print(f"phase {phase}: killed at {len(jobs)} of {after['calls']} changes, read alike", flush=True)
    shutil.rmtree(scratch)
    print(f"PyIceberg and DuckDB agree with Polynya after {kills} kills")


if __name__ == "__main__":
    main()
