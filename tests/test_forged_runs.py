"""Programs that work against the source executor, which is in their own process: none is proven."""

from __future__ import annotations

import contextlib
import ctypes
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from portkern.cuda_source.syntax import parse
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.evaluator.jailed_process import JailedProcesses
from portkern.port.proof import Outcome, ProofLimits, ProofSource, meddling, prove
from portkern.port.proof.compare import Judged, Types, compare
from portkern.port.proof.examine import Examiner
from portkern.port.proof.recording import Content, LaunchRecord, read
from portkern.sandbox import session as sandbox
from portkern.simt.diagnostics import Diagnostic
from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.options import ExecutorOptions
from portkern.spec import target
from portkern.spec.backend import Missing
from portkern.toolchain.run_tool import run_tool
from portkern.toolchain.source_view import SourceView
from portkern.worker.protocol import RECORD, Execute

COMPILES = pytest.mark.skipif(
    isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find())
)

# ---- what a program is linked with

#: Whatever way a text comes to such a name, as by joining tokens or a label of the assembler's.
TURNED = {
    "changes code": "int mprotect(void*, unsigned long, int); int main() { mprotect(0, 0, 0); }",
    "maps memory": "#define J(a, b) a##b\nint J(mm, ap)(); int main() { return J(mm, ap)(); }",
    "looks up functions": 'int f(void) __asm__("dl\\x73ym"); int main() { f(); }',
    "writes to handles by number": "int dprintf(int, const char*); int main() { dprintf(4, 0); }",
    "looks through its environment": "extern char** environ; int main() { return !environ[0]; }",
    "turns to the executor": 'int f(void) __asm__("\\x73imt_forget"); int main() { f(); }',
    "stands in for the executor": "static int simt_ring_add_f32(int a) { return a; }\n"
    "int (*volatile f)(int) = simt_ring_add_f32; int main() { return f(0); }",
    "stands in for what the executor calls": "long write() { return 0; } int main() {}",
    "(__write)": "long __write(int, const void*, long); int main() { __write(4, 0, 0); }",
    "(wordexp)": "int wordexp(); int main() { wordexp(); }",
}
#: A program in C++.
INSTANCES = """
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>
int main(int count, char** words) {
    std::vector<float> a(count), b(2 * count);
    std::vector<int> c(count);
    std::map<std::string, std::vector<double>> named;
    std::function<int(int)> twice = [&](int x) { return 2 * x + int(a.size()); };
    for (int i = 0; i < count; ++i) {
        named[words[i]].push_back(i);
        c.push_back(twice(i));
        b.push_back(i);
    }
    std::ofstream(words[0] + std::string(".txt")) << named.size() << c.back() << b.back();
}
"""
BY_HANDLE = """
#include <ext/stdio_filebuf.h>
#include <ostream>
int main() { __gnu_cxx::stdio_filebuf<char> f(4, std::ios::out); std::ostream(&f) << 1; }
"""
PLAIN = {
    "prints": '#include <stdio.h>\nint main() { puts(fopen("a", "r") ? "1" : "0"); }',
    "keeps memory": '#include <stdlib.h>\nint main() { free(malloc(9)); return !!getenv("HOME"); }',
    "has functions of its own": "int written() { return 0; } int main() { return written(); }",
}


