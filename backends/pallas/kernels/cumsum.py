"""Inclusive scan of each row in float32: block by block, carrying the sum of those before.

A block is a square of lanes and is scanned along both its sides. Triton's lowering of Pallas has
no scan over blocks of two axes, so each scan is a product with a triangle of ones.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK = 1024  # knob: 256 1024 4096
NUM_WARPS = 4  # knob: 2 4 8
