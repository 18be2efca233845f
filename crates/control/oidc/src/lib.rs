//! OpenID Connect as decisions: what a provider's documents say, whether an ID token is genuine and meant for us, and which role
//! its identity has. Time, randomness and answers of the provider are arguments.
//!
//! # Invariants
//! - Signatures are RS256 or ES256. The algorithm of a token selects among the provider's keys; it never selects how a key is used.
//! - A token without a listed group is refused: no identity has a role by default.

mod claims;
mod id_token;
mod keys;
pub mod pkce;
mod provider;

pub use claims::{Claims, Identity, Rules};
pub use id_token::{Expected, Rejected, verify};
pub use keys::Keys;
pub use provider::{DeviceCode, Endpoint, Metadata, TokenError, Tokens, UrlError};
