#!/usr/bin/env bash
# Run this before `kubectl apply -k`. It writes a copy of the demo survey (or of the given one) that starts now with steps
# of one minute, and writes the survey's consumer group and topic into scaling.yaml. It needs the command `ldpstream`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
ldpstream rehearse "${1:-../../../../surveys/samples/demo.toml}" survey.toml --step-seconds 60
bash ../../name_group.sh "$PWD"