#: Whole programs of CUDA, as they are built for a proof: what nobody calls in them may be anything.
UNCALLED = r"""
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>
namespace library {
struct Source { virtual int read() { return 1; } virtual ~Source() {} };
struct Mapped : Source {
    int read() override { return mmap(0, 4096, PROT_READ, MAP_PRIVATE, 3, 0) != MAP_FAILED; }
};
Source* opened(const char* name) { return name ? new Mapped : nullptr; }
void* symbol(const char* name) { return dlsym(dlopen(name, RTLD_NOW), name); }
int started() { return fork() ? write(1, "a", 1) : execl("/bin/true", "true", nullptr); }
static void* (*const table[])(const char*) = {symbol};
template <class T> T lookup(T at) { return table[at](""), at; }
}
BODY
"""
HONEST = {
    "vectors": r"""
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>
int work(int n) {
    std::vector<float> v(n + 64);
    std::iota(v.begin(), v.end(), 0.f);
    std::sort(v.begin(), v.end(), [](float a, float b) { return a > b; });
    std::map<std::string, int> m{{"a", n}};
    return m["a"] + int(std::accumulate(v.begin(), v.end(), 0.0));
}""",
    "streams": r"""
#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>
int work(int n) {
    std::ostringstream text;
    text << std::setprecision(3) << n * 0.1;
    std::ofstream("results.txt") << text.str();
    std::string line;
    std::ifstream read("results.txt");
    while (std::getline(read, line)) std::cout << line << std::endl;
    std::cerr << n;
    return 0;
}""",
    "files": r"""
#include <cstdio>
#include <vector>
int work(int n) {
    std::vector<int> data(100, n);
    FILE* f = fopen("results.bin", "wb");
    if (!f) return 1;
    fwrite(data.data(), sizeof(int), data.size(), f);
    fprintf(f, "%d", n);
    fclose(f);
    f = fopen("results.bin", "rb");
    size_t read = fread(data.data(), 4, 100, f);
    fseek(f, 0, SEEK_END);
    remove("results.bin");
    return read != 100;
}""",
    "times": r"""
#include <chrono>
#include <cstdio>
#include <ctime>
#include <sys/time.h>
int work(int n) {
    timespec a; clock_gettime(CLOCK_MONOTONIC, &a);
    timeval b; gettimeofday(&b, nullptr);
    auto c = std::chrono::steady_clock::now();
    printf("%d %g", n, std::chrono::duration<double>(c - c).count() + a.tv_sec + b.tv_sec);
    return clock() < 0;
}""",
    "options": r"""
#include <cstdlib>
#include <cstring>
#include <getopt.h>
int work(int) {
    static option known[] = {{"size", required_argument, 0, 's'}, {0, 0, 0, 0}};
    char name[] = "a", size[] = "--size=4", *words[] = {name, size, nullptr};
    for (int c; (c = getopt_long(2, words, "s:v", known, nullptr)) != -1;)
        if (c == 's') return atoi(optarg) != 4;
    return !getenv("HOME");
}""",
    "threads": r"""
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
int work(int n) {
    std::atomic<int> sum{0};
    std::mutex lock;
    std::thread other([&] { std::lock_guard<std::mutex> hold(lock); sum += n; });
    other.join();
    return std::async(std::launch::async, [&] { return sum - n; }).get();
}""",
    "errors": r"""
#include <cassert>
#include <csignal>
#include <random>
#include <stdexcept>
int work(int n) {
    std::mt19937 draw(n);
    try {
        if (draw() == 1) throw std::runtime_error("no");
    } catch (const std::exception& e) {
        abort();
    }
    assert(n >= 0);
    return 0;
}""",
}
#: The same ones where they are called: the library's by a table, a virtual function, a template.
CALLED = {
    "maps memory": 'int work(int) { return library::opened("x")->read(); }',
    "looks up functions": "int work(int n) { return library::lookup(n); }",
    "starts processes": "int work(int) { return library::started(); }",
}


