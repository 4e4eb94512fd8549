"""A real browser, headless, that opens pages as a user would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
_OF_HOME = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "BREAKPAD_DUMP_LOCATION")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
)


needs_browser = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser on PATH: none of {', '.join(NAMES)}"
)


def browse(page: Path, *options: str, fragment: str = "") -> str:
    """Open the page as a user would; returns what the browser printed on stdout. It has a home of
    its own, as it writes there whatever its profile."""
    home = page.parent / "profile"
    url = page.as_uri() + (f"#{fragment}" if fragment else "")
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={home}", *options, url]
    own = {**os.environ, "HOME": str(home)} | dict.fromkeys(_OF_HOME, str(home))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=own
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not console, console  # an uncaught error, or something the page's policy refused
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def dom(page: Path, fragment: str = "") -> str:
    return browse(page, "--dump-dom", fragment=fragment)


def act(page: Path, script: str) -> str:
    """The body's ``data-result`` after ``script`` ran at the end of the page."""
    acted = page.with_name("acted.html")
    text = page.read_text(encoding="utf-8")
    run = f"<script>document.body.dataset.result = (() => {{ {script} }})();</script></body>"
    acted.write_text(text.replace("</body>", run), encoding="utf-8")
    found = re.search(r'data-result="([^"]*)"', dom(acted))
    assert found is not None
    return found[1]
