"""Two outputs: the sum and the difference of two tensors."""

import torch
import torch.nn as nn

rows = 96
columns = 1000


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a + b, a - b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs() -> list[int]:
    return []
