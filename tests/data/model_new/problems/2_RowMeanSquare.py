"""Reduction: the mean of each row's squares."""

import torch
import torch.nn as nn

rows = 128
columns = 3000


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * x).mean(dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list[int]:
    return []
