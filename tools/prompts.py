"""Gives prompts that were changed a new version in the manifest: `python -m tools.prompts`."""

from __future__ import annotations

from pathlib import Path

from portkern.agent import prompts

MANIFEST = Path(prompts.__file__).with_name("manifest.yaml")


def main() -> None:
    known = prompts.manifest()
    lines = []
    for name in prompts.names():
        entry, digest = known.get(name, {"version": "0", "digest": ""}), prompts.digest(name)
        version = int(entry["version"]) + (entry["digest"] != digest)
        lines.append(f"{name}: {{version: {version}, digest: {digest}}}\n")
    MANIFEST.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
