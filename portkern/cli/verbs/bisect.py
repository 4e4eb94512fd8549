"""``portkern bisect good=REV …`` or ``portkern bisect RUN``, which begins from a red cell of a run:
the commit since which a kernel fails, or is slower."""

from __future__ import annotations

import dataclasses
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from portkern.cli import json_output
from portkern.cli.config import quoted, resolve
from portkern.cli.verbs import red_cell
from portkern.errors import ConfigError, ToolError
from portkern.printable import printable
from portkern.records.record import RecordFile, Verdict
from portkern.regression import rule
from portkern.regression.bisection import first_bad
from portkern.regression.runs import RECORDS
from portkern.regression.timed import Statistic, of, point
from portkern.toolchain.git import run_git

#: Races of one revision differ by so many of their standard deviations at most.
APART = 3.0
#: Seconds that a call of git may take: a checkout of a large tree is one.
GIT_S = 600.0
#: What the runs at revisions are called.
RUN = "bisect"


@dataclass
class BisectOptions:
    good: str = ""
    bad: str = ""
    night: str = ""
    reports: str = "reports"
    races: int = 3
    json: bool = False


@dataclass(frozen=True)
class BisectLook:
    """A look at a revision: the worst verdict of the cells (None where nothing ran), and for
    each race the mean logarithm of their times."""

    verdict: Verdict | None
    times: tuple[float, ...] = ()
    said: str = ""

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASSED

    @property
    def middle(self) -> float:
        return statistics.median(self.times)


def main(overrides: Sequence[str]) -> int:
    """0: the commit is known; 1: it is one of several; 2: usage; 3: nothing ran at an end."""
    own = {option.name for option in dataclasses.fields(BisectOptions)}
    named = [f"night={quoted(text)}" if _is_run(text) else text for text in overrides]
    mine = [text for text in named if text.partition("=")[0] in own]
    options = resolve("bisect", BisectOptions, list(map(_quoted, mine)))
    asked = [text for text in named if text not in mine]
    for text in asked:
        if text.partition("=")[0] == "run":
            raise ConfigError(
                f"Got {text}, which bisect sets itself; 'portkern bisect RUN' names one"
            )
    if options.night:
        options, asked = _from_red(options, asked)
    elif not options.good:
        raise ConfigError("good= is required, or a run with red cells: portkern bisect RUN")
    options = dataclasses.replace(options, bad=options.bad or "HEAD")
    commits = _commits(options.good, options.bad)
    with _worktree() as tree:
        bisection = Bisection(tree, asked, commits, options)
        return bisection.show(bisection.search())


def _is_run(word: str) -> bool:
    """Whether it names a run; a file is a kernel, as it is of ``portkern check``."""
    return "=" not in word and not Path(word).is_file()


def _from_red(options: BisectOptions, asked: Sequence[str]) -> tuple[BisectOptions, list[str]]:
    """The options with the commits of a red cell where none are named, and the words for its
    kernel."""
    named = [text for text in asked if text.partition("=")[0] in red_cell.NAMED]
    one = red_cell.find(options.night, Path(options.reports), named)
    if not options.json:
        print(f"portkern: note: {printable(str(one.change))}", file=sys.stderr)
    others = [text for text in asked if text not in named]
    good, bad = options.good or one.good, options.bad or one.bad
    return dataclasses.replace(options, good=good, bad=bad), [*one.words, *others]


def _quoted(text: str) -> str:
    """Hydra wants quotes around the ~ and ^ of revisions."""
    name, _, value = text.partition("=")
    plain = name not in ("good", "bad") or value[:1] in ("'", '"')
    return text if plain else f"{name}='{value}'"


