//! OneFlow's REST API: services and templates. Errors are plain text with the content type HTML, as in OneFlow.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::{Value, json};

use crate::cloud::{Cloud, FlowError, Id, Right};
use crate::faults::Server;
use crate::http::{Answer, Asked};
use crate::shared::Shared;
use crate::template::text_of;

const KIND: &str = "text/html;charset=utf-8";
/// Actions on a role or on a service.
const VM_ACTIONS: [&str; 13] = [
    "terminate",
    "terminate-hard",
    "undeploy",
    "undeploy-hard",
    "hold",
    "release",
    "stop",
    "suspend",
    "resume",
    "reboot",
    "reboot-hard",
    "poweroff",
    "poweroff-hard",
];

type Done = Result<Answer, FlowError>;

pub async fn handle(shared: Arc<Shared>, asked: Asked) -> Option<Answer> {
    shared.take_in(Server::Flow, &asked.line()).await;
    let answer =
        shared.with(|cloud| answer(cloud, &asked)).unwrap_or_else(|error| Answer::new(error.status, KIND, error.text));
    let lost = shared.faults(|faults| faults.takes_answer(Server::Flow, &asked.line()));
    (!lost).then_some(answer)
}

fn answer(cloud: &mut Cloud, asked: &Asked) -> Done {
    let uid = authenticated(cloud, asked)?;
    let parts: Vec<&str> = asked.path.split('/').filter(|part| !part.is_empty()).collect();
    match (&asked.method, parts.as_slice()) {
        (&Method::GET, ["service"]) => Ok(services(cloud, uid)),
        (&Method::GET, ["service", id]) => {
            let service = cloud.service(uid, number(id), Right::Use)?;
            Ok(shown(200, &json!({"DOCUMENT": cloud.service_json(service)})))
        }
        (&Method::PUT, ["service", id]) => {
            let body = parsed(&asked.body).map_err(|reason| FlowError::new(400, reason))?;
            let append = body["append"] == json!(true);
            let said = match body["template"].as_str().filter(|_| append) {
                Some(text) => parsed(text).map_err(|reason| FlowError::new(400, reason))?,
                None => body,
            };
            cloud.update_service(uid, number(id), &said, append).map(|()| Answer::empty(204))
        }
        (&Method::DELETE, ["service", id]) => cloud.undeploy(uid, number(id)).map(|()| Answer::empty(204)),
        (&Method::POST, ["service", id, "action"]) => service_action(cloud, uid, number(id), &asked.body),
        (&Method::POST, ["service", id, "scale"]) => scale(cloud, uid, number(id), &asked.body),
        (&Method::POST, ["service", id, "role_action"]) => change_roles(cloud, uid, number(id), &asked.body),
        (&Method::POST, ["service", id, "role", role, "action"]) => {
            let (action, _) = action(&asked.body)?;
            if !VM_ACTIONS.contains(&action.as_str()) {
                return Err(FlowError::new(500, format!("Action {action} not supported")));
            }
            cloud.role_action(uid, number(id), Some(role), &action).map(|()| Answer::empty(204))
        }
        (&Method::POST, ["service_pool", "purge_done"]) => Ok(Answer::empty(204)),
        (&Method::GET, ["service_template"]) => Ok(templates(cloud, uid)),
        (&Method::GET, ["service_template", id]) => template(cloud, uid, 200, number(id)),
        (&Method::POST, ["service_template"]) => {
            let body = parsed(&asked.body).map_err(|reason| FlowError::new(400, reason))?;
            let id = cloud.add_service_template(uid, body)?;
            template(cloud, uid, 201, id)
        }
        (&Method::PUT, ["service_template", id]) => {
            let body = parsed(&asked.body).map_err(|reason| FlowError::new(400, reason))?;
            cloud.update_service_template(uid, number(id), body)?;
            template(cloud, uid, 200, number(id))
        }
        (&Method::DELETE, ["service_template", id]) => {
            cloud.service_template(uid, number(id), Right::Manage)?;
            cloud.documents.remove(&number(id));
            Ok(Answer::empty(204))
        }
        (&Method::POST, ["service_template", id, "action"]) => template_action(cloud, uid, number(id), &asked.body),
        _ => Ok(Answer::new(404, KIND, "<h1>Not Found</h1>")),
    }
}

