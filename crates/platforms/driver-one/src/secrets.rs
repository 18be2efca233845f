//! Secrets that the driver generates for certain VMs: the token of the first administrator and the tunnel keys; and the
//! operator's certificate from the document.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use trellis_files::private;
use trellis_plan::{Spec, Tunnel};
use trellis_spec::{Name, Tls};
use trellis_tunnel::PrivateKey;

use crate::home::Home;

const TOKEN_BYTES: usize = 32;

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    pub admin_token: String,
    pub tunnel: Option<TunnelKeys>,
    pub certificate: Option<OwnCertificate>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct TunnelKeys {
    /// Key of this site's gateway.
    pub private: String,
    /// Keys of the other gateways.
    pub public: BTreeMap<Name, String>,
}

/// Base64 of PEM files.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnCertificate {
    pub trust: String,
    pub certificate: String,
    pub key: String,
}

impl Secrets {
    /// Loads the secrets of the desired parts, and generates missing ones.
    pub fn load<'a>(home: &Home, site: &Name, specs: impl Iterator<Item = &'a Spec> + Clone) -> io::Result<Secrets> {
        let coordinator = specs.clone().find_map(|spec| match spec {
            Spec::Coordinator(spec) => Some(spec),
            Spec::Node(_) => None,
        });
        let admin_token = match coordinator {
            Some(_) => kept(&home.admin_token(), || Ok(URL_SAFE_NO_PAD.encode(random::<TOKEN_BYTES>()?)))?,
            None => String::new(),
        };
        let certificate = match coordinator.map(|spec| &spec.tls) {
            Some(Tls::Files { certificate, key, trust }) => {
                Some(OwnCertificate { trust: base64(trust)?, certificate: base64(certificate)?, key: base64(key)? })
            }
            _ => None,
        };
        let tunnel = specs.clone().find_map(crate::render::context::tunnel);
        let tunnel = tunnel.map(|tunnel| tunnel_keys(home, site, tunnel)).transpose()?;
        Ok(Secrets { admin_token, tunnel, certificate })
    }
}

fn tunnel_keys(home: &Home, site: &Name, tunnel: &Tunnel) -> io::Result<TunnelKeys> {
    private::make_directory(&home.tunnels())?;
    let make = || PrivateKey::generate().map(|key| key.reveal()).map_err(io::Error::other);
    let private = |site: &Name| kept(&home.tunnel_key(site), make);
    let own = private(site)?;
    let mut public = BTreeMap::new();
    for peer in &tunnel.peers {
        let key = PrivateKey::parse(&private(&peer.site)?).map_err(io::Error::other)?;
        public.insert(peer.site.clone(), key.public().to_string());
    }
    Ok(TunnelKeys { private: own, public })
}

/// Reads a secret, or creates it. If two callers create it, both get the same one.
fn kept(path: &Path, make: impl Fn() -> io::Result<String>) -> io::Result<String> {
    if let Some(text) = private::read(path)? {
        let text = String::from_utf8(text).map_err(io::Error::other)?;
        return Ok(text.trim().to_owned());
    }
    private::create_if_absent(path, make()?.as_bytes())?;
    kept(path, make)
}

/// Writes a recovered secret if the file is missing. An existing file is kept.
pub fn restore(path: &Path, found: Option<&str>) -> io::Result<()> {
    match found {
        Some(secret) if private::read(path)?.is_none() => private::create_if_absent(path, secret.as_bytes()),
        _ => Ok(()),
    }
}

fn base64(path: &Path) -> io::Result<String> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display()));
    Ok(STANDARD.encode(private::read(path)?.ok_or_else(missing)?))
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("the system provides no random numbers"))?;
    Ok(bytes)
}
