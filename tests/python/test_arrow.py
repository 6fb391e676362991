"""Rows as Arrow data: exported without a copy, imported with one."""

import datetime as dt
import gc
from decimal import Decimal

import duckdb
import numpy
import polars
import polynya
import pyarrow as pa
from base import Case, resident_bytes

UTC = dt.timezone.utc
ROWS = 1_000_000

COLUMNS = {
    "b": ("bool", pa.bool_(), [True, None, False]),
    "i": ("int", pa.int32(), [1, None, -3]),
    "l": ("bigint", pa.int64(), [2**40, None, -3]),
    "r": ("real", pa.float32(), [0.5, None, -1.0]),
    "g": ("double precision", pa.float64(), [0.1, None, float("inf")]),
    "d": ("decimal(20,3)", pa.decimal128(20, 3), [Decimal("1.500"), None, Decimal("-99999.125")]),
    "s": ("text", pa.string(), ["", None, "ß日本"]),
    "y": ("bytea", pa.binary(), [b"", None, b"\0\xff"]),
    "day": ("date", pa.date32(), [dt.date(2026, 11, 22), None, dt.date(1, 1, 1)]),
    "at": ("timestamptz", pa.timestamp("us", "UTC"), [dt.datetime(2026, 11, 22, tzinfo=UTC), None, dt.datetime(1969, 1, 1, tzinfo=UTC)]),
    "li": ("bigint[]", pa.list_(pa.int64()), [[1, None], None, []]),
    "ls": ("text[]", pa.list_(pa.string()), [["a", None], None, []]),
    "st": ("struct<a: int64, b: list<string>>", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
           [{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),
    "v": ("vector(2)", pa.list_(pa.float32(), 2), [[1.0, 2.0], None, [0.0, -1.5]]),
}  # fmt: skip


def addresses(table):
    """Returns the addresses of a table's buffers."""
    return {
        buffer.address
        for column in table.columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None and buffer.size > 0
    }


class Out(Case):
    def setUp(self):
        super().setUp()
        self.db = self.connect(autocommit=True)
        columns = ", ".join(f"{name} {sql}" for name, (sql, _, _) in COLUMNS.items())
        self.db.execute(f"CREATE TABLE t (k bigint PRIMARY KEY, {columns})")
        arrays = {name: pa.array(values, type=arrow) for name, (_, arrow, values) in COLUMNS.items()}
        self.rows = pa.table({"k": [1, 2, 3], **arrays})
        self.assertEqual(self.db.append("t", self.rows), 3)

    def test_rows_as_arrow_equal_rows_as_tuples(self):
        table = self.db.execute("SELECT * FROM t ORDER BY k").fetch_arrow_table()
        tuples = self.db.execute("SELECT * FROM t ORDER BY k").fetchall()
        self.assertEqual([tuple(row.values()) for row in table.to_pylist()], tuples)
        self.assertEqual(table.to_pylist(), self.rows.to_pylist())
        for name, (_, arrow, _) in COLUMNS.items():
            self.assertEqual(table.schema.field(name).type.id, arrow.id, name)

    def test_pyarrow_polars_and_duckdb_read_them_without_knowing_polynya(self):
        sql = "SELECT k, s, d, at, li, day FROM t ORDER BY k"
        expected = self.rows.select(["k", "s", "d", "at", "li", "day"]).to_pylist()
        self.assertEqual(pa.table(self.db.execute(sql)).to_pylist(), expected)
        self.assertEqual(pa.table(self.db.execute(sql).fetch_arrow()).to_pylist(), expected)
        self.assertEqual(polars.DataFrame(self.db.execute(sql).fetch_arrow()).to_dicts(), expected)
        self.assertEqual(polars.DataFrame(self.db.execute(sql)).to_dicts(), expected)
        rows = self.db.execute(sql).fetch_record_batch()  # noqa: F841 - DuckDB finds it by its name
        self.assertEqual(duckdb.sql("SELECT sum(k), max(s), count(d) FROM rows").fetchall(), [(6, "ß日本", 2)])

    def test_fetched_rows_are_not_returned_again_and_arrow_rows_are_taken_once(self):
        cursor = self.db.execute("SELECT k FROM t ORDER BY k")
        self.assertEqual(cursor.fetchone(), (1,))
        rows = cursor.fetch_arrow()
        self.assertEqual(pa.table(rows).to_pydict(), {"k": [2, 3]})
        self.raised(polynya.InterfaceError, "invalid", rows.__arrow_c_stream__)
        self.assertEqual(cursor.fetchall(), [])
        self.assertEqual(pa.table(cursor).num_rows, 0)

    def test_an_answer_without_rows_has_its_columns(self):
        table = self.db.execute("SELECT k, s, st FROM t WHERE k > 9").fetch_arrow_table()
        self.assertEqual((table.num_rows, table.column_names), (0, ["k", "s", "st"]))
        self.raised(polynya.InterfaceError, "invalid", self.db.execute("CREATE TABLE u (n int)").fetch_arrow)

    def test_columns_of_one_name_and_of_every_odd_type_come_through(self):
        table = self.db.execute(
            "SELECT CAST(1 AS tinyint) AS a, interval '1 month 2 days' AS b, CAST('01:02:03' AS time) AS c,"
            " arrow_cast('x', 'Dictionary(Int32, Utf8)') AS d, arrow_cast('long enough for a view', 'Utf8View') AS e,"
            " arrow_cast('y', 'BinaryView') AS f, NULL AS g, arrow_cast([1, 2], 'LargeList(Int64)') AS h,"
            " map(['k'], [1]) AS i, arrow_cast(5, 'Duration(Second)') AS j"
        ).fetch_arrow_table()
        table.validate(full=True)
        row = table.to_pylist()[0]
        self.assertEqual((row["d"], row["e"], row["f"], row["g"], row["h"]), ("x", "long enough for a view", b"y", None, [1, 2]))
        self.assertEqual((row["i"], row["j"], row["c"]), ([("k", 1)], dt.timedelta(seconds=5), dt.time(1, 2, 3)))
        self.assertEqual((row["b"].months, row["b"].days), (1, 2))

    def test_an_error_while_rows_are_read_keeps_its_class(self):
        self.db.execute("CREATE TABLE z AS SELECT value AS v FROM generate_series(0, 20000) AS s(value)")
        sql = "SELECT 1 / (v - 15000) FROM z"
        self.raised(polynya.ProgrammingError, "invalid", self.db.execute(sql).fetch_arrow_table)
        with self.assertRaisesRegex(Exception, "zero"):
            pa.table(self.db.execute(sql))


class Memory(Case):
    def setUp(self):
        super().setUp()
        self.db = self.connect(autocommit=True)
        self.db.execute("CREATE TABLE big (n bigint, x double precision, s text)")
        numbers = numpy.arange(ROWS)
        rows = pa.table({"n": numbers, "x": numbers / 3, "s": pa.array(numbers % 1000).cast(pa.string())})
        self.assertEqual(self.db.append("big", rows), ROWS)
        del rows, numbers

    def test_two_readers_are_given_the_same_memory(self):
        with self.db.snapshot() as snapshot:
            first, second = pa.table(snapshot.scan("big")), pa.table(snapshot.scan("big"))
        self.assertEqual(first.num_rows, ROWS)
        self.assertGreater(len(addresses(first)), 0)
        self.assertEqual(addresses(first), addresses(second))
        # The same holds for columns that a SQL statement returns unchanged.
        sql = "SELECT n, x, s FROM big"
        first, second = self.db.execute(sql).fetch_arrow_table(), self.db.execute(sql).fetch_arrow_table()
        self.assertEqual(addresses(first), addresses(second))

    def test_a_million_rows_are_taken_over_without_memory(self):
        scanned = pa.table(self.db.snapshot().scan("big"))
        size = scanned.nbytes
        self.assertGreater(size, 20 << 20)
        before = resident_bytes()
        held = [pa.table(self.db.snapshot().scan("big")) for _ in range(10)]
        grown = resident_bytes() - before
        self.assertEqual(sum(table.num_rows for table in held), 10 * ROWS)
        self.assertLess(grown, size / 2, f"ten tables of {size} bytes took {grown} more")

    def test_a_reader_of_a_million_rows_needs_the_memory_of_a_few_batches(self):
        sql = "SELECT n, x * 2 AS x, concat(s, ' and more') AS s FROM big"
        for _ in range(2):
            # The first statement allocates memory that stays.
            self.assertEqual(sum(batch.num_rows for batch in self.db.execute(sql).fetch_record_batch()), ROWS)
        gc.collect()
        before, most, rows = resident_bytes(), 0, 0
        cursor = self.db.execute(sql)
        while some := cursor.fetchmany(10_000):
            rows += len(some)
            most = max(most, resident_bytes() - before)
        self.assertEqual(rows, ROWS)
        reader = self.db.execute(sql).fetch_record_batch()
        for batch in reader:
            rows += batch.num_rows
            most = max(most, resident_bytes() - before)
        self.assertEqual(rows, 2 * ROWS)
        whole = self.db.execute(sql).fetch_arrow_table()
        self.assertLess(most, whole.nbytes / 3, f"{most} bytes for an answer of {whole.nbytes}")

    def test_rows_that_were_taken_stay_when_the_database_is_closed(self):
        table = pa.table(self.db.snapshot().scan("big"))
        expected = table.slice(ROWS - 10).to_pydict()
        self.db.execute("DROP TABLE big")
        self.db.close()
        self.assertEqual(table.slice(ROWS - 10).to_pydict(), expected)
        table.validate(full=True)


class In(Case):
    def setUp(self):
        super().setUp()
        self.db = self.connect(autocommit=True)

    def appended(self, columns, data, **options):
        self.db.execute("DROP TABLE IF EXISTS t")
        self.db.execute(f"CREATE TABLE t ({columns})")
        count = self.db.append("t", data, **options)
        table = self.db.execute("SELECT * FROM t ORDER BY _row_id").fetch_arrow_table()
        self.assertEqual(table.num_rows, count)
        return table.to_pylist()

    def test_tables_batches_readers_frames_and_results_are_taken(self):
        rows = pa.table({"n": [1, 2, 3], "s": ["a", None, "c"]})
        expected = rows.to_pylist()
        for data in [
            rows,
            rows.to_batches()[0],
            rows.to_reader(max_chunksize=1),
            polars.DataFrame(rows),
            duckdb.sql("SELECT * FROM (VALUES (1, 'a'), (2, NULL), (3, 'c')) v(n, s)").fetch_record_batch(),
        ]:
            with self.subTest(type=type(data)):
                self.assertEqual(self.appended("n bigint, s text", data), expected)
        self.assertEqual(self.appended("n bigint, s text", rows.slice(0, 0)), [])
        # Rows of one table are appended to another.
        self.appended("n bigint, s text", rows)
        self.db.execute("CREATE TABLE u (n bigint, s text)")
        self.assertEqual(self.db.append("u", self.db.execute("SELECT n, s FROM t")), 3)

    def test_a_slice_of_anything_is_what_is_appended(self):
        from test_arrow import COLUMNS

        arrays = {name: pa.array(values * 50, type=arrow) for name, (_, arrow, values) in COLUMNS.items()}
        rows = pa.table(arrays)
        columns = ", ".join(f"{name} {sql}" for name, (sql, _, _) in COLUMNS.items())
        for offset, length in [(0, 150), (1, 5), (7, 64), (13, 100), (149, 1), (20, 0)]:
            with self.subTest(offset=offset, length=length):
                part = rows.slice(offset, length)
                self.assertEqual(self.appended(columns, part), part.to_pylist())
        whole = pa.chunked_array([pa.array([None, None], pa.int64()), pa.array([1], pa.int64())])
        self.assertEqual([row["n"] for row in self.appended("n bigint", pa.table({"n": whole}))], [None, None, 1])

    def test_other_encodings_of_the_same_values_are_taken(self):
        values = ["one", None, "three, which is too long to lie within a view", "one"] * 3
        times = [dt.datetime(2026, 11, 22, 1, 2, 3), None, dt.datetime(1960, 1, 1)]
        for sql, array, expected in [
            ("text", pa.array(values, pa.large_string()), values),
            ("text", pa.array(values, pa.string_view()), values),
            ("text", pa.array(values).dictionary_encode(), values),
            ("text", pa.array(values).dictionary_encode().slice(2, 5), values[2:7]),
            ("text", pa.array(values, pa.string_view()).slice(1, 3), values[1:4]),
            ("bytea", pa.array([b"x" * 20, None], pa.binary_view()), [b"x" * 20, None]),
            ("bytea", pa.array([b"abc", None], pa.binary(3)), [b"abc", None]),
            ("bigint", pa.array([1, None, 3], pa.int8()), [1, None, 3]),
            ("bigint", pa.array([1, 2**32 - 1], pa.uint32()), [1, 2**32 - 1]),
            ("double precision", pa.array([0.5, None], pa.float32()), [0.5, None]),
            ("bigint", pa.array([None, None], pa.null()), [None, None]),
            ("timestamptz", pa.array(times, pa.timestamp("s")), [t and t.replace(tzinfo=UTC) for t in times]),
            ("timestamptz", pa.array(times, pa.timestamp("ns")), [t and t.replace(tzinfo=UTC) for t in times]),
            ("bigint[]", pa.array([[1], None, []], pa.large_list(pa.int32())), [[1], None, []]),
            ("text[]", pa.array([["a", None]], pa.list_(pa.string_view())), [["a", None]]),
            ("text[]", pa.array([["a"], ["b", "a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), [["a"], ["b", "a"]]),
            ("decimal(20,3)", pa.array([Decimal("1.5")], pa.decimal128(10, 2)), [Decimal("1.500")]),
        ]:
            with self.subTest(type=str(array.type)):
                self.assertEqual([row["v"] for row in self.appended(f"v {sql}", pa.table({"v": array}))], expected)

    def test_columns_go_by_name_and_missing_ones_get_their_default(self):
        rows = self.appended("k bigint, a text DEFAULT 'none', b bigint", pa.table({"b": [1], "k": [2]}))
        self.assertEqual(rows, [{"k": 2, "a": "none", "b": 1}])

    def test_rows_that_do_not_fit_are_refused_and_leave_nothing(self):
        self.db.execute("CREATE TABLE t (n int NOT NULL, s text, j json, l json[])")
        for kind, data in [
            (polynya.DataError, pa.table({"n": [1, None]})),
            (polynya.DataError, pa.table({"n": [1, 2**40]})),
            (polynya.DataError, pa.table({"n": [1], "x": [1]})),
            (polynya.DataError, pa.table({"n": ["x"]})),
            (polynya.DataError, pa.table({"n": [1, 2], "j": ["{}", "{"]})),
            (polynya.DataError, pa.table({"n": [1], "j": pa.array([""], pa.string_view())})),
            (polynya.DataError, pa.table({"n": [1], "l": [["1", "one"]]})),
            (polynya.ProgrammingError, pa.array([1, 2])),
            (polynya.InterfaceError, [1, 2]),
            (polynya.InterfaceError, None),
        ]:
            with self.assertRaises(kind):
                self.db.append("t", data)
        self.raised(polynya.ProgrammingError, "not_found", self.db.append, "nowhere", pa.table({"n": [1]}))
        self.assertEqual(self.db.execute("SELECT count(*) FROM t").fetchone(), (0,))

    def test_keys_are_unique_or_replaced(self):
        self.db.execute("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        self.db.append("t", pa.table({"k": [1, 2], "v": ["a", "b"]}))
        again = pa.table({"k": [2, 3], "v": ["B", "C"]})
        self.raised(polynya.IntegrityError, "exists", self.db.append, "t", again)
        self.assertEqual(self.db.append("t", again, upsert=True), 2)
        self.assertEqual(self.db.execute("SELECT * FROM t ORDER BY k").fetchall(), [(1, "a"), (2, "B"), (3, "C")])

    def test_a_stream_that_fails_says_why(self):
        def batches():
            yield pa.record_batch({"n": [1]})
            raise ValueError("the source broke")

        self.db.execute("CREATE TABLE t (n bigint)")
        reader = pa.RecordBatchReader.from_batches(pa.schema({"n": pa.int64()}), batches())
        with self.assertRaisesRegex(polynya.ProgrammingError, "the source broke"):
            self.db.append("t", reader)
        self.assertEqual(self.db.execute("SELECT count(*) FROM t").fetchone(), (0,))

    def test_memory_that_changes_later_changes_no_row(self):
        numbers = numpy.arange(1000)
        rows = pa.table({"n": numbers})
        self.assertEqual(rows.column(0).chunk(0).buffers()[1].address, numbers.ctypes.data)
        self.db.execute("CREATE TABLE t (n bigint)")
        self.db.append("t", rows)
        numbers[:] = -1
        self.assertEqual(self.db.execute("SELECT min(n), sum(n) FROM t").fetchone(), (0, 499_500))

    def test_more_than_a_commit_takes_goes_in_pieces_and_tells_how_far_it_came(self):
        self.db.execute("CREATE TABLE t (k bigint PRIMARY KEY, x bigint, y bigint)")

        def batches(last):
            for first in range(0, last, 500_000):
                n = numpy.arange(first, first + 500_000)
                yield pa.record_batch({"k": n, "x": n, "y": n})
            yield pa.record_batch({"k": [0], "x": [0], "y": [0]})

        schema = pa.schema({"k": pa.int64(), "x": pa.int64(), "y": pa.int64()})
        reader = pa.RecordBatchReader.from_batches(schema, batches(6_000_000))
        error = self.raised(polynya.IntegrityError, "exists", self.db.append, "t", reader)
        (rows,) = self.db.execute("SELECT count(*) FROM t").fetchone()
        # Two pieces of about 64 MiB, each of whole batches.
        self.assertEqual(rows % 500_000, 0)
        self.assertGreater(rows, 4_000_000)
        self.assertIn(f"rows committed before {rows}", str(error))