fn authenticated(cloud: &Cloud, asked: &Asked) -> Result<Id, FlowError> {
    let Some(said) = asked.header("authorization").and_then(|said| said.strip_prefix("Basic ")) else {
        return Err(FlowError::new(401, "A username and password must be provided"));
    };
    let session = STANDARD.decode(said).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let known = session.and_then(|session| cloud.login(&session));
    known.ok_or_else(|| FlowError::new(401, "Invalid credentials"))
}

/// Ruby's conversion: text that is not a number is 0.
fn number(text: &str) -> Id {
    text.parse().unwrap_or(0)
}

fn parsed(body: &str) -> Result<Value, String> {
    serde_json::from_str(body).map_err(|_| format!("unexpected token at '{body}'"))
}

fn shown(status: u16, value: &Value) -> Answer {
    Answer::new(status, KIND, format!("{value:#}"))
}

/// Name and parameters of an action.
fn action(body: &str) -> Result<(String, Value), FlowError> {
    let body = parsed(body).map_err(|reason| FlowError::stumbled(&reason))?;
    match &body["action"]["perform"] {
        Value::String(perform) => Ok((perform.clone(), body["action"]["params"].clone())),
        _ => Err(FlowError::stumbled("undefined method `[]' for nil:NilClass")),
    }
}

fn pool(mut documents: Vec<Value>) -> Answer {
    documents.reverse();
    let pool = match documents.is_empty() {
        true => json!({}),
        false => json!({"DOCUMENT": documents}),
    };
    shown(200, &json!({"DOCUMENT_POOL": pool}))
}

fn services(cloud: &Cloud, uid: Id) -> Answer {
    let known = cloud.services.values().filter(|known| cloud.permits(uid, &known.owned, Right::Use));
    pool(known.map(|known| cloud.service_json(known)).collect())
}

fn templates(cloud: &Cloud, uid: Id) -> Answer {
    let known =
        cloud.documents.values().filter(|known| known.kind == 101 && cloud.permits(uid, &known.owned, Right::Use));
    pool(known.map(|known| cloud.document_json(&known.owned, 101, known.body.clone().unwrap_or_default())).collect())
}

fn template(cloud: &Cloud, uid: Id, status: u16, id: Id) -> Done {
    let known = cloud.service_template(uid, id, Right::Use)?;
    let document = cloud.document_json(&known.owned, 101, known.body.clone().unwrap_or_default());
    Ok(shown(status, &json!({"DOCUMENT": document})))
}

fn scale(cloud: &mut Cloud, uid: Id, id: Id, body: &str) -> Done {
    let body = parsed(body).map_err(|reason| FlowError::stumbled(&reason))?;
    let cardinality = body["cardinality"].as_i64().or_else(|| body["cardinality"].as_str()?.parse().ok());
    let (Some(cardinality), Some(role)) = (cardinality, body["role_name"].as_str()) else {
        return Err(FlowError::new(400, "KEY: 'cardinality' must be an Integer;"));
    };
    if cloud.service(uid, id, Right::Manage)?.role_at(role).is_none() {
        return Err(FlowError::new(500, format!("Role {role} not found")));
    }
    let Some(force) = body["force"].as_bool() else {
        // OneFlow writes this JSON by hand, and cannot parse it again.
        let reason = format!("unexpected token at '{{ \"cardinality\" : {cardinality},\n  \"force\" :  }}'");
        return Err(FlowError::stumbled(&reason));
    };
    cloud.scale(uid, id, role, cardinality, force, None).map(|()| Answer::empty(204))
}

