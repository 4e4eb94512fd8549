"""Operators for the study of tolerances: small functions of PyTorch that declare nothing.

Those of ``LATER`` were drawn up after the rules of portkern/rounding/sum_errors.py and
replay.py were finished, and no rule was changed for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Ids:
    """An input of indices below ``bound``."""

    shape: Shape
    bound: int


@dataclass(frozen=True)
class Operator:
    """``sizes``: of each call the inputs' shapes. ``kernels``: honest ways of others, written by
    hand, beside the arithmetic of :mod:`tolerance_kernels`."""

    name: str
    reference: Callable[..., Any]
    sizes: tuple[tuple[Shape | Ids, ...], ...]
    kernels: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float32", "bfloat16")  # that the framework has a kernel for


# ---- honest kernels by hand


def welford(x: Tensor, eps: float = 1e-5) -> Tensor:
    """Layer norm; mean and variance in one pass that updates both."""
    mean = torch.zeros(x.shape[:-1])
    squares = torch.zeros(x.shape[:-1])
    for k, part in enumerate(x.unbind(-1), 1):
        off = part - mean
        mean = mean + off / k
        squares = squares + off * (part - mean)
    scale = (squares / x.shape[-1] + eps).rsqrt()
    return (x - mean[..., None]) * scale[..., None]


def online_softmax(x: Tensor) -> Tensor:
    most = torch.full(x.shape[:-1], -torch.inf)
    total = torch.zeros(x.shape[:-1])
    for part in torch.split(x, 64, -1):
        new = torch.maximum(most, part.amax(-1))
        total = total * (most - new).exp() + (part - new[..., None]).exp().sum(-1)
        most = new
    return (x - most[..., None]).exp() / total[..., None]


def flash_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Blocks of keys, powers of 2, and the division at the end."""
    scale = q.shape[-1] ** -0.5 * 1.4426950408889634
    most = torch.full(q.shape[:-1], -torch.inf)
    total, out = torch.zeros(q.shape[:-1]), torch.zeros_like(q)
    for keys, values in zip(torch.split(k, 32, -2), torch.split(v, 32, -2), strict=True):
        scores = (q @ keys.mT) * scale
        new = torch.maximum(most, scores.amax(-1))
        powers, shrink = (scores - new[..., None]).exp2(), (most - new).exp2()
        total = total * shrink + powers.sum(-1)
        out = out * shrink[..., None] + powers @ values
        most = new
    return out / total[..., None]


def block_scan(x: Tensor) -> Tensor:
    blocks = torch.unflatten(F.pad(x, (0, -x.shape[-1] % 32)), -1, (-1, 32))
    inner, carry = blocks, torch.zeros(blocks.shape[:-2])
    for step in (1, 2, 4, 8, 16):
        inner = inner + F.pad(inner, (step, 0))[..., :32]
    parts = []
    for block in inner.unbind(-2):
        parts.append(block + carry[..., None])
        carry = carry + block[..., -1]
    return torch.cat(parts, -1)[..., : x.shape[-1]]


def cosine_by_units(a: Tensor, b: Tensor) -> Tensor:
    """The cosine, for which both vectors are divided by their lengths before they are
    multiplied."""
    left = a / (a * a).sum(-1, keepdim=True).sqrt().clamp(1e-8)
    right = b / (b * b).sum(-1, keepdim=True).sqrt().clamp(1e-8)
    return (left * right).sum(-1)


