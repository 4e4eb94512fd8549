"""Environments of kernels behind an OpenEnv server, for policies that are elsewhere.

The server has no authentication: let it listen on the loopback, or behind what has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment

from portkern.env.kernel_env import KernelEnv
from portkern.env.openenv_types import KernelAction, KernelObservation, KernelState
from portkern.errors import ConfigError
from portkern.records.record import Record, Verdict

if TYPE_CHECKING:
    from fastapi import FastAPI

#: The only split: sizes are held out, not operators.
SPLIT = "train"


def app(ops: Sequence[str], places: Sequence[str], *, sessions: int = 8, **options: Any) -> FastAPI:
    """The application of a server, for uvicorn: each of its ``sessions`` has an environment of its
    own. ``options`` are those of :class:`portkern.env.KernelEnv`."""

    def session() -> KernelSession:
        return KernelSession(ops, places, **options)

    return create_fastapi_app(
        session,
        KernelAction,
        KernelObservation,
        max_concurrent_envs=sessions,
        env_name="portkern",
        state_cls=KernelState,
    )


class KernelSession(Environment[KernelAction, KernelObservation, KernelState]):
    """One client's environment. A step that the machine could not evaluate raises, which the
    client is answered as an error: OpenEnv has no step without a verdict."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, ops: Sequence[str], places: Sequence[str], **options: Any) -> None:
        super().__init__()
        self._env = KernelEnv(ops, places, **options)
        self._state = KernelState(places=tuple(map(str, self._env.places)))
        self._over = True

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        op: str = "",
        split: str = SPLIT,
        index: int | None = None,
        **more: Any,
    ) -> KernelObservation:
        """Begins an episode of ``op``, of the task at ``index``, or of one that is drawn."""
        if index is not None:
            op = self.get_task(split, index)["id"]
        text, info = self._env.reset(seed=seed, options={"op": op} if op else None)
        places = self._state.places
        self._state = KernelState(episode_id=episode_id, op=info["op"], places=places)
        self._over = False
        return KernelObservation(text=text)

    def step(
        self, action: KernelAction, timeout_s: float | None = None, **more: Any
    ) -> KernelObservation:
        if self._over:
            raise ConfigError("The episode has ended or not begun; reset the environment first")
        text, reward, self._over, _, info = self._env.step(action.reply)
        self._state.step_count += 1
        verdicts = {place: _worst(records) for place, records in info["records"].items()}
        return KernelObservation(text=text, reward=reward, done=self._over, verdicts=verdicts)

    @property
    def state(self) -> KernelState:
        return self._state

    # ---- what OpenEnv asks of an environment with a list of tasks

    def list_splits(self) -> list[str]:
        return [SPLIT]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Raises ConfigError for another split."""
        if split != SPLIT:
            raise ConfigError(f"Got the split {split!r}, expected {SPLIT}")
        return [{"id": op.name, "index": number} for number, op in enumerate(self._env.ops)]

    def num_tasks(self, split: str) -> int:
        return len(self.list_tasks(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Raises IndexError, as OpenEnv expects."""
        tasks = self.list_tasks(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"Got task {index}, expected 0 to {len(tasks) - 1}")
        return tasks[index]

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        return self.list_tasks(split)[start:stop]


def _worst(records: Sequence[Record]) -> str:
    bad = [record.verdict for record in records if record.verdict is not Verdict.PASSED]
    return str(bad[0] if bad else Verdict.PASSED)
