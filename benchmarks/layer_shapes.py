"""Shapes that layers of published models have, from a seed: whose, which layer and how many tokens
or images at once. Batches and lengths of sequences are log-uniform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from benchmarks.models import DECODERS, ENCODERS, GRAPHS, VISION, Convolution, Language, Pool
from portkern.spec.op import Scalar

Stream: TypeAlias = np.random.Generator
#: The model's name, the lengths, and the scalars.
Drawn: TypeAlias = tuple[str, dict[str, int], dict[str, Scalar]]
T = TypeVar("T")

DECODED, FILLED, IMAGES = (1, 512), (64, 16384), (1, 64)  # sequences; tokens; images
SAMPLED = 50  # tokens that sampling keeps


def log_uniform(stream: Stream, low: int, high: int) -> int:
    return round(float(np.exp(stream.uniform(np.log(low), np.log(high)))))


def _one(stream: Stream, of: Sequence[T]) -> T:
    return of[int(stream.integers(len(of)))]


def _tokens(stream: Stream, decoders: Sequence[Language] = DECODERS) -> tuple[Language, int]:
    """A model, and how many tokens it sees: one of each sequence where it decodes, whole ones
    where it reads."""
    if stream.random() < 0.25:
        encoder = _one(stream, ENCODERS)
        return encoder, encoder.at_once * log_uniform(
            stream, 1, max(1, FILLED[1] // encoder.at_once)
        )
    return _read(stream, decoders)


def _read(stream: Stream, decoders: Sequence[Language] = DECODERS) -> tuple[Language, int]:
    return _one(stream, decoders), log_uniform(
        stream, *(DECODED if stream.random() < 0.5 else FILLED)
    )


def _decoded(stream: Stream) -> tuple[Language, int]:
    return _one(stream, DECODERS), log_uniform(stream, *DECODED)


def _routed(stream: Stream) -> tuple[Language, int]:
    of = [model for model in DECODERS if model.experts]
    return _one(stream, of), log_uniform(stream, 1, FILLED[1])


# ---- operators; each gives the model, the lengths and the scalars


def _product(stream: Stream) -> Drawn:
    model, m = _tokens(stream)
    wide = model.heads * model.head
    layers = [
        (model.hidden, wide),
        ((1 + model.gated) * model.inner, model.hidden),
        (model.hidden, model.inner),
    ]
    if not model.latent:
        layers.append((wide + 2 * model.kv_heads * model.head, model.hidden))
    if model.experts:
        layers.append((model.experts, model.hidden))
    if not model.at_once and m <= DECODED[1]:
        layers.append((model.vocabulary, model.hidden))
    n, k = _one(stream, layers)
    return model.source, {"m": m, "n": n, "k": k}, {}


def _batch(stream: Stream) -> Drawn:
    model = _one(stream, ENCODERS)
    many = log_uniform(stream, 1, 64) * model.heads
    length, head = model.at_once, model.head
    n, k = (length, head) if stream.random() < 0.5 else (head, length)
    return model.source, {"batch": many, "m": length, "n": n, "k": k}, {}


def _attention(stream: Stream) -> Drawn:
    # Of a latent vector's heads, queries and values have other lengths.
    model, tokens = _tokens(stream, [model for model in DECODERS if not model.latent])
    length = model.at_once or max(tokens, FILLED[0])
    batch = log_uniform(stream, 1, max(1, 32768 // length))
    return (
        model.source,
        {"batch": batch, "heads": model.heads, "length": length, "dim": model.head},
        {},
    )


def _flat(stream: Stream) -> Drawn:
    model, tokens = _tokens(stream)
    return model.source, {"n": tokens * model.inner}, {}


def _matrix(rows: str, cols: str) -> Callable[[Stream], Drawn]:
    def draw(stream: Stream) -> Drawn:
        model, tokens = _tokens(stream)
        return model.source, {rows: tokens, cols: _one(stream, (model.hidden, model.inner))}, {}

    return draw


def _normed(stream: Stream) -> Drawn:
    """A layer's tokens, or, where a model norms them by themselves, its queries' heads."""
    model, tokens = _tokens(stream)
    if model.head_norm and stream.random() < 0.5:
        return model.source, {"rows": tokens * model.heads, "cols": model.head}, {}
    return model.source, {"rows": tokens, "cols": model.hidden}, {}


def _softmax(stream: Stream) -> Drawn:
    kind = int(stream.integers(3))
    if kind == 0:
        model, tokens = _decoded(stream)
        return model.source, {"rows": tokens, "cols": model.vocabulary}, {}
    if kind == 1:
        model, tokens = _routed(stream)
        return model.source, {"rows": tokens, "cols": model.experts}, {}
    model = _one(stream, ENCODERS)
    many = log_uniform(stream, 1, 32) * model.heads * model.at_once
    return model.source, {"rows": many, "cols": model.at_once}, {}


def _chosen(stream: Stream) -> Drawn:
    model, rows = _decoded(stream)
    return model.source, {"rows": rows, "cols": model.vocabulary}, {}


def _loss(stream: Stream) -> Drawn:
    model = _one(stream, DECODERS)
    return model.source, {"rows": log_uniform(stream, 64, 8192), "classes": model.vocabulary}, {}


def _topk(stream: Stream) -> Drawn:
    if stream.random() < 0.3:
        name, dims, _ = _chosen(stream)
        return name, dims | {"kept": SAMPLED}, {"k": SAMPLED}
    model, tokens = _routed(stream)
    return (
        model.source,
        {"rows": tokens, "cols": model.experts, "kept": model.chosen},
        {"k": model.chosen},
    )


def _sum(stream: Stream) -> Drawn:
    kind = int(stream.integers(3))
    model, tokens = _tokens(stream)
    if kind == 0:  # a bias' gradient
        return model.source, {"outer": 1, "reduce": tokens, "inner": model.hidden}, {}
    if kind == 1:  # the mean of a sequence's tokens
        encoder = _one(stream, ENCODERS)
        many = log_uniform(stream, *IMAGES)
        return (
            encoder.source,
            {"outer": many, "reduce": encoder.at_once, "inner": encoder.hidden},
            {},
        )
    name, layer = _layer(stream)  # a network's last pool
    return (
        name,
        {"outer": log_uniform(stream, *IMAGES) * layer.f, "reduce": layer.side**2, "inner": 1},
        {},
    )


def _embedding(stream: Stream) -> Drawn:
    model, tokens = _read(stream)
    return model.source, {"vocab": model.vocabulary, "dim": model.hidden, "n": tokens}, {}


def _scatter(stream: Stream) -> Drawn:
    """Messages of a graph, what experts say of tokens, or an embedding's gradient."""
    kind = int(stream.integers(3))
    if kind == 0:
        graph = _one(stream, GRAPHS)
        return graph.source, {"rows": graph.nodes, "dim": graph.features, "n": graph.edges}, {}
    if kind == 1:
        model, tokens = _routed(stream)
        return model.source, {"rows": tokens, "dim": model.hidden, "n": tokens * model.chosen}, {}
    model, tokens = _read(stream)
    return model.source, {"rows": model.vocabulary, "dim": model.hidden, "n": tokens}, {}


