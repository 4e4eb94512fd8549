"""Signs what a library consists of: the digests of its files, with where they come from."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import portkern
from portkern.deploy.artifacts import sha256
from portkern.deploy.package._signature import METADATA, SIGNATURE
from portkern.errors import ConfigError, ToolError
from portkern.toolchain.git import run_git


def metadata(files: Mapping[str, bytes], document: Mapping[str, Any], key: str) -> dict[str, bytes]:
    """The file of all digests and of where the library comes from, and its signature where ``key``
    names the file of a private key. Raises ConfigError."""
    records = document["records"]
    said = {
        "name": document["name"],
        "version": document["version"],
        "portkern": version("portkern"),
        "measured by portkern": sorted({one["portkern"] for one in records}),
        "commit": commit(Path(portkern.__file__)),
        "toolchains": _distinct(one["toolchain"] for one in records),
        "drivers": sorted({one["driver"] for one in records if one["driver"]}),
        "records": [one["id"] for one in records],
        "files": {name: sha256(data) for name, data in sorted(files.items())},
    }
    text = (json.dumps(said, indent=1, sort_keys=True) + "\n").encode()
    made = {METADATA: text}
    if key:
        made[SIGNATURE] = base64.b64encode(_signed(text, Path(key))) + b"\n"
    return made


def commit(file: Path) -> str:
    """The commit of the checkout that ``file`` is of, with ``-dirty`` where its folder is not as it
    was committed; '' where Git does not have the file: the repository around an environment that
    portkern is installed in is another project's."""
    try:
        run_git(file.parent, "ls-files", "--error-unmatch", "--", file.name)
        head = run_git(file.parent, "rev-parse", "HEAD").strip()
        asked = ("status", "--porcelain", "--ignore-submodules=all", "--", ".")
        changed = run_git(file.parent, *asked)
    except ToolError:
        return ""
    if not re.fullmatch(r"[0-9a-f]{40}", head):
        return ""
    return f"{head}-dirty" if changed.strip() else head


def _distinct(all_: Any) -> list[dict[str, str]]:
    return [dict(one) for one in sorted({tuple(sorted(x.items())) for x in all_})]


def _signed(text: bytes, key: Path) -> bytes:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise ConfigError("key= needs cryptography: pip install 'portkern[sign]'") from error
    try:
        private = load_pem_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"The private key {key} cannot be read: {error}") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigError(
            f"{key} is a key of another kind, expected Ed25519: "
            "openssl genpkey -algorithm ed25519 -out FILE"
        )
    return private.sign(text)
