//! What the curves of a training show: loss and accuracy over the rounds.

use super::{Finding, Round, Severity};

/// The loss must rise this many rounds in a row: two happen by chance in any training with sampled clients.
const RISING_ROUNDS: usize = 3;
/// The loss must also exceed the best one by this fraction: a settled curve fluctuates less.
const RISING_SHARE: f64 = 0.1;
/// The same for accuracy, in points: half of what one class of ten contributes.
const FALLING_ACCURACY: f64 = 0.05;
/// Rounds without a better loss: fewer are usual on flat parts of a curve.
const STALLED_ROUNDS: usize = 5;
/// A loss is better if it is lower by this fraction; smaller differences are rounding and sampling.
const BETTER_SHARE: f64 = 0.01;

/// A curve for which lower is better.
struct Curve {
    name: &'static str,
    /// Rounds and finite values.
    points: Vec<(u64, f64)>,
}

fn curve(history: &[Round], name: &'static str, value: fn(&Round) -> Option<f64>) -> Curve {
    let points = history.iter().filter_map(|round| Some((round.number, value(round)?)));
    Curve { name, points: points.filter(|(_, value)| value.is_finite()).collect() }
}

/// The loss by which a training is judged: the evaluation loss, if there is one.
fn loss(history: &[Round]) -> Curve {
    let evaluated = curve(history, "evaluation loss", |round| round.eval_loss);
    if evaluated.points.is_empty() { curve(history, "training loss", |round| round.train_loss) } else { evaluated }
}

impl Curve {
    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.points.iter().map(|(_, value)| *value)
    }

    fn best(&self) -> Option<f64> {
        self.values().reduce(f64::min)
    }

    /// The start of the rise, if the curve has risen throughout the last rounds and far enough above the best value: its round
    /// and value, and the last value.
    fn rising(&self) -> Option<(u64, f64, f64)> {
        let tail = self.points.last_chunk::<{ RISING_ROUNDS + 1 }>()?;
        let rises = tail.windows(2).all(|pair| pair[1].1 > pair[0].1);
        rises.then_some((tail[0].0, tail[0].1, tail[RISING_ROUNDS].1))
    }
}

pub fn not_finite(history: &[Round]) -> Option<Finding> {
    let last = history.last()?;
    let named = [("training loss", last.train_loss), ("evaluation loss", last.eval_loss)];
    let (name, value) = named.into_iter().find_map(|(name, value)| Some((name, value.filter(|v| !v.is_finite())?)))?;
    let what = format!("The {name} of round {} is {value}: the model has diverged.", last.number);
    let advice = "Stop the run and resume from a checkpoint before that round, with a smaller learning rate on the \
                  clients (a tenth of it), fewer local epochs, or clipped gradients; with FedAdam, FedYogi or \
                  FedAdagrad also a smaller server-lr or a larger tau.";
    Some(Finding::new("not-finite", Severity::Critical, what, &[("round", last.number as f64)], advice))
}

pub fn diverging(history: &[Round]) -> Option<Finding> {
    rising_loss(history).or_else(|| falling_accuracy(history))
}

fn rising_loss(history: &[Round]) -> Option<Finding> {
    let curve = loss(history);
    let (since, from, to) = curve.rising()?;
    let best = curve.best()?;
    if to <= best + RISING_SHARE * best.abs() {
        return None;
    }
    let what = format!(
        "The {} has risen in each of the last {RISING_ROUNDS} rounds, from {from:.4} in round {since} to {to:.4}; the \
         best was {best:.4}.",
        curve.name
    );
    Some(diverged(what, &[("loss", to), ("best-loss", best), ("rounds", RISING_ROUNDS as f64)]))
}

fn falling_accuracy(history: &[Round]) -> Option<Finding> {
    let curve = curve(history, "accuracy", |round| round.eval_accuracy.map(|accuracy| -accuracy));
    let (since, from, to) = curve.rising()?;
    let best = curve.best()?;
    if to - best <= FALLING_ACCURACY {
        return None;
    }
    let (from, to, best) = (-from, -to, -best);
    let what = format!(
        "The accuracy has fallen in each of the last {RISING_ROUNDS} rounds, from {from:.3} in round {since} to \
         {to:.3}; the best was {best:.3}."
    );
    Some(diverged(what, &[("accuracy", to), ("best-accuracy", best), ("rounds", RISING_ROUNDS as f64)]))
}

fn diverged(what: String, numbers: &[(&str, f64)]) -> Finding {
    let advice = "Try a smaller learning rate on the clients and fewer local epochs (1 or 2). If the clients' data \
                  differ, FedProx with proximal-mu 0.1 to 1 holds them together (the ClientApp must add the proximal \
                  term). With FedAdam, FedYogi or FedAdagrad lower server-lr. The checkpoint of the best round is not \
                  lost.";
    Finding::new("diverging", Severity::Warning, what, numbers, advice)
}

pub fn stalled(history: &[Round]) -> Option<Finding> {
    let curve = loss(history);
    let (before, recent) = curve.points.split_at_checked(curve.points.len().checked_sub(STALLED_ROUNDS)?)?;
    let best = before.iter().map(|(_, value)| *value).reduce(f64::min)?;
    let recent_best = recent.iter().map(|(_, value)| *value).reduce(f64::min)?;
    // A diverging training is not reported as stalled too.
    if recent_best < best - BETTER_SHARE * best.abs() || diverging(history).is_some() {
        return None;
    }
    let what = format!(
        "The {} has not improved for {STALLED_ROUNDS} rounds: {best:.4} before, {recent_best:.4} at best since. \
         The training has converged, or it is stuck.",
        curve.name
    );
    let advice = "If that is good enough, stop (patience or target-metric does so by itself). Else try a server \
                  optimiser (FedAdam with server-lr 0.01 to 0.1), a learning rate that decays on the clients, or a \
                  larger share of the nodes in each round (fraction-train).";
    let numbers = [("best-loss", best.min(recent_best)), ("rounds", STALLED_ROUNDS as f64)];
    Some(Finding::new("stalled", Severity::Notice, what, &numbers, advice))
}
