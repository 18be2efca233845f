//! Apps that are part of this program, between the object files and `trellis_native`.

use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use tokio::sync::Semaphore;
use trellis_clock::now_s;
use trellis_native::{ClientApp, Handled, NotHandled, Stop, handle_message};
use trellis_wire::error_reply::ErrorCode;

use crate::app::{Job, Outcome, Reply};
use crate::objects::Objects;

/// Apps compute: more of them at once than cores cost threads and memory, in a process with hundreds of nodes.
static COMPUTING: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(1, NonZero::get)));

/// The app that the operator chose, for every run.
pub struct NativeApps {
    app: Arc<dyn ClientApp>,
    objects: Objects,
}

/// Tells the app when nobody waits for it any more.
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

/// Lets an app carry out an instruction, beside what waits; given up, it is told to stop.
pub async fn execute(app: Arc<dyn ClientApp>, objects: Objects, job: Job) -> Outcome {
    let _turn = COMPUTING.acquire().await.expect("it is never closed");
    let stop = Stop::default();
    let _guard = StopOnDrop(stop.clone());
    match tokio::task::spawn_blocking(move || carry_out(app.as_ref(), &job, &objects, &stop)).await {
        Ok(outcome) => outcome,
        Err(panic) => Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason: format!("The app broke: {panic}") },
    }
}

fn carry_out(app: &dyn ClientApp, job: &Job, objects: &Objects, stop: &Stop) -> Outcome {
    let began = Instant::now();
    let mut fetch = |id| match objects.read(id) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err("the object is not here".into()),
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
            return Outcome::Postponed { reason: format!("the reply cannot be written: {error}") };
        }
    }
    let runtime_s = began.elapsed().as_secs_f64();
    Outcome::Replied(Box::new(Reply { message: reply.message, tree: reply.tree, context, runtime_s }))
}
