//! OneGate: access of a VM to itself and its service.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde_json::{Map, Value, json};

use crate::cloud::{Cloud, FlowError, Id, Service, Vm};
use crate::element::Element;
use crate::faults::Server;
use crate::http::{Answer, Asked, parameter};
use crate::shared::Shared;
use crate::template::Template;
use crate::token;

const KIND: &str = "application/json;charset=utf-8";
const RESTRICTED: [&str; 3] = ["SCHED_REQUIREMENTS", "SERVICE_ID", "ROLE_NAME"];
const NIC_SHOWN: [&str; 10] =
    ["IP", "IP6_LINK", "IP6_SITE", "IP6_GLOBAL", "NETWORK", "MAC", "NAME", "PARENT", "EXTERNAL", "EXTERNAL_IP"];
const ACTIONS: [&str; 12] = [
    "hold",
    "resume",
    "release",
    "stop",
    "suspend",
    "terminate",
    "terminate-hard",
    "poweroff",
    "poweroff-hard",
    "undeploy",
    "undeploy-hard",
    "recover",
];

pub async fn handle(shared: Arc<Shared>, asked: Asked) -> Option<Answer> {
    shared.take_in(Server::Gate, &asked.line()).await;
    let (slow_ms, status, offset_s) =
        shared.faults(|faults| (faults.gate.slow_ms, faults.gate.status, faults.gate.date_offset_s));
    if slow_ms > 0 {
        tokio::time::sleep(Duration::from_millis(slow_ms)).await;
    }
    let mut answer = match status {
        Some(401) => text(401, "Not authorized"),
        Some(status) => text(status, "Internal server error"),
        None => answer(&shared, &asked),
    };
    if offset_s != 0 {
        answer.date = Some(date(offset_s));
    }
    let lost = shared.faults(|faults| faults.takes_answer(Server::Gate, &asked.line()));
    (!lost).then_some(answer)
}

/// Date of a clock with this offset.
fn date(offset_s: i64) -> String {
    let shown = jiff::Timestamp::now().saturating_add(jiff::SignedDuration::from_secs(offset_s));
    shown.map(|at| at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()).unwrap_or_default()
}

fn text(status: u16, body: &str) -> Answer {
    Answer::new(status, KIND, body)
}

fn answer(shared: &Shared, asked: &Asked) -> Answer {
    let parts: Vec<&str> = asked.path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() && asked.method == Method::GET {
        let base = shared.with(|cloud| cloud.gate_endpoint.clone());
        let links = format!("{{\"vm_info\":\"{base}/vm\",\"service_info\":\"{base}/service\"}}");
        return text(200, &links);
    }
    let caller = shared.with(|cloud| caller(cloud, asked));
    let Some(caller) = caller else { return text(401, "Not authorized") };
    let done = match (asked.method.as_str(), parts.as_slice()) {
        ("GET", ["vm"]) => shared.with(|cloud| shown(cloud, caller)),
        ("PUT", ["vm"]) => shared.with(|cloud| update(cloud, caller, asked)),
        ("GET", ["vms", id]) => shared.with(|cloud| shown(cloud, mate(cloud, caller, id)?)),
        ("PUT", ["vms", id]) => shared.with(|cloud| {
            let id = mate(cloud, caller, id)?;
            update(cloud, id, asked)
        }),
        ("POST", ["vms", id, "action"]) => shared.with(|cloud| {
            let id = mate(cloud, caller, id)?;
            act(cloud, id, &asked.body)
        }),
        ("GET", ["service"]) => service(shared, caller, asked),
        ("PUT", ["service", "role", role]) => shared.with(|cloud| scale(cloud, caller, role, &asked.body)),
        ("GET", ["vrouter"]) => Err(text(400, "Empty or invalid VROUTER_ID")),
        ("GET", ["vnet", _]) => {
            Err(text(400, "Virtual networks information can only be retrieved from Virtual Routers."))
        }
        _ => Err(text(400, "OneGate server doesn't support this feature")),
    };
    done.unwrap_or_else(|refused| refused)
}

/// The VM of the token in the request.
fn caller(cloud: &Cloud, asked: &Asked) -> Option<Id> {
    let id: Id = asked.header("x-onegate-vmid")?.parse().ok()?;
    let said = asked.header("x-onegate-token")?;
    (token::of(cloud, id)? == said).then_some(id)
}

