//! The REST API as its callers use it: a function for each route, an answer or a reason. A server that says "not now" has done
//! nothing, so the call is repeated a few times; nothing else is repeated here.
//!
//! Knows nothing of command lines, and not where a server is to be found.

mod error;
mod events;

use serde::Serialize;
use serde::de::DeserializeOwned;
use trellis_client::{Asking, Reply, Rest, Target, Timeouts};

pub use self::error::CallError;
pub use self::events::Events;
use crate::{
    Apps, AuditEntry, Connection, DeviceLogin, FederationDetail, FederationSummary, IssuedToken, LogPart,
    LoginApproval, MAX_PAGE, Me, NewRun, NewToken, Node, NodeChange, Page, PastFederation, PlanReport, Pool, Proof,
    Run, SignOn, Token, TrainingRounds,
};

const BASE: &str = "/api/v1";
const JSON: &str = "application/json";
/// YAML, which JSON is a part of.
const YAML: &str = "application/yaml";
/// Pages of one list: 10 million entries. A server that never comes to an end is broken.
const MAX_PAGES: usize = 10_000;
/// How much of a strange answer is worth telling.
const QUOTED_CHARS: usize = 120;

/// A server of the control plane. Cheap to clone; every call has a connection of its own.
#[derive(Debug, Clone)]
pub struct Client {
    rest: Rest,
}

/// What became of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    pub detail: FederationDetail,
    /// There was none of this name before.
    pub created: bool,
}

/// Which federation a document may replace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Expected {
    #[default]
    Anything,
    /// None of this name.
    Nothing,
    Revision(u64),
}

impl Client {
    pub fn new(target: Target) -> Client {
        Client::with_timeouts(target, Timeouts::default())
    }

    pub fn with_timeouts(target: Target, timeouts: Timeouts) -> Client {
        Client { rest: Rest::new(target, timeouts) }
    }

    /// The same server, for the owner of another token.
    pub fn with_token(&self, token: trellis_wire::token::Token) -> Client {
        let target = Target { token: Some(token), ..self.target().clone() };
        Client::with_timeouts(target, self.rest.timeouts().clone())
    }

    pub fn target(&self) -> &Target {
        self.rest.target()
    }

    /// `host:port` of the server.
    pub fn endpoint(&self) -> String {
        self.rest.target().endpoint()
    }

    pub async fn me(&self) -> Result<Me, CallError> {
        self.get("/me").await
    }

    /// All of them, by name.
    pub async fn federations(&self) -> Result<Vec<FederationSummary>, CallError> {
        self.all("/federations").await
    }

    pub async fn federation(&self, name: &str) -> Result<FederationDetail, CallError> {
        self.get(&federation(name, "")).await
    }

    /// Keeps a document (YAML or JSON) with one federation of this name.
    pub async fn apply(&self, name: &str, document: &str, expected: Expected) -> Result<Applied, CallError> {
        let condition = match expected {
            Expected::Anything => None,
            Expected::Nothing => Some(("if-none-match", "*".to_owned())),
            Expected::Revision(revision) => Some(("if-match", format!("\"{revision}\""))),
        };
        let body = Body { kind: YAML, text: document.to_owned() };
        let reply = self.send("PUT", &federation(name, ""), Some(body), condition.as_slice()).await?;
        let created = reply.status == 201;
        Ok(Applied { detail: self.decode("PUT", &federation(name, ""), &reply)?, created })
    }

    /// What [`Client::apply`] would do.
    pub async fn dry_run(&self, name: &str, document: &str) -> Result<PlanReport, CallError> {
        let body = Body { kind: YAML, text: document.to_owned() };
        self.call("PUT", &format!("{}?dry_run=true", federation(name, "")), Some(body), &[]).await
    }

    /// Nothing of it is to be left. It goes on after the answer.
    pub async fn delete(&self, name: &str) -> Result<(), CallError> {
        self.send("DELETE", &federation(name, ""), None, &[]).await.map(drop)
    }

