"""Kernels as operators of torch, chosen by what was measured: ``explain`` says which would run and
why, ``receipt`` what ran. Written by portkern."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import importlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
#: The file of the public key by whose owner all files have to be signed, if any.
KEY = os.environ.get("PORTKERN_LIBRARY_KEY", "")


def _signature() -> Any:
    """The check, from its own text: neither a folder of its name nor bytecode stands in for it."""
    place = str(HERE / "_signature.py")
    loader = SourceFileLoader(f"{__name__}._signature", place)
    made = ModuleType(loader.name)
    exec(loader.source_to_code(loader.get_data(place), place), vars(made))
    return made


if KEY:  # before any other file of the library is imported
    _signature().admit(__name__, HERE, Path(KEY))

import torch  # noqa: E402

from . import _apply, _build, _modules, _plans, _report  # noqa: E402

TABLE: dict[str, Any] = json.loads((HERE / "table.json").read_text(encoding="utf-8"))
NAME: str = TABLE["name"]
DTYPES = ("float32", "float16", "bfloat16", "float64")
#: The reasons in the order of their numbers in library.h.
REASONS = (
    "portkern's kernel",
    "switched off",
    "no kernel takes this dtype, or inputs of several",
    "inputs are on different devices, or on one that the library does not know",
    "an input is not contiguous, not a plain tensor, or on a GPU not at a multiple of 16 bytes",
    "an input has another number of dimensions",
    "sizes do not fit together",
    "indices are out of range, or on a GPU, where they are not looked at",
    "an output is empty",
    "an input has 2**31 elements or more",
    "deterministic algorithms are asked for",
    "no kernel of enough evidence for this device and dtype",
    "the framework is as fast here",
    "no measured cell is near enough",
    "not decided yet, and a graph is being captured",
    "portkern's kernel, which won a race here",
    "the framework won a race here",
    "the kernel's result differed from the formula's",
    "the kernel ended with an error",
    "a race ended with an error, or a first comparison: the memory may be too small for it",
    "the kernel's launches are of another value of a scalar",
)
POLICIES = ("never", "evidence", "online", "always")
_MOST_KEY = 16

#: What was not loaded, one line each.
refused: list[str] = list(TABLE["refused"])
#: The kernels by operator, device slot and dtype, in the order of the C++ tables.
_kernels: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
_names: dict[int, str] = {}
#: What the lower end of an interval has to exceed. With 1.0 kernels were slower than PyTorch by
#: over 5 % in 4 to 13 % of CPUs' measured cells, with 1.1 in none; on an H200 in 0.6 and 0.5 %.
MIN_SPEEDUP = 1.1
_state: dict[str, Any] = {
    "tune": "never",
    "speedup": MIN_SPEEDUP,
    "policy": "evidence",
    "raced": False,
}


def explain(operator: str, *arguments: Any) -> dict[str, Any]:
    """Says what a call would run and why: ``kernel`` is None where the framework's formula
    would."""
    number = _number(operator)
    asked = getattr(_explained, f"_explain_{operator}")
    with torch.no_grad():
        why, kernel, cell, distance = asked(*arguments)
    tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
    said: dict[str, Any] = {"operator": operator, "reason": REASONS[why], "kernel": None}
    if kernel < 0:
        said["refused"] = [line for line in refused if line.startswith(f"{operator} ")]
    else:
        cells = [one for one in tensors if one.is_floating_point()]
        place = (number, _slot(tensors[0].device), DTYPES.index(str(cells[0].dtype)[6:]))
        said["kernel"] = _told(_kernels[place][kernel])
    if cell >= 0:
        said |= {"record": TABLE["records"][cell], "distance": distance / 1000}
    return said


def takes(operator: str, *arguments: Any) -> bool:
    """Whether a call would run a kernel of the library."""
    return bool(getattr(_explained, f"_explain_{operator}")(*arguments)[1] >= 0)


def has(operator: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the library has a kernel of this dtype for the device, at some sizes."""
    text = str(dtype).removeprefix("torch.")
    place = _number(operator), _slot(device), DTYPES.index(text) if text in DTYPES else -1
    return place in _kernels


