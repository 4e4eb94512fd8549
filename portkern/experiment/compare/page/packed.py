"""The part of a page that is compressed, and unpacked where it is looked at: samples and their
texts."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from portkern.agent.attempt import Status
from portkern.agent.llm.calls import ModelCall
from portkern.experiment.compare.page.exchange import Exchange, Exchanges
from portkern.experiment.compare.result import AskedPlace, ModelComparison
from portkern.experiment.compare.sample import Sample
from portkern.printable import printable
from portkern.records.record import Record
from portkern.report.page import Interned

if TYPE_CHECKING:
    from portkern.spec.json_types import Json, JsonObject

#: Characters of one prompt, reply or kernel, and of why a sample failed, that a page has. The rest
#: is in the sweep's folder.
MOST_TEXT: Final = 60_000
MOST_DETAIL: Final = 400
STATUSES: Final = tuple(Status)
EVIDENCE: Final = ("", "built", "emulated", "measured")


def packed(data: Json) -> str:
    """Gzipped JSON in base64, the same for the same data."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def number(value: float | None) -> float | None:
    """Four digits: more than a page shows."""
    return None if value is None else float(f"{value:.4g}")


def table(samples: Sequence[Sample], comparison: ModelComparison, ops: Sequence[str]) -> JsonObject:
    """A column for each thing that is known of the samples, in their order."""
    strings = Interned()
    models = {name: i for i, name in enumerate(comparison.models)}
    places = {place: i for i, place in enumerate(comparison.places)}
    numbers = {name: i for i, name in enumerate(ops)}
    columns: dict[str, list[Json]] = {
        "model": [models[s.model] for s in samples],
        "place": [places[AskedPlace(s.backend, s.target)] for s in samples],
        "op": [numbers[s.op] for s in samples],
        "dtype": [strings[s.dtype] for s in samples],
        "index": [s.index for s in samples],
        "status": [-1 if s.status is None else STATUSES.index(s.status) for s in samples],
        "evidence": [EVIDENCE.index(s.evidence) for s in samples],
        "speedup": [number(s.speedup) for s in samples],
        "efficiency": [number(s.efficiency) for s in samples],
        "us": [number(s.us) for s in samples],
        "heldout": [s.heldout for s in samples],
        "tokens_in": [s.tokens_in for s in samples],
        "tokens_out": [s.tokens_out for s in samples],
        "usd": [number(s.usd) for s in samples],
        "seconds": [number(s.seconds) for s in samples],
        "path": [printable(s.path) for s in samples],
    }
    for name in ("cheat", "donor", "device", "baseline"):
        columns[name] = [strings[getattr(s, name)] for s in samples]
    columns["detail"] = [strings[_short(s.detail, MOST_DETAIL)] for s in samples]
    return {**columns, "strings": strings.strings}


def texts(samples: Sequence[Sample], folder: Path, *, room: int, quoted: bool = True) -> JsonObject:
    """Prompts, replies, kernels and records by the sample's number, as many as ``room`` characters
    hold: of all tasks the first sample, then the second. Equal prompts are there once; where they
    are not ``quoted``, their lengths and digests are."""
    exchanges = Exchanges(folder)
    prompts: dict[str, int] = {}
    replies: dict[str, Json] = {}
    for place in sorted(range(len(samples)), key=lambda i: samples[i].index):
        exchange = exchanges.of(samples[place])
        if exchange is None:
            continue
        asked = [packed(_prompt(call, quoted=quoted)) for call in exchange.calls]
        new = [text for text in dict.fromkeys(asked) if text not in prompts]
        numbers = prompts | {text: len(prompts) + i for i, text in enumerate(new)}
        reply = packed(_answer(exchange, [numbers[text] for text in asked]))
        room -= len(reply) + sum(map(len, new)) + 20
        if room < 0:
            break
        prompts = numbers
        replies[str(place)] = reply
    return {"prompts": list(prompts), "samples": replies}


def _prompt(call: ModelCall, *, quoted: bool) -> Json:
    said = _short if quoted else _described
    return [[message.role, said(message.content)] for message in call.messages]


def _described(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"not in this page (prompts=false): {len(text)} characters, sha256 {digest}"


def _answer(exchange: Exchange, prompts: Sequence[int]) -> JsonObject:
    calls: list[Json] = [
        {"role": call.role, "prompt": prompt, "reply": _short(call.reply), "error": call.error}
        for call, prompt in zip(exchange.calls, prompts, strict=True)
    ]
    records: list[Json] = [_record(record) for record in exchange.records]
    return {"calls": calls, "source": _short(exchange.source), "records": records}


def _record(record: Record) -> JsonObject:
    faster = record.speedup.get("eager") if record.comparable else None
    return {
        "workload": printable(f"{record.workload.set}/{record.workload.name}"),
        "verdict": str(record.verdict),
        "evidence": str(record.evidence),
        "venue": printable(record.venue),
        "us": number(record.timing.median_us) if record.timing else None,
        "speedup": number(faster.value) if faster else None,
        "detail": _short(record.detail, MOST_DETAIL),
    }


def _short(text: str, most: int = MOST_TEXT) -> str:
    text = printable(text)
    return text if len(text) <= most else f"{text[:most]}\n… cut here; all is in the sweep's folder"
