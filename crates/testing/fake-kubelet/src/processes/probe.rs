//! Executes one probe as a kubelet does: from outside, or by a command in the container.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Container, GRPCAction, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::container::Running;

/// Response of a gRPC health check: the field `status` (1) with the value SERVING (1).
const SERVING: [u8; 2] = [0x08, 0x01];
const GRPC_HEADER_BYTES: usize = 5;

/// Parameters of a probe with the defaults of Kubernetes.
pub(super) struct Pace {
    pub initial_delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    pub failures: i32,
    pub successes: i32,
}

impl Pace {
    pub fn of(probe: &Probe) -> Pace {
        let seconds =
            |given: Option<i32>, usual: i32| Duration::from_secs(given.unwrap_or(usual).max(0).unsigned_abs().into());
        Pace {
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            failures: probe.failure_threshold.unwrap_or(3),
            successes: probe.success_threshold.unwrap_or(1),
        }
    }
}

/// An error says why the probe failed.
pub(super) async fn check(
    probe: &Probe,
    container: &Container,
    address: Ipv4Addr,
    running: &Running,
) -> Result<(), String> {
    let limit = Pace::of(probe).timeout;
    let checked = async {
        if let Some(action) = &probe.http_get {
            return http(action, container, address).await;
        }
        if let Some(action) = &probe.tcp_socket {
            return connect(address, port(&action.port, container)?).await.map(drop);
        }
        if let Some(action) = &probe.grpc {
            return grpc(action, address).await;
        }
        if let Some(action) = &probe.exec {
            return running.execute(action.command.as_deref().unwrap_or_default()).await;
        }
        Err("a probe that is not known here".to_owned())
    };
    tokio::time::timeout(limit, checked).await.unwrap_or_else(|_| Err(format!("no answer within {limit:?}")))
}

/// A port by number, or by its name in the container.
fn port(wanted: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match wanted {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port)
        }
    };
    number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| format!("no port {wanted:?}"))
}

async fn connect(address: Ipv4Addr, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((address, port)).await.map_err(|why| format!("{address}:{port}: {why}"))
}

async fn http(action: &HTTPGetAction, container: &Container, address: Ipv4Addr) -> Result<(), String> {
    let port = port(&action.port, container)?;
    let stream = connect(address, port).await?;
    let mut request = Request::get(action.path.as_deref().unwrap_or("/")).header("host", format!("{address}:{port}"));
    for header in action.http_headers.iter().flatten() {
        request = request.header(&header.name, &header.value);
    }
    let request = request.body(Full::<Bytes>::default()).map_err(|why| why.to_string())?;
    let status = if action.scheme.as_deref() == Some("HTTPS") {
        get(tls(stream, address).await?, request).await?
    } else {
        get(stream, request).await?
    };
    if (200..400).contains(&status.as_u16()) { Ok(()) } else { Err(format!("status {status}")) }
}

async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<StatusCode, String> {
    let failed = |why: hyper::Error| why.to_string();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let answer = async { sender.send_request(request).await.map_err(failed).map(|answer| answer.status()) };
    tokio::pin!(answer);
    tokio::select! {
        status = &mut answer => status,
        ended = connection => { ended.map_err(failed)?; answer.await }
    }
}

async fn grpc(action: &GRPCAction, address: Ipv4Addr) -> Result<(), String> {
    let port = u16::try_from(action.port).map_err(|why| why.to_string())?;
    let stream = TokioIo::new(connect(address, port).await?);
    let service = action.service.clone().unwrap_or_default();
    // The field `service` (1), a string.
    let mut message =
        if service.is_empty() { Vec::new() } else { vec![0x0a, u8::try_from(service.len()).unwrap_or(u8::MAX)] };
    message.extend(service.bytes());
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    body.extend(message);
    let request = Request::post(format!("http://{address}:{port}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from(body)))
        .map_err(|why| why.to_string())?;
    let failed = |why: hyper::Error| why.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.map_err(failed)?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        let body = answer.into_body().collect().await.map_err(failed)?.to_bytes();
        let is_serving = body.get(GRPC_HEADER_BYTES..) == Some(SERVING.as_slice());
        if is_serving { Ok(()) } else { Err(format!("not serving: {body:?}")) }
    };
    let result = answer.await;
    connection.abort();
    result
}

async fn tls(
    stream: TcpStream,
    address: Ipv4Addr,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let config = config
        .map_err(|why| why.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)));
    let connector = TlsConnector::from(Arc::new(config.with_no_client_auth()));
    let name = ServerName::IpAddress(address.into());
    connector.connect(name, stream).await.map_err(|why| why.to_string())
}

/// Probes do not verify certificates, as in kubelets.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
