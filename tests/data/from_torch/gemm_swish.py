"""A matrix product, then swish, a division, a clamp, tanh and another clamp."""

import torch

rows = 1024
in_features = 4096
out_features = 2048


class Model(torch.nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.gemm(x)
        x = x * torch.sigmoid(x) / 2.0
        x = torch.clamp(x, min=-1.0, max=1.0)
        return torch.clamp(torch.tanh(x), min=-1.0, max=1.0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(rows, in_features)]


def get_init_inputs() -> list[int]:
    return [in_features, out_features]
