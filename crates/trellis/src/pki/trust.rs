//! `trellis pki trust`: the trust bundle of clients.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use trellis_clock::now_unix;
use trellis_diagnostic::Diagnostic;
use trellis_pki::authority::Authority;
use trellis_pki::{Certificate, Error, pem, write_public};

use super::args::{BundleFormat, TrustArgs};
use super::report::{Failure, print_text};
use super::show::certificate_json;

pub fn run(args: &TrustArgs) -> Result<(), Failure> {
    let mut authority = Authority::open(&args.dir)?;
    if let Some(path) = &args.add {
        authority.add_trust(&path.display().to_string(), &read(path)?, now_unix())?;
    }
    if let Some(fingerprint) = &args.remove
        && !authority.remove_trust(fingerprint)?
    {
        let what = format!("no added CA has the fingerprint {fingerprint}");
        let advice = "trellis pki show lists them; give the whole SHA-256";
        return Err(Error::Refused(vec![Diagnostic::error("--remove", what, advice)]).into());
    }
    let bundle = authority.trust_bundle()?;
    let text = match args.output {
        BundleFormat::Pem => bundle,
        BundleFormat::Base64 => format!("{}\n", STANDARD.encode(bundle)),
        BundleFormat::Json => json_text(&bundle),
    };
    match &args.out {
        Some(path) => write_public(path, text.as_bytes())?,
        None => print_text(&text),
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| {
        let what = format!("it cannot be read: {error}");
        Error::Refused(vec![Diagnostic::in_file(path, what, "give a readable PEM file")])
    })
}

fn json_text(bundle: &str) -> String {
    let ders = pem::certificates(bundle.as_bytes()).unwrap_or_default();
    let trusted: Vec<_> = ders
        .iter()
        .filter_map(|der| Certificate::read(der).ok())
        .map(|one| certificate_json(&one, now_unix()))
        .collect();
    format!("{:#}\n", json!({"trusted": trusted, "pem": bundle}))
}
