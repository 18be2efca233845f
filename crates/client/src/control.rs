//! Runs, as people start, follow and stop them: Flower's Control API, over HTTP; and as those take them who carry them out.
//! What is in a run is not known here.

use std::collections::HashMap;

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use prost::Message as _;
use trellis_wire::proto;

use crate::error::Error;
use crate::exchange::{Coming, failed};
use crate::superlink::SuperLink;
use crate::target::Token;

const CONTROL: &str = "control";
const STREAM_LOGS: &str = "stream-logs";
/// Far more than a SuperLink puts into one answer.
const MAX_FRAME_BYTES: usize = 16 << 20;
const LENGTH_BYTES: usize = 4;

impl SuperLink {
    /// Starts a run, and gives its id. The values replace those in the configuration of the app.
    pub async fn start_run(&self, fab: proto::Fab, values: HashMap<String, proto::Scalar>) -> Result<u64, Error> {
        let values = values.into_iter().collect();
        let question = proto::StartRunRequest { fab: Some(fab), override_config: values, ..Default::default() };
        let answer: proto::StartRunResponse = self.flower(CONTROL, "start-run", &question).await?;
        answer.run_id.ok_or_else(|| Error::Refused {
            endpoint: self.endpoint(),
            call: "start-run",
            status: 200,
            detail: "it started no run; its log says why".to_owned(),
        })
    }

    /// Stops a run that is not over yet.
    pub async fn stop_run(&self, run: u64) -> Result<(), Error> {
        let answer: proto::StopRunResponse =
            self.flower(CONTROL, "stop-run", &proto::StopRunRequest { run_id: run }).await?;
        match answer.success {
            true => Ok(()),
            false => Err(Error::Refused {
                endpoint: self.endpoint(),
                call: "stop-run",
                status: 200,
                detail: format!("run {run} could not be stopped"),
            }),
        }
    }

    /// The run with this id, or all of them.
    pub async fn list_runs(&self, run: Option<u64>) -> Result<Vec<proto::Run>, Error> {
        let question = proto::ListRunsRequest { run_id: run, ..Default::default() };
        let answer: proto::ListRunsResponse = self.flower(CONTROL, "list-runs", &question).await?;
        Ok(answer.run_dict.into_values().collect())
    }

    /// Takes a run whose ServerApp is of this kind, to carry it out. Held for a while until there is one.
    pub async fn acquire_task(&self, kind: &str) -> Result<Option<AcquiredTask>, Error> {
        let kinds = vec![kind.to_owned()];
        let question = proto::AcquireTaskRequest { supported_task_types: kinds, ..Default::default() };
        let answer: proto::AcquireTaskResponse = self.flower("runtime", "acquire-task", &question).await?;
        Ok(answer
            .task
            .zip(Token::parse(&answer.token).ok())
            .map(|(task, token)| AcquiredTask { run: task.run_id, token }))
    }

    /// Follows the log of a run, from after a moment on (0: from the beginning).
    pub async fn stream_logs(&self, run: u64, after: f64) -> Result<LogStream, Error> {
        let question = proto::StreamLogsRequest { run_id: run, after_timestamp: after };
        let coming = self.flower_stream(STREAM_LOGS, &question).await?;
        Ok(LogStream { superlink: self.clone(), coming, read: BytesMut::new() })
    }
}

/// A run that is ours to carry out.
#[derive(Debug, Clone)]
pub struct AcquiredTask {
    pub run: u64,
    /// With which its ServerApp proves itself.
    pub token: Token,
}

/// The log of a run as it grows. It ends with the run; and now and then before, and is then asked for again.
pub struct LogStream {
    superlink: SuperLink,
    coming: Coming,
    read: BytesMut,
}

/// A piece of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogPart {
    pub text: String,
    /// Of its last line; what comes after it is asked for with this.
    pub latest: f64,
}

impl LogStream {
    /// The next piece; `None`: this was all.
    pub async fn next(&mut self) -> Result<Option<LogPart>, Error> {
        loop {
            if let Some(frame) = self.frame()? {
                let part = proto::StreamLogsResponse::decode(frame.as_ref());
                let part = part.map_err(|error| self.unexpected(error.to_string()))?;
                return Ok(Some(LogPart { text: part.log_output, latest: part.latest_timestamp }));
            }
            match self.coming.body.frame().await {
                None if self.read.is_empty() => return Ok(None),
                None => return Err(self.unexpected("it ends in the middle".to_owned())),
                Some(Err(error)) => return Err(failed(self.superlink.target(), error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    /// The next frame, if all of it is here.
    fn frame(&mut self) -> Result<Option<BytesMut>, Error> {
        let Some(length) = self.read.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(self.unexpected(format!("a piece of {length} bytes")));
        }
        if self.read.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.read.advance(LENGTH_BYTES);
        Ok(Some(self.read.split_to(length)))
    }

    fn unexpected(&self, what: String) -> Error {
        Error::Unexpected { endpoint: self.superlink.endpoint(), call: STREAM_LOGS, status: 200, what }
    }
}
