"""A linear layer and a leaky rectifier; both sizes of the layer are the same number's worth."""

import torch
import torch.nn as nn

batch_size = 48
in_features = 256
out_features = 256
slope = 0.1


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int, slope: float) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.slope = slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.leaky_relu(self.linear(x), self.slope)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, in_features)]


def get_init_inputs() -> list[float]:
    return [in_features, out_features, slope]
