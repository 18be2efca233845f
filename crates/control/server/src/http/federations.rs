//! Calls about federations: their documents, plans, pools and nodes.

use std::sync::Arc;

use axum::response::Response;
use http::header::{ETAG, LOCATION};
use http::{HeaderValue, StatusCode};
use tokio::sync::SemaphorePermit;
use trellis_api::{FederationDetail, NodeChange, Pool, Role};

use super::Api;
use super::call::{Answer, Call, empty, json, ok};
use super::fault::{Fault, Kind, detail};
use super::list::{natural_key, page};
use super::route::BASE;
use crate::platform::Refusal;

/// How a document that came by the API is called in problems.
const FILE: &str = "document";
/// Retry delay for a caller whose plan was refused.
const PLAN_RETRY_S: u64 = 1;

pub async fn list(api: Arc<Api>, call: Call) -> Answer {
    let federations = api.platform.federations();
    ok(&page(federations.iter().map(Arc::as_ref), &call.query, |federation| federation.name.clone()))
}

pub async fn get(api: Arc<Api>, call: Call) -> Answer {
    told(StatusCode::OK, &api.platform.federation(call.part("federation"), call.caller.role)?)
}

pub async fn apply(api: Arc<Api>, call: Call) -> Answer {
    let (name, document) = (call.part("federation"), call.text()?);
    if call.query.flag("dry_run") {
        return plan_for(&api, name, document, call.caller.role).await;
    }
    // A precondition counts only for a request that is valid without it.
    api.platform.check(name, document)?;
    let expected = expected_revision(&api, &call)?;
    let applied = api.platform.apply(name, document, expected).await.map_err(|refusal| match refusal {
        Refusal::Conflict(what) if expected.is_some() => Fault::new(Kind::CHANGED, what),
        other => other.into(),
    })?;
    tracing::info!(federation = name, by = call.caller.name, changed = applied.changed, "document applied");
    for warning in &applied.warnings {
        tracing::info!(federation = name, "{warning}");
    }
    if !applied.created {
        return told(StatusCode::OK, &applied.detail);
    }
    let mut response = told(StatusCode::CREATED, &applied.detail)?;
    if let Ok(place) = HeaderValue::try_from(format!("{BASE}/federations/{name}")) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

async fn plan_for(api: &Api, name: &str, document: &str, role: Role) -> Answer {
    let report = api.platform.plan(document, FILE, role).await?;
    if report.federation != name {
        let advice = format!("name it {name}, or put it to {BASE}/federations/{}", report.federation);
        let problem = detail("metadata.name", format!("it is {}", report.federation), advice);
        let told = format!("The document is of the federation {}, not {name}.", report.federation);
        return Err(Fault::new(Kind::INVALID, told).with(vec![problem]));
    }
    ok(&report)
}

pub async fn delete(api: Arc<Api>, call: Call) -> Answer {
    let name = call.part("federation");
    let purge = call.query.flag("purge");
    api.platform.delete(name, purge).await?;
    tracing::info!(federation = name, by = call.caller.name, purge, "federation is to go");
    empty(StatusCode::ACCEPTED)
}

pub async fn past(api: Arc<Api>, _call: Call) -> Answer {
    ok(&api.platform.past_federations().await?)
}

pub async fn plan(api: Arc<Api>, call: Call) -> Answer {
    let _place = planning(&api, call.caller.role)?;
    ok(&api.platform.plan(call.text()?, FILE, call.caller.role).await?)
}

pub async fn current_plan(api: Arc<Api>, call: Call) -> Answer {
    let _place = planning(&api, call.caller.role)?;
    ok(&api.platform.current_plan(call.part("federation"), call.caller.role).await?)
}

/// A permit for one concurrent plan. Administrators need none.
fn planning(api: &Api, role: Role) -> Result<Option<SemaphorePermit<'_>>, Fault> {
    if role == Role::Admin {
        return Ok(None);
    }
    let told = "Too many plans are being made. Try again.";
    let place = api.plans.try_acquire();
    place.map(Some).map_err(|_| Fault::new(Kind::BUSY, told).retry_after(PLAN_RETRY_S))
}

pub async fn scale(api: Arc<Api>, call: Call) -> Answer {
    let to: Pool = call.json()?;
    let (name, pool) = (call.part("federation"), call.part("pool"));
    let applied = api.platform.scale(name, pool, &to).await?;
    tracing::info!(
        federation = name,
        pool,
        count = to.count,
        repartition = to.repartition,
        by = call.caller.name,
        "pool scaled"
    );
    told(StatusCode::OK, &applied.detail)
}

pub async fn change_node(api: Arc<Api>, call: Call) -> Answer {
    let NodeChange { drained } = call.json()?;
    let (name, node) = (call.part("federation"), call.part("node"));
    let applied = api.platform.drain(name, node, drained).await?;
    tracing::info!(federation = name, node, drained, by = call.caller.name, "node changed");
    told(StatusCode::OK, &applied.detail)
}

pub async fn revoke_node(api: Arc<Api>, call: Call) -> Answer {
    let (name, node) = (call.part("federation"), call.part("node"));
    api.platform.revoke(name, node).await?;
    tracing::info!(federation = name, node, by = call.caller.name, "node revoked");
    empty(StatusCode::NO_CONTENT)
}

pub async fn nodes(api: Arc<Api>, call: Call) -> Answer {
    let mut nodes = api.platform.nodes(call.part("federation"))?;
    nodes.sort_by_cached_key(|node| natural_key(&node.name));
    ok(&page(nodes, &call.query, |node| natural_key(&node.name)))
}

pub async fn connection(api: Arc<Api>, call: Call) -> Answer {
    ok(&api.platform.connection(call.part("federation")).await?)
}

fn told(status: StatusCode, detail: &FederationDetail) -> Answer {
    let mut response: Response = json(status, detail)?;
    let tag = format!("\"{}\"", detail.summary.revision);
    if let Ok(tag) = HeaderValue::try_from(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// What `If-Match` and `If-None-Match` ask for; 0: that there is no federation of this name.
fn expected_revision(api: &Api, call: &Call) -> Result<Option<u64>, Fault> {
    let only_new = call.header("if-none-match")?.is_some();
    match call.header("if-match")? {
        Some(_) if only_new => {
            Err(Fault::new(Kind::MALFORMED, "If-Match and If-None-Match cannot both hold: send one of them."))
        }
        Some("*") => match api.platform.federation(call.part("federation"), call.caller.role) {
            Ok(detail) => Ok(Some(detail.summary.revision)),
            Err(Refusal::NotFound(what)) => Err(Fault::new(Kind::CHANGED, what)),
            Err(other) => Err(other.into()),
        },
        Some(tag) => Ok(tag.trim_matches('"').parse().ok()),
        None => Ok(only_new.then_some(0)),
    }
}

/// `"17"`, or `*`.
pub fn is_tag(text: &str) -> bool {
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let is_number = |digits: &str| matches!(digits.len(), 1..=15) && digits.bytes().all(|byte| byte.is_ascii_digit());
    text == "*" || quoted.is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::is_tag;

    #[test]
    fn tags_are_revisions_in_quotes() {
        for good in ["*", "\"0\"", "\"17\""] {
            assert!(is_tag(good), "{good}");
        }
        for bad in ["", "17", "\"\"", "\"1", "\"a\"", "W/\"1\"", "\"1\", \"2\"", "\"1234567890123456\""] {
            assert!(!is_tag(bad), "{bad}");
        }
    }
}
