"""Holds the AMD executor's instructions to oracles: ``python -m tools.fidelity``.

python -m tools.fidelity                        # all: writes figures.tsv and docs/fidelity.md
python -m tools.fidelity --family rdna3 --only v_add    # looks at some, writes nothing
python -m tools.fidelity --folded               # the second oracle: folded.tsv and the page
python -m tools.fidelity --page                 # the page alone, from the committed figures
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from . import figures, folding
from .instructions import PROCESSORS

INPUTS = 2048
FOLDED_INPUTS = 512


def _fold(only: str) -> int:
    """Holds the oracles to LLVM's folding; tells what differs, and writes what there is of all."""
    twice = folding.every(FOLDED_INPUTS, only)
    wrong = {name: one for name, one in twice.items() if one.wrong}
    print(f"{len(twice)} instructions, {sum(one.inputs for one in twice.values()):,} inputs")
    for name, one in wrong.items():
        print(f"  {name}: {one.wrong} of {one.inputs}; {one.example}")
    if not (only or wrong):
        figures.write_folded(twice)
        figures.PAGE.write_text(figures.page(figures.read()), encoding="utf-8")
    return bool(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--family", choices=list(PROCESSORS), help="one of them; all without it")
    parser.add_argument("--only", default="", help="trials whose name has this in it")
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--page", action="store_true", help="write the page from committed figures")
    parser.add_argument("--folded", action="store_true", help="oracles against LLVM's folding")
    given = parser.parse_args()
    if given.folded:
        return _fold(given.only)
    if given.page:
        figures.PAGE.write_text(figures.page(figures.read()), encoding="utf-8")
        return 0
    found: figures.Figures = {}
    wrong = 0
    families = [given.family] if given.family else list(PROCESSORS)
    with ProcessPoolExecutor(len(families), mp_context=get_context("spawn")) as pool:
        looked = partial(figures.looked_at, inputs=given.inputs, only=given.only)
        for family, (known, lines) in zip(families, pool.map(looked, families), strict=True):
            found[family] = known
            wrong += sum(one.wrong for one in known.values())
            print("\n".join(lines), flush=True)
    if not (given.family or given.only or wrong):
        figures.write(found)
        figures.PAGE.write_text(figures.page(found), encoding="utf-8")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
