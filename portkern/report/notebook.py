"""The answers of ``portkern.check`` and ``portkern.matrix``, as a notebook shows them."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.errors import ConfigError
from portkern.records.record import Record
from portkern.report.lines import line
from portkern.report.rows import rows
from portkern.report.table import headline, times

if TYPE_CHECKING:
    import pandas

#: Columns of what a notebook shows; a data frame has all.
_SHOWN = ("kernel", "backend", "target", "workload", "dtype", "verdict", "evidence", "time", "")


@dataclass(frozen=True)
class NotebookReport:
    """The records of a run, a cell each. ``folder`` is where they are kept, a matrix's with its
    pages; ``exit_code`` how the command would have ended: 0 = all good, 1 = a kernel has a bad
    verdict, 3 = nothing could run."""

    records: tuple[Record, ...]
    folder: Path
    exit_code: int

    @property
    def passed(self) -> bool:
        """Whether no kernel has a bad verdict and something ran."""
        return self.exit_code == 0

    @property
    def failing(self) -> tuple[Record, ...]:
        return tuple(record for record in self.records if record.verdict.bad)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each record, of the columns of :func:`portkern.report.rows.row`. Raises
        ConfigError without pandas."""
        try:
            import pandas
        except ImportError:
            raise ConfigError(
                "to_pandas() needs pandas, and it is not installed; pip install pandas"
            ) from None
        return pandas.DataFrame(rows(self.records))

    def __len__(self) -> int:
        return len(self.records)

    def __str__(self) -> str:
        return "\n".join(map(line, self.records))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in _SHOWN)
        body = "".join(map(_row, self.records))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(record: Record) -> str:
    timing, ratio = record.timing, record.speedup.get("eager")
    time = f"{timing.median_us:.1f} µs" if timing else ""
    if timing and timing.noisy:
        more = f"noisy: {timing.noisy}"
    elif ratio:
        more = f"{times(ratio.value)} eager [{ratio.ci95[0]:.2f}, {ratio.ci95[1]:.2f}]"
    else:
        more = headline(record.detail) or headline(record.missing)
    work = f"{record.workload.set}/{record.workload.name}"
    cells = (record.row, record.backend, record.target, work, record.workload.dtype)
    said = (*cells, str(record.verdict), str(record.evidence), time, more)
    return f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in said)}</tr>"
