//! The log file of a part, which is rotated when the program restarts, and logs that a SuperLink serves. A reader keeps a
//! position: the file, and the offset in it.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trellis_api::{LogPart, RunState};
use trellis_client::{Error, SuperLink};
use trellis_clock::now_s;
use trellis_plan::ResourceId;
use trellis_spec::Runtime;
use trellis_wire::call::{Call, LogText, ReadAppLog, ReadLog};

use super::Refusal;
use super::document::{invalid, wrong};
use super::runs::{self, WAIT_TIMEOUT};
use super::shared::Shared;
use super::superlink::{refusal, superlink};
use super::view::View;

/// Maximum size of a part of a log.
const MAX_PART_BYTES: u64 = 64 << 10;
/// Lines that are returned without a position.
const LAST_LINES: usize = 200;
/// Poll interval of a file that has not grown.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const REMOTE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// After the end of a run, nodes send the last output of their apps within this time.
const APP_LOG_DELAY_S: f64 = 5.0;

/// A file, by its inode, and the offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    inode: u64,
    offset: u64,
}

/// The log after a position; without one, its last lines. `wait`: waits for more, with a timeout.
pub async fn read(shared: &Shared, path: PathBuf, after: Option<&str>, wait: bool) -> Result<LogPart, Refusal> {
    let after = after.map(|text| Position::parse(text).ok_or_else(|| misplaced(text))).transpose()?;
    let until = tokio::time::Instant::now() + WAIT_TIMEOUT;
    loop {
        let from = path.clone();
        let read = tokio::task::spawn_blocking(move || read_now(&from, after)).await;
        let read = read.map_err(|error| error.to_string()).and_then(|read| read.map_err(|error| error.to_string()));
        let (text, place) = read.map_err(|error| Refusal::Broken(format!("{}: {error}", path.display())))?;
        if !wait || !text.is_empty() || tokio::time::Instant::now() >= until || shared.is_stopping() {
            return Ok(LogPart { text, next: place.to_string(), ended: false });
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = shared.stopped() => {}
        }
    }
}

/// The log of a SuperLink on another machine, which serves the end of its log. If it does not, the error describes where the log is.
pub async fn of_superlink(
    shared: &Shared,
    view: &View,
    id: &ResourceId,
    after: Option<&str>,
    wait: bool,
) -> Result<LogPart, Refusal> {
    let place = shared.sites.describe_log(view, id).await;
    let superlink = match superlink(&shared.sites, view) {
        Ok(superlink) if view.federation.as_ref().is_some_and(|it| it.runtime == Runtime::Trellis) => superlink,
        Ok(_) => return Err(Refusal::NotFound(place)),
        Err(refusal) => return Err(Refusal::NotNow(format!("{refusal}; {place}"))),
    };
    match poll(shared, &superlink, |after| ReadLog { after }, after, wait).await {
        // An older SuperLink.
        Err(error) if error.is_unknown_call() => Err(Refusal::NotFound(place)),
        Err(error) if error.may_pass() => Err(Refusal::NotNow(format!("{}; {place}", refusal(&error)))),
        Err(error) => Err(refusal(&error)),
        Ok(part) => Ok(LogPart { text: part.text, next: part.next, ended: false }),
    }
}

/// The output of ClientApps of a node in a run, which its SuperLink stores; without a position, from the beginning.
pub async fn of_apps(
    shared: &Shared,
    view: &View,
    run: &str,
    node: &str,
    after: Option<&str>,
    wait: bool,
) -> Result<LogPart, Refusal> {
    // The state is read before the log: what comes after a complete log is nothing.
    let run = runs::get(shared, view, run).await?;
    let node_id = node_id(view, node)?;
    let none = |why| Err(Refusal::NotFound(format!("the SuperLink of {} {why}", view.name)));
    if view.federation.as_ref().is_some_and(|federation| federation.runtime != Runtime::Trellis) {
        return none("is of Flower, which stores no output of ClientApps: see the logs of the node");
    }
    let superlink = superlink(&shared.sites, view)?;
    let call = |after| ReadAppLog { run_id: run.id.clone(), node_id: node_id.clone(), after };
    let is_late = |finished_at| now_s() > finished_at + APP_LOG_DELAY_S;
    let is_complete = run.state == RunState::Finished && run.finished_at.is_none_or(is_late);
    let part = match poll(shared, &superlink, call, after, wait && !is_complete).await {
        Err(error) if error.is_unknown_call() => return none("is too old to store output of ClientApps: update it"),
        part => part.map_err(|error| refusal(&error))?,
    };
    Ok(LogPart { ended: is_complete && part.text.is_empty(), text: part.text, next: part.next })
}

/// The id of a node by its name or id. An id may be of a node that left.
fn node_id(view: &View, node: &str) -> Result<String, Refusal> {
    let mut nodes = view.decided.iter().flat_map(|decided| decided.nodes.iter());
    match nodes.find(|known| known.name == node || known.id.as_deref() == Some(node)) {
        Some(known) => known.id.clone().ok_or_else(|| {
            Refusal::NotNow(format!("node {node} has not connected to the SuperLink of {} yet", view.name))
        }),
        None if node.parse::<u64>().is_ok() => Ok(node.to_owned()),
        None => Err(Refusal::NotFound(format!(
            "federation {0} has no node {node:?}; `trellis nodes {0}` lists its nodes",
            view.name
        ))),
    }
}

