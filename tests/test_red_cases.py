"""Attacks on files of the user that reached them once, by the verbs that they came through. Those
by plans, imports and tensors are in ``test_strangers_files.py``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from portkern.cli import main
from portkern.sandbox import session
from portkern.simt.execute import runtime_library
from portkern.spec.backend import Missing

COMPILES = pytest.mark.skipif(
    isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find())
)
SECRET = "correct_horse_battery_staple"


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Path]:
    """A folder that anybody may write to, and a file that anybody may read: only the jail keeps
    programs from both."""
    for place in (tmp_path, *tmp_path.parents[:2]):
        place.chmod(0o755)
    folder = tmp_path / "user"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "secret.txt").write_text(SECRET)
    yield folder
    session.close_servers()
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"secret.txt": SECRET}


# ---- a ported program that takes over its worker, and what it leaves

PORTED = r"""
#include <VENDOR_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
__global__ void add1(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1.0f;
}
static void attack() { BODY }
int main() {
  float* d;
  apiMalloc(&d, 1024);
  apiMemset(d, 0, 1024);
  add1<<<1, 256>>>(d, 256);
  apiDeviceSynchronize();
  float h[256];
  apiMemcpy(h, d, 1024, apiMemcpyDeviceToHost);
  attack();
  printf("%f\n", h[3]);
  return h[3] != 1.0f;
}
"""
ESCAPES: Mapping[str, str] = {
    "memory of others": r"""
      DIR* all = opendir("/proc");
      while (dirent* one = all ? readdir(all) : nullptr) {
        const int pid = atoi(one->d_name);
        char path[64], map[4096] = {};
        if (pid <= 0 || pid == getpid()) continue;
        snprintf(path, 64, "/proc/%d/maps", pid);
        if (FILE* f = fopen(path, "r")) { size_t n = fread(map, 1, 4095, f); fclose(f); (void)n; }
        snprintf(path, 64, "/proc/%d/mem", pid);
        const int fd = open(path, O_RDWR);
        if (fd < 0) continue;
        if (FILE* f = fopen("USER/taken_over", "w")) { fputs(map, f); fclose(f); }
      }""",
    "files by their paths": r"""
      if (FILE* f = fopen("USER/written", "w")) fclose(f);
      mkdir("USER/folder", 0777);
      rename("USER/secret.txt", "USER/moved.txt");""",
    "results that are links": r"""
      char name[256], to[512];
      DIR* here = opendir(".");
      while (dirent* one = here ? readdir(here) : nullptr) {
        if (one->d_name[0] == '.') continue;
        snprintf(to, 512, "USER/%s.pth", one->d_name);
        unlink(one->d_name);
        if (symlink(to, one->d_name)) break;
      }
      const char* prefix = getenv("GCOV" "_PREFIX");
      snprintf(name, 256, "%s/v.gcda", prefix ? prefix : ".");
      unlink(name);
      if (!symlink("USER/v.pth", name))
        if (FILE* f = fopen(name, "w")) { fputs("import sys\n", f); fclose(f); }""",
}


@COMPILES
@pytest.mark.drawn
@pytest.mark.parametrize("how", ESCAPES)
def test_a_ported_program_writes_no_file_of_the_user(
    how: str, user: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PORTED.replace("BODY", ESCAPES[how]).replace("USER", str(user))
    source = tmp_path / "in" / "v.cu"
    source.parent.mkdir()
    source.write_text(text.replace("VENDOR", "cuda").replace("api", "cuda"))
    reports = tmp_path / "reports"
    main.run(["port", str(source), "to=gfx942", f"reports={reports}", "run=r"])
    said = json.loads((reports / "r" / "summary.json").read_text())
    outcomes = {entry["kernel"]: entry["outcome"] for entry in said["kernels"]}
    if how == "memory of others":
        assert outcomes == {"add1": "not proven"}, said
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and user not in path.parents]
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]
    assert SECRET not in capsys.readouterr().out


# ---- a program that is run


LEAKS: Mapping[str, tuple[str, bool]] = {
    "the assembler embeds it": (
        r'''__asm__(".section .rodata\n.globl stolen\nstolen: .incbin \"THERE\"\n.byte 0\n.text\n");
extern "C" const char stolen[];''',
        False,
    ),
    "the compiler includes it": ('static const char stolen[] =\n#include "THERE"\n;', False),
    "a link of the source's folder": ('static const char stolen[] =\n#include "link.h"\n;', False),
    "the program opens it": (
        'static char stolen[99];\n'
        'static FILE* opened = fopen("THERE", "r");\n'
        "static char* got = opened ? fgets(stolen, 99, opened) : nullptr;",
        True,
    ),
}  # fmt: skip


@COMPILES
@pytest.mark.sampled(quick=2)
@pytest.mark.parametrize("how", LEAKS)
def test_a_program_that_is_run_tells_no_file_of_the_user(
    how: str, user: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text, runs = LEAKS[how]
    source = tmp_path / "in" / "leak.cu"
    source.parent.mkdir()
    (source.parent / "link.h").symlink_to(user / "secret.txt")
    body = (
        "#include <cstdio>\n"
        f"{text.replace('THERE', str(user / 'secret.txt'))}\n"
        "__global__ void k() {}\n"
        'int main() { k<<<1, 1>>>(); printf("told=%s\\n", stolen); return 0; }\n'
    )
    source.write_text(body)
    code = main.run(["run", str(source), "target=sm_90"])
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err
    assert (code == 0) == runs and ("told=" in said.out) == runs, said