def receipt() -> dict[str, Any]:
    """Says what was decided for each shape, how often it was called, and how often the
    framework's formula was taken, by reason."""
    found: dict[str, Any] = {"library": NAME, "version": TABLE["version"], "operators": {}}
    for number, operator in enumerate(TABLE["operators"]):
        fallen = {REASONS[why]: _c.pk_fallen(number, why) for why in range(1, len(REASONS))}
        found["operators"][operator["name"]] = {
            "shapes": list(_known(number, operator["key"])),
            "fallbacks": {reason: count for reason, count in fallen.items() if count},
        }
    found["refused"] = list(refused)
    measured = {one["driver"] for one in TABLE["records"] if one["driver"]}
    found["driver"] = {"here": _driver(), "measured with": sorted(measured)}
    return found


def configure(*, tune: str = "never", min_speedup: float = MIN_SPEEDUP) -> None:
    """``tune``: ``online`` lets the first calls of a new shape race all kernels against the
    formula; ``off`` takes the formula always. ``min_speedup``: what the lower end of a measured
    interval has to exceed. All decisions are taken anew."""
    if tune not in ("never", "online", "off"):
        raise ValueError(f"got tune={tune!r}, expected 'never', 'online' or 'off'")
    _state.update(tune=tune, speedup=min_speedup)
    _policy({"never": "evidence", "online": "online", "off": "never"}[tune])
    if tune == "online":
        _remembered()


def apply(model: torch.nn.Module, inputs: Any, **options: Any) -> _report.Report:
    """Replaces in a model what ``inputs`` show to be equal to an operator here and faster by it;
    the report says what, what not and why, and ``undo()`` takes it back. Which kernel is the
    fastest at the sample's sizes is found by a race, where no record has these."""
    operators = [one["name"] for one in TABLE["operators"]]
    with _racing():
        return _apply.apply(model, inputs, library=NAME, operators=operators, **options)


@contextmanager
def _racing() -> Iterator[None]:
    """Decides by races for as long as it lasts; what is decided stays so."""
    if _state["policy"] != "evidence":
        yield
        return
    _policy("online", keep=True)
    _remembered()
    try:
        yield
    finally:
        _policy("evidence", keep=True)


def undo(model: torch.nn.Module) -> int:
    """Gives all modules of a model, or of a copy of one, their own classes; how many those were."""
    return _modules.undo(model)


def _policy(name: str, *, keep: bool = False) -> None:
    """``always`` is for tests: a kernel is taken wherever one could be. ``keep``: what is decided
    stays so."""
    _state.update(policy=name, raced=_state["raced"] or name == "online")
    _c.pk_policy(POLICIES.index(name), float(_state["speedup"]), keep)


def _number(operator: str) -> int:
    names = [one["name"] for one in TABLE["operators"]]
    if operator not in names:
        raise ValueError(f"got {operator!r}, expected one of {', '.join(names)}")
    return names.index(operator)


def _told(kernel: dict[str, Any]) -> dict[str, Any]:
    kept = ("backend", "language", "target", "source_hash", "sha256", "evidence")
    return {name: kernel[name] for name in kept}


def _known(number: int, names: Sequence[str], *, code: bool = False) -> Any:
    key, calls = (ctypes.c_int64 * _MOST_KEY)(), ctypes.c_int64()
    kernel, why, cell, distance = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_double()
    told = [ctypes.byref(one) for one in (kernel, why, cell, distance, calls)]
    for slot in range(1 + len(_names)):
        for dtype, text in enumerate(DTYPES):
            place = 0
            while (count := _c.pk_known(number, slot, dtype, place, key, *told)) >= 0:
                place += 1
                chosen = _kernels[number, slot, dtype][kernel.value] if kernel.value >= 0 else None
                yield {
                    "device": _names.get(slot, ""),
                    "dtype": text,
                    "sizes": dict(zip(names, key[:count], strict=True)),
                    "kernel": _told(chosen) if chosen else None,
                    "record": TABLE["records"][cell.value] if cell.value >= 0 else None,
                    "reason": REASONS[why.value],
                    "calls": calls.value,
                    **({"code": chosen["code"] if chosen else ""} if code else {}),
                }