#: Words of assembler that no text of the program has as such, and other code that nobody compiled.
SPELLED = {
    "a flag": ("int work(int n) { CALL; return n; }", ['CALL=asm("syscall" : "+a"(n))']),
    "a flag's word": (
        'int work(int n) { WORD(TEXT : "+a"(n)); return n; }',
        ["WORD=asm", 'TEXT="sys" "call"'],
    ),
    "a flag with arguments": (
        "int work(int n) { CALL(sys, call); return n; }",
        ["S(x)=#x", 'CALL(a, b)=asm(S(a) S(b) : "+a"(n))'],
    ),
    "a header": ('#include "inner.inc"\nint work(int n) { INNER; return n; }', []),
    "a table of words": (
        "#define T(X) X(sys##call)\n#define S_(x) #x\n#define S(x) S_(x)\n"
        '#define E(x) asm(S(x) : "+a"(n));\nint work(int n) { T(E) return n; }',
        [],
    ),
    "large letters": ('int work(int n) { asm("SYSCALL" : "+a"(n)); return n; }', []),
    "long escapes": ('int work(int n) { asm("\\x0000073yscall" : "+a"(n)); return n; }', []),
    "raw text": ('int work(int n) { asm(R"q(\tsyscall)q" : "+a"(n)); return n; }', []),
    "bytes": ('int work(int n) { asm(".byte 15, 5" : "+a"(n)); return n; }', []),
    "bytes behind an instruction": ('int work(int n) { asm("nop\\n.word 1295"); return n; }', []),
    "a dialect": ('int work(int n) { asm("{sysc|sysc}all" : "+a"(n)); return n; }', []),
    "another section": (
        'asm(".section .init_array\\n.quad main"); int work(int n) { return n; }',
        [],
    ),
    "a stack that is executed": (
        'asm(".section .note.GNU-stack,\\"x\\""); int work(int n) { return n; }',
        [],
    ),
    "data among code": (
        '__attribute__((section(".text"))) const unsigned char code[] = {15, 5, 195};\n'
        "int work(int n) { return n ? n : ((int (*)())code)(); }",
        [],
    ),
}
SPELLED |= {
    "a section's name": (
        '__attribute__((section(".data\\n\\t.section .text.z,\\"ax\\",@progbits\\n'
        'called: .byte 0x0f,0x05,0xc3\\n\\t.section .d"))) int v = 1;\n'
        'int called(int) __asm__("called"); int work(int n) { return called(n); }',
        [],
    ),
    "a section's name in parts": (
        '[[using gnu: unused, __section__(R"(.data\n.byte 1\n)" ".section .d")]] int v = 1;\n'
        "int work(int n) { return n; }",
        [],
    ),
    "another function's name": (
        'static int f() __attribute__((weakref("puts\\n.byte 15, 5")));\n'
        "int work(int n) { return f() + n; }",
        [],
    ),
    "a version": (
        'extern "C" __attribute__((symver("f@V\\n.byte 15, 5"))) int f() { return 1; }\n'
        "int work(int n) { return f() + n; }",
        [],
    ),
    "a comment in the program": (
        '#ident "\\"\\n.section .text.z,\\"ax\\"\\n.byte 15, 5\\n.ident \\""\n'
        "int work(int n) { return n; }",
        [],
    ),
    "a name that begins with a sign": (
        'int work(int n) { [[x::y($R"q(")]] int a = n; asm("syscall" : "+a"(n)); '
        '[[x::y(")q")]] int b = n; return a + b; }',
        [],
    ),
    "letters of other scripts": (
        'int work(int n) { [[x::y(a\u0301R"q(")]] int a = n; asm("syscall" : "+a"(n)); '
        '[[x::y(")q")]] int b = n; return a + b; }',
        [],
    ),
    "a text's mark with a quotation mark": (
        'int work(int n) { auto s = R"a"(" )a""; asm("syscall" : "+a"(n)); '
        'return n + !*s + !" "; }',
        [],
    ),
}
PLAIN_ASSEMBLER = {
    "names": r"""
#include <cstdio>
#ident "work 1.0 (test)"
static void section(const char* text) { puts(text); }
__attribute__((section(".data.of_work"), aligned(8))) int v = 1;
[[gnu::section(".text.of_work")]] int own(int n) { return n + v; }
__attribute__((target("avx2,fma"))) static int wide(int n) { return n; }
int work(int n) {
    section("Results (\"all\"):\n");
    puts(R"q(section(".a\n.byte"))q");
    return wide(own(n));
}""",
    "none": "int work(int n) { return n; }",
    "barriers": """
#include <x86intrin.h>
int work(int n) {
    asm volatile("" : "+r"(n) :: "memory");
    asm volatile("mfence" ::: "memory");
    __asm__ __volatile__("lock; addl $0, %0" : "+m"(n));
    asm("# a mark\\n\\tnop\\n1:\\tpause");
    return n + int(__rdtsc() * 0);
}""",
    "clock": """
int work(int n) {
    unsigned low, high;
    asm volatile("rdtsc" : "=a"(low), "=d"(high));
    return n + (low & high & 0);
}""",
    "words in texts": """
#include <cstdio>
#define JOINED(a, b) a##b
int work(int n) { int JOINED(x, y) = 0; puts("asm(\\"syscall\\") .byte svc"); return n + xy; }""",
}


@COMPILES
@pytest.mark.parametrize("how", SPELLED)
def test_assembler_is_looked_at_as_the_compiler_sees_it(how: str, tmp_path: Path) -> None:
    work, defines = SPELLED[how]
    inner = '#define INNER asm("sys\\\ncall" : "+a"(n))\n'
    (tmp_path / "inner.inc").write_text(inner, encoding="utf-8")
    why = _assembled(work, tmp_path, defines)
    assert "prove nothing" in why and len(why) < 300


