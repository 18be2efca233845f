//! `trellis version`, and the comparison with an index of releases. Without the place of an index it calls nobody.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trellis_client::{Asking, Rest, Security, Target, Timeouts, Trust};
use trellis_flower::Release;
use trellis_terminal::{OutputArgs, clean, explain, print};

use crate::remote::{self, CommandError, HttpUrl};

const THIS: &str = env!("CARGO_PKG_VERSION");
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (serves Flower 1.25 to 1.42, over gRPC and HTTP)");
const CALLED: &str = "trellis version";
const OUTDATED: u8 = 3;
const TIMEOUT: Duration = Duration::from_secs(10);
const AFTER_HELP: &str = "\
Examples:
  trellis version --check --releases https://example.org/trellis/releases.json
  TRELLIS_RELEASES=/mnt/mirror/releases.json trellis version --check

The program calls nobody without --check, and with --check only the server of the named URL. The index is JSON, as
docs/releases.json in the source: {\"releases\": [{\"version\": \"0.2.0\", \"date\": \"2026-11-19\", \"notes\": \"URL or text\"}]}

Exit codes: 0 the version is printed, or no newer release is in the index; 1 the index cannot be read; 2 no index is named, or
mistakes in the arguments; 3 a newer release is in the index.
";

/// Print the version of this program
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct VersionArgs {
    /// Say whether an index of releases has a newer one
    #[arg(long)]
    check: bool,
    /// The index, for --check
    #[arg(long, value_name = "URL|FILE", env = "TRELLIS_RELEASES", hide_env_values = true)]
    releases: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Deserialize)]
struct Index {
    releases: Vec<Published>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Published {
    version: String,
    date: String,
    notes: String,
}

pub fn run(args: &VersionArgs) -> ExitCode {
    let flower = json!({"oldest": Release::OLDEST.series(), "newest": Release::NEWEST.series()});
    let mut result = json!({"version": THIS, "flower": flower});
    if !args.check {
        args.output.print(&result, || print(&format!("trellis {VERSION}\n")));
        return ExitCode::SUCCESS;
    }
    let mut is_outdated = false;
    let code = remote::run(CALLED, async {
        let newer = newer(args.releases.as_deref()).await?;
        is_outdated = newer.is_some();
        result["newer"] = json!(newer);
        args.output.print(&result, || match &newer {
            None => print(&format!("trellis {VERSION}\nThe index has no newer release.\n")),
            Some(Published { version, date, notes }) => {
                let newer = clean(&format!("Release {version} of {date} is newer: {notes}"));
                print(&format!("trellis {VERSION}\n{newer}\n"));
            }
        });
        Ok(())
    });
    if is_outdated { ExitCode::from(OUTDATED) } else { code }
}

/// The newest release of the index, if it is newer than this program.
async fn newer(place: Option<&str>) -> Result<Option<Published>, CommandError> {
    let place = place.filter(|place| !place.is_empty()).ok_or_else(|| {
        let advice = "name one with --releases URL|FILE or in TRELLIS_RELEASES; without it no server is called";
        CommandError::usage("no index of releases is named", advice)
    })?;
    let unusable = |why: String| {
        let advice = "name an index of releases, as docs/releases.json in the source";
        CommandError::failed(format!("{place} cannot be used: {why}"), Some(advice))
    };
    let bytes = match place.contains("://") {
        true => fetched(place).await.map_err(unusable)?,
        false => std::fs::read(place).map_err(|error| unusable(error.to_string()))?,
    };
    let index: Index = serde_json::from_slice(&bytes).map_err(|error| unusable(error.to_string()))?;
    let newest = index.releases.into_iter().max_by_key(|release| numbers(&release.version));
    Ok(newest.filter(|release| numbers(&release.version) > numbers(THIS)))
}

async fn fetched(url: &str) -> Result<Vec<u8>, String> {
    let HttpUrl { address, path, secure } = HttpUrl::parse(url)?;
    let security = match secure {
        true => Security::Tls(Trust::system().map_err(|error| explain(&error))?),
        false if address.host.is_loopback() => Security::Plaintext,
        false => return Err("without TLS others could change it on the way; use https".to_owned()),
    };
    let target = Target { host: address.host.to_string(), port: address.port, security, token: None };
    let timeouts = Timeouts { connect: TIMEOUT, answer: TIMEOUT, retries: Vec::new() };
    let kind = "application/json";
    let asking = Asking { method: "GET", path: &path, kind, accept: kind, body: Default::default(), headers: &[] };
    let reply = Rest::new(target, timeouts).ask(&asking).await.map_err(|error| explain(&error))?;
    reply.body.filter(|_| reply.status == 200).map(Vec::from).ok_or(format!("the server answers {}", reply.status))
}

/// `None`, which is less than every release, for pre-releases and for texts that are no version.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let numbers: Vec<u64> = version.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("0.10.0") > numbers("0.9.12") && numbers("0.9.12") > numbers("0.9.2"));
        for none in ["", "1.2", "1.2.3.4", "1.2.3-rc.1", "v1.2.3"] {
            assert_eq!(numbers(none), None, "{none}");
        }
        assert!(numbers(THIS) > None);
    }

    async fn told(place: Option<&str>) -> String {
        match newer(place).await {
            Ok(newer) => newer.map_or("none".to_owned(), |newer| newer.version),
            Err(failure) => format!("{failure:?}"),
        }
    }

    #[tokio::test]
    async fn the_newest_release_of_an_index_counts() {
        let directory = tempfile::tempdir().unwrap();
        let index = |text: &str| {
            let path = directory.path().join("releases.json");
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let of = |versions: &[&str]| {
            let releases: Vec<_> = versions.iter().map(|version| json!({"version": version})).collect();
            json!({ "releases": releases }).to_string()
        };
        for (versions, expected) in [
            (&["0.0.1", "99.1.0", "99.0.12"][..], "99.1.0"),
            (&["0.0.1", THIS], "none"),
            (&["99.0.0-rc.1"], "none"),
            (&[], "none"),
        ] {
            assert_eq!(told(Some(&index(&of(versions)))).await, expected, "{versions:?}");
        }
        assert!(told(Some(&index("[]"))).await.contains("cannot be used"));
    }

    #[tokio::test]
    async fn a_server_is_called_only_where_nobody_can_change_its_answer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/a/releases.json", listener.local_addr().unwrap());
        let answer = async {
            let (mut peer, _) = listener.accept().await.unwrap();
            let mut asked = [0; 1024];
            let length = peer.read(&mut asked).await.unwrap();
            let body = r#"{"releases": [{"version": "99.0.0"}]}"#;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            peer.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            String::from_utf8_lossy(&asked[..length]).into_owned()
        };
        let (newest, asked) = tokio::join!(told(Some(&url)), answer);
        assert_eq!(newest, "99.0.0");
        assert!(asked.starts_with("GET /a/releases.json HTTP/1.1\r\n"), "{asked}");
        assert!(told(Some("http://192.0.2.1/releases.json")).await.contains("use https"));
        assert!(told(None).await.contains("no server is called"));
    }

    #[test]
    fn the_index_in_the_source_names_this_version_with_the_date_of_the_changelog() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let read = |file: &str| std::fs::read_to_string(root.join(file)).expect(file);
        let index: Index = serde_json::from_str(&read("docs/releases.json")).expect("an index");
        let newest = index.releases.iter().max_by_key(|release| numbers(&release.version)).expect("a release");
        assert_eq!(newest.version, THIS);
        assert!(read("CHANGELOG.md").contains(&format!("## {THIS} - {}\n", newest.date)));
    }
}