    /// The same, and its runs go with it. Also of a federation that is gone already.
    pub async fn purge(&self, name: &str) -> Result<(), CallError> {
        self.send("DELETE", &federation(name, "?purge=true"), None, &[]).await.map(drop)
    }

    /// Federations that are gone and whose runs are kept, by name.
    pub async fn past_federations(&self) -> Result<Vec<PastFederation>, CallError> {
        self.get("/past-federations").await
    }

    /// What would be done for a document.
    pub async fn plan(&self, document: &str) -> Result<PlanReport, CallError> {
        let body = Body { kind: YAML, text: document.to_owned() };
        self.call("POST", "/plan", Some(body), &[]).await
    }

    /// What is to be done now for a federation, and why not more.
    pub async fn current_plan(&self, name: &str) -> Result<PlanReport, CallError> {
        self.get(&federation(name, "/plan")).await
    }

    pub async fn scale(&self, name: &str, pool: &str, to: &Pool) -> Result<FederationDetail, CallError> {
        let path = federation(name, &format!("/pools/{}", segment(pool)));
        self.call("PUT", &path, Some(Body::json(to)), &[]).await
    }

    /// Keeps a node from new work, or lets it take work again.
    pub async fn drain(&self, name: &str, node: &str, drained: bool) -> Result<FederationDetail, CallError> {
        let path = federation(name, &format!("/nodes/{}", segment(node)));
        self.call("PUT", &path, Some(Body::json(&NodeChange { drained })), &[]).await
    }

    /// Takes a node that joined from elsewhere away.
    pub async fn revoke(&self, name: &str, node: &str) -> Result<(), CallError> {
        let path = federation(name, &format!("/nodes/{}", segment(node)));
        self.send("DELETE", &path, None, &[]).await.map(drop)
    }

    /// All of them, by name.
    pub async fn nodes(&self, name: &str) -> Result<Vec<Node>, CallError> {
        self.all(&federation(name, "/nodes")).await
    }

    pub async fn connection(&self, name: &str) -> Result<Connection, CallError> {
        self.get(&federation(name, "/connection")).await
    }

    /// All of them, newest first.
    pub async fn runs(&self, name: &str) -> Result<Vec<Run>, CallError> {
        self.all(&federation(name, "/runs")).await
    }

    /// The newest of them, newest first.
    pub async fn newest_runs(&self, name: &str, most: usize) -> Result<Vec<Run>, CallError> {
        let limit = most.clamp(1, MAX_PAGE);
        let page: Page<Run> = self.get(&format!("{}?limit={limit}", federation(name, "/runs"))).await?;
        Ok(page.items)
    }

    pub async fn run(&self, name: &str, run: &str) -> Result<Run, CallError> {
        self.get(&run_path(name, run, "")).await
    }

    /// Starts a run. With a key, the same question asked twice starts one.
    pub async fn start_run(&self, name: &str, new: &NewRun, key: Option<&str>) -> Result<Run, CallError> {
        let key = key.map(|key| ("idempotency-key", key.to_owned()));
        self.call("POST", &federation(name, "/runs"), Some(Body::json(new)), key.as_slice()).await
    }

    pub async fn stop_run(&self, name: &str, run: &str) -> Result<Run, CallError> {
        self.call("POST", &run_path(name, run, "/stop"), None, &[]).await
    }

    /// Reports after a round; where there are more of them, ask again after the last.
    pub async fn rounds(&self, name: &str, run: &str, after: Option<u64>) -> Result<TrainingRounds, CallError> {
        let after = after.map(|round| format!("?after={round}")).unwrap_or_default();
        self.get(&(run_path(name, run, "/rounds") + &after)).await
    }

    /// The log of a run after a place; with `wait` the answer is held until there is more, for some seconds.
    pub async fn run_log(&self, name: &str, run: &str, after: Option<&str>, wait: bool) -> Result<LogPart, CallError> {
        self.get(&(run_path(name, run, "/log") + &place(after, wait))).await
    }

