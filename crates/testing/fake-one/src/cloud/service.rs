//! OneFlow services: state, JSON form, and creation from a template.

use serde_json::{Map, Value, json};

use super::document::SERVICE_TEMPLATE;
use super::role::Role;
use super::{AUTHENTICATION, AUTHORIZATION, Cloud, Document, Id, NO_EXISTS, Owned, Refused, Right, schema};
use crate::template::{Template, text_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    Pending = 0,
    Deploying = 1,
    Running = 2,
    Undeploying = 3,
    Warning = 4,
    Done = 5,
    FailedUndeploying = 6,
    FailedDeploying = 7,
    Scaling = 8,
    FailedScaling = 9,
    Cooldown = 10,
    DeployingNets = 11,
    UndeployingNets = 12,
    FailedDeployingNets = 13,
    FailedUndeployingNets = 14,
    Hold = 15,
}

const NAMES: [(ServiceState, &str); 16] = [
    (ServiceState::Pending, "PENDING"),
    (ServiceState::Deploying, "DEPLOYING"),
    (ServiceState::Running, "RUNNING"),
    (ServiceState::Undeploying, "UNDEPLOYING"),
    (ServiceState::Warning, "WARNING"),
    (ServiceState::Done, "DONE"),
    (ServiceState::FailedUndeploying, "FAILED_UNDEPLOYING"),
    (ServiceState::FailedDeploying, "FAILED_DEPLOYING"),
    (ServiceState::Scaling, "SCALING"),
    (ServiceState::FailedScaling, "FAILED_SCALING"),
    (ServiceState::Cooldown, "COOLDOWN"),
    (ServiceState::DeployingNets, "DEPLOYING_NETS"),
    (ServiceState::UndeployingNets, "UNDEPLOYING_NETS"),
    (ServiceState::FailedDeployingNets, "FAILED_DEPLOYING_NETS"),
    (ServiceState::FailedUndeployingNets, "FAILED_UNDEPLOYING_NETS"),
    (ServiceState::Hold, "HOLD"),
];

/// Maximum number of log lines.
const LOG_KEPT: usize = 50;

impl ServiceState {
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(state, _)| *state == self).map(|(_, name)| *name).expect("the table names every state")
    }

    pub fn from_number(number: i64) -> Option<ServiceState> {
        NAMES.iter().find(|(state, _)| *state as i64 == number).map(|(state, _)| *state)
    }
}

#[derive(Debug, Clone)]
pub struct Service {
    pub owned: Owned,
    /// The body without roles, state and log.
    pub body: Map<String, Value>,
    pub state: ServiceState,
    pub started: u64,
    pub log: Vec<Value>,
    pub roles: Vec<Role>,
    /// A fault: the service makes no progress until it is recovered.
    pub stuck: bool,
    /// Networks that were created for the service.
    pub made: Vec<Id>,
    /// A role that is being removed.
    pub removing: Option<String>,
    /// The watchdog checks the service: from RUNNING on, until OneFlow scales or changes it.
    pub watched: bool,
}

/// Why OneFlow rejects a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct FlowError {
    pub status: u16,
    pub text: String,
}

impl FlowError {
    pub fn new(status: u16, text: impl Into<String>) -> FlowError {
        FlowError { status, text: text.into() }
    }

    /// OneFlow swaps these two codes.
    pub fn of(refused: &Refused, method: &str) -> FlowError {
        let status = match refused.code {
            AUTHORIZATION => 401,
            AUTHENTICATION => 403,
            NO_EXISTS => 404,
            _ => 500,
        };
        FlowError::new(status, format!("[{method}] {}", refused.message))
    }

    /// An internal error of OneFlow.
    pub fn stumbled(reason: &str) -> FlowError {
        FlowError::new(500, json!({"message": "Internal server error", "reason": reason}).to_string())
    }
}

impl Service {
    pub fn body_json(&self) -> Map<String, Value> {
        let mut body = self.body.clone();
        body.insert("roles".to_owned(), self.roles.iter().map(Role::to_json).collect());
        body.insert("state".to_owned(), json!(self.state as i64));
        body.insert("start_time".to_owned(), json!(self.started));
        if !self.log.is_empty() {
            body.insert("log".to_owned(), Value::Array(self.log.clone()));
        }
        body
    }

    pub fn say(&mut self, now_s: u64, severity: &str, message: &str) {
        if self.log.len() >= LOG_KEPT {
            self.log.remove(0);
        }
        self.log.push(json!({"timestamp": now_s, "severity": severity, "message": message}));
    }

    pub fn turn(&mut self, now_s: u64, state: ServiceState) {
        if self.state != state {
            self.state = state;
            self.say(now_s, "I", &format!("New state: {}", state.name()));
        }
    }

    /// Enters RUNNING; the watchdog processes the condition of every VM again.
    pub fn run_watched(&mut self, now_s: u64) {
        self.turn(now_s, ServiceState::Running);
        self.watched = true;
        self.roles.iter_mut().for_each(|role| role.noticed.clear());
    }

