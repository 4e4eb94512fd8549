"""Prints what becomes of each kernel of the corpus: ``python -m tests.corpus.table [word ...]``.

``gpu`` as the first word asks for those of the GPU, on this machine's or emulated.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from portkern.spec.backend import Missing
from tests.corpus import suite
from tests.corpus.not_yet import NOT_YET, NOT_YET_ON_GPU


def main(words: list[str]) -> int:
    """Rows for the cases whose name has one of ``words``; 1 when one ends as it must not."""
    device: suite.Device = "gpu" if words[:1] == ["gpu"] else "cpu"
    words = words[device == "gpu" :]
    known = NOT_YET_ON_GPU if device == "gpu" else NOT_YET
    bad = 0
    with tempfile.TemporaryDirectory(prefix="portkern-corpus-") as folder:
        for heap in ("cheats", "honest"):
            counted: Counter[str] = Counter()
            print(f"\n{heap}\n")
            for case in suite.cases(heap, device):
                place = suite.where(case.backend)
                if words and not any(word in case.name for word in words):
                    continue
                if isinstance(place, Missing):
                    print(f"{case.name:30} skipped: {place}")
                    continue
                emulated = place[1].kind == "emulator"
                if emulated and not case.emulator:
                    continue
                start = time.perf_counter()
                ending = suite.evaluate(case, Path(folder))
                seconds = time.perf_counter() - start
                good = ending.meets(case, emulated=emulated)
                mark = "as known" if not good and case.name in known else "" if good else "BAD"
                bad += mark == "BAD"
                counted[mark or str(ending.verdict)] += 1
                row = f"{case.name:30} {seconds:5.1f} s  {mark:9}{case.mechanism} → {ending}"
                print(row, flush=True)
            print("\n" + ", ".join(f"{count} {what}" for what, count in counted.items()))
    suite.close()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
