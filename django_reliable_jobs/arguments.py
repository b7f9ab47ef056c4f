"""What a job can carry: arguments and results as JSON that comes back as it went in. No database, no settings.

A str, int, dict or list of a subclass is taken for what it is, and comes back plain: a member of TextChoices or
IntegerChoices equals its value and comes back as that value, a SafeString as text, an OrderedDict as a dict.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterator, KeysView, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, NamedTuple

from django_reliable_jobs.exceptions import InvalidArguments, InvalidCheckpoint, InvalidResult
from django_reliable_jobs.json_faults import MAX_DEPTH, fault, fault_in_text, find_fault

MAX_EVENT_NAME = 245  # characters; a wait that is repeated is numbered behind the name

# PostgreSQL's jsonb refuses U+0000 and a surrogate without its partner. ensure_ascii writes both as escapes, so that
# one search of the text finds the suspects; only they are looked at closely.
_SUSPECT = re.compile(r"\\u(?:0000|d[89a-f])")

# jsonb keeps numbers as decimals and writes 1e+23 as 100000000000000000000000, which is read as another number, an int.
# Texts are matched too, to be left alone.
_WITH_EXPONENT = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?e\+\d+')

# Made once: json.dumps with options makes an encoder for each call, which takes longer than encoding.
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode  # nothing read here has white space around it

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Carried(NamedTuple):
    """A value as JSON text, and as it comes back from it: a copy that shares nothing with what was given."""

    text: str
    value: Any


def dump_arguments(
    signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    task: str,
    max_bytes: int,
    sensitive: Collection[str] = (),
    accepts: Callable[[KeysView[Any]], bool] = lambda names: False,
) -> tuple[Carried, Carried]:
    """Return (args, kwargs) as they are carried. Raises InvalidArguments, which names the argument and the way out,
    and shows no value of one that is `sensitive`.

    Checked: the signature accepts them; each value survives the round trip through PostgreSQL's JSON; the size.
    `accepts` is that of `accepts_by_name`, made once for many calls.
    """
    if args or not accepts(kwargs.keys()):
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArguments(f"{task}{_brief(signature)}: {_misspelt(signature, kwargs) or error}") from None
    try:
        carried = carry(list(args)) if args else Carried("[]", []), carry(dict(kwargs)) if kwargs else Carried("{}", {})
    except ValueError:
        bound = signature.bind(*args, **kwargs)
        raise InvalidArguments(f"{task}: {_fault_in_arguments(bound, sensitive)}") from None
    size = len(carried[0].text) + len(carried[1].text)
    if size > max_bytes:
        named = _named(signature.bind(*args, **kwargs))
        largest = max(named, key=lambda each: len(dump(each[1])), default=("", None))[0]
        raise InvalidArguments(
            f"{task}: the arguments take {size} bytes as JSON, more than MAX_ARGUMENT_BYTES ({max_bytes}); the largest"
            f" is {largest}. Store the data and pass its id."
        )
    return carried


def dump_calls(
    calls: list[Any], *, accepts: Callable[[KeysView[Any]], bool], max_bytes: int
) -> tuple[str, list[dict[str, Any]]] | None:
    """Return many calls by keyword as one JSON array, and as they come back from it.

    None if one can't be carried, or is not known to be right without a closer look: `dump_arguments` then tells.
    """
    if not all(type(call) is dict and accepts(call.keys()) for call in calls):
        return None
    try:
        text = _encode(calls)
    except (TypeError, ValueError, RecursionError):
        return None
    if len(text) > max_bytes or "e+" in text or _SUSPECT.search(text):
        return None
    loaded = _decode(text)[0]
    is_right = bool(loaded == calls)
    if is_right and text.count("[") + text.count("{") > MAX_DEPTH + len(calls):
        is_right = not _is_deeper(loaded, MAX_DEPTH + 1)
    return (text, loaded) if is_right else None


def accepts_by_name(signature: inspect.Signature) -> Callable[[KeysView[Any]], bool]:
    """Return a test whether a call with keyword arguments of these names fits, faster than binding them; False also
    stands for: not known.
    """
    parameters = signature.parameters.values()
    by_name = [each for each in parameters if each.kind in _BY_NAME]
    known = {each.name for each in by_name}
    required = {each.name for each in by_name if each.default is inspect.Parameter.empty}
    kinds = {each.kind for each in parameters}
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        return lambda names: False
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return lambda names: required <= names
    return lambda names: required <= names <= known


def dump_result(value: Any, *, task: str, max_bytes: int) -> str:
    """Return a task's result as JSON text. Raises InvalidResult, which names what can't be stored."""
    try:
        text = dump(value)
    except ValueError:
        raise InvalidResult(f"{task} returned a value that can't be stored: {find_fault(value, 'result')}") from None
    if len(text) > max_bytes:
        raise InvalidResult(
            f"{task} returned {len(text)} bytes as JSON, more than MAX_RESULT_BYTES ({max_bytes}). Store the data and"
            " return its id."
        )
    return text


def dump(value: Any) -> str:
    """Return a value as JSON text. Raises ValueError if it would not come back from PostgreSQL equal."""
    return carry(value).text


def carry(value: Any) -> Carried:
    """Return a value as it is carried. Raises ValueError if it would not come back from PostgreSQL equal."""
    try:
        text = _encode(value)
        if "e+" in text:
            text = _WITH_EXPONENT.sub(_without_exponent, text)
        loaded = _decode(text)[0]
        is_right = loaded == value
    except (TypeError, RecursionError) as error:
        raise ValueError from error
    if is_right and text.count("[") + text.count("{") > MAX_DEPTH:
        is_right = not _is_deeper(value, MAX_DEPTH)
    if not is_right or ("\\u" in text and _SUSPECT.search(text) and fault(value, "", frozenset()) is not None):
        raise ValueError
    return Carried(text, loaded)


def load(text: str) -> Any:
    """Return the value of a JSON text."""
    return _decode(text)[0]


def dump_checkpoint(name: str, value: Any, *, task: str, max_bytes: int) -> str:
    """Return a checkpoint's value as JSON text. Raises InvalidCheckpoint, which names what can't be stored."""
    if not isinstance(name, str) or not 0 < len(name) <= 255 or fault_in_text(name, "name"):
        raise InvalidCheckpoint(f"{task}: the name of a checkpoint is text of 1 to 255 characters, not {name!r:.80}")
    try:
        text = dump(value)
    except ValueError:
        raise InvalidCheckpoint(f"{task}: the checkpoint can't be stored: {find_fault(value, name)}") from None
    if len(text) > max_bytes:
        raise InvalidCheckpoint(
            f"{task}: the checkpoint {name!r} takes {len(text)} bytes as JSON, more than MAX_RESULT_BYTES"
            f" ({max_bytes}). Store the data and keep its id."
        )
    return text


def dump_payload(name: str, value: Any, *, max_bytes: int) -> str:
    """Return an event's payload as JSON text. Raises InvalidArguments, which names what can't be stored."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_EVENT_NAME or not name.isprintable():
        raise InvalidArguments(
            f"the name of an event is text of 1 to {MAX_EVENT_NAME} printable characters, not {name!r:.80}"
        )
    try:
        text = dump(value)
    except ValueError:
        raise InvalidArguments(f"the event {name!r} can't be stored: {find_fault(value, 'payload')}") from None
    if len(text) > max_bytes:
        raise InvalidArguments(
            f"the payload of the event {name!r} takes {len(text)} bytes as JSON, more than MAX_RESULT_BYTES"
            f" ({max_bytes}). Store the data and pass its id."
        )
    return text


