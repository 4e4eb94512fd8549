"""The findings of a run of all trials, as a committed file and as a page of the documentation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import modes, suite
from .folding import Folded
from .instructions import PROCESSORS
from .trial import Verdict

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("figures.tsv")
FOLDED = Path(__file__).with_name("folded.tsv")
TEMPLATE = Path(__file__).with_name("page.md")
PAGE = ROOT / "docs" / "fidelity.md"
TITLES = {"cdna": "CDNA", "rdna3": "RDNA3", "rdna4": "RDNA4"}
#: Models that compute nothing: they wait, branch, or look after caches.
IDLE = (
    "s_wait", "s_nop", "s_delay_alu", "s_clause", "s_sleep", "s_barrier", "s_branch", "s_cbranch",
    "s_endpgm", "s_getpc", "s_setpc", "s_swappc", "s_call", "s_trap", "s_setprio", "s_sendmsg",
    "s_icache", "s_dcache", "s_inst_prefetch", "s_prefetch", "s_set_inst", "buffer_inv",
    "buffer_wb", "buffer_gl", "global_inv", "global_wb", "v_nop", "ds_nop", "s_memtime",
    "s_memrealtime", "s_getreg", "s_setreg", "s_round_mode", "s_denorm_mode",
)  # fmt: skip
#: Models that are not tried in this way yet: scalar loads, register indices, and what waves of 32
#: lanes have no use of.
UNTRIED = (
    "s_load", "s_buffer_load", "v_movrel",
    "global_load_lds", "ds_read_b64_tr", "v_accvgpr", "v_bitop3", "v_permlane64",
)  # fmt: skip


@dataclass
class Figure:
    """One instruction in one family: its group, and how it was tried."""

    group: str
    trials: int = 0
    inputs: int = 0
    wrong: int = 0


Figures = dict[str, dict[str, Figure]]


def of(verdicts: Iterable[Verdict]) -> dict[str, Figure]:
    """Figures by mnemonic."""
    found: dict[str, Figure] = {}
    for verdict in verdicts:
        trial = verdict.trial
        figure = found.setdefault(trial.name, Figure(trial.oracle.group))
        figure.trials += 1
        figure.inputs += verdict.inputs
        figure.wrong += verdict.wrong
    return found


def looked_at(family: str, inputs: int, only: str) -> tuple[dict[str, Figure], Sequence[str]]:
    """The figures of a family, and lines on how much was tried and what was wrong."""
    verdicts, unknown = suite.run(family, inputs, only)
    known = of(verdicts)
    lines = [f"{family}: {len(verdicts)} forms of {len(known)} instructions"]
    lines.append(f"  not known to the assembler: {len(unknown)}")
    for verdict in verdicts:
        if verdict.wrong:
            lines.append(f"  {verdict.trial.line}: {verdict.wrong} of {verdict.inputs}")
            lines.append(f"    {verdict.example}")
    return known, lines


def write(figures: Figures, file: Path = FILE) -> None:
    """One line for each instruction: its name, its group, and numbers by family."""
    names = sorted({name for known in figures.values() for name in known})
    lines = []
    for name in names:
        there = {family: known[name] for family, known in figures.items() if name in known}
        numbers = (
            f"{family}:{one.trials}:{one.inputs}:{one.wrong}" for family, one in there.items()
        )
        lines.append("\t".join((name, next(iter(there.values())).group, *numbers)))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(file: Path = FILE) -> Figures:
    found: Figures = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        name, group, *families = line.split("\t")
        for numbers in families:
            family, trials, inputs, wrong = numbers.split(":")
            figure = Figure(group, int(trials), int(inputs), int(wrong))
            found.setdefault(family, {})[name] = figure
    return {family: found[family] for family in PROCESSORS if family in found}


def write_folded(found: Mapping[str, Folded], file: Path = FOLDED) -> None:
    """One line for each instruction: its name, inputs of the second oracle, and how many differ."""
    lines = (f"{name}\t{one.inputs}\t{one.wrong}\n" for name, one in sorted(found.items()))
    file.write_text("".join(lines), encoding="utf-8")


def read_folded(file: Path = FOLDED) -> dict[str, Folded]:
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        name, inputs, wrong = line.split("\t")
        found[name] = Folded(int(inputs), int(wrong))
    return found


def page(figures: Figures) -> str:
    """The page, in Markdown."""
    folded = read_folded()
    directed = {name: one for name, one in folded.items() if modes.MARK in name}
    twice = {name: one for name, one in folded.items() if name not in directed}
    text = TEMPLATE.read_text(encoding="utf-8").replace("{summary}", summary(figures))
    known = {name for of_family in figures.values() for name in of_family}
    for place, figure in (
        ("{folded}", len(twice)),
        ("{folded inputs}", sum(one.inputs for one in twice.values())),
        ("{folded wrong}", sum(one.wrong for one in folded.values())),
        ("{directed inputs}", sum(one.inputs for one in directed.values())),
        ("{moded}", len(modes.names() & known)),
    ):
        text = text.replace(place, f"{figure:,}")
    parts = [text]
    parts.append("## All instructions\n")
    parts.append(
        "Of CDNA (c), RDNA3 (3) and RDNA4 (4) where not of all three; how many thousands of "
        "inputs, and ² where LLVM's folding was a second oracle.\n"
    )
    groups: dict[str, set[str]] = defaultdict(set)
    for of_family in figures.values():
        for name, tried in of_family.items():
            groups[tried.group].add(name)
    for group, names in sorted(groups.items()):
        parts.append(f"### {group[0].upper()}{group[1:]}\n")
        named = (f"{_named(name, figures)}{' ²' * (name in twice)}" for name in sorted(names))
        parts.append(" · ".join(named) + "\n")
    return "\n".join(parts)


def _named(name: str, figures: Figures) -> str:
    there = [family for family in PROCESSORS if name in figures.get(family, {})]
    marks = (
        ""
        if len(there) == 3
        else f" ({''.join(TITLES[f].removeprefix('RDNA')[:1].lower() for f in there)})"
    )
    inputs = sum(figures[family][name].inputs for family in there)
    return f"`{name}`{marks} {inputs // 1000:,}"


def summary(figures: Figures) -> str:
    lines = ["| | " + " | ".join(f"{TITLES[f]}, {PROCESSORS[f][0]}" for f in figures) + " |"]
    lines.append("|---" * (len(figures) + 1) + "|")
    rows: Sequence[tuple[str, str]] = (
        ("instructions tried", "{instructions:,}"),
        ("forms", "{trials:,}"),
        ("inputs", "{inputs:,}"),
        ("results that differ from the oracle", "{wrong:,}"),
    )
    facts = [_facts(known) for known in figures.values()]
    for title, form in rows:
        lines.append(f"| {title} | " + " | ".join(form.format(**fact) for fact in facts) + " |")
    return "\n".join(lines)


def _facts(known: Mapping[str, Figure]) -> dict[str, int]:
    every = known.values()
    return {
        "instructions": len(known),
        "trials": sum(one.trials for one in every),
        "inputs": sum(one.inputs for one in every),
        "wrong": sum(one.wrong for one in every),
    }
