"""The exceptions of DB-API 2.0, with what Polynya says beside the message."""

from __future__ import annotations

from typing import Optional


class Warning(Exception):  # noqa: A001 - DB-API 2.0 names it so
    """Never raised; DB-API 2.0 wants the name."""


class Error(Exception):
    """The base of all errors here.

    ``str(error)`` is the whole message, with the place and the hint. ``code`` is the stable name of the kind, the same
    as over HTTP (``"exists"``, ``"conflict"``, ...); ``message`` and ``hint`` are the parts of the text.
    """

    code: Optional[str]
    message: str
    hint: Optional[str]

    def __init__(
        self, text: str = "", code: Optional[str] = None, message: Optional[str] = None, hint: Optional[str] = None
    ) -> None:
        super().__init__(text)
        self.code = code
        self.message = text if message is None else message
        self.hint = hint

    def __reduce__(self):  # so that a worker process can hand it over
        return type(self), (self.args[0] if self.args else "", self.code, self.message, self.hint)


class InterfaceError(Error):
    """This package is used wrongly: something closed is used, a value of an unknown type is passed."""


class DatabaseError(Error):
    """The base of what the database says."""


class DataError(DatabaseError):
    """A value does not fit: its type, its range, NOT NULL."""


class OperationalError(DatabaseError):
    """Not the statement's fault: too much at once, a limit, a deadline, the disk, another process."""


class ConflictError(OperationalError):
    """Another writer was faster. The transaction was rolled back: read again, decide again, retry."""


class IntegrityError(DatabaseError):
    """A key or another unique value is taken already, or what is to be made exists."""


class InternalError(DatabaseError):
    """A bug of Polynya."""


class ProgrammingError(DatabaseError):
    """The statement is wrong as it stands: its syntax, a name, the number of values."""


class NotSupportedError(DatabaseError):
    """Something that Polynya does not have."""
