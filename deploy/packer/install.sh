#!/bin/sh
# Run by Packer in the machine: what `trellis image build` does to a tree, done to a system that runs.
set -eu

chmod 0755 /usr/bin/trellis
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2046 # one word for each package
apt-get install -q -y --no-install-recommends $(trellis image recipe "$ROLE" --framework "$FRAMEWORK" --packages)

if [ "$FRAMEWORK" != none ]; then
    python3 -m venv /opt/trellis/venv
    # shellcheck disable=SC2046 # one word for each requirement
    /opt/trellis/venv/bin/pip install --no-cache-dir \
        $(trellis image recipe "$ROLE" --framework "$FRAMEWORK" --flower-version "$FLOWER_VERSION" --requirements)
fi

trellis appliance install --role "$ROLE"
mkdir -p /etc/one-appliance/service.d
trellis appliance vars --role "$ROLE" -o shell > /etc/one-appliance/service.d/appliance.sh

# What belongs to one machine, and what is left of making it.
apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/*.log /root/.ssh /root/.bash_history /root/.cache /tmp/* /var/tmp/*
rm -f /etc/ssh/ssh_host_* /var/lib/dbus/machine-id /var/lib/systemd/random-seed
: > /etc/machine-id
sync
