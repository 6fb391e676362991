"""Polynya: an embedded database whose reads never wait.

::

    import polynya

    with polynya.connect("inventory") as db:
        db.execute("CREATE TABLE stock (item text PRIMARY KEY, n bigint)")
        db.execute("INSERT INTO stock VALUES (?, ?)", ("bolt", 40))
        print(db.execute("SELECT n FROM stock WHERE item = $1", ("bolt",)).fetchone())

``connect`` returns a ``Connection`` of DB-API 2.0 (PEP 249). Beyond that standard there are ``Connection.append`` for
Arrow data, ``Cursor.fetch_arrow_table``, ``Connection.snapshot``, ``Connection.get`` and ``Connection.changes``.
"""

from __future__ import annotations

import atexit as _atexit
import datetime as _datetime

from . import errors as errors
from ._json import Json as Json
from ._native import (
    ArrowRows as ArrowRows,
    ChangePage as ChangePage,
    Changes as Changes,
    Connection as Connection,
    Cursor as Cursor,
    Snapshot as Snapshot,
    Transaction as Transaction,
    __version__ as __version__,
    close_all as _close_all,
    connect as connect,
)
from .errors import (
    ConflictError as ConflictError,
    DatabaseError as DatabaseError,
    DataError as DataError,
    Error as Error,
    IntegrityError as IntegrityError,
    InterfaceError as InterfaceError,
    InternalError as InternalError,
    NotSupportedError as NotSupportedError,
    OperationalError as OperationalError,
    ProgrammingError as ProgrammingError,
    Warning as Warning,
)

#: The version of DB-API that this module implements.
apilevel = "2.0"
#: Threads may share the module and connections, but not cursors.
threadsafety = 2
#: Parameters are ``?``. The engine's own ``$1``, ``$2``, ... are accepted as well.
paramstyle = "qmark"

Date = _datetime.date
Time = _datetime.time
Timestamp = _datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> _datetime.date:
    """Returns the date of a time in seconds since 1970, in this machine's time zone."""
    return _datetime.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> _datetime.time:
    """Returns the time of day of a time in seconds since 1970, in this machine's time zone."""
    return _datetime.datetime.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> _datetime.datetime:
    """Returns a time in seconds since 1970 as a datetime in UTC."""
    return _datetime.datetime.fromtimestamp(ticks, _datetime.timezone.utc)


class _Type:
    """A type object of DB-API 2.0. It equals each of its type names in ``Cursor.description``."""

    def __init__(self, name: str, *types: str) -> None:
        self._name = name
        self._types = types

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Type):
            return self is other
        # Types with parameters, such as decimal(10,2) and vector(3), compare by the name before the bracket.
        return isinstance(other, str) and other.split("(")[0] in self._types

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"polynya.{self._name}"


STRING = _Type("STRING", "string", "json", "uuid")
BINARY = _Type("BINARY", "binary")
NUMBER = _Type(
    "NUMBER", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "decimal", "decimal128", "decimal256", "bool",
)  # fmt: skip
DATETIME = _Type("DATETIME", "date", "time", "timestamp", "interval", "duration")
ROWID = _Type("ROWID")

__all__ = [
    "ArrowRows",
    "BINARY",
    "Binary",
    "ChangePage",
    "Changes",
    "ConflictError",
    "Connection",
    "Cursor",
    "DATETIME",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "Json",
    "NUMBER",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "ROWID",
    "STRING",
    "Snapshot",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Transaction",
    "Warning",
    "apilevel",
    "connect",
    "errors",
    "paramstyle",
    "threadsafety",
]

# Closes open databases while the interpreter still works.
_atexit.register(_close_all)
