#!/bin/sh
# The files of our images, from a static program: tree.sh PROGRAM DIRECTORY [CA_BUNDLE]
# DIRECTORY/root is for /, DIRECTORY/state, which belongs to whoever the program runs as, for /var/lib.
# Used by the Dockerfiles and by build.sh, so that both make the same image.
set -eu
program=$1 tree=$2/root state=$2/state/trellis bundle=${3:-}

mkdir -p "$tree/usr/bin" "$tree/etc/ssl/certs" "$tree/tmp" "$tree/var/lib" "$state"
install -m 0755 "$program" "$tree/usr/bin/trellis"
# By these names it behaves as Flower's programs, and as a plugin of kubectl.
for name in flower-superlink flower-supernode kubectl-trellis; do
    ln -s trellis "$tree/usr/bin/$name"
done
# Some programs want a name for whoever they run as.
echo 'trellis:x:65532:65532:trellis:/var/lib/trellis:/sbin/nologin' > "$tree/etc/passwd"
echo 'trellis:x:65532:' > "$tree/etc/group"
# For peers with certificates of public authorities; those of a federation come with it.
if [ -n "$bundle" ]; then
    install -m 0644 "$bundle" "$tree/etc/ssl/certs/ca-certificates.crt"
fi
chmod 0755 "$tree" "$tree/usr" "$tree/usr/bin" "$tree/etc" "$tree/etc/ssl" "$tree/etc/ssl/certs" "$tree/var" "$tree/var/lib"
chmod 0644 "$tree/etc/passwd" "$tree/etc/group"
chmod 1777 "$tree/tmp"
# The group of a volume may differ from ours: whoever mounts one sets fsGroup.
chmod 0770 "$state"
