"""One minus the cosine of the angle between rows, in the mean: one number."""

import torch

batch_size = 2048
features = 4096


def cosine_loss(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    similarity = torch.nn.functional.cosine_similarity(predictions, targets, dim=1)
    return torch.mean(1.0 - similarity)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, features), torch.randn(batch_size, features)]
