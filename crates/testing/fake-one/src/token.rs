//! OneGate tokens: id and start time of the VM, encrypted with its creator's secret.

use aws_lc_rs::cipher::{AES_256, EncryptionContext, PaddedBlockEncryptingKey, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::cloud::{Cloud, Id};

const KEY_BYTES: usize = 32;

/// `None` if there is no such VM, or its creator has no secret.
pub fn of(cloud: &Cloud, vm: Id) -> Option<String> {
    let vm = cloud.vms.get(&vm)?;
    let creator: Id = vm.template.get("CREATED_BY")?.parse().ok()?;
    let password = cloud.users.get(&creator)?.template.get("TOKEN_PASSWORD")?;
    sealed(password, &format!("{}:{}", vm.owned.id, vm.started))
}

fn sealed(password: &str, text: &str) -> Option<String> {
    let key = UnboundCipherKey::new(&AES_256, password.as_bytes().get(..KEY_BYTES)?).ok()?;
    let key = PaddedBlockEncryptingKey::cbc_pkcs7(key).ok()?;
    let mut text = text.as_bytes().to_vec();
    // OneGate uses a constant vector too.
    let context = EncryptionContext::Iv128(FixedLength::from([0; 16]));
    key.less_safe_encrypt(&mut text, context).ok()?;
    Some(STANDARD.encode(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_one_that_the_real_server_accepts() {
        let password = "0123456789abcdef".repeat(4);
        assert_eq!(sealed(&password, "7:1700000000").as_deref(), Some("DtGOsipHOq7Z05Sa1RpTlQ=="));
        assert_eq!(sealed("short", "7:1700000000"), None);
    }
}
