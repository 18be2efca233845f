//! The program prints its addresses, and stops all its VMs at the end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(20);

/// Kills the program if the test fails.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn control(url: &str, line: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).expect("it listens");
    let body = body.to_string();
    let head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    serde_json::from_str(body).expect("it is JSON")
}

#[test]
fn it_says_where_it_serves_and_takes_its_vms_with_it() {
    let place = tempfile::tempdir().expect("a directory");
    let script = place.path().join("vm");
    std::fs::write(&script, "echo $$ > $FAKE_ONE_VM_DIR/pid\nexec sleep 1000\n").expect("it can be written");
    let mut started = Started(
        Command::new(env!("CARGO_BIN_EXE_fake-one"))
            .args(["--network", "n=10.9.0.0/24,first=10.9.0.20", "--vm-command"])
            .arg(format!("/bin/sh {}", script.display()))
            .arg("--dir")
            .arg(place.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts"),
    );
    let mut line = String::new();
    BufReader::new(started.0.stdout.take().expect("it is a pipe")).read_line(&mut line).expect("it says something");
    let said: Value = serde_json::from_str(&line).expect("it is JSON");
    let url = said["control"].as_str().expect("it has one");
    let roles = json!([{"name": "superlink", "cardinality": 1, "context": [["A", "b"]]}]);
    let made = control(url, "POST /services", &json!({"name": "s", "roles": roles}));
    assert_eq!(made["id"], 1, "{made}");
    assert!(control(url, "POST /vms", &json!({"name": "alone"}))["id"].is_i64());
    let own = place.path().join("vm-0");
    let begun = Instant::now();
    let pid = loop {
        assert!(begun.elapsed() < LIMIT, "the VM never started: {}", control(url, "GET /vms", &Value::Null));
        // The end of the line is written last.
        match std::fs::read_to_string(own.join("pid")) {
            Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
            _ => std::thread::yield_now(),
        }
    };
    let vms = control(url, "GET /vms", &Value::Null);
    let ips: Vec<&str> = vms.as_array().expect("a list").iter().filter_map(|vm| vm["ip"].as_str()).collect();
    assert!(ips.contains(&"10.9.0.20") && ips.contains(&"10.9.0.21"), "{vms}");
    let itself = Pid::from_raw(started.0.id().cast_signed()).expect("it runs");
    kill_process(itself, Signal::TERM).expect("it runs");
    assert!(started.0.wait().expect("it ends").success());
    assert!(!std::path::Path::new("/proc").join(pid).exists());
}
