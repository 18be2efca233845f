//! Tokens of the control plane: known by their SHA-256 only. What a role may do is not known here.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    pub name: String,
    pub role: String,
    pub sha256: [u8; 32],
    pub expires_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEntry {
    /// The first 8 hexadecimal digits of the hash.
    pub id: String,
    pub name: String,
    pub role: String,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
}
