"""A backend of a distribution of its own (examples/numba_cuda_backend) keeps the contract, and its
kernels are judged as those of built-in ones are: installed as a link to where it is written, in an
environment of its own."""

from __future__ import annotations

import json
import subprocess
import sysconfig
import venv
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import portkern
from portkern.sandbox.jail import root
from portkern.spec import registry

EXAMPLE = Path(portkern.__file__).parent.parent / "examples" / "numba_cuda_backend"
PACKAGE = EXAMPLE / "portkern_numba_cuda"
POINT = "[portkern.backends]\nnumba_cuda = portkern_numba_cuda:NumbaCudaBackend\n"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment which has what is here, and the example."""
    home = tmp_path_factory.mktemp("plugin")
    home.chmod(0o755)  # workers are other users
    venv.create(home, symlinks=True)
    made = sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)})
    here = sysconfig.get_path("purelib")
    Path(made, "here.pth").write_text(f"import site; site.addsitedir({here!r})\n{EXAMPLE}\n")
    info = Path(made, "portkern_numba_cuda-0.1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Name: portkern-numba-cuda\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(POINT)
    return home / "bin" / "python"


def ended(command: list[object], folder: Path) -> str:
    run = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.full
@pytest.mark.drawn
def test_a_backend_with_three_kernels_keeps_the_contract(python: Path, tmp_path: Path) -> None:
    said = ended(
        [python, "-m", "pytest", "-rs", "-p", "no:cacheprovider", EXAMPLE / "test_contract.py"],
        tmp_path,
    )
    assert "ships no matmul" in said and "ships no relu" not in said


@pytest.mark.full
def test_a_command_judges_a_kernel_of_a_plugin(python: Path, tmp_path: Path) -> None:
    size = '{"op": "relu", "dtype": "float32", "dims": {"n": 300}}'  # the simulator is slow
    (tmp_path / "shapes.jsonl").write_text(f"{size}\n", encoding="utf-8")
    asked = ["matrix", "shapes=shapes.jsonl", "backends=numba_cuda", "targets=sm_90", "json=true"]
    said = json.loads(ended([python, "-m", "portkern.cli", *asked], tmp_path))
    assert (said["cells"], said["passed"]) == (1, 1)


def test_an_entry_point_that_names_no_module_is_nothing_in_the_jail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [EntryPoint("x", value, registry.GROUP) for value in ("no good!", ".a", "email:A")]
    monkeypatch.setattr(root, "entry_points", lambda group: points)
    assert [path.name for path in root._plugins()] == ["email"]


def test_a_backend_of_ones_own_is_small() -> None:
    lines = (PACKAGE / "__init__.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
