"""A small recurrent network that makes decisions in turn, each in the light of those before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Drawn:
    """``choices`` has a row for each answer; the others a number for each."""

    choices: Tensor
    log_probability: Tensor
    entropy: Tensor


class Policy(nn.Module):
    """Begins with equal chances for all choices."""

    def __init__(self, sizes: Sequence[int], width: int = 32) -> None:
        super().__init__()
        self.sizes = sizes
        self.first = nn.Parameter(torch.zeros(width))
        self.chosen = nn.ModuleList(nn.Embedding(size, width) for size in sizes)
        self.memory = nn.GRUCell(width, width)
        self.heads = nn.ModuleList(nn.Linear(width, size) for size in sizes)
        for head in self.heads:
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def draw(self, count: int) -> Drawn:
        seen = self.first.expand(count, -1)
        state = torch.zeros_like(seen)
        choices, told, surprise = [], torch.zeros(count), torch.zeros(count)
        for embedding, head in zip(self.chosen, self.heads, strict=True):
            state = self.memory(seen, state)
            chances = torch.distributions.Categorical(logits=head(state))
            choice = chances.sample()
            told = told + chances.log_prob(choice)
            surprise = surprise + chances.entropy()
            choices.append(choice)
            seen = embedding(choice)
        return Drawn(torch.stack(choices, 1), told, surprise)
