"""Snapshots, reads of the past, lookups by key, the change feed, and the agreement of the stubs with the module."""

import ast
import datetime as dt
import inspect
import threading
from pathlib import Path

import polynya
import pyarrow as pa
from base import Case


class Snapshots(Case):
    def setUp(self):
        super().setUp()
        self.db = self.connect(autocommit=True)
        self.db.execute("CREATE TABLE t (k text, n int, v json, PRIMARY KEY (k, n))")
        self.db.execute("INSERT INTO t VALUES ('a', 1, '{\"x\": [1]}'), ('b', 2, NULL)")

    def test_a_snapshot_does_not_change_and_all_that_is_asked_of_it_stands_at_one_point(self):
        with self.db.snapshot() as then:
            self.assertEqual(then.lsn, self.db.lsn)
            self.db.execute("DELETE FROM t WHERE k = 'a'")
            self.db.execute("CREATE TABLE u (n int)")
            self.assertLess(then.lsn, self.db.lsn)
            self.assertEqual(then.execute("SELECT k FROM t ORDER BY k").fetchall(), [("a",), ("b",)])
            self.assertEqual(then.execute("SELECT n FROM t WHERE k = ?", ("a",)).fetchall(), [(1,)])
            self.assertEqual(pa.table(then.scan("t")).column("k").to_pylist(), ["a", "b"])
            self.assertEqual(then.get("t", "a", 1), {"k": "a", "n": 1, "v": {"x": [1]}})
            self.raised(polynya.ProgrammingError, "not_found", then.execute, "SELECT * FROM u")
            self.raised(polynya.ProgrammingError, "forbidden", then.execute, "DELETE FROM t")
            cursor = then.execute("SELECT 1")
            self.raised(polynya.InterfaceError, "invalid", cursor.executemany, "DELETE FROM t", [()])
        self.raised(polynya.InterfaceError, "invalid", then.execute, "SELECT 1")
        self.raised(polynya.InterfaceError, "invalid", lambda: then.lsn)

    def test_the_past_is_read_by_commit_and_by_time(self):
        before, at = self.db.lsn, dt.datetime.now(dt.timezone.utc)
        threading.Event().wait(0.02)
        self.db.execute("UPDATE t SET v = '{}' WHERE k = 'b'")
        sql = "SELECT v FROM t WHERE k = 'b'"
        self.assertEqual(self.db.snapshot(lsn=before).execute(sql).fetchone(), (None,))
        self.assertEqual(self.db.snapshot(time=at).execute(sql).fetchone(), (None,))
        self.assertEqual(self.db.snapshot(lsn=before).get("t", "b", 2)["v"], None)
        self.assertEqual(self.db.execute("SELECT v FROM t AS OF LSN $1 WHERE k = 'b'", (before,)).fetchone(), (None,))
        self.assertEqual(self.db.execute(sql).fetchone(), ({},))
        self.raised(polynya.ProgrammingError, "invalid", self.db.snapshot, lsn=10**9)
        self.raised(polynya.InterfaceError, "invalid", self.db.snapshot, lsn=1, time=at)
        self.raised(polynya.InterfaceError, "invalid", self.db.snapshot, time="now")

    def test_a_row_is_got_by_its_key(self):
        self.assertEqual(self.db.get("t", "b", 2), {"k": "b", "n": 2, "v": None})
        self.assertEqual(self.db.get("T", "a", 1)["v"], {"x": [1]})
        self.assertIsNone(self.db.get("t", "b", 3))
        self.raised(polynya.ProgrammingError, "not_found", self.db.get, "nowhere", 1)
        self.raised(polynya.ProgrammingError, "invalid", self.db.get, "t", "b")
        self.raised(polynya.DataError, "schema", self.db.get, "t", "b", "2")


