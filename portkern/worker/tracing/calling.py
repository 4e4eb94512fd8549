"""One call of a file's operator without values: for the sizes of what comes out, and for what a
kernel could not do."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch  # noqa: TID253 - imported where a file is traced, in a worker
from torch._ops import OpOverload  # noqa: TID253
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: TID253
from torch.utils._pytree import tree_leaves  # noqa: TID253

from portkern.spec.from_torch.traced import RANDOM
from portkern.worker.tracing.exporting import Lifted
from portkern.worker.tracing.loading import LoadedOperator, NotAnOperator


def place(frames: Sequence[traceback.FrameSummary], filename: str) -> tuple[int, str]:
    """The last line of the file on the way."""
    own = [frame for frame in frames if frame.filename == filename]
    return (own[-1].lineno or 0, (own[-1].line or "").strip()) if own else (0, "")


@dataclass(frozen=True)
class _Drawn:
    """The place where the file asks for random numbers, and by which function. ``storage`` is kept,
    so that its address stays its own."""

    name: str
    line: int
    storage: torch.UntypedStorage


class CallWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows what becomes of random numbers, from storage to storage: a constructor may draw
    parameters which the file then replaces, and the answer does not depend on them."""

    def __init__(self, filename: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._filename = filename
        self._drawn: dict[int, _Drawn] = {}

    def __torch_dispatch__(
        self,
        function: OpOverload,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.partition("::")[2]
        made = _tensors(result)
        if torch.Tag.nondeterministic_seeded in function.tags and "attention" not in name:
            line, _ = place(traceback.extract_stack(), self._filename)
            self._mark(made, name.rstrip("_"), line)
        elif name in _OVERWRITING:
            self._overwritten(made, _tensors((args[1:], kwargs)))
        elif not name.endswith("_like") and not name.startswith("new_"):  # of shapes alone
            self._follow(made, _tensors((args, kwargs)))
        return result

    def check(self, outputs: object) -> None:
        """Raises NotAnOperator where one of them depends on random numbers."""
        for output in _tensors(outputs):
            drawn = self._drawn.get(_address(output))
            if drawn is not None:
                raise NotAnOperator(
                    f"{RANDOM} ({drawn.name}), so it has no right answer; leave it "
                    "out, as dropout by p=0 or by eval() in __init__",
                    drawn.line,
                )

    def _mark(self, made: Sequence[torch.Tensor], name: str, line: int) -> None:
        for one in made:
            self._drawn[_address(one)] = _Drawn(name, line, one.untyped_storage())

    def _follow(self, made: Sequence[torch.Tensor], of: Sequence[torch.Tensor]) -> None:
        known = (self._drawn[_address(one)] for one in of if _address(one) in self._drawn)
        for drawn in known:
            return self._mark(made, drawn.name, drawn.line)

    def _overwritten(self, made: Sequence[torch.Tensor], by: Sequence[torch.Tensor]) -> None:
        """A tensor that is written to as a whole holds what it was written with alone."""
        for one in made:
            if one.numel() * one.element_size() == one.untyped_storage().nbytes():
                self._drawn.pop(_address(one), None)
        self._follow(made, by)


#: What replaces every element of its first argument.
_OVERWRITING = frozenset(("copy_", "fill_", "zero_"))


def _tensors(value: object) -> list[torch.Tensor]:
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@dataclass(frozen=True)
class FakeCall:
    """How the operator is called without values: its state and inputs at given sizes."""

    loaded: LoadedOperator
    lifted: Mapping[str, torch.Tensor]

    def outputs(
        self, shapes: Mapping[str, Sequence[int]] | None = None, dtype: torch.dtype | None = None
    ) -> list[Any]:
        """``shapes`` of inputs and state, ``dtype`` of all floats; as in the file without."""
        state, inputs = self.given(shapes, dtype)
        with self.loaded.fake, torch.no_grad():
            result = Lifted(self.loaded.call, self.loaded.model)(state, inputs)
        return tree_leaves(result)

    def changes_itself(self) -> bool:
        """Whether a call changes the module beyond its parameters and buffers."""
        lifted = Lifted(self.loaded.call, self.loaded.model)
        with self.loaded.fake, torch.no_grad():
            lifted(*self.given(None, None))
        return bool(vars(lifted)["changed"])

    def sizes(self) -> dict[str, list[int]]:
        """The sizes of inputs, lifted state and outputs, as in the file."""
        found = {
            f"input.{number}": list(one.shape)
            for number, one in enumerate(self.loaded.inputs)
            if isinstance(one, torch.Tensor)
        }
        found |= {f"state.{name}": list(one.shape) for name, one in self.lifted.items()}
        outputs = enumerate(self.outputs())
        return found | {f"output.{number}": list(one.shape) for number, one in outputs}

    def given(
        self, shapes: Mapping[str, Sequence[int]] | None, dtype: torch.dtype | None
    ) -> tuple[dict[str, torch.Tensor], list[object]]:
        def made(name: str, example: object) -> Any:
            if not isinstance(example, torch.Tensor):
                return example
            kind = dtype if dtype is not None and example.is_floating_point() else example.dtype
            size = example.shape if shapes is None else shapes[name]
            return torch.empty(tuple(size), dtype=kind)

        with self.loaded.fake:
            state = {name: made(f"state.{name}", value) for name, value in self.lifted.items()}
            inputs = [made(f"input.{n}", one) for n, one in enumerate(self.loaded.inputs)]
        return state, inputs
