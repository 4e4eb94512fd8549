#!/bin/sh
# Finds a Python for tools/setup.py: $PYTHON, the one .venv already has, or the newest on PATH.
# python3 comes first: it is the one the user chose, and the one a local wheel was fetched for.
cd "$(dirname "$0")/.." || exit 1

for python in ${PYTHON:-.venv/bin/python python3 python3.13 python3.12 python3.11}; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        exec "$python" tools/setup.py "$@"
    fi
done
echo "setup: no Python 3.11 or newer in: ${PYTHON:-python3 python3.13 python3.12 python3.11};" \
    "name one with PYTHON=/path/to/python make setup" >&2
exit 3
