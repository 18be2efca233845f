//! The three NIST curves that Flower supports: names and sizes in the formats of keys.

use aws_lc_rs::digest::{Algorithm, SHA256, SHA384, SHA512};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaSigningAlgorithm,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    P256,
    P384,
    P521,
}

/// DER of the object identifiers: an EC public key, and each curve.
const EC_PUBLIC_KEY: [u8; 9] = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23];

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;

impl Curve {
    pub fn named(openssh_name: &[u8]) -> Option<Curve> {
        [Curve::P256, Curve::P384, Curve::P521]
            .into_iter()
            .find(|curve| curve.openssh_name().as_bytes() == openssh_name)
    }

    /// The key type of OpenSSH for this curve.
    pub fn openssh_name(self) -> &'static str {
        match self {
            Curve::P256 => "ecdsa-sha2-nistp256",
            Curve::P384 => "ecdsa-sha2-nistp384",
            Curve::P521 => "ecdsa-sha2-nistp521",
        }
    }

    /// OpenSSH's name of the curve.
    pub fn openssh_curve(self) -> &'static str {
        &self.openssh_name()["ecdsa-sha2-".len()..]
    }

    /// Bytes of a private key, leading zeros included.
    pub fn scalar_bytes(self) -> usize {
        match self {
            Curve::P256 => 32,
            Curve::P384 => 48,
            Curve::P521 => 66,
        }
    }

    pub fn signing(self) -> &'static EcdsaSigningAlgorithm {
        match self {
            Curve::P256 => &ECDSA_P256_SHA256_ASN1_SIGNING,
            Curve::P384 => &ECDSA_P384_SHA384_ASN1_SIGNING,
            Curve::P521 => &ECDSA_P521_SHA512_ASN1_SIGNING,
        }
    }

    /// The digest that keys on this curve sign with.
    pub fn digest(self) -> &'static Algorithm {
        match self {
            Curve::P256 => &SHA256,
            Curve::P384 => &SHA384,
            Curve::P521 => &SHA512,
        }
    }

    /// DER of the SubjectPublicKeyInfo of a point.
    pub fn public_key_info(self, point: &[u8]) -> Vec<u8> {
        let curve: &[u8] = match self {
            Curve::P256 => &P256,
            Curve::P384 => &P384,
            Curve::P521 => &P521,
        };
        let algorithm = der(SEQUENCE, &[&EC_PUBLIC_KEY, curve].concat());
        // A bit string starts with its number of unused bits: none.
        let key = der(BIT_STRING, &[&[0], point].concat());
        der(SEQUENCE, &[algorithm, key].concat())
    }
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("keys on these curves are below 256 bytes");
    let header = if length < 0x80 { vec![tag, length] } else { vec![tag, 0x81, length] };
    [&header, content].concat()
}
