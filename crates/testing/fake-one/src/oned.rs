//! oned: translates calls to actions of the cloud.

use std::sync::Arc;

use crate::cloud::{
    AUTHENTICATION, Cloud, Document, Holder, INTERNAL, Id, ImageState, Owned, RPC_API, Refused, Right,
    document_element, state_fits, vm_short_element,
};
use crate::element::Element;
use crate::faults::Server;
use crate::http::{Answer, Asked};
use crate::methods::{self, Parameters};
use crate::rpc::{self, Value};
use crate::shared::Shared;
use crate::template::Template;

const KIND: &str = "text/xml; charset=utf-8";

pub async fn handle(shared: Arc<Shared>, asked: Asked) -> Option<Answer> {
    if asked.path != "/RPC2" || asked.method != "POST" {
        return Some(Answer::new(404, "text/html", "<HTML><BODY><p>Error 404</p></BODY></HTML>"));
    }
    let call = match rpc::parse(&asked.body) {
        Ok(call) => call,
        Err(error) => {
            return Some(Answer::new(
                200,
                KIND,
                rpc::fault(-503, &format!("Call XML not a proper XML-RPC call. {error}")),
            ));
        }
    };
    shared.take_in(Server::Oned, &call.method).await;
    let body = match methods::checked(&call.method, call.parameters) {
        Err((code, text)) => rpc::fault(code, &text),
        Ok((session, parameters)) => {
            shared.with(|cloud| match authenticated(cloud, &session, &call.method, &parameters) {
                Ok(result) => rpc::success(&result),
                Err(refused) => {
                    rpc::failure(&format!("[{}] {}", call.method, refused.message), refused.code, refused.object)
                }
            })
        }
    };
    let lost = shared.faults(|faults| faults.takes_answer(Server::Oned, &call.method));
    (!lost).then(|| Answer::new(200, KIND, body))
}

fn authenticated(cloud: &mut Cloud, session: &str, method: &str, p: &Parameters) -> Result<Value, Refused> {
    let Some(uid) = cloud.login(session) else {
        return Err(Refused::new(AUTHENTICATION, "User couldn't be authenticated, aborting call."));
    };
    if let Some((code, message)) = cloud.faults.refusal(method) {
        return Err(Refused::new(code, message));
    }
    let (object, verb) = method.trim_start_matches("one.").split_once('.').unwrap_or_default();
    match object {
        "system" => system(cloud, verb),
        "template" => template(cloud, uid, verb, p),
        "vm" => vm(cloud, uid, verb, p),
        "image" => image(cloud, uid, verb, p),
        "vn" => network(cloud, uid, verb, p),
        "document" => document(cloud, uid, verb, p),
        "user" => user(cloud, uid, verb, p),
        pool => pools(cloud, uid, pool, verb, p),
    }
}

fn text(element: &Element) -> Value {
    Value::Text(element.to_xml())
}

fn parsed(text: &str) -> Result<Template, Refused> {
    Template::parse(text).map_err(|error| Refused::new(INTERNAL, error))
}

fn appends(p: &Parameters, at: usize) -> Result<bool, Refused> {
    match p.int(at) {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Refused::new(RPC_API, "Wrong update type")),
    }
}

fn updated(old: &mut Template, new: Template, append: bool) {
    match append {
        true => old.merge(new),
        false => *old = new,
    }
}

/// Actions for all kinds of objects: rename, chmod, chown, lock, unlock. `None` for other actions.
fn owned(
    cloud: &Cloud,
    uid: Id,
    owned: &Owned,
    verb: &str,
    p: &Parameters,
    kind: &str,
) -> Option<Result<Owned, Refused>> {
    let mut new = owned.clone();
    let right = match verb {
        "chown" => Right::Admin,
        "rename" | "chmod" | "lock" | "unlock" => Right::Manage,
        _ => return None,
    };
    // An unlock must ignore the lock.
    new.lock = if verb == "unlock" { None } else { new.lock };
    if let Err(refused) = cloud.check(uid, &new, right, kind) {
        return Some(Err(refused));
    }
    match verb {
        "rename" => new.name = p.text(1).to_owned(),
        "chmod" => {
            for (at, bit) in new.permissions.iter_mut().enumerate() {
                *bit = match p.int(at + 1) {
                    -1 => *bit,
                    value => value == 1,
                };
            }
        }
        "chown" => {
            new.uid = if p.int(1) == -1 { new.uid } else { p.int(1) };
            new.gid = if p.int(2) == -1 { new.gid } else { p.int(2) };
        }
        "lock" => new.lock = Some(cloud.lock_of(uid, p.int(1))),
        _ => {}
    }
    Some(Ok(new))
}

