"""A convolution in three dimensions, normalised in groups, and the mean of each sample."""

import torch

batch_size = 16
in_channels = 3
out_channels = 24
depth, height, width = 18, 22, 26
kernel_size = 3
groups = 8


class Model(torch.nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel: int, groups: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv3d(in_channels, out_channels, kernel)
        self.norm = torch.nn.GroupNorm(groups, out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.norm(self.conv(x))
        return y.mean(dim=[1, 2, 3, 4])


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs() -> list[int]:
    return [in_channels, out_channels, kernel_size, groups]
