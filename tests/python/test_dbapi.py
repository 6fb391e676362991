"""The requirements of DB-API 2.0 (PEP 249), and this package's choices where the standard leaves them open."""

import pickle

import polynya
from base import Case


class Module(Case):
    def test_the_module_says_what_it_is(self):
        self.assertEqual((polynya.apilevel, polynya.threadsafety, polynya.paramstyle), ("2.0", 2, "qmark"))
        self.assertEqual(polynya.__version__, "0.1.0")
        for name in polynya.__all__:
            self.assertTrue(hasattr(polynya, name), name)

    def test_the_exceptions_are_related_as_pep_249_draws_them(self):
        for child, parent in [
            (polynya.Warning, Exception),
            (polynya.Error, Exception),
            (polynya.InterfaceError, polynya.Error),
            (polynya.DatabaseError, polynya.Error),
            (polynya.DataError, polynya.DatabaseError),
            (polynya.OperationalError, polynya.DatabaseError),
            (polynya.IntegrityError, polynya.DatabaseError),
            (polynya.InternalError, polynya.DatabaseError),
            (polynya.ProgrammingError, polynya.DatabaseError),
            (polynya.NotSupportedError, polynya.DatabaseError),
            (polynya.ConflictError, polynya.OperationalError),
        ]:
            self.assertIs(child.__base__, parent)

    def test_types_of_columns_equal_the_groups_of_pep_249(self):
        db = self.connect(autocommit=True)
        cursor = db.execute(
            "SELECT 1 AS i, 1.5 AS f, 'x' AS s, true AS b, CAST('1.50' AS decimal(10,2)) AS d, DATE '2026-01-02' AS day,"
            " now() AS t, CAST('x' AS bytea) AS y"
        )
        self.assertEqual([column[0] for column in cursor.description], ["i", "f", "s", "b", "d", "day", "t", "y"])
        self.assertTrue(all(len(column) == 7 for column in cursor.description))
        groups = [
            [name for name in ("STRING", "BINARY", "NUMBER", "DATETIME") if getattr(polynya, name) == column[1]]
            for column in cursor.description
        ]
        self.assertEqual(
            groups, [["NUMBER"], ["NUMBER"], ["STRING"], ["NUMBER"], ["NUMBER"], ["DATETIME"], ["DATETIME"], ["BINARY"]]
        )
        self.assertEqual(cursor.description[4][1:], ("decimal(10,2)", None, None, 10, 2, None))
        self.assertNotEqual(polynya.STRING, polynya.NUMBER)


