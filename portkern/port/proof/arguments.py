"""Arguments of programs: sizes and numbers of repetitions are GPUs', and an emulator is slower."""

from __future__ import annotations

from collections.abc import Sequence

#: What a proof says of its inputs, before the arguments.
OWN, SMALLER = "the program's own", "its program with smaller numbers"
FIRST = "the first {} launches"
#: Arguments are made smaller by these, one after the other; powers of two stay such.
_PARTS = (64, 4096)


def smaller(arguments: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Smaller arguments to try in turn with a program that does not end with the given ones."""
    made = (tuple(_part(word, by) for word in arguments) for by in _PARTS)
    return tuple(dict.fromkeys(words for words in made if words != tuple(arguments)))


def _part(word: str, by: int) -> str:
    return str(max(int(word) // by, 1)) if word.isdecimal() and int(word) else word
