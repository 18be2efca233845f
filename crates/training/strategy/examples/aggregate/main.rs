//! The speed and memory use of FedAvg's mean, compared with the memory bandwidth of the machine.
//!
//! ```text
//! cargo run --release -p trellis-strategy --example aggregate -- --clients 10,100,1000 --elements 10000000 [--json]
//! ```
//!
//! - `read`: a plain sum over a buffer far larger than the caches: the bandwidth of 1 and of 2 threads.
//! - `mean`: replies in memory. They are windows with different offsets into one pool of 1 GiB, so any number fits; a shared
//!   part is read again only after it has left all caches.
//! - `fold`: one reply after another, each dropped immediately. The replies are windows into a pattern that fits into a cache,
//!   so this measures the sums. FedAvg does not read the previous model.
//!
//! Each case runs in its own process, which reports its peak memory; times are the best of three.

mod case;
mod table;

use std::env;
use std::process::{Command, ExitCode};

use case::{Case, Measured};

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: aggregate [--clients K,K,...] [--elements N] [--json]";

struct Arguments {
    clients: Vec<usize>,
    elements: usize,
    json: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let outcome = match words.first().map(String::as_str) {
        Some("case") => run_case(&words[1..]),
        _ => arguments(&words).and_then(|arguments| measure_all(&arguments)),
    };
    match outcome {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments { clients: vec![10, 100, 1000], elements: 10_000_000, json: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value; {USAGE}"));
        match word.as_str() {
            "--clients" => arguments.clients = value()?.split(',').map(number).collect::<Result<_, _>>()?,
            "--elements" => arguments.elements = number(value()?)?,
            "--json" => arguments.json = true,
            _ => return Err(format!("'{word}' is not known; {USAGE}")),
        }
    }
    Ok(arguments)
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("'{text}' is not a number above 0; {USAGE}")),
    }
}

/// Runs in its own process, with the arguments `kind count elements`.
fn run_case(words: &[String]) -> Result<String, String> {
    let [kind, count, elements] = words else { return Err(USAGE.to_owned()) };
    let measured = Case::parse(kind, number(count)?)?.measure(number(elements)?)?;
    Ok(format!("{} {}", measured.seconds, measured.peak_bytes))
}

fn measure_all(arguments: &Arguments) -> Result<String, String> {
    let mut cases = vec![Case::Read { threads: 1 }, Case::Read { threads: 2 }];
    cases.extend(arguments.clients.iter().map(|&clients| Case::Mean { clients }));
    cases.extend(arguments.clients.iter().map(|&clients| Case::Fold { clients }));
    let mut measured = Vec::with_capacity(cases.len());
    for case in cases {
        measured.push((case, in_a_process(case, arguments.elements)?));
    }
    Ok(if arguments.json {
        table::json(&measured, arguments.elements)
    } else {
        table::text(&measured, arguments.elements)
    })
}

fn in_a_process(case: Case, elements: usize) -> Result<Measured, String> {
    let (kind, count) = case.words();
    let program = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let output = Command::new(program)
        .args(["case", kind, &count.to_string(), &elements.to_string()])
        .output()
        .map_err(|error| format!("cannot start this program again: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace();
    let parsed = words.next().and_then(|word| word.parse().ok()).zip(words.next().and_then(|word| word.parse().ok()));
    let (seconds, peak_bytes) =
        parsed.ok_or_else(|| format!("{kind} {count}: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(Measured { seconds, peak_bytes })
}
