//! Follows a run beside everything else, and hands its points to the sinks. One task asks the source; one task for each sink
//! delivers. They meet in bounded queues, so that no sink waits for another and the run waits for none.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use trellis_wire::report::TrainingReport;

use crate::backlog::Backlog;
use crate::mlflow::{Model, read_model};
use crate::point::{Point, points};
use crate::rounds::Rounds;
use crate::run::{RunFacts, Source};
use crate::sink::{Delivery, Failure, Sink, Sinks};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A source that fails for so long is given up.
const MAX_ABSENCE: Duration = Duration::from_secs(600);
/// For the last look at a run, when whoever follows it has seen its end.
const LAST_LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// For one call of a sink.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// For the points that are left at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// Between tries at the end, at most.
const FLUSH_BACKOFF: Duration = Duration::from_secs(1);
/// For the status of the run.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// For the upload of the model.
pub const MODEL_TIMEOUT: Duration = Duration::from_secs(60);
/// Orders that a sink has not read. There is one for each look at the run.
const QUEUE: usize = 64;

/// A run that is being tracked.
pub struct Tracker {
    finish: oneshot::Sender<()>,
    task: JoinHandle<Vec<Delivery>>,
}

/// When a tracker ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// With the run, or when it is told to finish. The flush at the end is bounded: somebody else waits for it.
    Told,
    /// With the run. The flush goes on as long as points are taken.
    RunEnds,
    /// After one look, likewise.
    OneLook,
}

impl Tracker {
    /// `told` gets the reports whose points are delivered, in the order of rounds.
    pub fn start(
        source: impl Source,
        sinks: Sinks,
        until: Until,
        told: Option<mpsc::UnboundedSender<TrainingReport>>,
    ) -> Tracker {
        let (finish, finished) = oneshot::channel();
        Tracker { finish, task: tokio::spawn(track(source, sinks, Watch { until, told, finish: finished })) }
    }

    /// Looks at the run once more, and delivers what is left.
    pub async fn finish(self) -> Vec<Delivery> {
        // The task may have ended with the run.
        let _ = self.finish.send(());
        self.task.await.unwrap_or_default()
    }

    /// Waits for the end.
    pub async fn ended(self) -> Vec<Delivery> {
        let Tracker { finish: _finish, task } = self;
        task.await.unwrap_or_default()
    }
}

/// What a sink is told.
enum Order {
    Begin(Arc<RunFacts>),
    Points(Vec<Point>),
    End(Arc<End>),
}

struct End {
    run: RunFacts,
    /// The last model; `Err`: why it cannot be had, which is no error for sinks that take none.
    model: Option<Result<Model, String>>,
    /// Why the run could not be read to its end.
    broken: Option<String>,
    /// The flush may take as long as points are taken.
    is_patient: bool,
}

/// The way to the task of a sink.
struct Outlet {
    orders: mpsc::Sender<Order>,
    /// Points that found the queue full.
    lost: usize,
    task: JoinHandle<Delivery>,
}

impl Outlet {
    fn open<S: Sink>(sink: S) -> Outlet {
        let (orders, taken) = mpsc::channel(QUEUE);
        Outlet { orders, lost: 0, task: tokio::spawn(serve(sink, taken)) }
    }

    fn send(&mut self, points: &[Point]) {
        // One place is left for the end.
        match self.orders.capacity() {
            0 | 1 => self.lost += points.len(),
            _ => drop(self.orders.try_send(Order::Points(points.to_owned()))),
        }
    }
}

async fn track(mut source: impl Source, sinks: Sinks, watch: Watch) -> Vec<Delivery> {
    let wants_model = sinks.mlflow.is_some();
    let mut outlets: Vec<Outlet> =
        sinks.tensorboard.map(Outlet::open).into_iter().chain(sinks.mlflow.map(Outlet::open)).collect();
    let mut rounds = Rounds::default();
    let mut run = RunFacts::default();
    let is_patient = watch.until != Until::Told;
    let broken = watch.run(&mut source, &mut run, &mut rounds, &mut outlets).await.err();
    let model = match &rounds.checkpoint {
        Some(path) if wants_model && run.native && run.ended.is_some() => Some(read_model(path, &mut run).await),
        _ => None,
    };
    let end = Arc::new(End { run, model, broken, is_patient });
    let mut deliveries = Vec::new();
    for outlet in &outlets {
        let _ = outlet.orders.try_send(Order::End(Arc::clone(&end)));
    }
    for outlet in outlets {
        let mut delivery = outlet.task.await.unwrap_or_default();
        if outlet.lost > 0 {
            delivery.not_delivered += outlet.lost as u64;
            delivery.problems.push(format!("{} points not delivered: the queue was full", outlet.lost));
        }
        deliveries.push(delivery);
    }
    deliveries
}

