//! One recorded exchange: parses, replays and compares it.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trellis_fake_one::Handle;
use trellis_fake_one::element::Element;

use crate::{differences, paths};

pub struct Recorded {
    kind: &'static str,
    name: String,
    line: String,
    headers: Vec<(String, String)>,
    body: String,
    status: u64,
    content_type: Option<String>,
    answer: String,
}

impl Recorded {
    pub fn read(kind: &'static str, name: &str) -> Recorded {
        let place = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(kind);
        let any = |part: &str| {
            let endings = ["json", "txt", "xml"];
            let found =
                endings.iter().find_map(|end| std::fs::read_to_string(place.join(format!("{name}.{part}.{end}"))).ok());
            found.unwrap_or_default()
        };
        let meta: Value = serde_json::from_str(&any("meta")).expect("the recording is JSON");
        let headers = meta["request_headers"].as_object().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Recorded {
            kind,
            name: name.to_owned(),
            line: meta["request"].as_str().unwrap_or("POST /RPC2").to_owned(),
            headers: headers.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            body: any("request"),
            status: meta["http_status"].as_u64().unwrap_or(200),
            content_type: meta["response_headers"]["Content-Type"].as_str().map(str::to_owned),
            answer: any("response"),
        }
    }
}

pub struct Answered {
    status: u64,
    content_type: Option<String>,
    body: String,
}

pub async fn compare(recorded: &Recorded, at: SocketAddr, handle: &Handle) -> Vec<String> {
    let answered = send(recorded, at, handle).await;
    let mut problems = Vec::new();
    if answered.status != recorded.status {
        problems.push(format!("status {} instead of {}: {}", answered.status, recorded.status, answered.body));
        return problems;
    }
    if recorded.kind != "xmlrpc" && answered.content_type != recorded.content_type {
        problems.push(format!("content type {:?} instead of {:?}", answered.content_type, recorded.content_type));
    }
    let (wanted, got) = match recorded.kind {
        "xmlrpc" => (rpc(&recorded.answer), rpc(&answered.body)),
        _ => (json(&recorded.answer), json(&answered.body)),
    };
    let excused = differences::of(&recorded.name);
    match (wanted, got) {
        (Said::Paths(wanted), Said::Paths(got)) => {
            problems.extend(
                wanted.difference(&got).filter(|path| !excused.covers(path)).map(|path| format!("misses {path}")),
            );
            problems
                .extend(got.difference(&wanted).filter(|path| !excused.covers(path)).map(|path| format!("has {path}")));
        }
        (Said::Text(wanted), Said::Text(got)) if wanted == got || excused.text => {}
        (Said::Text(wanted), Said::Text(got)) => problems.push(format!("says {got:?} instead of {wanted:?}")),
        _ => problems.push(format!("another kind of answer: {}", answered.body)),
    }
    problems
}

enum Said {
    Text(String),
    Paths(std::collections::BTreeSet<String>),
}

fn json(body: &str) -> Said {
    match serde_json::from_str::<Value>(body) {
        Ok(value @ Value::Object(_)) if value.get("reason").is_none() => Said::Paths(paths::of_json(&value)),
        _ => Said::Text(body.trim_end().to_owned()),
    }
}

/// The whole response, or the elements of the XML in it.
fn rpc(body: &str) -> Said {
    let root = Element::parse(body).expect("an answer is XML");
    let mut texts = Vec::new();
    leaves(&root, &mut texts);
    match texts.iter().find(|text| text.starts_with('<')) {
        Some(inner) => Said::Paths(paths::of_xml(&Element::parse(inner).expect("it holds XML"))),
        None => Said::Text(texts.join(" ")),
    }
}

fn leaves(element: &Element, texts: &mut Vec<String>) {
    match element.children() {
        [] => texts.push(element.text().to_owned()),
        children => children.iter().for_each(|child| leaves(child, texts)),
    }
}

async fn send(recorded: &Recorded, at: SocketAddr, handle: &Handle) -> Answered {
    let (method, path) = recorded.line.split_once(' ').expect("a method and a path");
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n");
    for (name, value) in &recorded.headers {
        let vm = recorded.headers.iter().find(|(name, _)| name == "X-ONEGATE-VMID");
        // The fake has its own secrets.
        let own = vm.filter(|_| name == "X-ONEGATE-TOKEN" && !recorded.name.starts_with("auth-"));
        let own = own.and_then(|(_, id)| handle.token(id.parse().ok()?));
        head.push_str(&format!("{name}: {}\r\n", own.as_ref().unwrap_or(value)));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", recorded.body.len()));
    let mut stream = TcpStream::connect(at).await.expect("the fake listens");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    stream.write_all(recorded.body.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let content_type = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-type").then(|| value.to_owned())
    });
    Answered { status, content_type, body: body.to_owned() }
}
