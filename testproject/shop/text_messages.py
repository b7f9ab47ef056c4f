"""A stand-in for a provider of text messages on a bad day."""

from __future__ import annotations

FAILING_DELIVERIES = 2


def send(*, recipient: str, text: str, delivery: int) -> str:
    """Send `text`; the first deliveries of every message fail with ConnectionError."""
    if delivery <= FAILING_DELIVERIES:
        raise ConnectionError(f"the provider hung up on delivery {delivery}")
    return f"to {recipient}: {text}"
