"""Whether a library's files are those that were signed: ``metadata.json`` has their digests, and
``metadata.sig`` an Ed25519 signature of it."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

METADATA, SIGNATURE = "metadata.json", "metadata.sig"


class NotSigned(Exception):
    """Says in one line what is not as it was signed, and what to do."""


def check(folder: Path, key: Path) -> None:
    """Raises NotSigned where a file in ``folder`` is not the one that the owner of the public key
    (PEM) in the file ``key`` signed, or is lacking."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise NotSigned("signatures are looked at by cryptography: pip install it") from error
    try:
        public = load_pem_public_key(key.read_bytes())
        said = (folder / METADATA).read_bytes()
        signature = base64.b64decode((folder / SIGNATURE).read_bytes().strip(), validate=True)
    except (OSError, ValueError) as error:
        raise NotSigned(f"the key or the signature cannot be read: {error}") from error
    if not isinstance(public, Ed25519PublicKey):
        raise NotSigned(f"{key} is a key of another kind, expected Ed25519")
    try:
        public.verify(signature, said)
    except InvalidSignature as error:
        raise NotSigned(f"{METADATA} was not signed by the owner of {key}") from error
    for name, digest in json.loads(said)["files"].items():
        file = folder / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise NotSigned(f"{name} is not the file that was signed; install the library again")