fn service_action(cloud: &mut Cloud, uid: Id, id: Id, body: &str) -> Done {
    let (perform, params) = action(body)?;
    match perform.as_str() {
        "recover" => cloud.recover_service(uid, id, params["delete"] == json!(true))?,
        "release" => cloud.release(uid, id)?,
        "rename" | "chmod" | "chown" | "chgrp" => {
            let owned = changed(&cloud.service(uid, id, Right::Manage)?.owned, &perform, &params);
            let service = cloud.services.get_mut(&id).expect("it was there");
            service.body.insert("name".to_owned(), json!(owned.name));
            service.owned = owned;
        }
        vm_action if VM_ACTIONS.contains(&vm_action) => cloud.role_action(uid, id, None, vm_action)?,
        other => return Err(FlowError::new(500, format!("Action {other} not supported"))),
    }
    Ok(Answer::empty(204))
}

fn changed(owned: &crate::cloud::Owned, perform: &str, params: &Value) -> crate::cloud::Owned {
    let mut new = owned.clone();
    let id = |key: &str| text_of(&params[key]).parse::<Id>().ok().filter(|id| *id >= 0);
    match perform {
        "rename" => new.name = text_of(&params["name"]),
        "chmod" => {
            let octet = u16::from_str_radix(&text_of(&params["octet"]), 8).unwrap_or(0o600);
            for (at, bit) in new.permissions.iter_mut().enumerate() {
                *bit = octet >> (8 - at) & 1 == 1;
            }
        }
        _ => {
            new.uid = id("owner_id").unwrap_or(new.uid);
            new.gid = id("group_id").unwrap_or(new.gid);
        }
    }
    new
}

fn change_roles(cloud: &mut Cloud, uid: Id, id: Id, body: &str) -> Done {
    let (perform, params) = action(body)?;
    match perform.as_str() {
        "add_role" => cloud.add_role(uid, id, params["role"].clone())?,
        "remove_role" => cloud.remove_role(uid, id, &text_of(&params["role"]))?,
        other => return Err(FlowError::new(500, format!("Action {other} not supported"))),
    }
    Ok(Answer::empty(204))
}

fn template_action(cloud: &mut Cloud, uid: Id, id: Id, body: &str) -> Done {
    let (perform, params) = action(body)?;
    match perform.as_str() {
        "instantiate" => {
            let merge = params.get("merge_template").filter(|merge| merge.is_object());
            let new = cloud.instantiate_service(uid, id, merge)?;
            let service = &cloud.services[&new];
            return Ok(shown(201, &json!({"DOCUMENT": cloud.service_json(service)})));
        }
        "clone" => {
            let known = cloud.service_template(uid, id, Right::Use)?.clone();
            let name = text_of(&params["name"]);
            let made = cloud.add_document(uid, &name, 101, known.template);
            let new = made.map_err(|refused| FlowError::of(&refused, "one.document.allocate"))?;
            cloud.documents.get_mut(&new).expect("it was just made").body = known.body;
            return template(cloud, uid, 201, new);
        }
        "update" => {
            let old = cloud.service_template(uid, id, Right::Manage)?.body.clone().unwrap_or_default();
            let text = text_of(&params["template_json"]);
            let said = parsed(&text).map_err(|reason| FlowError::new(400, reason))?;
            let new = match params["append"] == json!(true) {
                true => {
                    let mut whole = Value::Object(old);
                    crate::cloud::merge_bodies(&mut whole, &said);
                    whole
                }
                false => said,
            };
            cloud.update_service_template(uid, id, new)?;
        }
        "rename" | "chmod" | "chown" | "chgrp" => {
            let owned = changed(&cloud.service_template(uid, id, Right::Manage)?.owned, &perform, &params);
            cloud.documents.get_mut(&id).expect("it was there").owned = owned;
        }
        _ => {
            cloud.service_template(uid, id, Right::Use)?;
            // OneFlow ignores this error.
            return Ok(Answer::new(200, KIND, ""));
        }
    }
    Ok(Answer::empty(204))
}
