//! Comparisons of a training's clients: diverging updates, different data, outliers.

use trellis_core::id::NodeId;

use super::{Client, Finding, Round, Severity, nodes, percent};

/// Gradient diversity: the mean of the squared norms of the updates, divided by the squared norm of their mean. It is 1 if all
/// updates are equal, and the number of clients if they are orthogonal. Above this value the mean loses more than it keeps.
const DRIFT_DIVERSITY: f64 = 4.0;
/// The diversity must also have grown by this factor over the last rounds: on the plateau of a healthy training updates are
/// mostly noise, and as diverse as noise, but no more so from round to round.
const DRIFT_GROWTH: f64 = 1.25;
const DRIFT_ROUNDS: usize = 3;
/// The ratio of the global model's loss to that of the clients' own models on their own data, above which clients learn what
/// the aggregation undoes.
const DRIFT_LOSS_RATIO: f64 = 3.0;
/// The mean total variation distance (0 to 1) of the clients' label distributions from the overall one. Random parts of ten
/// classes with a hundred examples each are about 0.1 apart; one class per client is 0.9.
const SKEWED: f64 = 0.3;
const VERY_SKEWED: f64 = 0.6;
/// A client that exceeds the average distance by this much is named.
const SKEW_APART: f64 = 0.1;
/// With fewer labels, a distance of 0.3 is likely by chance.
const MIN_LABELS: f64 = 20.0;
/// The difference between the global model's best and worst accuracy among clients.
const UNEVEN_ACCURACY: f64 = 0.3;
/// With fewer examples, losses and accuracies differ by chance.
const MIN_EVALUATED: f64 = 20.0;
/// The number of standard deviations by which the chi-squared statistic of the accuracies must exceed its mean.
const CHANCE_DEVIATIONS: f64 = 4.0;
/// The deviation of the clients' losses divided by their mean, used if there is no accuracy.
const UNEVEN_LOSS: f64 = 0.75;
/// A client with more than half of the weight dominates every mean.
const DOMINATING: f64 = 0.5;
/// Update norms of honest clients differ by a small factor only, whatever their data.
const OUTLIER_FACTOR: f64 = 5.0;
/// With fewer clients a spread is not meaningful.
const MIN_CLIENTS: usize = 4;
/// The number of recent rounds with outliers: a single one may be chance.
const OUTLIER_ROUNDS: usize = 3;
/// The fraction of failed clients in a round that is worth a notice, and a warning.
const FAILING: f64 = 0.1;
const MANY_FAILING: f64 = 0.3;

/// The finite values of the clients with their nodes.
fn values(round: &Round, of: impl Fn(&Client) -> Option<f64>) -> Vec<(NodeId, f64)> {
    let values = round.clients.iter().filter_map(|client| Some((client.node, of(client)?)));
    values.filter(|(_, value)| value.is_finite()).collect()
}

fn mean(values: &[(NodeId, f64)]) -> f64 {
    values.iter().map(|(_, value)| value).sum::<f64>() / values.len() as f64
}

