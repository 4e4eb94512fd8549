"""Prints what becomes of each kernel of the corpus: ``python -m tests.corpus.table [word ...]``."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.corpus import suite
from tests.corpus.not_yet import NOT_YET


def main(words: list[str]) -> int:
    """Rows for the cases whose name has one of ``words``; 1 when one ends as it must not."""
    bad = 0
    with tempfile.TemporaryDirectory(prefix="portkern-corpus-") as folder:
        for heap in ("cheats", "honest"):
            counted: Counter[str] = Counter()
            print(f"\n{heap}\n")
            for case in suite.cases(heap):
                if words and not any(word in case.name for word in words):
                    continue
                start = time.perf_counter()
                ending = suite.judge(case, Path(folder))
                seconds = time.perf_counter() - start
                good = ending.meets(case)
                mark = "as known" if not good and case.name in NOT_YET else "" if good else "BAD"
                bad += mark == "BAD"
                counted[mark or str(ending.verdict)] += 1
                row = f"{case.name:30} {seconds:5.1f} s  {mark:9}{case.mechanism} → {ending}"
                print(row, flush=True)
            print("\n" + ", ".join(f"{count} {what}" for what, count in counted.items()))
    suite.close()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
