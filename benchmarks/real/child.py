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
from real import references
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
        print(json.dumps(run(name, case, extension, request)), file=said, flush=True)


def run(name: str, case: references.Case, extension: Any, request: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="simt-real-") as folder:
        file = Path(folder) / "findings.jsonl"
        emulate.configure(request["settings"] | {"findings": str(file)})
        start = time.perf_counter()
        try:
            verdict = case(extension)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the verdict
            verdict = f"{type(error).__name__}: {error}"[:200]
        seconds = round(time.perf_counter() - start, 2)
        emulate._runtime().simt_forget()
        diagnostics, _ = lines.read(file)
    found = [asdict(finding(one, Path(request["root"]))) for one in diagnostics]
    return {"case": name, "verdict": verdict, "seconds": seconds, "findings": found}


if __name__ == "__main__":
    main()
