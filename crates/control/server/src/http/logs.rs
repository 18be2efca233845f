//! Calls for logs, which may be held until there is more. Where too many are held already, those that come are answered at once.

use std::sync::Arc;

use tokio::sync::SemaphorePermit;
use trellis_api::LogPart;

use super::Api;
use super::call::{Answer, Call, ok};
use super::fault::{Fault, Kind};
use crate::platform::Refusal;

pub async fn of_run(api: Arc<Api>, call: Call) -> Answer {
    let held = hold(&api, &call);
    let (federation, run) = (call.part("federation"), call.part("run"));
    let after = call.query.text("after").unwrap_or_default();
    until_stop(&api, api.platform.run_log(federation, run, after, held.is_some())).await
}

pub async fn of_apps(api: Arc<Api>, call: Call) -> Answer {
    let held = hold(&api, &call);
    let (federation, run, node) = (call.part("federation"), call.part("run"), call.part("node"));
    let after = call.query.text("after");
    until_stop(&api, api.platform.app_log(federation, run, node, after, held.is_some())).await
}

pub async fn of_part(api: Arc<Api>, call: Call) -> Answer {
    let held = hold(&api, &call);
    let (federation, part) = (call.part("federation"), call.part("part"));
    let after = call.query.text("after");
    until_stop(&api, api.platform.part_log(federation, part, after, held.is_some())).await
}

/// A place among those that wait, if that was asked for and there is one.
fn hold<'a>(api: &'a Api, call: &Call) -> Option<SemaphorePermit<'a>> {
    if call.query.flag("wait") { api.held.try_acquire().ok() } else { None }
}

async fn until_stop(api: &Api, part: impl Future<Output = Result<LogPart, Refusal>>) -> Answer {
    tokio::select! {
        part = part => ok(&part?),
        () = api.stop.cancelled() => Err(Fault::new(Kind::BUSY, "The server stops. Ask again when it is back.").retry_after(1)),
    }
}
