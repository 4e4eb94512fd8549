"""The reward of the file that an agent left, from portkern's verdicts: nothing that it prints is
read. Usage: grade.py TESTS WORK LOGS. Without a verdict it ends with 1 and writes no reward."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from portkern.learn import rewards, turns
from portkern.records.record import Record, Verdict
from portkern.spec.foreign_text import json_value
from portkern.spec.safe_name import SafeName

MOST_BYTES = 1 << 20


def main(tests: Path, work: Path, logs: Path) -> int:
    asked = json_value((tests / "question.json").read_text(encoding="utf-8"))
    logs.mkdir(parents=True, exist_ok=True)
    reward = logs / "reward.json"
    reward.unlink(missing_ok=True)
    source = text_of(work / SafeName(asked["answer"]))
    if source is None:
        reward.write_text(json.dumps({"reward": 0.0, "built": 0.0, "correct": 0.0, "legal": 1.0}))
        return 0
    with tempfile.TemporaryDirectory() as box:
        own = Path(box, asked["answer"])
        own.write_text(source, encoding="utf-8")
        op, file = asked["op"], tests / SafeName(asked["op"])
        if file.is_file():
            for beside in (*tests.glob("*.op.yaml"), file):
                shutil.copy(beside, box)
            op = str(Path(box, file.name))
        told = {
            "op": op,
            "entry": asked["entry"],  # whatever the file is called by now
            "source": f"[{own}]",
            "backend": asked["backend"],
            "target": asked["target"],
            "workloads": f"[{','.join(asked['workloads'])}]",
            "dtypes": asked["dtype"],
            "timed": str(asked["timed"]).lower(),
            "reports": box,
            "json": "true",
        }
        words = [f"{name}={value}" for name, value in told.items()]
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "portkern.cli", "check", *words],
            cwd=box,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    try:
        records = [Record.model_validate(one) for one in json_value(ended.stdout)["records"]]
    except ValueError:
        sys.exit(ended.stderr.decode(errors="replace"))
    try:
        turn = turns.turn_of(records)
    except rewards.Unavailable as error:
        sys.exit(str(error))
    scores = {
        "reward": rewards.lawful(rewards.kevin, turn),
        "built": float(turn.verdict is not Verdict.BUILD_FAILED),
        "correct": float(turn.right),
        "legal": float(turn.verdict not in (Verdict.REJECTED, Verdict.SUSPICIOUS)),
    }
    reward.write_text(json.dumps(scores))
    return 0


def text_of(path: Path) -> str | None:
    """The text of a file; None for what is not a file of the agent's own, is too large, or is not
    text."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MOST_BYTES:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:4])))
