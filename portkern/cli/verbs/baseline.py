"""``portkern baseline``: which runs people hold for good or bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from portkern.cli import json_output
from portkern.cli.config import resolve
from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError, no_such
from portkern.printable import printable
from portkern.regression import pruning, standing
from portkern.regression.runs import RECORDS, records_of
from portkern.regression.standing import RunDecision, Standing

_STANDINGS: dict[str, Standing] = {
    "promote": "promoted",
    "demote": "demoted",
    "clear": "neither",
}


@dataclass
class BaselineOptions:
    action: str = "list"
    run: str = ""
    reason: str = ""
    keep: int = 60
    delete: bool = False
    reports: str = "reports"
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    """``portkern baseline promote RUN [REASON]``; likewise demote and clear; list; or prune."""
    places = iter(("action", "run", "reason"))
    words = {field.name for field in fields(BaselineOptions)}
    named = [
        text if text.partition("=")[0].lstrip("+") in words else f"{next(places, 'option')}={text}"
        for text in overrides
    ]
    options = resolve("baseline", BaselineOptions, [_quoted(text) for text in named])
    reports = Path(options.reports)
    if options.action in _STANDINGS:
        if not options.run:
            raise ConfigError(f"Got no run; portkern baseline {options.action} RUN [REASON]")
        folder = run_folder.run_folder(options.reports, options.run)
        if not records_of(folder).exists() and options.action != "clear":
            raise ConfigError(f"No records in {folder / RECORDS}; 'portkern matrix' writes them")
        decision = RunDecision.now(options.run, _STANDINGS[options.action], options.reason)
        standing.keep(reports, decision)
    elif options.action == "prune":
        return _prune(options, reports)
    elif options.action != "list":
        raise no_such("action", options.action, [*_STANDINGS, "list", "prune"])
    known = [one for one in standing.decisions(reports).values() if one.standing != "neither"]
    if options.json:
        listed = [one.model_dump(exclude={"schema_"}) for one in known]
        json_output.show({"runs": listed, "exit_code": 0})
        return 0
    for one in known:
        why = f": {one.why}" if one.why else ""
        print(printable(f"{one.run}: {one.standing} {one.time}{why}"))
    if not known:
        print(f"No run in {printable(options.reports)} is promoted or demoted")
    return 0


def _prune(options: BaselineOptions, reports: Path) -> int:
    """Lists the runs that may go, and deletes them with ``delete=true``."""
    found = pruning.superfluous(reports, options.keep)
    if options.delete:
        pruning.delete(found)
    names = [run.name for run in found]
    if options.json:
        json_output.show({"runs": names, "deleted": options.delete, "exit_code": 0})
        return 0
    for name in names:
        print(printable(f"{name}: {'deleted' if options.delete else 'may go: delete=true'}"))
    if not names:
        print(f"No run in {printable(options.reports)} may go: {options.keep} are kept")
    return 0


def _quoted(text: str) -> str:
    """A reason is words, which Hydra would read as its grammar."""
    key, _, value = text.partition("=")
    if key != "reason" or value[:1] in ("'", '"'):
        return text
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"reason='{escaped}'"
