"""A compiler's line with the headers that it includes first, precompiled: to read HIP's is five
sixths of what clang does for one kernel.

They take as long as two builds to make, so that a process makes them with its second build for a
target and side, and those that come later have them too. Code is the same with and without.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from portkern.errors import BuildError, BuildTimeout
from portkern.toolchain.make_once import make_once
from portkern.toolchain.run_tool import run_tool

Argv = Sequence[str | Path]
BUILD_S = 300.0
#: The name of a source that is nothing but the headers which other files begin with.
FIRST = "first.h"
_asked: Counter[Path] = Counter()
_making = threading.Lock()


def environment(workdir: Path) -> dict[str, str]:
    """Zig insists on cache folders, and may write nowhere else."""
    return {"ZIG_GLOBAL_CACHE_DIR": str(workdir), "ZIG_LOCAL_CACHE_DIR": str(workdir)}


@dataclass(frozen=True)
class Headers:
    """``argv`` is clang's line without a source and an output; ``first`` what each source begins
    with, and ``file`` where it is once it is precompiled."""

    argv: tuple[str, ...]
    first: str
    file: Path

    def prepare(self) -> None:
        """Makes the file where this process builds with it a second time, and nobody makes one just
        now. All is built without it as well."""
        _asked[self.file] += 1
        if self.file.exists() or _asked[self.file] < 2 or not _making.acquire(blocking=False):
            return
        try:
            with suppress(BuildError, OSError):  # a cache may be full, read-only or locked
                make_once(self.file, self._make)
        finally:
            _making.release()

    def _make(self, to: Path) -> None:
        source = self.file.with_suffix(".h")  # which clang looks for when it reads them
        source.write_text(self.first, encoding="utf-8")
        with tempfile.TemporaryDirectory() as box:
            argv = [*without_code(self.argv), "-Xclang", "-emit-pch"]
            argv += ["-Xclang", "-fno-pch-timestamp", str(source), "-o", str(to)]
            run_tool(
                argv, whose="own", timeout_s=BUILD_S, cwd=Path(box), env=environment(Path(box))
            )

    def compile(self, run: Callable[[Argv], str], rest: Argv, flags: Sequence[str]) -> str:
        """The log that ``run`` gives of the line with the ``rest`` and a project's ``flags``, under
        which headers may read otherwise. What fails with precompiled ones is compiled without, and
        fails in the words that it always had."""
        if not flags and self.file.exists():
            short = without_includes(self.argv)
            try:
                return run((*short, "-Xclang", "-include-pch", "-Xclang", self.file, *rest))
            except BuildTimeout:
                raise
            except BuildError:
                pass
        return run((*self.argv, *flags, *rest))


def without_includes(argv: Sequence[str]) -> list[str]:
    """The line without the headers that it includes first, which are in what is precompiled."""
    pairs = zip(("", *argv), argv, strict=False)
    return [word for before, word in pairs if "-include" not in (before, word)]


def without_code(argv: Sequence[str]) -> list[str]:
    """The line without the words that say which code is made of a source."""
    at = argv.index("-emit-obj") if "-emit-obj" in argv else 0
    return [*argv[: at - 1], *argv[at + 1 :]] if at else [*argv]
