"""The width of the machine's warps where host code asks for it: in other words than ``warpSize``
neither the original nor its port would be told their own."""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = "warpSize"
#: The question as a function of PyTorch's, and as a member of a device's properties.
_ASKED = re.compile(
    r"(?<![\w.:>])(?:::)?(?:at::)?(?:(?:cuda|hip)::)?warp_size\s*\(\s*\)"
    r"|(?<![\w.:>])[\w:]*[gG]et(?:Current)?DeviceProperties\s*\([^(){};]{0,100}\)\s*->\s*warpSize\b"
)
_OWN = re.compile(r"\bwarp_size\s*\(\s*(?:void)?\s*\)\s*(?:const\b|noexcept\b|\s)*\{")
_BARE = re.compile(r"warp_size\s*\(\s*\)")
_PROPERTIES = re.compile(
    r"\b(?:cuda|hip)DeviceProp(?:_t)?\s*+(?:const\b\s*+)?(?:[*&]\s*+)?(\w+)"
    r"|\bauto\s*+(?:const\b\s*+)?(?:[*&]\s*+)?(\w+)\s*+=\s*+"
    r"[\w:]*[gG]et(?:Current)?DeviceProperties\s*\("
)
#: A call that gives a variable the width, which a declaration takes the place of.
_ATTRIBUTE = re.compile(
    r"\b(?:cuda|hip)DeviceGetAttribute\s*\(\s*&\s*(\w+)\s*,\s*"
    r"(?:cudaDevAttrWarpSize|hipDeviceAttributeWarpSize)\s*,[^(){};]{1,100}\)"
)
_MEMBER = re.compile(r"\b(\w++(?:\.|->)\w++)\s*+=\s*+([^;{}=]{1,500}?)\s*+;")


@lru_cache(maxsize=16)
def in_one_word(text: str) -> str:
    """The same text, all of it at its place, with ``warpSize`` where it asks for the width."""
    declared = _ATTRIBUTE.sub(lambda m: _padded(f"int {m[1]} = {_WORD};", m[0]), text)
    return _told(declared, declared)


def in_launch(part: str, text: str, offset: int) -> str:
    """A part of the launch at the offset of a text: what asks for the width is ``warpSize``, and a
    member is what it is set to there, if that depends on the width."""
    part, text = _told(part, text).strip(), in_one_word(text)[:offset]
    for member, value in _set_from_width(text).items():
        whole = re.compile(rf"(?<![\w.>]){re.escape(member)}\b")
        part = f"({value})".join(whole.split(part))
    return part


def is_asked(text: str) -> bool:
    """Whether host code asks for the width, by a call, or sets a member from it."""
    told = in_one_word(text)
    return told != text or "C10_WARP_SIZE" in text or bool(_set_from_width(told))


def _told(part: str, text: str) -> str:
    is_own, names = _known(text)

    def word(match: re.Match[str]) -> str:
        return match[0] if is_own and _BARE.fullmatch(match[0]) else _padded(_WORD, match[0])

    part = _ASKED.sub(word, part)
    if names:
        asked = rf"(?<![\w.>])(?:{'|'.join(names)})\s*(?:\.|->)\s*{_WORD}\b"
        part = re.sub(asked, lambda match: _padded(_WORD, match[0]), part)
    return part


@lru_cache(maxsize=16)
def _known(text: str) -> tuple[bool, tuple[str, ...]]:
    """Whether the text has a function of its own that is called so, and the names of devices'
    properties in it."""
    names = dict.fromkeys(match[1] or match[2] for match in _PROPERTIES.finditer(text))
    return _OWN.search(text) is not None, tuple(names)


@lru_cache(maxsize=16)
def _set_from_width(text: str) -> dict[str, str]:
    return {m[1]: m[2] for m in _MEMBER.finditer(text) if re.search(rf"\b{_WORD}\b", m[2])}


def _padded(word: str, asked: str) -> str:
    """The word with as many characters and lines as what it stands for."""
    return word + re.sub(r"[^\n]", " ", asked[len(word) :])
