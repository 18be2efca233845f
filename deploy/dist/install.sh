#!/bin/sh
# Installs the files of this archive, or removes them again:
#
#   ./install.sh [--prefix DIR]        into /usr/local, or into ~/.local for a user who is not root
#   ./install.sh --uninstall [--prefix DIR]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local
[ "$(id -u)" -eq 0 ] || prefix=$HOME/.local
remove=

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

denied() {
    fail "no permission to write to $prefix: use sudo, or --prefix with a directory of yours"
}

while [ $# -gt 0 ]; do
    case "$1" in
    --prefix) [ $# -gt 1 ] || fail "--prefix needs a directory"; prefix=$2; shift ;;
    --uninstall) remove=yes ;;
    *) fail "unknown argument $1: the arguments are --prefix DIR and --uninstall" ;;
    esac
    shift
done

cd "$here"
# Only what the archive has, so that nothing else is touched, and directories that were made for it.
files=$(find bin share ! -type d | sort)
made=$prefix/share/doc/trellis/directories
if [ -n "$remove" ]; then
    directories=$(sort -r "$made" 2> /dev/null || true)
    for file in $files share/doc/trellis/directories; do
        rm -f "$prefix/$file" 2> /dev/null || fail "no permission to remove $prefix/$file: use sudo"
    done
    for directory in $directories; do
        rmdir "$prefix/$directory" 2> /dev/null || true
    done
    exit 0
fi
bin/trellis version > /dev/null 2>&1 || fail "bin/trellis does not start on this machine ($(uname -sm)): the archive is for another one"
new=
for directory in $(find bin share -type d | sort); do
    if [ ! -d "$prefix/$directory" ]; then
        mkdir -p "$prefix/$directory" 2> /dev/null || denied
        new="$new $directory"
    fi
done
[ -w "$prefix/bin" ] || denied
for directory in $new; do
    echo "$directory" >> "$made"
done
for file in $files; do
    # Beside the old file, and then in its place: a program that runs keeps its own.
    cp -P "$file" "$prefix/$file.new"
    mv -f "$prefix/$file.new" "$prefix/$file"
done
found=$(command -v trellis || true)
if [ -z "$found" ]; then
    echo "install.sh: $prefix/bin is not on PATH: add it, as in: export PATH=\"$prefix/bin:\$PATH\"" >&2
elif [ "$found" != "$prefix/bin/trellis" ]; then
    echo "install.sh: $found is another installation, which the shell finds first: remove it, or put $prefix/bin first on PATH" >&2
fi
