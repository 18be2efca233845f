#!/bin/sh
# Before a removal, not before an upgrade: dpkg says `remove`, rpm 0.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
    # Federations outlive the server, but not the program.
    systemctl kill --signal=SIGTERM trellis-server.service 2> /dev/null || true
    systemctl disable --now trellis-superlink.service trellis-supernode.service trellis-server.service
fi
