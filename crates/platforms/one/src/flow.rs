//! Client of OneFlow: services with roles of VMs.

mod cron;
mod description;
mod expression;
mod input;
mod lint;
mod service;
mod state;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Method;
use hyper::header::{self, HeaderValue};
use serde_json::{Map, Value, json};

use crate::error::{Error, FlowRefusal};
use crate::http::Caller;
use crate::{Endpoint, HttpLimits, Session, Trust};

pub use description::{
    Adjustment, Deployment, ElasticityPolicy, FlowVersion, RoleKind, RoleTemplate, ScheduledPolicy, ServiceTemplate,
    ShutdownAction, When,
};
pub use expression::{Expression, Operand, parse as parse_expression};
pub use lint::{MAX_NAMES_CHARS, lint, lint_role, lint_version};
pub use service::{LogEntry, Node, Role, Service, StoredTemplate};
pub use state::{RoleState, ServiceState};

/// Values that override a template when a service is created.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Instantiation {
    /// Name of the service.
    pub name: String,
    /// Every declared input needs a value, including optional ones.
    pub values: BTreeMap<String, String>,
    pub networks: Vec<(String, NetworkChoice)>,
    /// Cardinalities that differ from those of the template, by role.
    pub cardinalities: BTreeMap<String, u32>,
}

/// Value of a network input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkChoice {
    Existing(i32),
    /// A new network from a template, with further attributes.
    Template(i32, String),
    /// A reservation in another network: `SIZE=5`.
    Reservation(i32, String),
}

impl Instantiation {
    /// Body of the call.
    pub fn render(&self, version: FlowVersion) -> Value {
        let mut merge = Map::new();
        merge.insert("name".into(), json!(self.name));
        if !self.values.is_empty() {
            let key = match version {
                FlowVersion::V7 => "user_inputs_values",
                FlowVersion::V6 => "custom_attrs_values",
            };
            merge.insert(key.into(), json!(self.values));
        }
        if !self.networks.is_empty() {
            let networks = self.networks.iter().map(|(name, choice)| {
                let choice = match choice {
                    NetworkChoice::Existing(id) => json!({"id": id.to_string()}),
                    NetworkChoice::Template(id, extra) => json!({"template_id": id.to_string(), "extra": extra}),
                    NetworkChoice::Reservation(id, extra) => json!({"reserve_from": id.to_string(), "extra": extra}),
                };
                json!({name: choice})
            });
            merge.insert("networks_values".into(), networks.collect());
        }
        if !self.cardinalities.is_empty() {
            let roles = self.cardinalities.iter().map(|(name, size)| json!({"name": name, "cardinality": size}));
            merge.insert("roles".into(), roles.collect());
        }
        action("instantiate", json!({"merge_template": merge}))
    }
}

fn action(perform: &str, parameters: Value) -> Value {
    match parameters {
        Value::Null => json!({"action": {"perform": perform}}),
        parameters => json!({"action": {"perform": perform, "params": parameters}}),
    }
}

/// Client for one user.
#[derive(Debug)]
pub struct OneFlow {
    caller: Caller,
    version: FlowVersion,
}

const JSON: &str = "application/json";

impl OneFlow {
    pub fn new(endpoint: Endpoint, session: &Session, version: FlowVersion) -> OneFlow {
        let trust = Trust::system_for(&endpoint);
        OneFlow::with(endpoint, session, version, trust, HttpLimits::for_front_end())
    }

    pub fn with(
        endpoint: Endpoint,
        session: &Session,
        version: FlowVersion,
        trust: Trust,
        limits: HttpLimits,
    ) -> OneFlow {
        let mut caller = Caller::new(endpoint, trust, limits);
        let basic = format!("Basic {}", STANDARD.encode(session.reveal()));
        caller.add_header(header::AUTHORIZATION, HeaderValue::try_from(basic).expect("base64 is printable ASCII"));
        OneFlow { caller, version }
    }

    pub fn endpoint(&self) -> &Endpoint {
        self.caller.endpoint()
    }

    pub fn version(&self) -> FlowVersion {
        self.version
    }

    /// Creates a template. An invalid one is not sent.
    pub async fn template_create(&self, template: &ServiceTemplate) -> Result<StoredTemplate, Error> {
        let body = self.checked(template)?;
        let answer = self.call(Method::POST, "/service_template", Some(body)).await?;
        service::parse_template(&answer).map_err(Error::InvalidResponse)
    }

    /// Replaces the template. Services that were created from it do not change.
    pub async fn template_update(&self, id: i32, template: &ServiceTemplate) -> Result<StoredTemplate, Error> {
        let body = self.checked(template)?;
        let answer = self.call(Method::PUT, &format!("/service_template/{id}"), Some(body)).await?;
        service::parse_template(&answer).map_err(Error::InvalidResponse)
    }

    pub async fn template(&self, id: i32) -> Result<StoredTemplate, Error> {
        let answer = self.call(Method::GET, &format!("/service_template/{id}"), None).await?;
        service::parse_template(&answer).map_err(Error::InvalidResponse)
    }

    pub async fn templates(&self) -> Result<Vec<StoredTemplate>, Error> {
        let answer = self.call(Method::GET, "/service_template", None).await?;
        service::parse_templates(&answer).map_err(Error::InvalidResponse)
    }

