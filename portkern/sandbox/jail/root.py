"""The file tree that a worker sees: the system and its Python read-only, a scratch, nothing else.

It is put together from bind mounts on an empty tmpfs, in a mount namespace of its own.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import portkern
from portkern.sandbox.jail import system
from portkern.sandbox.jail.users import Users
from portkern.spec.registry import GROUP

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu")
CONFIGURATION = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "OpenCL", "localtime")
DEVICES = ("null", "zero", "full", "random", "urandom")
#: GPUs: NVIDIA's nodes, AMD's compute interface, and what both render through.
ACCELERATORS = ("nvidia*", "kfd", "dri", "dxg")
#: Folders that hold a reference or a tolerance, under portkern's own.
HIDDEN = ("ops",)
#: While the tree is put together: the tree, and the machine's own.
_NEW, _MACHINE = Path("/new"), Path("/machine")


@cache
def python_paths() -> tuple[Path, ...]:
    """The paths that the running interpreter imports from; portkern's checkout is not among
    them, only the folders that are installed from it. To look for plug-ins takes longer than all
    else that a worker does before it is one: the server has it looked for before it forks any."""
    here = Path(portkern.__file__).parent
    installed = {
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    paths = {Path(sys.prefix), Path(sys.base_prefix), here, *map(Path, installed)}
    paths |= {Path(folder) for folder in sys.path if folder and Path(folder) != Path.cwd()}
    for name in ("backends", "targets", "conf"):
        paths |= {Path(folder) for folder in import_module(f"portkern.{name}").__path__}
    paths |= _plugins()
    checkout = here.resolve().parent
    if (checkout / "pyproject.toml").exists():
        paths = {path for path in paths if path.resolve() != checkout}
    return tuple(sorted(path.absolute() for path in paths if path.exists()))


def _plugins() -> set[Path]:
    """The packages of backends that are installed beside portkern. One that is installed as a
    link to where it is written stands in none of the interpreter's folders."""
    found: set[Path] = set()
    for point in entry_points(group=GROUP):
        # What names no module has no folder; whoever asks for the backend is told.
        with suppress(AttributeError, ImportError, ValueError):
            top = point.module.partition(".")[0]
            spec = find_spec(top) if top != "portkern" else None
            found |= {Path(f).resolve() for f in (spec and spec.submodule_search_locations) or ()}
    return found


def readable() -> list[Path]:
    """The same, as files of the machine's own tree."""
    configuration = ("passwd", "group", "nsswitch.conf", *CONFIGURATION)
    own = [Path(folder) for folder in (*SYSTEM, "/proc", "/sys")]
    return [*own, *(Path("/etc") / n for n in configuration), *python_paths(), *tool_paths()]


def devices(*, accelerators: bool) -> list[Path]:
    """The device files of the machine itself, for a process which sees its tree. A GPU's driver
    shares memory by files."""
    dev = Path("/dev")
    nodes = [dev / name for name in DEVICES]
    if accelerators:
        nodes += [dev / "shm", *(node for pattern in ACCELERATORS for node in dev.glob(pattern))]
    return nodes


def own_folders() -> list[Path]:
    """The folders that portkern is installed in."""
    parts = [portkern, *(import_module(f"portkern.{n}") for n in ("backends", "targets", "conf"))]
    return sorted({Path(folder).resolve() for part in parts for folder in part.__path__})


def hidden_folders() -> list[Path]:
    """The folders of portkern that no worker sees."""
    package = Path(portkern.__file__).resolve().parent
    return [package / name for name in HIDDEN]


def tool_paths() -> list[Path]:
    """Folders of the tools that the environment names, where they are not the system's."""
    named = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "HIP_PATH")]
    return [Path(folder) for folder in named if folder and Path(folder).is_dir()]


def enter(
    reads: Iterable[Path],
    writes: Iterable[Path],
    *,
    copies: Mapping[Path, Path],
    scratch: Path,
    scratch_bytes: int,
    accelerators: bool,
    users: Users | None,
    hidden: Iterable[Path],
) -> None:
    """Make the tree the root of this mount namespace. ``scratch`` is new and empty in it, and with
    what is in ``writes`` it is given to the worker's user, if that is another; folders that are
    ``hidden`` are empty where they would be seen. Called in the first process of a new namespace.

    Raises OSError where the kernel does not let us.
    """
    paths = {path: path.resolve() for path in reads}
    paths |= {place: copy.resolve() for place, copy in copies.items()}
    _step_aside()
    tree = _Tree()
    for folder in SYSTEM:
        tree.show(Path(folder))
    for name in CONFIGURATION:
        tree.show(Path("/etc") / name)
    tree.users(users)
    tree.show(Path("/sys"))
    tree.devices(accelerators)
    size = f"size={scratch_bytes},mode=1777"
    tree.empty(Path("/tmp"), size)
    tree.empty(Path("/dev/shm"), size)
    for path in sorted({*paths, *paths.values()}):  # a folder before what lies in it
        tree.show(path, source=paths.get(path))
    for path in hidden:
        tree.hide(path)
    if not scratch.is_relative_to("/tmp"):
        tree.empty(scratch, size)
    tree.folder(scratch).chmod(0o711)
    for path in writes:
        tree.show(path, writable=True)
    if users is not None:
        for path in (tree.at(scratch), *map(_on_machine, writes)):
            os.chown(path, users.worker, users.worker)
    # Before the old tree goes: without capabilities outside, one may only repeat what is visible.
    flags = system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC
    system.mount("proc", tree.folder(Path("/proc")), "proc", flags)
    tree.become()


