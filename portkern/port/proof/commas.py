"""Parts of C++ text between commas."""

from __future__ import annotations


def split(text: str, opening: str = "([{", closing: str = ")]}") -> list[str]:
    """The parts of a text between commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in opening) - (character in closing)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def of_template(text: str) -> list[str]:
    """The arguments of a template, which may be calls and templates themselves."""
    return split(text, "<(", ">)")


def closed(text: str, opening: str, closing: str) -> str | None:
    """The text up to the bracket that closes one before it; None where none does."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character in opening) - (character in closing)
        if depth < 0:
            return text[:at]
    return None