    /// The same for the output of ClientApps of a node in a run.
    pub async fn app_log(
        &self,
        name: &str,
        run: &str,
        node: &str,
        after: Option<&str>,
        wait: bool,
    ) -> Result<LogPart, CallError> {
        let path = run_path(name, run, &format!("/nodes/{}/log", segment(node)));
        self.get(&(path + &place(after, wait))).await
    }

    /// The same for the program of `coordinator` or a node. Without a place: its last lines.
    pub async fn part_log(
        &self,
        name: &str,
        part: &str,
        after: Option<&str>,
        wait: bool,
    ) -> Result<LogPart, CallError> {
        let path = federation(name, &format!("/parts/{}/log", segment(part)));
        self.get(&(path + &place(after, wait))).await
    }

    /// What changes from now on, of one federation or of all. When it breaks, the caller asks again.
    pub async fn events(&self, federation: Option<&str>) -> Result<Events, CallError> {
        let only = federation.map(|name| format!("?federation={}", segment(name))).unwrap_or_default();
        let path = format!("{BASE}/events{only}");
        let asking = Asking {
            method: "GET",
            path: &path,
            kind: JSON,
            accept: "text/event-stream",
            body: Default::default(),
            headers: &[],
        };
        match self.rest.listen(&asking, events::SILENCE).await? {
            Ok(trickle) => Ok(Events::new(trickle)),
            Err(reply) => Err(self.refused("GET", "/events", &reply)),
        }
    }

    pub async fn apps(&self) -> Result<Apps, CallError> {
        self.get("/apps").await
    }

    pub async fn tokens(&self) -> Result<Vec<Token>, CallError> {
        self.get("/tokens").await
    }

    pub async fn issue_token(&self, new: &NewToken) -> Result<IssuedToken, CallError> {
        self.call("POST", "/tokens", Some(Body::json(new)), &[]).await
    }

    pub async fn revoke_token(&self, id: &str) -> Result<(), CallError> {
        self.send("DELETE", &format!("/tokens/{}", segment(id)), None, &[]).await.map(drop)
    }

    /// Entries of the server's audit log after a number, or the newest; oldest first.
    pub async fn audit(&self, after: Option<u64>, limit: u32) -> Result<Vec<AuditEntry>, CallError> {
        let after = after.map(|after| format!("&after={after}")).unwrap_or_default();
        self.get(&format!("/audit?limit={limit}{after}")).await
    }

    /// Approves a waiting `flwr login` at the SuperLink of a federation, for the identity of this token.
    pub async fn approve_login(&self, name: &str, code: &str) -> Result<(), CallError> {
        let approval = LoginApproval { code: code.to_owned() };
        self.send("POST", &federation(name, "/logins"), Some(Body::json(&approval)), &[]).await.map(drop)
    }

    /// The identity provider of the server.
    pub async fn sign_on(&self) -> Result<SignOn, CallError> {
        self.get("/sign-on").await
    }

    /// Begins a login that is approved on another device.
    pub async fn device_login(&self) -> Result<DeviceLogin, CallError> {
        self.call("POST", "/sign-on/device", None, &[]).await
    }

    /// A token for whom the proof names. `None`: the login is not approved yet.
    pub async fn sign_in(&self, proof: &Proof) -> Result<Option<IssuedToken>, CallError> {
        let reply = self.send("POST", "/sign-on/token", Some(Body::json(proof)), &[]).await?;
        if reply.status == 202 { Ok(None) } else { self.decode("POST", "/sign-on/token", &reply).map(Some) }
    }

    /// Ends the session of this token, if single sign-on began it.
    pub async fn sign_out(&self) -> Result<(), CallError> {
        self.send("DELETE", "/sign-on/token", None, &[]).await.map(drop)
    }

    async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, CallError> {
        self.call("GET", path, None, &[]).await
    }

    /// All pages of a list.
    async fn all<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, CallError> {
        let (mut items, mut cursor) = (Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let page: Page<T> = self.get(&format!("{path}?limit={MAX_PAGE}{cursor}")).await?;
            items.extend(page.items);
            match page.next {
                Some(next) => cursor = format!("&cursor={}", segment(&next)),
                None => return Ok(items),
            }
        }
        Err(self.unexpected("GET", path, 200, "the list does not end".to_owned()))
    }

