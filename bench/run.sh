#!/bin/sh
# Measures the original SuperLinks and ours side by side and prints a table for each transport. Arguments go to
# trellis-bench:
#   bench/run.sh                                   everything (about 35 minutes)
#   bench/run.sh --transport http                  the part over HTTP only (about 15 minutes)
#   bench/run.sh --quick                           a short form (about 8 minutes)
#   bench/run.sh --write docs/performance.md       and keep the result
# Official Flower 1.25 and 1.42 are installed into the test cache, unless FLWR_GRPC_VENV and FLWR_HTTP_VENV say where
# they are.
set -eu
cd "$(dirname "$0")/.."

grpc_venv=${FLWR_GRPC_VENV:-}
http_venv=${FLWR_HTTP_VENV:-}
[ -n "$grpc_venv" ] || grpc_venv=$("${PYTHON:-python3}" tests/provision.py 1.25)
[ -n "$http_venv" ] || http_venv=$("${PYTHON:-python3}" tests/provision.py 1.42)

cargo build --release --quiet -p trellis -p trellis-bench
release=${CARGO_TARGET_DIR:-target}/release
exec "$release/trellis-bench" "$@" --grpc-venv "$grpc_venv" --http-venv "$http_venv" --trellis "$release/trellis"