    /// Its VM templates and images stay.
    pub async fn template_delete(&self, id: i32) -> Result<(), Error> {
        self.call(Method::DELETE, &format!("/service_template/{id}"), None).await.map(drop)
    }

    pub async fn instantiate(&self, template: i32, instantiation: &Instantiation) -> Result<Service, Error> {
        let path = format!("/service_template/{template}/action");
        let answer = self.call(Method::POST, &path, Some(instantiation.render(self.version))).await?;
        service::parse_service(&answer).map_err(Error::InvalidResponse)
    }

    pub async fn service(&self, id: i32) -> Result<Service, Error> {
        let answer = self.call(Method::GET, &format!("/service/{id}"), None).await?;
        service::parse_service(&answer).map_err(Error::InvalidResponse)
    }

    pub async fn services(&self) -> Result<Vec<Service>, Error> {
        let answer = self.call(Method::GET, "/service", None).await?;
        service::parse_services(&answer).map_err(Error::InvalidResponse)
    }

    /// Only in state RUNNING. When a role shrinks, OneFlow removes its oldest VMs. `force` ignores min_vms and max_vms.
    pub async fn scale(&self, id: i32, role: &str, cardinality: u32, force: bool) -> Result<(), Error> {
        // Without `force`, OneFlow fails on its own JSON.
        let body = json!({"role_name": role, "cardinality": cardinality, "force": force});
        self.call(Method::POST, &format!("/service/{id}/scale"), Some(body)).await.map(drop)
    }

    /// Retries the failed operation.
    pub async fn recover(&self, id: i32) -> Result<(), Error> {
        self.service_action(id, "recover", Value::Null).await
    }

    /// Deletes the service in any state.
    pub async fn recover_delete(&self, id: i32) -> Result<(), Error> {
        self.service_action(id, "recover", json!({"delete": true})).await
    }

    pub async fn rename(&self, id: i32, name: &str) -> Result<(), Error> {
        self.service_action(id, "rename", json!({"name": name})).await
    }

    /// Terminates its VMs in the order of their roles; then the service is deleted.
    pub async fn delete(&self, id: i32) -> Result<(), Error> {
        self.call(Method::DELETE, &format!("/service/{id}"), None).await.map(drop)
    }

    /// Adds a role. An invalid one is not sent.
    pub async fn add_role(&self, id: i32, role: &RoleTemplate) -> Result<(), Error> {
        let problems = lint_role(role);
        if !problems.is_empty() {
            return Err(Error::InvalidRequest(problems));
        }
        let body = action("add_role", json!({"role": role.render(self.version)}));
        self.call(Method::POST, &format!("/service/{id}/role_action"), Some(body)).await.map(drop)
    }

    pub async fn remove_role(&self, id: i32, role: &str) -> Result<(), Error> {
        let body = action("remove_role", json!({"role": role}));
        self.call(Method::POST, &format!("/service/{id}/role_action"), Some(body)).await.map(drop)
    }

    /// Purges services in state DONE.
    pub async fn purge_done(&self) -> Result<(), Error> {
        self.call(Method::POST, "/service_pool/purge_done", None).await.map(drop)
    }

    async fn service_action(&self, id: i32, perform: &str, parameters: Value) -> Result<(), Error> {
        let body = action(perform, parameters);
        self.call(Method::POST, &format!("/service/{id}/action"), Some(body)).await.map(drop)
    }

    fn checked(&self, template: &ServiceTemplate) -> Result<Value, Error> {
        let mut problems = lint(template);
        problems.extend(lint_version(template, self.version));
        match problems.is_empty() {
            true => Ok(template.render(self.version)),
            false => Err(Error::InvalidRequest(problems)),
        }
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Bytes, Error> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let answer = self.caller.call(method, path, JSON, body).await.map_err(Error::Unreachable)?;
        match answer.status {
            200..=299 => Ok(answer.body),
            status => Err(refusal(status, &answer.text())),
        }
    }
}

/// An error response is text with the content type HTML; an internal failure is JSON.
fn refusal(status: u16, body: &str) -> Error {
    let reason = serde_json::from_str::<Value>(body).ok();
    let reason = reason.as_ref().and_then(|body| body.get("reason")).and_then(Value::as_str);
    let text = reason.unwrap_or(body).to_owned();
    Error::Flow { status, kind: meaning(status, &text), text }
}

/// The message is more precise than the status: missing rights in oned arrive as 401, unknown users as 403, and all conflicts
/// with states as 500.
fn meaning(status: u16, text: &str) -> FlowRefusal {
    let lower = text.to_ascii_lowercase();
    let lacks_rights = lower.contains("not authorized to perform") || lower.contains("is locked");
    match status {
        401 | 403 if lacks_rights => FlowRefusal::Authorization,
        401 | 403 => FlowRefusal::Authentication,
        // Another server may return 404 too, so the object is not considered deleted.
        _ if lower.contains("error getting document") => FlowRefusal::NoExists,
        400..=499 => FlowRefusal::Invalid,
        _ if lower.contains("in state:") => FlowRefusal::State,
        _ if lower.contains("is already at") => FlowRefusal::Already,
        _ if lower.contains("can't scale service") || lower.contains("not found") => FlowRefusal::Invalid,
        _ if lower.contains("not supported") || lower.contains("unexpected token") => FlowRefusal::Invalid,
        _ => FlowRefusal::Internal,
    }
}
