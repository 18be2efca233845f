//! A fake SuperLink: answers each call with the response of the test, and records requests. One thread, no TLS; the tests of the
//! client have the rest.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub call: String,
    pub bearer: Option<String>,
    pub body: Value,
}

pub struct Server {
    pub address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// For each call, its answers one after the other; the last one for ever. Calls that are not here are refused.
type Answers = HashMap<String, Vec<(u16, Value)>>;

impl Server {
    pub fn answering(answers: &[(&str, u16, Value)]) -> Server {
        let mut known: Answers = HashMap::new();
        for (call, status, body) in answers {
            known.entry((*call).to_owned()).or_default().push((*status, body.clone()));
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let remembered = Arc::clone(&asked);
        // Ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                serve(&stream.expect("a connection"), &mut known, &remembered);
            }
        });
        Server { address, asked }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic").clone()
    }
}

fn serve(stream: &TcpStream, answers: &mut Answers, asked: &Mutex<Vec<Asked>>) {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    };
    let start = line();
    let call = start.split(' ').nth(1).and_then(|path| path.strip_prefix("/v1/trellis/")).unwrap_or(&start).to_owned();
    let headers: HashMap<String, String> = std::iter::from_fn(|| Some(line()).filter(|line| !line.is_empty()))
        .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())))
        .collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let bearer = headers.get("authorization").map(|value| value.trim_start_matches("Bearer ").to_owned());
    asked.lock().expect("no panic").push(Asked {
        call: call.clone(),
        bearer,
        body: serde_json::from_slice(&body).expect("JSON"),
    });
    let (status, answer) = match answers.get_mut(&call) {
        Some(several) if several.len() > 1 => several.remove(0),
        Some(last) => last[0].clone(),
        None => (404, serde_json::json!({"detail": format!("no call {call}")})),
    };
    let answer = answer.to_string();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
    // An interrupted client does not wait for the response.
    let _ = (&*stream).write_all((head + &answer).as_bytes());
}
