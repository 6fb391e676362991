"""Converts values to JSON text, for columns of type json and struct."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from typing import Any


class Json:
    """A value for a json column that SQL would read as another type: ``Json([1, 2])``, ``Json("text")``.

    A ``dict`` needs no wrapper.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Json({self.value!r})"


def _plain(value: Any) -> Any:
    if isinstance(value, Json):
        return value.value
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=datetime.timezone.utc)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "\\x" + bytes(value).hex()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


def text(value: Any) -> str:
    """Returns the JSON text of a dict or of a ``Json``."""
    from .errors import DataError

    try:
        return json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"a value cannot be written as JSON: {error}", "schema") from error
