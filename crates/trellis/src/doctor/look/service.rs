//! What the control plane left in its home, and whether it answers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use trellis_client::{Asking, Patience, Rest, Security, Target, Trust};

use crate::address::Address;
use crate::doctor::facts::{Certificate, CertificateFile, Connections, Server};
use crate::flwr_connection;
use crate::home::{Home, Serving};
use crate::remote::explain;

/// Certificates that a federation's SuperLink serves with are in here, beside its sites.
const TLS: &str = ".tls";
/// How deep they may lie.
const DEEPEST: usize = 3;
/// More files than a home has.
const MOST_FILES: usize = 1000;
/// A server that is well answers in milliseconds.
const CONNECT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct Health {
    version: String,
}

pub async fn server(home: Option<&Home>) -> Server {
    let Some((home, last)) = home.and_then(|home| Some((home, home.last_serving()?))) else {
        return Server::NotRunning;
    };
    match home.serving() {
        None => Server::Dead { pid: last.pid },
        Some(serving) => Server::Running { pid: serving.pid, answer: health(&serving).await, url: serving.url },
    }
}

/// The version that the server says it has.
async fn health(serving: &Serving) -> Result<String, String> {
    let asking = Asking {
        method: "GET",
        path: "/health",
        kind: "application/json",
        accept: "application/json",
        body: Default::default(),
        headers: &[],
    };
    let patience = Patience { connect: CONNECT, answer: ANSWER, retries: Vec::new() };
    let reply = Rest::new(target(serving)?, patience).ask(&asking).await.map_err(|error| explain(&error))?;
    let body = reply.body.filter(|_| reply.status == 200).ok_or(format!("it answers {}", reply.status))?;
    let health: Health = serde_json::from_slice(&body).map_err(|_| "what answers there is no Trellis".to_owned())?;
    Ok(health.version)
}

fn target(serving: &Serving) -> Result<Target, String> {
    let (secure, place) = match serving.url.strip_prefix("https://") {
        Some(place) => (true, place),
        None => (false, serving.url.trim_start_matches("http://")),
    };
    let Address { host, port } = Address::parse(place.trim_end_matches('/'))?;
    let trust = || match &serving.root_certificates {
        Some(bundle) => Trust::bundle(bundle),
        None => Trust::system(),
    };
    let security = match secure {
        true => Security::Tls(trust().map_err(|error| explain(&error))?),
        false => Security::Plaintext,
    };
    Ok(Target { host: host.to_string(), port, security, token: None })
}

pub fn certificates(home: &Path) -> Vec<CertificateFile> {
    let federations = fs::read_dir(home.join("federations")).into_iter().flatten().flatten();
    let mut paths = Vec::new();
    for federation in federations {
        collect(&federation.path().join(TLS), DEEPEST, &mut paths);
    }
    paths.sort();
    paths.into_iter().map(|path| CertificateFile { content: read(&path), path }).collect()
}

/// Files that end like certificates do. Links are not followed: what they stand for is beside them.
fn collect(directory: &Path, depth: usize, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        if kind.is_dir() && depth > 0 {
            collect(&path, depth - 1, paths);
        } else if path.extension().is_some_and(|end| end == "crt" || end == "pem")
            && path.is_file()
            && paths.len() < MOST_FILES
        {
            paths.push(path);
        }
    }
}

fn read(path: &Path) -> Result<Vec<Certificate>, String> {
    let text = fs::read(path).map_err(|error| format!("it cannot be read: {error}"))?;
    let all = trellis_pki::pem::certificates(&text).map_err(|problem| problem.what.to_string())?;
    let read = all.iter().map(trellis_pki::Certificate::read).map(|one| one.map_err(|why| why.to_string()));
    let facts = |one: trellis_pki::Certificate| Certificate {
        subject: one.subject,
        names: one.names,
        is_ca: one.is_ca,
        not_before_s: one.not_before,
        not_after_s: one.not_after,
    };
    read.map(|one| one.map(facts)).collect()
}

pub fn connections() -> Connections {
    let Ok(path) = flwr_connection::config_file(None) else { return Connections { path: None, ours: None } };
    let ours = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.to_string())),
        Ok(text) => Some(flwr_connection::ours(&text)),
    };
    Connections { path: Some(path), ours }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Lock;

    #[tokio::test]
    async fn servers() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::find(Some(directory.path())).unwrap();
        assert_eq!(server(None).await, Server::NotRunning);
        assert_eq!(server(Some(&home)).await, Server::NotRunning);
        let pid = std::process::id();
        // Port 1 is nobody's.
        let url = "http://127.0.0.1:1".to_owned();
        home.announce(&Serving { pid, url, version: "0".to_owned(), root_certificates: None }).unwrap();
        assert_eq!(server(Some(&home)).await, Server::Dead { pid });
        let _lock = Lock::take(&home.server_lock()).unwrap().unwrap();
        assert!(matches!(server(Some(&home)).await, Server::Running { answer: Err(_), .. }));
    }

    #[test]
    fn files_of_federations() {
        let home = tempfile::tempdir().unwrap();
        let tls = home.path().join("federations/mine/.tls");
        fs::create_dir_all(&tls).unwrap();
        fs::write(tls.join("server.crt"), "nothing").unwrap();
        fs::write(tls.join("server.key"), "nothing").unwrap();
        let found = certificates(home.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].content.is_err());
    }
}
