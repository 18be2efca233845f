//! The store: queues jobs for the writer thread, and gives readers the published tables.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use trellis_core::port::objects::Objects;
use trellis_core::port::{Commit, Job, OnCommit, Read, Store, crash};
use trellis_core::refusal::{Kind, Refusal};

use crate::objects::{Contents, MemoryObjects};
use crate::table::Tables;

/// Maximum number of jobs published together.
const MAX_BATCH: usize = 256;
/// Publication waits this long for readers of the previous version. After that, it copies all tables.
const READER_TIMEOUT: Duration = Duration::from_millis(1);

type Published = Arc<Mutex<Arc<Tables>>>;

pub struct MemoryStore {
    jobs: Option<Sender<Box<dyn Job>>>,
    writer: Option<JoinHandle<()>>,
    published: Published,
    objects: MemoryObjects,
    waiting: Arc<AtomicU64>,
}

impl MemoryStore {
    /// Opens an empty store. `max_object_bytes` limits the content that is too large for a row.
    pub fn open(max_object_bytes: u64, on_commit: OnCommit) -> std::io::Result<MemoryStore> {
        let (jobs, queue) = channel();
        let (published, waiting) = (Published::default(), Arc::default());
        let contents = Arc::new(Contents::new(max_object_bytes));
        let writer = Writer {
            tables: Tables::default(),
            queue,
            published: Arc::clone(&published),
            contents: Arc::clone(&contents),
            waiting: Arc::clone(&waiting),
            on_commit,
        };
        let writer = std::thread::Builder::new().name("store-writer".into()).spawn(move || writer.run())?;
        let (jobs, writer) = (Some(jobs), Some(writer));
        Ok(MemoryStore { jobs, writer, published, objects: MemoryObjects(contents), waiting })
    }
}

impl Store for MemoryStore {
    fn submit(&self, job: Box<dyn Job>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let jobs = self.jobs.as_ref().expect("taken only on drop");
        if let Err(unsent) = jobs.send(job) {
            unsent.0.done(Err(Refusal::new(Kind::Transient, "The SuperLink cannot use its state.")));
        }
    }

    fn submit_deferred(&self, job: Box<dyn Job>) {
        self.submit(job);
    }

    fn read(&self, question: &mut dyn FnMut(&dyn Read) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let tables = Arc::clone(&self.published.lock().expect("no holder panics"));
        question(&*tables)
    }

    fn objects(&self) -> &dyn Objects {
        &self.objects
    }

    fn is_healthy(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| !writer.is_finished())
    }

    fn queue_length(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

struct Writer {
    tables: Tables,
    queue: Receiver<Box<dyn Job>>,
    published: Published,
    contents: Arc<Contents>,
    waiting: Arc<AtomicU64>,
    on_commit: OnCommit,
}

impl Writer {
    /// Runs until all senders are dropped.
    fn run(mut self) {
        while let Ok(first) = self.queue.recv() {
            let begun = Instant::now();
            let mut batch = vec![first];
            self.run_last(&mut batch);
            while batch.len() < MAX_BATCH
                && let Ok(job) = self.queue.try_recv()
            {
                batch.push(job);
                self.run_last(&mut batch);
            }
            crash::point("before-commit");
            self.publish();
            crash::point("after-commit");
            self.complete(batch, begun.elapsed());
        }
    }

    fn run_last(&mut self, batch: &mut [Box<dyn Job>]) {
        let (topics, removed) = (self.tables.topics.len(), self.tables.removed.len());
        let commits = batch.last_mut().is_some_and(|job| job.run(&mut self.tables));
        if commits {
            self.tables.commit();
        } else {
            self.tables.rollback();
            self.tables.topics.truncate(topics);
            self.tables.removed.truncate(removed);
        }
    }

    fn publish(&mut self) {
        let mut published = self.published.lock().expect("no holder panics");
        let until = Instant::now() + READER_TIMEOUT;
        // Reads are short, and no read begins while this thread holds the lock.
        while Arc::get_mut(&mut published).is_none() && Instant::now() < until {
            std::thread::yield_now();
        }
        self.tables.publish(Arc::make_mut(&mut published));
    }

    fn complete(&mut self, batch: Vec<Box<dyn Job>>, took: Duration) {
        let jobs = batch.len();
        self.waiting.fetch_sub(jobs as u64, Ordering::Relaxed);
        for job in batch {
            job.done(Ok(()));
        }
        let mut topics = std::mem::take(&mut self.tables.topics);
        topics.sort_unstable();
        topics.dedup();
        (self.on_commit)(&Commit { topics: &topics, jobs, took, succeeded: true });
        for name in std::mem::take(&mut self.tables.removed) {
            self.contents.remove(&name);
        }
    }
}
