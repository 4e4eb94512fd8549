"""A process that calls an extension's functions; one JSON line on stdout for each."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from portkern.simt import emulate, lines, torchlite
from portkern.simt.options import SCHEDULES
from real import references
from real.extension import FAULTED
from real.running import finding


def main() -> None:
    request = json.load(sys.stdin)
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels print is no part of the answer
    import torch

    torch.set_num_threads(1)
    extension = torchlite.load(Path(request["library"]))
    cases = references.cases(request)
    for name, case in cases:
        if name in request["done"]:
            continue
        print(json.dumps({"start": name}), file=said, flush=True)
        result = run(name, case, extension, request)
        print(json.dumps(result), file=said, flush=True)
        if result["verdict"].startswith("LaunchError"):
            sys.exit(FAULTED)


def run(name: str, case: references.Case, extension: Any, request: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="simt-real-") as folder:
        file = Path(folder) / "findings.jsonl"
        chosen = request["settings"] | {"findings": str(file)}
        start = time.perf_counter()
        verdict = attempt(case, extension, chosen | {"order": "forward"})
        seconds = round(time.perf_counter() - start, 2)
        if verdict.startswith("mismatch") and "races" not in chosen:
            verdict = other_orders(verdict, case, extension, chosen)
        emulate._runtime().simt_forget()
        diagnostics, _ = lines.read(file)
    found = [asdict(finding(one, Path(request["root"]))) for one in diagnostics]
    return {"case": name, "verdict": verdict, "seconds": seconds, "findings": found}


def attempt(case: references.Case, extension: Any, chosen: dict[str, Any]) -> str:
    emulate.configure(chosen)
    try:
        return case(extension)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the verdict
        return f"{type(error).__name__}: {error}"[:200]


def other_orders(first: str, case: references.Case, extension: Any, chosen: dict[str, Any]) -> str:
    """What is right under one schedule and wrong under another is wrong for that reason."""
    for order, seed in SCHEDULES[1:]:
        if attempt(case, extension, chosen | {"order": order, "seed": seed}) == "match":
            return f"depends on the schedule: match with order={order}, forward {first}"
    return first


if __name__ == "__main__":
    main()
