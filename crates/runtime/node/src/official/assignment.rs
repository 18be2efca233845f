//! One job in the hands of an app, step by step: waiting, taken with a token, at work, delivered. Time is an argument; calls,
//! processes and files are not known here.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use trellis_core::Seconds;
use trellis_core::id::ObjectId;
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::token::{self, Event, State};
use trellis_wire::proto;

use crate::app::{Job, Reply};

/// A job that was taken and never begun is offered again so often, all in all; then something is wrong with whoever takes it.
const MAX_OFFERS: u32 = 3;

/// SHA-256 of a token; the token itself is known to its app alone.
pub type TokenHash = [u8; 32];

/// What the app delivered.
#[derive(Debug)]
pub enum Delivery {
    Reply(Box<Reply>),
    /// It ended its work without a whole reply.
    Nothing {
        why: String,
    },
    /// Something that it asked for is damaged here.
    Damaged {
        what: String,
    },
}

/// What silence has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// It was heard in time after all.
    Alive,
    /// The app never began: somebody else may take the job.
    OfferedAgain,
    Dead,
}

/// Whether the bytes of an object are to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Wanted,
    /// They are here already.
    Known,
    Unannounced,
}

pub struct Assignment {
    pub task: u64,
    pub job: Arc<Job>,
    /// What the instruction consists of.
    instruction: HashSet<ObjectId>,
    token: Option<Token>,
    offers: u32,
    /// Until when the app must be heard of; `None`: nobody waits for a sign of life.
    deadline: watch::Sender<Option<Seconds>>,
    /// When the app took the message.
    began_at: Option<Seconds>,
    announced: Option<Announced>,
    /// `None`: it has been delivered.
    delivery: Option<oneshot::Sender<Delivery>>,
}

struct Token {
    hash: TokenHash,
    state: State,
    /// The app shows no token with calls for objects: it speaks a dialect that has none there.
    is_named: bool,
    /// Its process is watched, so that it need not be heard of before it begins.
    is_watched: bool,
}

struct Announced {
    message: proto::Message,
    tree: proto::ObjectTree,
    objects: HashSet<ObjectId>,
    missing: HashSet<ObjectId>,
    runtime_s: f64,
}

/// What comes out of an assignment: the delivery, and the deadline as it moves.
pub struct Outlet {
    pub delivery: oneshot::Receiver<Delivery>,
    pub deadline: watch::Receiver<Option<Seconds>>,
}

impl Assignment {
    pub fn new(task: u64, job: Job) -> (Assignment, Outlet) {
        let (delivery, delivered) = oneshot::channel();
        let (deadline, moved) = watch::channel(None);
        let assignment = Assignment {
            task,
            instruction: objects_of(&job.tree),
            job: Arc::new(job),
            token: None,
            offers: 0,
            deadline,
            began_at: None,
            announced: None,
            delivery: Some(delivery),
        };
        (assignment, Outlet { delivery: delivered, deadline: moved })
    }

    pub fn run(&self) -> u64 {
        self.job.metadata().run_id
    }

    pub fn is_waiting(&self) -> bool {
        self.token.is_none() && self.delivery.is_some()
    }

    pub fn has_token(&self, hash: &TokenHash) -> bool {
        self.token.as_ref().is_some_and(|token| token.hash == *hash)
    }

    /// Whether an app that shows no token may call for it.
    pub fn is_named(&self) -> bool {
        self.delivery.is_some() && self.token.as_ref().is_some_and(|token| token.is_named)
    }

    /// Gives the job to the holder of a token.
    pub fn take(&mut self, hash: TokenHash, is_watched: bool, now: Seconds) {
        self.offers += 1;
        self.token = Some(Token { hash, state: State::issue(now), is_named: false, is_watched });
        self.tell_deadline();
    }

    fn tell_deadline(&self) {
        let deadline = self.token.as_ref().filter(|_| self.delivery.is_some()).and_then(|token| match token.state {
            State::Issued { .. } if token.is_watched => None,
            state => Some(state.until()),
        });
        self.deadline.send_replace(deadline);
    }

    fn step(&mut self, event: Event, now: Seconds) {
        if let Some(token) = &mut self.token
            && let Ok(state) = token::next(token.state, event, now)
        {
            token.state = state;
            self.tell_deadline();
        }
    }

    pub fn heartbeat(&mut self, now: Seconds) {
        self.step(Event::Heartbeat, now);
    }

    /// The connection that the app works over was closed.
    pub fn hang_up(&mut self, now: Seconds) {
        self.step(Event::Hangup, now);
    }

