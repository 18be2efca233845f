//! A minimal HTTPS client for an API server, with a bearer token. Enough for readiness, metrics and a few objects.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, IpAddr, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

pub(super) struct Endpoint {
    pub port: u16,
    /// The CA certificates of the API server, which it creates at its first start.
    pub authority: PathBuf,
}

pub(super) struct Answer {
    pub status: u16,
    pub body: String,
}

impl Endpoint {
    pub fn new(port: u16, authority: PathBuf) -> Endpoint {
        Endpoint { port, authority }
    }

    pub fn call(&self, method: &str, path: &str, token: &str, body: Option<&str>) -> io::Result<Answer> {
        let body = body.unwrap_or_default();
        // HTTP/1.0: the response ends with the connection and is not chunked.
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = self.connected()?;
        stream.write_all(request.as_bytes())?;
        let mut bytes = Vec::new();
        match stream.read_to_end(&mut bytes) {
            // The server may close without a TLS close_notify.
            Err(why) if why.kind() != io::ErrorKind::UnexpectedEof => return Err(why),
            _ => {}
        }
        parse(&String::from_utf8_lossy(&bytes)).ok_or_else(|| io::Error::other("an answer that is not HTTP"))
    }

    fn connected(&self) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(&self.authority).map_err(io::Error::other)?;
        roots.add_parsable_certificates(certificates.flatten());
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST.into()));
        let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        socket.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(StreamOwned::new(connection, socket))
    }
}

fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_split_into_status_and_body() {
        let answer = parse("HTTP/1.0 403 Forbidden\r\nContent-Type: text/plain\r\n\r\nno\r\n\r\nnever").expect("HTTP");
        assert_eq!((answer.status, answer.body.as_str()), (403, "no\r\n\r\nnever"));
        assert!(parse("HTTP/1.0 200 OK\r\n").is_none());
    }
}
