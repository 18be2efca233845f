//! Compatibility with ssh-keygen, and files with problems.

use super::*;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P521_SHA256_ASN1, UnparsedPublicKey, VerificationAlgorithm,
};
use tempfile::TempDir;

const P256: [&str; 3] =
    [include_str!("vectors/p256"), include_str!("vectors/p256.pub"), include_str!("vectors/p256.pem")];
const P384: [&str; 3] =
    [include_str!("vectors/p384"), include_str!("vectors/p384.pub"), include_str!("vectors/p384.pem")];
const P521: [&str; 3] =
    [include_str!("vectors/p521"), include_str!("vectors/p521.pub"), include_str!("vectors/p521.pem")];

fn file(content: &str, mode: u32) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.key");
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    (directory, path)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn keys_of_ssh_keygen_are_read_as_it_means_them() {
    for [private, public, pem] in [P256, P384, P521] {
        let (_directory, path) = file(private, 0o600);
        let key = NodeKey::read(&path).unwrap().expect("there is a key");
        assert_eq!(format!("{} made by ssh-keygen\n", key.openssh()), public);
        assert_eq!(key.public_pem(), pem);
    }
}

#[test]
fn keys_are_written_byte_for_byte_as_ssh_keygen_does() {
    for [private, ..] in [P256, P384, P521] {
        let (curve, pair) = openssh::read(private.as_bytes()).unwrap();
        let scalar: EcPrivateKeyBin = pair.private_key().as_be_bytes().unwrap();
        let base64: String = private.lines().filter(|line| !line.starts_with('-')).collect();
        let bytes = STANDARD.decode(base64).unwrap();
        // The check number follows the public key and the length of the private block.
        let public = openssh::public_blob(curve, pair.public_key().as_ref());
        let at = bytes.windows(public.len()).position(|window| window == public).unwrap() + public.len() + 4;
        let check = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let written = openssh::write(curve, pair.public_key().as_ref(), scalar.as_ref(), "made by ssh-keygen", check);
        assert_eq!(written, private);
    }
}