/// Asks a SuperLink for more of a log; with `wait` again and again, with a timeout.
async fn poll<C: Call<Answer = LogText>>(
    shared: &Shared,
    superlink: &SuperLink,
    call: impl Fn(Option<String>) -> C,
    after: Option<&str>,
    wait: bool,
) -> Result<LogText, Error> {
    let mut after = after.map(str::to_owned);
    let until = tokio::time::Instant::now() + WAIT_TIMEOUT;
    loop {
        let part = superlink.call(&call(after)).await?;
        if !wait || !part.text.is_empty() || tokio::time::Instant::now() >= until || shared.is_stopping() {
            return Ok(part);
        }
        after = Some(part.next);
        tokio::select! {
            () = tokio::time::sleep(REMOTE_POLL_INTERVAL) => {}
            () = shared.stopped() => {}
        }
    }
}

fn misplaced(text: &str) -> Refusal {
    let detail = wrong("after", format!("{text:?} is not a position in a log"), "use `next` of the part before");
    invalid("the log cannot be read there", vec![detail])
}

fn read_now(path: &Path, after: Option<Position>) -> io::Result<(String, Position)> {
    let nowhere = Position { inode: 0, offset: 0 };
    let mut current = match File::open(path) {
        Ok(file) => file,
        // The program has not been started yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((String::new(), after.unwrap_or(nowhere))),
        Err(error) => return Err(error),
    };
    let (inode, length) = (current.metadata()?.ino(), current.metadata()?.len());
    let Some(after) = after else { return last_lines(&mut current, inode, length) };
    if after.inode == inode {
        // A truncated file is read from its beginning.
        let offset = if after.offset <= length { after.offset } else { 0 };
        return read_at(&mut current, Position { inode, offset });
    }
    if let Some(mut earlier) = rotated(path, after.inode)? {
        let (text, place) = read_at(&mut earlier, after)?;
        if !text.is_empty() {
            return Ok((text, place));
        }
    }
    read_at(&mut current, Position { inode, offset: 0 })
}

/// The rotated file with this inode.
fn rotated(path: &Path, inode: u64) -> io::Result<Option<File>> {
    let Some(directory) = path.parent() else { return Ok(None) };
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.metadata()?.ino() == inode {
            return File::open(entry.path()).map(Some);
        }
    }
    Ok(None)
}

fn last_lines(file: &mut File, inode: u64, length: u64) -> io::Result<(String, Position)> {
    let (text, place) = read_at(file, Position { inode, offset: length.saturating_sub(MAX_PART_BYTES) })?;
    let begins = text.rmatch_indices('\n').map(|(index, _)| index + 1).filter(|begin| *begin < text.len());
    let begin = begins.take(LAST_LINES).last().unwrap_or(0);
    // With fewer lines, the first one is complete only if the file was read from its beginning.
    let few = text[begin..].lines().count() < LAST_LINES;
    let begin = if few && length <= MAX_PART_BYTES { 0 } else { begin };
    Ok((text[begin..].to_owned(), place))
}

fn read_at(file: &mut File, place: Position) -> io::Result<(String, Position)> {
    file.seek(SeekFrom::Start(place.offset))?;
    let mut bytes = Vec::new();
    file.take(MAX_PART_BYTES).read_to_end(&mut bytes)?;
    // An incomplete UTF-8 sequence at the end is read next time.
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    let place = Position { offset: place.offset + bytes.len() as u64, ..place };
    Ok((String::from_utf8_lossy(&bytes).into_owned(), place))
}

impl Position {
    fn parse(text: &str) -> Option<Position> {
        let (inode, offset) = text.split_once('-')?;
        Some(Position { inode: inode.parse().ok()?, offset: offset.parse().ok()? })
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.inode, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn append(path: &Path, text: &[u8]) {
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        file.write_all(text).unwrap();
    }

    #[test]
    fn a_log_is_followed_over_its_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let (text, place) = read_now(&path, None).unwrap();
        assert_eq!(text, "", "it has not been started yet");
        append(&path, b"one\n");
        let (text, place) = read_now(&path, Some(place)).unwrap();
        assert_eq!(text, "one\n");
        append(&path, "zw\u{f6}".as_bytes().split_last().unwrap().1);
        let (text, place) = read_now(&path, Some(place)).unwrap();
        assert_eq!(text, "zw", "half a letter waits for its other half");
        append(&path, b"\xb6lf\n");
        fs::rename(&path, directory.path().join("log.1")).unwrap();
        append(&path, b"three\n");
        let (text, place) = read_now(&path, Some(place)).unwrap();
        assert_eq!(text, "\u{f6}lf\n", "the rest of the file that was put aside");
        let (text, place) = read_now(&path, Some(place)).unwrap();
        assert_eq!(text, "three\n");
        assert_eq!(read_now(&path, Some(place)).unwrap(), (String::new(), place));
        assert_eq!(Position::parse(&place.to_string()), Some(place));
        assert!(Position::parse("../log").is_none());
    }

    #[test]
    fn the_last_lines_come_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        append(&path, b"first\nsecond");
        assert_eq!(read_now(&path, None).unwrap().0, "first\nsecond");
        let lines: String = (0..100_000).map(|line| format!("\n{line}")).collect();
        append(&path, lines.as_bytes());
        let (text, _) = read_now(&path, None).unwrap();
        assert_eq!((text.lines().count(), text.lines().last()), (LAST_LINES, Some("99999")));
        assert_eq!(text.lines().next(), Some("99800"));
    }
}
