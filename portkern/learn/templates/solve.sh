#!/bin/bash
set -eu
cp "$$(dirname "$$0")/$answer" "$${WORK:-/workdir}/$answer"
