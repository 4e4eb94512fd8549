"""A coding agent in the place of a model: a command that works in a box of its own, with one tool.

What a model answers to a prompt, the agent leaves as a file. Its tool is portkern over MCP, which
runs outside of the box, judges what it is sent on the sizes that authors know, and cannot be
reached but by asking. What the agent wrote to its standard streams is kept beside the reply.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portkern.agent.axes import PromptMessage
from portkern.agent.llm import completion, keys
from portkern.agent.llm.completion import Completion, CompletionFailure, Endpoint
from portkern.agent.llm.role import AGENT, roles
from portkern.agent.proposer.reading import TAGS
from portkern.agent.run import RunPlan, named
from portkern.cells.selection import SelectedCell
from portkern.execution.plan import ExecutionPlan
from portkern.sandbox import tenant
from portkern.sandbox.tenant import Gone, Tenant
from portkern.spec.foreign_text import json_value

#: Files beside the agent's in its folder.
PROMPT, CONFIGURATION = "prompt.md", ".mcp.json"
#: What its tool is, as a process, and the names by which it and the agent know it.
_TOOL = "portkern.cli.assistants.contest"
_TOKEN, _URL, _LANGUAGE = "PORTKERN_MCP_TOKEN", "PORTKERN_MCP_URL", "PORTKERN_CONTEST_LANGUAGE"
#: Options of an agent, in its ``extra``: variables and files of this machine that it gets.
_ENVIRONMENT, _SEES = "env", "sees"
_START_S = 300.0
#: The characters of a transcript that are kept, and the last lines in which an agent says what it
#: cost.
_MOST_OUTPUT, _LAST_LINES = 1 << 18, 20


class _NoToolError(Exception):
    """The tool of an agent did not start, which may be the machine's fault of the moment."""