#[test]
fn a_signing_key_of_ssh_keygen_signs_what_its_public_half_verifies() {
    let (_directory, path) = file(include_str!("vectors/ed25519"), 0o600);
    let key = crate::SigningKey::read(&path).unwrap().expect("there is a key");
    let line = key.openssh();
    let blob = STANDARD.decode(line.strip_prefix("ssh-ed25519 ").unwrap()).unwrap();
    let signature = key.sign(b"a bundle");
    assert!(signature.verify(&blob[blob.len() - 32..], b"a bundle"));
    assert!(!signature.verify(&blob[blob.len() - 32..], b"A bundle"));
    assert_eq!(line, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILUiU4v4pU6Xkqh6QhTUZS2wyr5gXT7J3Wsurmrm2vXg");

    let (_kept, path) = file(P384[0], 0o600);
    assert!(matches!(crate::SigningKey::read(&path), Err(NodeKeyError::Form { why: FormError::NotEd25519, .. })));
    let (_kept, path) = file(include_str!("vectors/ed25519"), 0o644);
    assert!(matches!(crate::SigningKey::read(&path), Err(NodeKeyError::Exposed { .. })));
    assert!(crate::SigningKey::read(&path.with_extension("none")).unwrap().is_none());
}

#[test]
fn what_is_no_key_for_a_supernode_is_told_apart() {
    let cut = P384[0].lines().take(4).collect::<Vec<_>>().join("\n");
    let changed = P384[0].replacen("QAAAA", "QAAAB", 1);
    for (name, content, expected) in [
        ("ed25519", include_str!("vectors/ed25519"), FormError::OtherKind),
        ("password", include_str!("vectors/locked"), FormError::Encrypted),
        ("PKCS 8", include_str!("vectors/pkcs8"), FormError::OtherPem),
        ("public line", P384[1], FormError::Public),
        ("public PEM", P384[2], FormError::Public),
        ("cut", &cut, FormError::Damaged),
        ("changed", &changed, FormError::Damaged),
        ("empty", "", FormError::NotOpenSsh),
        ("text", "hello", FormError::NotOpenSsh),
    ] {
        let (_directory, path) = file(content, 0o600);
        match NodeKey::read(&path) {
            Err(NodeKeyError::Form { why, .. }) => assert_eq!(why, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn every_byte_of_a_key_counts() {
    let lines: Vec<&str> = P384[0].lines().collect();
    let bytes = STANDARD.decode(lines[1..lines.len() - 1].concat()).unwrap();
    for index in 0..bytes.len() {
        for end in [bytes.len(), index] {
            let mut changed = bytes[..end].to_vec();
            if let Some(byte) = changed.get_mut(index) {
                *byte ^= 0x40;
            }
            // The comment and its padding are ignored; all other bytes must be unchanged.
            let _ = openssh::read(pem("OPENSSH PRIVATE KEY", &changed, 70).as_bytes()).map(|(_, pair)| {
                assert!(end > index, "a key that is cut at {index} was read");
                assert_eq!(STANDARD.encode(pair.public_key().as_ref()), STANDARD.encode(point(&bytes)), "{index}");
            });
        }
    }
}

fn point(bytes: &[u8]) -> &[u8] {
    let name = b"nistp384\0\0\0a";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    &bytes[at..at + 97]
}

#[test]
fn a_new_key_is_private_and_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.key");
    assert!(NodeKey::read(&path).unwrap().is_none());

    let made = NodeKey::generate(&path, "edge 7").unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(NodeKey::read(&path).unwrap().expect("a key").public_pem(), made.public_pem());

    let public = made.write_public("edge 7\nsecond line").unwrap();
    assert_eq!(public, directory.path().join("node.key.pub"));
    assert_eq!(mode(&public), 0o644);
    assert_eq!(fs::read_to_string(&public).unwrap(), format!("{} edge 7 second line\n", made.openssh()));
    assert_eq!(made.write_public("another comment").unwrap(), public);

    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    let again = NodeKey::generate(&directory.path().join("other.key"), "").unwrap();
    assert_ne!(again.public_pem(), made.public_pem());
}

#[test]
fn calls_are_signed_with_sha_256_on_every_curve() {
    let curves: [(_, &dyn VerificationAlgorithm); 3] =
        [(P256, &ECDSA_P256_SHA256_ASN1), (P384, &ECDSA_P384_SHA256_ASN1), (P521, &ECDSA_P521_SHA256_ASN1)];
    for ([private, ..], algorithm) in curves {
        let (_directory, path) = file(private, 0o600);
        let key = NodeKey::read(&path).unwrap().unwrap();
        let [(_, public), (_, signature), (_, time)] = key.sign_now();
        assert_eq!(STANDARD.decode(public).unwrap(), key.public_pem().into_bytes());
        let age = Timestamp::now().duration_since(time.parse().unwrap());
        assert!(age.as_secs() < 60 && time.ends_with("+00:00") && time.len() == 32, "{time}");
        let signature = STANDARD.decode(signature).unwrap();
        let public = UnparsedPublicKey::new(algorithm, key.point());
        public.verify(time.as_bytes(), &signature).unwrap();
        public.verify(b"another time", &signature).unwrap_err();
    }
}

#[test]
fn nothing_is_overwritten() {
    let (_directory, path) = file("precious", 0o600);
    assert!(matches!(NodeKey::generate(&path, ""), Err(NodeKeyError::Unwritable { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");

    let (_directory, path) = file(P384[0], 0o600);
    let key = NodeKey::read(&path).unwrap().unwrap();
    fs::write(key.public_path(), P256[1]).unwrap();
    assert!(matches!(key.write_public(""), Err(NodeKeyError::OtherPublicKey { .. })));
    assert_eq!(fs::read_to_string(key.public_path()).unwrap(), P256[1]);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    for (mode, good) in [(0o600, true), (0o400, true), (0o440, true), (0o644, false), (0o604, false), (0o660, false)] {
        let (_directory, path) = file(P384[0], mode);
        match NodeKey::read(&path) {
            Ok(_) => assert!(good, "{mode:o}"),
            Err(NodeKeyError::Exposed { mode: told, .. }) => assert_eq!((told, good), (mode, false)),
            Err(other) => panic!("{mode:o}: {other}"),
        }
    }
}