/// How long a run is looked at, and who wants to know.
struct Watch {
    until: Until,
    told: Option<mpsc::UnboundedSender<TrainingReport>>,
    finish: oneshot::Receiver<()>,
}

impl Watch {
    /// Hands on points as they come.
    async fn run(
        mut self,
        source: &mut impl Source,
        run: &mut RunFacts,
        rounds: &mut Rounds,
        outlets: &mut [Outlet],
    ) -> Result<(), String> {
        let (mut heard, mut last, mut ended_before) = (Instant::now(), false, false);
        loop {
            let looked = match last {
                false => tokio::select! {
                    looked = look(source, rounds) => Some(looked),
                    _ = &mut self.finish => None,
                },
                true => timeout(LAST_LOOK_TIMEOUT, look(source, rounds)).await.ok(),
            };
            match looked {
                Some(Ok(facts)) => {
                    heard = Instant::now();
                    let (begins, ended) = (run.id.is_empty(), facts.ended.is_some());
                    // The SuperLink keeps what it saw of the last round a moment after the end.
                    let is_final = ended && (facts.native || ended_before);
                    ended_before = ended;
                    *run = facts;
                    add_known(run, rounds);
                    if begins {
                        let facts = Arc::new(run.clone());
                        outlets.iter().for_each(|it| drop(it.orders.try_send(Order::Begin(Arc::clone(&facts)))));
                    }
                    self.hand_on(rounds.settle(run.native || is_final), outlets);
                    if is_final || (!ended && (last || self.until == Until::OneLook)) {
                        return Ok(());
                    }
                }
                Some(Err(why)) if last || self.until == Until::OneLook || heard.elapsed() > MAX_ABSENCE => {
                    return Err(why);
                }
                Some(Err(_)) => {}
                None if last => return Err(no_answer(LAST_LOOK_TIMEOUT)),
                None => {
                    last = true;
                    continue;
                }
            }
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                _ = &mut self.finish, if !last => last = true,
            }
        }
    }

    fn hand_on(&self, reports: Vec<TrainingReport>, outlets: &mut [Outlet]) {
        let points: Vec<Point> = reports.iter().flat_map(points).collect();
        outlets.iter_mut().filter(|_| !points.is_empty()).for_each(|outlet| outlet.send(&points));
        if let Some(told) = &self.told {
            reports.into_iter().for_each(|report| drop(told.send(report)));
        }
    }
}

/// The run, and all that is new of its rounds.
async fn look(source: &mut impl Source, rounds: &mut Rounds) -> Result<RunFacts, String> {
    // The run before its reports: those of a finished run are all there.
    let facts = source.facts().await?;
    let mut after = rounds.after();
    loop {
        let (reports, more) = source.reports(after).await?;
        let last = reports.last().map(|report| report.round);
        rounds.take(reports);
        match last {
            Some(last) if more => after = Some(last),
            _ => return Ok(facts),
        }
    }
}

/// Settings that only the reports tell, where the run has the defaults of its SuperLink.
fn add_known(run: &mut RunFacts, rounds: &Rounds) {
    let strategy = rounds.strategy.as_deref().map(Into::into);
    let planned = rounds.planned.map(Into::into);
    for (name, value) in [("strategy", strategy), ("num-server-rounds", planned)] {
        if let Some(value) = value {
            run.parameters.entry(name.to_owned()).or_insert(value);
        }
    }
}

/// Delivers to one sink, until the end.
async fn serve<S: Sink>(mut sink: S, mut orders: mpsc::Receiver<Order>) -> Delivery {
    let (mut backlog, mut run, mut next_try) = (Backlog::default(), None, Instant::now());
    let end = loop {
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                Some(Order::Begin(facts)) => run = Some(facts),
                Some(Order::Points(points)) => backlog.push(points),
                Some(Order::End(end)) => break end,
                None => return Delivery::default(),
            },
            () = sleep_until(next_try), if !backlog.is_empty() && run.is_some() => {
                if let Some(run) = &run {
                    attempt(&mut sink, run, &mut backlog).await;
                    next_try = Instant::now() + backlog.backoff();
                }
            }
        }
    };
    conclude(&mut sink, &mut backlog, &end).await
}

