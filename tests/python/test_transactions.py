"""Implicit transactions of DB-API 2.0, and explicit ones."""

import polynya
from base import Case


class Transactions(Case):
    def setUp(self):
        super().setUp()
        self.db = self.connect()
        self.other = self.connect(autocommit=True)
        self.db.execute("CREATE TABLE t (n bigint PRIMARY KEY, v bigint)")

    def values(self, db):
        return db.execute("SELECT n, v FROM t ORDER BY n").fetchall()

    def test_uncommitted_rows_are_invisible_to_others_and_rolled_back(self):
        self.db.execute("INSERT INTO t VALUES (1, 10)")
        self.assertTrue(self.db.in_transaction)
        self.assertEqual((self.values(self.db), self.values(self.other)), ([(1, 10)], []))
        self.db.rollback()
        self.assertFalse(self.db.in_transaction)
        self.assertEqual(self.values(self.db), [])
        self.db.execute("INSERT INTO t VALUES (2, 20)")
        self.db.commit()
        self.db.commit()
        self.db.rollback()
        self.assertEqual(self.values(self.other), [(2, 20)])

    def test_a_transaction_reads_one_snapshot_from_its_first_read_on(self):
        self.assertEqual(self.values(self.db), [])
        self.other.execute("INSERT INTO t VALUES (1, 10)")
        self.assertEqual(self.values(self.db), [])
        self.db.commit()
        self.assertEqual(self.values(self.db), [(1, 10)])

    def test_no_update_is_lost_between_a_read_and_a_write(self):
        self.other.execute("INSERT INTO t VALUES (1, 10)")
        (v,) = self.db.execute("SELECT v FROM t WHERE n = 1").fetchone()
        self.other.execute("UPDATE t SET v = v + 5 WHERE n = 1")
        self.db.execute("UPDATE t SET v = ? WHERE n = 1", (v + 1,))
        error = self.raised(polynya.ConflictError, "conflict", self.db.commit)
        self.assertIn("n = 1", str(error))
        self.assertFalse(self.db.in_transaction)
        self.assertEqual(self.values(self.db), [(1, 15)])

    def test_a_statement_that_fails_makes_its_transaction_fail(self):
        self.db.execute("INSERT INTO t VALUES (1, 10)")
        self.raised(polynya.IntegrityError, "exists", self.db.execute, "INSERT INTO t VALUES (1, 11)")
        self.raised(polynya.ProgrammingError, "invalid", self.db.execute, "SELECT 1")
        self.raised(polynya.ProgrammingError, "invalid", self.db.commit)
        self.assertEqual(self.values(self.db), [])

    def test_a_first_statement_that_fails_leaves_no_transaction_behind(self):
        self.raised(polynya.ProgrammingError, "not_found", self.db.execute, "SELECT * FROM nowhere")
        self.assertFalse(self.db.in_transaction)
        self.assertEqual(self.db.execute("SELECT 1").fetchall(), [(1,)])

    def test_savepoints_are_statements(self):
        self.db.execute("INSERT INTO t VALUES (1, 10)")
        self.db.execute("SAVEPOINT a")
        self.db.execute("INSERT INTO t VALUES (2, 20)")
        self.raised(polynya.IntegrityError, "exists", self.db.execute, "INSERT INTO t VALUES (1, 11)")
        self.db.execute("ROLLBACK TO a")
        self.db.execute("INSERT INTO t VALUES (3, 30)")
        self.db.execute("RELEASE a")
        self.db.commit()
        self.assertEqual(self.values(self.other), [(1, 10), (3, 30)])

    def test_definitions_end_a_transaction_that_has_only_read_and_no_other(self):
        self.values(self.db)
        self.assertTrue(self.db.in_transaction)
        self.db.execute("/* a (comment) */ CREATE INDEX ON t (v)")
        self.assertFalse(self.db.in_transaction)
        self.db.execute("INSERT INTO t VALUES (1, 10)")
        error = self.raised(polynya.ProgrammingError, "invalid", self.db.execute, "ALTER TABLE t ADD COLUMN w text")
        self.assertIn("commit", error.hint)
        # The transaction continues.
        self.db.commit()
        self.db.execute("ALTER TABLE t ADD COLUMN w text")
        self.assertEqual(self.values(self.other), [(1, 10)])

    def test_rows_of_returning_count_as_written(self):
        self.db.execute("INSERT INTO t VALUES (1, 10) RETURNING n").fetchall()
        self.raised(polynya.ProgrammingError, "invalid", self.db.execute, "DROP TABLE t")
        self.db.commit()
        self.assertEqual(self.values(self.other), [(1, 10)])

    def test_autocommit_commits_each_statement_and_may_be_switched(self):
        self.db.autocommit = True
        self.db.execute("INSERT INTO t VALUES (1, 10)")
        self.assertFalse(self.db.in_transaction)
        self.assertEqual(self.values(self.other), [(1, 10)])
        self.db.autocommit = False
        self.db.execute("INSERT INTO t VALUES (2, 20)")
        with self.assertRaises(polynya.ProgrammingError):
            self.db.autocommit = True
        self.db.rollback()
        self.values(self.db)
        self.db.autocommit = True
        self.assertFalse(self.db.in_transaction)
        self.assertTrue(self.db.autocommit)

    def test_with_autocommit_a_transaction_is_a_block_or_begin(self):
        with self.other.transaction():
            self.other.execute("INSERT INTO t VALUES (1, 10)")
            self.assertEqual(self.values(self.db), [])
        self.db.rollback()
        self.assertEqual(self.values(self.db), [(1, 10)])
        with self.assertRaises(ZeroDivisionError):
            with self.other.transaction():
                self.other.execute("INSERT INTO t VALUES (2, 20)")
                1 / 0
        self.other.execute("BEGIN")
        self.assertTrue(self.other.in_transaction)
        self.other.execute("INSERT INTO t VALUES (3, 30)")
        self.other.execute("COMMIT")
        self.assertEqual(self.values(self.other), [(1, 10), (3, 30)])

    def test_a_connection_as_a_block_commits_or_rolls_back_and_closes(self):
        with polynya.connect(self.dir) as db:
            db.execute("INSERT INTO t VALUES (1, 10)")
        self.assertTrue(db.closed)
        with self.assertRaises(ZeroDivisionError):
            with polynya.connect(self.dir) as db:
                db.execute("INSERT INTO t VALUES (2, 20)")
                1 / 0
        self.assertTrue(db.closed)
        self.assertEqual(self.values(self.other), [(1, 10)])

    def test_an_answer_that_breaks_off_makes_its_transaction_fail(self):
        self.db.executemany("INSERT INTO t VALUES (?, ?)", [(n, n - 5_000) for n in range(20_000)])
        cursor = self.db.execute("SELECT 1 / v FROM t ORDER BY n")
        self.raised(polynya.ProgrammingError, "invalid", cursor.fetchall)
        self.raised(polynya.ProgrammingError, "invalid", self.db.commit)
        self.assertEqual(self.values(self.other), [])
        # Rows of a finished transaction that break off do not affect the next one.
        self.db.executemany("INSERT INTO t VALUES (?, ?)", [(n, n - 19_000) for n in range(20_000)])
        cursor = self.db.execute("SELECT 1 / v FROM t ORDER BY n")
        self.db.commit()
        self.db.execute("DELETE FROM t")
        with self.assertRaises(polynya.ProgrammingError):
            cursor.fetchall()
        self.db.commit()
        self.assertEqual(self.values(self.other), [])

    def test_appended_rows_belong_to_the_transaction(self):
        import pyarrow

        rows = pyarrow.table({"n": [1, 2], "v": [10, 20]})
        self.assertEqual(self.db.append("t", rows), 2)
        self.assertEqual((len(self.values(self.db)), self.values(self.other)), (2, []))
        self.db.rollback()
        self.assertEqual(self.values(self.db), [])
