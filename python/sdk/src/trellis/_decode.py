"""From JSON to the classes in `types`. Fields that a newer server adds are ignored."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Optional, TypeVar, Union, get_args, get_origin, get_type_hints

from . import types
from .errors import UnexpectedAnswer

T = TypeVar("T")


def read(kind: type[T], body: bytes) -> T:
    """The answer that `body` holds."""
    with _readable(kind):
        made: T = _object(kind, json.loads(body))
    return made


def read_list(kind: type[T], body: bytes) -> list[T]:
    """An answer that is a list."""
    with _readable(kind):
        return [_object(kind, each) for each in json.loads(body)]


def read_page(kind: type[T], body: bytes) -> tuple[list[T], str]:
    """A page of a list, and where the next begins; nothing: this was all."""
    with _readable(kind):
        page = json.loads(body)
        return [_object(kind, each) for each in page["items"]], page.get("next") or ""


def read_event(text: str) -> Optional[types.Event]:
    """None: a newer server told something that is unknown here."""
    with _readable(types.ResyncEvent):
        value = json.loads(text)
        kind = _events().get(value["kind"])
        told: Optional[types.Event] = None if kind is None else _object(kind, value)
    return told


@contextmanager
def _readable(kind: type[object]) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnexpectedAnswer(
            f"the answer is no {kind.__name__}: {error}. Is that a Trellis server, as new as this package?"
        ) from error


@functools.cache
def _events() -> dict[str, Any]:
    cases = get_args(types.Event)
    return {get_args(_hints(case)["kind"])[0]: case for case in cases}


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _object(kind: Any, value: Any) -> Any:
    hints = _hints(kind)
    given = {}
    for each in dataclasses.fields(kind):
        if each.name in value:
            given[each.name] = _value(hints[each.name], value[each.name])
    return kind(**given)


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if dataclasses.is_dataclass(kind):
        return _object(kind, value)
    origin = get_origin(kind)
    if origin is list:
        [of] = get_args(kind)
        return [_value(of, each) for each in value]
    if origin is dict:
        of = get_args(kind)[1]
        return {key: _value(of, each) for key, each in value.items()}
    if origin is Union:
        cases = [case for case in get_args(kind) if case is not type(None)]
        # Other unions are of plain values, which are as JSON has them.
        return _value(cases[0], value) if len(cases) == 1 else value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin is Literal or kind is Any or isinstance(value, kind):
        return value
    raise TypeError(f"{value!r} is no {kind.__name__}")
