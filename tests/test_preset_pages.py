"""The pages of docs/presets/: what each says of its preset is what the configuration says, and what
a run on a scripted model does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.preset_pages import (
    MEASURED,
    NAMES,
    PAGES,
    Page,
    about,
    measured,
    ran,
    setting,
    settings,
)

SECTIONS = ["Publication", "The loop", "What ours is", "Differences", "Fidelity"]
#: Differences that every preset has: they are portkern's own, and no preset chooses them. One that
#: is exact differs in nothing else.
OURS = {"words of prompts", "evaluation", "target and language", "model"}


def test_pages_are_of_presets() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {*NAMES, "index"}


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_a_page_of_the_form(name: str) -> None:
    page = Page.of(name)
    assert list(page.sections) == SECTIONS
    assert page.title == f"# {about(name)['system']}"
    publication = page.sections["Publication"]
    assert re.search(r"\b20\d\d\b", publication) and "](https://" in publication
    sources = re.findall(r"\d{4}\.\d{5}|[\w.-]+\.\w+/[\w./-]+", about(name)["source"])
    assert [source for source in sources if source not in publication] == []
    loop = page.table("The loop", "step", "publication", "portkern")
    assert [row[0] for row in loop] == list("123456"[: len(loop)]) and len(loop) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_its_presets_fidelity_and_names_the_steps_that_it_is_lost_in(name: str) -> None:
    page, fidelity = Page.of(name), about(name)["fidelity"]
    assert page.sections["Fidelity"].strip().startswith(f"**{fidelity}**")
    steps = {row[0] for row in page.table("Differences", "step", "theirs", "ours", "why")}
    assert (steps <= OURS) == (fidelity == "exact"), steps - OURS


@pytest.mark.parametrize("name", NAMES)
def test_a_page_names_the_settings_that_its_preset_is_composed_of(name: str) -> None:
    told = Page.of(name).settings
    assert set(told) >= {*settings(name), *MEASURED}
    for path, text in told.items():
        if path not in MEASURED:
            assert yaml.safe_load(text) == setting(name, path), path


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_a_preset_runs_to_its_end_and_asks_what_its_page_says(name: str, tmp_path: Path) -> None:
    played = ran(name, tmp_path)
    attempts = played.run.meter.budget.attempts
    spent = f"{attempts} attempts were made, as many as budget.attempts allows"
    assert played.stopped in ("", spent)
    assert len(played.attempts) == 1 or any(attempt.correct for attempt in played.attempts)
    made = {attempt.id for attempt in played.attempts}
    assert all(set(attempt.parents) <= made for attempt in played.attempts)
    # Each call is some attempt's, and no call is counted twice.
    counted = [call for attempt in played.attempts for call in attempt.calls]
    assert sorted(counted) == sorted(call.id for call in played.calls)
    told, found = Page.of(name).settings, measured(played)
    assert told["requests"] == found["requests"]
    assert set(told["prompts"].split(", ")) == set(found["prompts"].split(", "))
