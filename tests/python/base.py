"""The base of the test cases: a folder of their own, and a time limit for a test that hangs."""

import faulthandler
import shutil
import tempfile
import unittest
from pathlib import Path

import polynya

#: Seconds after which the stacks of all threads are printed and the process ends.
LONGEST = 300


class Case(unittest.TestCase):
    def setUp(self):
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)
        self.root = Path(tempfile.mkdtemp(prefix="polynya-python-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.dir = self.root / "db"

    def connect(self, **options):
        db = polynya.connect(self.dir, **options)
        self.addCleanup(db.close)
        return db

    def raised(self, kind, code, call, *args, **kwargs):
        """Asserts that a call raises exactly this class and code, and returns the exception."""
        with self.assertRaises(polynya.Error) as caught:
            call(*args, **kwargs)
        error = caught.exception
        self.assertIs(type(error), kind, f"{type(error).__name__}: {error}")
        self.assertEqual(error.code, code, error)
        return error


def resident_bytes():
    """Returns the anonymous memory of this process, where a leak or a whole answer would show."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/self/status has no RssAnon")
