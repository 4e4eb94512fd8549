"""Compilers that are given the text of a stranger: where they run, and what they see."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from portkern.cli import main
from portkern.errors import BuildError, PortkernError, WorkerError
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.port import library, reading
from portkern.port.proof import ProofSource
from portkern.port.proof.texts import SourceTexts
from portkern.sandbox import session as sandbox
from portkern.simt.execute import build, runtime_library
from portkern.simt.execute.build import CompileOptions
from portkern.spec import registry
from portkern.spec import target as targets
from portkern.spec.backend import Missing
from portkern.spec.file_build import FileBuild, FileBuilder, FileObject
from portkern.toolchain.run_tool import accept_foreign, refuse_foreign, run_tool
from portkern.toolchain.source_view import SourceView, neighbours

ROOT = Path(__file__).resolve().parents[1]
COMPILES = pytest.mark.skipif(
    isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find())
)
#: What nothing may say that a source of somebody else's is built into.
SECRET = "correct_horse_battery_staple"
MAIN = "int main() { return 0; }\n"
#: Puts a file into the program, by the assembler, where the linker drops nothing.
INCBIN = '__asm__(".section .kept,\\"\\",@progbits\\n.incbin \\"KEY\\"\\n.text\\n");\n'


@dataclass(frozen=True)
class Place:
    """A home with a key in it, a folder of settings beside it, and a tree of a stranger's."""

    folder: Path

    @property
    def key(self) -> Path:
        return self.folder / "home/.ssh/id_rsa"

    @property
    def setting(self) -> Path:
        return self.folder / "etc/service.conf"

    @property
    def tree(self) -> Path:
        return self.folder / "downloads/tree"

    def write(self, files: Mapping[str, str]) -> None:
        """Texts in the tree; one that begins with an arrow is a link."""
        for name, text in files.items():
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = text.replace("KEY", str(self.key)).replace("SETTING", str(self.setting))
            path.unlink(missing_ok=True)
            if text.startswith("->"):
                path.symlink_to(text.removeprefix("->"))
            else:
                path.write_text(text, encoding="utf-8")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    for file in (made.key, made.setting):
        file.parent.mkdir(parents=True)
        file.write_text(f"{SECRET}\n", encoding="utf-8")
    made.tree.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return made


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    sandbox.close_servers()


#: Attacks by what they use: files of a tree whose ``program.cu`` takes the secret, without a jail.
ATTACKS: dict[str, dict[str, str]] = {
    "the assembler embeds a key": {"program.cu": INCBIN + MAIN},
    "the assembler embeds a setting": {"program.cu": INCBIN.replace("KEY", "SETTING") + MAIN},
    "the assembler quotes a file": {"program.cu": '__asm__(".include \\"KEY\\"");\n' + MAIN},
    "an error quotes an absolute include": {"program.cu": '#include "SETTING"\n' + MAIN},
    "an error quotes an include of angles": {"program.cu": "#include <KEY>\n" + MAIN},
    "a path leads out": {"program.cu": '#include "../../home/.ssh/id_rsa"\n' + MAIN},
    "a macro is the include": {
        "program.cu": '#define FILE "../../etc/service.conf"\n#include FILE\n' + MAIN
    },
    "a header is a link": {"program.cu": '#include "notes.h"\n' + MAIN, "notes.h": "->KEY"},
    "a folder is a link": {
        "program.cu": '#include "inc/service.conf"\n' + MAIN,
        "inc": "->../../etc",
    },
    "a header of the tree embeds a key": {
        "program.cu": '#include "deep/a.h"\n' + MAIN,
        "deep/a.h": INCBIN,
    },
    "a string of a text that is there": {
        "program.cu": 'const char* stolen =\n#include "SETTING"\n;\n' + MAIN
    },
    "another spelling of an include": {"program.cu": '%:include "SETTING"\n' + MAIN},
    "an import": {"program.cu": '#import "SETTING"\n' + MAIN},
    "a header is a link to a link": {
        "program.cu": '#include "a.h"\n' + MAIN,
        "a.h": "->b.h",
        "b.h": "->KEY",
    },
    "a folder is a link to one above": {
        "program.cu": '#include "up/etc/service.conf"\n' + MAIN,
        "up": "->../..",
    },
    "a process's root": {"program.cu": '#include "/proc/self/rootSETTING"\n' + MAIN},
    "whether there is a file": {
        "program.cu": '#if __has_include("SETTING")\n'
        + INCBIN.replace("incbin", "ascii").replace("KEY", SECRET)
        + "#endif\n"
        + MAIN
    },
    "the assembler's own words": {
        "program.cu": '__asm__(".macro m f\\n.inc" "bin \\"\\\\f\\"\\n.endm\\n.section .kept,\\"\\"'
        ',@progbits\\nm KEY\\n.text\\n");\n' + MAIN
    },
}


