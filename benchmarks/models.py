"""Lengths that published models have.

A model is named by where its configuration is published: a repository on Hugging Face, a library of
models or of graphs. The lengths were written down from memory and read again by a second reader;
what either was not sure of is not here. No file of theirs was read, so look there for what has to
be right. Nothing here is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Language(NamedTuple):
    """A model of tokens. ``head``: of values, where queries have more; ``inner``: of a feed-forward
    layer, or of an expert; ``vocabulary``: 0 where only an image is seen; ``experts`` of which
    ``chosen`` see a token; ``gated``: its feed-forward layer multiplies two products; ``at_once``:
    the tokens of an input, where these are always as many (an image's patches)."""

    source: str
    hidden: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int
    experts: int = 0
    chosen: int = 0
    gated: bool = True
    at_once: int = 0
    head_norm: bool = False  # of each query and key by itself
    rotary: int | None = None  # elements of a head that are rotated, where these are not all
    latent: bool = False  # keys and values of all heads are made of one short vector


@dataclass(frozen=True)
class Convolution:
    """Channels in and out, the image's side, the filter's, stride and padding."""

    c: int
    f: int
    side: int
    filter: int
    stride: int = 1
    padding: int = 0


class Pool(NamedTuple):
    """Channels, the image's side, the window's, stride and padding."""

    c: int
    side: int
    window: int
    stride: int
    padding: int = 0


class Vision(NamedTuple):
    source: str
    layers: tuple[Convolution, ...]
    pools: tuple[Pool, ...] = ()


class Graph(NamedTuple):
    """Nodes and directed edges of a data set, or of a batch of average graphs, and how many numbers
    a node has: its features', or those that a small network makes of them."""

    source: str
    nodes: int
    edges: int
    features: int


#: Decoders: any number of tokens, and a vocabulary to choose from.
DECODERS = (
    Language("meta-llama/Llama-3.2-1B", 2048, 32, 8, 64, 8192, 128256),
    Language("meta-llama/Llama-3.2-3B", 3072, 24, 8, 128, 8192, 128256),
    Language("meta-llama/Llama-3.1-8B", 4096, 32, 8, 128, 14336, 128256),
    Language("meta-llama/Llama-3.1-70B", 8192, 64, 8, 128, 28672, 128256),
    Language("meta-llama/Llama-4-Scout-17B-16E", 5120, 40, 8, 128, 8192, 202048, 16, 1),
    Language("mistralai/Mistral-7B-v0.3", 4096, 32, 8, 128, 14336, 32768),
    Language("mistralai/Mistral-Nemo-Base-2407", 5120, 32, 8, 128, 14336, 131072),
    Language("mistralai/Mistral-Small-24B-Base-2501", 5120, 32, 8, 128, 32768, 131072),
    Language("mistralai/Mixtral-8x7B-v0.1", 4096, 32, 8, 128, 14336, 32000, 8, 2),
    Language("Qwen/Qwen2.5-0.5B", 896, 14, 2, 64, 4864, 151936),
    Language("Qwen/Qwen2.5-7B", 3584, 28, 4, 128, 18944, 152064),
    Language("Qwen/Qwen2.5-72B", 8192, 64, 8, 128, 29568, 152064),
    Language("Qwen/Qwen3-0.6B", 1024, 16, 8, 128, 3072, 151936, head_norm=True),
    Language("Qwen/Qwen3-8B", 4096, 32, 8, 128, 12288, 151936, head_norm=True),
    Language("Qwen/Qwen3-32B", 5120, 64, 8, 128, 25600, 151936, head_norm=True),
    Language("Qwen/Qwen3-30B-A3B", 2048, 32, 4, 128, 768, 151936, 128, 8, head_norm=True),
    Language("Qwen/Qwen3-235B-A22B", 4096, 64, 4, 128, 1536, 151936, 128, 8, head_norm=True),
    Language(
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        2048,
        16,
        2,
        256,
        512,
        151936,
        512,
        10,
        head_norm=True,
        rotary=64,
    ),
    Language(
        "deepseek-ai/DeepSeek-V2-Lite",
        2048,
        16,
        16,
        128,
        1408,
        102400,
        64,
        6,
        rotary=64,
        latent=True,
    ),
    Language(
        "deepseek-ai/DeepSeek-V3", 7168, 128, 128, 128, 2048, 129280, 256, 8, rotary=64, latent=True
    ),
    Language(
        "moonshotai/Kimi-K2-Base", 7168, 64, 64, 128, 2048, 163840, 384, 8, rotary=64, latent=True
    ),
    Language("zai-org/GLM-4.5", 5120, 96, 8, 128, 1536, 151552, 160, 8, head_norm=True, rotary=64),
    Language("openai/gpt-oss-20b", 2880, 64, 8, 64, 2880, 201088, 32, 4),
    Language("openai/gpt-oss-120b", 2880, 64, 8, 64, 2880, 201088, 128, 4),
    Language("google/gemma-2-2b", 2304, 8, 4, 256, 9216, 256000),
    Language("google/gemma-2-9b", 3584, 16, 8, 256, 14336, 256000),
    Language("google/gemma-3-1b-pt", 1152, 4, 1, 256, 6912, 262144, head_norm=True),
    Language("microsoft/Phi-3-mini-4k-instruct", 3072, 32, 32, 96, 8192, 32064),
    Language("microsoft/phi-4", 5120, 40, 10, 128, 17920, 100352),
    Language("allenai/OLMo-2-1124-7B", 4096, 32, 32, 128, 11008, 100352),
    Language("allenai/OLMoE-1B-7B-0924", 2048, 16, 16, 128, 1024, 50304, 64, 8),
    Language("HuggingFaceTB/SmolLM2-135M", 576, 9, 3, 64, 1536, 49152),
    Language("HuggingFaceTB/SmolLM2-1.7B", 2048, 32, 32, 64, 8192, 49152),
    Language("01-ai/Yi-34B", 7168, 56, 8, 128, 20480, 64000),
    Language("EleutherAI/pythia-1.4b", 2048, 16, 16, 128, 8192, 50304, gated=False, rotary=32),
    Language("openai-community/gpt2", 768, 12, 12, 64, 3072, 50257, gated=False, rotary=0),
    Language("openai-community/gpt2-xl", 1600, 25, 25, 64, 6400, 50257, gated=False, rotary=0),
)

#: Encoders, and decoders of encoders: a few sentences, a stretch of sound or an image.
ENCODERS = (
    Language(
        "google-bert/bert-base-uncased", 768, 12, 12, 64, 3072, 30522, gated=False, at_once=512
    ),
    Language(
        "FacebookAI/xlm-roberta-large", 1024, 16, 16, 64, 4096, 250002, gated=False, at_once=512
    ),
    Language(
        "sentence-transformers/all-MiniLM-L6-v2",
        384,
        12,
        12,
        32,
        1536,
        30522,
        gated=False,
        at_once=256,
    ),
    Language("answerdotai/ModernBERT-base", 768, 12, 12, 64, 1152, 50368, at_once=8192),
    Language("google-t5/t5-base", 768, 12, 12, 64, 3072, 32128, gated=False, at_once=512),
    Language("openai/whisper-large-v3", 1280, 20, 20, 64, 5120, 51866, gated=False, at_once=1500),
    Language(
        "openai/clip-vit-large-patch14", 768, 12, 12, 64, 3072, 49408, gated=False, at_once=77
    ),
    Language("google/vit-base-patch16-224", 768, 12, 12, 64, 3072, 0, gated=False, at_once=197),
    Language("facebook/deit-small-patch16-224", 384, 6, 6, 64, 1536, 0, gated=False, at_once=197),
    Language("facebook/dinov2-large", 1024, 16, 16, 64, 4096, 0, gated=False, at_once=257),
    Language(
        "google/siglip-so400m-patch14-384", 1152, 16, 16, 72, 4304, 0, gated=False, at_once=729
    ),
    Language("facebook/sam-vit-huge", 1280, 16, 16, 80, 5120, 0, gated=False, at_once=4096),
    Language("facebook/DiT-XL-2-256", 1152, 16, 16, 72, 4608, 0, gated=False, at_once=256),
    Language(
        "black-forest-labs/FLUX.1-dev", 3072, 24, 24, 128, 12288, 0, gated=False, at_once=4096
    ),
)

VISION = (
    Vision(
        "torchvision resnet18",
        (
            Convolution(3, 64, 224, 7, 2, 3),
            Convolution(64, 64, 56, 3, 1, 1),
            Convolution(64, 128, 56, 3, 2, 1),
            Convolution(64, 128, 56, 1, 2),
            Convolution(128, 128, 28, 3, 1, 1),
            Convolution(256, 256, 14, 3, 1, 1),
            Convolution(512, 512, 7, 3, 1, 1),
        ),
        (Pool(64, 112, 3, 2, 1),),
    ),
    Vision(
        "torchvision resnet50",
        (
            Convolution(64, 256, 56, 1),
            Convolution(256, 64, 56, 1),
            Convolution(256, 512, 56, 1, 2),
            Convolution(512, 128, 28, 1),
            Convolution(128, 512, 28, 1),
            Convolution(256, 1024, 14, 1),
            Convolution(1024, 256, 14, 1),
            Convolution(1024, 2048, 14, 1, 2),
            Convolution(2048, 512, 7, 1),
            Convolution(512, 2048, 7, 1),
        ),
        (Pool(64, 112, 3, 2, 1),),
    ),
    Vision(
        "torchvision vgg16",
        (
            Convolution(3, 64, 224, 3, 1, 1),
            Convolution(64, 128, 112, 3, 1, 1),
            Convolution(128, 256, 56, 3, 1, 1),
            Convolution(512, 512, 28, 3, 1, 1),
            Convolution(512, 512, 14, 3, 1, 1),
        ),
        (
            Pool(64, 224, 2, 2),
            Pool(128, 112, 2, 2),
            Pool(256, 56, 2, 2),
            Pool(512, 28, 2, 2),
            Pool(512, 14, 2, 2),
        ),
    ),
    Vision(
        "torchvision alexnet",
        (
            Convolution(3, 64, 224, 11, 4, 2),
            Convolution(64, 192, 27, 5, 1, 2),
            Convolution(192, 384, 13, 3, 1, 1),
        ),
        (Pool(64, 55, 3, 2), Pool(192, 27, 3, 2), Pool(256, 13, 3, 2)),
    ),
    Vision(
        "torchvision convnext_tiny",
        (
            Convolution(3, 96, 224, 4, 4),
            Convolution(96, 192, 56, 2, 2),
            Convolution(192, 384, 28, 2, 2),
            Convolution(384, 768, 14, 2, 2),
        ),
    ),
    Vision(
        "torchvision efficientnet_b0",
        (
            Convolution(3, 32, 224, 3, 2, 1),
            Convolution(96, 24, 56, 1),
            Convolution(40, 240, 28, 1),
            Convolution(480, 112, 14, 1),
            Convolution(672, 192, 7, 1),
            Convolution(192, 1152, 7, 1),
            Convolution(320, 1280, 7, 1),
        ),
    ),
    Vision(
        "torchvision mobilenet_v2",
        (
            Convolution(32, 16, 112, 1),
            Convolution(16, 96, 112, 1),
            Convolution(144, 32, 28, 1),
            Convolution(96, 576, 14, 1),
            Convolution(960, 160, 7, 1),
        ),
    ),
    Vision(
        "stable-diffusion-v1-5/stable-diffusion-v1-5 (UNet)",
        (
            Convolution(4, 320, 64, 3, 1, 1),
            Convolution(320, 320, 64, 3, 1, 1),
            Convolution(320, 320, 64, 1),
            Convolution(640, 640, 32, 3, 1, 1),
            Convolution(1280, 1280, 16, 3, 1, 1),
            Convolution(1280, 1280, 8, 3, 1, 1),
            Convolution(2560, 1280, 8, 3, 1, 1),
            Convolution(640, 640, 32, 3, 2, 1),
        ),
    ),
    Vision(
        "stabilityai/sdxl-vae (decoder)",
        (
            Convolution(4, 512, 128, 3, 1, 1),
            Convolution(512, 512, 128, 3, 1, 1),
            Convolution(128, 3, 1024, 3, 1, 1),
        ),
    ),
    Vision(
        "Ultralytics YOLOv8n",
        (
            Convolution(3, 16, 640, 3, 2, 1),
            Convolution(32, 32, 160, 1),
            Convolution(64, 64, 40, 3, 1, 1),
            Convolution(128, 256, 40, 3, 2, 1),
            Convolution(256, 256, 20, 1),
        ),
        (Pool(128, 20, 5, 1, 2),),
    ),
    Vision("google/vit-base-patch16-224 (patches)", (Convolution(3, 768, 224, 16, 16),)),
)

GRAPHS = (
    Graph("Planetoid Cora", 2708, 10556, 16),
    Graph("Planetoid CiteSeer", 3327, 9104, 64),
    Graph("Planetoid PubMed", 19717, 88648, 64),
    Graph("ogbn-arxiv", 169343, 1166243, 128),
    Graph("PPI", 2245, 61318, 256),
    Graph("ZINC, 128 molecules", 2970, 6374, 64),
    Graph("QM9, 96 molecules", 1728, 3581, 128),
)
