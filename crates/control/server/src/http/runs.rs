//! Calls about runs.

use std::sync::Arc;

use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use trellis_api::{NewRun, Run};

use super::Api;
use super::call::{Answer, Call, json, ok};
use super::fault::Fault;
use super::list::{newest_first_key, page};
use super::repeat;
use super::route::BASE;

pub async fn list(api: Arc<Api>, call: Call) -> Answer {
    let mut runs = api.platform.runs(call.part("federation")).await?;
    let key = |run: &Run| newest_first_key(run.submitted_at, &run.id);
    runs.sort_by_cached_key(key);
    ok(&page(runs, &call.query, key))
}

pub async fn get(api: Arc<Api>, call: Call) -> Answer {
    ok(&api.platform.run(call.part("federation"), call.part("run")).await?)
}

/// Starts a run. With an Idempotency-Key it is started once, however often that is asked for.
pub async fn start(api: Arc<Api>, call: Call) -> Answer {
    let new: NewRun = call.json()?;
    let federation = call.part("federation").to_owned();
    let by = call.caller.name.clone();
    let work = {
        let (api, federation) = (Arc::clone(&api), federation.clone());
        async move {
            let run = api.platform.start_run(&federation, &new, &by).await?;
            tracing::info!(federation, run = run.id, app = run.app, by, "run submitted");
            Ok::<Run, Fault>(run)
        }
    };
    let run: Run = match call.header("idempotency-key")? {
        Some(key) => {
            let asked = repeat::Asked::new(&call.caller.id, key, &federation, &call.body);
            repeat::once(api, asked, work).await?
        }
        None => work.await?,
    };
    let mut response = json(StatusCode::CREATED, &run)?;
    if let Ok(place) = HeaderValue::try_from(format!("{BASE}/federations/{federation}/runs/{}", run.id)) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

pub async fn stop(api: Arc<Api>, call: Call) -> Answer {
    let (federation, id) = (call.part("federation"), call.part("run"));
    let run = api.platform.stop_run(federation, id).await?;
    tracing::info!(federation, run = id, by = call.caller.name, "run is to stop");
    ok(&run)
}

pub async fn rounds(api: Arc<Api>, call: Call) -> Answer {
    let after = call.query.number("after");
    ok(&api.platform.rounds(call.part("federation"), call.part("run"), after).await?)
}
