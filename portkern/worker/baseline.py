"""The framework's own way to an operator's answer, as a kernel that is timed beside others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkern.spec.backend import Call

if TYPE_CHECKING:
    import torch


@dataclass
class BaselineLaunch:
    """Calls ``function``, which takes the inputs, then the scalars by name.

    Its answers are memory of their own, as a kernel's are: what is a view of an input, like the
    transpose of a vector, is copied, or the framework would be timed at no work. Whether there is
    such an answer depends on the sizes alone and is asked once for each.
    """

    function: Callable[..., object]
    _dims: Mapping[str, int] | None = None
    _views: bool = False

    def __call__(self, call: Call) -> Sequence[torch.Tensor]:
        returned = self.function(*call.inputs, **call.scalars)
        outputs = returned if isinstance(returned, tuple) else (returned,)
        if call.dims is not self._dims:  # all calls of a round have one mapping
            self._dims = call.dims
            self._views = any(_is_view(output, call.inputs) for output in outputs)
        if not self._views:
            return outputs
        return tuple(o.clone() if _is_view(o, call.inputs) else o for o in outputs)


def _is_view(output: torch.Tensor, inputs: Sequence[torch.Tensor]) -> bool:
    memory = output.untyped_storage().data_ptr()
    return bool(memory) and memory in [i.untyped_storage().data_ptr() for i in inputs]