def folded_batch_norm(x: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    scale = (spread.abs() + 0.1 + 1e-5).rsqrt()
    return x * scale[:, None, None] - (mean * scale)[:, None, None]


def gelu_by_erfc(x: Tensor) -> Tensor:
    return 0.5 * x * torch.erfc(-x * 0.7071067811865476)


def image_to_columns(x: Tensor, w: Tensor) -> Tensor:
    columns = F.unfold(x, w.shape[-2:], padding=1)
    return torch.unflatten(w.flatten(1) @ columns, -1, x.shape[-2:])


def cross_entropy_in_a_row(x: Tensor, target: Tensor) -> Tensor:
    most = x.amax(-1)
    total = torch.zeros(len(x))
    for part in (x - most[:, None]).exp().unbind(-1):
        total = total + part
    loss = total.log() + most - x.gather(-1, target[:, None])[:, 0]
    return loss.sum() / len(x)


# ---- references


def rms_norm(x: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def conv3d_group_norm_mean(x: Tensor, w: Tensor) -> Tensor:
    return F.group_norm(F.conv3d(x, w), 4).mean(dim=[1, 2, 3, 4])


def cosine_loss(a: Tensor, b: Tensor) -> Tensor:
    return (1 - F.cosine_similarity(a, b, dim=1)).mean()


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.mT) * q.shape[-1] ** -0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    shares: Tensor = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return shares @ v


def batch_norm(x: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    return F.batch_norm(x, mean, spread.abs() + 0.1)


ROWS, WIDE = ((64, 257),), ((16, 4096),)
MATRICES = (((48, 512), (512, 40)), ((24, 4096), (4096, 24)))
IMAGE = ((2, 8, 14, 14), (12, 8, 3, 3))
HEADS = ((1, 2, 96, 32),) * 3
PAIR = (((64, 300),) * 2, ((128, 1024),) * 2)

FIRST = (
    Operator("add", torch.add, (((64, 257),) * 2,)),
    Operator("silu_mul", lambda x, y: F.silu(x) * y, (((64, 257),) * 2,)),
    Operator("gelu", F.gelu, (ROWS,), {"erfc": gelu_by_erfc}),
    Operator("exp_div", lambda x, y: x.exp() / (1 + y.exp()), (((64, 257),) * 2,)),
    Operator("tanh", torch.tanh, (ROWS,)),
    Operator("sum_rows", lambda x: x.sum(-1), (ROWS, WIDE)),
    Operator("sum_all", lambda x: x.sum(), (ROWS, WIDE)),
    Operator("mean_columns", lambda x: x.mean(0), (ROWS, ((1024, 33),))),
    Operator("variance", lambda x: x.var(-1), (ROWS, WIDE)),
    Operator("std_all", lambda x: x.std(), (ROWS,)),
    Operator("norm", lambda x: torch.linalg.vector_norm(x, dim=-1), (ROWS, WIDE)),
    Operator("logsumexp", lambda x: x.logsumexp(-1), (ROWS, WIDE)),
    Operator("softmax", lambda x: x.softmax(-1), (ROWS, WIDE), {"online": online_softmax}),
    Operator("log_softmax", lambda x: x.log_softmax(-1), (ROWS, WIDE)),
    Operator(
        "layer_norm", lambda x: F.layer_norm(x, x.shape[-1:]), (ROWS, WIDE), {"Welford": welford}
    ),
    Operator("rms_norm", rms_norm, (ROWS, WIDE)),
    Operator("group_norm", lambda x: F.group_norm(x, 4), (((2, 8, 12, 12),),)),
    Operator("instance_norm", F.instance_norm, (((2, 8, 12, 12),),)),
    Operator(
        "batch_norm",
        batch_norm,
        (((4, 8, 12, 12), (8,), (8,)),),
        {"folded": folded_batch_norm},
    ),
    Operator(
        "batch_norm_of_batch",
        lambda x: F.batch_norm(x, None, None, training=True),
        (((8, 8, 12, 12),),),
    ),
    Operator("matmul", torch.matmul, MATRICES),
    Operator("linear", F.linear, (((48, 512), (40, 512), (40,)),)),
    Operator("bmm", torch.bmm, (((4, 32, 200), (4, 200, 24)),)),
    Operator("matmul_of_relu", lambda a, b: (a.relu() @ b).relu(), MATRICES[:1]),
    Operator("dot", torch.dot, (((4096,),) * 2,)),
    Operator("conv1d", F.conv1d, (((2, 16, 200), (12, 16, 5)),)),
    Operator(
        "conv2d",
        lambda x, w: F.conv2d(x, w, padding=1),
        (IMAGE,),
        {"columns": image_to_columns},
    ),
    Operator(
        "conv2d_strided_groups",
        lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=2),
        (((2, 8, 15, 15), (12, 4, 3, 3)),),
    ),
    Operator("conv3d", F.conv3d, (((1, 4, 8, 8, 8), (6, 4, 3, 3, 3)),)),
    Operator(
        "conv_transpose2d",
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
        (((2, 8, 9, 9), (8, 6, 4, 4)),),
    ),
    Operator(
        "conv3d_group_norm_mean",
        conv3d_group_norm_mean,
        (((2, 3, 8, 12, 12), (8, 3, 3, 3, 3)),),
    ),
    Operator("max_pool2d", lambda x: F.max_pool2d(x, 3, 2), (((2, 8, 15, 15),),)),
    Operator("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2), (((2, 8, 15, 15),),)),
    Operator("mse_loss", F.mse_loss, PAIR),
    Operator("huber_loss", F.huber_loss, PAIR),
    Operator(
        "cross_entropy",
        F.cross_entropy,
        (((64, 300), Ids((64,), 300)), ((128, 1000), Ids((128,), 1000))),
        {"in a row": cross_entropy_in_a_row},
    ),
    Operator(
        "kl_div",
        lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        PAIR,
    ),
    Operator("cosine_similarity", F.cosine_similarity, PAIR, {"units": cosine_by_units}),
    Operator("cosine_loss", cosine_loss, PAIR),
    Operator("cosine_loss_of_itself", lambda x: cosine_loss(x, x.clone()), (((128, 1024),),)),
    Operator(
        "triplet_loss",
        F.triplet_margin_loss,
        (((64, 300),) * 3,),
    ),
    Operator("hinge_loss", lambda x, y: (1 - x * y.sign()).clamp(0).mean(), PAIR),
    Operator("attention", F.scaled_dot_product_attention, (HEADS,), {"flash": flash_attention}),
    Operator("causal_attention", causal_attention, (HEADS,)),
    Operator("cumsum", lambda x: x.cumsum(-1), (ROWS, ((8, 2048),)), {"blocks": block_scan}),
    Operator("cumprod", lambda x: (1 + 0.01 * x).cumprod(-1), (ROWS,)),
    Operator("frobenius_normalised", lambda x: x / x.norm(), (ROWS,)),
    Operator("l1_normalised", lambda x: x / x.abs().mean(-1, keepdim=True), (ROWS,)),
)


# ---- drawn up when the rules were finished


def contrastive_loss(a: Tensor, b: Tensor) -> Tensor:
    scores = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T / 0.07
    return F.cross_entropy(scores, torch.arange(len(a), device=a.device))


def transformer_mlp(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.layer_norm(x + F.linear(F.gelu(F.linear(x, up)), down), x.shape[-1:])


def squeeze_excite(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.sigmoid(F.linear(x.mean((2, 3)), w))[:, :, None, None]


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return (q @ (k.mT @ v)) / (q @ k.sum(-2).unsqueeze(-1))


def selective_scan(x: Tensor, gate: Tensor) -> Tensor:
    state, states = torch.zeros_like(x[:, 0]), []
    for step in range(x.shape[1]):
        keep = torch.sigmoid(gate[:, step])
        state = keep * state + (1 - keep) * x[:, step]
        states.append(state)
    return torch.stack(states, 1)


def gru_step(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    a, b = F.linear(x, w).chunk(3, -1), F.linear(h, u).chunk(3, -1)
    reset, update = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
    return (1 - update) * torch.tanh(a[2] + reset * b[2]) + update * h


def kurtosis(x: Tensor) -> Tensor:
    off = x - x.mean(-1, keepdim=True)
    return off.pow(4).mean(-1) / off.square().mean(-1).square()


def focal_loss(x: Tensor, y: Tensor) -> Tensor:
    p = torch.sigmoid(x)
    return -(((1 - p) ** 2) * F.logsigmoid(x) * (y > 0)).mean()


def dice_loss(x: Tensor, y: Tensor) -> Tensor:
    p, t = torch.sigmoid(x), (y > 0).to(x.dtype)
    return 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)


def mixture_of_experts(x: Tensor, router: Tensor, experts: Tensor) -> Tensor:
    shares = (x @ router).softmax(-1)
    return torch.einsum("te,td,edf->tf", shares, x, experts)


def standardised_conv(x: Tensor, w: Tensor) -> Tensor:
    flat = w.flatten(1)
    flat = (flat - flat.mean(1, keepdim=True)) / (flat.std(1, keepdim=True) + 1e-5)
    return F.conv2d(x, flat.view_as(w))


def separable_conv(x: Tensor, deep: Tensor, wide: Tensor) -> Tensor:
    return F.conv2d(F.conv2d(x, deep, padding=1, groups=x.shape[1]).relu(), wide)


def softcapped_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (10 * torch.tanh((q @ k.mT) / 60)).softmax(-1) @ v


def bag_means(table: Tensor, ids: Tensor) -> Tensor:
    return F.embedding_bag(ids, table, mode="mean")


def message_passing(x: Tensor, source: Tensor, sink: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, sink, x[source])


def quadratic_form(x: Tensor, a: Tensor) -> Tensor:
    return ((x @ a) * x).sum(-1)


LATER = (
    Operator("mish", F.mish, (ROWS,)),
    Operator("log_sigmoid_sum", lambda x: F.logsigmoid(x).sum(-1), (ROWS,)),
    Operator("einsum", lambda a, b: torch.einsum("bij,bkj->bik", a, b), (((3, 20, 150),) * 2,)),
    Operator("embedding_bag", bag_means, (((200, 24), Ids((40, 64), 200)),)),
    Operator("message_passing", message_passing, (((50, 16), Ids((900,), 50), Ids((900,), 50)),)),
    Operator("bilinear", F.bilinear, (((24, 20), (24, 30), (9, 20, 30)),)),
    Operator(
        "distances",
        torch.cdist,
        (((40, 20), (30, 20)), ((20, 20), (20, 20))),
        dtypes=("float32",),
    ),
    Operator(
        "local_response_norm",
        lambda x: F.local_response_norm(x, 3),
        (((2, 8, 9, 9),),),
        dtypes=("float32",),
    ),
    Operator(
        "conv_transpose1d",
        lambda x, w: F.conv_transpose1d(x, w, stride=3, groups=2),
        (((2, 8, 40), (8, 6, 5)),),
    ),
    Operator("separable_conv", separable_conv, (((2, 8, 12, 12), (8, 1, 3, 3), (16, 8, 1, 1)),)),
    Operator("standardised_conv", standardised_conv, (IMAGE,)),
    Operator(
        "conv1d_dilated",
        lambda x, w, b: F.conv1d(x, w, b, dilation=3),
        (((2, 16, 90), (8, 16, 5), (8,)),),
    ),
    Operator("gru_step", gru_step, (((16, 40), (16, 32), (96, 40), (96, 32)),)),
    Operator(
        "bce_with_logits", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), PAIR
    ),
    Operator(
        "multi_margin_loss",
        F.multi_margin_loss,
        (((64, 300), Ids((64,), 300)),),
        dtypes=("float32",),
    ),
    Operator("smooth_l1_loss", F.smooth_l1_loss, PAIR),
    Operator("gaussian_nll", lambda x, y: F.gaussian_nll_loss(x, y, x.square() + 0.1), PAIR),
    Operator("contrastive_loss", contrastive_loss, (((48, 64), (48, 64)),)),
    Operator("squeeze_excite", squeeze_excite, (((2, 16, 9, 9), (16, 16)),)),
    Operator("transformer_mlp", transformer_mlp, (((24, 48), (192, 48), (48, 192)),)),
    Operator("linear_attention", linear_attention, (HEADS,)),
    Operator("softcapped_attention", softcapped_attention, (HEADS,)),
    Operator("selective_scan", selective_scan, (((2, 100, 16),) * 2,)),
    Operator("log_cumsum_exp", lambda x: x.logcumsumexp(-1), (ROWS,)),
    Operator("kurtosis", kurtosis, (ROWS, WIDE)),
    Operator("covariance", torch.cov, (((20, 300),),)),
    Operator(
        "upsample", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (((2, 4, 9, 9),),)
    ),
    Operator("entropy", lambda x: torch.special.entr(x.softmax(-1)).sum(-1), (ROWS,)),
    Operator("focal_loss", focal_loss, PAIR),
    Operator("dice_loss", dice_loss, PAIR),
    Operator("mixture_of_experts", mixture_of_experts, (((24, 32), (32, 6), (6, 32, 20)),)),
    Operator("quadratic_form", quadratic_form, (((40, 100), (100, 100)),)),
    Operator("matrix_cube", lambda a: a @ a @ a / a.shape[0], (((64, 64),),)),
    Operator("lp_pool", lambda x: F.lp_pool2d(x, 2, 3), (((2, 4, 12, 12),),)),
    Operator("poly", lambda x: ((x - 3) * x + 3) * x - 1, (ROWS,)),
    Operator("softmax_columns", lambda x: (x / 0.7).softmax(0), (((700, 12),),)),
)
OPERATORS = FIRST + LATER
