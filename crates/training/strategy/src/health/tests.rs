//! Histories of trainings, and the expected findings.

use super::*;

/// Ten similar clients with update norms around 1, whose mean preserves most of them.
fn clients() -> Vec<Client> {
    let client = |id: u64| Client {
        examples: Some(100.0 + id as f64),
        update_norm: Some(1.0 + 0.01 * id as f64),
        train_loss: Some(0.5),
        eval_loss: Some(0.55 + 0.01 * id as f64),
        eval_accuracy: Some(0.8 + 0.01 * id as f64),
        eval_examples: Some(100.0),
        ..Client::new(NodeId(id))
    };
    (1..=10).map(client).collect()
}

fn round(number: u64, loss: f64) -> Round {
    Round { number, eval_loss: Some(loss), mean_update_norm: Some(0.8), clients: clients(), ..Round::default() }
}

fn training(losses: &[f64]) -> Vec<Round> {
    losses.iter().zip(1..).map(|(&loss, number)| round(number, loss)).collect()
}

fn findings(history: &[Round]) -> String {
    diagnose(history).iter().map(|finding| format!("{}: {}\n", finding.severity.name(), finding.what)).collect()
}

fn codes(history: &[Round]) -> Vec<&'static str> {
    diagnose(history).iter().map(|finding| finding.code).collect()
}

#[test]
fn a_healthy_training_has_no_findings() {
    assert_eq!(findings(&[]), "");
    assert_eq!(findings(&training(&[2.3])), "");
    let well = training(&[2.3, 1.4, 0.9, 0.95, 0.7, 0.72, 0.6, 0.5, 0.51, 0.48]);
    for rounds in 1..=well.len() {
        assert_eq!(findings(&well[..rounds]), "", "after round {rounds}");
    }
}

#[test]
fn a_diverging_training() {
    let mut history = training(&[2.3, 1.1, 0.9, 1.2, 1.9]);
    assert_eq!(findings(&history), "", "two bad rounds may be chance");
    history.push(round(6, 4.5));
    assert_eq!(
        findings(&history),
        "warning: The evaluation loss has risen in each of the last 3 rounds, from 0.9000 in round 3 to 4.5000; the \
         best was 0.9000.\n"
    );
    assert!(diagnose(&history)[0].advice.contains("FedProx with proximal-mu 0.1 to 1"));
    assert_eq!(diagnose(&history)[0].numbers["best-loss"], 0.9);

    history.push(round(7, f64::NAN));
    let text = findings(&history);
    assert!(text.starts_with(
        "critical: The evaluation loss of round 7 is NaN: the model has diverged.\nwarning: The evaluation \
         loss has"
    ));
}

#[test]
fn without_an_evaluation_loss_the_training_loss_or_the_accuracy_is_used() {
    let mut history = training(&[0.5, 0.6, 0.7, 0.8]);
    for round in &mut history {
        round.train_loss = round.eval_loss.take();
    }
    assert!(
        findings(&history)
            .starts_with("warning: The training loss has risen in each of the last 3 rounds, from 0.5000")
    );
    for round in &mut history {
        round.eval_accuracy = Some(1.0 - round.train_loss.take().unwrap());
    }
    assert!(
        findings(&history)
            .starts_with("warning: The accuracy has fallen in each of the last 3 rounds, from 0.500 in round 1")
    );
    history[3].eval_accuracy = Some(0.9);
    assert_eq!(findings(&history), "");
}

#[test]
fn a_stalled_training() {
    let flat = [2.3, 0.9, 0.9, 0.901, 0.899, 0.9, 0.895];
    assert_eq!(findings(&training(&flat[..6])), "");
    assert_eq!(
        findings(&training(&flat)),
        "notice: The evaluation loss has not improved for 5 rounds: 0.9000 before, 0.8950 at best since. The \
         training has converged, or it is stuck.\n"
    );
    assert_eq!(codes(&training(&[2.3, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9])), ["diverging"], "and not stalled too");
}

#[test]
fn drifting_clients() {
    let mut history = training(&[2.3, 1.1, 1.0]);
    for (round, mean_norm) in history.iter_mut().zip([0.8, 0.5, 0.3]) {
        round.mean_update_norm = Some(mean_norm);
    }
    assert_eq!(
        findings(&history),
        "warning: The clients' updates diverge: their diversity has grown from 1.7 to 12.4 in 3 rounds (1: all updates \
         are equal). 8 % of the updates survives the averaging.\n"
    );
    assert!(diagnose(&history)[0].advice.starts_with("Try fewer local epochs (1 or 2)"));
    for round in &mut history {
        round.mean_update_norm = Some(0.3);
    }
    assert_eq!(findings(&history), "", "noise on a plateau is diverse, but not increasingly so");

    let mut history = training(&[2.3, 1.1]);
    for client in &mut history[1].clients {
        client.train_loss = Some(0.1);
    }
    assert_eq!(
        findings(&history),
        "warning: The clients' own models are much better on their data (loss 0.1000) than the global model (0.6050): \
         the aggregation undoes what they learn.\n"
    );
}