def _step_aside() -> None:
    """Onto an empty root, with the machine's own tree in a folder of it."""
    aside, flags = Path("/tmp"), system.MS_NOSUID | system.MS_NODEV
    system.mount("", Path("/"), "", system.MS_REC | system.MS_PRIVATE)
    system.mount("tmpfs", aside, "tmpfs", flags, "size=1m,mode=0755")
    for folder in (_NEW, _MACHINE):
        (aside / folder.relative_to("/")).mkdir()
    system.pivot_root(aside, aside / _MACHINE.relative_to("/"))
    os.chdir("/")
    system.mount("tmpfs", _NEW, "tmpfs", flags, "size=16m,mode=0755")


def _on_machine(path: Path) -> Path:
    return _MACHINE / path.relative_to("/")


class _Tree:
    """The folders and files that are to become the whole tree."""

    def __init__(self) -> None:
        self._shown: list[Path] = []

    def at(self, path: Path) -> Path:
        return _NEW / path.relative_to("/")

    def folder(self, path: Path) -> Path:
        inside = self.at(path)
        inside.mkdir(parents=True, exist_ok=True)
        return inside

    def show(self, path: Path, *, source: Path | None = None, writable: bool = False) -> None:
        """``source`` is where ``path`` leads to, if that is known."""
        source, inside = _on_machine(source or path), self.at(path)
        if source.is_symlink():
            self.folder(path.parent)
            if not inside.is_symlink():
                inside.symlink_to(source.readlink())
        elif source.is_dir() and (writable or not self._within(path)):
            system.bind(source, self.folder(path), writable=writable)
            self._shown.append(path)
        elif source.is_file() and (writable or not self._within(path)):
            self._file(path, writable=writable)

    def _file(self, path: Path, *, writable: bool) -> None:
        self.folder(path.parent)
        self.at(path).touch()
        system.bind(_on_machine(path), self.at(path), writable=writable)

    def _within(self, path: Path) -> bool:
        return any(path.is_relative_to(shown) for shown in self._shown)

    def users(self, users: Users | None) -> None:
        """Writes a passwd file in which, of the machine's users, only the worker's and its
        programs' have a name."""
        names = {"root": (0, 0), "worker": (os.getuid(), os.getgid())}
        if users is not None:
            names["worker"] = (users.worker, users.worker)
            names["program"] = (users.program, users.program)
        lines = [f"{name}:x:{uid}:{gid}::/tmp:/bin/false\n" for name, (uid, gid) in names.items()]
        (self.folder(Path("/etc")) / "passwd").write_text("".join(lines))

    def hide(self, path: Path) -> None:
        if self.at(path).is_dir():
            system.mount("tmpfs", self.at(path), "tmpfs", system.MS_RDONLY, "size=4k,mode=0555")

    def empty(self, path: Path, options: str) -> None:
        flags = system.MS_NOSUID | system.MS_NODEV
        system.mount("tmpfs", self.folder(path), "tmpfs", flags, options)

    def devices(self, accelerators: bool) -> None:
        dev = Path("/dev")
        names = [dev / name for name in DEVICES]
        if accelerators:
            machine = _on_machine(dev)
            nodes = [node for pattern in ACCELERATORS for node in sorted(machine.glob(pattern))]
            names += [dev / node.name for node in nodes]
        for path in names:
            node = _on_machine(path)
            if node.is_dir():
                system.bind(node, self.folder(path), writable=True)
            elif node.is_char_device():
                self._file(path, writable=True)
        for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1")):
            self.at(dev / name).symlink_to(target)

    def become(self) -> None:
        """Makes the new root the process's own; nothing of the machine's own tree stays in
        sight."""
        rest = self.folder(Path("/.rest"))
        system.pivot_root(_NEW, rest)
        os.chdir("/")
        system.unmount(Path("/.rest"))
        Path("/.rest").rmdir()
        system.read_only(Path("/"), below=False)