async fn attempt<S: Sink>(sink: &mut S, run: &RunFacts, backlog: &mut Backlog) {
    let points = backlog.next(S::MAX_POINTS);
    let tried = points.len();
    match timeout(DELIVERY_TIMEOUT, sink.deliver(run, points)).await {
        Ok(Ok(())) => backlog.delivered(tried),
        Ok(Err(failure)) => backlog.failed(failure, tried),
        Err(_) => backlog.failed(Failure::Passing(no_answer(DELIVERY_TIMEOUT)), tried),
    }
}

/// Delivers what is left, the end of the run and its model, each within its bound.
async fn conclude<S: Sink>(sink: &mut S, backlog: &mut Backlog, end: &End) -> Delivery {
    let mut problems: Vec<String> = end.broken.iter().map(|why| format!("the run was not read: {why}")).collect();
    let in_time = flush(sink, backlog, end).await;
    let (delivered, total) = backlog.counts();
    let not_delivered = total - delivered;
    if not_delivered > 0 {
        let why = backlog.why().unwrap_or("there was no time left");
        problems.push(format!("{not_delivered} of {total} points not delivered: {why}"));
    }
    let mut model = false;
    // Without a single look at the run there is nothing to end.
    if !end.run.id.is_empty() && in_time && !backlog.is_closed() {
        let ended = within(END_TIMEOUT, sink, &end.run, None).await;
        problems.extend(ended.err().map(|why| format!("the end of the run was not delivered: {why}")));
        let kept = match &end.model {
            Some(Ok(model)) if S::TAKES_MODELS && problems.is_empty() => {
                Some(within(MODEL_TIMEOUT, sink, &end.run, Some(model)).await)
            }
            Some(Err(why)) if S::TAKES_MODELS => Some(Err(why.clone())),
            _ => None,
        };
        model = matches!(kept, Some(Ok(())));
        problems.extend(kept.and_then(Result::err).map(|why| format!("the model was not delivered: {why}")));
    }
    Delivery { sink: S::KIND, title: S::TITLE, place: sink.place(), delivered, not_delivered, model, problems }
}

fn no_answer(limit: Duration) -> String {
    format!("no answer within {} s", limit.as_secs())
}

/// Delivers what is left; `false`: the time was over before.
async fn flush<S: Sink>(sink: &mut S, backlog: &mut Backlog, end: &End) -> bool {
    let mut deadline = Instant::now() + FLUSH_TIMEOUT;
    while !backlog.is_empty() {
        let (before, _) = backlog.counts();
        let tried = async {
            attempt(sink, &end.run, backlog).await;
            sleep(backlog.backoff().min(FLUSH_BACKOFF)).await;
        };
        if timeout_at(deadline, tried).await.is_err() {
            return false;
        }
        if end.is_patient && backlog.counts().0 > before {
            deadline = Instant::now() + FLUSH_TIMEOUT;
        }
    }
    true
}