class Rows(Case):
    def setUp(self):
        super().setUp()
        self.db = self.connect(autocommit=True)
        self.db.execute("CREATE TABLE t (n bigint PRIMARY KEY, s text)")
        self.db.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"s{n}") for n in range(10)])

    def test_rows_are_fetched_one_by_one_some_at_a_time_and_all(self):
        cursor = self.db.cursor()
        self.assertIs(cursor.execute("SELECT n, s FROM t ORDER BY n"), cursor)
        self.assertEqual(cursor.fetchone(), (0, "s0"))
        self.assertEqual(cursor.fetchmany(), [(1, "s1")])
        self.assertEqual(cursor.fetchmany(2), [(2, "s2"), (3, "s3")])
        cursor.arraysize = 3
        self.assertEqual([row[0] for row in cursor.fetchmany()], [4, 5, 6])
        self.assertEqual(next(cursor), (7, "s7"))
        self.assertEqual(cursor.rowcount, -1)
        self.assertEqual([row[0] for row in cursor], [8, 9])
        self.assertEqual(cursor.rowcount, 10)
        self.assertEqual((cursor.fetchone(), cursor.fetchmany(5), cursor.fetchall()), (None, [], []))
        with self.assertRaises(StopIteration):
            next(cursor)

    def test_a_cursor_is_used_again_and_forgets_the_rows_before(self):
        cursor = self.db.cursor()
        cursor.execute("SELECT n FROM t ORDER BY n")
        cursor.fetchone()
        cursor.execute("SELECT s FROM t WHERE n = 3")
        self.assertEqual(cursor.fetchall(), [("s3",)])
        cursor.execute("DELETE FROM t WHERE n = 3")
        self.assertIsNone(cursor.description)
        self.raised(polynya.InterfaceError, "invalid", cursor.fetchone)

    def test_an_answer_without_rows_has_columns_all_the_same(self):
        cursor = self.db.execute("SELECT n, s FROM t WHERE n > 100")
        self.assertEqual([column[0] for column in cursor.description], ["n", "s"])
        self.assertEqual(cursor.fetchall(), [])

    def test_rowcount_is_what_a_statement_changed(self):
        cursor = self.db.cursor()
        for sql, count in [
            ("UPDATE t SET s = 'x' WHERE n < 4", 4),
            ("DELETE FROM t WHERE n > 100", 0),
            ("INSERT INTO t VALUES (20, 'a'), (21, 'b')", 2),
            ("CREATE TABLE u (n bigint)", -1),
            ("TRUNCATE t", 12),
        ]:
            cursor.execute(sql)
            self.assertEqual(cursor.rowcount, count, sql)

    def test_returning_gives_rows_and_their_count(self):
        cursor = self.db.execute("UPDATE t SET s = 'y' WHERE n < 3 RETURNING n, s")
        self.assertEqual(cursor.rowcount, 3)
        self.assertEqual(sorted(cursor), [(0, "y"), (1, "y"), (2, "y")])

    def test_values_stand_for_marks_and_numbers(self):
        def one(sql, *values):
            return self.db.execute(sql, values).fetchone()

        self.assertEqual(one("SELECT s FROM t WHERE n = ?", 4), ("s4",))
        self.assertEqual(one("SELECT s FROM t WHERE n = $1", 4), ("s4",))
        self.assertEqual(one("SELECT $2, $1, $2", 1, "b"), ("b", 1, "b"))
        self.assertEqual(one("SELECT ?, ?", "a", "b"), ("a", "b"))
        # Question marks in texts, names and comments are literal.
        self.assertEqual(one("SELECT '?', ?, 'it''s ?' /* ? /* ? */ ? */ -- ?\n, ?", 1, 2), ("?", 1, "it's ?", 2))
        self.assertEqual(one('SELECT ? AS "a?b", E\'\\\'?\', $$?$$, $x$?$$?$x$', 1), (1, "'?", "?", "?$$?"))
        self.assertEqual(one("SELECT '--', ?", 1), ("--", 1))
        self.assertEqual(one("SELECT 'a\\', ?", 1), ("a\\", 1))
        self.assertEqual(one("SELECT n FROM t WHERE n=?AND s=?", 4, "s4"), (4,))
        self.assertEqual(one("SELECT 'ß?', ?, '日本', ?", "é", "本"), ("ß?", "é", "日本", "本"))
        self.raised(polynya.ProgrammingError, "invalid", one, "SELECT ?, $1", 1, 2)

    def test_the_number_of_values_must_be_that_of_the_marks(self):
        execute = self.db.execute
        for sql, values in [("SELECT ?", ()), ("SELECT ?, ?", (1,)), ("SELECT 1", (1,)), ("SELECT $2", (1,))]:
            self.raised(polynya.ProgrammingError, "invalid", execute, sql, values)
        for values in ["a", b"a", {"a": 1}, 7]:
            self.raised(polynya.InterfaceError, "invalid", execute, "SELECT ?", values)

    def test_a_half_read_answer_does_not_keep_others_from_running(self):
        self.db.executemany("INSERT INTO t VALUES (?, 'more')", [(n,) for n in range(100, 30_000)])
        kept = [self.db.execute("SELECT n, s FROM t") for _ in range(3)]
        for cursor in kept:
            cursor.fetchone()
        self.assertEqual(self.db.execute("SELECT count(*) FROM t").fetchone(), (29_910,))
        for cursor in kept:
            self.assertEqual(len(cursor.fetchall()), 29_909)

    def test_a_large_batch_behind_a_small_one_is_read_from_its_beginning(self):
        few, many = "SELECT g FROM generate_series(1, 7) AS t(g)", "SELECT g FROM generate_series(8, 5000) AS t(g)"
        for parts in [(few, many), (many, few)] * 3:
            cursor = self.db.execute(" UNION ALL ".join(parts))
            rows = [cursor.fetchone()] + cursor.fetchmany(6) + cursor.fetchall()
            self.assertEqual(sorted(n for (n,) in rows), list(range(1, 5001)))
            self.assertEqual(cursor.rowcount, 5000)

    def test_executemany_sums_up_and_is_all_or_nothing(self):
        cursor = self.db.executemany("UPDATE t SET s = ? WHERE n < ?", [("a", 3), ("b", 5)])
        self.assertEqual(cursor.rowcount, 8)
        rows = [(100,), (101,), (0,)]
        self.raised(
            polynya.IntegrityError, "exists", self.db.executemany, "INSERT INTO t VALUES (?, 'new')", rows
        )
        self.assertEqual(self.db.execute("SELECT count(*) FROM t WHERE s = 'new'").fetchone(), (0,))
        self.raised(polynya.InterfaceError, "invalid", self.db.executemany, "SELECT ?", [(1,)])
        self.assertFalse(self.db.in_transaction)

        def broken():
            yield (200,)
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            self.db.executemany("INSERT INTO t VALUES (?, 'new')", broken())
        self.assertEqual(self.db.execute("SELECT count(*) FROM t WHERE s = 'new'").fetchone(), (0,))
        self.assertEqual(self.db.executemany("INSERT INTO t VALUES (?, 'new')", iter([])).rowcount, 0)
        # Rows of one statement are the parameters of another.
        self.db.execute("CREATE TABLE copy (n bigint, s text)")
        self.db.executemany("INSERT INTO copy VALUES (?, ?)", self.db.execute("SELECT n, s FROM t"))
        self.assertEqual(self.db.execute("SELECT count(*) FROM copy").fetchone(), (10,))

    def test_closed_objects_raise_an_error(self):
        cursor = self.db.execute("SELECT 1")
        cursor.close()
        self.raised(polynya.InterfaceError, "invalid", cursor.fetchone)
        self.raised(polynya.InterfaceError, "invalid", cursor.execute, "SELECT 1")
        with self.db.cursor() as cursor:
            cursor.execute("SELECT 1")
        self.raised(polynya.InterfaceError, "invalid", cursor.fetchall)
        cursor = self.db.cursor()
        self.assertIs(cursor.connection, self.db)
        self.db.close()
        self.db.close()
        self.assertTrue(self.db.closed)
        for call in [self.db.cursor, self.db.commit, self.db.rollback, lambda: cursor.execute("SELECT 1")]:
            self.raised(polynya.InterfaceError, "invalid", call)


