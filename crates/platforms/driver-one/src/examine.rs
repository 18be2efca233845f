//! Checks whether a site can run a federation: endpoint, user, OneFlow, zone, network, images, datastore, quotas,
//! OneGate. The queries are separate from the `judge_*` functions, and nothing is changed. ACL rules are not checked,
//! because an ordinary user cannot read them.

use std::time::Duration;

use tokio::net::TcpStream;
use trellis_one::{Datastore, Endpoint, Error, Image, Quota, User, VirtualNetwork, explain};
use trellis_spec::SiteConfig;

use crate::cloud::{Clients, connect};
use crate::driver::zone;
use crate::render::template::{image_of, is_file};
use crate::view::{ImageState, Named, image_state, named, unknown};

/// Default port of OneGate.
const GATE_PORT: u16 = 5030;
const GATE_TIMEOUT: Duration = Duration::from_secs(5);
const ADMINISTRATORS: &str = "oneadmin";
/// Fewer free addresses than this produce a warning.
const FEW_LEASES: u64 = 3;

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub name: &'static str,
    pub fitness: Fitness,
    pub found: String,
    /// What to do if the result is not good.
    pub fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    Good,
    Doubtful,
    Bad,
}

impl Finding {
    fn good(name: &'static str, found: impl Into<String>) -> Finding {
        Finding { name, fitness: Fitness::Good, found: found.into(), fix: None }
    }

    fn doubtful(name: &'static str, found: impl Into<String>, fix: &str) -> Finding {
        Finding { name, fitness: Fitness::Doubtful, found: found.into(), fix: Some(fix.to_owned()) }
    }

    fn bad(name: &'static str, found: impl Into<String>, fix: &str) -> Finding {
        Finding { name, fitness: Fitness::Bad, found: found.into(), fix: Some(fix.to_owned()) }
    }
}

/// Checks a site as configured in a document. `gate`: endpoint of OneGate for VMs; the default is port 5030 of oned's
/// host.
pub async fn examine(site: &SiteConfig, gate: Option<&str>) -> Vec<Finding> {
    let one = &zone(site);
    let Clients { oned, flow } = match connect(one).await {
        Ok(clients) => clients,
        Err(error) => {
            let fix = "correct endpoint, authFile or zone of the site; the other checks run after this one succeeds";
            return vec![Finding::bad("endpoint", error.why, fix)];
        }
    };
    let version = oned.version().await.unwrap_or_default();
    let mut findings = vec![Finding::good("endpoint", format!("OpenNebula {version} at {}", oned.endpoint()))];
    let (user, services) = tokio::join!(oned.whoami(), flow.services());
    let (networks, images, datastores) = tokio::join!(oned.networks(), oned.images(), oned.datastores());
    findings.push(services.map_or_else(
        |error| asked("oneflow", &error),
        |services| Finding::good("oneflow", format!("{}: {} services are visible", flow.endpoint(), services.len())),
    ));
    match user {
        Ok(user) => findings.extend([judge_user(&user), judge_quotas(&user.vm_quotas)]),
        Err(error) => findings.push(asked("user", &error)),
    }
    let networks = networks.map(|networks| judge_network(&one.network, &networks));
    findings.push(networks.unwrap_or_else(|error| asked("network", &error)));
    match images {
        Ok(images) => {
            findings.push(judge_image("superlink image", &image_of(one, None), &images));
            let supernode = one.images.supernode.clone().unwrap_or_else(|| "trellis-supernode".to_owned());
            findings.push(judge_image("supernode image", &supernode, &images));
        }
        Err(error) => findings.push(asked("images", &error)),
    }
    let datastores = datastores.map(|datastores| judge_datastore(one.datastore.as_deref(), &datastores));
    findings.push(datastores.unwrap_or_else(|error| asked("datastore", &error)));
    findings.push(look_at_gate(gate, oned.endpoint()).await);
    findings
}

fn asked(name: &'static str, error: &Error) -> Finding {
    Finding::bad(name, explain(error), "solve the problem above, then run the check again")
}

fn judge_user(user: &User) -> Finding {
    let found = format!("{} of group {}", user.name, user.group);
    match user.group == ADMINISTRATORS {
        true => {
            let fix = "use an ordinary user: no call needs administrator rights, and the file contains a secret";
            Finding::doubtful("user", found, fix)
        }
        false => Finding::good("user", found),
    }
}