def everything(place: Place, files: Mapping[str, str], *, jailed: bool) -> str:
    """All that comes of building the tree's program: what is made, or what is said."""
    place.write(files)
    source, out = place.tree / "program.cu", place.folder / f"out-{jailed}" / "program"
    out.parent.mkdir()
    try:
        if jailed:
            with JailedCompilers(SourceView.of([source])) as compilers:
                made = compilers.program(source, out, CompileOptions())
        else:
            made = build.build_program(source, out, CompileOptions())
    except BuildError as error:
        return f"{error}\n{error.log}"
    return made.read_bytes().decode(errors="replace")


@COMPILES
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.sampled(quick=3)
def test_a_compiler_of_a_strangers_source_gets_no_file_of_the_user(
    name: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_SETTING", SECRET)
    assert SECRET in everything(place, ATTACKS[name], jailed=False), "the attack is none"
    assert SECRET not in everything(place, ATTACKS[name], jailed=True)


@COMPILES
def test_what_is_in_the_tree_in_folders_that_are_named_and_beside_it_in_a_checkout_is_seen(
    place: Place,
) -> None:
    place.write(
        {
            ".git/HEAD": "ref: refs/heads/main\n",
            "kernels/program.cu": (
                '#include "own/a.h"\n#include "../common/b.h"\n#include <c>\n'
                "int main() { return A + B + C - 6; }\n"
            ),
            "kernels/own/a.h": "#define A 1\n",
            "common/b.h": '#include "more.inc"\n',
            "common/more.inc": "#define B 2\n",
            "../given/c": "#define C 3\n",
        }
    )
    source, given = place.tree / "kernels/program.cu", place.tree / "../given"
    with JailedCompilers(SourceView.of([source], [given])) as compilers:
        out = place.folder / "program"
        assert compilers.program(source, out, CompileOptions(search=[given])) == out
    assert os.access(out, os.X_OK)


def test_of_a_home_and_of_what_is_everybodys_only_sources_are_seen(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = place.folder / "home"
    for name in ("k.cu", "a.h", "notes.txt", ".hidden.h", "sub/b.h"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text('#include "a.h"\n#include "sub/b.h"\n#include ".hidden.h"\n')
    view = SourceView.of([home / "k.cu"])
    assert view.whole == () and not view.sees(place.key) and not view.sees(home / "notes.txt")
    assert not view.sees(home / ".hidden.h")
    assert set(view.included([home / "k.cu"])) == {home / n for n in ("k.cu", "a.h", "sub/b.h")}
    everybodys = place.folder / "everybodys"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    assert SourceView.of([everybodys / "k.cu"]).whole == ()


@COMPILES
def test_an_extensions_own_code_runs_in_the_jail_when_its_functions_are_listed(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    mark = place.folder / "mark"
    place.write(
        {
            "ext.cu": "#include <cstdio>\n#include <cstdlib>\n"
            "struct First { First() {\n"
            f'  if (FILE* f = fopen("{mark}", "w")) fclose(f);\n'
            f'  if (FILE* f = fopen("{place.key}", "r")) {{ char b[99] = {{}}; fgets(b, 99, f); '
            "puts(b); }\n"
            "} } first;\n"
            '// PYBIND11\n#define m_def\nextern "C" void same() {}\n'
            "#include <torch/extension.h>\n"
            "torch::Tensor id(torch::Tensor x) { return x; }\n"
            'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("id", &id, "As it is"); }\n'
        }
    )
    assert main.run(["run", str(place.tree / "ext.cu")]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("id(") and SECRET not in out + err
    assert not mark.exists()


@COMPILES
def test_run_says_that_the_file_is_not_there(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    place.write({"leak.cu": INCBIN + MAIN})
    assert main.run(["run", str(place.tree / "leak.cu")]) != 0
    out, err = capfd.readouterr()
    assert "file not found" in err and SECRET not in out + err


@COMPILES
@pytest.mark.full
def test_a_source_without_end_and_one_that_fills_a_disk_are_stopped(place: Place) -> None:
    place.write(
        {
            "endless.cu": '#include "endless.cu"\n' * 2 + "#error\n" + MAIN,
            "large.cu": '__asm__(".section .rodata\\n.fill 0x7fffffff, 1, 1\\n");\n' + MAIN,
            "late.cu": "constexpr long f(long n) { long s = 0; for (long i = 0; i < n; ++i) s += i;"
            " return s; }\nstatic_assert(f(1L << 60) > 0);\n" + MAIN,
        }
    )
    options = CompileOptions(timeout_s=20)
    with JailedCompilers(SourceView.of([place.tree / "late.cu"])) as compilers:
        for name in ("endless", "large", "late"):
            with pytest.raises(PortkernError):
                compilers.program(place.tree / f"{name}.cu", place.folder / name, options)


#: Attacks of a HIP file: each is read by clang or by the linker of AMD's objects.
DEVICE_ATTACKS = {
    "clang embeds a file": (
        "#include <hip/hip_runtime.h>\n"
        '__device__ const unsigned char stolen[] = {\n#embed "KEY"\n};\n'
        "__global__ void k(unsigned char* x) { *x = stolen[threadIdx.x]; }\n"
    ),
    "an error quotes an include": '#include "SETTING"\n__global__ void k(int* x) { *x = 1; }\n',
    "a kernel's assembler embeds a file": (
        '__global__ void k(int* x) { __asm__ volatile(".incbin \\"KEY\\""); *x = 1; }\n'
    ),
    "the linker is told of a library": (
        '__global__ void k(int* x) { __asm__ volatile(".pushsection .deplibs,\\"MS\\",'
        '@llvm_dependent_libraries,1\\n.asciz \\"SETTING\\"\\n.popsection"); *x = 1; }\n'
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", DEVICE_ATTACKS)
def test_a_compiler_for_a_gpu_gets_no_file_of_the_user(name: str, place: Place) -> None:
    target, backend = targets.load("gfx942"), registry.load("hip")
    if isinstance(probe := backend.probe(target), Missing):
        pytest.skip(str(probe))
    place.write({"k.hip": DEVICE_ATTACKS[name]})
    request, workdir = FileBuild(place.tree / "k.hip", target), place.folder / "work"
    workdir.mkdir()
    assert isinstance(backend, FileBuilder)
    with JailedCompilers(SourceView.of([request.file])) as compilers:
        assert SECRET in _answer(lambda: backend.build_file(request, workdir)), (
            "the attack did not reach the secret"
        )
        assert SECRET not in _answer(lambda: compilers.file("hip", request, workdir))


def _answer(build_: Callable[[], FileObject]) -> str:
    """All that comes of it."""
    try:
        return build_().object.read_bytes().decode(errors="replace")
    except BuildError as error:
        return f"{error}\n{error.log}"


def test_a_compilers_environment_has_no_token_and_its_home_is_its_scratch(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MY_SERVICE_SETTING", "HF_TOKEN", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX"):
        monkeypatch.setenv(name, SECRET)
    place.write({"k.cu": MAIN})
    with JailedCompilers(SourceView.of([place.tree / "k.cu"])) as compilers:
        said = compilers.tool(["env"], place.folder, timeout_s=9)
        assert SECRET not in said and f"HOME={place.folder}" not in said
        others = "cat /proc/[0-9]*/environ; ls -a ~ /etc /tmp"
        said = compilers.tool(["sh", "-c", others], place.folder, timeout_s=9)
    assert SECRET not in said and "shadow" not in said and ".ssh" not in said


# ---- what is read without a compiler


def test_a_port_reads_no_file_that_its_tree_does_not_have(place: Place) -> None:
    header = f"// {SECRET}\n__device__ inline int stolen() {{ return 1; }}\n"
    for path in (place.key, place.setting, place.folder / "home/private.h"):
        path.write_text(header, encoding="utf-8")
    place.write(
        {
            "k.cu": '#include "link.h"\n#include "../../home/private.h"\n#include "KEY"\n'
            '#include "private.h"\n__global__ void k(int* x) { *x = stolen(); }\n',
            "Makefile": f"FLAGS = -I{place.folder}/home -I../../etc -I/\n",
            "link.h": "->KEY",
        },
    )
    file = place.tree / "k.cu"
    for path in (file, place.tree):
        read = reading.read(path, avoid=(), include=())
        texts = [source.text for source in (*read.sources, *read.headers)]
        folders, _ = read.settings(read.sources[0].path)
        assert folders == (place.tree,)
        texts.append(SourceTexts(ProofSource(file, "cuda", folders, whole=(place.tree,))).whole)
        assert not [text for text in texts if SECRET in text]
        assert len([p for p in read.problems if "outside" in p.reason]) == 3


def test_build_files_may_name_what_lies_beside_and_in_their_checkout(place: Place) -> None:
    assert neighbours(place.tree) == place.tree.parent
    assert neighbours(place.folder / "home/tree") == place.folder / "home/tree"
    (place.folder / "downloads/.git").mkdir()
    assert neighbours(place.tree / "a/b") == place.tree.parent
    place.write({"Makefile": "F = -I../beside\n", "../beside/a.h": ""})
    assert library.read(place.tree).include == (place.tree.parent / "beside",)


# ---- where they run


def test_a_verb_starts_no_compiler_on_a_strangers_text_in_its_own_process() -> None:
    with refuse_foreign():
        with pytest.raises(BuildError, match="true would read a stranger's text outside"):
            run_tool(["true"], whose="foreign", timeout_s=9)
        assert run_tool(["echo", "a"], whose="own", timeout_s=9) == "a\n"
        with accept_foreign():
            assert run_tool(["echo", "a"], whose="foreign", timeout_s=9) == "a\n"
    assert run_tool(["echo", "a"], whose="foreign", timeout_s=9) == "a\n"


def test_no_tool_is_told_a_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert SECRET not in run_tool(["env"], whose="own", timeout_s=9)


def test_without_a_jail_no_compiler_is_started(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``cgroup`` alone keeps no file from anybody."""
    place.write({"program.cu": MAIN})
    source = place.tree / "program.cu"
    sandbox.close_servers()
    monkeypatch.setenv("PORTKERN_CONTAINMENT", "cgroup")
    try:
        with (
            JailedCompilers(SourceView.of([source])) as compilers,
            pytest.raises(WorkerError, match="PORTKERN_CONTAINMENT=none"),
        ):
            compilers.tool(["true"], place.folder, timeout_s=9)
    finally:
        sandbox.close_servers()


#: What is started outside of the jail, or may be, and why that does no harm.
OUTSIDE = {
    "portkern/agent/feedback/outside.py under": "a profiler; its program confines itself",
    "portkern/agent/feedback/perf.py _perf": "perf, which looks at a worker's process",
    "portkern/cli/assistants/commands.py run": "portkern itself",
    "portkern/cli/warm_process.py beside": "portkern itself, for commands of the same user",
    "portkern/cli/verbs/bisect.py _look": "portkern itself",
    "portkern/cli/verbs/node.py _become": "a node of the user's cluster",
    "portkern/deploy/package/_build.py _ended": "a library's code, on its user's machine",
    "portkern/evaluator/host_shortage.py seen": "an empty Python, to see whether one starts",
    "portkern/experiment/compare/contestant.py _tool": "portkern itself, an agent's tool",
    "portkern/formats/templates/task_runner.py run": "a ported program, in its task's container",
    "portkern/isa/runtime_library.py _build": "the executor of code objects",
    "portkern/isa/runtime_library.py compiled": "the executor of code objects",
    "portkern/learn/harbor.py _graded": "a task's grader, which calls portkern",
    "portkern/learn/templates/grade.py main": "portkern itself, in a task's own container",
    "portkern/simt/execute/program.py _run": "a program, by jail=false",
    "portkern/sandbox/jail/programs.py _become_program": "a program, without rights any more",
    "portkern/sandbox/jail/programs.py _remove": "rm",
    "portkern/sandbox/session.py _launch": "the server that workers are forked from",
    "portkern/sandbox/session.py _remove": "rm",
    "portkern/sandbox/tenant.py _started": "a coding agent, in a jail of its own",
    "portkern/sandbox/tenant.py run": "the keeper of that jail",
    "portkern/simt/execute/ring_build.py _headers": "the folders of a compiler's headers",
    "portkern/simt/execute/runtime_library.py _build_runtime": "the executor's runtime",
    "portkern/simt/execute/runtime_library.py compile_": "the executor's runtime",
    "portkern/simt/execute/runtime_library.py _precompile": "the executor's headers",
    "portkern/toolchain/compilers.py _first_line": "a compiler's version",
    "portkern/toolchain/compilers.py _has_openmp": "where a compiler's OpenMP is",
    "portkern/toolchain/git.py _run": "git, which starts nothing that a checkout names",
    "portkern/toolchain/torch_extension.py compile_": "torch's headers",
    "backends/cpu/precompiled.py compile_": "the harness's headers",
    "backends/cuda/nvcc.py _version": "nvcc's version",
    "backends/hip/clang.py constants": "numbers that AMD's libraries ask for",
    "backends/hip/first_headers.py _make": "PyTorch's headers",
    "backends/hip/precompiled.py _make": "HIP's headers",
    "backends/hip/rocm.py _find": "hipcc's version",
    "backends/opencl/platforms.py devices": "portkern's own kernel, on each device",
}
#: These functions start the compilers of strangers' texts, and are called where the jail is.
COMPILING = frozenset("build_program build_extension build_library build_file".split())
IN_THE_JAIL = {
    "portkern/worker/compiling.py": "a worker",
    "portkern/simt/execute/emulate.py": "a backend's build, in a worker",
    "portkern/simt/torch_extension/inline.py": "a candidate's own build, in a worker",
    "portkern/simt/torch_extension/script.py": "a script that `run` has in the jail",
    "portkern/cli/verbs/run.py": "jail=false, which the user says of what is trusted",
}
#: Libraries that are opened; a stranger's, whose code runs then, where the jail is.
LOADING = {
    "portkern/sandbox/device_memory.py": "CUDA's driver",
    "portkern/simt/execute/emulate.py": "a candidate's, in a worker",
    "portkern/simt/torch_extension/bindings.py": "an extension, in a worker or a script's process",
    "portkern/toolchain/native_library.py": "a candidate's, in a worker",
    "portkern/toolchain/torch_device.py": "CUDA's driver",
    "portkern/deploy/package/runtime.py": "a library's own kernels, in its user's process",
    "portkern/isa/runtime_library.py": "the executor of code objects",
    "portkern/worker/object_program.py": "a program, in a process of its own in the jail",
    "portkern/worker/object_recording.py": "the executor's runtime",
    "backends/cuda/nvrtc.py": "NVIDIA's compiler",
    "backends/hip/objects.py": "a kernel's host code, in the process that executes its object",
}
_MAY = re.compile(
    rf"run_tool\(|subprocess|DLL\(|os\.(system|popen|exec|spawn|posix)|{'|'.join(COMPILING)}"
)
_STARTERS = {"Popen", "call", "check_call", "check_output", "run", "getoutput", "getstatusoutput"}


def test_what_starts_outside_of_the_jail_is_listed_with_its_reason() -> None:
    """Whatever else starts a tool has it start in the jail alone, or not at all."""
    started, compiling, loading = set[str](), set[str](), set[str]()
    for name, text in sources():
        assert "from subprocess import" not in text and "from os import" not in text, name
        for function, call in calls(ast.parse(text)):
            called = ast.unparse(call.func)
            last = called.rpartition(".")[2]
            if last in COMPILING and not called.startswith("self"):
                compiling.add(name)
            if last in ("CDLL", "PyDLL", "LoadLibrary") and ast.unparse(call.args[0]) != "None":
                loading.add(name)
            of_tool = called == "run_tool" or called.endswith("ring.object")
            if _starts(called) or (of_tool and _whose(call) == "own"):
                started.add(f"{name} {function}".strip())
    assert started == set(OUTSIDE)
    assert compiling == set(IN_THE_JAIL)
    assert loading == set(LOADING)


def sources() -> Iterator[tuple[str, str]]:
    """Name and text of each module that may start or load something."""
    for path in [*(ROOT / "portkern").rglob("*.py"), *(ROOT / "backends").rglob("*.py")]:
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        if (
            "/kernels/" not in name
            and name != "portkern/toolchain/run_tool.py"
            and _MAY.search(text)
        ):
            yield name, text


def _starts(called: str) -> bool:
    module, _, function = called.rpartition(".")
    if module == "subprocess":
        return function in _STARTERS
    return module == "os" and function.startswith(("system", "popen", "exec", "spawn", "posix_sp"))


def _whose(call: ast.Call) -> str:
    """The ``whose`` of a call: whose text it is given. "the caller's" where the caller decides;
    raises StopIteration where the call does not say."""
    if ast.unparse(call.func) != "run_tool" and "whose" not in {w.arg for w in call.keywords}:
        return "foreign"
    return next(
        str(word.value.value) if isinstance(word.value, ast.Constant) else "the caller's"
        for word in call.keywords
        if word.arg == "whose"
        and (isinstance(word.value, ast.Constant) or ast.unparse(word.value) == "whose")
    )


def calls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Each with the innermost function that it is in."""
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, ast.FunctionDef) else function
        if isinstance(node, ast.Call):
            yield function, node
        yield from calls(node, inner)
