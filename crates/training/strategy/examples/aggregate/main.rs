//! How fast FedAvg's mean is here, beside what the memory of this machine allows, and how much memory it takes.
//!
//! ```text
//! cargo run --release -p trellis-strategy --example aggregate -- --clients 10,100,1000 --elements 10000000 [--json]
//! ```
//!
//! - `read`: a plain sum over a buffer far larger than the caches. What memory gives to 1 and to 2 threads.
//! - `mean`: replies that are all in memory. They are windows into one pool of 1 GiB, each beginning elsewhere, so that any
//!   number of them fits; a part that two replies share is read at times so far apart that no cache still has it.
//! - `fold`: one reply after the other, each forgotten at once. The replies are windows into a pattern that fits into a
//!   cache and takes no memory; what is measured is the sums. The model before is there but is not touched: FedAvg does not
//!   read it.
//!
//! Each case is a process of its own, which tells its peak memory; of times the best of three is told.

mod case;
mod table;

use std::env;
use std::process::{Command, ExitCode};

use case::{Case, Measured};

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: aggregate [--clients K,K,...] [--elements N] [--json]";

struct Wanted {
    clients: Vec<usize>,
    elements: usize,
    json: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let outcome = match words.first().map(String::as_str) {
        Some("case") => run_case(&words[1..]),
        _ => wanted(&words).and_then(|wanted| measure_all(&wanted)),
    };
    match outcome {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn wanted(words: &[String]) -> Result<Wanted, String> {
    let mut wanted = Wanted { clients: vec![10, 100, 1000], elements: 10_000_000, json: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value; {USAGE}"));
        match word.as_str() {
            "--clients" => wanted.clients = value()?.split(',').map(number).collect::<Result<_, _>>()?,
            "--elements" => wanted.elements = number(value()?)?,
            "--json" => wanted.json = true,
            _ => return Err(format!("'{word}' is not known; {USAGE}")),
        }
    }
    Ok(wanted)
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("'{text}' is not a number above 0; {USAGE}")),
    }
}

/// In a process of its own: `kind count elements`.
fn run_case(words: &[String]) -> Result<String, String> {
    let [kind, count, elements] = words else { return Err(USAGE.to_owned()) };
    let measured = Case::parse(kind, number(count)?)?.measure(number(elements)?)?;
    Ok(format!("{} {}", measured.seconds, measured.peak_bytes))
}

fn measure_all(wanted: &Wanted) -> Result<String, String> {
    let mut cases = vec![Case::Read { threads: 1 }, Case::Read { threads: 2 }];
    cases.extend(wanted.clients.iter().map(|&clients| Case::Mean { clients }));
    cases.extend(wanted.clients.iter().map(|&clients| Case::Fold { clients }));
    let mut measured = Vec::with_capacity(cases.len());
    for case in cases {
        measured.push((case, in_a_process(case, wanted.elements)?));
    }
    Ok(if wanted.json { table::json(&measured, wanted.elements) } else { table::text(&measured, wanted.elements) })
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