/// Delivers the model, or without one the end of the run. Tries again until the limit.
async fn within<S: Sink>(limit: Duration, sink: &mut S, run: &RunFacts, model: Option<&Model>) -> Result<(), String> {
    let mut why = no_answer(limit);
    let tries = async {
        loop {
            let done = match model {
                Some(model) => sink.keep(run, model).await,
                None => sink.end(run).await,
            };
            match done {
                Err(Failure::Passing(passing)) => why = passing,
                done => return done.map_err(|failure| failure.to_string()),
            }
            sleep(FLUSH_BACKOFF).await;
        }
    };
    let tried = timeout(limit, tries).await;
    tried.unwrap_or(Err(why))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::pending;
    use std::sync::Mutex;

    use trellis_wire::report::PhaseReport;

    use super::*;
    use crate::run::Ended;

    /// What a sink does with one call.
    #[derive(Clone, Copy)]
    enum Act {
        Take,
        Fail,
        Hang,
    }

    /// Follows a script, and then takes everything.
    struct Scripted {
        script: VecDeque<Act>,
        /// What was delivered, by round.
        taken: Arc<Mutex<Vec<u64>>>,
        ended: Arc<Mutex<bool>>,
    }

    impl Sink for Scripted {
        const KIND: &'static str = "scripted";
        const TITLE: &'static str = "Script";
        const MAX_POINTS: usize = 3;
        const TAKES_MODELS: bool = false;

        fn place(&self) -> String {
            String::new()
        }

        async fn deliver(&mut self, _: &RunFacts, points: &[Point]) -> Result<(), Failure> {
            match self.script.pop_front().unwrap_or(Act::Take) {
                Act::Take => self.taken.lock().unwrap().extend(points.iter().map(|point| point.step)),
                Act::Fail => return Err(Failure::Passing("connection refused".to_owned())),
                Act::Hang => pending().await,
            }
            Ok(())
        }

        async fn end(&mut self, _: &RunFacts) -> Result<(), Failure> {
            *self.ended.lock().unwrap() = true;
            Ok(())
        }

        async fn keep(&mut self, _: &RunFacts, _: &Model) -> Result<(), Failure> {
            Ok(())
        }
    }

    /// A run of a ServerApp in Python, which has one round more at each look and ends with the last.
    struct Growing {
        rounds: u64,
        seen: u64,
    }

    impl Source for Growing {
        async fn facts(&mut self) -> Result<RunFacts, String> {
            self.seen = (self.seen + 1).min(self.rounds);
            let ended = (self.seen == self.rounds).then(Ended::default);
            Ok(RunFacts { id: "1".to_owned(), ended, ..Default::default() })
        }

        async fn reports(&mut self, after: Option<u64>) -> Result<(Vec<TrainingReport>, bool), String> {
            let report = |round| TrainingReport {
                round,
                kind: "round".to_owned(),
                train: Some(PhaseReport::default()),
                ..Default::default()
            };
            Ok(((after.map_or(1, |after| after + 1)..=self.seen).map(report).collect(), false))
        }
    }

    type Recorded<T> = Arc<Mutex<T>>;

    /// Each round has three points: seconds, nodes and failures.
    async fn tracked(rounds: u64, script: &[Act]) -> (Delivery, Recorded<Vec<u64>>, Recorded<bool>, Duration) {
        let (taken, ended) = (Recorded::default(), Recorded::default());
        let sink = Scripted { script: script.to_vec().into(), taken: Arc::clone(&taken), ended: Arc::clone(&ended) };
        let began = Instant::now();
        let mut outlets = [Outlet::open(sink)];
        let (_finish, finish) = oneshot::channel();
        let watch = Watch { until: Until::Told, told: None, finish };
        let mut run = RunFacts::default();
        let mut source = Growing { rounds, seen: 0 };
        watch.run(&mut source, &mut run, &mut Rounds::default(), &mut outlets).await.expect("it can be read");
        let watched = began.elapsed();
        let [outlet] = outlets;
        let end = End { run, model: None, broken: None, is_patient: false };
        assert!(outlet.orders.try_send(Order::End(Arc::new(end))).is_ok(), "there is a place left for the end");
        (outlet.task.await.expect("it ends"), taken, ended, watched)
    }

    #[tokio::test(start_paused = true)]
    async fn every_round_is_delivered_once_and_the_last_one_after_the_end() {
        let (delivery, taken, ended, _) = tracked(4, &[]).await;
        assert_eq!(*taken.lock().unwrap(), [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]);
        assert!(*ended.lock().unwrap() && delivery.is_complete());
        assert_eq!((delivery.delivered, delivery.not_delivered), (12, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_is_sent_again() {
        let (delivery, taken, ended, _) = tracked(4, &[Act::Take, Act::Fail, Act::Fail]).await;
        assert_eq!(taken.lock().unwrap().len(), 12);
        assert!(*ended.lock().unwrap() && delivery.is_complete());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sink_that_is_down_delays_nothing_and_is_told() {
        let (_, _, _, without) = tracked(5, &[]).await;
        for (act, why) in [(Act::Fail, "connection refused"), (Act::Hang, "no answer within 10 s")] {
            let script = [&[Act::Take][..], &[act; 99]].concat();
            let (delivery, _, ended, watched) = tracked(5, &script).await;
            assert_eq!(watched, without);
            assert!(!*ended.lock().unwrap());
            assert_eq!(delivery.problems, [format!("12 of 15 points not delivered: {why}")]);
            assert_eq!(delivery.to_string(), format!("Script : 12 of 15 points not delivered: {why}"));
        }
    }
}
