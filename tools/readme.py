"""Writes the README's matrix from the committed records: `make readme`."""

from __future__ import annotations

import sys
from pathlib import Path

from portkern.record import RecordFile
from portkern.report.markdown import overview

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- matrix: make readme -->\n", "<!-- /matrix -->"
TARGETS = ("h200", "gfx942", "gfx1100", "x86_64_avx512", "opencl_generic")


def main() -> int:
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    fresh = with_matrix(text)
    if "--check" in sys.argv:
        return int(fresh != text)
    path.write_text(fresh, encoding="utf-8")
    return 0


def with_matrix(readme: str) -> str:
    """The README with the matrix that ``reports/records`` gives."""
    records = [
        record
        for file in sorted((ROOT / "reports" / "records").glob("*.jsonl"))
        for record in RecordFile(file).read()[0]
    ]
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{overview(records, targets=TARGETS)}\n{END}{after}"


if __name__ == "__main__":
    sys.exit(main())
