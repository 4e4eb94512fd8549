"""The object of a file some of whose kernels a compiler rejects: the others, without these and what
uses them, and for each of these what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from portkern.port.device_build import DeviceBuilt, NotBuilt, words_of
from portkern.port.proof.outcome import ProofSource
from portkern.port.proof.slice import Slices, written
from portkern.port.proof.texts import SourceTexts
from portkern.toolchain.compiler_log import ERROR, messages

#: Each finds what the one before it hid.
_MOST_TRIES = 6

Compile = Callable[[Path], DeviceBuilt | NotBuilt]


def build(source: ProofSource, compile_file: Compile, workdir: Path) -> DeviceBuilt | NotBuilt:
    """The object of the file itself, or, where functions or classes are rejected, of the file
    without them and what uses them; NotBuilt where that does not help."""
    whole = compile_file(source.path)
    if isinstance(whole, DeviceBuilt) or whole.cause != "code":
        return whole
    texts = SourceTexts(source)
    slices = Slices([text.text for text in texts.files])
    rejected: dict[str, NotBuilt] = {}
    gone: set[tuple[int, int]] = set()
    made: DeviceBuilt | NotBuilt = whole
    for attempt in range(_MOST_TRIES):
        if isinstance(made, DeviceBuilt) or made.cause != "code":
            break
        found = {place: words for place, words in errors_of(made, texts) if place not in gone}
        if not found:
            break
        gone |= found.keys()
        cut, names = slices.without(gone)
        for place, words in found.items():
            for name in slices.users(*place, names):
                rejected.setdefault(name, NotBuilt(words, made.log))
        made = compile_file(written(texts, cut, workdir / str(attempt)))
    if not isinstance(made, DeviceBuilt):
        return whole
    where = f"line {whole.line}: " if whole.line else ""
    return replace(made, rejected=rejected, not_whole=f"{where}{whole.reason}")


def errors_of(made: NotBuilt, texts: SourceTexts) -> Iterator[tuple[tuple[int, int], str]]:
    """The errors in a log, each with its file, by number, and line."""
    names = [file.path.name for file in texts.files]
    for message in messages(made.log):
        name = Path(message.file).name
        if message.kind == ERROR and name in names:
            yield (names.index(name), message.line), words_of(message)
