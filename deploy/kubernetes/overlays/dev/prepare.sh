#!/usr/bin/env bash
# Run this script before `kubectl apply -k`. The script writes a copy of the demo survey (or of the given survey file) that
# starts now, with steps of one minute, into surveys/demo.toml. The script needs the command `ldpstream`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
ldpstream rehearse "${1:-../../../../surveys/samples/demo.toml}" surveys/demo.toml --step-seconds 60