/// Another VM of the same service.
fn mate(cloud: &Cloud, caller: Id, other: &str) -> Result<Id, Answer> {
    let other: Id = other.parse().map_err(|_| text(404, "[one.vm.info] Error getting virtual machine [0]."))?;
    if other == caller {
        return Ok(caller);
    }
    let Some(service) = own_service(cloud, caller) else {
        let why = "This VM does not belong to any Virtual Router or Service";
        return Err(text(400, why));
    };
    let within = service.roles.iter().any(|role| role.vms().contains(&other)) && !cloud.faults.gate.foreign;
    match within {
        true => Ok(other),
        false => Err(text(400, &format!("Service {} does not contain VM {other}.", service.owned.id))),
    }
}

fn own_service(cloud: &Cloud, vm: Id) -> Option<&Service> {
    cloud.services.get(&cloud.vms.get(&vm)?.service()?)
}

fn known(cloud: &Cloud, id: Id) -> Result<&Vm, Answer> {
    cloud.vms.get(&id).ok_or_else(|| text(404, &format!("[one.vm.info] Error getting virtual machine [{id}].")))
}

fn shown(cloud: &Cloud, id: Id) -> Result<Answer, Answer> {
    Ok(text(200, &json!({"VM": vm_json(known(cloud, id)?)}).to_string()))
}

fn vm_json(vm: &Vm) -> Value {
    let mut own = vm.user_template.clone();
    own.erase("SCHED_MESSAGE");
    let nics = |name: &str| -> Vec<Value> {
        let each = vm.template.vectors(name).map(|nic| {
            let shown = NIC_SHOWN.iter().filter_map(|key| Some(((*key).to_owned(), json!(nic.get(*key)?))));
            Value::Object(shown.collect::<Map<_, _>>())
        });
        each.collect()
    };
    json!({
        "NAME": vm.owned.name,
        "ID": vm.owned.id.to_string(),
        "STATE": (vm.state as i64).to_string(),
        "LCM_STATE": (vm.lcm as i64).to_string(),
        "USER_TEMPLATE": Element::of("USER_TEMPLATE", own.elements()).to_json(),
        "TEMPLATE": {"NIC": nics("NIC"), "NIC_ALIAS": nics("NIC_ALIAS")},
    })
}

fn update(cloud: &mut Cloud, id: Id, asked: &Asked) -> Result<Answer, Answer> {
    // The official client sends a form, others the lines themselves.
    let form = asked.body.starts_with("data=") || asked.body.contains("&data=");
    let from_form = |name: &str| if form { parameter(&asked.body, name) } else { None };
    let data = asked.query("data").or_else(|| from_form("data")).unwrap_or_else(|| asked.body.clone());
    let kind = asked.query("type").or_else(|| from_form("type")).unwrap_or_else(|| "1".to_owned());
    let forbidden = |name: &str| RESTRICTED.contains(&name.to_uppercase().as_str());
    let refuse = |name: &str| Err(text(403, &format!("Attribute ({}) cannot be modified", name.to_uppercase())));
    if kind == "2" {
        let name = data.trim();
        if forbidden(name) {
            return refuse(name);
        }
        let mut left = known(cloud, id)?.user_template.clone();
        if left.erase(name).is_none() {
            // OneGate loses the original message.
            return Err(text(500, "Internal server error"));
        }
        cloud.update_user_template(id, left, true, "onegate").map_err(|_| text(500, "Internal server error"))?;
        return Ok(text(200, ""));
    }
    let Ok(said) = Template::parse(&rewritten(data.trim_end())) else { return Err(text(500, "Internal server error")) };
    if let Some(name) = said.0.keys().find(|name| forbidden(name)) {
        return refuse(name);
    }
    cloud.update_user_template(id, said, false, "onegate").map_err(|_| text(500, "Internal server error"))?;
    Ok(text(200, ""))
}

