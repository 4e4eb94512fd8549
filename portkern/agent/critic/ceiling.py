"""How close a kernel comes to what the hardware allows, and which resource holds it there.

KernelAgent calls it speed of light: the larger of what the memory and the arithmetic units do, of
their peaks. Where nobody counted, the roofline of the operator stands in.
"""

from __future__ import annotations

from collections.abc import Mapping

from portkern.agent.feedback.metrics import shown
from portkern.agent.feedback.rendering import SATURATED

_RESOURCES = {"memory_pct": "memory", "compute_pct": "arithmetic", "tensor_pct": "matrix units"}


def reached(metrics: Mapping[str, float]) -> float | None:
    """Percent; None where nothing is known of it."""
    counted = [metrics[name] for name in _RESOURCES if name in metrics]
    return max(counted) if counted else metrics.get("roofline_pct")


def told(metrics: Mapping[str, float]) -> str:
    """A sentence; empty where nothing is known."""
    share = reached(metrics)
    if share is None:
        return ""
    counted = {name: metrics[name] for name in _RESOURCES if name in metrics}
    if not counted:
        return f"It reaches {shown('roofline_pct', share)} of what the hardware's peaks allow."
    most = max(counted, key=lambda name: counted[name])
    if share < SATURATED:
        return f"Neither memory nor arithmetic is used well: {shown(most, share)} of a peak."
    return f"It is bound by {_RESOURCES[most]}, at {shown(most, share)} of the peak."