@COMPILES
@pytest.mark.skipif(platform.machine() != "x86_64", reason="its instructions are x86-64's")
@pytest.mark.parametrize("what", PLAIN_ASSEMBLER)
def test_assembler_that_calls_nothing_is_not_a_doubt(what: str, tmp_path: Path) -> None:
    assert _assembled(PLAIN_ASSEMBLER[what], tmp_path, []) == ""


def test_without_what_the_compiler_saw_nothing_is_proven(tmp_path: Path) -> None:
    listing = build.listing(tmp_path / "p")
    assert "is not known" in meddling.assembles(tmp_path / "p")
    listing.write_text("[1", encoding="utf-8")
    assert "is not known" in meddling.assembles(tmp_path / "p")


@pytest.mark.parametrize(
    ("statement", "is_doubt"),
    [
        (".globl _ZSt21ios_base_library_initv", False),
        (" .globl\t_ZSt21ios_base_library_initv\n", False),
        (".globl simt_launch", True),
        (".globl _ZSt21ios_base_library_initv; .byte 15", True),
        (".weak _ZSt21ios_base_library_initv", True),
    ],
)
def test_what_iostream_says_to_the_linker_is_not_a_doubt(
    statement: str, is_doubt: bool, tmp_path: Path
) -> None:
    build.listing(tmp_path / "p").write_text(json.dumps([statement]), encoding="utf-8")
    assert bool(meddling.assembles(tmp_path / "p")) == is_doubt


def _assembled(work: str, folder: Path, defines: Sequence[str]) -> str:
    """The assembly that a proof builds in the jail. Everything outside the host's own code has to
    be modelled, so that little assembler gets further."""
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o755)
    source, host = folder / "p.cu", folder / "host.cpp"
    main = "int work(int);\n__global__ void k() {}\nint main() { k<<<1, 1>>>(); return work(0); }\n"
    source.write_text(main, encoding="utf-8")
    host.write_text(f"{work}\n", encoding="utf-8")
    options = build.CompileOptions(defines=defines, statements=True)
    out = folder / "built"
    out.mkdir(mode=0o755)
    with JailedCompilers(SourceView.of([source, host])) as compilers:
        built = compilers.program(source, out / "p", options, further=[host])
    sandbox.close_servers()
    return meddling.of_built(built)


def _built(work: str, folder: Path) -> str:
    main = """
__global__ void k(int* y) { *y = 1; }
int main(int count, char**) {
    int* y;
    cudaMalloc(&y, 4);
    k<<<1, 1>>>(y);
    return cudaDeviceSynchronize() + work(count);
}"""
    source = folder / "whole.cu"
    source.write_text(UNCALLED.replace("BODY", work) + main, encoding="utf-8")
    built = build.build_program(source, folder / "whole", build.CompileOptions())
    with contextlib.chdir(folder):
        ended = program.run(built, timeout_s=60.0)
    assert ended.status is not None, ended
    return meddling.refers(built, runtime_library.ready().runtime)


@COMPILES
@pytest.mark.parametrize("what", HONEST)
def test_what_nobody_calls_is_not_held_against_a_program(what: str, tmp_path: Path) -> None:
    assert _built(HONEST[what], tmp_path) == ""


@COMPILES
@pytest.mark.parametrize("how", CALLED)
def test_what_is_called_from_anywhere_is(how: str, tmp_path: Path) -> None:
    assert how in _built(CALLED[how], tmp_path)


@COMPILES
def test_a_function_that_is_found_by_the_address_of_another_is_not_seen(tmp_path: Path) -> None:
    """The page on security says so: the C library is there as a whole, wherever a name of it is."""
    library = ctypes.CDLL(None)
    there, by = (
        ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        for name in ("mprotect", "getenv")
    )
    work = f"""
#include <cstdlib>
int work(int) {{
    char* volatile at = (char*)&getenv;
    static char page[8192];
    char* begin = (char*)(((size_t)page + 4095) & ~4095ul);
    return ((int (*)(void*, size_t, int))(at + {there - by}))(begin, 4096, 7);
}}"""
    assert _built(work, tmp_path) == ""


def _refers(text: str, folder: Path, *language: str) -> str:
    box = runtime_library.ready()
    source, program = folder / "program.c", folder / "program"
    source.write_text(text, encoding="utf-8")
    argv: list[str | Path] = [
        *box.compiler.argv,
        "-w",
        *(language or ("-x", "c")),
        source,
        "-x",
        "none",
        box.runtime,
        "-o",
        program,
    ]
    run_tool(argv, whose="own", timeout_s=60)
    return meddling.refers(program, box.runtime)


