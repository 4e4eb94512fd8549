"""Nights of a user's own kernels, as whole commands: a slowdown is found, and nothing else is."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from portkern.regression import rule

pytestmark = pytest.mark.full

#: Each addition waits for the one before it: the time is that of the additions, whatever else the
#: processor's other threads and caches do.
CUMSUM = """extern "C" int cumsum(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
    for (int64_t row = 0; row < rows; ++row) {
        double sum = 0;
        for (int64_t i = row * cols; i < (row + 1) * cols; ++i) y[i] = scalar_t(sum += x[i]);
    }
    return 0;
}
"""
#: As many additions again as are a tenth of all, each of which waits too.
A_TENTH_MORE = """    double again = 0;
    for (int64_t i = 0; i < rows * cols / 10; ++i) again += x[i];
    return again == 1e300;
"""
WORK = 0.10
#: The larger of the operator's sizes; of the smaller one most is the call itself.
SIZE = "16x1024"
#: Deviations from run to run by which WORK must be beyond what is called a change, so that what is
#: found is not luck.
CERTAIN = 3.0


def night(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    words = ["track=false", "baseline=[window:10,none]", f"run={name}"]
    command = [sys.executable, "-m", "portkern.cli", "matrix", "project=kernels", *words]
    done = subprocess.run(
        command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done


def said(folder: Path, name: str) -> Any:
    """The regression that is reported for the cell of :data:`SIZE`."""
    text = (folder / "reports" / name / "regressions.json").read_text(encoding="utf-8")
    return next(cell for cell in json.loads(text)["cells"] if cell["workload"] == SIZE)


def too_loud(folder: Path, name: str) -> str:
    """Why a change by WORK could not be told from noise after the night ``name``; empty where it
    could."""
    cell = said(folder, name)
    asked = f"a slowdown by {WORK:.0%} could not be told: {cell['change']}: {cell['detail']}"
    if "visible" not in cell:
        return asked
    deviation = statistics.stdev(map(math.log, cell["recent"])) * math.sqrt(1 + 1 / rule.LEAST)
    beyond = (math.log1p(WORK) - math.log1p(cell["visible"])) / deviation
    if beyond >= CERTAIN:
        return ""
    return f"{asked}; it is {beyond:.1f} deviations from run to run beyond that, not {CERTAIN:.0f}"


@pytest.mark.timeout(1800)
def test_a_tenth_more_work_in_a_users_kernel_is_found_and_the_same_night_again_is_not(
    tmp_path: Path,
) -> None:
    """Where the machine is steady enough to show it; else it is said what it could have shown."""
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "cumsum.cpp").write_text(CUMSUM)
    init = [sys.executable, "-m", "portkern.cli", "init", "kernels"]
    subprocess.run(init, cwd=tmp_path, check=True, capture_output=True)
    first = night(tmp_path, "night-0")
    assert first.returncode == 0 and "not compared: No earlier run" in first.stderr
    for number in range(1, rule.LEAST + 1):
        again = night(tmp_path, f"night-{number}")
        if said(tmp_path, f"night-{number}")["change"] == "not comparable":
            pytest.skip(too_loud(tmp_path, f"night-{number}"))
    if why := too_loud(tmp_path, f"night-{number}"):
        pytest.skip(why)
    assert again.returncode == 0, again.stdout

    (kernels / "cumsum.cpp").write_text(CUMSUM.replace("    return 0;\n", A_TENTH_MORE))
    slower = night(tmp_path, "slower")
    if said(tmp_path, "slower")["change"] == "not comparable":
        pytest.skip(too_loud(tmp_path, "slower"))
    assert slower.returncode == 1, slower.stdout
    [line] = [line for line in slower.stdout.splitlines() if ": slower: " in line]
    assert f"cumsum[ci/{SIZE}, float32]" in line
    assert "(regression: the kernel's source changed)" in line

    (kernels / "cumsum.cpp").write_text(CUMSUM)
    mended = night(tmp_path, "mended")
    assert mended.returncode == 0, mended.stdout
    assert ": slower: " not in mended.stdout
