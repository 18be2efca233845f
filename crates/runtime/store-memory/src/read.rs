//! Queries. Frequent queries use an index; the others scan all rows.

use std::collections::BTreeSet;

use bytes::Bytes;
use trellis_core::Seconds;
use trellis_core::account::Account;
use trellis_core::audit;
use trellis_core::census::Census;
use trellis_core::id::{MessageId, NodeId, ObjectId, RunId};
use trellis_core::message::{self, Instruction, Reply};
use trellis_core::node::{self, Node};
use trellis_core::object::{Content, Object, Scope};
use trellis_core::port::{Fab, LogText, Read, Traffic};
use trellis_core::refusal::Refusal;
use trellis_core::report::TrainingReport;
use trellis_core::run::{self, Outcome, Run, ServerApp};
use trellis_core::secret::{self, Secret, SecretId};
use trellis_core::token::Token;

use crate::table::{ObjectKey, Tables};

const FIRST_OBJECT: ObjectId = ObjectId::new([0; 32]);
const LAST_OBJECT: ObjectId = ObjectId::new([0xff; 32]);

pub(crate) fn object_key(scope: Scope, id: ObjectId) -> ObjectKey {
    (id, scope.run, scope.sender)
}

/// Returns the rows in the order of a time.
fn by_time<'a, T: Clone + 'a>(rows: impl Iterator<Item = &'a T>, time: impl Fn(&T) -> Seconds) -> Vec<T> {
    let mut rows: Vec<T> = rows.cloned().collect();
    rows.sort_by(|one, other| time(one).total_cmp(&time(other)));
    rows
}

impl Tables {
    fn instructions_for(&self, node: NodeId) -> impl Iterator<Item = &Instruction> {
        let ids = self.instructions_of_node.range((node, 0)..=(node, u64::MAX));
        ids.filter_map(|(_, id)| self.instructions.get(id)).map(|(_, instruction)| instruction)
    }

    fn reply_ids(&self, run: RunId) -> impl Iterator<Item = MessageId> {
        self.replies_of_run.range((run, FIRST_OBJECT)..=(run, LAST_OBJECT)).map(|((_, id), ())| *id)
    }
}

impl Read for Tables {
    fn node(&self, id: NodeId) -> Result<Option<Node>, Refusal> {
        Ok(self.nodes.get(&id).cloned())
    }

    fn node_by_key(&self, public_key: &[u8]) -> Result<Option<Node>, Refusal> {
        let id = self.node_of_key.get(&public_key.to_vec());
        Ok(id.and_then(|id| self.nodes.get(id)).cloned())
    }

    fn nodes(&self) -> Result<Vec<Node>, Refusal> {
        Ok(by_time(self.nodes.values(), |node| node.registered_at))
    }

    fn online_nodes(&self, now: Seconds) -> Result<Vec<NodeId>, Refusal> {
        let online = |node: &&Node| matches!(node.state().at(now), node::State::Online { .. });
        Ok(self.nodes.values().filter(online).map(|node| node.id).collect())
    }

    fn run(&self, id: RunId) -> Result<Option<Run>, Refusal> {
        Ok(self.runs.get(&id).cloned())
    }

    fn runs(&self) -> Result<Vec<Run>, Refusal> {
        Ok(by_time(self.runs.values(), |run| run.pending_at))
    }

    fn pending_runs(&self) -> Result<Vec<(RunId, ServerApp)>, Refusal> {
        let pending =
            by_time(self.runs.values().filter(|run| *run.state() == run::State::Pending), |run| run.pending_at);
        Ok(pending.into_iter().map(|run| (run.id, run.server_app)).collect())
    }

    fn unfinished_runs(&self) -> Result<Vec<Run>, Refusal> {
        Ok(by_time(self.runs.values().filter(|run| !run.state().is_finished()), |run| run.pending_at))
    }

    fn traffic(&self, run: RunId) -> Result<Traffic, Refusal> {
        Ok(self.traffic.get(&run).copied().unwrap_or_default())
    }

    fn fab(&self, hash: &str) -> Result<Option<Fab>, Refusal> {
        Ok(self.fabs.get(&hash.to_owned()).cloned())
    }

    fn context(&self, run: RunId) -> Result<Option<Bytes>, Refusal> {
        Ok(self.contexts.get(&run).cloned())
    }

    fn log_after(&self, run: RunId, after: Seconds, limit_bytes: usize) -> Result<Option<LogText>, Refusal> {
        let mut log: Option<LogText> = None;
        let from = after.max(0.0).to_bits();
        for ((_, at), text) in self.logs.range((run, from)..=(run, u64::MAX)) {
            let at = Seconds::from_bits(*at);
            if at <= after {
                continue;
            }
            let log = log.get_or_insert_with(|| LogText { text: String::new(), latest: at });
            log.latest = at;
            log.text.push_str(text);
            if log.text.len() >= limit_bytes {
                break;
            }
        }
        Ok(log)
    }

