//! Parses certificates and keys from PEM text, explains other content, and writes PEM.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const LINE: usize = 64;
/// More certificates than any chain or bundle of a federation has.
const MAX_CERTIFICATES: usize = 100;

/// A problem with a text, and the advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub what: String,
    pub advice: String,
}

impl Unreadable {
    fn new(what: impl Into<String>, advice: impl Into<String>) -> Unreadable {
        Unreadable { what: what.into(), advice: advice.into() }
    }
}

/// All certificates, in order; at least one.
pub fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unreadable> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(all) if all.len() > MAX_CERTIFICATES => {
            let what = format!("it holds {} certificates; at most {MAX_CERTIFICATES} are read", all.len());
            Err(Unreadable::new(what, "give only those that this federation needs"))
        }
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(instead_of_certificate(text)),
        Err(error) => Err(damaged(&error)),
    }
}

/// The first private key.
pub fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, Unreadable> {
    let labels = labels(text);
    let has = |label: &str| labels.iter().any(|found| found == label);
    if has("ENCRYPTED PRIVATE KEY") || contains(text, b"Proc-Type: 4,ENCRYPTED") {
        let advice = "write it without one into a file of mode 0600: openssl pkey -in KEY -out NEW-KEY";
        return Err(Unreadable::new("the private key is protected by a passphrase", advice));
    }
    if has("OPENSSH PRIVATE KEY") {
        let advice = "give the key that belongs to the certificate; keys of nodes are something else";
        return Err(Unreadable::new("it holds a key in the format of OpenSSH", advice));
    }
    match PrivateKeyDer::from_pem_slice(text) {
        Ok(key) => Ok(key),
        Err(rustls::pki_types::pem::Error::NoItemsFound) => Err(instead_of_key(text, &labels)),
        Err(error) => Err(damaged(&error)),
    }
}

/// `der` as PEM.
pub fn encode(label: &str, der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = base64.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(LINE));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

pub fn encode_certificates<'a>(all: impl IntoIterator<Item = &'a CertificateDer<'a>>) -> String {
    all.into_iter().map(|der| encode("CERTIFICATE", der)).collect()
}

fn damaged(error: &rustls::pki_types::pem::Error) -> Unreadable {
    use rustls::pki_types::pem::Error;
    let what = match error {
        Error::MissingSectionEnd { .. } => "its PEM text breaks off: an END line is missing".to_owned(),
        Error::IllegalSectionStart { .. } => "its PEM text is damaged: a BEGIN line is not complete".to_owned(),
        other => format!("its PEM text is damaged: {other}"),
    };
    Unreadable::new(what, "copy the file again")
}

fn instead_of_certificate(text: &[u8]) -> Unreadable {
    let labels = labels(text);
    let has = |end: &str| labels.iter().any(|label| label.ends_with(end));
    if has("PRIVATE KEY") {
        let advice = "give the certificate here and the key as key: were the two exchanged?";
        return Unreadable::new("it holds a private key and no certificate", advice);
    }
    if has("CERTIFICATE REQUEST") {
        let advice = "have the request signed, and give the certificate that comes back";
        return Unreadable::new("it holds a certificate request, not a certificate", advice);
    }
    neither(text, &labels, "certificate", "openssl x509 -inform der -in FILE -out NEW-FILE")
}

fn instead_of_key(text: &[u8], labels: &[String]) -> Unreadable {
    if labels.iter().any(|label| label == "CERTIFICATE") {
        let advice = "give the key here and the certificate as certificate: were the two exchanged?";
        return Unreadable::new("it holds a certificate and no private key", advice);
    }
    if labels.iter().any(|label| label == "PUBLIC KEY") {
        return Unreadable::new("it holds a public key, not a private one", "give the private key of the certificate");
    }
    neither(text, labels, "private key", "openssl pkey -inform der -in FILE -out NEW-FILE")
}

fn neither(text: &[u8], labels: &[String], wanted: &str, conversion: &str) -> Unreadable {
    // Certificates and keys in DER begin with a SEQUENCE of a two-byte length.
    let what = match (text, labels) {
        ([], _) => "it is empty".to_owned(),
        ([0x30, 0x81..=0x83, ..], []) => {
            return Unreadable::new("it is DER, not PEM", format!("convert it: {conversion}"));
        }
        (_, []) => format!("it holds no {wanted} in PEM"),
        (_, labels) => format!("it holds no {wanted}, but {}", labels.join(", ")),
    };
    Unreadable::new(what, format!("give a PEM file with a {wanted}"))
}

/// The kinds of sections, in order.
fn labels(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text)
        .lines()
        .filter_map(|line| Some(line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----")?.to_owned()))
        .collect()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(label: &str) -> Vec<u8> {
        encode(label, &[0x30, 0x03, 0x02, 0x01, 0x01]).into_bytes()
    }

    #[test]
    fn what_is_written_can_be_read() {
        let long: Vec<u8> = (0..200).collect();
        let text = encode("CERTIFICATE", &long);
        assert!(text.lines().all(|line| line.len() <= LINE), "{text}");
        let two = format!("# a comment\n{text}\nmore words\n{text}");
        let read = certificates(two.as_bytes()).expect("two certificates");
        assert_eq!(read.iter().map(|der| der.to_vec()).collect::<Vec<_>>(), [long.clone(), long]);
    }

    #[test]
    fn anything_but_a_certificate_is_named() {
        let half: Vec<u8> = section("CERTIFICATE")[..40].to_vec();
        for (text, expected) in [
            (section("PRIVATE KEY"), "it holds a private key and no certificate"),
            (section("RSA PRIVATE KEY"), "it holds a private key and no certificate"),
            (section("CERTIFICATE REQUEST"), "it holds a certificate request, not a certificate"),
            (section("X509 CRL"), "it holds no certificate, but X509 CRL"),
            (b"".to_vec(), "it is empty"),
            (b"garbage\0\xff".to_vec(), "it holds no certificate in PEM"),
            (vec![0x30, 0x82, 1, 2, 3], "it is DER, not PEM"),
            (half, "its PEM text breaks off: an END line is missing"),
            (
                b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n".to_vec(),
                "its PEM text is damaged: base64 decode error: InvalidCharacter(33)",
            ),
            (section("CERTIFICATE").repeat(101), "it holds 101 certificates; at most 100 are read"),
        ] {
            assert_eq!(certificates(&text).map_err(|error| error.what), Err(expected.to_owned()));
        }
    }

    #[test]
    fn anything_but_a_key_is_named() {
        let legacy =
            b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
        for (text, expected) in [
            (section("CERTIFICATE"), "it holds a certificate and no private key"),
            (section("ENCRYPTED PRIVATE KEY"), "the private key is protected by a passphrase"),
            (legacy.to_vec(), "the private key is protected by a passphrase"),
            (section("OPENSSH PRIVATE KEY"), "it holds a key in the format of OpenSSH"),
            (section("PUBLIC KEY"), "it holds a public key, not a private one"),
            (b"".to_vec(), "it is empty"),
            (b"garbage".to_vec(), "it holds no private key in PEM"),
        ] {
            assert_eq!(private_key(&text).map(|_| ()).map_err(|error| error.what), Err(expected.to_owned()));
        }
    }

    #[test]
    fn the_three_formats_of_keys_are_read() {
        for label in ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"] {
            assert!(private_key(&section(label)).is_ok(), "{label}");
        }
        let with_parameters = [section("EC PARAMETERS"), section("EC PRIVATE KEY")].concat();
        assert!(matches!(private_key(&with_parameters), Ok(PrivateKeyDer::Sec1(_))));
    }
}
