//! Trainings that resume from a checkpoint.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use trellis_native::AppError;

use crate::nodes::{App, Nodes, Numbers, digits};
use crate::scene::Scene;

/// Much longer than ten saves.
const ROUND_TIME: Duration = Duration::from_secs(1);
const SETTINGS: &[(&str, &str)] = &[
    ("strategy", "FedAdam"),
    ("server-lr", "0.01"),
    ("seed", "11"),
    ("min-available-nodes", "3"),
    ("fraction-train", "0.7"),
    ("checkpoint-interval", "1"),
];

fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [SETTINGS, more].concat()
}

/// The state of the optimiser and the sampling of nodes are restored too.
#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_training_gives_the_same_model() {
    let scene = Scene::start().await;
    let _nodes = Nodes::start(&scene, (0..3).map(|_| digits()).collect()).await;
    let whole = scene.train(&with(&[("num-server-rounds", "6")])).await;
    let first = scene.train(&with(&[("num-server-rounds", "2")])).await.run.to_string();
    let second = scene.train(&with(&[("num-server-rounds", "5"), ("resume", &first)])).await.run.to_string();
    let third = scene.train(&with(&[("num-server-rounds", "6"), ("resume", &second)])).await;

    let [whole, third] = [whole, third].map(|trained| scene.checkpoint(trained.run));
    assert!(whole.model.arrays.len() >= 4);
    assert_eq!(whole.model, third.model);
    assert_eq!(whole.state, third.state);
    assert_eq!(whole.manifest.history, third.manifest.history);
    let lineage: Vec<(String, u64)> =
        third.manifest.lineage().iter().map(|origin| (origin.run.clone(), origin.round)).collect();
    assert_eq!(lineage, [(second, 5), (first, 2)]);
}

/// Increments, and reports the start of a round; the round `hangs_in` never ends.
fn counting(rounds: mpsc::UnboundedSender<u64>, hangs_in: u64) -> App {
    Arc::new(Numbers(move |values: &[f32], round| {
        let is_first_time = rounds.send(round).is_ok();
        if round == hangs_in && is_first_time {
            return Err(AppError::Stopped);
        }
        Ok((values.iter().map(|value| value * 1.1 + round as f32).collect(), round + 1))
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_training_resumes() {
    let scene = Scene::start().await;
    let (tell, mut rounds) = mpsc::unbounded_channel();
    let (other, others) = mpsc::unbounded_channel();
    drop(others);
    let _nodes = Nodes::start(&scene, vec![counting(tell, 4), counting(other, 0)]).await;
    let settings =
        [("strategy", "FedAvgM"), ("server-momentum", "0.9"), ("checkpoint-interval", "1"), ("num-server-rounds", "6")];
    let (killed, running) = scene.begin(&settings).await;
    while rounds.recv().await.expect("rounds go on") < 4 {}
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    scene.stop_run(killed).await;
    drop(rounds);

    let killed = killed.to_string();
    assert_eq!(scene.checkpoint(killed.parse().unwrap()).manifest.round, 3);
    let resumed = scene.train(&[&settings[..], &[("resume", &killed)]].concat()).await;
    let whole = scene.train(&settings).await;
    let [resumed, whole] = [resumed, whole].map(|trained| scene.checkpoint(trained.run));
    assert_eq!(resumed.manifest.round, 6);
    assert_eq!(resumed.model, whole.model);
    assert_eq!(resumed.state, whole.state);
}

/// Rounds that take long; the third never ends.
fn toiling(rounds: mpsc::UnboundedSender<u64>) -> App {
    Arc::new(Numbers(move |values: &[f32], round| {
        rounds.send(round).expect("the receiver lives");
        std::thread::sleep(ROUND_TIME);
        if round == 3 { Err(AppError::Stopped) } else { Ok((values.to_vec(), 1)) }
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_round_has_a_temporary_checkpoint() {
    let scene = Scene::start().await;
    let (tell, mut rounds) = mpsc::unbounded_channel();
    let _nodes = Nodes::start(&scene, vec![toiling(tell.clone()), toiling(tell)]).await;
    let settings = [("checkpoint-interval", "100"), ("num-server-rounds", "6")];
    let (run, running) = scene.begin(&settings).await;
    while rounds.recv().await.expect("rounds go on") < 3 {}
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    scene.stop_run(run).await;
    let kept: Vec<u64> = scene.models().list().unwrap().iter().map(|entry| entry.round).collect();
    assert_eq!(kept, [0, 2]);
    assert_eq!(scene.checkpoint(run).manifest.round, 2);
    assert!(!scene.log(run).await.contains("checkpoint: "), "it was not requested");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_training_has_nothing_left_to_do() {
    let scene = Scene::start().await;
    let _nodes = Nodes::start(&scene, (0..3).map(|_| digits()).collect()).await;
    let whole = scene.train(&with(&[("num-server-rounds", "1")])).await.run.to_string();
    let again = scene.train(&with(&[("num-server-rounds", "1"), ("resume", &whole)])).await;
    assert!(again.log.contains("nothing is left to do"), "{}", again.log);
    assert_eq!(scene.checkpoint(again.run).model, scene.checkpoint(whole.parse().unwrap()).model);
}
