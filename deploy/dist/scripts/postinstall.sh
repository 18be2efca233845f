#!/bin/sh
# After an installation or an upgrade: dpkg says `configure`, rpm 1 or 2.
set -e
case "$1" in
configure | 1 | 2) ;;
*) exit 0 ;;
esac
if ! getent passwd trellis > /dev/null; then
    useradd --system --user-group --no-create-home --home-dir /var/lib/trellis --shell /usr/sbin/nologin trellis
fi
install -d -o trellis -g trellis -m 0750 /var/lib/trellis
# Keys and tokens may be here. Services read them.
chgrp trellis /etc/trellis
chmod 0750 /etc/trellis

first=$(PATH="/usr/local/sbin:/usr/local/bin:$PATH" command -v trellis || true)
# On some systems /bin is /usr/bin.
if [ -n "$first" ] && [ "$(readlink -f "$first")" != /usr/bin/trellis ]; then
    echo "trellis: $first is another installation, which shells find first: remove it (install.sh --uninstall of its archive, or pip uninstall trellis-fl), or call /usr/bin/trellis" >&2
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # Those that run take the new program. None is started by an installation: each needs settings first.
    systemctl try-restart trellis-superlink.service trellis-supernode.service trellis-server.service
else
    echo "trellis: no systemd runs here, so nothing keeps services running: start a program yourself, as in: setpriv --reuid trellis --regid trellis --clear-groups env HOME=/var/lib/trellis XDG_STATE_HOME=/var/lib trellis superlink --config /etc/trellis/superlink.toml" >&2
fi
