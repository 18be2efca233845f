//! Trainings as stories: what happens in their rounds, and what is said about it.

use super::*;

/// Ten clients alike, update norms around 1 whose mean keeps most of them.
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

fn told(history: &[Round]) -> String {
    diagnose(history).iter().map(|finding| format!("{}: {}\n", finding.severity.name(), finding.what)).collect()
}

fn codes(history: &[Round]) -> Vec<&'static str> {
    diagnose(history).iter().map(|finding| finding.code).collect()
}

#[test]
fn of_a_training_that_is_well_nothing_is_said() {
    assert_eq!(told(&[]), "");
    assert_eq!(told(&training(&[2.3])), "");
    let well = training(&[2.3, 1.4, 0.9, 0.95, 0.7, 0.72, 0.6, 0.5, 0.51, 0.48]);
    for rounds in 1..=well.len() {
        assert_eq!(told(&well[..rounds]), "", "after round {rounds}");
    }
}

#[test]
fn a_training_that_diverges() {
    let mut history = training(&[2.3, 1.1, 0.9, 1.2, 1.9]);
    assert_eq!(told(&history), "", "two bad rounds may be bad luck");
    history.push(round(6, 4.5));
    assert_eq!(
        told(&history),
        "warning: The evaluation loss has risen in each of the last 3 rounds, from 0.9000 in round 3 to 4.5000; the \
         best was 0.9000.\n"
    );
    assert!(diagnose(&history)[0].advice.contains("FedProx with proximal-mu 0.1 to 1"));
    assert_eq!(diagnose(&history)[0].numbers["best-loss"], 0.9);

    history.push(round(7, f64::NAN));
    let story = told(&history);
    assert!(story.starts_with(
        "critical: The evaluation loss of round 7 is NaN: the model's numbers have run away.\nwarning: The evaluation \
         loss has"
    ));
}

#[test]
fn without_an_evaluation_loss_the_training_loss_or_the_accuracy_is_looked_at() {
    let mut history = training(&[0.5, 0.6, 0.7, 0.8]);
    for round in &mut history {
        round.train_loss = round.eval_loss.take();
    }
    assert!(
        told(&history).starts_with("warning: The training loss has risen in each of the last 3 rounds, from 0.5000")
    );
    for round in &mut history {
        round.eval_accuracy = Some(1.0 - round.train_loss.take().unwrap());
    }
    assert!(
        told(&history)
            .starts_with("warning: The accuracy has fallen in each of the last 3 rounds, from 0.500 in round 1")
    );
    history[3].eval_accuracy = Some(0.9);
    assert_eq!(told(&history), "");
}

#[test]
fn a_training_that_does_not_get_better() {
    let flat = [2.3, 0.9, 0.9, 0.901, 0.899, 0.9, 0.895];
    assert_eq!(told(&training(&flat[..6])), "");
    assert_eq!(
        told(&training(&flat)),
        "notice: The evaluation loss has not become better for 5 rounds: 0.9000 before, 0.8950 at best since. The \
         training has converged, or it is stuck.\n"
    );
    assert_eq!(codes(&training(&[2.3, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9])), ["diverging"], "and not stalled as well");
}