fn system(cloud: &Cloud, verb: &str) -> Result<Value, Refused> {
    match verb {
        "version" => Ok(Value::Text(cloud.version.clone())),
        _ => Ok(text(&Element::of("OPENNEBULA_CONFIGURATION", vec![Element::free("API_LIST_ORDER", "DESC")]))),
    }
}

fn template(cloud: &mut Cloud, uid: Id, verb: &str, p: &Parameters) -> Result<Value, Refused> {
    if verb == "allocate" {
        let new = parsed(p.text(0))?;
        return cloud.add_template(uid, new).map(Value::Int);
    }
    let id = p.int(0);
    if verb == "instantiate" {
        let extra = parsed(p.text(3))?;
        return cloud.instantiate(uid, id, p.text(1), p.truth(2), extra).map(Value::Int);
    }
    let known = cloud.template(id)?.clone();
    if let Some(new) = owned(cloud, uid, &known.owned, verb, p, "TEMPLATE") {
        let new = new?;
        cloud.templates.get_mut(&id).expect("it was there").owned = new;
        return Ok(Value::Int(id));
    }
    let right = if matches!(verb, "info" | "clone") { Right::Use } else { Right::Manage };
    cloud.check(uid, &known.owned, right, "TEMPLATE")?;
    match verb {
        "info" => return Ok(text(&cloud.template_element(&known))),
        "clone" => {
            let mut new = known.template.clone();
            new.set("NAME", p.text(1));
            return cloud.add_template(uid, new).map(Value::Int);
        }
        "update" => {
            let (new, append) = (parsed(p.text(1))?, appends(p, 2)?);
            updated(&mut cloud.templates.get_mut(&id).expect("it was there").template, new, append);
        }
        _ => {
            cloud.templates.remove(&id);
        }
    }
    Ok(Value::Int(id))
}

fn vm(cloud: &mut Cloud, uid: Id, verb: &str, p: &Parameters) -> Result<Value, Refused> {
    if verb == "allocate" {
        let mut new = parsed(p.text(0))?;
        let name = crate::cloud::single(new.erase("NAME")).unwrap_or_else(|| format!("one-{}", cloud.vms.len()));
        return cloud.create_vm(uid, &name, p.truth(1), new, None).map(Value::Int);
    }
    let id = if verb == "action" { p.int(1) } else { p.int(0) };
    let known = cloud.vm(id)?.clone();
    if let Some(new) = owned(cloud, uid, &known.owned, verb, p, "VM") {
        let new = new?;
        cloud.vms.get_mut(&id).expect("it was there").owned = new;
        return Ok(Value::Int(id));
    }
    let right = match verb {
        "info" | "monitoring" => Right::Use,
        "recover" => Right::Admin,
        _ => Right::Manage,
    };
    cloud.check(uid, &known.owned, right, "VM")?;
    match verb {
        "info" => return Ok(text(&cloud.vm_element(&known))),
        "monitoring" => {
            let record = Element::of("MONITORING", known.monitoring.elements());
            return Ok(text(&Element::of("MONITORING_DATA", vec![record])));
        }
        "update" => {
            let (new, append) = (parsed(p.text(1))?, appends(p, 2)?);
            cloud.update_user_template(id, new, !append, "oned")?;
        }
        "updateconf" => {
            let (new, append) = (parsed(p.text(1))?, appends(p, 2)?);
            let template = &mut cloud.vms.get_mut(&id).expect("it was there").template;
            let mut context = template.vector("CONTEXT").cloned().unwrap_or_default();
            if let Some(said) = new.vector("CONTEXT") {
                if !append {
                    context.retain(|name, _| {
                        name.starts_with("ETH")
                            || ["DISK_ID", "TARGET", "VMID", "ONEGATE_ENDPOINT"].contains(&name.as_str())
                    });
                }
                context.extend(said.clone());
                template.set_vector("CONTEXT", context);
            }
        }
        "action" => cloud.act(id, p.text(0))?,
        _ => cloud.recover_vm(id, p.int(1))?,
    }
    Ok(Value::Int(id))
}