@dataclass
class Bisection:
    """``commits``, oldest first, begin with the good one and end with the bad one."""

    tree: Path
    asked: Sequence[str]
    commits: Sequence[str]
    options: BisectOptions
    known: dict[int, BisectLook] = field(default_factory=dict)

    def search(self) -> tuple[int, int, str]:
        """The last good one, the first bad one, and what is bad of it. Raises ConfigError where the
        ends are not what they are called."""
        first, last = self.seen(0), self.seen(len(self.commits) - 1)
        for which, end in (("good", first), ("bad", last)):
            if end.verdict is None:
                raise ConfigError(f"Nothing can be said of {which}: {end.said}")
        if not first.passed:
            raise ConfigError(f"good={self.options.good} is not: {first.said}")
        if not last.passed:
            found = first_bad(0, len(self.commits) - 1, self._fails)
            return found.good, found.bad, self.seen(found.bad).said
        return self._by_time()

    def _fails(self, number: int) -> bool | None:
        """A revision that does not build shows nothing of a kernel that later ran and was wrong."""
        seen, last = self.seen(number), self.seen(len(self.commits) - 1)
        if seen.verdict is None or (_unbuilt(seen) and not _unbuilt(last)):
            return None
        return not seen.passed

    def _by_time(self) -> tuple[int, int, str]:
        first, last = self.timed(0), self.timed(len(self.commits) - 1)
        grown = last.middle - first.middle if first.times and last.times else 0.0
        noise = max(statistics.pstdev(end.times) for end in (first, last)) if grown else 0.0
        if grown <= max(rule.floor(noise), APART * noise):
            raise ConfigError(
                f"Both ends pass, and the time of {self.options.bad} is {math.expm1(grown):+.0%} "
                f"against eager; expected at least {math.expm1(rule.floor(noise)):.0%}, and "
                f"{APART:.0f} times what races differ by ({math.expm1(APART * noise):.0%})"
            )
        limit = first.middle + grown / 2

        def slower(number: int) -> bool | None:
            seen = self.timed(number)
            return seen.middle > limit if seen.times else None

        found = first_bad(0, len(self.commits) - 1, slower)
        return found.good, found.bad, f"{math.expm1(grown):+.0%} against eager"

    def timed(self, number: int) -> BisectLook:
        """The look at a commit once all races have run."""
        seen = self.seen(number)
        while seen.passed and len(seen.times) < self.options.races:
            more = self._look(number)
            if not more.times:
                break
            seen = dataclasses.replace(seen, times=(*seen.times, *more.times))
        self.known[number] = seen
        return seen

    def seen(self, number: int) -> BisectLook:
        if number not in self.known:
            self.known[number] = self._look(number)
            self._tell(number)
        return self.known[number]

    def _look(self, number: int) -> BisectLook:
        """One call of ``portkern check`` at a commit."""
        _git("checkout", "--quiet", "--detach", self.commits[number], folder=self.tree)
        folder = self.tree / _git("rev-parse", "--show-prefix")
        if not folder.is_dir():
            return BisectLook(None, said=f"{folder.name} is not there")
        with tempfile.TemporaryDirectory() as reports:
            command = [sys.executable, "-P", "-m", "portkern.cli", "check", *self.asked]
            done = subprocess.run(
                [*command, f"reports={reports}", f"run={RUN}"],
                cwd=folder,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            records, _ = RecordFile(Path(reports) / RUN / RECORDS).read()
        ran = [one for one in records if one.evidence or one.verdict.bad]
        if done.returncode not in (0, 1) or not ran:
            return BisectLook(None, said=(done.stderr.strip().splitlines() or ["nothing ran"])[-1])
        bad = [one for one in ran if one.verdict.bad]
        if bad:
            return BisectLook(
                bad[0].verdict, said=f"{bad[0].verdict}: {bad[0].detail.partition(chr(10))[0]}"
            )
        points = [point(one) for one in ran]
        ratios = [of(one, Statistic.AGAINST_EAGER) if one else None for one in points]
        known = [ratio for ratio in ratios if ratio is not None]
        return BisectLook(
            Verdict.PASSED, (statistics.fmean(known),) if len(known) == len(ran) else (), "passed"
        )

    def _tell(self, number: int) -> None:
        if not self.options.json:
            said = printable(self.known[number].said)
            print(f"{_title(self.commits[number])}: {said}", file=sys.stderr, flush=True)

    def show(self, found: tuple[int, int, str]) -> int:
        good, bad, said = found
        several = self.commits[good + 1 : bad + 1]
        code = 0 if len(several) == 1 else 1
        if self.options.json:
            document = {
                "good": self.commits[good],
                "bad": list(several),
                "said": said,
                "judged": len(self.known),
                "exit_code": code,
            }
            json_output.show(document)
        elif code == 0:
            print(f"first bad: {_title(several[0])}: {printable(said)}")
        else:
            print(f"the first bad one is of these {len(several)}; all but the last show nothing:")
            print("\n".join(map(_title, several)))
        return code


def _unbuilt(seen: BisectLook) -> bool:
    return seen.verdict in (Verdict.BUILD_FAILED, Verdict.REJECTED)


def _commits(good: str, bad: str) -> list[str]:
    """The commits from the one to the other along first parents. Raises ConfigError."""
    ends = [
        "" if end.startswith("-") else _git("rev-parse", "--verify", "--quiet", f"{end}^{{commit}}")
        for end in (good, bad)
    ]
    for name, end in zip((good, bad), ends, strict=True):
        if not end:
            raise ConfigError(f"Got {name!r}, expected a commit of the repository of this folder")
    between = _git("rev-list", "--first-parent", "--reverse", f"{ends[0]}..{ends[1]}").split()
    if not between or ends[1] != between[-1]:
        raise ConfigError(f"{bad} is not later than {good}, expected good=EARLIER bad=LATER")
    return [ends[0], *between]


def _title(commit: str) -> str:
    return printable(_git("log", "-1", "--format=%h %s", commit))


@contextmanager
def _worktree() -> Iterator[Path]:
    """A checkout beside the user's, which stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree))
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*words: str, folder: Path | None = None) -> str:
    """The output, '' where git says by its status alone that nothing was found. Raises ConfigError
    where there is no git or no repository."""
    try:
        return run_git(folder or Path.cwd(), *words, timeout_s=GIT_S).strip()
    except ToolError as error:
        said = error.log.strip().splitlines()
        if error.status == 1 and not said:
            return ""
        why = f"{error}: {said[-1]}" if said else str(error)
        raise ConfigError(f"git {words[0]}: {why}") from error
