"""Shapes that a grid draws: the same for a seed, within limits, layers of the models named."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import grid_shapes, layer_shapes, models
from portkern import ops

LAYERS: tuple[grid_shapes.Kind, ...] = ("layers",)


def _draw(op: str, seed: int = 7, count: int = 5) -> list[tuple[str, dict[str, int]]]:
    stream = np.random.default_rng(seed)
    drawn = grid_shapes.draw(op, count, stream, gpu=True, kinds=LAYERS)
    return [(workload.name, dict(workload.dims)) for workload in drawn]


def test_layers_of_every_operator_are_drawn_alike_for_a_seed() -> None:
    for op in grid_shapes.RULES:
        drawn = _draw(op)
        assert drawn == _draw(op)
        assert len({name for name, _ in drawn}) == 5
        assert all(set(dims) == set(ops.load(op).signature.axes) for _, dims in drawn)


@pytest.mark.parametrize(("op", "axis"), [("cross_entropy", "classes"), ("embedding", "vocab")])
def test_a_vocabulary_is_that_of_the_model_in_the_name(op: str, axis: str) -> None:
    known = {m.source.rpartition("/")[2]: m.vocabulary for m in models.DECODERS}
    for name, dims in _draw(op):
        assert dims[axis] in [v for model, v in known.items() if name.startswith(model)]


def test_a_pooled_layer_is_one_whose_pool_sees_its_output() -> None:
    pairs = {
        (layer.c, layer.f, layer.side)
        for network in models.VISION
        for layer in network.layers
        for pool in network.pools
        if (pool.c, pool.side) == (layer.f, layer_shapes._side(layer))
    }
    for _, dims in _draw("conv2d_relu_maxpool"):
        assert (dims["c"], dims["f"], dims["h"]) in pairs


def test_lengths_of_a_model_agree_with_each_other() -> None:
    known = (*models.DECODERS, *models.ENCODERS)
    assert len({model.source for model in known}) == len(known) >= 40
    for model in known:
        assert model.heads % model.kv_heads == 0 and model.chosen <= model.experts, model
        assert bool(model.vocabulary) or model.at_once, model
    for encoder in models.ENCODERS:
        assert encoder.heads * encoder.head == encoder.hidden, encoder
    assert all(d.vocabulary and not d.at_once for d in models.DECODERS)


def test_a_filter_or_a_window_fits_its_image() -> None:
    for network in models.VISION:
        for layer in network.layers:
            assert layer.side + 2 * layer.padding >= layer.filter > layer.padding, network.source
        for pool in network.pools:
            assert pool.side >= pool.window >= 2 * pool.padding, network.source
