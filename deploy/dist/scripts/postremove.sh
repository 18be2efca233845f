#!/bin/sh
# After a removal. Data, settings and the user stay until dpkg says `purge`; rpm has no such word.
set -e
case "$1" in
purge)
    rm -rf /etc/trellis /var/lib/trellis
    if getent passwd trellis > /dev/null; then
        userdel trellis
    fi
    ;;
esac
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
