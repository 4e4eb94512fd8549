"""Rewards in the form that TRL's trainers ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from portkern.env.kernel_env import KernelEnv
from portkern.learn.rewards import Unavailable

Completion = str | Sequence[Mapping[str, str]]
TrlReward = Callable[..., list[float | None]]


def trl_reward(env: KernelEnv) -> TrlReward:
    """A reward function of ``GRPOTrainer``: each reply is one attempt of the operator that its row
    names in ``op``, or of the environment's own. All replies of a call are evaluated on the same
    sizes; one that the machine could not evaluate is None, which TRL leaves out."""

    def kernel_reward(
        prompts: Sequence[object],
        completions: Sequence[Completion],
        op: Sequence[str] | None = None,
        **columns: object,
    ) -> list[float | None]:
        seed = int(env.np_random.integers(1 << 31))
        names = op or [env.ops[0].name] * len(completions)
        return [
            _paid(env, _text(completion), name, seed)
            for completion, name in zip(completions, names, strict=True)
        ]

    return kernel_reward


def _paid(env: KernelEnv, text: str, op: str, seed: int) -> float | None:
    env.reset(seed=seed, options={"op": op})
    try:
        return env.step(text)[1]
    except Unavailable:
        return None


def _text(completion: Completion) -> str:
    """The text of a completion; of a chat, its last message."""
    if isinstance(completion, str):
        return completion
    return str(completion[-1]["content"]) if completion else ""
