//! The words that metrics are divided by. Each has few values, whatever peers send: a label is no place for ids.

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
    /// For whom a call is.
    Api { Control => "control", Fleet => "fleet", App => "app", Trellis => "trellis" }
}

words! {
    /// How a call comes.
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
    /// Why a call was refused before or by its handler.
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

/// The minor version of Flower that a peer announced. Peers may send any text, so what is far from the truth is `other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// 1.x.
    One(u8),
    Other,
    /// Older clients announce nothing.
    Unknown,
}

impl Version {
    /// Minor versions beyond this are not believed.
    const MAX_MINOR: u8 = 99;

    /// From what was announced, such as `1.42.0` or `1.43.0.dev20260101`.
    pub fn announced(text: Option<&str>) -> Version {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Version::Unknown };
        let mut parts = text.split('.');
        match (parts.next(), parts.next().and_then(|minor| minor.parse().ok())) {
            (Some("1"), Some(minor)) if minor <= Version::MAX_MINOR => Version::One(minor),
            _ => Version::Other,
        }
    }

    /// From what is kept of a node: its transport, and behind it what it announced.
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
    fn versions_are_few_whatever_is_announced() {
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
