"""The exceptions of DB-API 2.0, with the code and the hint of Polynya's errors."""

from __future__ import annotations

from typing import Optional


class Warning(Exception):  # noqa: A001 - the name is that of DB-API 2.0
    """Never raised. DB-API 2.0 requires the name."""


class Error(Exception):
    """The base of all errors of this package.

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

    def __reduce__(self):  # lets a worker process pickle the error
        return type(self), (self.args[0] if self.args else "", self.code, self.message, self.hint)


class InterfaceError(Error):
    """Wrong use of this package: a closed object was used, or a value of an unknown type passed."""


class DatabaseError(Error):
    """The base of all errors of the database."""


class DataError(DatabaseError):
    """A value does not fit: its type, its range, NOT NULL."""


class OperationalError(DatabaseError):
    """A failure that is not the statement's fault: overload, a limit, a deadline, the disk, another process."""


class ConflictError(OperationalError):
    """Another writer was faster. The transaction was rolled back; read again and retry."""


class IntegrityError(DatabaseError):
    """A key or another unique value exists already, or the object to be created does."""


class InternalError(DatabaseError):
    """A bug of Polynya."""


class ProgrammingError(DatabaseError):
    """The statement itself is wrong: its syntax, a name, the number of values."""


class NotSupportedError(DatabaseError):
    """A feature that Polynya does not have."""
