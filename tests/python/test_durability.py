"""Committed rows survive a kill, and other processes are kept out."""

import os
import signal
import subprocess
import sys

import polynya
from base import Case

WRITER = """
import sys
import polynya
db = polynya.connect(sys.argv[1])
db.execute("CREATE TABLE IF NOT EXISTS t (n bigint PRIMARY KEY)")
(n,) = db.execute("SELECT count(*) FROM t").fetchone()
while True:
    db.execute("INSERT INTO t VALUES (?)", (n,))
    db.execute("INSERT INTO t VALUES (?)", (n + 1,))
    db.commit()
    n += 2
    print(n, flush=True)
"""


class Durability(Case):
    def python(self, code, *args, **options):
        command = [sys.executable, "-X", "faulthandler", "-c", code, str(self.dir), *args]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)

    def test_committed_rows_survive_kill_9_and_uncommitted_ones_do_not(self):
        last = 0
        for rounds in (3, 40, 11):
            with self.python(WRITER) as writer:
                for _ in range(rounds):
                    last = int(writer.stdout.readline())
                writer.send_signal(signal.SIGKILL)
                # Numbers that it printed before the kill were committed too.
                last = max([last, *map(int, writer.stdout.read().split())])
            with polynya.connect(self.dir) as db:
                (count, largest) = db.execute("SELECT count(*), max(n) FROM t").fetchone()
            self.assertEqual(largest, count - 1)
            self.assertEqual(count % 2, 0)
            # The commit in progress may have happened.
            self.assertIn(count, (last, last + 2))
            last = count

    def test_a_process_that_ends_without_closing_leaves_a_whole_database(self):
        code = """
import sys, polynya
db = polynya.connect(sys.argv[1], autocommit=True)
db.execute("CREATE TABLE t (n bigint)")
db.execute("INSERT INTO t SELECT * FROM generate_series(1, 100000)")
rows = db.execute("SELECT n FROM t")
print(rows.fetchone() is not None)
raise SystemExit(7)
"""
        with self.python(code) as process:
            self.assertEqual(process.stdout.read().split(), ["True"])
        self.assertEqual(process.returncode, 7)
        self.assertEqual(self.connect().execute("SELECT count(*) FROM t").fetchone(), (100_000,))

    def test_another_process_is_told_that_the_folder_is_in_use_until_it_is_closed(self):
        code = """
import sys, polynya
try:
    polynya.connect(sys.argv[1]).close()
    print("opened")
except polynya.OperationalError as error:
    print(error.code)
"""
        first, second = self.connect(), self.connect()
        for close, expected in [(None, "in_use"), (first, "in_use"), (second, "opened")]:
            if close:
                close.close()
            with self.python(code) as process:
                self.assertEqual(process.stdout.read().split(), [expected])
        # This process can open the folder again.
        self.connect().execute("SELECT 1")

    def test_a_connection_that_is_forgotten_is_closed(self):
        db = polynya.connect(self.dir)
        cursor = db.execute("SELECT 1")
        del db
        self.assertEqual(cursor.fetchall(), [(1,)])
        del cursor
        with self.python("import sys, polynya; polynya.connect(sys.argv[1]).close(); print('opened')") as process:
            self.assertEqual(process.stdout.read().split(), ["opened"])

    def test_a_forked_process_is_refused_and_does_no_harm(self):
        code = """
import os, sys, warnings
warnings.simplefilter("ignore")
import polynya
db = polynya.connect(sys.argv[1], autocommit=True)
db.execute("CREATE TABLE t (n bigint)")
snapshot = db.snapshot()
child = os.fork()
if child == 0:
    for call in (lambda: db.execute("SELECT 1"), db.cursor, lambda: polynya.connect(sys.argv[1] + "2"),
                 lambda: snapshot.execute("SELECT 1"), lambda: db.get("t", 1)):
        try:
            call()
            print("no error", flush=True)
        except polynya.InterfaceError as error:
            print("forked" if "forked" in str(error) else error, flush=True)
    db.close()
    del db, snapshot
    sys.exit(0)
pid, status = os.waitpid(child, 0)
db.execute("INSERT INTO t VALUES (1)")
print(os.waitstatus_to_exitcode(status), db.execute("SELECT n FROM t").fetchall())
"""
        with self.python(code) as process:
            lines = process.stdout.read().splitlines()
        self.assertEqual(lines, ["forked"] * 5 + ["0 [(1,)]"])
        self.assertEqual(process.returncode, 0)

    def test_processes_that_were_spawned_take_turns(self):
        with polynya.connect(self.dir) as db:
            db.execute("CREATE TABLE t (n bigint)")
        code = "import sys, polynya\nwith polynya.connect(sys.argv[1]) as db: db.execute('INSERT INTO t VALUES (1)')"
        for _ in range(3):
            with self.python(code) as process:
                pass
            self.assertEqual(process.returncode, 0)
        self.assertEqual(self.connect().execute("SELECT sum(n) FROM t").fetchone(), (3,))

    def test_a_file_of_copy_is_written_and_read(self):
        with polynya.connect(self.dir) as db:
            db.execute("CREATE TABLE t (n bigint, s text)")
            db.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
            path = self.root / "t.csv"
            self.raised(polynya.ProgrammingError, "invalid", db.execute, f"COPY t TO '{path}'")
            db.commit()
            self.assertEqual(db.execute(f"COPY t TO '{path}' WITH (HEADER)").rowcount, 2)
            self.assertEqual(path.read_text(), "n,s\n1,a\n2,\n")
            self.assertEqual(db.execute(f"COPY t FROM '{path}' WITH (HEADER)").rowcount, 2)
            self.assertEqual(db.execute("SELECT count(*) FROM t").fetchone(), (4,))

    def test_the_folder_may_be_named_in_several_ways(self):
        self.dir.mkdir()
        link = self.root / "link"
        os.symlink(self.dir, link)
        first = self.connect(autocommit=True)
        first.execute("CREATE TABLE t (n bigint)")
        for name in (str(self.dir), link, self.root / "x" / ".." / "db", os.path.relpath(self.dir)):
            (self.root / "x").mkdir(exist_ok=True)
            with polynya.connect(name) as db:
                self.assertEqual(db.execute("SELECT count(*) FROM t").fetchone(), (0,))
