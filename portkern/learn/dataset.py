"""A data set of runs: its rows, which of them are kept for tests, and the card that says so."""

from __future__ import annotations

import html
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from portkern.errors import BackendUnavailable, ConfigError
from portkern.learn import near, rewards, rows
from portkern.learn.near import ComparedText
from portkern.learn.rows import Row
from portkern.learn.sample import Collected, LearningSample
from portkern.printable import printable
from portkern.records import atomic_write

#: How alike two sources of one task are of which one is left out, and a source for training and
#: one for tests of which the first is.
SAME, LEAKS = 0.9, 0.5
#: The most bytes of a benchmark's file that is read, and the most files.
_MOST_BYTES, _MOST_FILES = 1 << 20, 20_000
_NUMBER = re.compile(r"^\d+_")


@dataclass(frozen=True)
class DataOptions:
    """``test``: families of operators and targets whose rows are for tests. ``against``: a folder
    of a benchmark's problems, which rows of the same operators are marked by, or left out where
    ``drop_overlaps``."""

    form: str
    select: str = "all"
    reward: str = "kevin"
    test: tuple[str, ...] = ()
    against: Path | None = None
    drop_overlaps: bool = False


@dataclass
class DataSet:
    options: DataOptions
    train: list[Row] = field(default_factory=list)
    test: list[Row] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    overlaps: Counter[str] = field(default_factory=Counter)
    nearest: float = 0.0


def build(collected: Collected, options: DataOptions) -> DataSet:
    """Raises ConfigError, and BackendUnavailable without what finds near-duplicates."""
    made = DataSet(options, left_out=Counter(collected.left_out))
    samples = _distinct(collected.samples, options, made)
    marked = _marked(samples, options)
    if options.drop_overlaps:
        samples = _kept(samples, [s for s in samples if s.name not in marked], made, "overlaps")
    if options.form == "sft":
        right = rows.chosen(samples, options.select)
        samples = _kept(samples, right, made, f"not of the selection '{options.select}'")
    elif options.select != "all":
        raise ConfigError(f"Got select={options.select} for {options.form}, which is of sft alone")
    _check_held_out(samples, options)
    held = [sample for sample in samples if _is_test(sample, options)]
    learnt = _without_leaks([s for s in samples if s not in held], held, made)
    reward, form = rewards.named(options.reward), rows.FORMS[options.form]
    for some, into in ((learnt, made.train), (held, made.test)):
        for row in form(some, reward):
            name = f"{row['run']}/{row['attempt']}"
            into.append({**row, "overlaps": list(marked.get(name, ()))})
    for names in marked.values():
        made.overlaps.update(names)
    return made


def _kept(
    before: Sequence[LearningSample], after: list[LearningSample], made: DataSet, why: str
) -> list[LearningSample]:
    if len(after) < len(before):
        made.left_out[why] += len(before) - len(after)
    return after


def _distinct(
    samples: Sequence[LearningSample], options: DataOptions, made: DataSet
) -> list[LearningSample]:
    """One of each source and task; of chats, whose replies would be learnt by heart, one of those
    that are nearly the same, too."""
    first: dict[tuple[object, ...], LearningSample] = {}
    for sample in samples:
        first.setdefault((sample.task, sample.attempt.digest), sample)
    kept = _kept(samples, list(first.values()), made, "the same source as another of its task")
    if options.form != "sft":
        return kept
    right = [sample for sample in kept if sample.turn.rewardable]
    best = sorted(right, key=lambda sample: -sample.turn.speedup)
    texts = {sample.name: sample.text for sample in best}
    task = {sample.name: sample.task for sample in best}
    _, alike = near.kept_of(texts, least=SAME, groups=task)
    return _kept(kept, [s for s in kept if s.name not in alike], made, "nearly the same source")


def _is_test(sample: LearningSample, options: DataOptions) -> bool:
    return not {sample.family, sample.attempt.target}.isdisjoint(options.test)


def _check_held_out(samples: Sequence[LearningSample], options: DataOptions) -> None:
    known = {name for s in samples for name in (s.family, s.attempt.target)}
    unknown = [name for name in options.test if name not in known]
    if unknown and samples:
        raise ConfigError(
            f"No rows of {unknown[0]!r}, expected of test= {', '.join(sorted(known))}"
        )


