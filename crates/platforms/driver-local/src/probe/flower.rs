//! Probes of official programs. A SuperLink lists its runs. A SuperNode has no status call; it is connected once its log contains
//! its node id.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trellis_client::fleet::Transport;
use trellis_client::{Security, SuperLink, Target, Timeouts, Trust, announced_node};

use super::Report;

const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Python answers slower, especially on a machine that is busy with training.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Covers the output before the node is connected, including failed attempts to connect.
const MAX_SEARCHED_BYTES: u64 = 16 << 20;

/// `None` if the authorities cannot be read.
pub fn superlink(address: SocketAddr, transport: Transport, tls: bool, trust: Option<&Path>) -> Option<SuperLink> {
    let security = match (tls, trust) {
        (false, _) => Security::Plaintext,
        (true, Some(bundle)) => Security::Tls(Trust::bundle(bundle).ok()?),
        (true, None) => Security::Tls(Trust::system().ok()?),
    };
    let target = Target { host: address.ip().to_string(), port: address.port(), security, token: None };
    let timeouts = Timeouts { connect: CONNECT_TIMEOUT, answer: RESPONSE_TIMEOUT, retries: Vec::new() };
    Some(SuperLink::new(target).with_timeouts(timeouts).over(transport))
}

pub async fn probe_superlink(superlink: &SuperLink) -> Report {
    let Ok(runs) = superlink.list_runs(None).await else { return Report::default() };
    let is_over =
        |run: &trellis_wire::proto::Run| run.status.as_ref().is_some_and(|status| status.status == "finished");
    let at_work = runs.iter().filter(|run| !is_over(run)).count();
    let runs = u32::try_from(at_work).ok();
    Report { is_ready: true, busy: runs.map(|runs| runs > 0), runs, ..Report::default() }
}

/// `note` contains the path of the log, and the offset at which this start begins.
pub async fn probe_supernode(note: &Path) -> Report {
    let note = note.to_owned();
    let node_id = tokio::task::spawn_blocking(move || announced(&note).ok().flatten()).await.ok().flatten();
    Report { is_ready: node_id.is_some(), node_id, ..Report::default() }
}

fn announced(note: &Path) -> io::Result<Option<String>> {
    let note = std::fs::read_to_string(note)?;
    let mut lines = note.lines();
    let strange = || io::Error::other("the note about the log is incomplete");
    let from = lines.next().and_then(|from| from.parse().ok()).ok_or_else(strange)?;
    let path = lines.next().map(PathBuf::from).ok_or_else(strange)?;
    let mut log = File::open(path)?;
    log.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    log.take(MAX_SEARCHED_BYTES).read_to_end(&mut text)?;
    Ok(announced_node(&String::from_utf8_lossy(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_start_said_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let (log, note) = (directory.path().join("part.log"), directory.path().join("note"));
        let before = "SuperNode ID: 1\n";
        std::fs::write(&log, before).unwrap();
        assert!(announced(&note).is_err(), "nothing was noted yet");
        std::fs::write(&note, format!("{}\n{}\n", before.len(), log.display())).unwrap();
        assert_eq!(announced(&note).unwrap(), None);
        std::fs::write(&log, format!("{before}SuperNode ID: 2\n")).unwrap();
        assert_eq!(announced(&note).unwrap().as_deref(), Some("2"));
    }
}