    pub fn straight(&self) -> bool {
        self.body.get("deployment").map(text_of).as_deref() == Some("straight")
    }

    pub fn gated(&self) -> bool {
        self.body.get("ready_status_gate") == Some(&Value::Bool(true))
    }

    pub fn role_at(&self, name: &str) -> Option<usize> {
        self.roles.iter().position(|role| role.name == name)
    }
}

impl Cloud {
    pub(super) fn modern(&self) -> bool {
        !self.version.starts_with("6.") && !self.version.starts_with("5.")
    }

    pub fn service(&self, uid: Id, id: Id, right: Right) -> Result<&Service, FlowError> {
        let missing = || FlowError::of(&Refused::missing("document", id), "one.document.info");
        let Some(service) = self.services.get(&id) else {
            return Err(match self.documents.contains_key(&id) {
                true => FlowError::new(500, format!("[DocumentInfo] Error getting document [{id}].")),
                false => missing(),
            });
        };
        let checked = self.check(uid, &service.owned, right, "DOCUMENT");
        checked.map(|()| service).map_err(|refused| FlowError::of(&refused, "one.document.info"))
    }

    pub fn service_template(&self, uid: Id, id: Id, right: Right) -> Result<&Document, FlowError> {
        let missing = || FlowError::of(&Refused::missing("document", id), "one.document.info");
        let document = self.documents.get(&id).filter(|document| document.kind == SERVICE_TEMPLATE);
        let document = document.ok_or_else(|| match self.services.contains_key(&id) {
            true => FlowError::new(500, format!("[DocumentInfo] Error getting document [{id}].")),
            false => missing(),
        })?;
        let checked = self.check(uid, &document.owned, right, "DOCUMENT");
        checked.map(|()| document).map_err(|refused| FlowError::of(&refused, "one.document.info"))
    }

    pub fn add_service_template(&mut self, uid: Id, body: Value) -> Result<Id, FlowError> {
        let mut body = schema::checked(body, self.modern()).map_err(|error| FlowError::new(400, error.0))?;
        body.insert("registration_time".to_owned(), json!(self.now_s()));
        let name = body.get("name").map(text_of).unwrap_or_default();
        let made = self.add_document(uid, &name, SERVICE_TEMPLATE, Template::default());
        let id = made.map_err(|refused| FlowError::of(&refused, "one.document.allocate"))?;
        self.documents.get_mut(&id).expect("it was just made").body = Some(body);
        Ok(id)
    }

    pub fn update_service_template(&mut self, uid: Id, id: Id, body: Value) -> Result<(), FlowError> {
        let old = self.service_template(uid, id, Right::Manage)?;
        let registered = old.body.as_ref().and_then(|body| body.get("registration_time").cloned());
        let mut body = schema::checked(body, self.modern()).map_err(|error| FlowError::new(400, error.0))?;
        body.insert("registration_time".to_owned(), registered.unwrap_or_default());
        let document = self.documents.get_mut(&id).expect("it was there");
        document.owned.name = body.get("name").map(text_of).unwrap_or_default();
        document.body = Some(body);
        Ok(())
    }

    pub fn instantiate_service(&mut self, uid: Id, template: Id, merge: Option<&Value>) -> Result<Id, FlowError> {
        let document = self.service_template(uid, template, Right::Use)?;
        let mut body = Value::Object(document.body.clone().unwrap_or_default());
        if let Some(merge) = merge {
            merge_bodies(&mut body, merge);
        }
        let mut body = schema::checked(body, self.modern()).map_err(|error| FlowError::new(400, error.0))?;
        schema::inputs_given(&body).map_err(|error| FlowError::new(400, error.0))?;
        let roles = match body.remove("roles") {
            Some(Value::Array(roles)) => roles,
            _ => Vec::new(),
        };
        let roles = roles.into_iter().filter_map(|role| match role {
            Value::Object(role) => Some(Role::new(role)),
            _ => None,
        });
        let name = body.get("name").map(text_of).unwrap_or_default();
        let id = self.fresh("document");
        let service = Service {
            owned: self.owned(id, uid, &name),
            body,
            state: ServiceState::Pending,
            started: self.now_s(),
            log: Vec::new(),
            roles: roles.collect(),
            stuck: false,
            made: Vec::new(),
            removing: None,
            watched: false,
        };
        self.services.insert(id, service);
        Ok(id)
    }
}

/// Merges objects recursively and roles by name; replaces everything else.
pub fn merge_bodies(base: &mut Value, over: &Value) {
    let (Value::Object(base), Value::Object(over)) = (base, over) else { return };
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Array(old)), Value::Array(new)) if key == "roles" => {
                for role in new {
                    let same = old.iter_mut().find(|known| known.get("name") == role.get("name"));
                    if let Some(known) = same {
                        merge_bodies(known, role);
                    }
                }
            }
            (Some(old @ Value::Object(_)), Value::Object(_)) => merge_bodies(old, value),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}