fn image(cloud: &mut Cloud, uid: Id, verb: &str, p: &Parameters) -> Result<Value, Refused> {
    if verb == "allocate" {
        let new = parsed(p.text(0))?;
        return cloud.add_image(uid, new, p.int(1)).map(Value::Int);
    }
    let id = p.int(0);
    let known = cloud.image(id)?.clone();
    if let Some(new) = owned(cloud, uid, &known.owned, verb, p, "IMAGE") {
        let new = new?;
        cloud.images.get_mut(&id).expect("it was there").owned = new;
        return Ok(Value::Int(id));
    }
    cloud.check(uid, &known.owned, if verb == "info" { Right::Use } else { Right::Manage }, "IMAGE")?;
    let image = cloud.images.get_mut(&id).expect("it was there");
    match verb {
        "info" => return Ok(text(&cloud.image_element(&known))),
        "update" => {
            let (new, append) = (parsed(p.text(1))?, appends(p, 2)?);
            updated(&mut image.template, new, append);
        }
        "persistent" => image.persistent = p.truth(1),
        "enable" => image.state = if p.truth(1) { ImageState::Ready } else { ImageState::Disabled },
        _ => cloud.delete_image(id)?,
    }
    Ok(Value::Int(id))
}

fn network(cloud: &mut Cloud, uid: Id, verb: &str, p: &Parameters) -> Result<Value, Refused> {
    if verb == "allocate" {
        let new = parsed(p.text(0))?;
        return cloud.add_network(uid, new).map(Value::Int);
    }
    let id = p.int(0);
    let known = cloud.network(id)?.clone();
    if let Some(new) = owned(cloud, uid, &known.owned, verb, p, "NET") {
        let new = new?;
        cloud.networks.get_mut(&id).expect("it was there").owned = new;
        return Ok(Value::Int(id));
    }
    cloud.check(
        uid,
        &known.owned,
        if matches!(verb, "info" | "reserve") { Right::Use } else { Right::Manage },
        "NET",
    )?;
    match verb {
        "info" => return Ok(text(&cloud.network_element(&known, true))),
        "delete" => cloud.delete_network(id)?,
        "update" => {
            let (new, append) = (parsed(p.text(1))?, appends(p, 2)?);
            updated(&mut cloud.networks.get_mut(&id).expect("it was there").template, new, append);
        }
        "add_ar" => {
            for range in parsed(p.text(1))?.vectors("AR") {
                cloud.add_range(id, range)?;
            }
        }
        "reserve" => {
            let asked = parsed(p.text(1))?;
            let size = asked.get("SIZE").and_then(|size| size.parse().ok()).unwrap_or(0);
            let name = asked.get("NAME").unwrap_or("reservation").to_owned();
            return cloud.reserve(uid, id, &name, size).map(Value::Int);
        }
        verb => {
            for lease in parsed(p.text(1))?.vectors("LEASES") {
                let ip = lease.get("IP").and_then(|ip| ip.parse().ok());
                match (verb, ip) {
                    ("hold", Some(ip)) => {
                        cloud.lease(id, Some(ip), &Holder::Held)?;
                    }
                    (_, Some(ip)) => {
                        let ranges = &mut cloud.networks.get_mut(&id).expect("it was there").ranges;
                        ranges.iter_mut().for_each(|range| {
                            range.leases.retain(|held, holder| *held != ip || *holder != Holder::Held)
                        });
                    }
                    (_, None) => return Err(Refused::new(RPC_API, "Missing IP in LEASES")),
                }
            }
        }
    }
    Ok(Value::Int(id))
}

