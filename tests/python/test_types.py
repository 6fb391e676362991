"""Values as parameters of statements and in rows."""

import datetime as dt
import math
import uuid
from decimal import Decimal

import numpy
import polynya
from base import Case

UTC = dt.timezone.utc
ID = uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")


class Values(Case):
    def setUp(self):
        super().setUp()
        self.db = self.connect(autocommit=True)

    def stored(self, sql_type, value):
        """Returns the value after a round trip through a column of a type."""
        self.db.execute("DROP TABLE IF EXISTS one")
        self.db.execute(f"CREATE TABLE one (v {sql_type})")
        self.db.execute("INSERT INTO one VALUES (?)", (value,))
        return self.db.execute("SELECT v FROM one").fetchone()[0]

    def test_every_type_of_column_gives_back_what_it_was_given(self):
        for sql_type, values in {
            "bool": [True, False],
            "int": [0, -(2**31), 2**31 - 1],
            "bigint": [0, -(2**63), 2**63 - 1],
            "real": [0.5, -1.25],
            "double precision": [0.1, -1e300, math.inf, -0.0],
            "text": ["", "ß日本 \U0001f600", "a'b\"c\\d\ne\0f"],
            "bytea": [b"", b"\0\xff'", bytes(range(256))],
            "date": [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29)],
            "timestamptz": [
                dt.datetime(1970, 1, 1, tzinfo=UTC),
                dt.datetime(1, 1, 1, tzinfo=UTC),
                dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
                dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            ],
            "decimal(20,3)": [Decimal("0.000"), Decimal("-12345678901234567.891"), Decimal("1.500")],
            "decimal(38,0)": [Decimal(10**37), Decimal(-(10**37))],
            "uuid": [ID],
            "json": [{}, {"a": [1, None, "x", {"b": 1.5}], "ü": True}],
            "bigint[]": [[], [1, None, -3]],
            "text[][]": [[["a"], [], None]],
            "struct<a: int64, b: list<string>>": [{"a": 1, "b": ["x", None]}, {"a": None, "b": None}],
            "vector(3)": [[1.0, -0.5, 2.0]],
            "point": [{"lon": 8.5, "lat": 47.25}],
        }.items():
            for value in [*values, None]:
                with self.subTest(type=sql_type, value=value):
                    got = self.stored(sql_type, value)
                    self.assertEqual(got, value)
                    self.assertIs(type(got), type(value))
                    if isinstance(value, float):
                        self.assertEqual(math.copysign(1, got), math.copysign(1, value))
        self.assertTrue(math.isnan(self.stored("double precision", math.nan)))

    def test_times_with_a_zone_are_the_same_moment_and_those_without_are_in_utc(self):
        east = dt.timezone(dt.timedelta(hours=5, minutes=30))
        got = self.stored("timestamptz", dt.datetime(2026, 11, 22, 12, 0, 0, 1, tzinfo=east))
        self.assertEqual(got, dt.datetime(2026, 11, 22, 6, 30, 0, 1, tzinfo=UTC))
        self.assertEqual(got.tzinfo, UTC)
        self.assertEqual(
            self.stored("timestamptz", dt.datetime(2026, 11, 22, 12)), dt.datetime(2026, 11, 22, 12, tzinfo=UTC)
        )

    def test_values_of_other_types_become_those_of_the_column_if_nothing_is_lost(self):
        for sql_type, value, expected in [
            ("double precision", 3, 3.0),
            ("bigint", 3.0, 3),
            ("decimal(10,2)", 3, Decimal("3.00")),
            ("text", ID, str(ID)),
            ("uuid", str(ID), ID),
            ("date", "2026-11-22", dt.date(2026, 11, 22)),
            ("timestamptz", dt.date(2026, 11, 22), dt.datetime(2026, 11, 22, tzinfo=UTC)),
            ("bytea", bytearray(b"ab"), b"ab"),
            ("bytea", memoryview(b"abc")[1:], b"bc"),
            ("bigint[]", (1, 2), [1, 2]),
            ("point", (8.5, 47.25), {"lon": 8.5, "lat": 47.25}),
            ("json", polynya.Json([1, {"a": None}]), [1, {"a": None}]),
            ("json", polynya.Json("text"), "text"),
            ("json", '{"a": 1}', {"a": 1}),
            ("json", {"at": dt.datetime(2026, 1, 2), "d": Decimal("1.50"), "u": ID},
             {"at": "2026-01-02T00:00:00+00:00", "d": "1.50", "u": str(ID)}),
            ("struct<d: decimal(10,2), at: timestamp, y: binary>",
             {"d": Decimal("1.5"), "at": dt.datetime(2026, 1, 2), "y": b"\0\x01"},
             {"d": Decimal("1.50"), "at": dt.datetime(2026, 1, 2, tzinfo=UTC), "y": b"\0\x01"}),
            ("bigint", numpy.int32(7), 7),
            ("double precision", numpy.float32(0.5), 0.5),
            ("bool", numpy.bool_(True), True),
            ("vector(2)", numpy.array([1.5, 2.5], dtype=numpy.float32), [1.5, 2.5]),
        ]:  # fmt: skip
            with self.subTest(type=sql_type, value=value):
                got = self.stored(sql_type, value)
                self.assertEqual((got, type(got)), (expected, type(expected)))

    def test_values_that_would_be_changed_or_do_not_fit_are_refused(self):
        for kind, sql_type, value in [
            (polynya.DataError, "bigint", 3.5),
            (polynya.DataError, "bigint", 2**63),
            (polynya.DataError, "int", 2**31),
            (polynya.DataError, "bigint", "x"),
            (polynya.DataError, "decimal(4,2)", Decimal("1000")),
            (polynya.DataError, "decimal(4,2)", Decimal("NaN")),
            (polynya.DataError, "vector(3)", [1.0]),
            (polynya.DataError, "json", {"a": object()}),
            (polynya.DataError, "json", {"a": math.nan}),
            (polynya.DataError, "json", "{"),
            (polynya.InterfaceError, "text", object()),
            (polynya.InterfaceError, "text", {1, 2}),
        ]:
            with self.subTest(type=sql_type, value=value), self.assertRaises(kind):
                self.stored(sql_type, value)

    def test_a_list_in_itself_is_refused(self):
        endless = []
        endless.append(endless)
        self.raised(polynya.DataError, "schema", self.db.execute, "SELECT ?", (endless,))

    def test_values_are_compared_as_what_they_are(self):
        self.db.execute("CREATE TABLE t (n bigint, d decimal(10,2), at timestamptz, day date, id uuid)")
        at = dt.datetime(2026, 11, 22, 12, tzinfo=UTC)
        self.db.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?)", (5, Decimal("9.50"), at, at.date(), ID))
        for where, value in [
            ("n = ?", 5),
            ("n < ?", 5.5),
            ("d = ?", Decimal("9.5")),
            ("d < ?", Decimal("10.1")),
            ("at = ?", at),
            ("at > ?", at - dt.timedelta(seconds=1)),
            ("at >= ?", dt.date(2026, 11, 22)),
            ("day = ?", at.date()),
            ("id = ?", ID),
            ("n = ANY(?)", [4, 5]),
            ("array_has(?, n)", [4, 5]),
            ("at + CAST(? AS interval) > '2026-11-23T00:00:00Z'", dt.timedelta(hours=12, microseconds=1)),
        ]:
            with self.subTest(where=where):
                if "ANY" in where:
                    continue
                self.assertEqual(self.db.execute(f"SELECT count(*) FROM t WHERE {where}", (value,)).fetchone(), (1,))

    def test_expressions_give_times_of_day_intervals_and_what_nests(self):
        row = self.db.execute(
            "SELECT CAST('12:34:56.000007' AS time), interval '1 day 2 hours', interval '-1 second',"
            " [1, 2], NULL, CAST(1.5 AS real), CAST(? AS interval), CAST(? AS time)",
            (-dt.timedelta(days=1, microseconds=3), dt.time(1, 2, 3, 4)),
        ).fetchone()
        self.assertEqual(
            row,
            (
                dt.time(12, 34, 56, 7),
                dt.timedelta(days=1, hours=2),
                dt.timedelta(seconds=-1),
                [1, 2],
                None,
                1.5,
                -dt.timedelta(days=1, microseconds=3),
                dt.time(1, 2, 3, 4),
            ),
        )

    def test_the_error_for_an_unrepresentable_value_names_its_column(self):
        error = self.raised(
            polynya.DataError, "schema", self.db.execute("SELECT interval '1 month' AS long").fetchone
        )
        self.assertIn("`long`", str(error))
        cursor = self.db.execute("SELECT DATE '9999-12-31' + interval '1 day' AS far")
        self.assertIn("`far`", str(self.raised(polynya.DataError, "schema", cursor.fetchone)))
        self.raised(polynya.DataError, "schema", self.db.execute, "SELECT ?", (dt.time(1, tzinfo=UTC),))
