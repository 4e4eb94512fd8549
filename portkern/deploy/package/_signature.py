"""Whether a library's files are those that were signed: ``metadata.json`` has their digests, and
``metadata.sig`` an Ed25519 signature of it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType

METADATA, SIGNATURE = "metadata.json", "metadata.sig"
#: What the two are called in a repository of ``kernels``, which has a metadata.json of its own.
REPOSITORY = "signed.json", "signed.sig"
#: Python's bytecode, which is not listed and not loaded.
_CACHE = "__pycache__"


class NotSigned(Exception):
    """Says in one line what is not as it was signed, and what to do."""


def admit(package: str, folder: Path, key: Path) -> None:
    """Checks the files of a package that is being imported from ``folder``. From here on its
    modules are loaded from the listed texts alone. Raises ImportError."""
    try:
        files = check(folder, key)
    except NotSigned as error:
        raise ImportError(f"{package}: {error}") from error
    sys.meta_path.insert(0, Listed(package, folder, files))


def check(folder: Path, key: Path) -> Mapping[str, str]:
    """The digests of all files in ``folder``. Raises NotSigned where a file is not the one that the
    owner of the public key (PEM) in the file ``key`` signed, is lacking, or is not listed."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise NotSigned("signatures are looked at by cryptography: pip install it") from error
    copied = (folder / REPOSITORY[0]).is_file()
    place, beside = REPOSITORY if copied else (METADATA, SIGNATURE)
    try:
        public = load_pem_public_key(key.read_bytes())
        said = (folder / place).read_bytes()
        signature = base64.b64decode((folder / beside).read_bytes().strip(), validate=True)
    except (OSError, ValueError) as error:
        raise NotSigned(f"the key or the signature cannot be read: {error}") from error
    if not isinstance(public, Ed25519PublicKey):
        raise NotSigned(f"{key} is a key of another kind, expected Ed25519")
    try:
        public.verify(signature, said)
    except InvalidSignature as error:
        raise NotSigned(f"{place} was not signed by the owner of {key}") from error
    files: dict[str, str] = json.loads(said)["files"]
    for name, digest in files.items():
        file = folder / name
        if not file.is_file() or _digest(file.read_bytes()) != digest:
            raise NotSigned(f"{name} is not the file that was signed; install the library again")
    known = {*files, place, beside, *([METADATA] if copied else [])}
    for name in _unlisted(folder, known):
        raise NotSigned(f"{name} is not among the files that were signed; remove it")
    return files


def _unlisted(folder: Path, known: set[str]) -> Iterator[str]:
    """Files, folders and links which are not ``known``; one that is added could be imported or
    included in the place of one that is."""
    folders = {str(one) for name in known for one in PurePosixPath(name).parents}
    for place, inner, files in os.walk(folder):
        at = Path(place)
        inner[:] = sorted(name for name in inner if name != _CACHE)
        yield from (
            str((at / name).relative_to(folder))
            for name in inner
            if (at / name).is_symlink() or (at / name).relative_to(folder).as_posix() not in folders
        )
        names = [(at / name).relative_to(folder).as_posix() for name in sorted(files)]
        yield from (name for name in names if name not in known)


class Listed(MetaPathFinder):
    """Finds the modules of one package among its listed files, whatever else is there."""

    def __init__(self, package: str, folder: Path, files: Mapping[str, str]) -> None:
        self._package, self._folder, self._files = package, folder, files

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raises ModuleNotFoundError for a module of the package that is not listed."""
        package, _, module = fullname.partition(f"{self._package}.")
        if package or not module:
            return None
        name = f"{module}.py"
        if name not in self._files:
            raise ModuleNotFoundError(f"{fullname} is not among the signed files", name=fullname)
        loader = _Text(fullname, str(self._folder / name), self._files[name])
        return spec_from_file_location(fullname, self._folder / name, loader=loader)


class _Text(SourceFileLoader):
    """Loads a module from its text. Bytecode that is kept beside is anybody's."""

    def __init__(self, fullname: str, path: str, digest: str) -> None:
        super().__init__(fullname, path)
        self._expected = digest

    def get_code(self, fullname: str) -> CodeType:
        """Raises ImportError where the text has changed since it was looked at."""
        text = self.get_data(self.path)
        if _digest(text) != self._expected:
            raise ImportError(f"{self.path} has changed since its signature was looked at")
        code: CodeType = self.source_to_code(text, self.path)
        return code


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
