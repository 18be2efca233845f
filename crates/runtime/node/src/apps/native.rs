//! Runs apps in Rust: reads objects from their files for `trellis_native`, and stores those of the reply.

use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use tokio::sync::Semaphore;
use trellis_clock::now_s;
use trellis_native::{ClientApp, Handled, NotHandled, Stop, handle_message};
use trellis_wire::error_reply::ErrorCode;

use crate::app::{Job, Outcome, Reply};
use crate::objects::Objects;

/// Limits computing apps to the number of cores: more cost threads and memory in a process with hundreds of nodes.
static COMPUTING: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(1, NonZero::get)));

/// The app that the operator has configured for all runs.
pub struct NativeApps {
    app: Arc<dyn ClientApp>,
    objects: Objects,
}

/// Asks the app to stop when the instruction is cancelled.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl NativeApps {
    pub fn new(app: Box<dyn ClientApp>, objects: Objects) -> NativeApps {
        NativeApps { app: app.into(), objects }
    }

    pub async fn execute(&self, job: Job) -> Outcome {
        execute(Arc::clone(&self.app), self.objects.clone(), job).await
    }
}

/// Executes an instruction on a blocking thread. Cancelling it asks the app to stop.
pub async fn execute(app: Arc<dyn ClientApp>, objects: Objects, job: Job) -> Outcome {
    let _permit = COMPUTING.acquire().await.expect("the semaphore is never closed");
    let stop = Stop::default();
    let _guard = StopOnDrop(stop.clone());
    match tokio::task::spawn_blocking(move || carry_out(app.as_ref(), &job, &objects, &stop)).await {
        Ok(outcome) => outcome,
        Err(panic) => {
            Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason: format!("The app panicked: {panic}") }
        }
    }
}

fn carry_out(app: &dyn ClientApp, job: &Job, objects: &Objects, stop: &Stop) -> Outcome {
    let began = Instant::now();
    let mut fetch = |id| match objects.read(id) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err("the object is missing".into()),
        Err(error) => Err(error.into()),
    };
    let handled = handle_message(app, &job.instruction, &job.tree, &job.context, stop, &mut fetch, &now_s);
    let Handled { reply, context } = match handled {
        Ok(handled) => handled,
        Err(error @ (NotHandled::Stopped | NotHandled::Content(_))) => {
            return Outcome::Postponed { reason: error.to_string() };
        }
        Err(error) => return Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason: error.to_string() },
    };
    for (id, bytes) in &reply.objects {
        if let Err(error) = objects.put(*id, bytes) {
            return Outcome::Postponed { reason: format!("the reply cannot be stored: {error}") };
        }
    }
    let runtime_s = began.elapsed().as_secs_f64();
    Outcome::Replied(Box::new(Reply { message: reply.message, tree: reply.tree, context, runtime_s }))
}