fn document(cloud: &mut Cloud, uid: Id, verb: &str, p: &Parameters) -> Result<Value, Refused> {
    if verb == "allocate" {
        let mut new = parsed(p.text(0))?;
        let name = crate::cloud::single(new.erase("NAME")).unwrap_or_default();
        return cloud.add_document(uid, &name, p.int(1), new).map(Value::Int);
    }
    let id = p.int(0);
    let known = match cloud.services.get(&id) {
        Some(service) => service_document(service),
        None => cloud.document(id)?.clone(),
    };
    if let Some(new) = owned(cloud, uid, &known.owned, verb, p, "DOCUMENT") {
        let new = new?;
        match cloud.services.get_mut(&id) {
            Some(service) => service.owned = new,
            None => cloud.documents.get_mut(&id).expect("it was there").owned = new,
        }
        return Ok(Value::Int(id));
    }
    cloud.check(uid, &known.owned, if verb == "info" { Right::Use } else { Right::Manage }, "DOCUMENT")?;
    match verb {
        "info" => return Ok(text(&document_element(cloud, &known))),
        "update" => {
            let (new, append) = (parsed(p.text(1))?, appends(p, 2)?);
            let document =
                cloud.documents.get_mut(&id).ok_or_else(|| Refused::new(INTERNAL, "a service is OneFlow's"))?;
            updated(&mut document.template, new, append);
        }
        _ => {
            cloud.documents.remove(&id);
            cloud.services.remove(&id);
        }
    }
    Ok(Value::Int(id))
}

fn service_document(service: &crate::cloud::Service) -> Document {
    Document { owned: service.owned.clone(), kind: 100, template: Template::default(), body: Some(service.body_json()) }
}

fn user(cloud: &mut Cloud, uid: Id, verb: &str, p: &Parameters) -> Result<Value, Refused> {
    let admin = cloud.users.get(&uid).is_some_and(|user| user.gid == 0);
    let refused =
        |what: &str, id: Id| Refused::unauthorised(uid, &format!("Not authorized to perform {what} USER [{id}]"));
    match verb {
        "allocate" if admin => {
            let gid = p.first_of_array(3).unwrap_or(1);
            return Ok(Value::Int(cloud.add_user(p.text(0), p.text(1), gid)));
        }
        "allocate" => return Err(refused("CREATE", -1)),
        "login" => {
            let token = match p.text(1) {
                "" => format!(
                    "{:016x}{:016x}{:016x}{:016x}",
                    cloud.random(),
                    cloud.random(),
                    cloud.random(),
                    cloud.random()
                ),
                token => token.to_owned(),
            };
            let user = cloud.users.values_mut().find(|user| user.name == p.text(0) && (user.id == uid || admin));
            let user = user.ok_or_else(|| refused("MANAGE", -1))?;
            match p.int(2) {
                0 => user.tokens.retain(|known| *known != token),
                _ => user.tokens.push(token.clone()),
            }
            return Ok(Value::Text(token));
        }
        _ => {}
    }
    let id = if p.int(0) == -1 { uid } else { p.int(0) };
    let known = cloud.users.get(&id).cloned().ok_or_else(|| Refused::missing("user", id))?;
    if id != uid && !admin {
        return Err(refused(if verb == "info" { "USE" } else { "MANAGE" }, id));
    }
    match verb {
        "info" => {
            let mut element = cloud.user_element(&known);
            if let crate::element::Content::Elements(parts) = &mut element.content {
                parts.extend(cloud.quota_elements(&known));
                let none = ["DATASTORE_QUOTA", "NETWORK_QUOTA", "VM_QUOTA", "IMAGE_QUOTA"];
                let none = none.map(|name| Element::of(name, Vec::new()));
                parts.push(Element::of("DEFAULT_USER_QUOTAS", none.into()));
            }
            Ok(text(&element))
        }
        "quota" if !admin => Err(refused("ADMIN", id)),
        "quota" => {
            let quota = parsed(p.text(1))?.vector("VM").cloned().unwrap_or_default();
            let limits = quota.into_iter().filter_map(|(metric, limit)| Some((metric, limit.parse::<f64>().ok()?)));
            let limits = limits.filter(|(_, limit)| *limit >= 0.0).collect();
            cloud.users.get_mut(&id).expect("it was there").vm_quota = limits;
            Ok(Value::Int(id))
        }
        _ => {
            let (new, append) = (parsed(p.text(1))?, appends(p, 2)?);
            updated(&mut cloud.users.get_mut(&id).expect("it was there").template, new, append);
            Ok(Value::Int(id))
        }
    }
}

/// Whether an object matches the filter of a pool.
fn filtered(cloud: &Cloud, uid: Id, owned: &Owned, filter: i64) -> bool {
    let mine = owned.uid == uid;
    let gid = cloud.users.get(&uid).map_or(-1, |user| user.gid);
    match filter {
        -4 => owned.gid == gid,
        -3 => mine,
        -2 => cloud.permits(uid, owned, Right::Use),
        -1 => mine || (owned.gid == gid && cloud.permits(uid, owned, Right::Use)),
        user => owned.uid == user && cloud.permits(uid, owned, Right::Use),
    }
}

