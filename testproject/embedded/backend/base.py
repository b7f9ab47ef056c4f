"""Django looks for a backend's `DatabaseWrapper` in a module of this name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.db.backends.postgresql import base as postgresql
from django.db.utils import OperationalError

from testproject.embedded.programs import ServerUnavailable
from testproject.embedded.server import EmbeddedServer


class DatabaseWrapper(postgresql.DatabaseWrapper):
    """Start the server when a connection is to be opened: not before, and again if it has died."""

    def get_connection_params(self) -> dict[str, Any]:
        parameters: dict[str, Any] = super().get_connection_params()
        try:
            EmbeddedServer(Path(parameters.pop("folder"))).use()
        except ServerUnavailable as error:
            raise OperationalError(str(error)) from error
        return parameters
