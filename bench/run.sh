#!/bin/sh
# Measures the original SuperLink and ours side by side and prints one table. Arguments go to trellis-bench:
#   bench/run.sh                                   everything (about 25 minutes)
#   bench/run.sh all --quick                       a short form (about 4 minutes)
#   bench/run.sh all --write docs/performance.md   and keep the result
# Needs a virtual environment with flwr==1.25.0; FLWR_VENV says where.
set -eu
cd "$(dirname "$0")/.."

venv=${FLWR_VENV:-$HOME/.cache/trellis-test/flwr-1.25}
if [ ! -x "$venv/bin/flower-superlink" ]; then
    echo "bench/run.sh: no flower-superlink in $venv; make a virtual environment with flwr==1.25.0 and set FLWR_VENV" >&2
    exit 1
fi

# 10,000 nodes are 10,000 connections, for the generator as for the server.
ulimit -n "$(ulimit -Hn)"

cargo build --release --quiet -p trellis -p trellis-bench
[ $# -gt 0 ] || set -- all
exec target/release/trellis-bench "$@" --official-venv "$venv" --trellis target/release/trellis
