"""Elementwise: the hyperbolic tangent of what is scaled, times a number that is fixed."""

import torch
import torch.nn as nn

batch_size = 64
width = 4096


class Model(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.scale) * 1.5


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, width)]


def get_init_inputs() -> list[float]:
    return [0.75]