# ---- What is remembered of races, for this device and driver


def _memory() -> Path:
    said = json.dumps([TABLE["version"], torch.__version__, sorted(_names.items()), _driver()])
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "portkern" / "libraries" / f"{NAME}-{digest}.json"


def _driver() -> str:
    with suppress(OSError):
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    return ""


def _remembered() -> None:
    """Reads what earlier processes found; what is not as expected is left out."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        for one in json.loads(_memory().read_text(encoding="utf-8")):
            number, slot, dtype, key, digest = (one[name] for name in _REMEMBERED)
            if (number, slot, dtype) not in _kernels:  # the C++ tables have no such place
                continue
            own = [kernel["code"] for kernel in _kernels[number, slot, dtype]]
            if (digest and digest not in own) or len(key) > _MOST_KEY:
                continue
            values = (ctypes.c_int64 * len(key))(*key)
            kernel = own.index(digest) if digest else -1
            why = REASONS.index("portkern's kernel, which won a race here") + (kernel < 0)
            _c.pk_know(number, slot, dtype, values, len(key), kernel, why)


#: ``code`` is the digest of what was raced: of a text another compiler makes other code.
_REMEMBERED = ("operator", "slot", "dtype", "key", "code")


@atexit.register
def _remember() -> None:
    """A cache that cannot be written to is not a reason to disturb the end of a process."""
    if not _state["raced"]:
        return
    found = []
    for number, operator in enumerate(TABLE["operators"]):
        for one in _known(number, operator["key"], code=True):
            if "race here" in one["reason"]:
                slot = next((s for s, name in _names.items() if name == one["device"]), 0)
                digest = one["code"]
                dtype = DTYPES.index(one["dtype"])
                values = (number, slot, dtype, list(one["sizes"].values()), digest)
                found.append(dict(zip(_REMEMBERED, values, strict=True)))
    if found:
        with suppress(OSError):
            path = _memory()
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=path.parent, delete=False, encoding="utf-8"
            ) as file:
                json.dump(found, file)
            Path(file.name).replace(path)


# ---- Loading


def _cpu() -> str:
    text = ""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
    match = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return f"{match[1].strip() if match else platform.machine()}, {os.cpu_count()} CPUs"


def _cpu_flags() -> frozenset[str]:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        if match := re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE):
            return frozenset(match[1].split())
    return frozenset()


def _slot(device: torch.device) -> int:
    return 0 if device.type == "cpu" else 1 + (device.index or 0)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _sound(file: Path, sha256: str) -> bool:
    with suppress(OSError):
        return _digest(file) == sha256
    return False


def _built_here() -> Path:
    """Where is kept what is compiled on this machine. Nobody signed what others may have put
    there: with a key all is compiled anew, for this process."""
    if KEY:
        return _fresh()
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions"
    return Path(root) / f"{NAME}-{TABLE['version']}"


@cache
def _fresh() -> Path:
    folder = tempfile.mkdtemp(prefix=f"{NAME}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _operators() -> Path:
    """The compiled operators: those of the package for this torch, else built here and kept."""
    name = _build.compiled_name(torch.__version__, cuda=torch.version.cuda is not None)
    file: Path = HERE / name
    if name in TABLE["compiled"]:
        if _sound(file, TABLE["compiled"][name]):
            return file
        raise ImportError(f"{file} is not the file that was exported; install {NAME} again")
    kept = _built_here() / name
    if not kept.is_file():
        try:
            _build.build(HERE, kept)
        except _build.CannotBuild as error:
            raise ImportError(
                f"{NAME} has no operators for torch {torch.__version__} (it has "
                f"{', '.join(TABLE['compiled'])}), and they cannot be compiled here: {error}"
            ) from error
    return kept


def _load_kernels() -> None:
    """Loads kernels into the slots of the devices that they were measured on; others are refused
    with a line."""
    flags = _cpu_flags()
    _names[0] = _cpu()
    for index in range(torch.cuda.device_count() if torch.version.cuda else 0):
        _names[1 + index] = torch.cuda.get_device_name(index)
    places: list[dict[int, int]] = []
    compiled = _compiled_here(flags)
    for number, kernel in enumerate(TABLE["kernels"]):
        own: dict[int, int] = {}
        places.append(own)
        shown = f"{TABLE['operators'][kernel['op']]['name']} {kernel['dtype']} ({kernel['target']})"
        slots = [slot for slot, name in _names.items() if name == kernel["device"]]
        if not slots:
            refused.append(f"{shown}: measured on {kernel['device']}, which is not here")
            continue
        lacking = sorted(set(kernel["cpu_flags"]) - flags)
        if lacking:
            refused.append(f"{shown}: this CPU has no {' '.join(lacking)}")
            continue
        parts = {kernel["file"]: kernel["sha256"], **kernel["binaries"]}
        if changed := [name for name, digest in parts.items() if not _sound(HERE / name, digest)]:
            refused.append(f"{shown}: {changed[0]} is not the file that was exported")
            continue
        try:
            file = compiled.get(number, HERE / kernel["file"])
            if isinstance(file, _build.CannotBuild):
                raise file
            address, code = _opened(kernel, file), _digest(file)
        except (OSError, AttributeError, ValueError, _build.CannotBuild) as error:
            refused.append(f"{shown}: {str(error).splitlines()[0]}")
            continue
        for slot in slots:
            place = (kernel["op"], slot, DTYPES.index(kernel["dtype"]))
            own[slot] = _c.pk_kernel(*place, *address)
            _kernels.setdefault(place, []).append(kernel | {"code": code})
    refused.extend(
        f"{one['op']} {one['dtype']} ({one['target']}): its code object is carried, not called: "
        f"its evidence is {one['evidence']}, expected {TABLE['evidence']}"
        for one in TABLE["objects"]
    )
    if not _kernels:
        devices = sorted({kernel["device"] for kernel in TABLE["kernels"]})
        warnings.warn(
            f"{NAME} has no kernel that runs here, on {', '.join(_names.values())}: they were "
            f"measured on {', '.join(devices)}; all its operators are PyTorch's own code. "
            f"{NAME}.refused says why for each",
            RuntimeWarning,
            stacklevel=2,
        )
    for cell in TABLE["cells"]:
        kernel, key = TABLE["kernels"][cell["kernel"]], cell["key"]
        values = (ctypes.c_int64 * len(key))(*key)
        dtype = DTYPES.index(kernel["dtype"])
        for slot, number in places[cell["kernel"]].items():
            about = (number, float(cell["speedup"]), cell["record"])
            _c.pk_cell(kernel["op"], slot, dtype, values, len(key), *about)


def _compiled_here(flags: Set[str]) -> dict[int, Path | _build.CannotBuild]:
    """The libraries of the kernels which came as texts, by their numbers, or why there is none;
    several are compiled at once. What this machine could not execute is not compiled."""
    texts = {
        number: kernel
        for number, kernel in enumerate(TABLE["kernels"])
        if kernel["build"]
        and kernel["device"] in _names.values()
        and flags >= set(kernel["cpu_flags"])
        and _sound(HERE / kernel["file"], kernel["sha256"])
    }
    folder = _built_here() / "kernels"

    def one(kernel: dict[str, Any]) -> Path | _build.CannotBuild:
        how = kernel["build"]
        try:
            return _build.kernel(HERE / kernel["file"], how["compiler"], how["flags"], folder)
        except _build.CannotBuild as error:
            return error

    with ThreadPoolExecutor(max(1, min(len(texts), len(os.sched_getaffinity(0))))) as pool:
        return dict(zip(texts, pool.map(one, texts.values()), strict=True))


def _opened(kernel: dict[str, Any], file: Path) -> tuple[Any, Any, bool]:
    """Its function, its plan, and whether it is another code than the one that was measured. Raises
    OSError, AttributeError and ValueError."""
    if kernel["binaries"]:
        contents = {Path(name).stem: (HERE / name).read_bytes() for name in kernel["binaries"]}
        return None, _plans.open_plan(_c, file, contents), True
    function = getattr(ctypes.CDLL(str(file)), kernel["entry"])
    return ctypes.cast(function, ctypes.c_void_p), None, bool(kernel["build"])


def _trace(
    operator: str, reference: Callable[..., Any], inputs: int, scalars: dict[str, Any]
) -> None:
    """Registers what torch needs in order to trace the operator: its fake function and its
    gradient."""

    def empty(made: torch.Tensor) -> torch.Tensor:
        return torch.empty(made.shape, dtype=made.dtype, device=made.device)

    def fake(*arguments: Any, **named: Any) -> Any:
        left = list(scalars)[len(arguments) - inputs :]
        made = reference(*arguments, **{name: scalars[name] for name in left} | named)
        return empty(made) if isinstance(made, torch.Tensor) else tuple(map(empty, made))

    torch.library.register_fake(f"{NAME}::{operator}", fake)


def _library() -> ctypes.CDLL:
    first = TABLE["operators"][0]["name"]
    if torch._C._jit_get_schemas_for_operator(f"{NAME}::{first}"):
        raise ImportError(
            f"torch.ops.{NAME} is another library's in this process; export one of them under "
            "another name"
        )
    file = _operators()
    torch.ops.load_library(str(file))  # type: ignore[no-untyped-call]
    library = ctypes.CDLL(str(file))
    numbers, whole = ctypes.POINTER(ctypes.c_int64), ctypes.c_int
    library.pk_kernel.argtypes = [*[whole] * 3, *[ctypes.c_void_p] * 2, whole]
    library.pk_cell.argtypes = [*[whole] * 3, numbers, whole, whole, ctypes.c_double, whole]
    library.pk_policy.argtypes = [whole, ctypes.c_double, whole]
    library.pk_know.argtypes = [*[whole] * 3, numbers, *[whole] * 3]
    library.pk_fallen.restype = ctypes.c_int64
    return library


_threads = 0


def _count_threads() -> None:
    global _threads
    with suppress(OSError):
        _threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - only their number


def _alone_after_fork() -> None:
    """Has a child use one thread where its parent had several: GNU's OpenMP would wait for the
    others of its team forever, in a kernel as in PyTorch. What the child asks for itself holds."""
    if _threads > 1:
        torch.set_num_threads(1)


def _same() -> ModuleType | None:
    """This very library where another copy of it is imported already, as from a repository of
    ``kernels`` beside the wheel: its operators and decisions are those of both."""
    for module in [*sys.modules.values()]:
        own = vars(module) if isinstance(module, ModuleType) else {}
        table = own.get("TABLE")
        same = isinstance(table, dict) and table == TABLE
        if same and own["__name__"] != __name__ and "_c" in own:
            return module
    return None


if (_other := _same()) is not None:
    globals().update({n: one for n, one in vars(_other).items() if not n.startswith("__")})
else:
    _c = _library()
    _explained = getattr(torch.ops, NAME)
    _load_kernels()
    os.register_at_fork(before=_count_threads, after_in_child=_alone_after_fork)
    _references = importlib.import_module(f"{__name__}._references")
    for _operator in TABLE["operators"]:
        _reference = getattr(_references, _operator["name"])
        _trace(_operator["name"], _reference, _operator["inputs"], _operator["scalars"])
        globals()[_operator["name"]] = getattr(_explained, _operator["name"])
#: Modules as ``kernelize`` takes them.
layers = importlib.import_module(f"{__name__}.layers")
