"""Threads, signals, and the interpreter's lock."""

import os
import signal
import threading
import time

import polynya
import pyarrow as pa
from base import Case

#: A statement that would take days.
ENDLESS = "SELECT count(*) FROM generate_series(1, 10000000) a(v), generate_series(1, 10000000) b(v) WHERE a.v * b.v < 0"


#: Seconds within which a signal must end a call, even on a busy machine. Otherwise the statement runs for 60 s.
LONGEST = 20


class Threads(Case):
    def test_two_readers_see_whole_commits_while_one_writes(self):
        setup = self.connect(autocommit=True)
        setup.execute("CREATE TABLE t (n bigint PRIMARY KEY, v bigint)")
        setup.executemany("INSERT INTO t VALUES (?, 0)", [(n,) for n in range(200)])
        written, problems, reads = [0], [], [0, 0]
        done = threading.Event()

        def write():
            with polynya.connect(self.dir) as db:
                for round in range(1, 101):
                    # Each round updates all rows in one transaction of two statements.
                    db.execute("UPDATE t SET v = ? WHERE n < 100", (round,))
                    db.execute("UPDATE t SET v = ? WHERE n >= 100", (round,))
                    db.commit()
                    written[0] = round
            done.set()

        def read(me):
            try:
                with polynya.connect(self.dir, autocommit=True) as db:
                    last = 0
                    while not done.is_set() or reads[me] == 0:
                        least = written[0]
                        rows = db.execute("SELECT v FROM t").fetchall()
                        values = {v for (v,) in rows}
                        if len(rows) != 200 or len(values) != 1 or max(values) < max(last, least):
                            problems.append((len(rows), values, last, least))
                        last = max(values)
                        reads[me] += 1
            except Exception as error:
                problems.append(error)

        threads = [threading.Thread(target=write)] + [threading.Thread(target=read, args=(me,)) for me in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])
        self.assertGreater(min(reads), 3)
        self.assertEqual(setup.execute("SELECT min(v), max(v) FROM t").fetchone(), (100, 100))

    def test_threads_share_a_connection(self):
        db = self.connect(autocommit=True)
        db.execute("CREATE TABLE t (n bigint PRIMARY KEY)")
        problems = []

        def work(me):
            try:
                for n in range(50):
                    db.execute("INSERT INTO t VALUES (?)", (me * 1000 + n,))
                    (count,) = db.execute("SELECT count(*) FROM t WHERE n / 1000 = ?", (me,)).fetchone()
                    if count != n + 1:
                        problems.append((me, n, count))
            except Exception as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])
        self.assertEqual(db.execute("SELECT count(*) FROM t").fetchone(), (200,))

    def test_python_goes_on_while_a_statement_runs(self):
        db = self.connect(autocommit=True, timeout=1.0)
        ended = threading.Event()

        def run():
            with self.assertRaises(polynya.OperationalError):
                db.execute(ENDLESS).fetchall()
            ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        turns = 0
        while not ended.is_set():
            turns += 1
        thread.join()
        # The statement takes a second. If it held the interpreter, there would be a turn or two.
        self.assertGreater(turns, 1000)

    def test_a_cursor_that_two_threads_use_at_once_refuses_one(self):
        db = self.connect(autocommit=True, timeout=2.0)
        cursor = db.cursor()
        started = threading.Event()

        def run():
            started.set()
            with self.assertRaises(polynya.OperationalError):
                cursor.execute(ENDLESS).fetchall()

        thread = threading.Thread(target=run)
        thread.start()
        started.wait()
        refused = 0
        while thread.is_alive():
            try:
                cursor.fetchone()
            except RuntimeError:
                refused += 1
            except polynya.Error:
                pass
        thread.join()
        self.assertGreater(refused, 0)


class Signals(Case):
    def setUp(self):
        super().setUp()
        # A shell starts background processes with SIGINT ignored, and Python keeps that.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

    def interrupted(self, call):
        """Sends Ctrl-C half a second after a call began. Returns the seconds that the call continued."""
        sent = []

        def send():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.5, send)
        timer.start()
        try:
            with self.assertRaises(KeyboardInterrupt):
                call()
                # The exception may come a moment after the call has returned.
                time.sleep(5)
        finally:
            timer.cancel()
        return time.monotonic() - sent[0]

    def test_ctrl_c_ends_a_long_statement(self):
        db = self.connect(autocommit=True)
        self.assertLess(self.interrupted(lambda: db.execute(ENDLESS).fetchall()), LONGEST)
        self.assertEqual(db.execute("SELECT 1").fetchall(), [(1,)])

    def test_ctrl_c_in_a_transaction_makes_it_fail(self):
        db = self.connect()
        db.execute("CREATE TABLE t (n bigint)")
        db.execute("INSERT INTO t VALUES (1)")
        self.assertLess(self.interrupted(lambda: db.execute(f"INSERT INTO t {ENDLESS}")), LONGEST)
        self.raised(polynya.ProgrammingError, "invalid", db.commit)
        self.assertEqual(db.execute("SELECT count(*) FROM t").fetchall(), [(0,)])

    def test_ctrl_c_ends_the_reading_of_arrow_and_the_wait_for_changes(self):
        db = self.connect(autocommit=True)
        db.execute("CREATE TABLE t (n bigint)")
        self.assertLess(self.interrupted(lambda: db.execute(ENDLESS).fetch_arrow_table()), LONGEST)

        def taken():
            try:
                pa.table(db.execute(ENDLESS))
            except OSError:
                pass

        self.assertLess(self.interrupted(taken), LONGEST)
        self.assertLess(self.interrupted(lambda: next(db.changes("t"))), LONGEST)

    def test_a_handler_that_does_not_raise_lets_the_statement_go_on(self):
        db = self.connect(autocommit=True, timeout=4.0)
        called = []
        before = signal.signal(signal.SIGUSR1, lambda *_: called.append(time.monotonic()))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        start = time.monotonic()
        self.raised(polynya.OperationalError, "timeout", lambda: db.execute(ENDLESS).fetchall())
        self.assertEqual(len(called), 1)
        self.assertLess(called[0] - start, 3.5)
        self.assertGreater(time.monotonic() - start, 3.9)
