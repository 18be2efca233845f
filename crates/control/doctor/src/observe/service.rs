//! The server, the certificates of its federations, and the connections of the official command.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use trellis_api::{Home, Serving};
use trellis_client::{Address, Asking, Rest, Security, Target, Timeouts, Trust};
use trellis_flwr::connection;
use trellis_terminal::explain;

use crate::facts::{Certificate, CertificateFile, Connections, Server};

/// The directory with the TLS files of a federation.
const TLS: &str = ".tls";
/// Depth of the search below it.
const MAX_DEPTH: usize = 3;
/// No home has this many files.
const MAX_FILES: usize = 1000;
/// A healthy server answers in milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

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

/// The version of the server.
async fn health(serving: &Serving) -> Result<String, String> {
    let asking = Asking {
        method: "GET",
        path: "/health",
        kind: "application/json",
        accept: "application/json",
        body: Default::default(),
        headers: &[],
    };
    let timeouts = Timeouts { connect: CONNECT_TIMEOUT, answer: ANSWER_TIMEOUT, retries: Vec::new() };
    let reply = Rest::new(target(serving)?, timeouts).ask(&asking).await.map_err(|error| explain(&error))?;
    let body = reply.body.filter(|_| reply.status == 200).ok_or(format!("it answers {}", reply.status))?;
    let health: Health = serde_json::from_slice(&body).map_err(|_| "another program answers there".to_owned())?;
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
        collect(&federation.path().join(TLS), MAX_DEPTH, &mut paths);
    }
    paths.sort();
    paths.into_iter().map(|path| CertificateFile { content: read(&path), path }).collect()
}

/// Collects files by extension. Links are not followed: their targets are in the same directory.
fn collect(directory: &Path, depth: usize, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        if kind.is_dir() && depth > 0 {
            collect(&path, depth - 1, paths);
        } else if path.extension().is_some_and(|end| end == "crt" || end == "pem")
            && path.is_file()
            && paths.len() < MAX_FILES
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
    let Ok(path) = connection::config_file(None) else { return Connections { path: None, ours: None } };
    let ours = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.to_string())),
        Ok(text) => Some(connection::ours(&text)),
    };
    Connections { path: Some(path), ours }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trellis_api::Lock;

    #[tokio::test]
    async fn servers() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::find(Some(directory.path())).unwrap();
        assert_eq!(server(None).await, Server::NotRunning);
        assert_eq!(server(Some(&home)).await, Server::NotRunning);
        let pid = std::process::id();
        // No process listens on port 1.
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