    async fn call<A: DeserializeOwned>(
        &self,
        method: &'static str,
        path: &str,
        body: Option<Body>,
        headers: &[(&'static str, String)],
    ) -> Result<A, CallError> {
        let reply = self.send(method, path, body, headers).await?;
        self.decode(method, path, &reply)
    }

    /// Asks, and again where the answer is "not now". Anything but success is an error.
    async fn send(
        &self,
        method: &'static str,
        path: &str,
        body: Option<Body>,
        headers: &[(&'static str, String)],
    ) -> Result<Reply, CallError> {
        let Body { kind, text } = body.unwrap_or(Body { kind: JSON, text: String::new() });
        let whole = format!("{BASE}{path}");
        let asking = Asking { method, path: &whole, kind, accept: JSON, body: text.into(), headers };
        let mut waits = self.rest.timeouts().retries.iter();
        loop {
            let reply = self.rest.ask(&asking).await?;
            if (200..300).contains(&reply.status) {
                return Ok(reply);
            }
            let refused = self.refused(method, path, &reply);
            match waits.next() {
                Some(wait) if refused.may_pass() => tokio::time::sleep(*wait).await,
                _ => return Err(refused),
            }
        }
    }

    fn decode<A: DeserializeOwned>(&self, method: &str, path: &str, reply: &Reply) -> Result<A, CallError> {
        let unexpected = |what| self.unexpected(method, path, reply.status, what);
        let body = reply.body.as_ref().ok_or_else(|| unexpected("it is too long".to_owned()))?;
        serde_json::from_slice(body).map_err(|error| unexpected(error.to_string()))
    }

    /// What an answer means that is not the one that was hoped for.
    fn refused(&self, method: &str, path: &str, reply: &Reply) -> CallError {
        let body = reply.body.as_deref().unwrap_or_default();
        match serde_json::from_slice(body) {
            Ok(problem) if reply.status >= 400 => {
                CallError::Refused { endpoint: self.endpoint(), status: reply.status, problem }
            }
            _ => self.unexpected(method, path, reply.status, quote(body)),
        }
    }

    fn unexpected(&self, method: &str, path: &str, status: u16, what: String) -> CallError {
        CallError::Unexpected { endpoint: self.endpoint(), call: format!("{method} {path}"), status, what }
    }
}

struct Body {
    kind: &'static str,
    text: String,
}

impl Body {
    fn json(value: &impl Serialize) -> Body {
        Body { kind: JSON, text: serde_json::to_string(value).expect("questions are plain data") }
    }
}

fn federation(name: &str, rest: &str) -> String {
    format!("/federations/{}{rest}", segment(name))
}

fn run_path(name: &str, run: &str, rest: &str) -> String {
    federation(name, &format!("/runs/{}{rest}", segment(run)))
}

fn place(after: Option<&str>, wait: bool) -> String {
    let after = after.map(|after| format!("&after={}", segment(after))).unwrap_or_default();
    format!("?wait={wait}{after}")
}

/// A text as a part of a path or a query.
fn segment(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        match plain(&byte) {
            true => segment.push(byte.into()),
            false => segment += &format!("%{byte:02X}"),
        }
    }
    segment
}

/// The beginning of a strange answer, safe to print.
fn quote(body: &[u8]) -> String {
    match body {
        [] => "it is empty".to_owned(),
        _ => format!("{:?}", String::from_utf8_lossy(body).chars().take(QUOTED_CHARS).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_somebody_types_stays_within_its_place() {
        assert_eq!(run_path("a/b", "../x?y", "/log"), "/federations/a%2Fb/runs/..%2Fx%3Fy/log");
        assert_eq!(place(Some("1 2&"), true), "?wait=true&after=1%202%26");
        assert_eq!(segment("clinic-3_ä"), "clinic-3_%C3%A4");
    }
}
