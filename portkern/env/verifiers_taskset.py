"""Operators as a taskset of *verifiers*: a task each, whose reward is an environment's.

*verifiers* finds a taskset by the name of an installed module that exports it;
``examples/verifiers_taskset`` is one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import cache

import verifiers.v1 as vf

from portkern.agent.proposer.reading import TAGS
from portkern.env.kernel_env import KernelEnv
from portkern.learn.harbor import oracle

#: An environment has one episode at a time.
_TURN = threading.Lock()


class KernelData(vf.TaskData):
    """A task as it stands in traces: an operator, and what an answer is asked to be."""

    op: str
    places: tuple[str, ...]
    reward: str = ""
    timed: bool = False


class KernelConfig(vf.TasksetConfig):
    """Options of :class:`portkern.env.KernelEnv`."""

    ops: tuple[str, ...] = ("softmax", "rmsnorm", "relu")
    places: tuple[str, ...] = ("cpu@x86_64",)
    reward: str = ""
    timed: bool = False


class KernelTask(vf.Task[KernelData]):
    """Pays for a reply with a kernel. Where the machine could not evaluate it, the rollout fails
    with an error, which *verifiers* may retry; it is not a reward of 0."""

    @vf.reward
    async def kernel(self, trace: vf.Trace) -> float:
        return await asyncio.to_thread(_paid, self.data, trace.last_reply)

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Whether the kernel that ships for the operator is paid in the first place."""
        task, *_ = _environment(self.data).tasks()
        kernel = f"```{TAGS[task.language][0]}\n{oracle(self.data.op, task)}\n```"
        return await asyncio.to_thread(_paid, self.data, kernel) > 0


class KernelTaskset(vf.Taskset[KernelTask, KernelConfig]):
    """One task for each operator of the configuration."""

    def load(self) -> Iterator[KernelTask]:
        config = self.config
        for op in config.ops:
            data = KernelData(
                id=op,
                name=op,
                op=op,
                places=config.places,
                reward=config.reward,
                timed=config.timed,
            )
            prompt, _ = _environment(data).reset(seed=0)
            yield KernelTask(data.model_copy(update={"prompt": prompt}), config.task)


@cache
def _made(op: str, places: tuple[str, ...], reward: str, timed: bool) -> KernelEnv:
    return KernelEnv(op, places, reward=reward, timed=timed)


def _environment(data: KernelData) -> KernelEnv:
    return _made(data.op, data.places, data.reward, data.timed)


def _paid(data: KernelData, reply: str) -> float:
    """Raises Unavailable."""
    environment = _environment(data)
    with _TURN:
        environment.reset()
        return environment.step(reply)[1]