def call_arguments(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, defaults filled in: the same call gives the same dict however it is written."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def as_keywords(signature: inspect.Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by name with those that `**kwargs` collects beside the others."""
    result = dict(given)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            result |= result.pop(name)
    return result


def hash_of_key(task: str, key: str | Mapping[str, Any]) -> bytes:
    """Return 16 bytes for a unique key of a task: a text, or arguments by name. The same JSON gives the same hash."""
    text = json.dumps([task, key], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:16]


def without_bad_characters(text: str) -> str:
    """Return the text as PostgreSQL can store it: U+0000 and lone surrogates replaced by U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _brief(signature: inspect.Signature) -> str:
    """Return the signature without its annotations."""
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(inspect.Signature(parameters))


def _misspelt(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> str | None:
    """Return a sentence about an argument that does not exist; Python would name the one that is missing for it."""
    kinds = {name: each.kind for name, each in signature.parameters.items()}
    if inspect.Parameter.VAR_KEYWORD in kinds.values():
        return None
    known = [name for name, kind in kinds.items() if kind is not inspect.Parameter.POSITIONAL_ONLY]
    unknown = next((name for name in kwargs if name not in kinds), None)
    if unknown is None:
        return None
    close = get_close_matches(str(unknown), known, n=1)
    return f"there is no argument {unknown!r}" + (f", did you mean {close[0]!r}?" if close else "")


def _without_exponent(match: re.Match[str]) -> str:
    text = match.group()
    return text if text.startswith('"') else f"{Decimal(text):f}.0"


def _is_deeper(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in items if isinstance(each, dict | list))


def _named(bound: inspect.BoundArguments) -> Iterator[tuple[str, Any]]:
    """Yield the given arguments with the names that the caller knows them by."""
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((f"{name}[{index}]", each) for index, each in enumerate(value))
        else:
            yield name, value


def _fault_in_arguments(bound: inspect.BoundArguments, sensitive: Collection[str]) -> str:
    for name, value in _named(bound):
        if found := fault_in_text(name, f"the name {name!a}"):
            return found
        try:
            dump(value)
        except ValueError:
            if name.partition("[")[0] in sensitive:
                return f"{name}, whose value is not shown, is or contains what is not JSON ({type(value).__qualname__})"
            return find_fault(value, name)
    return "the arguments are nested too deeply"
