#!/bin/sh
# Makes images FROM scratch with a program that is already built. Needs buildah or podman, and no registry.
#
#   deploy/images/build.sh [ROLE...]        operator superlink supernode; all of them if none is named
#
# TRELLIS_BIN  the program, static (make release); target/release/trellis
# REPOSITORY   before the names of images, as registry.example.org/team/
# TAG          of the images; the version of the program
# CA_BUNDLE    public authorities; /etc/ssl/certs/ca-certificates.crt where it is there, `none` for none
# BUILDER      `buildah` or `podman`
# SOURCE_DATE_EPOCH  the time of all files; the same program gives the same image, by either builder
set -eu
here=$(cd "$(dirname "$0")" && pwd)
program=${TRELLIS_BIN:-$here/../../target/release/trellis}
usual=/etc/ssl/certs/ca-certificates.crt
bundle=${CA_BUNDLE:-$([ -f "$usual" ] && echo "$usual" || echo none)}
[ "$bundle" != none ] || bundle=

fail() {
    echo "build.sh: $1" >&2
    exit 1
}

[ -x "$program" ] || fail "there is no program at $program: build it (make release), or set TRELLIS_BIN"
if readelf --program-headers "$program" 2> /dev/null | grep -q INTERP; then
    fail "$program is not static: it would not start in an image that has nothing else (make release, with libc.a of the system)"
fi
builder=${BUILDER:-$(command -v buildah || command -v podman || true)}
[ -n "$builder" ] || fail "neither buildah nor podman is here"
tag=${TAG:-$("$program" --version | cut -d ' ' -f 2)}
[ $# -gt 0 ] || set -- operator superlink supernode

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
strip -o "$context/trellis" "$program" 2> /dev/null || cp "$program" "$context/trellis"
"$here/tree.sh" "$context/trellis" "$context/tree" "$bundle"
rm "$context/trellis"

for role in "$@"; do
    [ -f "$here/$role.Dockerfile" ] || fail "there is no image $role: operator, superlink or supernode"
    # The last stage, with the files from here in place of those of the stage before.
    sed -n '/^FROM scratch$/,$p' "$here/$role.Dockerfile" | sed 's|--from=build \(--chown=[^ ]* \)\{0,1\}/tree/|\1tree/|' > "$context/$role"
    "$builder" build --file "$context/$role" --format oci --layers=false --timestamp "${SOURCE_DATE_EPOCH:-0}" --identity-label=false \
        --label org.opencontainers.image.title="trellis-$role" --label org.opencontainers.image.version="$tag" \
        --tag "${REPOSITORY:-}trellis-$role:$tag" "$context"
done
