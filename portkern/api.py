"""The verbs for Python programs and notebooks: ``portkern.check`` and ``portkern.matrix``.

Their options are those of the command line, by the same names, with Python's values; both check
and default them alike.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from portkern.cli.config import quoted
from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError
from portkern.records import atomic_write
from portkern.report.notebook import NotebookReport
from portkern.spec import registry
from portkern.spec.op import Op

Option = str | int | float | bool | os.PathLike[str]
OpOrName = Op | str | os.PathLike[str]


def check(
    op: OpOrName,
    backend: str,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    **options: Option | Sequence[Option],
) -> NotebookReport:
    """Evaluate kernels of one operator, as ``portkern check`` does.

    ``op`` names one of the catalogue, or is the path of a PyTorch file or of a FlashInfer-Bench
    Definition, or an :class:`Op`. ``source`` is the path of a kernel or of a folder of them, a list
    of such paths, or the text of one kernel, which is kept beside the records. ``options`` are
    those that ``portkern check --help`` lists: ``target``, ``workloads``, ``dtypes``, ``run`` …

    Raises ConfigError for options that do not exist or have no such value.
    """
    from portkern.cli.verbs import check as verb

    if isinstance(source, str) and "\n" in source:
        known = verb.CheckOptions
        folder = run_folder.run_folder(
            str(options.get("reports", known.reports)), str(options.get("run", known.run))
        )
        source = _kept(source, _named(op), backend, folder)
    asked = {"op": op, "backend": backend, "source": source, **options}
    answer = verb.check(_overrides(asked))
    return NotebookReport(tuple(answer.records), answer.folder, answer.exit_code)


def matrix(
    ops: OpOrName | Sequence[OpOrName] = "core",
    **options: Option | Sequence[Option],
) -> NotebookReport:
    """Evaluate the kernels that ship, or with ``kernels=DIR`` one's own, on every target that is
    asked for, as ``portkern matrix`` does: cells that earlier runs of the same name answered are
    not run again, and the report's pages are written.

    ``options`` are those that ``portkern matrix --help`` lists: ``targets``, ``backends``,
    ``workloads``, ``dtypes``, ``run``, ``track`` and so on. Raises ConfigError.
    """
    from portkern.cli.verbs import matrix as verb

    answer = verb.matrix(_overrides({"ops": ops, **options}))
    return NotebookReport(tuple(answer.records), answer.folder, answer.exit_code)


def _named(op: OpOrName) -> str:
    """The operator's name on the command line."""
    return op.file or op.name if isinstance(op, Op) else str(op)


def _kept(text: str, op: str, backend_name: str, folder: Path) -> Path:
    """A file with the kernel, in the run's folder."""
    backend = registry.load(backend_name)
    suffix = next(iter(backend.languages))
    if ".py" in backend.languages and _is_python(text):
        suffix = ".py"
    path = folder / f"{Path(op.partition(':')[0]).stem}{suffix}"
    atomic_write.write(path, text)
    return path


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _overrides(options: Mapping[str, object]) -> list[str]:
    """The options as the command line would give them."""
    return [f"{name}={_written(name, value)}" for name, value in options.items()]


def _written(name: str, value: object) -> str:
    if isinstance(value, Op):
        return _written(name, _named(value))
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, str | os.PathLike):
        return quoted(os.fspath(value))
    if isinstance(value, Sequence):
        return f"[{','.join(_written(name, item) for item in value)}]"
    raise ConfigError(f"Got {name}={value!r}, expected text, a number, a path or a list of these")
