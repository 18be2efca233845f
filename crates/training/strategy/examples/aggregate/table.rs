//! The results as text and as JSON.

use std::fmt::Write;

use crate::case::{Case, Measured};

pub fn text(measured: &[(Case, Measured)], elements: usize) -> String {
    let model = elements * 4;
    let mut text = format!("model: {elements} float32, {:.1} MB\n", model as f64 / 1e6);
    let _ = writeln!(
        text,
        "{:<16} {:>9} {:>8} {:>10} {:>9} {:>8}",
        "case", "seconds", "GB/s", "of read", "RSS MB", "x model"
    );
    for (case, Measured { seconds, peak_bytes }) in measured {
        let (kind, count) = case.words();
        let rate = rate(*case, *seconds, elements);
        let name = match case {
            Case::Read { .. } => format!("{kind} {count} threads"),
            _ => format!("{kind} K={count}"),
        };
        let share = match case {
            Case::Mean { .. } => format!("{:.0} %", 100.0 * rate / limit(measured)),
            _ => "-".to_owned(),
        };
        // The other cases do not need the pool.
        let [rss, times] = match case {
            Case::Fold { .. } => {
                let bytes = *peak_bytes as f64;
                [format!("{:.1}", bytes / 1e6), format!("{:.2}", bytes / model as f64)]
            }
            _ => ["-".to_owned(), "-".to_owned()],
        };
        let _ = writeln!(text, "{name:<16} {seconds:>9.3} {rate:>8.1} {share:>10} {rss:>9} {times:>8}");
    }
    text.trim_end().to_owned()
}

pub fn json(measured: &[(Case, Measured)], elements: usize) -> String {
    let entries: Vec<String> = measured.iter().map(|(case, measured)| entry(*case, measured, elements)).collect();
    format!("{{\"elements\": {elements}, \"cases\": [\n  {}\n]}}", entries.join(",\n  "))
}

fn entry(case: Case, Measured { seconds, peak_bytes }: &Measured, elements: usize) -> String {
    let (kind, count) = case.words();
    let unit = if kind == "read" { "threads" } else { "clients" };
    let rate = rate(case, *seconds, elements);
    format!(
        "{{\"case\": \"{kind}\", \"{unit}\": {count}, \"seconds\": {seconds:.4}, \"gb_per_s\": {rate:.2}, \
         \"peak_rss_bytes\": {peak_bytes}}}"
    )
}

fn rate(case: Case, seconds: f64, elements: usize) -> f64 {
    case.bytes(elements) as f64 / seconds / 1e9
}

/// The bandwidth of two threads.
fn limit(measured: &[(Case, Measured)]) -> f64 {
    let read = measured.iter().find(|(case, _)| *case == Case::Read { threads: 2 });
    read.map_or(f64::NAN, |(case, measured)| rate(*case, measured.seconds, 0))
}