fn median(values: &[(NodeId, f64)]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

pub fn drift(history: &[Round]) -> Option<Finding> {
    diverging_updates(history).or_else(|| undone_learning(history))
}

fn diverging_updates(history: &[Round]) -> Option<Finding> {
    let measured: Vec<f64> = history.iter().filter_map(diversity).collect();
    let tail = measured.last_chunk::<DRIFT_ROUNDS>()?;
    let (first, last) = (tail[0], tail[DRIFT_ROUNDS - 1]);
    if last < DRIFT_DIVERSITY || last < DRIFT_GROWTH * first || diversity(history.last()?).is_none() {
        return None;
    }
    let kept = 1.0 / last;
    let what = format!(
        "The clients' updates diverge: their diversity has grown from {first:.1} to {last:.1} in {DRIFT_ROUNDS} \
         rounds (1: all updates are equal). {} of the updates survives the averaging.",
        percent(kept)
    );
    Some(drifting(what, &[("diversity", last), ("diversity-before", first), ("rounds", DRIFT_ROUNDS as f64)]))
}

/// `None` if a measurement is missing, or if one client dominates and hides the others.
fn diversity(round: &Round) -> Option<f64> {
    if !far_from_median(round).is_empty() {
        return None;
    }
    let mean_norm = round.mean_update_norm.filter(|norm| norm.is_finite() && *norm > 0.0)?;
    let mut squares = 0.0;
    let mut total = 0.0;
    for client in &round.clients {
        let (weight, norm) = (client.examples?, client.update_norm?);
        squares += weight * norm * norm;
        total += weight;
    }
    let diversity = squares / total / (mean_norm * mean_norm);
    diversity.is_finite().then_some(diversity)
}

fn undone_learning(history: &[Round]) -> Option<Finding> {
    let last = history.last()?;
    let both =
        |client: &Client| client.train_loss.is_some_and(f64::is_finite) && client.eval_loss.is_some_and(f64::is_finite);
    let own = values(last, |client| client.train_loss.filter(|_| both(client)));
    let global = values(last, |client| client.eval_loss.filter(|_| both(client)));
    if own.len() < MIN_CLIENTS || mean(&own) <= 0.0 || mean(&global) < DRIFT_LOSS_RATIO * mean(&own) {
        return None;
    }
    let (own, global) = (mean(&own), mean(&global));
    let what = format!(
        "The clients' own models are much better on their data (loss {own:.4}) than the global model ({global:.4}): \
         the aggregation undoes what they learn."
    );
    Some(drifting(what, &[("own-loss", own), ("global-loss", global)]))
}

fn drifting(what: String, numbers: &[(&str, f64)]) -> Finding {
    let advice = "Try fewer local epochs (1 or 2) or a smaller learning rate on the clients; FedProx with proximal-mu \
                  0.1, then 1, which holds them near the global model (the ClientApp must add the proximal term); or a \
                  server optimiser, FedAdam or FedAvgM with server-momentum 0.9.";
    Finding::new("client-drift", Severity::Warning, what, numbers, advice)
}

/// Uses the newest round in which clients reported their labels: they need not do so in every round.
pub fn skewed_labels(history: &[Round]) -> Option<Finding> {
    let reported = |client: &&Client| client.label_counts.iter().sum::<f64>() >= MIN_LABELS;
    let round = history.iter().rev().find(|round| round.clients.iter().filter(reported).count() >= 2)?;
    let clients: Vec<&Client> = round.clients.iter().filter(reported).collect();
    let labels = clients.iter().map(|client| client.label_counts.len()).max()?;
    let count = |client: &Client, label: usize| client.label_counts.get(label).copied().unwrap_or(0.0);
    let all: Vec<f64> = (0..labels).map(|label| clients.iter().map(|client| count(client, label)).sum()).collect();
    let total: f64 = all.iter().sum();
    let distance = |client: &Client| {
        let own: f64 = client.label_counts.iter().sum();
        (0..labels).map(|label| (count(client, label) / own - all[label] / total).abs()).sum::<f64>() / 2.0
    };
    let distances: Vec<(NodeId, f64)> = clients.iter().map(|client| (client.node, distance(client))).collect();
    let skew = mean(&distances);
    let (worst, worst_skew) = distances.iter().copied().max_by(|left, right| left.1.total_cmp(&right.1))?;
    if skew < SKEWED {
        return None;
    }
    let at_worst = if worst_skew - skew >= SKEW_APART {
        format!(", at node {worst} {}", percent(worst_skew))
    } else {
        String::new()
    };
    let what = format!(
        "The clients have different labels: on average {} of a client's examples would have to be exchanged to make \
         them like those of all together{at_worst}.",
        percent(skew)
    );
    let severity = if skew >= VERY_SKEWED { Severity::Warning } else { Severity::Notice };
    Some(Finding::new("label-skew", severity, what, &[("skew", skew), ("worst-skew", worst_skew)], NON_IID_ADVICE))
}

const NON_IID_ADVICE: &str = "With such data FedAvg converges slowly or not at all. Try FedProx with proximal-mu 0.1 \
                              to 1 (the ClientApp must add the proximal term) or FedAdam, fewer local epochs (1 or 2), \
                              and more nodes in each round (fraction-train), so that every mean sees all labels.";

/// Different data, if clients report no labels: the global model suits some clients and not others.
pub fn uneven_accuracy(history: &[Round]) -> Option<Finding> {
    if skewed_labels(history).is_some() {
        return None;
    }
    let last = history.last()?;
    let measured = |client: &Client| client.eval_examples.is_some_and(|examples| examples >= MIN_EVALUATED);
    let accuracies = values(last, |client| client.eval_accuracy.filter(|_| measured(client)));
    let by_value = |left: &&(NodeId, f64), right: &&(NodeId, f64)| left.1.total_cmp(&right.1);
    if accuracies.len() >= MIN_CLIENTS {
        let (worst, low) = *accuracies.iter().min_by(by_value)?;
        let (best, high) = *accuracies.iter().max_by(by_value)?;
        let what = format!(
            "The global model suits some clients and not others: its accuracy is {high:.3} at node {best} and {low:.3} \
             at node {worst}. Their data differ."
        );
        let numbers = [("best-accuracy", high), ("worst-accuracy", low)];
        return (high - low >= UNEVEN_ACCURACY && differ_beyond_chance(last, measured))
            .then(|| Finding::new("unlike-clients", Severity::Notice, what, &numbers, NON_IID_ADVICE));
    }
    let losses = values(last, |client| client.eval_loss.filter(|_| measured(client)));
    if losses.len() < MIN_CLIENTS {
        return None;
    }
    let average = mean(&losses);
    let squares: Vec<(NodeId, f64)> = losses.iter().map(|(node, loss)| (*node, (loss - average).powi(2))).collect();
    let deviation = mean(&squares).sqrt();
    let (worst, high) = *losses.iter().max_by(by_value)?;
    let what = format!(
        "The global model suits some clients and not others: their losses are {average:.4} on average, with a \
         deviation of {deviation:.4}, and {high:.4} at node {worst}. Their data differ."
    );
    let numbers = [("mean-loss", average), ("loss-deviation", deviation), ("worst-loss", high)];
    (average > 0.0 && deviation >= UNEVEN_LOSS * average)
        .then(|| Finding::new("unlike-clients", Severity::Notice, what, &numbers, NON_IID_ADVICE))
}

/// A chi-squared test of equal proportions: whether clients with similar data would rarely have accuracies this far apart.
fn differ_beyond_chance(round: &Round, measured: impl Fn(&Client) -> bool) -> bool {
    let tests: Vec<(f64, f64)> = round
        .clients
        .iter()
        .filter(|client| measured(client))
        .filter_map(|client| {
            Some((client.eval_accuracy.filter(|accuracy| accuracy.is_finite())?, client.eval_examples?))
        })
        .collect();
    let examples: f64 = tests.iter().map(|(_, examples)| examples).sum();
    let pooled = tests.iter().map(|(accuracy, examples)| accuracy * examples).sum::<f64>() / examples;
    let squares: f64 = tests.iter().map(|(accuracy, examples)| examples * (accuracy - pooled).powi(2)).sum();
    let freedom = tests.len() as f64 - 1.0;
    squares > pooled * (1.0 - pooled) * (freedom + CHANCE_DEVIATIONS * (2.0 * freedom).sqrt())
}

pub fn dominating(history: &[Round]) -> Option<Finding> {
    let weights = values(history.last()?, |client| client.examples);
    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
    let (node, worst_skew) = weights.iter().copied().max_by(|left, right| left.1.total_cmp(&right.1))?;
    // Of two clients one always has at least half.
    if weights.len() < 3 || total <= 0.0 || worst_skew / total <= DOMINATING {
        return None;
    }
    let what = format!(
        "Node {node} has {} of all examples among {} clients: the mean is mostly its model.",
        percent(worst_skew / total),
        weights.len()
    );
    let advice = "If that is not intended, weight clients equally: FedMedian or FedTrimmedAvg, a capped metric of \
                  your own as the weight (weighted-by-key), or QFedAvg, which favours clients with a high loss.";
    Some(Finding::new("dominating-client", Severity::Notice, what, &[("share", worst_skew / total)], advice))
}

pub fn outliers(history: &[Round]) -> Option<Finding> {
    let found = far_from_median(history.last()?);
    if found.is_empty() {
        return None;
    }
    let recent = &history[history.len().saturating_sub(OUTLIER_ROUNDS)..];
    let times =
        recent.iter().filter(|round| far_from_median(round).iter().any(|(node, _)| *node == found[0].0)).count();
    let ids: Vec<NodeId> = found.iter().map(|(node, _)| *node).collect();
    let factor = found.iter().map(|(_, factor)| *factor).fold(0.0, f64::max);
    let what = format!(
        "The updates of {} are up to {factor:.0} times as large as the median, in {times} of the last {} rounds.",
        nodes(&ids),
        recent.len()
    );
    let advice = "Look at the data and the learning rate there; if the client cannot be trusted, it may be poisoning \
                  the model. Krum or MultiKrum (num-malicious), Bulyan, FedTrimmedAvg (trim-beta) and FedMedian keep \
                  such updates out; clipping (dp: server-fixed) limits them.";
    let severity = if times > 1 { Severity::Warning } else { Severity::Notice };
    let numbers = [("factor", factor), ("clients", found.len() as f64), ("rounds", times as f64)];
    Some(Finding::new("outlier-client", severity, what, &numbers, advice))
}

/// Clients whose updates are far larger than the median, with their factors, largest first.
fn far_from_median(round: &Round) -> Vec<(NodeId, f64)> {
    let norms = values(round, |client| client.update_norm);
    if norms.len() < MIN_CLIENTS {
        return Vec::new();
    }
    let middle = median(&norms);
    let mut far: Vec<(NodeId, f64)> = norms.into_iter().map(|(node, norm)| (node, norm / middle)).collect();
    far.retain(|(_, factor)| factor.is_finite() && *factor > OUTLIER_FACTOR);
    far.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    far
}

pub fn rejected(history: &[Round]) -> Option<Finding> {
    let last = history.last()?;
    let (_, reason) = last.rejected.first()?;
    let ids: Vec<NodeId> = last.rejected.iter().map(|(node, _)| *node).collect();
    let what = format!("In round {} the replies of {} were rejected: {reason}.", last.number, nodes(&ids));
    let advice = "See the log of the node. Non-finite values come from a learning rate that is too high or from \
                  broken data; a different layout comes from another version of the app.";
    Some(Finding::new("rejected-clients", Severity::Warning, what, &[("clients", ids.len() as f64)], advice))
}

pub fn failing(history: &[Round]) -> Option<Finding> {
    let last = history.last()?;
    let asked = last.failures + last.clients.len() + last.rejected.len();
    let share = last.failures as f64 / asked.max(1) as f64;
    if share < FAILING {
        return None;
    }
    let what =
        format!("{} of the {asked} clients of round {} failed or did not answer in time.", last.failures, last.number);
    let advice = "`trellis logs` shows the reasons. For slow clients, raise round-timeout, or select more clients than \
                  needed (over-selection), so that the round ends without the slowest.";
    let severity = if share >= MANY_FAILING { Severity::Warning } else { Severity::Notice };
    Some(Finding::new(
        "failing-clients",
        severity,
        what,
        &[("failed", last.failures as f64), ("asked", asked as f64)],
        advice,
    ))
}
