"""Matrix product: of the transposed first with the second."""

import torch
import torch.nn as nn

M = 192
K = 160
N = 224


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a.T, b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(K, M), torch.randn(K, N)]


def get_init_inputs() -> list[int]:
    return []