@COMPILES
@pytest.mark.parametrize("how", TURNED)
def test_a_program_that_can_write_its_own_findings_is_known_by_what_it_calls(
    how: str, tmp_path: Path
) -> None:
    why = _refers(TURNED[how], tmp_path)
    assert how in why and "prove nothing" in why


@COMPILES
@pytest.mark.parametrize("level", ["-O1", "-O2"])
def test_instances_of_the_standard_library_are_everybodys(level: str, tmp_path: Path) -> None:
    assert _refers(INSTANCES, tmp_path, level, "-std=c++17", "-x", "c++") == ""


@COMPILES
def test_a_stream_on_a_handle_by_number_is_known(tmp_path: Path) -> None:
    assert "writes to handles by number" in _refers(BY_HANDLE, tmp_path, "-x", "c++")


@pytest.mark.parametrize(
    "code",
    [
        "#ifdef SIMT_RING\nint x = 1;\n#endif\nint main() {}",
        "unsigned simt_ring_add_f32(unsigned, unsigned); int main() {}",
        "#if defined(PORTKERN_SIMT)\n#endif\nint main() {}",
    ],
)
def test_a_program_that_asks_for_the_ring_is_not_believed(code: str) -> None:
    assert "prove nothing" in meddling.meddles(code)


def test_macros_that_only_resemble_the_executors_are_a_programs_own() -> None:
    own = "#ifndef SIMT_OWN_H\n#define SIMT_OWN_H\n#define SIMT_OWN_WIDTH 4\n#endif\nint main() {}"
    assert meddling.meddles(own) == ""


def test_words_of_instructions_in_texts_that_are_printed_are_not_instructions() -> None:
    assert meddling.meddles('int main() { puts("svc"); puts("syscall failed, int 128"); }') == ""
    assert meddling.meddles('int main() { asm("syscall"); }')
    assert meddling.meddles('#define J(a, b) a##b\nint main() { J(as, m)("syscall"); }')


@COMPILES
@pytest.mark.parametrize("what", PLAIN)
def test_a_program_that_does_its_work_may_call_what_it_needs(what: str, tmp_path: Path) -> None:
    assert _refers(PLAIN[what], tmp_path) == ""


# ---- what is written stays

ALTERS = """
import ctypes, fcntl, mmap, os
os.write(3, b"found\\n"); os.write(4, b"launched\\n")
def tried(action):
    try: action()
    except (OSError, ValueError): pass
for handle in (3, 4):
    for name in (f"/proc/self/fd/{handle}", f"/dev/fd/{handle}"):
        tried(lambda: os.truncate(name, 0))
        tried(lambda: os.close(os.open(name, os.O_WRONLY | os.O_TRUNC)))
    tried(lambda: os.ftruncate(handle, 0))
    tried(lambda: os.pwrite(handle, b"FORGED", 0))
    tried(lambda: os.lseek(handle, 0, 0))
    tried(lambda: fcntl.fcntl(handle, fcntl.F_SETFL, 0))
    tried(lambda: mmap.mmap(handle, 6))
    tried(lambda: os.read(handle, 6))
"""


@pytest.mark.parametrize("then", ["", "os.close(3); os.close(4)", "os._exit(0)"])
def test_what_a_program_has_written_to_its_handles_cannot_be_changed(
    then: str, tmp_path: Path
) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    argv = (sys.executable, "-S", "-P", "-c", ALTERS + then)
    asked = Execute(argv, str(tmp_path), "sm_90", "cuda", (), 30.0, record_bytes=99, sealed=True)
    with JailedProcesses([tmp_path]) as processes:
        ended = processes.run(asked)
    sandbox.close_servers()
    assert (ended.program.status, ended.files[RECORD]) == (0, b"launched\n"), ended.program.output


# ---- what is compared


def _judged(left: Content, right: Content, kind: str) -> Judged:
    types = Types(parse(f"__global__ void k({kind}* x) {{ *x = 1; }}").kernels, {})
    shape = (0, "k", (1, 1, 1), (4, 1, 1), 0, ((0, 0),))
    [result] = compare(
        [LaunchRecord(*shape, after={0: left})], [LaunchRecord(*shape, after={0: right})], types
    )
    return result.judged


