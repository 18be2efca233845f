#!/bin/sh
# Builds the static program for another machine and prints its path: cross.sh MACHINE, as Rust calls it (aarch64).
# Needs Rust's standard library for it, and its gcc with a C library. Exit code 75: there is none, and nothing was built.
#
# PROFILE  of cargo; release
set -eu
machine=$1 target=$1-unknown-linux-gnu gcc=$1-linux-gnu-gcc profile=${PROFILE:-release}
cargo=${CARGO:-cargo}
cd "$(dirname "$0")/../.."

skip() {
    echo "SKIP: 1 machine skipped: nothing was made for $machine: $1" >&2
    exit 75
}

[ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ] || skip "Rust has no library for it (rustup target add $target)"
command -v "$gcc" > /dev/null || skip "there is no $gcc (apt-get install gcc-$machine-linux-gnu libc6-dev-arm64-cross)"
name=$(echo "$target" | tr - _)
export "CARGO_TARGET_$(echo "$name" | tr '[:lower:]' '[:upper:]')_LINKER=$gcc" "CC_$name=$gcc" "AR_$name=$machine-linux-gnu-ar"
case "${RUSTFLAGS:-}" in
*crt-static*) ;;
*) export RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" ;;
esac
"$cargo" build --profile "$profile" --package trellis --target "$target" >&2
echo "${CARGO_TARGET_DIR:-$PWD/target}/$target/$profile/trellis"