    fn report(&self, run: RunId, round: u64, kind: &str) -> Result<Option<TrainingReport>, Refusal> {
        let body = self.reports.get(&(run, round, kind.to_owned()));
        Ok(body.map(|body| TrainingReport { run, round, kind: kind.to_owned(), body: body.clone() }))
    }

    fn reports_after(
        &self,
        run: RunId,
        after: Option<u64>,
        limit_bytes: usize,
    ) -> Result<Vec<TrainingReport>, Refusal> {
        let Some(first) = after.map_or(Some(0), |after| after.checked_add(1)) else { return Ok(Vec::new()) };
        let (mut reports, mut bytes) = (Vec::<TrainingReport>::new(), 0);
        for ((of, round, kind), body) in self.reports.range((run, first, String::new())..) {
            let ends = bytes >= limit_bytes && reports.last().is_some_and(|last| last.round != *round);
            if *of != run || ends {
                break;
            }
            bytes += body.len();
            reports.push(TrainingReport { run, round: *round, kind: kind.clone(), body: body.clone() });
        }
        Ok(reports)
    }

    fn token(&self, run: RunId) -> Result<Option<Token>, Refusal> {
        Ok(self.tokens.get(&run).cloned())
    }

    fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<Token>, Refusal> {
        Ok(self.run_of_token.get(hash).and_then(|run| self.tokens.get(run)).cloned())
    }

    fn tokens_until(&self, until: Seconds) -> Result<Vec<Token>, Refusal> {
        Ok(self.tokens.values().filter(|token| token.state.until() <= until).cloned().collect())
    }

    fn instruction(&self, id: MessageId) -> Result<Option<Instruction>, Refusal> {
        Ok(self.instructions.get(&id).map(|(_, instruction)| instruction.clone()))
    }

    fn deliverable(&self, node: NodeId) -> Result<Option<Instruction>, Refusal> {
        let is_next = |instruction: &&Instruction| {
            matches!(instruction.state(), message::State::Ready | message::State::Delivered)
                && !instruction.is_undeliverable()
        };
        Ok(self.instructions_for(node).find(is_next).cloned())
    }

    fn in_progress(&self, node: NodeId) -> Result<Vec<Instruction>, Refusal> {
        let is_in_progress = |instruction: &&Instruction| {
            matches!(instruction.state(), message::State::Confirmed | message::State::Answering)
        };
        Ok(self.instructions_for(node).filter(is_in_progress).cloned().collect())
    }

