//! URLs of HTTP servers, as people write them. Pure.

use trellis_client::Address;

/// Schemes, whether they are secure, and their ports.
const SCHEMES: [(&str, bool, u16); 2] = [("https://", true, 443), ("http://", false, 80)];

#[derive(Debug, PartialEq, Eq)]
pub struct HttpUrl {
    pub address: Address,
    /// Without a slash at its end.
    pub path: String,
    pub secure: bool,
}

impl HttpUrl {
    /// The error says what is wrong.
    pub fn parse(url: &str) -> Result<HttpUrl, String> {
        let scheme =
            SCHEMES.iter().find_map(|(scheme, secure, port)| Some((url.strip_prefix(scheme)?, *secure, *port)));
        let (rest, secure, port) = scheme.ok_or("it begins with neither https:// nor http://")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = path.trim_end_matches('/').to_owned();
        if !path.chars().all(|char| char.is_ascii_alphanumeric() || "-_.~/".contains(char)) {
            return Err("its path may hold letters, digits and -_.~/ only".to_owned());
        }
        Ok(HttpUrl { address: Address::parse_or_default_port(authority, port)?, path, secure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_a_host_and_perhaps_a_port_and_a_path() {
        let place = |url: &str| HttpUrl::parse(url).map(|it| format!("{} {:?} {}", it.address, it.path, it.secure));
        for (url, expected) in [
            ("http://127.0.0.1:5000", r#"127.0.0.1:5000 "" false"#),
            ("https://mlflow.example.org/", r#"mlflow.example.org:443 "" true"#),
            ("https://example.org:8443/team/mlflow/", r#"example.org:8443 "/team/mlflow" true"#),
        ] {
            assert_eq!(place(url).as_deref(), Ok(expected));
        }
        for (url, why) in [
            ("databricks", "begins with neither"),
            ("file:///tmp/mlruns", "begins with neither"),
            ("http://", "it has no host"),
            ("http://host:99999", "the port must be"),
            ("http://host/a?b", "its path may hold"),
        ] {
            let failure = place(url).expect_err(url);
            assert!(failure.contains(why), "{failure}");
        }
        assert!(place("http://a b").is_err());
    }
}