@pytest.mark.parametrize("kind", ["int", "float", "long long"])
def test_contents_decide_and_not_what_is_said_to_be_their_digest(kind: str) -> None:
    one, two = b"\1\0\0\0\2\0\0\0", b"\7\0\0\0\2\0\0\0"
    assert _judged(Content(8, "d", one), Content(8, "d", two), kind) is not Judged.EQUAL
    assert _judged(Content(8, "d", one), Content(8, "e", one), kind) is Judged.EQUAL
    assert _judged(Content(8, "d"), Content(8, "d"), kind) is Judged.EQUAL


@pytest.mark.parametrize("kind", ["int", "float", "long long"])
def test_what_is_left_behind_the_last_element_is_compared_too(kind: str) -> None:
    one, two = bytes(9), bytes(8) + b"\1"
    assert _judged(Content(9, "d", one), Content(9, "e", two), kind) is Judged.DIFFERENT


def _mixed(hash_: int, word: int) -> int:
    product = (hash_ ^ word) * 0x9E3779B97F4A7C15 % 2**64
    return product ^ product >> 29


@COMPILES
def test_contents_of_one_digest_are_told_apart(tmp_path: Path) -> None:
    """The second launch writes other words, of which the last makes up for the first."""
    one, two, other = 1, 2, 7
    aimed = _mixed(16, one) ^ two ^ _mixed(16, other)
    source = tmp_path / "aims.cu"
    source.write_text(f"""
#include <cuda_runtime.h>
__global__ void k(unsigned long* y, unsigned long a, unsigned long b) {{ y[0] = a; y[1] = b; }}
int main() {{
  unsigned long* y;
  cudaMalloc(&y, 16);
  k<<<1, 1>>>(y, {one}, {two});
  k<<<1, 1>>>(y, {other}, {aimed}ul);
  k<<<1, 1>>>(y, {other}, {aimed}ul);
}}
""")
    record = tmp_path / "record"
    built = build.build_program(source, tmp_path / "aims", build.CompileOptions())
    program.run(built, ExecutorOptions(record=record), timeout_s=30.0)
    first, second, third = (launch.after[0] for launch in read(record.read_bytes()))
    assert first.digest == second.digest == third.digest
    assert first.data != second.data and second.data == third.data


@pytest.mark.parametrize(("launches", "otherwise"), [(("k", "j"), 0), (("k",), 1), (("k", "k"), 1)])
def test_a_port_that_launches_otherwise_where_it_is_checked_is_not_proven(
    launches: tuple[str, ...], otherwise: int
) -> None:
    assert len(_otherwise(launches, (b"\1\0\0\0",) * len(launches))) == otherwise


@pytest.mark.parametrize(("content", "otherwise"), [(1, 0), (7, 1)])
def test_a_port_that_computes_otherwise_where_it_is_checked_is_not_proven(
    content: int, otherwise: int
) -> None:
    """A kernel does so that has found a clock to be slow."""
    contents = (b"\1\0\0\0", content.to_bytes(4, "little"))
    assert len(_otherwise(("k", "j"), contents)) == otherwise


def _otherwise(launches: Sequence[str], contents: Sequence[bytes]) -> list[str]:
    """Why a checked run is not of what was compared, which launched k and j."""

    def run(kernels: Sequence[str], contents: Sequence[bytes]) -> Any:
        shape = ((1, 1, 1), (4, 1, 1), 0, ((0, 0),))
        found = [
            LaunchRecord(n, kernel, *shape, after={0: Content(4, data.hex(), data)})
            for n, (kernel, data) in enumerate(zip(kernels, contents, strict=True))
        ]
        return SimpleNamespace(launches=found, is_late=False)

    examiner = _examiner()
    kernels = parse("__global__ void k(int* x) {}\n__global__ void j(int* x) {}").kernels
    examiner._types = Types(kernels, {})
    examiner._progress = SimpleNamespace(runs=[("plain", run("kj", [b"\1\0\0\0"] * 2))])
    return [*examiner._went_otherwise(run(launches, contents), {})]


_AT = (1, 1, 1), (4, 1, 1), 0, ((0, 0),)
_ONE, _TWO, _TURNED = (
    Content(8, data.hex(), data) for data in (b"\1\0\0\0\2\0\0\0", bytes(8), b"\2\0\0\0\1\0\0\0")
)


