"""Runs the tests of a Triton library in Triton's interpreter, and tells what each launch was given.

Run as a process of its own, in the jail, for it imports the library:
``python -m portkern.backends.triton.library_tests REQUEST.json``. It prints one line for what
became of each test, and one of JSON behind a mark for each launch that is kept.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import FunctionType
from typing import Any

from portkern.simt.torch_extension import script, suite
from portkern.simt.torch_extension.suite import MARK, MOST_NAME, MOST_REASON, Told
from portkern.spec import target as targets

from .library_functions import as_on
from .library_interpreter import as_in_kernel, prepare

#: Launches of one kernel that are kept, and configurations of one launch.
MOST_LAUNCHES, MOST_WAYS = 16, 16
#: Bytes of one tensor's memory that are told as they are, and characters of all that is told.
_MOST_EXACT, _MOST_TOLD = 1 << 18, 5 << 19
#: Bytes of one launch's tensors.
_MOST_MEMORY = 1 << 26
#: What a message holds no more.
_MOST_NUMBER = 1 << 63
#: A tensor of fewer values is drawn from these.
_FEW = 8
_KNOBS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim")


class Unkept(Exception):
    """A launch that cannot be made again from what can be told of it."""


class _Recorder:
    """The launches of the library's kernels, by the test that makes them. ``wanted`` are those to
    keep, by kernel, test and number; all that show something new where it is None."""

    def __init__(self, root: Path, wanted: frozenset[tuple[str, str, int]] | None) -> None:
        self._root, self._wanted = root, wanted
        self._test, self._open = "", False
        self.failed: set[str] = set()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._seen: dict[str, set[str]] = {}
        self._kept: Counter[str] = Counter()
        #: The ways of the launch that an autotuner makes at the moment.
        self._ways: list[dict[str, object]] | None = None
        self.launches: list[dict[str, Any]] = []

    def begin(self, test: str) -> None:
        self._test = test

    @contextmanager
    def installed(self) -> Iterator[None]:
        """A context in which launches are noted, and an autotuner takes its first configuration."""
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.interpreter import InterpretedFunction

        run, tuned = InterpretedFunction.run, Autotuner.run

        def noted(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **named: Any) -> object:
            if warmup:
                return None
            bound = _bound(kernel, args, named)
            way = _way(kernel, bound, grid, named)
            if self._ways is not None:
                self._ways.append(way)
            if self._open:
                return None
            self._note(kernel, bound, self._ways or [way])
            given = {name: as_in_kernel(kernel, name, value) for name, value in bound.items()}
            return run(kernel, grid=tuple(way["grid"]), warmup=False, **given)

        def first(tuner: Any, *args: Any, **named: Any) -> object:
            tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
            few, *others = tuner.prune_configs(named) if len(tuner.configs) > 1 else tuner.configs
            self._ways, self._open = [], True
            try:
                for config in others:
                    tuner.fn.run(*args, **named, **config.all_kwargs())
                self._open = False
                if few.pre_hook is not None:
                    few.pre_hook({**tuner.nargs, **named, **few.all_kwargs()})
                return tuner.fn.run(*args, **named, **few.all_kwargs())
            finally:
                self._ways, self._open, tuner.nargs = None, False, None

        InterpretedFunction.run, Autotuner.run = noted, first
        try:
            yield
        finally:
            InterpretedFunction.run, Autotuner.run = run, tuned

    def _note(
        self, kernel: Any, bound: Mapping[str, Any], ways: Sequence[Mapping[str, object]]
    ) -> None:
        code = kernel.fn.__code__
        file = Path(code.co_filename)
        if not file.is_relative_to(self._root):
            return
        place = f"{file.relative_to(self._root)}:{kernel.fn.__name__}"
        number = self._counts[place, self._test]
        self._counts[place, self._test] += 1
        told: dict[str, Any] = {"path": str(file.relative_to(self._root))}
        told |= {"kernel": kernel.fn.__name__, "line": code.co_firstlineno}
        told |= {"test": self._test, "number": number, "ways": [ways[-1], *ways[:-1]][:MOST_WAYS]}
        constants = {n for way in ways for n in way["constants"]}  # type: ignore[attr-defined]
        given = {name: value for name, value in bound.items() if name not in constants}
        types = {name: _type(value) for name, value in given.items()}
        told["instance"] = json.dumps([types, ways[-1]["constants"]], sort_keys=True)
        told["shape"] = str([(_shape(value), ways[-1]["grid"]) for value in given.values()])
        if self._is_kept(place, told):
            told["why"] = ""
            try:
                for way in ways:
                    _refuse_unknown(way["constants"])
                told |= _content(given)
            except Unkept as error:
                told["why"] = str(error)
        self.launches.append(told)

    def _is_kept(self, place: str, told: Mapping[str, Any]) -> bool:
        """Whether it is wanted; or the first of its instance, or of its shapes as far as there is
        room for these."""
        if self._wanted is not None:
            return (place, told["test"], told["number"]) in self._wanted
        seen = self._seen.setdefault(place, set())
        instance, shape = told["instance"], told["instance"] + told["shape"]
        is_new = instance not in seen or (shape not in seen and self._kept[place] < 4)
        if not is_new or self._kept[place] >= MOST_LAUNCHES:
            return False
        seen |= {instance, shape}
        self._kept[place] += 1
        return True

    def told(self) -> Iterator[dict[str, Any]]:
        """The kept launches as far as there is room, then each instance that was launched."""
        room = _MOST_TOLD
        for launch in (one for one in self.launches if "why" in one):
            if (size := len(json.dumps(launch))) > room:
                for name in ("scalars", "tensors", "memory"):
                    launch.pop(name, None)
                launch["why"] = launch["why"] or "what all launches were given is too much to keep"
            room -= min(size, room)
            yield launch
        found: dict[tuple[str, str, int, str], list[str]] = {}
        for launch in self.launches:
            key = (launch["path"], launch["kernel"], launch["line"], launch["instance"])
            found.setdefault(key, []).append(launch["test"])
        for (path, kernel, line, instance), tests in found.items():
            yield {
                "path": path,
                "kernel": kernel,
                "line": line,
                "instance": instance,
                "count": len(tests),
                "tests": self._by_test(f"{path}:{kernel}"),
                "lost": next(filter(self._is_lost, tests), None),
            }

    def _by_test(self, place: str) -> str:
        """A digest of how often each test launches a kernel."""
        own = sorted((t, count) for (p, t), count in self._counts.items() if p == place)
        return hashlib.sha256(json.dumps(own).encode()).hexdigest()

    def _is_lost(self, test: str) -> bool:
        """Whether it does not pass; what is launched outside of tests is of all of them."""
        return test in self.failed or bool(self.failed and not test)


def _bound(kernel: Any, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by parameters, defaults among them."""
    known = {name: value for name, value in named.items() if name in kernel.arg_names}
    return inspect.getcallargs(kernel.fn, *args, **known)


