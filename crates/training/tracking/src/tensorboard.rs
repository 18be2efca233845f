//! TensorBoard event files: `DIR/RUN/events.out.tfevents.TIME.trellis`.
//!
//! The file of a run depends on the run alone: times come from its reports. A run that is tracked again writes the same bytes
//! to the same file, so points never appear twice.

mod event;
mod record;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use event::Event;

use crate::mlflow::Model;
use crate::point::Point;
use crate::run::RunFacts;
use crate::sink::{Failure, Sink};

/// A directory for runs.
#[derive(Debug)]
pub struct TensorBoard {
    directory: PathBuf,
    /// That of the run, once there is something to write.
    file: Option<Arc<Mutex<EventFile>>>,
}

impl TensorBoard {
    pub fn new(directory: impl Into<PathBuf>) -> TensorBoard {
        TensorBoard { directory: directory.into(), file: None }
    }

    /// Writes records, after those at the beginning of a file. A disk may hang: that must not hold up anything else.
    async fn write(&mut self, run: &RunFacts, events: impl IntoIterator<Item = Event>) -> Result<(), Failure> {
        let bytes: Vec<u8> = events.into_iter().flat_map(|event| record::framed(&event)).collect();
        let file = self.file.clone();
        let (directory, run) = (self.directory.join(&run.id), run.clone());
        let work = move || -> io::Result<Arc<Mutex<EventFile>>> {
            let file = match file {
                Some(file) => file,
                None => Arc::new(Mutex::new(EventFile::begin(&directory, &run)?)),
            };
            file.lock().unwrap_or_else(PoisonError::into_inner).append(&bytes)?;
            Ok(file)
        };
        let written = tokio::task::spawn_blocking(work).await.map_err(io::Error::other).and_then(|written| written);
        self.file = Some(written.map_err(|error| Failure::Passing(error.to_string()))?);
        Ok(())
    }
}

impl Sink for TensorBoard {
    const KIND: &'static str = "tensorboard";
    const TITLE: &'static str = "TensorBoard files in";
    const MAX_POINTS: usize = 10_000;
    const TAKES_MODELS: bool = false;

    fn place(&self) -> String {
        self.directory.display().to_string()
    }

    async fn deliver(&mut self, run: &RunFacts, points: &[Point]) -> Result<(), Failure> {
        self.write(run, points.iter().map(event::scalar)).await
    }

    async fn end(&mut self, run: &RunFacts) -> Result<(), Failure> {
        self.write(run, event::end(run)).await
    }

    async fn keep(&mut self, _: &RunFacts, _: &Model) -> Result<(), Failure> {
        Ok(())
    }
}

/// An event file, and where its last whole record ends.
#[derive(Debug)]
struct EventFile {
    file: File,
    end: u64,
}

impl EventFile {
    /// Begins the file of a run anew.
    fn begin(directory: &Path, run: &RunFacts) -> io::Result<EventFile> {
        fs::create_dir_all(directory)?;
        let path = directory.join(format!("events.out.tfevents.{:010}.trellis", run.submitted_at as u64));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        let mut file = EventFile { file, end: 0 };
        file.append(&record::framed(&event::begin(run)))?;
        Ok(file)
    }

    /// A write that failed may have left a part of a record, which would make all that follow unreadable.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(bytes)?;
        self.end += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Ended;

    fn run() -> RunFacts {
        let parameters = [("lr".to_owned(), 0.5.into()), ("strategy".to_owned(), "FedAvg".into())].into();
        let ended = Some(Ended { status: "completed".to_owned(), details: String::new(), at: 12.0 });
        RunFacts {
            id: "42".to_owned(),
            app: "a/b".to_owned(),
            parameters,
            submitted_at: 10.0,
            ended,
            ..Default::default()
        }
    }

    #[tokio::test]
    async fn a_run_that_is_tracked_again_writes_the_same_file() {
        let directory = tempfile::tempdir().unwrap();
        let points: Vec<Point> =
            (1..4).map(|step| Point { name: "train/loss".to_owned(), step, value: 0.5, at: 11.0 }).collect();
        let mut contents = Vec::new();
        for batches in [vec![&points[..]], vec![&points[..1], &points[1..]]] {
            let mut sink = TensorBoard::new(directory.path());
            for batch in batches {
                sink.deliver(&run(), batch).await.unwrap();
            }
            sink.end(&run()).await.unwrap();
            contents.push(fs::read(directory.path().join("42/events.out.tfevents.0000000010.trellis")).unwrap());
        }
        assert_eq!(contents[0], contents[1]);
        assert_eq!(fs::read_dir(directory.path().join("42")).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_written_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let failed = TensorBoard::new(&file).deliver(&run(), &[]).await;
        assert!(matches!(failed, Err(Failure::Passing(_))), "{failed:?}");
    }
}
