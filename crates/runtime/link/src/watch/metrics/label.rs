//! Labels of metrics. Each has few values, whatever peers send: no label contains an id.

use std::fmt::{self, Write as _};

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($variant:ident => $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($variant),+ }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant),+];

            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
                encoder.write_str(self.word())
            }
        }
    };
}

words! {
    /// The API of a call.
    Api { Control => "control", Fleet => "fleet", App => "app", Trellis => "trellis" }
}

words! {
    /// The transport of a call.
    Transport { Grpc => "grpc", Http => "http" }
}

words! {
    /// A port that listens.
    FrontEnd {
        Control => "control",
        Fleet => "fleet",
        App => "app",
        Http => "http",
        Metrics => "metrics",
    }
}

words! {
    /// Why a call was refused.
    Reason {
        Overloaded => "overloaded",
        Stopping => "stopping",
        StoreFailed => "store_failed",
        UnknownDialect => "unknown_dialect",
        TooOld => "too_old",
        Unauthenticated => "unauthenticated",
        Denied => "denied",
        RunOver => "run_over",
        Invalid => "invalid",
        Precondition => "precondition",
        NotFound => "not_found",
        Unimplemented => "unimplemented",
        TooLarge => "too_large",
    }
}

/// The minor release of Flower that a peer announced. Peers may send any text; implausible releases are `other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// 1.x.
    One(u8),
    Other,
    /// Older clients send no release.
    Unknown,
}

impl Version {
    /// Higher minor releases are implausible.
    const MAX_MINOR: u8 = 99;

    /// Parses an announced release such as `1.42.0` or `1.43.0.dev20260101`.
    pub fn announced(text: Option<&str>) -> Version {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Version::Unknown };
        let mut parts = text.split('.');
        match (parts.next(), parts.next().and_then(|minor| minor.parse().ok())) {
            (Some("1"), Some(minor)) if minor <= Version::MAX_MINOR => Version::One(minor),
            _ => Version::Other,
        }
    }

    /// Parses the stored client of a node: its transport, then its release.
    pub fn of_client(client: &str) -> Version {
        Version::announced(client.split_once(' ').map(|(_, version)| version))
    }
}

impl EncodeLabelValue for Version {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        match self {
            Version::One(minor) => write!(encoder, "1.{minor}"),
            Version::Other => encoder.write_str("other"),
            Version::Unknown => encoder.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_versions_is_limited() {
        for (text, expected) in [
            (None, Version::Unknown),
            (Some(""), Version::Unknown),
            (Some("1.25.0"), Version::One(25)),
            (Some("1.43.0.dev20260101"), Version::One(43)),
            (Some("1.100.0"), Version::Other),
            (Some("2.1.0"), Version::Other),
            (Some("1.-1"), Version::Other),
            (Some("1"), Version::Other),
            (Some("\"}\n"), Version::Other),
        ] {
            assert_eq!(Version::announced(text), expected, "{text:?}");
        }
        assert_eq!(Version::of_client("http 1.42.0"), Version::One(42));
        assert_eq!(Version::of_client("grpc"), Version::Unknown);
        assert_eq!(Version::of_client(""), Version::Unknown);
    }
}
