//! Checks of how connections are kept alive.

use std::time::Duration;

use trellis_link::config::Keepalive;

use super::Checker;

const LONGEST_IDLE: Duration = Duration::from_secs(24 * 3600);

impl Checker<'_> {
    pub(super) fn connections(&mut self) -> Keepalive {
        let args = &self.raw.args.connections;
        let default = Keepalive::default();
        let (interval, timeout) = self.keepalive(
            args.keepalive_interval.as_deref(),
            args.keepalive_timeout.as_deref(),
            (default.interval, default.timeout),
        );
        let idle = self.duration("idle-timeout", args.idle_timeout.as_deref(), LONGEST_IDLE).unwrap_or(default.idle);
        Keepalive { interval, timeout, idle }
    }
}
