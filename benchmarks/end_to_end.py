"""Measures what a library gains for whole models: a small transformer and a convolutional network
with random weights, a forward pass and a training step, beside eager PyTorch, ``torch.compile``,
and Liger and Hugging Face's ``kernels`` where they are installed, all in turns in one run.

    python -m benchmarks.end_to_end library=NAME [device=cuda] [dtype=bfloat16] [seconds=6] [only=N]

``seconds`` are those of each of the four comparisons. Writes results/end-to-end-DEVICE.json, but
for ``only=N``, one of them: that fills the compiler's cache.
"""

from __future__ import annotations

import copy
import importlib
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import _script
from portkern.evaluator.statistics import speedup

#: Widths, layers, batch and length of the transformer; channels, side and batch of the network.
SIZES = {"cpu": ((256, 2, 2, 64), (16, 32, 4)), "cuda": ((1024, 3, 4, 1024), (64, 64, 64))}
VOCABULARY, CLASSES = 1000, 10
_ROUNDS = (9, 101)


# ---- Models, as their authors write them


class Norm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.variance_epsilon = 1e-6

    def forward(self, hidden_states: torch.Tensor) -> Any:
        kind = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(kind)


class Attention(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (
            nn.Linear(size, size, bias=False) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> Any:
        batch, length, size = x.shape
        form = (batch, length, self.heads, size // self.heads)
        q, k, v = self.query(x).view(form), self.key(x).view(form), self.value(x).view(form)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, size))


class Gated(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(size, 3 * size, bias=False)
        self.up = nn.Linear(size, 3 * size, bias=False)
        self.down = nn.Linear(3 * size, size, bias=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = Norm(size), Norm(size)
        self.attention, self.gated = Attention(size, size // 64), Gated(size)

    def forward(self, x: torch.Tensor) -> Any:
        x = x + self.attention(self.first(x))
        return x + self.gated(self.second(x))


class Transformer(nn.Module):
    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, size)
        self.blocks = nn.ModuleList(Block(size) for _ in range(layers))
        self.norm, self.head = Norm(size), nn.Linear(size, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> Any:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


def convolutional(channels: int, side: int) -> nn.Module:
    def of(before: int, after: int, activation: nn.Module) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, padding=1), activation, nn.MaxPool2d(2)]

    return nn.Sequential(
        *of(3, channels, nn.ReLU()),
        *of(channels, 2 * channels, nn.GELU()),
        nn.Flatten(),
        nn.LayerNorm(2 * channels * (side // 4) ** 2),
        nn.Linear(2 * channels * (side // 4) ** 2, CLASSES),
    )


@dataclass(frozen=True)
class Task:
    """A model, and what it is called with; ``training``: a step with loss and optimizer."""

    name: str
    model: nn.Module
    inputs: torch.Tensor
    labels: torch.Tensor
    training: bool

    @property
    def mode(self) -> str:
        return "training" if self.training else "inference"


def tasks(device: str, dtype: torch.dtype) -> list[Task]:
    (size, layers, batch, length), (channels, side, images) = SIZES[device]
    torch.manual_seed(0)
    language = Transformer(size, layers).to(device, dtype)
    vision = convolutional(channels, side).to(device, dtype)
    tokens = torch.randint(VOCABULARY, (batch, length), device=device)
    following = torch.randint(VOCABULARY, (batch * length,), device=device)
    pictures = torch.randn(images, 3, side, side, device=device, dtype=dtype)
    kinds = torch.randint(CLASSES, (images,), device=device)
    return [
        task
        for training in (False, True)
        for task in (
            Task("transformer", language, tokens, following, training),
            Task("convolutional", vision, pictures, kinds, training),
        )
    ]


# ---- Ways


@dataclass
class Way:
    """``call`` is the forward pass; ``loss`` what a training step goes down."""

    model: nn.Module
    call: Callable[[torch.Tensor], Any]
    loss: Callable[[Any, torch.Tensor], Any] = F.cross_entropy
    said: str = ""


def eager(task: Task, lib: Any) -> Way:
    del lib
    return Way(task.model, task.model)


def applied(task: Task, lib: Any) -> Way:
    report = lib.apply(task.model, task.inputs, mode=task.mode)
    return Way(task.model, task.model, said=_said(report))


def compiled(task: Task, lib: Any) -> Way:
    del lib
    made: Any = torch.compile(task.model)
    return Way(task.model, made)


def applied_and_compiled(task: Task, lib: Any) -> Way:
    report = lib.apply(task.model, task.inputs, mode=task.mode, compiled=True)
    made: Any = torch.compile(task.model)
    return Way(task.model, made, said=_said(report))


def liger(task: Task, lib: Any) -> Way:
    """Its norms, gated products and loss in the places of the model's. Raises ImportError."""
    del lib
    from liger_kernel import transformers as theirs  # type: ignore[import-not-found]
    from liger_kernel.ops import LigerSiLUMulFunction  # type: ignore[import-not-found]

    if task.name != "transformer":
        raise ImportError("Liger has no convolutions")

    class LigerGated(Gated):
        def forward(self, x: torch.Tensor) -> Any:
            return self.down(LigerSiLUMulFunction.apply(self.gate(x), self.up(x), 1.0, 1.0))

    for module in [*task.model.modules()]:
        for name, child in module.named_children():
            if isinstance(child, Norm):
                made = theirs.LigerRMSNorm(len(child.weight), eps=child.variance_epsilon)
                made.weight = child.weight
                setattr(module, name, made)
            elif isinstance(child, Gated):
                child.__class__ = LigerGated
    loss = theirs.LigerCrossEntropyLoss()
    return Way(task.model, task.model, loss, "norms, gated products, loss")


def kernelized(task: Task, lib: Any) -> Way:
    """The library's own layers, put in by ``kernelize`` from a repository on this disk: there is no
    network, and none of its hub's. Raises ImportError."""
    import kernels  # type: ignore[import-not-found]

    writes = importlib.import_module(f"{lib.__name__}.hub")
    folder = Path(tempfile.mkdtemp(prefix="portkern-kernels-")) / "repository"
    writes.write(folder)
    device = task.inputs.device.type
    layers = {Norm: "RMSNorm", nn.LayerNorm: "LayerNorm", nn.GELU: "GELU", nn.ReLU: "ReLU"}
    found = {n: kind for kind, n in layers.items() if n in writes.layers()}
    mode = kernels.Mode.TRAINING if task.training else kernels.Mode.INFERENCE
    mapping = {
        name: {device: {mode: kernels.LocalLayerRepository(folder, layer_name=name)}}
        for name in found
    }
    taken: list[str] = []
    for module in task.model.modules():
        for name, kind in found.items():
            if type(module) is kind:
                own = type(kind.__name__, (kind,), {})
                module.__class__ = kernels.use_kernel_forward_from_hub(name)(own)
                taken.append(name)
    with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
        kernels.kernelize(task.model, mode=mode, device=device)
    return Way(task.model, task.model, said=_counted(taken))


WAYS: Mapping[str, Callable[[Task, Any], Way]] = {
    "eager": eager,
    "portkern": applied,
    "compile": compiled,
    "portkern and compile": applied_and_compiled,
    "liger": liger,
    "kernelize": kernelized,
}


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(names).items())


def _said(report: Any) -> str:
    words = _counted([one.operator for one in report.replaced])
    notes = [note for note in report.notes if note.startswith("compiled")]
    return "; ".join([words or "nothing replaced", *notes])


# ---- Times


def compare(task: Task, lib: Any, seconds: float) -> dict[str, Any]:
    """All ways of one task in turns; those that cannot be are left out, with why."""
    steps: dict[str, Callable[[], Any]] = {}
    said: dict[str, dict[str, Any]] = {}
    expected: torch.Tensor | None = None
    for name, make in WAYS.items():
        model = copy.deepcopy(task.model).train(task.training)
        own = Task(task.name, model, task.inputs, task.labels, task.training)
        start = time.perf_counter()
        try:
            way = make(own, lib)
            with torch.no_grad():
                made = way.call(task.inputs).double()
            step = _step(own, way)
            step()
        except Exception as error:  # noqa: BLE001 - a peer's failure is a row of the table
            said[name] = {"left out": f"{type(error).__name__}: {str(error)[:160]}"}
            continue
        expected = made if expected is None else expected
        gap = float((made - expected).abs().max() / expected.abs().max())
        steps[name] = step
        said[name] = {"what": way.said, "differs": f"{gap:.1e}"}
        said[name]["made in s"] = round(time.perf_counter() - start, 1)
    times = in_turns(steps, task.inputs.device.type, seconds)
    for name, taken in times.items():
        ratio = speedup(taken, times["eager"])
        said[name]["ms"] = round(statistics.median(taken) * 1e3, 3)
        said[name]["speedup"] = round(ratio.value, 3)
        said[name]["ci95"] = [round(end, 3) for end in ratio.ci95]
        said[name]["rounds"] = len(taken)
    return {"model": task.name, "mode": task.mode, "ways": said}


def _step(task: Task, way: Way) -> Callable[[], Any]:
    """Weights stay as they are: the optimizer's rate is 0."""
    if not task.training:

        def forward() -> None:
            with torch.inference_mode(False), torch.no_grad():
                way.call(task.inputs)

        return forward
    optimizer = torch.optim.SGD(way.model.parameters(), lr=0.0)

    def step() -> None:
        optimizer.zero_grad()
        way.loss(way.call(task.inputs), task.labels).backward()
        optimizer.step()

    return step


def in_turns(
    steps: Mapping[str, Callable[[], Any]], device: str, seconds: float
) -> dict[str, list[float]]:
    """Seconds of each; on a CPU those of the one thread, whatever else runs there. Who comes first
    is another one each round."""

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.thread_time()

    names: Sequence[str] = [*steps]
    found: dict[str, list[float]] = {name: [] for name in names}
    end = time.monotonic() + seconds
    for number in range(_ROUNDS[1]):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            start = now()
            steps[name]()
            found[name].append(now() - start)
        if time.monotonic() > end and number >= _ROUNDS[0]:
            break
    return {name: taken[2:] for name, taken in found.items()}


def main() -> int:
    known = ("library", "device", "dtype", "seconds", "only")
    given = _script.words(known, __doc__, ("library",))
    device = given.get("device", "cpu")
    dtype = getattr(torch, given.get("dtype", "float32" if device == "cpu" else "bfloat16"))
    lib = importlib.import_module(given["library"])
    if device == "cpu":
        torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    only = given.get("only")
    for task in [one for n, one in enumerate(tasks(device, dtype)) if only in (None, str(n))]:
        rows.append(compare(task, lib, float(given.get("seconds", "6"))))
        document = {
            "device": torch.cuda.get_device_name() if device == "cuda" else lib._names[0],
            "torch": torch.__version__,
            "dtype": str(dtype),
            "library": lib.TABLE["version"],
            "rows": rows,
        }
        if only is None:
            _script.write(f"end-to-end-{device}.json", document)
        print(table(rows[-1:]), flush=True)
    return 0


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for row in rows:
        for name, way in row["ways"].items():
            first = f"| {row['model']}, {row['mode']} | {name} |"
            if "ms" in way:
                low, high = way["ci95"]
                lines.append(
                    f"{first} {way['ms']} | {way['speedup']} ({low}-{high}) | {way['what']} |"
                )
            else:
                lines.append(f"{first} | | {way['left out']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
