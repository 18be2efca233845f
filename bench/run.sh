#!/bin/sh
# Measures the originals and ours side by side and prints the tables. There are five parts:
#   superlink   SuperLinks under the load generator trellis-bench, a table for each transport (about 35 minutes)
#   rounds      whole federations, official ones and ours, bench/rounds.py (about 20 minutes)
#   aggregate   FedAvg over many replies, official and ours, bench/aggregate.py (about 4 minutes)
#   platform    the control plane: `up`, memory at rest, reads of the API, bench/control_plane.py (about 3 minutes)
#   operator    the Kubernetes operator on a real API server, bench/kube_operator.py (about 5 minutes)
# Without `--part` all, if there are no other arguments than --quick and --write FILE; other arguments are those of a
# part, and of `superlink` unless another one is named first:
#   bench/run.sh                                   everything
#   bench/run.sh --part rounds                     one part
#   bench/run.sh --transport http                  the SuperLinks over HTTP only (about 15 minutes)
#   bench/run.sh --quick                           a short form
#   bench/run.sh --write docs/performance.md       and keep the result
# Official Flower 1.25 and 1.42 are installed into the test cache; for `superlink`, FLWR_GRPC_VENV and FLWR_HTTP_VENV
# may say where they are.
set -eu
cd "$(dirname "$0")/.."

part=
if [ "${1:-}" = --part ]; then
  part=${2:?"--part wants a name: superlink, rounds, aggregate, platform or operator"}
  shift 2
else
  expected=flag
  for word in "$@"; do
    case $expected$word in
      flag--write) expected=file ;;
      flag--quick | flag--write=* | file*) expected=flag ;;
      *) part=superlink ;;
    esac
  done
fi
case $part in
  "" | superlink | rounds | aggregate | platform | operator) ;;
  *) echo "bench/run.sh: there is no part $part; there are superlink, rounds, aggregate, platform and operator" >&2; exit 2 ;;
esac

release=${CARGO_TARGET_DIR:-target}/release
make --no-print-directory release
cargo build --release --quiet -p trellis-bench

measures() { [ -z "$part" ] || [ "$part" = "$1" ]; }

if measures superlink; then
  grpc_venv=${FLWR_GRPC_VENV:-}
  http_venv=${FLWR_HTTP_VENV:-}
  [ -n "$grpc_venv" ] || grpc_venv=$("${PYTHON:-python3}" tests/provision.py 1.25)
  [ -n "$http_venv" ] || http_venv=$("${PYTHON:-python3}" tests/provision.py 1.42)
  "$release/trellis-bench" "$@" --grpc-venv "$grpc_venv" --http-venv "$http_venv" --trellis "$release/trellis"
fi
if measures rounds; then
  test_python=$("${PYTHON:-python3}" tests/provision.py 1.25)/bin/python
  TRELLIS_BIN=$release/trellis "$test_python" bench/rounds.py "$@"
fi
if measures aggregate; then
  TRELLIS_BIN=$(realpath "$release/trellis") "${PYTHON:-python3}" bench/aggregate.py "$@"
fi
if measures platform; then
  TRELLIS_BIN=$(realpath "$release/trellis") "${PYTHON:-python3}" bench/control_plane.py "$@"
fi
if measures operator; then
  cargo build --quiet -p trellis-testing
  TRELLIS_BIN=$(realpath "$release/trellis") "${PYTHON:-python3}" bench/kube_operator.py "$@"
fi