    fn runs_waiting_for(&self, node: NodeId) -> Result<Vec<RunId>, Refusal> {
        let open = self.instructions_for(node).filter(|instruction| instruction.state() != message::State::Answered);
        Ok(open.map(|instruction| instruction.envelope.run).collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn instructions_of_run(&self, run: RunId) -> Result<Vec<MessageId>, Refusal> {
        let ids = self.instructions_of_run.range((run, FIRST_OBJECT)..=(run, LAST_OBJECT));
        Ok(ids.map(|((_, id), ())| *id).collect())
    }

    fn expired_instructions(&self, now: Seconds, limit: usize) -> Result<Vec<MessageId>, Refusal> {
        let open = self.instructions.values().map(|(_, instruction)| instruction);
        let expired = open.filter(|instruction| {
            instruction.state() != message::State::Answered && instruction.envelope.expires_at() <= now
        });
        let mut expired: Vec<_> = expired.map(|found| (found.envelope.expires_at(), found.envelope.id)).collect();
        expired.sort_by(|one, other| one.0.total_cmp(&other.0));
        Ok(expired.into_iter().take(limit).map(|(_, id)| id).collect())
    }

    fn reply(&self, id: MessageId) -> Result<Option<Reply>, Refusal> {
        Ok(self.replies.get(&id).cloned())
    }

    fn reply_to(&self, instruction: MessageId) -> Result<Option<Reply>, Refusal> {
        Ok(self.reply_to.get(&instruction).and_then(|id| self.replies.get(id)).cloned())
    }

    fn replies_of_run(&self, run: RunId) -> Result<Vec<MessageId>, Refusal> {
        Ok(self.reply_ids(run).collect())
    }

    fn answered_instructions(&self, run: RunId) -> Result<Vec<MessageId>, Refusal> {
        let ready = self.reply_ids(run).filter_map(|id| self.replies.get(&id)).filter(|reply| reply.ready);
        Ok(ready.map(|reply| reply.reply_to).collect())
    }

    fn object(&self, scope: Scope, id: ObjectId) -> Result<Option<Object>, Refusal> {
        Ok(self.objects.get(&object_key(scope, id)).map(|(object, _)| *object))
    }

    fn object_with_content(&self, run: RunId, id: ObjectId) -> Result<Option<Object>, Refusal> {
        let of_run = self.objects.range((id, run, NodeId(0))..=(id, run, NodeId(u64::MAX)));
        Ok(of_run.map(|(_, (object, _))| *object).find(|object| object.has_content))
    }

    fn children(&self, scope: Scope, id: ObjectId) -> Result<Vec<ObjectId>, Refusal> {
        Ok(self.objects.get(&object_key(scope, id)).map(|(_, children)| children.clone()).unwrap_or_default())
    }

    fn parents(&self, scope: Scope, id: ObjectId) -> Result<Vec<ObjectId>, Refusal> {
        let child = object_key(scope, id);
        Ok(self.parents.range((child, FIRST_OBJECT)..=(child, LAST_OBJECT)).map(|((_, parent), ())| *parent).collect())
    }

    fn content(&self, id: ObjectId) -> Result<Option<Content>, Refusal> {
        Ok(self.contents.get(&id).cloned())
    }

    fn has_content(&self, id: ObjectId) -> Result<bool, Refusal> {
        Ok(self.contents.get(&id).is_some())
    }

    fn object_count(&self) -> Result<u64, Refusal> {
        Ok(self.objects.len() as u64)
    }

    fn account(&self, id: &str) -> Result<Option<Account>, Refusal> {
        Ok(self.accounts.get(&id.to_owned()).cloned())
    }

    fn account_by_name(&self, name: &str) -> Result<Option<Account>, Refusal> {
        Ok(self.accounts.values().find(|account| account.name == name).cloned())
    }

    fn accounts(&self) -> Result<Vec<Account>, Refusal> {
        let mut accounts: Vec<Account> = self.accounts.values().cloned().collect();
        accounts.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(accounts)
    }

    fn secret(&self, hash: &secret::Hash) -> Result<Option<Secret>, Refusal> {
        Ok(self.secrets.get(hash).cloned())
    }

    fn secret_by_id(&self, id: SecretId) -> Result<Option<Secret>, Refusal> {
        let (first, last) = id.hash_range();
        Ok(self.secrets.range(first..=last).next().map(|(_, secret)| secret.clone()))
    }

    fn secrets(&self) -> Result<Vec<Secret>, Refusal> {
        Ok(by_time(self.secrets.values(), |secret| secret.created_at))
    }

    fn secrets_of(&self, account: &str) -> Result<Vec<Secret>, Refusal> {
        Ok(by_time(self.secrets.values().filter(|secret| secret.account == account), |secret| secret.created_at))
    }

    fn ended_secrets(&self, until: Seconds, limit: usize) -> Result<Vec<Secret>, Refusal> {
        let ended = self.secrets.values().filter(|secret| secret.ends_at().is_some_and(|end| end <= until));
        Ok(ended.take(limit).cloned().collect())
    }

    fn audit_after(&self, after: u64, limit: usize) -> Result<Vec<audit::Entry>, Refusal> {
        let Some(first) = after.checked_add(1) else { return Ok(Vec::new()) };
        Ok(self.audit.range(first..).take(limit).map(|(_, entry)| entry.clone()).collect())
    }

    fn audit_newest(&self, limit: usize) -> Result<Vec<audit::Entry>, Refusal> {
        let mut entries: Vec<_> = self.audit.values().rev().take(limit).cloned().collect();
        entries.reverse();
        Ok(entries)
    }

    fn audit_count(&self) -> Result<u64, Refusal> {
        Ok(self.audit.len() as u64)
    }

    fn census(&self, now: Seconds) -> Result<Census, Refusal> {
        let mut census = Census {
            replies_ready: self.replies.values().filter(|reply| reply.ready).count() as u64,
            objects: self.object_count()?,
            object_bytes: self.contents.values().map(Content::len_bytes).sum(),
            audit_entries: self.audit_count()?,
            ..Census::default()
        };
        for node in self.nodes.values() {
            match node.state().at(now) {
                node::State::Registered => census.nodes_registered += 1,
                node::State::Offline => census.nodes_offline += 1,
                node::State::Online { .. } => {
                    *census.nodes_online_by_client.entry(node.client.clone()).or_default() += 1;
                }
                node::State::Unregistered => {}
            }
        }
        for run in self.runs.values() {
            *match run.state() {
                run::State::Pending => &mut census.runs_pending,
                run::State::Starting => &mut census.runs_starting,
                run::State::Running => &mut census.runs_running,
                run::State::Finished { outcome: Outcome::Completed, .. } => &mut census.runs_completed,
                run::State::Finished { outcome: Outcome::Failed, .. } => &mut census.runs_failed,
                run::State::Finished { outcome: Outcome::Stopped, .. } => &mut census.runs_stopped,
            } += 1;
        }
        for (_, instruction) in self.instructions.values() {
            use message::State;
            *match instruction.state() {
                State::Incomplete => &mut census.instructions_incomplete,
                State::Ready => &mut census.instructions_waiting,
                State::Delivered | State::Confirmed | State::Answering => &mut census.instructions_out,
                State::Answered => &mut census.instructions_answered,
            } += 1;
        }
        Ok(census)
    }

    fn alive_at(&self) -> Result<Option<Seconds>, Refusal> {
        Ok(self.alive_at.get(&()).copied())
    }
}
