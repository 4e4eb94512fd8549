"""How the values of a Triton signature's types lie in memory, as :mod:`struct` says it."""

from __future__ import annotations

POINTER = "<Q"
_LAYOUTS = {
    "i1": "<b",
    "i8": "<b",
    "i16": "<h",
    "i32": "<i",
    "i64": "<q",
    "u1": "<B",
    "u8": "<B",
    "u16": "<H",
    "u32": "<I",
    "u64": "<Q",
    "fp16": "<e",
    "f16": "<e",
    "fp32": "<f",
    "f32": "<f",
    "fp64": "<d",
    "f64": "<d",
}


def layout(kind: str) -> str | None:
    """The layout of a type; None where nothing is known of it here."""
    return _LAYOUTS.get(kind)