def _rope(stream: Stream) -> Drawn:
    model, tokens = _read(stream, [model for model in DECODERS if model.rotary != 0])
    rotary = model.rotary or model.head
    return model.source, {"tokens": tokens, "heads": model.heads, "half": rotary // 2}, {}


def _layer(stream: Stream) -> tuple[str, Convolution]:
    network = _one(stream, VISION)
    return network.source, _one(stream, network.layers)


def _images(stream: Stream, layer: Convolution) -> tuple[dict[str, int], dict[str, Scalar]]:
    dims = {
        "n": log_uniform(stream, *IMAGES),
        "c": layer.c,
        "h": layer.side,
        "w": layer.side,
        "f": layer.f,
    }
    dims |= {"kh": layer.filter, "kw": layer.filter}
    return dims, {"stride": layer.stride, "padding": layer.padding}


def _convolution(stream: Stream) -> Drawn:
    name, layer = _layer(stream)
    return name, *_images(stream, layer)


def _pooled(stream: Stream) -> Drawn:
    """A convolution that a pool follows: its channels and side are what the pool sees."""
    pairs = [
        (network.source, layer, pool)
        for network in VISION
        for layer in network.layers
        for pool in network.pools
        if pool.c == layer.f and pool.padding == 0 and _side(layer) == pool.side
    ]
    name, layer, pool = _one(stream, pairs)
    dims, scalars = _images(stream, layer)
    return name, dims, {**scalars, "window": pool.window, "pool_stride": pool.stride}


def _side(layer: Convolution) -> int:
    return (layer.side + 2 * layer.padding - layer.filter) // layer.stride + 1


def _pool(stream: Stream) -> Drawn:
    pools: list[tuple[str, Pool]] = [(n.source, pool) for n in VISION for pool in n.pools]
    name, pool = _one(stream, pools)
    dims = {"n": log_uniform(stream, *IMAGES), "c": pool.c, "h": pool.side, "w": pool.side}
    return name, dims, {"window": pool.window, "stride": pool.stride, "padding": pool.padding}


LAYERS: dict[str, Callable[[Stream], Drawn]] = {
    **dict.fromkeys(("relu", "gelu", "silu_mul"), _flat),
    "add": _matrix("m", "n"),
    **dict.fromkeys(("bias_gelu", "transpose"), _matrix("rows", "cols")),
    **dict.fromkeys(("layernorm", "rmsnorm"), _normed),
    "softmax": _softmax,
    **dict.fromkeys(("argmax", "cumsum"), _chosen),
    "cross_entropy": _loss,
    "topk": _topk,
    "sum": _sum,
    **dict.fromkeys(("matmul", "int8_matmul", "linear", "linear_bias"), _product),
    "bmm": _batch,
    "embedding": _embedding,
    "scatter_add": _scatter,
    "rope": _rope,
    "attention": _attention,
    "conv2d": _convolution,
    "maxpool2d": _pool,
    "conv2d_relu_maxpool": _pooled,
}