def _without_leaks(
    learnt: list[LearningSample], held: Sequence[LearningSample], made: DataSet
) -> list[LearningSample]:
    """A kernel that is half of one for tests teaches that one."""
    if not held or not learnt:
        return learnt
    mine = {sample.name: sample.text for sample in learnt}
    theirs = {sample.name: sample.text for sample in held}
    leaking = near.overlaps(mine, theirs, least=LEAKS)
    kept = [sample for sample in learnt if sample.name not in leaking]
    rest = {sample.name: sample.text for sample in kept}
    close = near.overlaps(rest, theirs, least=0.0)
    made.nearest = max(
        (rest[name].likeness(theirs[other]) for name, some in close.items() for other in some),
        default=0.0,
    )
    return _kept(learnt, kept, made, "too like a row for tests")


def _marked(samples: Sequence[LearningSample], options: DataOptions) -> Mapping[str, Sequence[str]]:
    """The problems of the benchmark that are of each sample's operator: called like it, or with
    a source like its own or its reference's."""
    if options.against is None or not samples:
        return {}
    problems = _problems(options.against)
    called: dict[str, list[str]] = {}
    for name in problems:
        called.setdefault(_plain(Path(name).stem), []).append(name)
    texts = {sample.name: sample.text for sample in samples}
    like = near.overlaps(texts, problems, least=LEAKS) if problems else {}
    found: dict[str, Sequence[str]] = {}
    for sample in samples:
        both = [*called.get(_plain(sample.attempt.op), ()), *like.get(sample.name, ())]
        if both:
            found[sample.name] = sorted(set(both))
    return found


def _problems(folder: Path) -> dict[str, ComparedText]:
    if not folder.is_dir():
        raise ConfigError(f"Got against={folder}, expected a folder of a benchmark's problems")
    files = sorted(path for path in folder.rglob("*.py") if path.is_file())[:_MOST_FILES]
    return {
        path.relative_to(folder).as_posix(): ComparedText(
            path.read_text(encoding="utf-8", errors="replace")
        )
        for path in files
        if path.stat().st_size <= _MOST_BYTES
    }


def _plain(name: str) -> str:
    """``23_Soft_max`` is called as ``softmax``."""
    return _NUMBER.sub("", name).replace("_", "").lower()


def write(made: DataSet, folder: Path) -> list[Path]:
    """JSON lines, Parquet and the card. Raises StorageError, and BackendUnavailable without
    pyarrow."""
    written: list[Path] = []
    for split, some in (("train", made.train), ("test", made.test)):
        if some:
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in some)
            for suffix, content in ((".jsonl", lines.encode()), (".parquet", _parquet(some))):
                written.append(folder / f"{split}{suffix}")
                atomic_write.write(written[-1], content)
    written.append(folder / "README.md")
    atomic_write.write(written[-1], card(made))
    return written


def _parquet(some: Sequence[Row]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BackendUnavailable(
            "Parquet files need pyarrow, and it is not installed; pip install 'portkern[report]'"
        ) from None
    sink = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(list(some)), sink)
    return sink.getvalue()


def card(made: DataSet) -> str:
    """The README of a data set: what is in it, who wrote it, and what was left out."""
    every = [*made.train, *made.test]
    files = {"train": made.train, "test": made.test}
    head = ["---", "configs:", f"- config_name: {made.options.form}", "  data_files:"]
    for split in (split for split, some in files.items() if some):
        head += [f"  - split: {split}", f"    path: {split}.parquet"]
    lines = [
        *head,
        "---",
        "",
        f"# Kernels, judged: {made.options.form}",
        "",
        f"{len(made.train)} rows for training and {len(made.test)} for tests, from portkern's "
        f"records. Rewards are `{made.options.reward}`.",
        "",
        *_split_words(made),
    ]
    for column in ("run", "author", "license", "op", "family", "target", "verdict", "evidence"):
        lines += _table(column, Counter(printable(str(row[column])) for row in every))
    lines += _table("left out", made.left_out) + _table("overlaps with", made.overlaps)
    return "\n".join(lines) + "\n"


def _split_words(made: DataSet) -> list[str]:
    if not made.options.test:
        return [
            "Nothing is held out: rows of one family teach each other, so hold out families or "
            "targets (`test=`) before you measure anything on it.",
            "",
        ]
    return [
        f"Held out: {', '.join(made.options.test)}. Rows for training that were {LEAKS:.0%} or "
        "more like one for tests were left out; the nearest that is left is "
        f"{made.nearest:.0%} like one.",
        "",
    ]


def _table(name: str, counts: Counter[str]) -> list[str]:
    if not counts:
        return []
    rows_ = [
        f"| {html.escape(printable(what)).replace('|', ' ')} | {count} |"
        for what, count in counts.most_common()
    ]
    return [f"| {name} | rows |", "|---|---|", *rows_, ""]