/// The newest first. -1, -1 selects all; a negative end is a page size; otherwise ids from start to end.
fn page<T>(mut found: Vec<(Id, T)>, start: i64, end: i64) -> Vec<T> {
    found.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
    let all = found.into_iter();
    match (start, end) {
        (-1, -1) => all.map(|(_, object)| object).collect(),
        (start, end) if end < -1 => {
            let (skip, take) = (usize::try_from(start).unwrap_or(0), end.unsigned_abs() as usize);
            all.skip(skip).take(take).map(|(_, object)| object).collect()
        }
        (start, end) => {
            let within = |id: Id| id >= start && (end == -1 || id <= end);
            all.filter(|(id, _)| within(*id)).map(|(_, object)| object).collect()
        }
    }
}

fn pools(cloud: &mut Cloud, uid: Id, pool: &str, verb: &str, p: &Parameters) -> Result<Value, Refused> {
    let cloud: &Cloud = cloud;
    let fits = |owned: &Owned| filtered(cloud, uid, owned, p.int(0));
    let paged = |name: &str, found: Vec<(Id, Element)>| text(&Element::of(name, page(found, p.int(1), p.int(2))));
    Ok(match pool {
        "vmpool" if verb == "infoset" => {
            let ids: Vec<Id> = p.text(0).split(',').filter_map(|id| id.trim().parse().ok()).collect();
            let known = cloud.vms.values().filter(|vm| ids.contains(&vm.owned.id));
            let known = known.filter(|vm| cloud.permits(uid, &vm.owned, Right::Use));
            let shown = known.map(|vm| if p.truth(1) { cloud.vm_element(vm) } else { vm_short_element(cloud, vm) });
            text(&Element::of("VM_POOL", shown.collect()))
        }
        "vmpool" => {
            if !p.text(4).is_empty() {
                return Err(Refused::new(INTERNAL, "JSON query search is not supported by the SQL backend"));
            }
            let whole = verb == "infoextended";
            let known = cloud.vms.values().filter(|vm| fits(&vm.owned) && state_fits(vm, p.int(3)));
            let shown =
                known.map(|vm| (vm.owned.id, if whole { cloud.vm_element(vm) } else { vm_short_element(cloud, vm) }));
            paged("VM_POOL", shown.collect())
        }
        "templatepool" => {
            let known = cloud.templates.values().filter(|known| fits(&known.owned));
            paged("VMTEMPLATE_POOL", known.map(|known| (known.owned.id, cloud.template_element(known))).collect())
        }
        "imagepool" => {
            let known = cloud.images.values().filter(|known| fits(&known.owned));
            paged("IMAGE_POOL", known.map(|known| (known.owned.id, cloud.image_element(known))).collect())
        }
        "vnpool" => {
            let known = cloud.networks.values().filter(|known| fits(&known.owned));
            paged("VNET_POOL", known.map(|known| (known.owned.id, cloud.network_element(known, false))).collect())
        }
        "documentpool" => {
            let services = cloud.services.values().map(service_document);
            let all = cloud.documents.values().cloned().chain(services);
            let known = all.filter(|known| known.kind == p.int(3) && fits(&known.owned));
            paged("DOCUMENT_POOL", known.map(|known| (known.owned.id, document_element(cloud, &known))).collect())
        }
        "userpool" => {
            let mut parts = Vec::new();
            for user in cloud.users.values().rev() {
                parts.push(cloud.user_element(user));
                let mut quotas = vec![Element::plain("ID", user.id)];
                quotas.extend(cloud.quota_elements(user));
                parts.push(Element::of("QUOTAS", quotas));
            }
            let none = ["DATASTORE_QUOTA", "NETWORK_QUOTA", "VM_QUOTA", "IMAGE_QUOTA"];
            parts.push(Element::of("DEFAULT_USER_QUOTAS", none.map(|name| Element::of(name, Vec::new())).into()));
            text(&Element::of("USER_POOL", parts))
        }
        pool => text(&crate::oned_fixed::pool(cloud, pool)),
    })
}
