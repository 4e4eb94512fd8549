"""The address of this machine's server, in a file that only its user can read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Literal

from portkern.errors import RecordError, StorageError
from portkern.records import atomic_write
from portkern.records.jsonl import JsonLine
from portkern.toolchain.run_tool import cache_root

#: What is asked for, and who asks how urgently, in a request's headers.
PLANS, STATUS, STOP = "/v1/plans", "/v1/status", "/v1/stop"
CLIENT, PRIORITY = "Portkern-Client", "Portkern-Priority"
#: The modes of the file and of the folder that it is in.
_OWN_FILE, _OWN_FOLDER = 0o600, 0o700
#: What an address's file may have.
_MOST_BYTES = 1 << 16


class ServerAddress(JsonLine):
    """``key`` signs requests. ``run`` is the folder of the server's records."""

    SCHEMA: ClassVar[int] = 1

    schema_: Literal[1] = 1
    host: str
    port: int
    key: str
    pid: int
    run: str
    portkern: str

    def write(self) -> None:
        """Raises StorageError."""
        path = file()
        try:
            path.parent.mkdir(mode=_OWN_FOLDER, parents=True, exist_ok=True)
            path.parent.chmod(_OWN_FOLDER)
        except OSError as error:
            raise StorageError.of(error, path.parent) from error
        atomic_write.write(path, self.to_json())  # others may read it, and not its folder
        path.chmod(_OWN_FILE)


def file() -> Path:
    return cache_root() / "serve" / "address.json"


def lock() -> Path:
    return cache_root() / "serve" / ".lock"


def known() -> ServerAddress | None:
    """The address of this user's server; None where none was started, or the file was not written
    by portkern of this user, as somebody else's server is not asked."""
    path = file()
    try:
        with path.open("rb") as opened:
            held = os.fstat(opened.fileno())
            if held.st_uid != os.geteuid() or held.st_mode & 0o077 or held.st_size > _MOST_BYTES:
                return None
            return ServerAddress.from_json(opened.read(_MOST_BYTES).decode())
    except (OSError, UnicodeDecodeError, RecordError):
        return None


def forget(address: ServerAddress) -> None:
    """Removes the file if it is still this server's."""
    if known() == address:
        file().unlink(missing_ok=True)
