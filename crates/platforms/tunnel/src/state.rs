//! Parser for `wg show <interface> dump`: a line for the interface, and one for each peer, separated by tabs.

use crate::key::PublicKey;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub public_key: PublicKey,
    pub listen_port: u16,
    pub peers: Vec<PeerState>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerState {
    pub public_key: PublicKey,
    pub endpoint: Option<String>,
    pub allowed: Vec<String>,
    /// Seconds since 1970; `None` if there was no handshake.
    pub handshake_s: Option<u64>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// A peer without a handshake for this long is disconnected: active peers repeat it every two minutes.
const HANDSHAKE_LASTS_S: u64 = 180;

impl State {
    /// `None` if the text is not the output of `wg`.
    pub fn parse(dump: &str) -> Option<State> {
        let mut lines = dump.lines();
        let interface: Vec<&str> = lines.next()?.split('\t').collect();
        let [_, public_key, listen_port, _] = interface[..] else { return None };
        let peers = lines.map(PeerState::parse).collect::<Option<Vec<_>>>()?;
        Some(State { public_key: PublicKey::parse(public_key).ok()?, listen_port: listen_port.parse().ok()?, peers })
    }
}

impl PeerState {
    fn parse(line: &str) -> Option<PeerState> {
        let words: Vec<&str> = line.split('\t').collect();
        let [public_key, _, endpoint, allowed, handshake, received, sent, _] = words[..] else { return None };
        let known = |text: &str| (text != "(none)").then(|| text.to_owned());
        Some(PeerState {
            public_key: PublicKey::parse(public_key).ok()?,
            endpoint: known(endpoint),
            allowed: known(allowed).map(|all| all.split(',').map(str::to_owned).collect()).unwrap_or_default(),
            handshake_s: handshake.parse().ok().map(|seconds: u64| Some(seconds).filter(|seconds| *seconds > 0))?,
            received_bytes: received.parse().ok()?,
            sent_bytes: sent.parse().ok()?,
        })
    }

    /// Whether there was a recent handshake. A peer without keepalive may be silent although it works.
    pub fn is_heard(&self, now_s: u64) -> bool {
        self.handshake_s.is_some_and(|at_s| now_s.saturating_sub(at_s) <= HANDSHAKE_LASTS_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=";
    const OTHER: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";

    #[test]
    fn the_output_of_wg_is_parsed() {
        let dump = format!(
            "(hidden)\t{ONE}\t51820\toff\n\
             {OTHER}\t(none)\t198.51.100.7:51820\t10.66.0.2/32,10.10.11.0/24\t1700000000\t1234\t99\t25\n\
             {ONE}\t(none)\t(none)\t(none)\t0\t0\t0\toff\n"
        );
        let state = State::parse(&dump).unwrap();
        assert_eq!((state.listen_port, state.peers.len()), (51820, 2));
        let [heard, silent] = &state.peers[..] else { panic!("two") };
        assert_eq!(heard.allowed, ["10.66.0.2/32", "10.10.11.0/24"]);
        assert_eq!((heard.handshake_s, heard.received_bytes), (Some(1_700_000_000), 1234));
        assert!(heard.is_heard(1_700_000_100) && !heard.is_heard(1_700_000_181));
        assert_eq!((&silent.endpoint, silent.is_heard(1)), (&None, false));
        for strange in ["", "a\tb", &dump.replace("1234", "many"), &dump.replace('\t', " ")] {
            assert_eq!(State::parse(strange), None, "{strange:?}");
        }
    }
}
