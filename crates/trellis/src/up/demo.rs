//! The demo: a training that learns before your eyes, on data that no two nodes have alike.

use std::collections::BTreeMap;
use std::process::ExitCode;

use trellis_api::{Client, MetricReport, NewRun, Run, Scalar, TrainingReport};
use trellis_terminal::{Format, clean, print};

use super::chart::chart;
use crate::process::StopSignals;
use crate::remote::CommandError;
use crate::run::follow::Followed;
use crate::run::served::Follower;
use crate::run::show::Show;
use crate::run::{by_signal, conclude};

const APP: &str = "native:mlp";
const ROUNDS: i64 = 10;
/// Each node has many of some digits and few of others.
const PARTITION: &str = "dirichlet:0.5";
const LOCAL_EPOCHS: i64 = 2;
const SEED: i64 = 7;
const ACCURACY: &str = "eval_acc";
/// Of ten digits one in ten is guessed.
const LEARNED: f64 = 0.9;

/// Trains, prints the curve, and checks that the model learned.
pub async fn train(client: &Client, federation: &str, signals: &mut StopSignals) -> Result<ExitCode, CommandError> {
    print("\nNow a network learns to read digits. Each node has different digits, which never leave it.\n\n");
    let run = client.start_run(federation, &new_run(), None).await?;
    let mut show = Show::new(Format::Table);
    show.started(&run.id, &format!("{APP}, {ROUNDS} rounds, digits spread by {PARTITION}"));
    let (followed, reports) = Follower::new(client, federation, &run, signals).reports(&mut show).await?;
    if let Followed::Stopped(_, signal) | Followed::Left(signal) = followed {
        return Ok(by_signal(signal));
    }
    conclude(&run.id, &followed, &mut show, "")?;
    let curve = curve(&reports);
    print(&format!("\nAccuracy on digits that were not used for training, by round:\n{}", chart(&curve)));
    print_model(client, federation, &run).await?;
    verdict(&curve)
}

fn new_run() -> NewRun {
    let settings = BTreeMap::from([
        ("num-server-rounds".to_owned(), Scalar::Int(ROUNDS)),
        ("partition".to_owned(), Scalar::Text(PARTITION.to_owned())),
        ("local-epochs".to_owned(), Scalar::Int(LOCAL_EPOCHS)),
        ("seed".to_owned(), Scalar::Int(SEED)),
    ]);
    NewRun { app: Some(APP.to_owned()), bundle: None, settings }
}

/// Round and accuracy.
fn curve(reports: &[TrainingReport]) -> Vec<(u64, f64)> {
    let accuracy = |report: &TrainingReport| match report.evaluate.as_ref()?.metrics.get(ACCURACY)? {
        MetricReport::Number(number) => Some(*number),
        MetricReport::Text(text) => text.parse().ok(),
        MetricReport::Numbers(_) => None,
    };
    let rounds = reports.iter().filter(|report| report.kind == "round");
    rounds.filter_map(|report| Some((report.round, accuracy(report)?))).collect()
}

async fn print_model(client: &Client, federation: &str, run: &Run) -> Result<(), CommandError> {
    let run = client.run(federation, &run.id).await?;
    if let Some(path) = run.training.and_then(|training| training.checkpoint) {
        // By its path: the home may be one for this demo alone.
        print(&format!("\nThe model is saved; see `trellis model show {}`\n", clean(&path)));
    }
    Ok(())
}

fn verdict(curve: &[(u64, f64)]) -> Result<ExitCode, CommandError> {
    match curve.last() {
        Some((_, accuracy)) if *accuracy > LEARNED => Ok(ExitCode::SUCCESS),
        Some((_, accuracy)) => {
            let what = format!("the model did not learn: its accuracy is {accuracy:.3}, not above {LEARNED}");
            Err(CommandError::failed(what, Some("start it again; if that does not help, report a bug")))
        }
        None => Err(CommandError::failed(
            "no round was evaluated",
            Some("start it again; if that does not help, report a bug"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use trellis_api::PhaseReport;

    use super::*;

    fn round(round: u64, accuracy: f64) -> TrainingReport {
        let metrics = [(ACCURACY.to_owned(), MetricReport::number(accuracy))].into();
        let evaluate = Some(PhaseReport { metrics, ..PhaseReport::default() });
        TrainingReport { round, kind: "round".to_owned(), evaluate, ..TrainingReport::default() }
    }

    #[test]
    fn only_a_model_that_learned_is_a_success() {
        let end = TrainingReport { round: 2, kind: "end".to_owned(), ..TrainingReport::default() };
        let learned = curve(&[round(1, 0.5), round(2, 0.93), end]);
        assert_eq!(learned, [(1, 0.5), (2, 0.93)]);
        assert!(verdict(&learned).is_ok());
        assert!(verdict(&curve(&[round(1, 0.9)])).is_err());
        assert!(verdict(&[]).is_err());
    }
}