def _constexprs(function: FunctionType) -> list[str]:
    from triton import language as tl

    kinds = inspect.get_annotations(function)
    return [n for n, kind in kinds.items() if kind in (tl.constexpr, "tl.constexpr", "constexpr")]


def _way(
    kernel: Any, bound: Mapping[str, Any], grid: Any, named: Mapping[str, Any]
) -> dict[str, Any]:
    """The constants, the grid and the compiler's knobs of a launch."""
    sizes = grid(bound) if callable(grid) else grid
    whole = [int(size) for size in (sizes if isinstance(sizes, Sequence) else [sizes])]
    given = [*_constexprs(kernel.fn), *(name for name, value in bound.items() if value is None)]
    constants = {name: _constant(name, bound[name]) for name in dict.fromkeys(given)}
    knobs = {name: named[name] for name in _KNOBS if isinstance(named.get(name), int)}
    return {"constants": constants, "grid": whole, "knobs": knobs}


def _constant(name: str, value: object) -> object:
    from triton import language as tl

    value = getattr(value, "value", value) if isinstance(value, tl.constexpr) else value
    if isinstance(value, int) and abs(value) >= _MOST_NUMBER:
        return {"unknown": f"constexpr {name} has more than 63 bits"}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tl.dtype):
        return {"dtype": value.name}
    return {"unknown": f"constexpr {name} is of type {type(value).__name__}"}


