//! What runs here: the server, the ports it and federations use, their certificates.

use super::listed;
use crate::doctor::check::{Check, Verdict};
use crate::doctor::facts::{Certificate, CertificateFile, Holder, Port, PortState, Server};

const DAY_S: i64 = 86_400;
/// Those of federations here are renewed long before.
const SOON_S: i64 = DAY_S;
const MOST_LISTED: usize = 3;

pub fn server(server: &Server, version: &str) -> Check {
    match server {
        Server::NotRunning => Check::ok("server", "it does not run; `trellis up` or `trellis server` starts it"),
        Server::Dead { pid } => {
            let found = format!("it was ended without a clean stop (pid {pid} is gone)");
            Check::warning("server", found, "start it again: `trellis up` or `trellis server`; nothing is lost")
        }
        Server::Running { pid, url, answer: Err(why) } => {
            let fix =
                "look at server.log in the home; if it hangs, end that process and start it again: nothing is lost";
            Check::problem("server", format!("pid {pid} does not answer at {url}: {why}"), fix)
        }
        Server::Running { pid, url, answer: Ok(other) } if other != version => {
            let found = format!("{url} (pid {pid}) is of version {other}, this program of {version}");
            Check::warning("server", found, "start it again with this program: federations go on meanwhile")
        }
        Server::Running { pid, url, .. } => Check::ok("server", format!("{url}, pid {pid}")),
    }
}

pub fn ports(ports: &[Port], server: &Server) -> Check {
    let own = match server {
        Server::Running { pid, .. } => Some(*pid),
        _ => None,
    };
    let by_us = |holder: &Holder| Some(holder.pid) == own || holder.name == "trellis";
    let mut taken = Vec::new();
    let mut used = Vec::new();
    for Port { number, purpose, state } in ports {
        match state {
            PortState::Free => {}
            PortState::Taken(Some(holder)) if by_us(holder) => used.push(format!("{number} ({purpose})")),
            PortState::Taken(Some(Holder { pid, name })) => {
                taken.push(format!("{number} ({purpose}) is taken by {name}, pid {pid}"));
            }
            PortState::Taken(None) => taken.push(format!("{number} ({purpose}) is taken by another user's process")),
            PortState::Refused(why) => taken.push(format!("{number} ({purpose}) cannot be had: {why}")),
        }
    }
    if !taken.is_empty() {
        let fix =
            "end that program, or choose other ports: --port and the flags for addresses; `trellis up` finds free ones";
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
    let mut told = Vec::new();
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
            told.push(format!("{}: {what}", path.display()));
        }
    }
    let fix = "apply the federation again (`trellis apply`): its certificates are made anew; check the clock, too";
    match worst {
        Verdict::Ok if files.is_empty() => Check::ok("certificates", "none: no federation with TLS is here"),
        Verdict::Ok => {
            let days = (next_end_s - now_s) / DAY_S;
            Check::ok("certificates", format!("files: {}; the first ends in {days} days", files.len()))
        }
        Verdict::Warning => Check::warning("certificates", listed(&told, MOST_LISTED), fix),
        Verdict::Problem => Check::problem("certificates", listed(&told, MOST_LISTED), fix),
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
        return Some((Verdict::Problem, format!("{subject} names no host: no client accepts it")));
    }
    (*not_after_s - now_s < SOON_S)
        .then(|| (Verdict::Warning, format!("{subject} expires on {}", trellis_pki::date(*not_after_s))))
}
