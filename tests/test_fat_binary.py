"""Fat binaries: for which GPUs a program has machine code."""

from __future__ import annotations

import struct

import pytest

from portkern.toolchain.fat_binary import architectures

PTX, CODE = 1, 2


def entry(kind: int, arch: int, content: bytes = b"\x7fELF") -> bytes:
    head = struct.pack("<HHIQ12xI32x", kind, 1, 64, len(content), arch)
    return head + content


def fat(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return b"\x50\xed\x55\xba" + struct.pack("<HHQ", 1, 16, len(body)) + body


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (b"\x7fELF and nothing else", set()),
        (b"text" + fat(entry(CODE, 90)) + b"text", {"sm_90"}),
        (fat(entry(CODE, 80, b"x" * 33), entry(CODE, 90), entry(PTX, 100)), {"sm_80", "sm_90"}),
        (fat(entry(PTX, 90)), set()),
        (fat(entry(CODE, 75)) + b"\0" * 5 + fat(entry(CODE, 120)), {"sm_75", "sm_120"}),
        (fat(entry(CODE, 90, b"x" * 100))[:50], {"sm_90"}),
        (fat(entry(CODE, 90))[:30], set()),
        (b"\x50\xed\x55\xba", set()),
        (b"\x50\xed\x55\xba" + b"\xff" * 40, set()),
    ],
)
def test_machine_code_is_found_wherever_it_is_in_a_program(program: bytes, found: set[str]) -> None:
    assert architectures(program) == found
