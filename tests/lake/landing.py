"""Reads the lake of `polynya bench lake` with DuckDB and PyIceberg: count and sum must equal the acknowledged rows.

    landing.py POLYNYA SCRATCH [RATE TIME]

POLYNYA is the built program, SCRATCH a directory that may be emptied. Without RATE (events a second) and TIME the
load is small: 50,000 for 20s.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import duckdb_ext
import pyarrow.compute as pc
from pyiceberg.table import StaticTable

FIRST_MS = 1_767_225_600_000


def by_duckdb(metadata):
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    found = Path(list(duckdb_ext.__path__)[0]) / "extensions"
    for name in ["avro", "httpfs", "iceberg"]:
        [path] = found.glob(f"*/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    question = f"SELECT count(*), sum(timestamp_ms - {FIRST_MS}) FROM iceberg_scan('{metadata}')"
    count, total = connection.execute(question).fetchone()
    return count, int(total)


def by_pyiceberg(metadata):
    count = total = 0
    table = StaticTable.from_metadata(metadata)
    for batch in table.scan(selected_fields=("timestamp_ms",)).to_arrow_batch_reader():
        count += batch.num_rows
        total += pc.sum(pc.subtract(batch["timestamp_ms"], FIRST_MS)).as_py() or 0
    return count, total


def main():
    polynya, scratch = sys.argv[1], Path(sys.argv[2]).absolute()
    rate, time = sys.argv[3:5] if len(sys.argv) > 4 else ("50000", "20s")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    run = [polynya, "bench", "lake", "--rate", rate, "--measure", time, "--quiet", "2s", "--keep", "--json"]
    done = subprocess.run([*run, "--root", str(scratch)], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"the run failed:\n{done.stdout[:2000]}")
    config = json.loads(done.stdout)["config"]
    expected = int(config["rows"]), int(config["sum"])
    assert expected[0] > 0, config
    for name, read in [("DuckDB", by_duckdb), ("PyIceberg", by_pyiceberg)]:
        found = read(config["metadata"])
        assert found == expected, f"{name} found {found}, acknowledged were {expected}"
        print(f"{name}: {found[0]} rows, sum {found[1]}, as acknowledged")
    shutil.rmtree(scratch)


main()
