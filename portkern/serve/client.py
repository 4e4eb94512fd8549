"""Asks the server of this machine, if one runs."""

from __future__ import annotations

import hmac
import http.client
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portkern.errors import BackendUnavailable, ConfigError, PortkernError, RecordError
from portkern.execution.installation import Portkern
from portkern.execution.plan import ExecutionPlan
from portkern.records.record import Record
from portkern.serve import address, signature
from portkern.serve.address import CLIENT, PLANS, PRIORITY, STATUS, STOP, ServerAddress
from portkern.serve.job_queue import USUAL_PRIORITY, QueueFull
from portkern.spec.foreign_text import MOST_BYTES, json_value

#: What is waited for when nothing is evaluated, and for an answer: a job may wait behind others.
_REACH_S, _ANSWER_S = 2.0, 24 * 3600.0
_UNREADABLE = "The server's answer cannot be read"


class ServerGone(BackendUnavailable):
    """Raised when no server answers where one was; records of jobs that had begun are in its
    run."""


class ServerFailed(BackendUnavailable):
    """Raised when the server took a job and could not do it, as its disk was full or no worker
    started: the kernel is not to blame."""


@dataclass(frozen=True)
class Client:
    """``name`` tells clients apart, whose jobs take turns."""

    at: ServerAddress
    name: str = ""
    priority: int = USUAL_PRIORITY

    @classmethod
    def here(cls, *, priority: int = USUAL_PRIORITY) -> Client | None:
        """The client of this machine's server; None where none answers, or another portkern's."""
        at = address.known()
        if at is None or at.portkern != str(Portkern.here()):
            return None
        return cls.whoever(priority=priority)

    @classmethod
    def whoever(cls, *, priority: int = USUAL_PRIORITY) -> Client | None:
        """The same of a server of another portkern too, which can be asked how it is and to end."""
        at = address.known()
        if at is None:
            return None
        client = cls(at, f"process {os.getpid()}", priority)
        try:
            client.status()
        except (PortkernError, OSError):
            return None
        return client

    def status(self) -> Mapping[str, Any]:
        """Raises ServerGone."""
        return self._ask("GET", STATUS, b"", _REACH_S)

    def stop(self) -> None:
        """Raises ServerGone."""
        self._ask("POST", STOP, b"", _REACH_S)

    def evaluate(self, plan: ExecutionPlan) -> list[Record]:
        """The records of the plan's cells, in its order, under the plan's run. Raises ConfigError
        for what the server refuses, QueueFull, ServerFailed, and ServerGone when it ends
        meanwhile."""
        answer = self._ask("POST", PLANS, plan.to_json().encode(), _ANSWER_S)
        said = answer.get("records")
        if not isinstance(said, list) or len(said) != len(plan.cells):
            raise RecordError(f"{_UNREADABLE}: expected {len(plan.cells)} records")
        records = [Record.from_json(json.dumps(one)) for one in said]
        return [record.model_copy(update={"run": plan.run}) for record in records]

    def _ask(self, method: str, path: str, body: bytes, timeout_s: float) -> Mapping[str, Any]:
        connection = http.client.HTTPConnection(self.at.host, self.at.port, timeout=timeout_s)
        signed = signature.sign(self.at.key, method, path, body)
        headers = {
            signature.HEADER: signed,
            CLIENT: self.name,
            PRIORITY: str(self.priority),
        }
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            said = response.read(MOST_BYTES + 1)
            right = signature.answer(self.at.key, signed, response.status, said)
            given = response.getheader(signature.ANSWER, "")
            if not hmac.compare_digest(given.encode(), right.encode()):
                raise ValueError("somebody else answers")
            content = json_value(said)
        except (OSError, http.client.HTTPException, ValueError) as error:
            what = f"{type(error).__name__}: {error}"
            raise ServerGone(
                f"The server at port {self.at.port} gave no answer ({what})"
            ) from error
        finally:
            connection.close()
        if not isinstance(content, dict):
            raise RecordError(_UNREADABLE)
        if response.status == http.client.OK:
            return content
        why = str(content.get("error", f"status {response.status}"))
        if response.status == http.client.TOO_MANY_REQUESTS:
            raise QueueFull(why)
        failed = response.status == http.client.INTERNAL_SERVER_ERROR
        raise ServerFailed(why) if failed or content.get("exit_code") == 3 else ConfigError(why)