    /// The app asks for its inputs.
    pub fn begin(&mut self, is_named: bool, now: Seconds) {
        self.step(Event::PullInputs, now);
        if let Some(token) = &mut self.token {
            token.is_named = is_named;
        }
    }

    /// The deadline has passed, or so it seemed.
    pub fn lapse(&mut self, now: Seconds) -> Lapse {
        let Some(token) = self.token.as_ref().filter(|token| token.state.has_expired(now)) else { return Lapse::Alive };
        if matches!(token.state, State::Issued { .. }) && self.offers < MAX_OFFERS {
            self.token = None;
            self.tell_deadline();
            return Lapse::OfferedAgain;
        }
        Lapse::Dead
    }

    /// The message, for the app. From now on it works.
    pub fn message(&mut self, now: Seconds) -> (proto::Message, proto::ObjectTree) {
        self.began_at.get_or_insert(now);
        (self.job.instruction.clone(), self.job.tree.clone())
    }

    /// Whether the app may have an object.
    pub fn needs(&self, id: ObjectId) -> bool {
        self.instruction.contains(&id)
    }

    /// The app announces its reply; `missing` are the objects below it that are not here.
    pub fn announce(
        &mut self,
        message: proto::Message,
        tree: proto::ObjectTree,
        missing: HashSet<ObjectId>,
        now: Seconds,
    ) -> Result<(), Refusal> {
        check_reply(&self.job, &message, &tree)?;
        let runtime_s = self.began_at.map_or(0.0, |began_at| now - began_at);
        let objects = objects_of(&tree);
        self.announced = Some(Announced { message, tree, objects, missing, runtime_s });
        Ok(())
    }

    pub fn wish(&self, id: ObjectId) -> Wish {
        match &self.announced {
            Some(reply) if reply.missing.contains(&id) => Wish::Wanted,
            Some(reply) if reply.objects.contains(&id) => Wish::Known,
            _ => Wish::Unannounced,
        }
    }

    pub fn arrived(&mut self, id: ObjectId) {
        if let Some(reply) = &mut self.announced {
            reply.missing.remove(&id);
        }
    }

    /// The app's last word. Said again, it changes nothing.
    pub fn finish(&mut self, context: Option<proto::Context>, details: &str, now: Seconds) {
        self.step(Event::PushOutputs, now);
        let delivery = match self.announced.take() {
            Some(reply) if reply.missing.is_empty() => Delivery::Reply(Box::new(Reply {
                message: reply.message,
                tree: reply.tree,
                context: self.context(context),
                runtime_s: reply.runtime_s,
            })),
            Some(reply) => Delivery::Nothing {
                why: format!("The reply is incomplete: {} of its objects were not sent.", reply.missing.len()),
            },
            None if details.is_empty() => Delivery::Nothing { why: "The ClientApp sent no reply.".to_owned() },
            None => Delivery::Nothing { why: format!("The ClientApp sent no reply: {details}") },
        };
        self.deliver(delivery);
    }

    pub fn deliver(&mut self, delivery: Delivery) {
        if let Some(receiver) = self.delivery.take() {
            let _ = receiver.send(delivery); // Whoever asked may have given up.
        }
        self.tell_deadline();
    }

    /// The context to keep: whose it is does not change.
    fn context(&self, pushed: Option<proto::Context>) -> proto::Context {
        let own = &self.job.context;
        match pushed {
            Some(pushed) => proto::Context { run_id: own.run_id, node_id: own.node_id, ..pushed },
            None => own.clone(),
        }
    }
}

/// A reply answers the instruction that was given, or it is none.
fn check_reply(job: &Job, message: &proto::Message, tree: &proto::ObjectTree) -> Result<(), Refusal> {
    let bad = |what: &'static str| Err(Refusal::new(Kind::Invalid, what));
    let (asked, Some(metadata)) = (job.metadata(), &message.metadata) else {
        return bad("the reply has no metadata");
    };
    if metadata.run_id != asked.run_id {
        return bad("the reply is for another run");
    }
    if metadata.reply_to_message_id != asked.message_id {
        return bad("the reply answers another message");
    }
    if metadata.message_id != tree.object_id {
        return bad("the reply is not the root of its object tree");
    }
    if message.content.is_some() == message.error.is_some() {
        return bad("the reply needs either content or an error");
    }
    Ok(())
}

