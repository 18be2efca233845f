//! Server-sent events as they come. Knows the form of the stream, and of its content only that it is an [`Event`].

use std::collections::VecDeque;
use std::time::Duration;

use trellis_client::Trickle;

use super::error::CallError;
use crate::Event;

/// Servers say that they are still there every 15 s.
pub(super) const SILENCE: Duration = Duration::from_secs(60);
/// Far more than an event with a thousand nodes takes.
const MAX_LINE_BYTES: usize = 16 << 20;

/// What changes, in the order in which it did. Ends with the server, or when it no longer lets us listen.
pub struct Events {
    trickle: Trickle,
    lines: Lines,
    ready: VecDeque<Event>,
}

impl Events {
    pub(super) fn new(trickle: Trickle) -> Events {
        Events { trickle, lines: Lines::default(), ready: VecDeque::new() }
    }

    /// The next one; `None`: the server ended the stream. May be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Event>, CallError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(piece) = self.trickle.next().await? else { return Ok(None) };
            self.ready.extend(self.lines.take(&piece));
        }
    }
}

/// Pieces of a stream become events: `data:` lines up to an empty one.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
    data: String,
}

impl Lines {
    /// Events that this piece completes. What a newer server tells and we do not understand is left out.
    fn take(&mut self, piece: &[u8]) -> Vec<Event> {
        self.rest.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            match line.trim_end_matches(['\r', '\n']) {
                "" => events.extend(serde_json::from_str(&std::mem::take(&mut self.data)).ok()),
                line => {
                    if let Some(data) = line.strip_prefix("data:") {
                        self.data += data.strip_prefix(' ').unwrap_or(data);
                    }
                }
            }
        }
        if self.rest.len() > MAX_LINE_BYTES {
            self.rest.clear();
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_however_the_stream_is_cut() {
        let stream = concat!(
            ": still here\n\n",
            "event: resync\ndata: {\"kind\":\"resync\"}\n\n",
            "event: later\r\ndata: {\"kind\":\"of-a-newer-server\"}\r\n\r\n",
            "event: gone\ndata:{\"kind\":\"gone\",\ndata:\"federation\":\"lab\"}\n\n",
            "data: {\"kind\":\"res",
        );
        let expected = [Event::Resync, Event::Gone { federation: "lab".to_owned() }];
        for size in [1, 2, 7, stream.len()] {
            let mut lines = Lines::default();
            let events: Vec<Event> = stream.as_bytes().chunks(size).flat_map(|piece| lines.take(piece)).collect();
            assert_eq!(events, expected, "{size}");
        }
    }
}