def _refuse_unknown(constants: Any) -> None:
    for value in constants.values():
        if isinstance(value, dict) and "unknown" in value:
            raise Unkept(value["unknown"])


def _type(value: object) -> str:
    return str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")


def _shape(value: object) -> object:
    import torch

    if not isinstance(value, torch.Tensor):
        return ""
    with torch._C.DisableTorchFunction():
        return [list(value.shape), list(value.stride())]


def _content(given: Mapping[str, Any]) -> dict[str, object]:
    """The arguments that a launch is given, and the memory of its tensors. Raises Unkept."""
    import torch

    scalars: dict[str, object] = {}
    tensors: dict[str, object] = {}
    memory: dict[int, dict[str, object]] = {}
    for name, value in given.items():
        if isinstance(value, bool | int | float):
            if isinstance(value, int) and abs(value) >= _MOST_NUMBER:
                raise Unkept(f"'{name}' has more than 63 bits")
            scalars[name] = value
            continue
        if not isinstance(value, torch.Tensor):
            raise Unkept(f"'{name}' is a {type(value).__name__}")
        with torch._C.DisableTorchFunction():
            storage = value.untyped_storage()
            place = storage.data_ptr()
            tensors[name] = {
                "memory": name if place not in memory else memory[place]["name"],
                "dtype": _type(value),
                "shape": list(value.shape),
                "stride": list(value.stride()),
                "offset": value.storage_offset(),
            }
            if place not in memory:
                memory[place] = {"name": name, "dtype": _type(value), **_values(name, value)}
            if sum(int(str(one["bytes"])) for one in memory.values()) > _MOST_MEMORY:
                raise Unkept(f"its tensors have more than {_MOST_MEMORY >> 20} MiB")
    return {"scalars": scalars, "tensors": tensors, "memory": list(memory.values())}


def _values(name: str, tensor: Any) -> dict[str, object]:
    """The values in a tensor's memory: floating-point numbers by what they lie between, or by what
    they are where these are few or not all finite; others as they are. Raises Unkept."""
    import torch

    storage = tensor.untyped_storage()
    size = storage.nbytes()
    count = size // tensor.element_size()
    whole = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (count,), (1,))
    told: dict[str, object] = {"bytes": size}
    if tensor.dtype.is_floating_point and tensor.element_size() > 1 and whole.numel():
        if whole.isfinite().all():
            few: Any = torch.unique(whole[:: max(1, whole.numel() // 4096)])
            if len(few) <= _FEW and torch.isin(whole, few).all():
                return {**told, "of": [float(x) for x in few]}
            return {**told, "between": [float(whole.min()), float(whole.max())]}
    if size > _MOST_EXACT:
        raise Unkept(f"'{name}' has {size} bytes whose values matter")
    raw = bytes(whole.contiguous().view(torch.uint8).numpy()) if size else b""
    return {**told, "exactly": base64.b64encode(zlib.compress(raw)).decode("ascii")}


def main() -> int:
    os.environ["TRITON_INTERPRET"] = "1"
    asked = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    target = targets.load(asked["target"])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")  # what pytest captures is another

    def tell(told: Told) -> None:
        if told.outcome != "passed":
            recorder.failed.add(told.test)
        short = Told(told.test[:MOST_NAME], told.outcome, told.why[:MOST_REASON])
        out.write(f"{MARK}{json.dumps(asdict(short))}\n")
        out.flush()

    wanted = asked["wanted"]
    of_launches = None if wanted is None else frozenset((p, t, n) for p, t, n in wanted)
    recorder = _Recorder(Path.cwd(), of_launches)
    suite.find_packages()
    only = asked["only"]
    prepare(target)
    with script.passing_for(target), as_on(target), recorder.installed():
        run = asked["kind"], asked["words"], only, tell, recorder.begin
        code = suite.run_tests(*run, within_s=asked["within_s"])
    with suppress(BrokenPipeError):
        for launch in recorder.told():
            out.write(f"\n{asked['mark']}{json.dumps(launch)}\n")
        out.write(f"\n{asked['mark']}{json.dumps({'end': len(recorder.launches)})}\n")
        out.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