#[test]
fn clients_that_drift_apart() {
    let mut history = training(&[2.3, 1.1, 1.0]);
    for (round, mean_norm) in history.iter_mut().zip([0.8, 0.5, 0.3]) {
        round.mean_update_norm = Some(mean_norm);
    }
    assert_eq!(
        told(&history),
        "warning: The clients' updates pull apart: their diversity has grown from 1.7 to 12.4 in 3 rounds (1: all pull \
         the same way). Of what they learn, 8 % survives the mean.\n"
    );
    assert!(diagnose(&history)[0].advice.starts_with("Try fewer local epochs (1 or 2)"));
    for round in &mut history {
        round.mean_update_norm = Some(0.3);
    }
    assert_eq!(told(&history), "", "noise on a plateau is as diverse, but not more and more so");

    let mut history = training(&[2.3, 1.1]);
    for client in &mut history[1].clients {
        client.train_loss = Some(0.1);
    }
    assert_eq!(
        told(&history),
        "warning: The clients' own models are much better on their data (loss 0.1000) than the global one made of them \
         (0.6050): they learn what the others undo.\n"
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
    assert_eq!(told(&even), "");
    let few = with_labels(|client| if client == 0 { vec![2.0, 0.0] } else { vec![0.0, 3.0] });
    assert_eq!(told(&few), "", "five labels are no distribution");
    let one_each = with_labels(|client| {
        let mut counts = vec![0.0; 10];
        counts[client] = 50.0;
        counts
    });
    assert_eq!(
        told(&one_each),
        "warning: The clients have different labels: on average 90 % of a client's examples would have to be exchanged \
         to make them like those of all together.\n"
    );
    let odd_one = with_labels(|client| if client == 2 { vec![0.0, 100.0, 0.0] } else { vec![20.0, 0.0, 80.0] });
    assert_eq!(told(&odd_one), "", "one of ten does not make the data of all different");
    let thirds = with_labels(|client| match client {
        0..5 => vec![100.0, 0.0, 0.0],
        5..9 => vec![0.0, 100.0, 0.0],
        _ => vec![0.0, 0.0, 100.0],
    });
    assert!(told(&thirds).ends_with("those of all together, at node 10 90 %.\n"), "{}", told(&thirds));
    let two_groups = with_labels(|client| if client < 5 { vec![90.0, 10.0] } else { vec![10.0, 90.0] });
    assert_eq!(diagnose(&two_groups)[0].severity, Severity::Notice);
    assert!((diagnose(&two_groups)[0].numbers["skew"] - 0.4).abs() < 1e-12);
}

#[test]
fn clients_that_the_model_suits_unequally() {
    let mut history = training(&[2.3, 1.1]);
    history[1].clients[3].eval_accuracy = Some(0.35);
    assert_eq!(
        told(&history),
        "notice: The global model suits some clients and not others: its accuracy is 0.900 at node 10 and 0.350 at \
         node 4. Their data are not alike.\n"
    );
    for client in &mut history[1].clients {
        client.eval_accuracy = None;
        client.train_loss = None;
    }
    history[1].clients[3].eval_loss = Some(6.0);
    assert!(
        told(&history)
            .contains("their losses are 1.1460 on average, with a deviation of 1.6182, and 6.0000 at node 4.")
    );
}

/// Parts of one data set at random: small test sets make accuracies that differ by chance.
#[test]
fn clients_with_data_alike_and_few_examples_are_not_called_unlike() {
    for (examples, accuracies) in [(2.0, [0.0, 0.5, 1.0]), (20.0, [0.30, 0.45, 0.60]), (40.0, [0.35, 0.5, 0.65])] {
        let mut history = training(&[2.3, 1.1]);
        for (index, client) in history[1].clients.iter_mut().enumerate() {
            client.eval_accuracy = Some(accuracies[index % 3]);
            client.eval_loss = Some(if examples < 20.0 { (index % 3) as f64 * 3.0 } else { 1.0 });
            client.eval_examples = Some(examples);
            client.train_loss = None;
        }
        assert_eq!(told(&history), "", "{examples} examples");
        for client in &mut history[1].clients {
            client.eval_examples = Some(400.0);
        }
        assert_eq!(codes(&history), ["unlike-clients"], "the same accuracies over 400 examples");
    }
}

#[test]
fn one_client_that_decides_alone() {
    let mut history = training(&[2.3, 1.1]);
    history[1].clients[6].examples = Some(9000.0);
    assert_eq!(
        told(&history),
        "notice: Node 7 has 90 % of all examples among 10 clients: the mean is mostly its model.\n"
    );
}

#[test]
fn a_client_that_poisons() {
    let mut history = training(&[2.3, 1.8, 1.7]);
    history[2].clients[1].update_norm = Some(80.0);
    assert_eq!(
        told(&history),
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
fn clients_that_fail_or_are_turned_away() {
    let mut history = training(&[2.3, 1.1]);
    history[1].clients.truncate(5);
    history[1].failures = 4;
    history[1].rejected = vec![(NodeId(6), "fc.weight has a number that is not finite".into())];
    assert_eq!(
        told(&history),
        "warning: 4 of the 10 clients of round 2 failed or did not answer in time.\n\
         warning: In round 2 the replies of node 6 were not taken: fc.weight has a number that is not finite.\n"
    );
    history.push(round(3, 1.0));
    assert_eq!(told(&history), "", "what has passed is not told any more");
}

#[test]
fn a_finding_reads_as_a_sentence_and_travels_as_data() {
    let mut history = training(&[2.3, 1.1]);
    history[1].failures = 2;
    let finding = &diagnose(&history)[0];
    assert_eq!(finding.to_string(), format!("notice (failing-clients): {} To do: {}", finding.what, finding.advice));
    let json = serde_json::to_value(finding).unwrap();
    assert_eq!((&json["code"], &json["severity"]), (&"failing-clients".into(), &"notice".into()));
    assert_eq!(json["numbers"], serde_json::json!({"failed": 2.0, "asked": 12.0}));
}
