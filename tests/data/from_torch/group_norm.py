"""Each group of channels by its own mean and variance."""

import torch

batch_size = 32
features = 64
num_groups = 8
height, width = 96, 128


class Model(torch.nn.Module):
    def __init__(self, features: int, groups: int) -> None:
        super().__init__()
        self.norm = torch.nn.GroupNorm(num_groups=groups, num_channels=features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.norm(x)
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(batch_size, features, height, width)]


def get_init_inputs() -> list[int]:
    return [features, num_groups]
