//! Results of trainings.

use crate::nodes::{Nodes, Turns, adds, as_numbers, digits};
use crate::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn digits_are_learnt() {
    let scene = Scene::start().await;
    let nodes = Nodes::start(&scene, (0..4).map(|_| digits()).collect()).await;
    let trained =
        scene.train(&[("num-server-rounds", "5"), ("min-available-nodes", "4"), ("checkpoint-interval", "2")]).await;
    assert_eq!(scene.status(trained.run).await, ("completed".to_owned(), String::new()));

    let checkpoint = scene.checkpoint(trained.run);
    let manifest = &checkpoint.manifest;
    assert_eq!((manifest.round, manifest.is_final, manifest.history.len()), (5, true, 5));
    assert_eq!((manifest.strategy.as_str(), manifest.app.fab_id.as_str()), ("FedAvg", "me/app"));
    let accuracy = manifest.metrics.evaluate["eval_acc"];
    assert!(accuracy > 0.9, "{accuracy}\n{}", trained.log);

    for line in [
        "INFO :      FedAvg: 5 rounds",
        "INFO :      [ROUND 1/5]",
        "INFO :      train: asking 4 of 4 nodes",
        "INFO :      train: 4 of 4 nodes answered in",
        "INFO :      checkpoint: ",
        "INFO :      training finished: 5 rounds in",
    ] {
        assert!(trained.log.contains(line), "{line}\n{}", trained.log);
    }

    let reports = scene.reports(trained.run).await;
    let kinds: Vec<(u64, &str)> = reports.iter().map(|report| (report.round, report.kind.as_str())).collect();
    assert_eq!(kinds.iter().filter(|(_, kind)| *kind == "round").count(), 5, "{kinds:?}");
    let train = reports[0].train.as_ref().unwrap();
    assert_eq!((train.asked, train.answered, train.clients.len()), (4, 4, 4));
    let mut ids: Vec<String> = nodes.ids.iter().map(ToString::to_string).collect();
    ids.sort_by_key(|id| id.parse::<u64>().unwrap());
    assert_eq!(train.clients.iter().map(|client| client.node.clone()).collect::<Vec<_>>(), ids);
    assert!(train.clients.iter().all(|client| client.update_norm.unwrap() > 0.0 && client.weight > 0.0));
    assert!(reports[0].update_norm.unwrap() > 0.0);
    assert!(reports.iter().any(|report| report.checkpoint.as_ref().is_some_and(|kept| kept.size_bytes > Some(1000))));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mean_is_weighted_by_examples() {
    let scene = Scene::start().await;
    let _nodes = Nodes::start(&scene, vec![adds(1.0, 30), adds(5.0, 10)]).await;
    let trained = scene.train(&[("num-server-rounds", "2")]).await;
    let model = scene.checkpoint(trained.run).model;
    assert_eq!(as_numbers(&model.arrays[0]), [4.0; 3], "twice (30 * 1 + 10 * 5) / 40");
}

/// Sums of floats depend on their order, so it must not depend on the order of arrival.
#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_arrival_does_not_matter() {
    let scene = Scene::start().await;
    let turns = Turns::new(5);
    let apps = (0..5).map(|node| adds(0.1 + 1e-6 * node as f32, 7 * node as u64 + 1)).collect();
    let _nodes = Nodes::start_in_turns(&scene, apps, Some(turns.clone())).await;
    let settings = [("num-server-rounds", "3"), ("min-available-nodes", "5"), ("strategy", "FedAdam"), ("seed", "1")];
    let forwards = scene.train(&settings).await;
    turns.reverse();
    let backwards = scene.train(&settings).await;
    let [forwards, backwards] = [forwards, backwards].map(|trained| scene.checkpoint(trained.run));
    assert_eq!(forwards.model, backwards.model);
    assert_eq!(forwards.state, backwards.state);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_stops_at_its_target() {
    let scene = Scene::start().await;
    let _nodes = Nodes::start(&scene, vec![adds(1.0, 1), adds(1.0, 1)]).await;
    let settings = [("num-server-rounds", "50"), ("target-metric", "eval_loss"), ("target-value", "0.25")];
    let trained = scene.train(&settings).await;
    assert_eq!(trained.round, 3, "the loss is 1 / (round + 1)\n{}", trained.log);
    assert!(trained.log.contains("the training ends here: eval_loss is 0.25"), "{}", trained.log);
    assert!(scene.checkpoint(trained.run).manifest.is_final);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_privacy_budget_is_accounted() {
    let scene = Scene::start().await;
    let _nodes = Nodes::start(&scene, vec![adds(3.0, 1), adds(4.0, 1000)]).await;
    let trained = scene
        .train(&[
            ("num-server-rounds", "2"),
            ("dp", "server-fixed"),
            ("dp-noise-multiplier", "0.5"),
            ("dp-clipping-norm", "0.001"),
            ("seed", "3"),
        ])
        .await;
    let reports = scene.reports(trained.run).await;
    let epsilons: Vec<f64> = reports.iter().filter_map(|report| report.epsilon).collect();
    assert!(epsilons.len() == 2 && epsilons[0] > 1.0 && epsilons[1] > epsilons[0], "{epsilons:?}");
    let whole = epsilons[0];
    let model = scene.checkpoint(trained.run).model;
    let norm = as_numbers(&model.arrays[0]).iter().map(|number| number * number).sum::<f32>().sqrt();
    assert!(norm < 0.01, "every update was clipped to 0.001: {norm}");

    // One of two nodes is selected, so a round costs less. The budget ends the training.
    let sampled = scene
        .train(&[
            ("num-server-rounds", "50"),
            ("fraction-train", "0.5"),
            ("min-train-nodes", "1"),
            ("dp", "server-fixed"),
            ("dp-noise-multiplier", "0.5"),
            ("dp-clipping-norm", "0.001"),
            ("dp-max-epsilon", "25"),
        ])
        .await;
    let epsilons: Vec<f64> = scene.reports(sampled.run).await.iter().filter_map(|report| report.epsilon).collect();
    assert!(epsilons[0] < whole, "{} is not below {whole}", epsilons[0]);
    assert!(sampled.round > 1 && *epsilons.last().unwrap() <= 25.0, "{epsilons:?}");
    assert!(sampled.log.contains("the privacy budget allows no further round"), "{}", sampled.log);
    assert!(scene.checkpoint(sampled.run).manifest.is_final);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_those_of_the_replies_that_krum_selected() {
    let scene = Scene::start().await;
    let apps = vec![adds(1.0, 1), adds(1.0, 1), adds(1.0, 1), adds(1.0, 1), adds(90.0, 1)];
    let _nodes = Nodes::start(&scene, apps).await;
    let settings = [("num-server-rounds", "1"), ("strategy", "Krum"), ("num-malicious", "1"), ("min-train-nodes", "5")];
    let trained = scene.train(&settings).await;
    let reports = scene.reports(trained.run).await;
    let train = reports.iter().find_map(|report| report.train.as_ref()).expect("the round was reported");
    let chosen: Vec<_> = train.clients.iter().filter(|client| client.chosen == Some(true)).collect();
    assert_eq!(chosen.len(), 1);
    let mut expected = chosen[0].metrics.clone();
    expected.remove("num-examples");
    assert!(!expected.is_empty());
    assert_eq!(train.metrics, expected);
}