@dataclass(frozen=True)
class RoutedModels:
    """Sends the requests of a run: those to agents here, all others to their models. ``folder`` is
    the run's."""

    plan: RunPlan
    folder: Path

    async def complete(
        self,
        place: Endpoint,
        messages: Sequence[PromptMessage],
        params: Mapping[str, object],
        *,
        timeout_s: float,
    ) -> Completion | CompletionFailure:
        if not place.model.startswith(AGENT):
            return await completion.complete(place, messages, params, timeout_s=timeout_s)
        return await asyncio.to_thread(self._work, place, messages, params, timeout_s)

    def _work(
        self,
        place: Endpoint,
        messages: Sequence[PromptMessage],
        params: Mapping[str, object],
        timeout_s: float,
    ) -> Completion | CompletionFailure:
        start = time.perf_counter()
        names = _words(params.get(_ENVIRONMENT))
        with tempfile.TemporaryDirectory(prefix="portkern-agent-") as desk:
            try:
                with self._tool(Path(desk)) as (url, token):
                    prompt = self._prompt(messages)
                    asked = Tenant(
                        self._command(place, prompt, url),
                        {
                            **_variables(names),
                            _URL: url,
                            _TOKEN: token,
                        },
                        {PROMPT: prompt, CONFIGURATION: _configuration(url, token)},
                        self._file,
                        timeout_s,
                        tuple(str(Path(p).expanduser()) for p in _words(params.get(_SEES))),
                    )
                    gone = tenant.run(asked, _MOST_OUTPUT)
            except _NoToolError as error:
                return CompletionFailure(f"{place.model}: {error}", again=True, down=True)
            except (OSError, ValueError) as error:
                gone = Gone(b"", None, problem=str(error))
        if gone.problem:
            remedy = f"check the command of {place.role}, and that sees= names the folders it needs"
            return CompletionFailure(f"{place.model}: {gone.problem}", remedy, final=True)
        return self._answer(gone, names, time.perf_counter() - start)

    @property
    def _file(self) -> str:
        return f"kernel{self.plan.task.suffix}"

    def _prompt(self, messages: Sequence[PromptMessage]) -> str:
        told = "\n\n".join(message.content for message in messages)
        return (
            f"{told}\n\nSave the kernel as `{self._file}` in this folder; nothing else is looked "
            f"at. The MCP server `portkern` (see {CONFIGURATION}) tells the task, and judges and "
            "times the text of a kernel as often as you ask.\n"
        )

    def _command(self, place: Endpoint, prompt: str, url: str) -> tuple[str, ...]:
        """Raises ValueError for a command that is none."""
        usd = roles(named(self.plan.models))[place.role.removeprefix("models.")].usd
        facts = {
            "{prompt}": prompt,
            "{file}": self._file,
            "{mcp}": CONFIGURATION,
            "{url}": url,
            "{usd}": f"{usd or 0:g}",
        }
        words = shlex.split(place.model.removeprefix(AGENT))
        if not words:
            raise ValueError("expected a command after agent:")
        return tuple(_filled(word, facts) for word in words)

    @contextmanager
    def _tool(self, desk: Path) -> Iterator[tuple[str, str]]:
        """The address of the agent's tool, and its token, while it runs."""
        path, token, port = desk / "plan.json", secrets.token_urlsafe(32), _free_port()
        ExecutionPlan.of(self._cells(), self.plan.evaluation, "desk").write(path)
        log = (self.folder / "tool.log").open("ab")
        with (
            log,
            subprocess.Popen(
                [sys.executable, "-P", "-m", _TOOL, str(path), str(port)],
                env={**os.environ, _TOKEN: token, _LANGUAGE: self.plan.task.language},
                cwd=desk,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            ) as process,
        ):
            try:
                _wait_for(port, process)
                yield f"http://127.0.0.1:{port}/mcp", token
            finally:
                process.terminate()

    def _cells(self) -> list[SelectedCell]:
        task = self.plan.task
        return [
            SelectedCell(
                task.op,
                name,
                workload,
                task.dtype,
                task.backend,
                task.target,
                None,
                self.plan.stage,
                task.torch_ops,
                library=task.library,
            )
            for name, several in task.workloads.items()
            for workload in several
        ]

    def _answer(self, gone: Gone, names: Sequence[str], seconds: float) -> Completion:
        transcript = keys.redact(gone.output.decode(errors="replace"), names)
        said = _cost(transcript)
        text = f"The agent left no file {self._file}."
        if gone.kept is not None and gone.kept.strip():
            source = keys.redact(gone.kept.decode(errors="replace"), names)
            text = f"````{TAGS[self.plan.task.language][0]}\n{source.rstrip()}\n````\n"
        if gone.late:
            transcript += "\n[its time was over]\n"
        return Completion(
            text=text,
            reasoning=transcript,
            finish="stop",
            snapshot="",
            tokens_in=_count(said.get("usage"), "input_tokens"),
            tokens_out=_count(said.get("usage"), "output_tokens"),
            usd=_usd(said.get("total_cost_usd")),
            seconds=round(seconds, 6),
        )


def _configuration(url: str, token: str) -> str:
    """The configuration of a server, as coding assistants read it."""
    server = {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {token}"}}
    return json.dumps({"mcpServers": {"portkern": server}}, indent=1) + "\n"


def _filled(word: str, facts: Mapping[str, str]) -> str:
    """One word of the command stays one, whatever is put in."""
    for name, value in facts.items():
        if word == name:
            return value
    return word


def _words(value: object) -> tuple[str, ...]:
    """Raises ValueError."""
    listed = [value] if isinstance(value, str) else value or []
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
        raise ValueError(f"got {value!r}, expected names")
    return tuple(listed)


def _variables(names: Sequence[str]) -> dict[str, str]:
    """Returns the variables of this process that an agent gets."""
    return {name: os.environ[name] for name in ("PATH", "LANG", *names) if name in os.environ}


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Raises _NoToolError for a tool that does not come up."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise _NoToolError("its tool did not start; the run's tool.log says why")


# ---- what an agent says of its cost


def _cost(transcript: str) -> Mapping[str, Any]:
    """The last object of JSON among the last lines, as several agents end; else nothing."""
    for line in reversed(transcript.strip().splitlines()[-_LAST_LINES:]):
        if line.startswith("{"):
            with suppress(ValueError):
                found = json_value(line)
                if isinstance(found, dict):
                    return found
    return {}


def _usd(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    return value if known else None
