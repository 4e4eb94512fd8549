"""Which operators are so alike that a kernel of one teaches another: splits go by families."""

from __future__ import annotations

import re

#: An operator's family is by the first of these words that is in its name or its reference. A word
#: that holds another is before it: attention has a softmax and products, normalisations have sums.
_WORDS = (
    ("attention", r"attention|\bsdpa\b"),
    ("convolution", r"conv\d?d?|conv_"),
    ("matmul", r"matmul|\bmm\b|\bbmm\b|addmm|\blinear\b|einsum| @ "),
    ("normalisation", r"norm|softmax|logsumexp"),
    ("loss", r"loss|entropy"),
    ("pooling", r"pool"),
    ("scan", r"cumsum|cumprod|scan"),
    ("indexing", r"embedding|gather|scatter|index_|topk|argmax|sort"),
    ("movement", r"transpose|permute|\bcat\b|stack"),
    ("reduction", r"\bsum\b|\bmean\b|\bamax\b|\bmax\b|\bprod\b"),
)
OTHER = "elementwise"


def family_of(name: str, reference: str) -> str:
    for text in (name.replace("_", " "), reference):
        for family, words in _WORDS:
            if re.search(words, text):
                return family
    return OTHER