/// OneGate puts quotes around the text after an equals sign, and closes them at every comma, line break, backslash and
/// bracket: values with one of these, or with an equals sign after a quote, are damaged unless the client avoids it.
/// values that hold one of these, or an equals sign after a quote, arrive crippled unless their sender took care.
fn rewritten(data: &str) -> String {
    let mut out = String::new();
    let (mut before, mut open) = (' ', false);
    let mut rest = data.chars().peekable();
    while let Some(c) = rest.next() {
        let ends = match c {
            ',' | '\n' | '\\' => before != '"',
            '[' | ']' => before != '"' && before != '=',
            _ => false,
        };
        let begins = c == '=' && !open && !matches!(rest.peek(), Some('"' | '['));
        if ends {
            out.push('"');
            open &= matches!(c, ',' | '[');
        }
        out.push(c);
        if begins {
            out.push('"');
            open = true;
        }
        before = c;
    }
    if open && !out.ends_with(['"', ']']) {
        out.push('"');
    }
    out
}

fn act(cloud: &mut Cloud, id: Id, body: &str) -> Result<Answer, Answer> {
    let broken = || text(500, "Internal server error");
    let body: Value = serde_json::from_str(body).map_err(|_| broken())?;
    let action = body["action"]["perform"].as_str().ok_or_else(broken)?;
    if action.starts_with("reboot") {
        return Err(text(403, &format!("Action ({action}) is not allowed on resource (vm)")));
    }
    if !ACTIONS.contains(&action) {
        return Err(broken());
    }
    cloud.act(id, action).map_err(|_| broken())?;
    Ok(Answer::empty(204))
}

fn scale(cloud: &mut Cloud, caller: Id, role: &str, body: &str) -> Result<Answer, Answer> {
    let owner = known(cloud, caller)?.owned.uid;
    let Some(service) = own_service(cloud, caller) else { return Err(text(400, "Empty or invalid SERVICE_ID")) };
    let service = service.owned.id;
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let Some(cardinality) = body["cardinality"].as_i64() else { return Err(text(500, "Internal server error")) };
    let scaled = cloud.scale(owner, service, role, cardinality, false, None);
    scaled.map(|()| text(200, "")).map_err(|FlowError { status, .. }| text(status, "Internal server error"))
}

fn service(shared: &Shared, caller: Id, asked: &Asked) -> Result<Answer, Answer> {
    let wanted = asked.query("extended").or_else(|| parameter(&asked.body, "extended"));
    let extended = wanted.is_some_and(|said| said == "true" || said.is_empty());
    let (id, live, stale) = shared.with(|cloud| {
        let Some(service) = own_service(cloud, caller) else { return Err(text(400, "Empty or invalid SERVICE_ID")) };
        Ok((service.owned.id, service_json(cloud, service, extended), cloud.faults.gate.stale))
    })?;
    let kept = if stale { shared.stale(id, extended) } else { None };
    Ok(text(200, &kept.unwrap_or(live).to_string()))
}

/// The VMs as OneFlow stores them, or with all information of oned.
pub fn service_json(cloud: &Cloud, service: &Service, extended: bool) -> Value {
    let roles: Vec<Value> = service
        .roles
        .iter()
        .map(|role| {
            let nodes = role.nodes.iter().flatten().map(|node| {
                let info = match cloud.vms.get(&node.vm).filter(|_| extended) {
                    Some(vm) => cloud.vm_element(vm).to_json(),
                    None => node.info.clone(),
                };
                json!({"deploy_id": node.vm, "running": null, "vm_info": {"VM": info}})
            });
            let nodes: Vec<Value> = nodes.collect();
            json!({"name": role.name, "cardinality": role.cardinality, "state": role.state as i64, "nodes": nodes})
        })
        .collect();
    let id = service.owned.id.to_string();
    json!({"SERVICE": {"name": service.owned.name, "id": id, "state": service.state as i64, "roles": roles}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_attributes_and_careless_values_do_not_arrive() {
        let read = |data: &str| Template::parse(&rewritten(data));
        let said = read("FOO=bar baz\nNUM=5\nC=QUJD==").expect("they are lines");
        assert_eq!((said.get("FOO"), said.get("NUM"), said.get("C")), (Some("bar baz"), Some("5"), Some("QUJD==")));
        let said = read("<TEMPLATE><A>a&#44;b&#61;&#34;</A></TEMPLATE>").expect("it is XML");
        assert_eq!(said.get("A"), Some("a,b=\""));
        for (data, value) in
            [("A=12:0,13:1", "12:0,13:1"), ("A=\"QUJD==\"", "QUJD=="), ("A=x[1]", "x[1]"), ("A=a\\b", "a\\b")]
        {
            assert!(read(data).map_or(true, |said| said.get("A") != Some(value)), "{data}");
        }
    }
}
