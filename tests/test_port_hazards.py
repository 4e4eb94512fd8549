"""Kernels whose results follow from the width of a warp or from the vendor, and twins that do not:
none of the first is proven where the port does something else, none of the second is accused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from portkern.cli import main

CASES = Path(__file__).parent / "data" / "port_hazards"
#: The port keeps warps of 32 lanes, so that these do what they did.
KEPT = {"partials", "interleaved", "crowd", "bits", "rounds", "per_warp", "carried"}
#: These it cannot keep: two warps of one wave wait for each other, a barrier of two warps, a group
#: of as many lanes as are here, and a shift that C++ leaves open.
NOT_KEPT = {
    "produced": "wrong",
    "coalesced": "wrong",
    "halves": "needs a human",
    "shifted": "not proven",
}


def outcomes(tmp_path: Path, name: str) -> dict[str, dict[str, Any]]:
    shutil.copy(CASES / name, tmp_path)
    main.run(["port", str(tmp_path / name), "to=gfx942", f"reports={tmp_path / 'reports'}"])
    summary = next((tmp_path / "reports").glob("port-*/summary.json"))
    kernels = json.loads(summary.read_text(encoding="utf-8"))["kernels"]
    return {kernel["kernel"]: kernel for kernel in kernels}


@pytest.mark.full
def test_what_another_width_or_vendor_changes_is_not_proven(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "hazards.cu")
    assert {name: kernel["outcome"] for name, kernel in found.items()} == {
        **dict.fromkeys(KEPT, "proven in emulation"),
        **NOT_KEPT,
    }
    assert "differs between vendors' GPUs" in found["shifted"]["why"]


@pytest.mark.full
def test_twins_without_the_hazard_are_proven_and_not_warned_of(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "twins.cu")
    assert {name: kernel["outcome"] for name, kernel in found.items()} == dict.fromkeys(
        KEPT | NOT_KEPT.keys(), "proven in emulation"
    )
    assert not [hazard for kernel in found.values() for hazard in kernel["hazards"]]
