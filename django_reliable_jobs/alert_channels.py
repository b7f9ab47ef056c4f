"""What `ALERT_CHANNELS` may say. Pure: no settings, no Django."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

WANTED = (
    'a list of {"kind": "email", "to": [...]} or {"kind": "webhook", "url": "https://…", "secret": "…"}, each with a'
    ' "name" of its own if there is more than one of a kind'
)
_KEYS = {"email": {"kind", "name", "to", "subject_prefix"}, "webhook": {"kind", "name", "url", "secret"}}


def are_right(value: Any) -> bool:
    """Return whether this is a list of channels, with names that differ."""
    if not isinstance(value, list | tuple) or not all(_is_right(each) for each in value):
        return False
    names = [name_of(each) for each in value]
    return len(names) == len(set(names))


def name_of(channel: Mapping[str, Any]) -> str:
    """Return the name under which what it still has to tell is kept."""
    return str(channel.get("name", channel["kind"]))


def is_web_address(value: Any) -> bool:
    """Return whether this is an http(s) address without a user's name or password in it."""
    try:
        parts = urlsplit(value)
        _ = parts.port
    except (ValueError, TypeError, AttributeError):
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _is_right(channel: Any) -> bool:
    if not isinstance(channel, dict) or not set(channel) <= _KEYS.get(channel.get("kind", ""), set()):
        return False
    texts = {key: channel[key] for key in ("name", "secret", "subject_prefix") if key in channel}
    if not all(isinstance(each, str) and each for each in texts.values()) or len(name_of(channel)) > 64:
        return False
    return is_web_address(channel.get("url")) if channel["kind"] == "webhook" else _are_addresses(channel.get("to"))


def _are_addresses(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and all(isinstance(each, str) and "@" in each for each in value)
    )