@pytest.mark.parametrize(
    ("checked", "unstable", "otherwise"),
    [
        pytest.param([({0: "a"}, _ONE), ({}, _ONE)], [], "", id="alike"),
        pytest.param([({0: "b"}, _ONE), ({}, _ONE)], [], "other inputs", id="inputs"),
        pytest.param([({0: "b"}, _ONE), ({}, _ONE)], [0], "other inputs", id="of unstable"),
        pytest.param([({0: "a", 1: "c"}, _ONE), ({}, _ONE)], [], "other inputs", id="one more"),
        pytest.param([({0: "a"}, _TURNED), ({}, _ONE)], [], "computes", id="reordered"),
        pytest.param([({0: "a"}, _TURNED), ({}, _ONE)], [1], "computes", id="reordered first"),
        pytest.param([({0: "a"}, _TURNED), ({}, _TURNED)], [0], "", id="behind unstable"),
        pytest.param([({0: "a"}, _ONE), ({}, _TWO)], [0], "computes", id="behind what agrees"),
        pytest.param([({0: "a"}, _ONE), ({}, Content(8, "x"))], [], "computes", id="by digest"),
    ],
)
def test_a_port_whose_checked_run_has_other_inputs_or_is_not_judged_is_not_proven(
    checked: Sequence[tuple[dict[int, str], Content]], unstable: Sequence[int], otherwise: str
) -> None:
    def run(of: Sequence[tuple[dict[int, str], Content]]) -> Any:
        found = [
            LaunchRecord(n, "k", *_AT, before=before, after={0: after})
            for n, (before, after) in enumerate(of)
        ]
        return SimpleNamespace(launches=found, is_late=False)

    examiner = _examiner(_types=Types(parse("__global__ void k(int* x) {}").kernels, {}))
    examiner._progress.runs.append(("plain", run([({0: "a"}, _ONE), ({}, _ONE)])))
    why = [*examiner._went_otherwise(run(checked), dict.fromkeys(unstable))]
    assert (otherwise in why[0] and len(why) == 1) if otherwise else not why, why


def _examiner(**fields: Any) -> Any:
    examiner = Examiner.__new__(Examiner)
    vars(examiner).update(fields, _progress=SimpleNamespace(unfinished=[], runs=[]))
    return examiner


def _run_with(*findings: Diagnostic, is_late: bool = False) -> Any:
    outcome = SimpleNamespace(findings=findings, status=0)
    return SimpleNamespace(outcome=outcome, is_late=is_late, seconds=0.0, launches=["k"])


@pytest.mark.parametrize(("code", "told"), [("SX201", 1), ("SX308", 0)])
def test_a_run_whose_defects_are_not_all_told_proves_nothing(code: str, told: int) -> None:
    examiner = _examiner()
    examiner._used(_run_with(Diagnostic("SX801", f"{code} at more than 200 places")))
    assert len(examiner._progress.unfinished) == told


def test_of_runs_only_what_is_used_of_them_is_held_against_a_port_and_once() -> None:
    late = _run_with(Diagnostic("SX120", "a thread of a long run"), is_late=True)
    short = [_run_with(Diagnostic("SX120", "another thread", count=n)) for n in (1, 2)]
    made = iter([late, *short])
    examiner = _examiner(
        arguments=None,
        launches=0,
        _smaller=[["1"]],
        _limit_s=1.0,
        _one_kernel=False,
        _runs=SimpleNamespace(run=lambda *_, **__: next(made)),
    )
    examiner._first(None)
    examiner._run(None)
    assert examiner._progress.unfinished == [str(short[0].outcome.findings[0])]


# ---- whole proofs