#[test]
fn clients_with_different_labels() {
    let with_labels = |of: fn(usize) -> Vec<f64>| {
        let mut history = training(&[2.3, 1.1]);
        for (index, client) in history[0].clients.iter_mut().enumerate() {
            client.label_counts = of(index);
        }
        history
    };
    let even = with_labels(|client| vec![100.0, 90.0 + client as f64, 110.0]);
    assert_eq!(findings(&even), "");
    let few = with_labels(|client| if client == 0 { vec![2.0, 0.0] } else { vec![0.0, 3.0] });
    assert_eq!(findings(&few), "", "five labels are too few");
    let one_each = with_labels(|client| {
        let mut counts = vec![0.0; 10];
        counts[client] = 50.0;
        counts
    });
    assert_eq!(
        findings(&one_each),
        "warning: The clients have different labels: on average 90 % of a client's examples would have to be exchanged \
         to make them like those of all together.\n"
    );
    let odd_one = with_labels(|client| if client == 2 { vec![0.0, 100.0, 0.0] } else { vec![20.0, 0.0, 80.0] });
    assert_eq!(findings(&odd_one), "", "one of ten clients does not skew the whole");
    let thirds = with_labels(|client| match client {
        0..5 => vec![100.0, 0.0, 0.0],
        5..9 => vec![0.0, 100.0, 0.0],
        _ => vec![0.0, 0.0, 100.0],
    });
    assert!(findings(&thirds).ends_with("those of all together, at node 10 90 %.\n"), "{}", findings(&thirds));
    let two_groups = with_labels(|client| if client < 5 { vec![90.0, 10.0] } else { vec![10.0, 90.0] });
    assert_eq!(diagnose(&two_groups)[0].severity, Severity::Notice);
    assert!((diagnose(&two_groups)[0].numbers["skew"] - 0.4).abs() < 1e-12);
}

#[test]
fn clients_with_uneven_accuracy() {
    let mut history = training(&[2.3, 1.1]);
    history[1].clients[3].eval_accuracy = Some(0.35);
    assert_eq!(
        findings(&history),
        "notice: The global model suits some clients and not others: its accuracy is 0.900 at node 10 and 0.350 at \
         node 4. Their data differ.\n"
    );
    for client in &mut history[1].clients {
        client.eval_accuracy = None;
        client.train_loss = None;
    }
    history[1].clients[3].eval_loss = Some(6.0);
    assert!(
        findings(&history)
            .contains("their losses are 1.1460 on average, with a deviation of 1.6182, and 6.0000 at node 4.")
    );
}

/// Random parts of one data set: with small test sets accuracies differ by chance.
#[test]
fn clients_with_similar_data_and_few_examples_have_no_findings() {
    for (examples, accuracies) in [(2.0, [0.0, 0.5, 1.0]), (20.0, [0.30, 0.45, 0.60]), (40.0, [0.35, 0.5, 0.65])] {
        let mut history = training(&[2.3, 1.1]);
        for (index, client) in history[1].clients.iter_mut().enumerate() {
            client.eval_accuracy = Some(accuracies[index % 3]);
            client.eval_loss = Some(if examples < 20.0 { (index % 3) as f64 * 3.0 } else { 1.0 });
            client.eval_examples = Some(examples);
            client.train_loss = None;
        }
        assert_eq!(findings(&history), "", "{examples} examples");
        for client in &mut history[1].clients {
            client.eval_examples = Some(400.0);
        }
        assert_eq!(codes(&history), ["unlike-clients"], "the same accuracies over 400 examples");
    }
}

#[test]
fn a_dominating_client() {
    let mut history = training(&[2.3, 1.1]);
    history[1].clients[6].examples = Some(9000.0);
    assert_eq!(
        findings(&history),
        "notice: Node 7 has 90 % of all examples among 10 clients: the mean is mostly its model.\n"
    );
}

#[test]
fn a_poisoning_client() {
    let mut history = training(&[2.3, 1.8, 1.7]);
    history[2].clients[1].update_norm = Some(80.0);
    assert_eq!(
        findings(&history),
        "notice: The updates of node 2 are up to 75 times as large as the median, in 1 of the last 3 rounds.\n"
    );
    history[2].clients[4].update_norm = Some(700.0);
    history[1].clients[4].update_norm = Some(700.0);
    let findings = diagnose(&history);
    assert_eq!((findings[0].code, findings[0].severity), ("outlier-client", Severity::Warning));
    assert!(findings[0].what.starts_with("The updates of nodes 5 and 2 are up to"), "{}", findings[0].what);
    assert!(findings[0].advice.contains("Krum or MultiKrum (num-malicious), Bulyan, FedTrimmedAvg"));
}

#[test]
fn failing_and_rejected_clients() {
    let mut history = training(&[2.3, 1.1]);
    history[1].clients.truncate(5);
    history[1].failures = 4;
    history[1].rejected = vec![(NodeId(6), "fc.weight contains a non-finite value".into())];
    assert_eq!(
        findings(&history),
        "warning: 4 of the 10 clients of round 2 failed or did not answer in time.\n\
          warning: In round 2 the replies of node 6 were rejected: fc.weight contains a non-finite value.\n"
    );
    history.push(round(3, 1.0));
    assert_eq!(findings(&history), "", "past conditions are not reported");
}

#[test]
fn a_finding_has_a_text_form_and_a_json_form() {
    let mut history = training(&[2.3, 1.1]);
    history[1].failures = 2;
    let finding = &diagnose(&history)[0];
    assert_eq!(finding.to_string(), format!("notice (failing-clients): {} To do: {}", finding.what, finding.advice));
    let json = serde_json::to_value(finding).unwrap();
    assert_eq!((&json["code"], &json["severity"]), (&"failing-clients".into(), &"notice".into()));
    assert_eq!(json["numbers"], serde_json::json!({"failed": 2.0, "asked": 12.0}));
}
