"""Paths that are made of somebody else's words: the one place where a name becomes a path.

A key in a plan, a type in a Definition, a file that a task names: whoever wrote it may have written
``../../.bashrc``. ``SafeName`` is a word that can be one file and nothing else; ``file_of`` finds a
file that a document refers to, within the document's own folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Self

from portkern.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

#: Bytes of one name: file systems end at 255, and files are written aside under longer names.
MOST_BYTES = 200
#: Bytes of a path within a document's folder.
MOST_PATH = 1_000
#: Names of devices on some systems, whatever their suffix: a tree that has them cannot be copied
#: there.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\.|$)", re.IGNORECASE)
#: Separators of folders, of lists of folders and of drives.
_SEPARATORS = frozenset("/\\:")


class SafeName(str):
    """A word that is the name of one file or folder: letters and digits of any script, spaces and
    signs such as ``._+-``, with which it does not begin unless it is an underscore.

    Raises ConfigError for any other; pydantic, which may have it as a field's type or a mapping's
    key, reports it as it reports other wrong values.
    """

    __slots__ = ()

    def __new__(cls, word: str, what: str = "name") -> Self:
        if isinstance(word, cls):
            return word
        if reason := _unfit(word):
            raise ConfigError(f"Got the {what} {short(word)}, {reason}; expected {EXPECTED}")
        return super().__new__(cls, word)

    @classmethod
    def like(cls, word: str) -> Self:
        """A name for any word, to be read beside it: the word itself where that is one, else what
        of it can stand in a name and a digest, so that different words have different names."""
        if not _unfit(word):
            return cls(word)
        plain = re.sub(r"[^\w.+-]+", "-", word[:MOST_BYTES], flags=re.ASCII).strip("-._+")[:100]
        digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return cls(f"{plain or 'name'}-{digest}" if not _DEVICE.match(plain) else f"name-{digest}")

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_validated, core_schema.str_schema())


EXPECTED = (
    f"the name of one file: at most {MOST_BYTES} bytes, beginning with a letter, a digit or _, "
    "without separators and control characters"
)


def file_of(folder: Path, word: str, what: str = "file", *, root: Path | None = None) -> Path:
    """The file that a document in ``folder`` refers to as ``word``: a path that stays in the
    folder, links followed; it need not be there. A document of a collection in ``root`` may also
    name files beside its own folder. Raises ConfigError."""
    parts = [part for part in word.split("/") if part not in ("", ".")]
    reason = ""
    if len(word.encode("utf-8", "surrogatepass")) > MOST_PATH:
        reason = f"which is longer than {MOST_PATH} bytes"
    elif ".." in parts and root is None:
        reason = "which leads upwards"
    elif not parts or any(_unfit(part.removeprefix(".")) for part in parts if part != ".."):
        reason = "of which a part cannot be a name"
    path = Path("/" if word.startswith("/") else folder, *parts)
    if not reason and not _within(root or folder, path):
        reason = "which is elsewhere" if word.startswith("/") else "which a link leads elsewhere"
    if reason:
        raise ConfigError(
            f"Got the {what} {short(word)}, {reason}; expected a path within {root or folder}: put "
            "the file there"
        )
    return path


def inside(folder: Path, listed: str | PurePath) -> Path:
    """The file of a tree by the path that a listing of it or a note gave, however it is called: in
    ``folder``, links to its folders followed. Raises ConfigError for one that is elsewhere."""
    path = folder / listed
    parts = PurePath(listed).parts
    if ".." in parts or path == folder or not _within(folder, path.parent):
        raise ConfigError(f"Got the file {short(str(listed))}, expected a path within {folder}")
    return path


def real_path(path: Path) -> Path:
    """Where a path leads to, as far as it does. Path.resolve() raises of a link that leads to
    itself, which a stranger's folder may have."""
    return Path(os.path.realpath(path))


def is_text(name: str) -> bool:
    """Whether a file's name is UTF-8; Linux takes other bytes, and no document does."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def refuse_collisions(names: Iterable[str], what: str = "name") -> None:
    """Raises ConfigError for two that some file systems take for the same file."""
    seen: dict[str, str] = {}
    for name in names:
        folded = unicodedata.normalize("NFKC", name).casefold()
        if folded in seen:
            raise ConfigError(
                f"Got the {what}s {short(seen[folded])} and {short(name)}, which are the same file "
                "on some systems; expected names that differ by more than their case"
            )
        seen[folded] = name


def short(word: str) -> str:
    """A word in quotation marks, on one line, of a length that a message can have."""
    return ascii(word) if len(word) <= 60 else f"{ascii(word[:57])[:-1]}...'"


def _unfit(word: str) -> str:
    """Why a word is not the name of one file; empty where it is."""
    if not word:
        return "which is empty"
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for c in word):
        return "which has a character that is not printed"
    if len(word.encode()) > MOST_BYTES:
        return f"which is longer than {MOST_BYTES} bytes"
    if found := next((c for c in word if c in _SEPARATORS), ""):
        return f"which has {found!r}"
    if not (word[0].isalnum() or word[0] == "_"):
        return f"which begins with {word[0]!a}"
    if word[-1] in ". ":
        return f"which ends in {word[-1]!r}"
    if _DEVICE.match(word):
        return "which is a device on some systems"
    if unicodedata.normalize("NFC", word) != word:
        return "which is not composed (NFC)"
    return ""


def _validated(word: str) -> SafeName:
    try:
        return SafeName(word)
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _within(folder: Path, path: Path) -> bool:
    try:
        return real_path(path).is_relative_to(real_path(folder))
    except (OSError, RuntimeError, ValueError):  # a circle of links
        return False
