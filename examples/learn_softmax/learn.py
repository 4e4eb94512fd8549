"""Learns to write a softmax on a CPU: a policy over decisions, paid by portkern's evaluator.

    python examples/learn_softmax/learn.py [seeds=0,1,2] [steps=20] [out=curve.json]

Each step draws a group of answers, pays each by Kevin's reward, and moves the policy towards those
that were paid more than the group's mean. Answers of a policy that draws by chance are paid beside
them. Equal programs of a run are evaluated once.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from policy import Policy
from softmax import DECISIONS

from portkern.env import KernelEnv, MacroEnv, Unavailable

GROUP, RATE, ENTROPY = 12, 5e-2, 0.02


@dataclass
class Paid:
    """Rewards of programs that were seen, and how many there are."""

    env: MacroEnv
    known: dict[tuple[int, ...], float] = field(default_factory=dict)

    def reward(self, choices: Sequence[int]) -> float | None:
        """The reward of a reply; None, which is not 0, where the machine could not evaluate it."""
        program = tuple(choices)
        if program not in self.known:
            try:
                self.known[program] = float(self.env.step(np.array(program))[1])
            except Unavailable as error:
                print(f"left out: {error}", file=sys.stderr)
        return self.known.get(program)


def learn(seed: int, steps: int, env: MacroEnv) -> list[dict[str, float]]:
    """The curve: a row for each step."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    env.reset(seed=seed)
    sizes = [len(several) for several in DECISIONS.choices.values()]
    policy, chance = Policy(sizes), np.random.default_rng(seed)
    optimizer = torch.optim.Adam(policy.parameters(), RATE)
    paid, curve, start = Paid(env), [], time.monotonic()
    for step in range(steps):
        drawn = policy.draw(GROUP)
        rewards = [paid.reward(row) for row in drawn.choices.tolist()]
        improve(policy, optimizer, drawn.log_probability, drawn.entropy, rewards)
        others = [paid.reward(row) for row in chance.integers(0, sizes, (GROUP // 2, len(sizes)))]
        curve.append(
            {
                "step": step,
                "reward": mean(rewards),
                "random": mean(others),
                "programs": len(paid.known),
                "seconds": round(time.monotonic() - start, 1),
            }
        )
        print(f"seed {seed}", curve[-1], flush=True)
    return curve


def improve(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    log_probability: torch.Tensor,
    entropy: torch.Tensor,
    rewards: Sequence[float | None],
) -> None:
    """Answers without a reward are left out."""
    rows = [row for row, reward in enumerate(rewards) if reward is not None]
    if len(rows) < 2:
        return
    values = torch.tensor([rewards[row] for row in rows])
    advantage = (values - values.mean()) / (values.std() + 1e-4)
    loss = -(advantage * log_probability[rows]).mean() - ENTROPY * entropy.mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


def mean(rewards: Sequence[float | None]) -> float:
    known = [reward for reward in rewards if reward is not None]
    return round(statistics.fmean(known), 4) if known else float("nan")


def main() -> None:
    words = dict(word.partition("=")[::2] for word in sys.argv[1:])
    seeds = [int(text) for text in words.get("seeds", "0,1,2").split(",")]
    curves = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            kernels = KernelEnv("softmax", reports=folder, run=f"seed-{seed}", turns=1_000_000)
            env = MacroEnv(kernels, DECISIONS)
            curves[seed] = learn(seed, int(words.get("steps", 20)), env)
    if "out" in words:
        Path(words["out"]).write_text(json.dumps(curves, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
