//! Failing nodes, invalid settings and unavailable SuperLinks.

use std::sync::Arc;

use tokio::sync::mpsc;
use trellis_native::AppError;
use trellis_train::Finished;

use crate::nodes::{App, Nodes, Numbers, adds, as_numbers, silent};
use crate::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_with_non_finite_values_is_rejected_and_its_node_named() {
    let scene = Scene::start().await;
    let nan: App = Arc::new(Numbers(|_: &[f32], _| Ok((vec![1.0, f32::NAN, 1.0], 1000))));
    let nodes = Nodes::start(&scene, vec![adds(1.0, 1), nan, adds(1.0, 1)]).await;
    let settings = [("num-server-rounds", "2"), ("min-available-nodes", "3")];
    let trained = scene.train(&settings).await;
    assert_eq!(as_numbers(&scene.checkpoint(trained.run).model.arrays[0]), [2.0; 3]);
    let expected =
        format!("node {} sent a reply that cannot be used: \"w\" has a non-finite value at index 1", nodes.ids[1]);
    assert!(trained.log.contains(&expected), "{expected}\n{}", trained.log);
    let reports = scene.reports(trained.run).await;
    let failed = &reports[0].train.as_ref().unwrap().failed;
    assert_eq!((failed[0].node.clone(), failed[0].kind.as_str()), (nodes.ids[1].to_string(), "rejected"));

    let strict = [&settings[..], &[("non-finite", "fail")]].concat();
    let (run, running) = scene.begin(&strict).await;
    running.await.unwrap().unwrap_err();
    let (status, details) = scene.status(run).await;
    assert_eq!(status, "failed");
    assert!(details.contains(&format!("node {}", nodes.ids[1])), "{details}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_mismatched_models_are_logged_with_their_node() {
    let scene = Scene::start().await;
    let longer: App = Arc::new(Numbers(|_: &[f32], _| Ok((vec![1.0; 4], 1))));
    let failing: App = Arc::new(Numbers(|_: &[f32], _| Err(AppError::failed("the disk is full\nat line 3"))));
    let nodes = Nodes::start(&scene, vec![adds(1.0, 1), longer, failing]).await;
    let trained = scene.train(&[("num-server-rounds", "1"), ("min-available-nodes", "3")]).await;
    for expected in [
        format!(
            "node {} sent a reply that cannot be used: \"w\" is float32 [4], the model has float32 [3]",
            nodes.ids[1]
        ),
        format!("node {} failed: the disk is full\n", nodes.ids[2]),
    ] {
        assert!(trained.log.contains(&expected), "{expected}\n{}", trained.log);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_node_is_awaited_until_the_deadline() {
    let scene = Scene::start().await;
    let nodes = Nodes::start(&scene, vec![adds(1.0, 1), silent(), adds(3.0, 1)]).await;
    let settings = [("num-server-rounds", "1"), ("min-available-nodes", "3"), ("round-timeout", "1.5")];
    let trained = scene.train(&settings).await;
    assert_eq!(as_numbers(&scene.checkpoint(trained.run).model.arrays[0]), [2.0; 3]);
    let expected = format!("node {} did not answer in time: no reply within 1.5 s", nodes.ids[1]);
    assert!(trained.log.contains(&expected), "{expected}\n{}", trained.log);

    // If failures are not accepted, the round has no result, and so has a training of one round.
    let strict = [&settings[..], &[("accept-failures", "false")]].concat();
    let (run, running) = scene.begin(&strict).await;
    let error = running.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("produced a new model") && error.contains("failures are not accepted"), "{error}");
    assert_eq!(as_numbers(&scene.checkpoint(run).model.arrays[0]), [0.0; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_over_selection_the_slowest_node_is_not_awaited() {
    let scene = Scene::start().await;
    let nodes = Nodes::start(&scene, vec![adds(1.0, 1), silent(), adds(1.0, 1), adds(1.0, 1)]).await;
    let settings = [
        ("num-server-rounds", "2"),
        ("min-available-nodes", "4"),
        ("fraction-train", "0.75"),
        ("fraction-evaluate", "0"),
        ("over-selection", "0.34"),
    ];
    let trained = scene.train(&settings).await;
    assert_eq!(as_numbers(&scene.checkpoint(trained.run).model.arrays[0]), [2.0; 3]);
    let reports = scene.reports(trained.run).await;
    let train = reports[0].train.as_ref().unwrap();
    assert_eq!((train.asked, train.answered), (4, 3), "the default timeout is an hour");
    assert_eq!((train.failed[0].node.clone(), train.failed[0].kind.as_str()), (nodes.ids[1].to_string(), "not-needed"));
}

/// Reports the start of a round.
fn heard(rounds: mpsc::UnboundedSender<u64>) -> App {
    Arc::new(Numbers(move |values: &[f32], round| {
        let _ = rounds.send(round);
        Ok((values.iter().map(|value| value + 1.0).collect(), 1))
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_run_ends_without_an_error() {
    let scene = Scene::start().await;
    let (tell, mut rounds) = mpsc::unbounded_channel();
    let _nodes = Nodes::start(&scene, vec![heard(tell), adds(1.0, 1)]).await;
    let (run, running) = scene.begin(&[("num-server-rounds", "100000")]).await;
    while rounds.recv().await.expect("rounds go on") < 2 {}
    scene.stop_run(run).await;
    assert_eq!(running.await.unwrap().unwrap(), Finished::Stopped);
    assert_eq!(scene.status(run).await.0, "stopped");
    assert!(!scene.log(run).await.contains("ERROR"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_survives_a_restart_of_the_superlink() {
    let mut scene = Scene::start().await;
    let (tell, mut rounds) = mpsc::unbounded_channel();
    let _nodes = Nodes::start(&scene, vec![heard(tell), adds(1.0, 1)]).await;
    let (run, running) = scene.begin(&[("num-server-rounds", "8"), ("round-timeout", "60")]).await;
    while rounds.recv().await.expect("rounds go on") < 3 {}
    scene.stop_superlink().await;
    scene.start_superlink().await;
    let finished = running.await.unwrap();
    assert!(matches!(finished, Ok(Finished::Completed { round: 8, .. })), "{finished:?}");
    assert_eq!(as_numbers(&scene.checkpoint(run).model.arrays[0]), [8.0; 3], "{}", scene.log(run).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_settings_fail_a_run_before_it_starts() {
    let scene = Scene::start().await;
    let (run, running) = scene.begin(&[("strategy", "FedSomething"), ("num-server-rounds", "many")]).await;
    running.await.unwrap().unwrap_err();
    let (status, details) = scene.status(run).await;
    assert_eq!(status, "failed");
    assert!(details.contains("strategy: ") && details.contains("num-server-rounds: "), "{details}");
    assert!(scene.log(run).await.contains("ERROR :      "));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_initial_model_the_error_explains_the_options() {
    let scene = Scene::start().await;
    let echo = || Arc::from(trellis_native::builtin("echo", &Default::default()).unwrap());
    let _nodes = Nodes::start(&scene, vec![echo(), echo()]).await;
    let (run, running) = scene.begin(&[]).await;
    running.await.unwrap().unwrap_err();
    let (status, details) = scene.status(run).await;
    assert_eq!(status, "failed");
    assert!(details.contains("initial-model") && details.contains("query.init"), "{details}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_non_finite_initial_model_is_refused_before_any_node_is_asked() {
    let scene = Scene::start().await;
    let header = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let numbers = [1.0f32, f32::NAN].map(f32::to_le_bytes);
    let file = [&(header.len() as u64).to_le_bytes()[..], header, &numbers[0], &numbers[1]].concat();
    let path = scene.options().models_dir.join("first.safetensors");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, file).unwrap();
    let (run, running) = scene.begin(&[("initial-model", "first.safetensors")]).await;
    running.await.unwrap().unwrap_err();
    let (status, details) = scene.status(run).await;
    assert_eq!(status, "failed");
    assert!(details.contains("\"w\" has a non-finite value at index 1"), "{details}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submitted_run_neither_reads_nor_writes_outside_the_directory_of_models() {
    let scene = Scene::start().await;
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().to_str().unwrap();
    for setting in ["checkpoint-path", "resume", "initial-model"] {
        let (run, running) = scene.begin(&[(setting, path)]).await;
        running.await.unwrap().unwrap_err();
        let (status, details) = scene.status(run).await;
        assert_eq!(status, "failed");
        assert!(details.contains(setting) && details.contains("not below the directory of models"), "{details}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_whose_nodes_all_fail_has_failed() {
    let scene = Scene::start().await;
    let broken =
        || Arc::from(trellis_native::builtin("mlp", &[("partition".into(), "by-label:1".into())].into()).unwrap());
    let _nodes = Nodes::start(&scene, vec![broken(), broken()]).await;
    let (run, running) = scene.begin(&[("num-server-rounds", "2")]).await;
    running.await.unwrap().unwrap_err();
    let (status, details) = scene.status(run).await;
    assert_eq!(status, "failed");
    assert!(details.contains("no round (2 in total)") && details.contains("by-label:1"), "{details}");
}
