"""Asks the guard about public samples that their benchmark's own leaderboard lists as correct.
Writes results/guard-samples.json.

    .venv/bin/python -m benchmarks.guard_samples folder=../KernelBenchLeaderboard

FOLDER is a checkout of the leaderboard of KernelBench's authors. All of its solutions are looked
at, as `compare` does: no framework's operators, nothing that relaxes floating point. A rejection
is false unless what it names is there by a second, simpler reading of the text: an operator of
torch's or a layer of ``torch.nn`` that is called, a call of a vendor's library, a flag that
relaxes floating point, or no kernel at all.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import _script
from portkern import guard
from portkern.guard import GuardPolicy, Hit
from portkern.spec import catalogue, registry

SOLUTIONS = Path("docs/assets/solutions")
NAME = "guard-samples.json"
#: A function of torch's, in Python or C++, or a method by which a tensor computes.
_TORCH = re.compile(
    r"torch(\.|::)\w|\bF\.\w|functional|\.(mean|sum|var|softmax|masked_fill|relu|matmul)\(| @ "
)
_LAYER = re.compile(r"self\.(\w+)(?:\[\w+\])?\(")
_OF_LAYERS = re.compile(r"\bnn\.|Sequential|ModuleList|make_|norm_layer|downsample")
_VENDOR = re.compile(r"\b(cublas|cudnn)\w*\(")
_KERNEL = re.compile(r"__global__|triton\.jit")
_RELAXED = re.compile(r"-use_fast_math")


def main() -> None:
    words = _script.words(("folder",), __doc__, ("folder",))
    folder = Path(words["folder"])
    files = sorted((folder / SOLUTIONS).glob("*.py"))
    if not files:
        raise SystemExit(f"No .py files in {folder / SOLUTIONS}")
    outcomes, false = Counter[str](), []
    for file in files:
        text = file.read_text(encoding="utf-8")
        hits = rejected(text, file.name, GuardPolicy())
        outcomes[" ".join(sorted({hit.rule.id for hit in hits})) or "accepted"] += 1
        if hits and not any(there(hit, text) for hit in hits):
            false.append(str(hits[0]))
    with_torch = GuardPolicy(torch_ops="allow")
    left = [bool(rejected(file.read_text("utf-8"), file.name, with_torch)) for file in files]
    document = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "leaderboard": commit(folder),
        "samples": len(files),
        "outcomes": dict(outcomes.most_common()),
        "accepted_with_torch_ops_allow": left.count(False),
        "false_rejections": false,
    }
    _script.write(NAME, document)
    print(f"{len(files)} samples: {dict(outcomes)}; {len(false)} false rejections")


def rejected(text: str, name: str, policy: GuardPolicy) -> Sequence[Hit]:
    backend = registry.load("cuda")
    candidate = catalogue.of_module(text, op="op", backend=backend, author=f"file:{name}")
    return [hit for hit in guard.inspect(candidate, policy) if hit.severity == "reject"]


def there(hit: Hit, text: str) -> bool:
    """Whether what the rule names is in the text by the second reading."""
    match hit.rule.id:
        case "G301":
            return _TORCH.search(hit.excerpt) is not None or any(
                _OF_LAYERS.search(made[1])
                for name in _LAYER.findall(hit.excerpt)
                for made in re.finditer(rf"self\.{name}\s*=\s*(.*)", text)
            )
        case "G302":
            return _VENDOR.search(text) is not None
        case "G304":
            return _KERNEL.search(text) is None
        case "G401":
            return _RELAXED.search(hit.excerpt) is not None
    return False


def commit(folder: Path) -> str:
    ran = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout.strip()


if __name__ == "__main__":
    main()