fn judge_quotas(quotas: &[Quota]) -> Finding {
    let words: Vec<String> = quotas.iter().map(|q| format!("{} {} of {}", q.metric, q.used, q.limit)).collect();
    if quotas.iter().any(|quota| quota.used >= quota.limit) {
        let fix = "ask the administrator for more (`oneuser quota`), or delete unused objects";
        return Finding::bad("quota", words.join(", "), fix);
    }
    match words.is_empty() {
        true => Finding::good("quota", "the user has no quota; its group may have one"),
        false => Finding::good("quota", words.join(", ")),
    }
}

fn judge_network(wanted: &str, networks: &[VirtualNetwork]) -> Finding {
    let all: Vec<Named> =
        networks.iter().map(|one| Named { id: one.id.unsigned_abs(), name: one.name.clone() }).collect();
    let Some(id) = named(&all, wanted) else {
        let fix = "configure another network, or grant the user access (`onevnet chmod ID 604`, `oneacl create`)";
        return Finding::bad("network", unknown("network", wanted, &all), fix);
    };
    let free = networks.iter().find(|one| one.id.unsigned_abs() == id).and_then(VirtualNetwork::free_leases);
    let found = |free: u64| format!("{wanted}: {free} addresses are free");
    match free {
        Some(0) => Finding::bad("network", found(0), "add an address range (`onevnet addar`), or free addresses"),
        Some(free) if free < FEW_LEASES => {
            Finding::doubtful("network", found(free), "each node needs one: add an address range (`onevnet addar`)")
        }
        Some(free) => Finding::good("network", found(free)),
        None => Finding::good("network", wanted),
    }
}

fn judge_image(name: &'static str, wanted: &str, images: &[Image]) -> Finding {
    if is_file(wanted) {
        return Finding::good(name, format!("{wanted} will be uploaded"));
    }
    let number = wanted.parse::<i32>().ok();
    let Some(image) = images.iter().find(|image| image.name == wanted || Some(image.id) == number) else {
        let fix = "build and upload it (`trellis image build`), configure another, or grant the user access (`oneimage chmod ID 604`)";
        return Finding::bad(name, format!("there is no image {wanted} that this user may use"), fix);
    };
    let found = format!("{wanted}, image {}, {} MB", image.id, image.size_mb);
    match image_state(image.state.number()) {
        ImageState::Usable => Finding::good(name, found),
        ImageState::Waiting => Finding::doubtful(name, format!("{found}: {}", image.state), "wait until it is READY"),
        ImageState::Failed => Finding::bad(name, format!("{found}: {}", image.state), "delete it and upload it again"),
    }
}

fn judge_datastore(wanted: Option<&str>, datastores: &[Datastore]) -> Finding {
    let all: Vec<Named> =
        datastores.iter().map(|one| Named { id: one.id.unsigned_abs(), name: one.name.clone() }).collect();
    match wanted {
        None => Finding::good("datastore", "the default datastore, for the coordinator's state"),
        Some(wanted) if named(&all, wanted).is_some() => Finding::good("datastore", wanted),
        Some(wanted) => {
            let fix = "configure another image datastore, or grant the user access (`onedatastore chmod ID 604`)";
            Finding::bad("datastore", unknown("datastore", wanted, &all), fix)
        }
    }
}

/// An unreachable OneGate is only a warning: VMs need it, but this machine may have no route to it.
async fn look_at_gate(gate: Option<&str>, oned: &Endpoint) -> Finding {
    let endpoint = match gate.map(Endpoint::parse) {
        Some(Ok(endpoint)) => endpoint,
        Some(Err(error)) => return Finding::bad("onegate", error.to_string(), "use the form http://host:5030"),
        None => Endpoint { tls: false, port: GATE_PORT, path: String::new(), ..oned.clone() },
    };
    let reached = tokio::time::timeout(GATE_TIMEOUT, TcpStream::connect((endpoint.host.as_str(), endpoint.port))).await;
    match reached {
        Ok(Ok(_)) => Finding::good("onegate", format!("{endpoint} accepts connections")),
        _ => {
            let fix =
                "VMs need ONEGATE_ENDPOINT of oned.conf: test it in a VM (curl $ONEGATE_ENDPOINT), or pass --onegate";
            Finding::doubtful("onegate", format!("{endpoint} cannot be reached from this machine"), fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_used_up_is_bad_and_none_is_good() {
        let quota = |used| Quota { metric: "VMS".to_owned(), limit: 4.0, used };
        assert_eq!(judge_quotas(&[]).fitness, Fitness::Good);
        let some = judge_quotas(&[quota(3.0)]);
        assert_eq!((some.fitness, some.found.as_str()), (Fitness::Good, "VMS 3 of 4"));
        assert_eq!(judge_quotas(&[quota(4.0)]).fitness, Fitness::Bad);
    }
}