class Changes(Case):
    def setUp(self):
        super().setUp()
        self.db = self.connect(autocommit=True)
        self.db.execute("CREATE TABLE t (k bigint PRIMARY KEY, v text)")

    def rows(self, page):
        return [(row["k"], row["v"]) for row in pa.table(page.inserted).to_pylist()]

    def test_pages_tell_what_commits_inserted_and_deleted(self):
        self.db.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        inserted_at = self.db.lsn
        changes = self.db.changes("t", after=0, timeout=0)
        (page,) = list(changes)
        self.assertEqual((self.rows(page), page.deleted, page.inserted_count), ([(1, "a"), (2, "b")], [], 2))
        table = pa.table(page.inserted)
        self.assertEqual(table.column("_lsn").to_pylist(), [inserted_at] * 2)
        first, second = table.column("_row_id").to_pylist()
        self.assertEqual(changes.position, page.lsn)
        self.assertEqual(list(changes), [])
        self.db.execute("UPDATE t SET v = 'B' WHERE k = 2")
        self.db.execute("DELETE FROM t WHERE k = 1")
        pages = list(changes)
        self.assertEqual([row for page in pages for row in self.rows(page)], [(2, "B")])
        self.assertEqual(sorted(row for page in pages for row, _ in page.deleted), [first, second])
        self.db.execute("DELETE FROM t")
        (page,) = list(changes)
        self.assertEqual((self.rows(page), len(page.deleted)), ([], 1))
        # A follower resumes from its position.
        self.db.execute("INSERT INTO t VALUES (3, 'c')")
        (page,) = list(self.db.changes("t", after=changes.position, timeout=0))
        self.assertEqual(self.rows(page), [(3, "c")])

    def test_a_follower_waits_for_what_comes(self):
        self.db.execute("INSERT INTO t VALUES (0, 'before')")
        follower, seen = self.db.changes("t"), []

        def follow():
            for page in follower:
                seen.extend(self.rows(page))
                if len(seen) >= 20:
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        for n in range(1, 21):
            self.db.execute("INSERT INTO t VALUES (?, 'x')", (n,))
        thread.join(60)
        self.assertEqual(seen, [(n, "x") for n in range(1, 21)])

    def test_a_follower_ends_with_its_timeout_its_table_and_its_connection(self):
        self.assertEqual(list(self.db.changes("t", timeout=0.2)), [])
        self.raised(polynya.InterfaceError, "invalid", self.db.changes, "t", timeout=-1)
        self.raised(polynya.ProgrammingError, "not_found", self.db.changes, "nowhere")
        self.raised(polynya.ProgrammingError, "invalid", self.db.changes, "t", after=10**9)
        follower = self.db.changes("t")
        self.db.execute("DROP TABLE t")
        self.raised(polynya.ProgrammingError, "not_found", next, follower)
        self.db.execute("CREATE TABLE t (k bigint)")
        follower, errors = self.db.changes("t"), []

        def follow():
            try:
                next(follower)
            except polynya.InterfaceError as error:
                errors.append(error)

        thread = threading.Thread(target=follow)
        thread.start()
        self.db.close()
        thread.join(60)
        self.assertEqual(len(errors), 1)


class Stubs(Case):
    def test_the_stubs_name_what_is_there_with_its_parameters(self):
        from polynya import _native

        path = Path(polynya.__file__).with_name("_native.pyi")
        self.assertTrue(path.with_name("py.typed").exists())
        tree = ast.parse(path.read_text())
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"}
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        there = {name for name in vars(_native) if not name.startswith("__")}
        self.assertEqual(there, set(classes) | set(functions))
        for name, node in functions.items():
            self.assertEqual(parameters(node), list(inspect.signature(getattr(_native, name)).parameters), name)
        own = {"__new__", "__doc__", "__module__", "__repr__", "__getstate__"}
        for name, node in classes.items():
            real = getattr(_native, name)
            self.assertTrue(real.__doc__, name)
            stubs = {part.name: part for part in node.body if isinstance(part, ast.FunctionDef)}
            named = set(stubs) | {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
            self.assertEqual({member for member in vars(real) if member not in own}, named, name)
            for method, stub in stubs.items():
                is_property = any(getattr(d, "id", "") == "property" for d in stub.decorator_list)
                if is_property or method in ("__iter__", "__next__"):
                    continue
                found = list(inspect.signature(getattr(real, method)).parameters)
                self.assertEqual(parameters(stub), found, f"{name}.{method}")
                if not method.startswith("__"):
                    self.assertTrue(getattr(real, method).__doc__, f"{name}.{method} says nothing of itself")


def parameters(node):
    arguments = node.args
    names = [argument.arg for argument in arguments.args]
    if arguments.vararg:
        names.append(arguments.vararg.arg)
    return names + [argument.arg for argument in arguments.kwonlyargs]
