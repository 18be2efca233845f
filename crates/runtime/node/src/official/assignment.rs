//! The state of a job while an app processes it: waiting, taken with a token, running, delivered. Time is an argument; this module
//! knows nothing of calls, processes and files.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use trellis_core::Seconds;
use trellis_core::id::ObjectId;
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::token::{self, Event, State};
use trellis_wire::proto;

use crate::app::{Job, Reply};

/// How often a job is offered if it is taken without being started; after that the failure is permanent.
const MAX_OFFERS: u32 = 3;

/// The SHA-256 of a token. Only the app has the token itself.
pub type TokenHash = [u8; 32];

/// The result of an app.
#[derive(Debug)]
pub enum Delivery {
    Reply(Box<Reply>),
    /// The app ended without a complete reply.
    Nothing {
        reason: String,
    },
    /// An object that the app requested is damaged.
    Damaged {
        what: String,
    },
}

/// The result of a missed deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// The app was heard of in time.
    Alive,
    /// The app never started: the job is available again.
    OfferedAgain,
    Dead,
}

/// Whether the bytes of an object are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Needed,
    /// The object is stored already.
    Known,
    Unannounced,
}

pub struct Assignment {
    pub task: u64,
    pub job: Arc<Job>,
    /// The objects of the instruction.
    instruction: HashSet<ObjectId>,
    token: Option<Token>,
    offers: u32,
    /// The deadline for a sign of life; `None`: none is expected.
    deadline: watch::Sender<Option<Seconds>>,
    /// When the app took the message.
    began_at: Option<Seconds>,
    announced: Option<Announced>,
    /// `None`: delivered.
    delivery: Option<oneshot::Sender<Delivery>>,
}

struct Token {
    hash: TokenHash,
    state: State,
    /// The dialect of the app has no token in calls for objects.
    is_named: bool,
    /// The node watches the process, so no sign of life is expected before the app starts.
    is_watched: bool,
}

struct Announced {
    message: proto::Message,
    tree: proto::ObjectTree,
    objects: HashSet<ObjectId>,
    missing: HashSet<ObjectId>,
    runtime_s: f64,
}

/// The delivery of an assignment, and its current deadline.
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

    /// Whether an app without a token may make calls for it.
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

    /// The connection of the app was closed.
    pub fn hang_up(&mut self, now: Seconds) {
        self.step(Event::Hangup, now);
    }

    /// The app requests its inputs.
    pub fn begin(&mut self, is_named: bool, now: Seconds) {
        self.step(Event::PullInputs, now);
        if let Some(token) = &mut self.token {
            token.is_named = is_named;
        }
    }

    /// The deadline has passed; verifies it.
    pub fn lapse(&mut self, now: Seconds) -> Lapse {
        let Some(token) = self.token.as_ref().filter(|token| token.state.has_expired(now)) else { return Lapse::Alive };
        if matches!(token.state, State::Issued { .. }) && self.offers < MAX_OFFERS {
            self.token = None;
            self.tell_deadline();
            return Lapse::OfferedAgain;
        }
        Lapse::Dead
    }

    /// The message for the app, which is running from now on.
    pub fn message(&mut self, now: Seconds) -> (proto::Message, proto::ObjectTree) {
        self.began_at.get_or_insert(now);
        (self.job.instruction.clone(), self.job.tree.clone())
    }

    /// Whether the app may read an object.
    pub fn needs(&self, id: ObjectId) -> bool {
        self.instruction.contains(&id)
    }

    /// The app announces its reply; `missing` are its objects that are not stored.
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

    pub fn need(&self, id: ObjectId) -> Need {
        match &self.announced {
            Some(reply) if reply.missing.contains(&id) => Need::Needed,
            Some(reply) if reply.objects.contains(&id) => Need::Known,
            _ => Need::Unannounced,
        }
    }

    pub fn arrived(&mut self, id: ObjectId) {
        if let Some(reply) = &mut self.announced {
            reply.missing.remove(&id);
        }
    }

    /// The app has finished. Idempotent.
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
                reason: format!("The reply is incomplete: {} of its objects were not sent.", reply.missing.len()),
            },
            None if details.is_empty() => Delivery::Nothing { reason: "The ClientApp sent no reply.".to_owned() },
            None => Delivery::Nothing { reason: format!("The ClientApp sent no reply: {details}") },
        };
        self.deliver(delivery);
    }

    pub fn deliver(&mut self, delivery: Delivery) {
        if let Some(receiver) = self.delivery.take() {
            let _ = receiver.send(delivery); // The receiver may be gone.
        }
        self.tell_deadline();
    }

    /// The context to store, with the identity of the original one.
    fn context(&self, pushed: Option<proto::Context>) -> proto::Context {
        let own = &self.job.context;
        match pushed {
            Some(pushed) => proto::Context { run_id: own.run_id, node_id: own.node_id, ..pushed },
            None => own.clone(),
        }
    }
}

/// Whether a message is a valid reply to the instruction.
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

/// All objects of a tree. Invalid ids are ignored: no call can refer to them.
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
    fn a_job_that_was_not_started_is_offered_again_a_few_times() {
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
    fn a_running_app_must_send_signs_of_life() {
        let (mut assignment, outlet) = taken(true);
        assert_eq!(*outlet.deadline.borrow(), None, "its process is watched until it starts");
        assignment.begin(false, 10.0);
        assignment.heartbeat(20.0);
        assert_eq!(*outlet.deadline.borrow(), Some(80.0));
        assignment.hang_up(30.0);
        assert_eq!(*outlet.deadline.borrow(), Some(55.0));
        assert_eq!(assignment.lapse(54.0), Lapse::Alive);
        assert_eq!(assignment.lapse(55.0), Lapse::Dead);
    }

    #[test]
    fn a_reply_counts_when_all_its_objects_are_stored() {
        let (mut assignment, mut outlet) = taken(true);
        assignment.begin(false, 1.0);
        assignment.message(2.0);
        let (message, tree) = reply_to(&assignment.job);
        let objects = objects_of(&tree);
        assignment.announce(message, tree, objects.clone(), 5.5).unwrap();
        for id in objects {
            assert_eq!(assignment.need(id), Need::Needed);
            assignment.arrived(id);
            assert_eq!(assignment.need(id), Need::Known);
        }
        assert_eq!(assignment.need(ObjectId::try_from(&[0; 32][..]).unwrap()), Need::Unannounced);
        let pushed = proto::Context { run_id: 99, series_id: 3, ..Default::default() };
        assignment.finish(Some(pushed), "", 6.0);
        assignment.finish(None, "again", 6.0);
        let Delivery::Reply(reply) = outlet.delivery.try_recv().unwrap() else { panic!("no reply") };
        assert_eq!((reply.runtime_s, reply.context.run_id, reply.context.series_id), (3.5, 5, 3));
        assert_eq!(*outlet.deadline.borrow(), None, "no sign of life is expected any more");
    }

    #[test]
    fn an_incomplete_reply_is_not_a_reply() {
        let (mut assignment, mut outlet) = taken(true);
        assignment.begin(false, 1.0);
        let (message, tree) = reply_to(&assignment.job);
        let missing = objects_of(&tree);
        assignment.announce(message, tree, missing, 2.0).unwrap();
        assignment.finish(None, "", 3.0);
        assert!(
            matches!(outlet.delivery.try_recv(), Ok(Delivery::Nothing { reason }) if reason.contains("2 of its objects"))
        );
    }

    #[test]
    fn replies_to_other_messages_are_refused() {
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