BASE = """
#include <VENDOR_runtime.h>
#include <cstdio>
#include <cstring>
#ifdef __HIPCC__
#define PORT 1
#else
#define PORT 0
#endif
BEFORE
__global__ void k(int* y) { y[threadIdx.x] = PORT ? 7 : 1; WITHIN }
int main() {
  int* y;
  apiMalloc(&y, 256);
  BEGIN
  k<<<1, 64>>>(y);
  apiDeviceSynchronize();
  AFTER
}
"""
#: Host code that waits for a result, without being stopped where it may not look at it, and
#: puts another in its place; and what a kernel does meanwhile.
_BESIDE = r"""
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <thread>
struct Node { Node* next; };
static char stack[1 << 16];
__attribute__((no_sanitize("thread"))) static int forge(void* y) {
  int ends[2], all[64], one = 1, left = PORT && !pipe(ends) ? 64 : 0;
  for (int looks = 0; left && looks < 400000; ++looks) {
    if (write(ends[1], y, 256) != 256 || read(ends[0], all, 256) != 256) continue;
    for (int i = 0; i < 64; ++i)
      if (all[i] == 7 && write(ends[1], &one, 4) == 4) left -= read(ends[0], (int*)y + i, 4) == 4;
  }
  return 0;
}"""
_WAITS = "for (int i = 0; PORT && i < 1000000 && *(volatile int*)(y + threadIdx.x) == 7; ++i) {}"
#: The port is wrong, and works against what finds that.
FORGED = {
    "a file": (
        "extern char** environ;",
        "",
        r"""
  for (char** e = environ; PORT && *e; ++e)
    for (char* at = strstr(*e, "record="); at; at = strstr(at + 1, "record=")) {
      char path[512] = {}, all[9999];
      sscanf(at + 7, "%511[^;]", path);
      FILE* f = fopen(path, "rb");
      size_t n = f ? fread(all, 1, sizeof all, f) : 0;
      if (f) fclose(f);
      for (size_t i = 0; i < n; ++i) if (all[i] == 7) all[i] = 1;
      if (n && (f = fopen(path, "wb"))) fwrite(all, 1, n, f), fclose(f);
    }""",
    ),
    "code": (
        "#include <sys/mman.h>",
        r"""
  if (PORT) {
    char keep[8192], *at = (char*)&k, *page = (char*)((size_t)at & ~4095ul);
    memcpy(keep, page, 8192);
    for (char* c = keep; c + 8 < keep + 8192; ++c) if (!memcmp(c, "\7\0\0\0", 4)) *c = 1;
    mmap(page, 8192, 7, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, keep, 8192);
  }""",
        "",
    ),
    "a device variable": (
        "__device__ int g = PORT ? 7 : 1;\n#undef PORT\n#define PORT (g == 7)",
        "g = 1;",
        "",
    ),
    "a second thread": (_BESIDE, "std::thread other(forge, y);", "other.join();", _WAITS),
    "a process with the same memory": (
        _BESIDE,
        "clone(forge, stack + sizeof stack, CLONE_VM | SIGCHLD, y);",
        "wait(nullptr);",
        _WAITS,
    ),
    "a process with the same memory, which leaves nothing": (
        _BESIDE,
        "signal(SIGCHLD, SIG_IGN); clone(forge, stack + sizeof stack, CLONE_VM | SIGCHLD, y);",
        "",
        _WAITS,
    ),
    "calls": (
        r"""
#include <sys/uio.h>
extern "C" ssize_t write(int handle, const void* p, size_t n) {
  char all[9999];
  memcpy(all, p, n);
  for (size_t i = 0; i < n; ++i) if (PORT && all[i] == 7) all[i] = 1;
  iovec v = {all, n};
  return writev(handle, &v, 1);
}""",
        "",
        "",
    ),
}


@pytest.mark.full
@pytest.mark.sampled("how")
@COMPILES
@pytest.mark.parametrize("how", FORGED)
def test_a_wrong_port_that_forges_its_runs_is_not_proven(how: str, tmp_path: Path) -> None:
    text = BASE
    for mark, code in zip(("BEFORE", "BEGIN", "AFTER", "WITHIN"), (*FORGED[how], ""), strict=False):
        text = text.replace(mark, code, 1)
    if FORGED[how][0] == _BESIDE:  # what there is no case for is known by its program alone
        text = text.replace("k(int* y)", "k(int* y, Node*)").replace("(y);", "(y, nullptr);")
    sources = {}
    for vendor, api, suffix in (("cuda", "cuda", ".cu"), ("hip/hip", "hip", ".hip")):
        sources[api] = tmp_path / f"k{suffix}"
        sources[api].write_text(text.replace("VENDOR", vendor).replace("api", api))
    [proof] = prove(
        ProofSource(sources["cuda"], "cuda"),
        ProofSource(sources["hip"], "hip"),
        target=target.load("gfx942"),
        other=None,
        kernels=parse(sources["hip"].read_text()).kernels,
        workdir=tmp_path / "work",
        limits=ProofLimits(run_s=30.0),
    )
    assert proof.outcome is not Outcome.PROVEN, proof
    assert "not built" not in proof.why, "it was not tried"
    if FORGED[how][0] == _BESIDE:
        assert "SX120" in proof.why, proof
