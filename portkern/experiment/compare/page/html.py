"""``compare.html``: one file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from markupsafe import Markup

from portkern.experiment.compare.page import packed, words
from portkern.experiment.compare.page.payload import payload
from portkern.experiment.compare.result import ModelComparison
from portkern.experiment.compare.sample import Sample
from portkern.printable import printable
from portkern.report import page

PACKAGE: Final = "portkern.experiment.compare.page"
#: The most bytes of the whole page, and of the prompts and replies in it: what there is no room for
#: stays in the sweep's folder, which the page links to.
MOST_BYTES: Final = 10 << 20
MOST_TEXTS: Final = 4 << 20


def render(
    comparison: ModelComparison,
    samples: Sequence[Sample],
    folder: Path,
    *,
    title: str,
    facts: Mapping[str, str],
    prompts: bool = True,
) -> str:
    ops = sorted({sample.op for sample in samples})
    data = page.embeddable(payload(comparison, ops))
    rows = packed.packed(packed.table(samples, comparison, ops))
    room = MOST_BYTES - len(data.encode()) - len(rows) - (128 << 10)
    texts = packed.texts(samples, folder, room=min(room, MOST_TEXTS), quoted=prompts)
    script = [page.asset("dom.js"), page.asset("compare.js", PACKAGE)]
    return (
        page.templates(PACKAGE)
        .get_template("compare.html.j2")
        .render(
            title=printable(title),
            counts=words.counts(comparison),
            lead=words.lead(comparison),
            facts=facts,
            notes=comparison.notes,
            version=version("portkern"),
            style=page.asset("page.css") + page.asset("compare.css", PACKAGE),
            script=Markup("").join(script),
            data=data,
            samples=Markup(rows),
            texts=page.embeddable(texts),
        )
    )
