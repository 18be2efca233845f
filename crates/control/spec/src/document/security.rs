//! The fields of security.

use std::path::PathBuf;

use crate::federation::{Security, Tls};
use crate::kind::{Choice, choice, flag, path};
use crate::object::Object;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Auto,
    Files,
    None,
}

pub(crate) const TLS_MODES: [Choice<Mode>; 3] = [("auto", Mode::Auto), ("files", Mode::Files), ("none", Mode::None)];
const FILES: [&str; 3] = ["certificate", "key", "trust"];

pub(crate) fn read(object: &mut Object<'_>) -> Security {
    let tls = object.object("tls", "Encryption of everything between SuperLink, nodes and commands.", tls);
    let help = "Accept only nodes with registered keys. On by default with TLS.";
    let node_auth = object.optional("nodeAuth", flag(), help);
    if tls == Tls::Off && node_auth == Some(true) {
        let what = "nodes cannot authenticate without TLS (tls.mode: none)";
        object.at("nodeAuth").refuse(what, "leave it out, or leave tls.mode out for automatic certificates");
    }
    Security { node_auth: node_auth.unwrap_or(tls != Tls::Off), tls }
}

fn tls(object: &mut Object<'_>) -> Tls {
    let help = "auto: our own authority issues and renews certificates; files: existing certificates; none: no \
                encryption. The default is files if files are set, else auto.";
    let mode = object.optional("mode", choice(&TLS_MODES), help);
    let certificate =
        object.optional("certificate", path("/etc/trellis/link.pem"), "Certificate of the SuperLink (PEM).");
    let key = object.optional("key", path("/etc/trellis/link.key"), "Its key (PEM).");
    let trust =
        object.optional("trust", path("/etc/trellis/ca.pem"), "Authorities that nodes and commands trust (PEM).");
    let given = FILES.iter().any(|name| object.has(name));
    let implied = if given { Mode::Files } else { Mode::Auto };
    match mode.unwrap_or(implied) {
        Mode::Auto => {
            object.refuse_idle(&FILES, "with mode: auto");
            Tls::Auto
        }
        Mode::None => {
            object.refuse_idle(&FILES, "with mode: none");
            Tls::Off
        }
        Mode::Files => {
            let missing: Vec<&str> = FILES.into_iter().filter(|name| !object.has(name)).collect();
            if !missing.is_empty() {
                let what = format!("{} must be set too", missing.join(" and "));
                object
                    .place()
                    .refuse(what, "set certificate, key and trust, or none of them for automatic certificates");
            }
            let file = Option::<PathBuf>::unwrap_or_default;
            Tls::Files { certificate: file(certificate), key: file(key), trust: file(trust) }
        }
    }
}
