"""Sources are kept beside the records: whatever was measured can be built and exported again."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from portkern import ops
from portkern.cli import main
from portkern.formats import torch_source
from portkern.formats.exported import NoSuchForm
from portkern.formats.inlined import inlined
from portkern.formats.kernel_sources import KernelSources
from portkern.records import kernel_age, source_store
from portkern.records.kernel_age import Age
from portkern.records.record import RecordFile
from portkern.records.source_store import SourceStore
from portkern.spec import own_headers
from portkern.spec.candidate import Candidate
from portkern.spec.companions import Companions
from tests.test_formats_out import of_source, record, shipped

#: Headers that include one another, macros and a further source, in a folder of their own.
FILES = (
    ("include/all.h", '#pragma once\n#include "deep/one.h"\n#include "deep/two.h"\n'),
    ("include/deep/list.def", "X(1)\n"),
    ("include/deep/one.h", "#ifndef ONE_H\n#define ONE_H\n#include <all.h>\nint one;\n#endif\n"),
    ("include/deep/two.h", '#pragma once\n#include "one.h"\nint two;\n'),
    ("src/more.cpp", "#include <all.h>\nint more;\n"),
)
PROJECT = Companions("src/softmax.cu", FILES, ("include",), ("UNROLL=4", "FAST"), ("src/more.cpp",))


def project() -> Candidate:
    text = "#include <all.h>\n#include <portkern/rows.h>\n#include <vector>\nint mine;\n"
    return of_source(text, companions=PROJECT, variant="fast", author="file:src/softmax.cu")


def test_headers_of_a_project_come_in_the_place_of_their_includes() -> None:
    text = inlined(project())
    assert text.startswith("#define UNROLL 4\n#define FAST 1\n")
    for once in ("int one;", "int two;", "int mine;", "int more;"):
        assert text.count(once) == (2 if once == "int one;" else 1)
    assert text.index("int two;") < text.index("int mine;") < text.index("int more;")
    left = [line for line in text.splitlines() if line.strip().startswith("#include")]
    assert not [line for line in left if "all.h" in line or "portkern/" in line or '"' in line]
    assert "#include <vector>" in left


def test_a_list_that_is_included_twice_comes_twice() -> None:
    own = Companions("a.cu", (("list.def", "X(1)\n"),))
    text = inlined(of_source('#include "list.def"\nint a;\n#include "list.def"\n', companions=own))
    assert text.count("X(1)") == 2


@pytest.mark.parametrize(
    ("source", "files", "message"),
    [
        ("#define H <a.h>\n#include H\n", (("a.h", ""),), "what a macro names"),
        ('#include "a.h"\n', (("a.h", 'int x;\n#include "a.h"\n'),), "a.h includes itself"),
        ("#include <portkern/nowhere.h>\n", (), "<portkern/nowhere.h>, which is not here"),
    ],
)
def test_what_cannot_be_one_text_says_why(
    source: str, files: tuple[tuple[str, str], ...], message: str
) -> None:
    own = Companions("a.cu", files) if files else Companions()
    with pytest.raises(NoSuchForm, match=message):
        inlined(of_source(source, companions=own))


def test_what_is_kept_comes_back_with_the_headers_that_it_was_built_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SourceStore(tmp_path)
    assert (store.keep([project(), project()]), store.keep([project()])) == (1, 0)
    back = store.of(project().digest)
    assert back is not None
    assert (back.digest, back.companions, back.variant) == (project().digest, PROJECT, "fast")
    assert "portkern/rows.h" in back.headers
    monkeypatch.setattr(own_headers, "text", lambda name, backend: "// of today\n")
    assert "// of today" not in inlined(back)
    assert "// of today" in inlined(replace(back, headers={}))


def test_a_file_that_is_not_what_its_name_says_is_absent(tmp_path: Path) -> None:
    store, relu = SourceStore(tmp_path), shipped("relu", "triton")
    store.keep([relu])
    file = tmp_path / f"{relu.digest}.gz"
    document = json.loads(gzip.decompress(file.read_bytes()))
    outside = document | {"files": [["../../x.h", ""]], "path": "a"}
    for text in (
        json.dumps(document | {"source": "import os"}),
        json.dumps(document | {"schema": 2}),
        json.dumps(outside),
        "[]",
        "",
        "\x00" * ((16 << 20) + 2),
    ):
        file.write_bytes(gzip.compress(text.encode()))
        assert store.of(relu.digest) is None
    file.write_bytes(b"no gzip")
    assert store.of(relu.digest) is None
    assert store.of("../../etc/passwd") is None


def test_an_export_takes_the_kernel_that_was_measured(tmp_path: Path) -> None:
    plain = shipped("relu", "cpu", "c++")
    earlier = replace(plain, source=f"// earlier\n{plain.source}")
    asked = record(earlier)
    found = KernelSources(tmp_path).of([asked])[earlier.digest]
    assert isinstance(found, str)
    assert "has changed since" in found
    SourceStore(tmp_path / source_store.FOLDER).keep([earlier])
    kept = KernelSources(tmp_path).of([asked])[earlier.digest]
    assert isinstance(kept, Candidate)
    assert "// earlier" in torch_source.translation_unit(kept, ops.load("relu"), "float32")


def test_a_kernel_that_was_never_here_has_not_changed(tmp_path: Path) -> None:
    mine = of_source("int mine;", author="file:mine.cu")
    found = KernelSources(tmp_path).of([record(mine)])[mine.digest]
    assert isinstance(found, str)
    assert "is not here; name its file" in found


def test_the_age_of_a_kernel_is_told_apart_from_its_settings(tmp_path: Path) -> None:
    store = SourceStore(tmp_path)
    plain = shipped("softmax", "cpu", "c++")
    name, knob = next(iter(plain.knobs.items()))
    tuned = plain.turn({name: next(one for one in knob.choices if one != knob.value)})
    earlier = replace(plain, source=f"// earlier\n{plain.source}")
    other = replace(plain, headers={"portkern/rows.h": "// of another day\n"}, source=tuned.source)
    store.keep([tuned, earlier])
    lost = replace(plain, source="nobody kept this")
    records = [record(one) for one in (plain, tuned, earlier, lost)]
    records.append(record(lost, author="file:mine.cpp"))
    counts = kernel_age.counted(records, store)
    assert counts == {Age.CURRENT: 2, Age.CHANGED: 1, Age.LOST: 1, Age.OWN: 1}
    assert "1 of an earlier kernel, whose source is kept and 1 of" in kernel_age.note(counts)
    again = SourceStore(tmp_path / "again")
    again.keep([other])
    assert kernel_age.counted([record(tuned)], again) == {Age.CHANGED: 1}


RELU = """#include "zero.h"
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] < ZERO ? scalar_t(ZERO) : x[i];
    return 0;
}
"""


@pytest.mark.full
def test_kernels_with_headers_are_kept_by_a_run_and_exported_under_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "zero.h").write_text("#pragma once\n#define ZERO 0\n")
    (kernels / "relu.cpp").write_text(RELU)
    (kernels / "relu.loop.cpp").write_text(f"// in a loop\n{RELU}")
    asked = ["matrix", "kernels=kernels", "ops=relu", "backends=cpu", "targets=host"]
    quick = ["workloads=ci", "dtypes=float32", "rounds=2", "budget_s=0", "track=false"]
    for run in ("one", "two"):
        assert main.run([*asked, *quick, f"run={run}"]) == 0
        (kernels / "zero.h").write_text("#pragma once\n// the same\n#define ZERO 0\n")
        (kernels / "relu.loop.cpp").unlink(missing_ok=True)
    capsys.readouterr()
    main.run(["diff", "one", "two"])
    assert "source: relu cpu: 1 line changed" in capsys.readouterr().out
    assert main.run(["export", "kernels", "one"]) == 0
    folder = tmp_path / "reports/one/kernels"
    assert {path.name for path in folder.iterdir()} == {"relu", "relu-loop"}
    unit = (folder / "relu-loop/relu_loop_cpu/relu_loop.cpp").read_text()
    assert "#define ZERO 0" in unit and 'zero.h"' not in unit
    assert len(RecordFile(tmp_path / "reports/one/records.jsonl").read()[0]) == 4