class Errors(Case):
    def test_each_kind_of_error_has_its_class_code_and_hint(self):
        db = self.connect(autocommit=True)
        db.execute("CREATE TABLE t (n bigint PRIMARY KEY, s text NOT NULL)")
        db.execute("INSERT INTO t VALUES (1, 'a')")
        for kind, code, sql in [
            (polynya.ProgrammingError, "invalid", "SELEC 1"),
            (polynya.ProgrammingError, "not_found", "SELECT * FROM nowhere"),
            (polynya.ProgrammingError, "invalid", "SELECT nothing FROM t"),
            (polynya.DataError, "schema", "INSERT INTO t VALUES (2, NULL)"),
            (polynya.DataError, "schema", "INSERT INTO t VALUES ('x', 'a')"),
            (polynya.IntegrityError, "exists", "INSERT INTO t VALUES (1, 'b')"),
            (polynya.IntegrityError, "exists", "CREATE TABLE t (n bigint)"),
            (polynya.ProgrammingError, "invalid", "COMMIT"),
        ]:
            error = self.raised(kind, code, db.execute, sql)
            self.assertTrue(str(error).startswith(error.message), sql)
        error = self.raised(polynya.ProgrammingError, "not_found", db.execute, "SELECT * FROM tt")
        self.assertIn("`t`", error.hint)
        self.assertIn(error.hint, str(error))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again), again.code, again.hint), (type(error), str(error), error.code, error.hint))

    def test_a_limit_is_an_operational_error(self):
        db = self.connect(autocommit=True, timeout=0.3, rows_max=1000)
        many = "SELECT count(*) FROM generate_series(1, 1000000) a(v), generate_series(1, 1000000) b(v) WHERE a.v + b.v < 0"
        self.raised(polynya.OperationalError, "timeout", lambda: db.execute(many).fetchall())
        cursor = db.execute("SELECT * FROM generate_series(1, 1001)")
        self.raised(polynya.OperationalError, "too_large", cursor.fetchall)

    def test_settings_that_make_no_sense_are_refused(self):
        self.raised(polynya.InterfaceError, "invalid", polynya.connect, self.dir, timeout=-1)
        self.raised(polynya.InterfaceError, "invalid", polynya.connect, self.dir, timeout=float("nan"))
        self.connect(timeout=5)
        self.raised(polynya.InterfaceError, "invalid", polynya.connect, self.dir, timeout=6)
        self.connect(timeout=5)
        self.connect()

    def test_a_folder_that_cannot_be_made_is_an_operational_error(self):
        self.dir.parent.joinpath("file").write_text("x")
        self.raised(polynya.OperationalError, "io", polynya.connect, self.root / "file" / "db")


if __name__ == "__main__":
    import unittest

    unittest.main()
