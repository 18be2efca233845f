//! The server, its ports and those of federations, and their certificates.

use super::listed;
use crate::check::{Check, Verdict};
use crate::facts::{Certificate, CertificateFile, Holder, Port, PortState, Server};

const DAY_S: i64 = 86_400;
/// Certificates of local federations are renewed long before.
const EXPIRES_SOON_S: i64 = DAY_S;
const MAX_LISTED: usize = 3;

pub fn server(server: &Server, version: &str) -> Check {
    match server {
        Server::NotRunning => Check::ok("server", "not running; `trellis up` or `trellis server` starts it"),
        Server::Dead { pid } => {
            let found = format!("it ended without a clean stop (pid {pid} no longer exists)");
            Check::warning("server", found, "start it again: `trellis up` or `trellis server`; no data is lost")
        }
        Server::Running { pid, url, answer: Err(why) } => {
            let fix =
                "see server.log in the home; if the server hangs, kill the process and start it again: no data is lost";
            Check::problem("server", format!("pid {pid} does not answer at {url}: {why}"), fix)
        }
        Server::Running { pid, url, answer: Ok(other) } if other != version => {
            let found = format!("{url} (pid {pid}) has version {other}, this program {version}");
            Check::warning("server", found, "restart it with this program: federations continue meanwhile")
        }
        Server::Running { pid, url, .. } => Check::ok("server", format!("{url}, pid {pid}")),
    }
}

pub fn ports(ports: &[Port], server: &Server) -> Check {
    let own = match server {
        Server::Running { pid, .. } => Some(*pid),
        _ => None,
    };
    let is_ours = |holder: &Holder| Some(holder.pid) == own || holder.name == "trellis";
    let mut taken = Vec::new();
    let mut used = Vec::new();
    for Port { number, purpose, state } in ports {
        match state {
            PortState::Free => {}
            PortState::Taken(Some(holder)) if is_ours(holder) => used.push(format!("{number} ({purpose})")),
            PortState::Taken(Some(Holder { pid, name })) => {
                taken.push(format!("{number} ({purpose}) is in use by {name}, pid {pid}"));
            }
            PortState::Taken(None) => {
                taken.push(format!("{number} ({purpose}) is in use by a process of another user"))
            }
            PortState::Refused(why) => taken.push(format!("{number} ({purpose}) cannot be used: {why}")),
        }
    }
    if !taken.is_empty() {
        let fix = "stop that program, or choose other ports with --port and the flags for addresses; `trellis up` finds free ports";
        return Check::warning("ports", listed(&taken, ports.len()), fix);
    }
    let numbers: Vec<String> = ports.iter().map(|port| port.number.to_string()).collect();
    match used.is_empty() {
        true => Check::ok("ports", format!("{} are free", numbers.join(", "))),
        false => Check::ok("ports", format!("in use by Trellis: {}; the others are free", used.join(", "))),
    }
}

pub fn certificates(files: &[CertificateFile], now_s: i64) -> Check {
    let mut worst = Verdict::Ok;
    let mut findings = Vec::new();
    let mut next_end_s = i64::MAX;
    for CertificateFile { path, content } in files {
        let wrong: Vec<(Verdict, String)> = match content {
            Err(why) => vec![(Verdict::Problem, why.clone())],
            Ok(all) => {
                next_end_s = all.iter().map(|one| one.not_after_s).fold(next_end_s, i64::min);
                all.iter().filter_map(|one| wrong(one, now_s)).collect()
            }
        };
        for (verdict, what) in wrong {
            worst = worst.max(verdict);
            findings.push(format!("{}: {what}", path.display()));
        }
    }
    let fix = "apply the federation again (`trellis apply`): this issues new certificates; check the clock, too";
    match worst {
        Verdict::Ok if files.is_empty() => Check::ok("certificates", "none: there is no local federation with TLS"),
        Verdict::Ok => {
            let days = (next_end_s - now_s) / DAY_S;
            Check::ok("certificates", format!("files: {}; the first one expires in {days} days", files.len()))
        }
        Verdict::Warning => Check::warning("certificates", listed(&findings, MAX_LISTED), fix),
        Verdict::Problem => Check::problem("certificates", listed(&findings, MAX_LISTED), fix),
    }
}

fn wrong(certificate: &Certificate, now_s: i64) -> Option<(Verdict, String)> {
    let Certificate { subject, names, is_ca, not_before_s, not_after_s } = certificate;
    if now_s < *not_before_s {
        return Some((Verdict::Problem, format!("{subject} is not valid before {}", trellis_pki::date(*not_before_s))));
    }
    if now_s > *not_after_s {
        return Some((Verdict::Problem, format!("{subject} expired on {}", trellis_pki::date(*not_after_s))));
    }
    if !is_ca && names.is_empty() {
        return Some((Verdict::Problem, format!("{subject} names no host: clients do not accept it")));
    }
    (*not_after_s - now_s < EXPIRES_SOON_S)
        .then(|| (Verdict::Warning, format!("{subject} expires on {}", trellis_pki::date(*not_after_s))))
}