/// All objects of a tree. Names that are none are left out: nobody can ask for them.
pub fn objects_of(tree: &proto::ObjectTree) -> HashSet<ObjectId> {
    let mut objects = HashSet::new();
    let mut trees = vec![tree];
    while let Some(tree) = trees.pop() {
        objects.extend(tree.object_id.parse::<ObjectId>());
        trees.extend(&tree.children);
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::official::testing::{job, reply_to};

    fn taken(is_watched: bool) -> (Assignment, Outlet) {
        let (mut assignment, outlet) = Assignment::new(1, job());
        assert!(assignment.is_waiting());
        assignment.take([7; 32], is_watched, 0.0);
        assert!(assignment.has_token(&[7; 32]) && !assignment.is_waiting());
        (assignment, outlet)
    }

    #[test]
    fn a_job_that_nobody_began_is_offered_again_a_few_times() {
        let (mut assignment, outlet) = taken(false);
        for offer in 1..MAX_OFFERS {
            assert_eq!(*outlet.deadline.borrow(), Some(120.0));
            assert_eq!(assignment.lapse(119.9), Lapse::Alive);
            assert_eq!(assignment.lapse(120.0), Lapse::OfferedAgain, "{offer}");
            assert!(assignment.is_waiting() && !assignment.has_token(&[7; 32]));
            assignment.take([7; 32], false, 0.0);
        }
        assert_eq!(assignment.lapse(120.0), Lapse::Dead);
    }

    #[test]
    fn an_app_at_work_must_be_heard_of() {
        let (mut assignment, outlet) = taken(true);
        assert_eq!(*outlet.deadline.borrow(), None, "its process is watched until it begins");
        assignment.begin(false, 10.0);
        assignment.heartbeat(20.0);
        assert_eq!(*outlet.deadline.borrow(), Some(80.0));
        assignment.hang_up(30.0);
        assert_eq!(*outlet.deadline.borrow(), Some(55.0));
        assert_eq!(assignment.lapse(54.0), Lapse::Alive);
        assert_eq!(assignment.lapse(55.0), Lapse::Dead);
    }

    #[test]
    fn a_reply_counts_when_all_of_it_is_here() {
        let (mut assignment, mut outlet) = taken(true);
        assignment.begin(false, 1.0);
        assignment.message(2.0);
        let (message, tree) = reply_to(&assignment.job);
        let objects = objects_of(&tree);
        assignment.announce(message, tree, objects.clone(), 5.5).unwrap();
        for id in objects {
            assert_eq!(assignment.wish(id), Wish::Wanted);
            assignment.arrived(id);
            assert_eq!(assignment.wish(id), Wish::Known);
        }
        assert_eq!(assignment.wish(ObjectId::try_from(&[0; 32][..]).unwrap()), Wish::Unannounced);
        let pushed = proto::Context { run_id: 99, series_id: 3, ..Default::default() };
        assignment.finish(Some(pushed), "", 6.0);
        assignment.finish(None, "again", 6.0);
        let Delivery::Reply(reply) = outlet.delivery.try_recv().unwrap() else { panic!("no reply") };
        assert_eq!((reply.runtime_s, reply.context.run_id, reply.context.series_id), (3.5, 5, 3));
        assert_eq!(*outlet.deadline.borrow(), None, "nobody waits any more");
    }

    #[test]
    fn half_a_reply_is_none() {
        let (mut assignment, mut outlet) = taken(true);
        assignment.begin(false, 1.0);
        let (message, tree) = reply_to(&assignment.job);
        let missing = objects_of(&tree);
        assignment.announce(message, tree, missing, 2.0).unwrap();
        assignment.finish(None, "", 3.0);
        assert!(
            matches!(outlet.delivery.try_recv(), Ok(Delivery::Nothing { why }) if why.contains("2 of its objects"))
        );
    }

    #[test]
    fn what_answers_something_else_is_no_reply() {
        let (mut assignment, _outlet) = taken(true);
        let (good, tree) = reply_to(&assignment.job);
        let metadata = good.metadata.clone().unwrap();
        let with = |metadata| proto::Message { metadata: Some(metadata), ..good.clone() };
        for bad in [
            proto::Message { metadata: None, ..good.clone() },
            proto::Message { content: None, ..good.clone() },
            with(proto::Metadata { run_id: 6, ..metadata.clone() }),
            with(proto::Metadata { reply_to_message_id: "other".to_owned(), ..metadata.clone() }),
            with(proto::Metadata { message_id: "other".to_owned(), ..metadata.clone() }),
        ] {
            let refused = assignment.announce(bad.clone(), tree.clone(), HashSet::new(), 1.0);
            assert_eq!(refused.unwrap_err().kind, Kind::Invalid, "{bad:?}");
        }
        assignment.announce(good, tree, HashSet::new(), 1.0).unwrap();
    }
}
