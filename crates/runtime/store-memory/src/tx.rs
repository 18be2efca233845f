//! Changes to the tables and their indexes.

use bytes::Bytes;
use trellis_core::Seconds;
use trellis_core::account::Account;
use trellis_core::audit;
use trellis_core::id::{MessageId, NodeId, ObjectId, RunId};
use trellis_core::message::{Instruction, Reply};
use trellis_core::node::Node;
use trellis_core::object::{Content, Object, Scope};
use trellis_core::port::{Fab, LOG_STEP_S, Topic, Traffic, Tx};
use trellis_core::refusal::Refusal;
use trellis_core::report::TrainingReport;
use trellis_core::run::Run;
use trellis_core::secret::{self, Secret};
use trellis_core::token::Token;

use crate::read::object_key;
use crate::table::Tables;

impl Tables {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

impl Tx for Tables {
    fn wake(&mut self, topic: Topic) {
        self.topics.push(topic);
    }

    fn put_node(&mut self, node: &Node) -> Result<(), Refusal> {
        self.node_of_key.put(node.public_key.clone(), node.id);
        self.nodes.put(node.id, node.clone());
        Ok(())
    }

    fn put_run(&mut self, run: &Run) -> Result<(), Refusal> {
        self.runs.put(run.id, run.clone());
        Ok(())
    }

    fn add_traffic(&mut self, run: RunId, more: Traffic) -> Result<(), Refusal> {
        let Traffic { bytes_sent, bytes_received } = self.traffic.get(&run).copied().unwrap_or_default();
        let sum =
            Traffic { bytes_sent: bytes_sent + more.bytes_sent, bytes_received: bytes_received + more.bytes_received };
        self.traffic.put(run, sum);
        Ok(())
    }

    fn put_fab(&mut self, fab: &Fab) -> Result<(), Refusal> {
        let kept = match self.fabs.get(&fab.hash) {
            Some(_) if fab.verifications.is_empty() => return Ok(()),
            Some(kept) => Fab { verifications: fab.verifications.clone(), ..kept.clone() },
            None => fab.clone(),
        };
        self.fabs.put(kept.hash.clone(), kept);
        Ok(())
    }

    fn put_context(&mut self, run: RunId, context: &[u8]) -> Result<(), Refusal> {
        self.contexts.put(run, Bytes::copy_from_slice(context));
        Ok(())
    }

    fn append_log(&mut self, run: RunId, now: Seconds, text: &str) -> Result<(), Refusal> {
        let last = self.logs.range((run, 0)..=(run, u64::MAX)).next_back();
        let earliest = last.map_or(0.0, |((_, at), _)| Seconds::from_bits(*at)) + LOG_STEP_S;
        self.logs.put((run, now.max(earliest).to_bits()), text.to_owned());
        Ok(())
    }

    fn put_report(&mut self, report: &TrainingReport) -> Result<(), Refusal> {
        self.reports.put((report.run, report.round, report.kind.clone()), report.body.clone());
        Ok(())
    }

    fn put_token(&mut self, token: &Token) -> Result<(), Refusal> {
        self.delete_token(token.run)?;
        self.run_of_token.put(token.hash, token.run);
        self.tokens.put(token.run, token.clone());
        Ok(())
    }

    fn delete_token(&mut self, run: RunId) -> Result<(), Refusal> {
        if let Some(token) = self.tokens.delete(&run) {
            self.run_of_token.delete(&token.hash);
        }
        Ok(())
    }

    fn put_instruction(&mut self, instruction: &Instruction) -> Result<(), Refusal> {
        let envelope = &instruction.envelope;
        let number = match self.instructions.get(&envelope.id) {
            Some((number, _)) => *number,
            None => {
                let number = self.next_number();
                self.instructions_of_node.put((envelope.dst, number), envelope.id);
                self.instructions_of_run.put((envelope.run, envelope.id), ());
                number
            }
        };
        self.instructions.put(envelope.id, (number, instruction.clone()));
        Ok(())
    }

    fn delete_instruction(&mut self, id: MessageId) -> Result<(), Refusal> {
        if let Some((number, Instruction { envelope, .. })) = self.instructions.delete(&id) {
            self.instructions_of_node.delete(&(envelope.dst, number));
            self.instructions_of_run.delete(&(envelope.run, id));
        }
        Ok(())
    }

    fn put_reply(&mut self, reply: &Reply) -> Result<(), Refusal> {
        self.reply_to.put(reply.reply_to, reply.envelope.id);
        self.replies_of_run.put((reply.envelope.run, reply.envelope.id), ());
        self.replies.put(reply.envelope.id, reply.clone());
        Ok(())
    }

    fn delete_reply(&mut self, id: MessageId) -> Result<(), Refusal> {
        if let Some(reply) = self.replies.delete(&id) {
            self.reply_to.delete(&reply.reply_to);
            self.replies_of_run.delete(&(reply.envelope.run, id));
        }
        Ok(())
    }

    fn insert_object(&mut self, object: &Object, children: &[ObjectId]) -> Result<(), Refusal> {
        for child in children {
            self.parents.put((object_key(object.scope, *child), object.id), ());
        }
        self.objects.put(object_key(object.scope, object.id), (*object, children.to_vec()));
        Ok(())
    }

    fn update_object(&mut self, object: &Object) -> Result<(), Refusal> {
        let key = object_key(object.scope, object.id);
        if let Some((kept, children)) = self.objects.get(&key).cloned() {
            let Object { references, waiting, has_content, .. } = *object;
            self.objects.put(key, (Object { references, waiting, has_content, ..kept }, children));
        }
        Ok(())
    }

    fn put_content(&mut self, id: ObjectId, content: &Content) -> Result<(), Refusal> {
        self.contents.put(id, content.clone());
        Ok(())
    }

    fn discard(&mut self, content: &Content) {
        if let Content::Large { name, .. } = content {
            self.removed.push(name.clone());
        }
    }

    fn delete_object(&mut self, scope: Scope, id: ObjectId) -> Result<(), Refusal> {
        let Some((_, children)) = self.objects.delete(&object_key(scope, id)) else { return Ok(()) };
        for child in children {
            self.parents.delete(&(object_key(scope, child), id));
        }
        let first = (id, RunId(0), NodeId(0));
        if self.objects.range(first..=(id, RunId(u64::MAX), NodeId(u64::MAX))).next().is_none()
            && let Some(content) = self.contents.delete(&id)
        {
            self.discard(&content);
        }
        Ok(())
    }

    fn put_account(&mut self, account: &Account) -> Result<(), Refusal> {
        self.accounts.put(account.id.clone(), account.clone());
        Ok(())
    }

    fn put_secret(&mut self, secret: &Secret) -> Result<(), Refusal> {
        self.secrets.put(secret.hash, secret.clone());
        Ok(())
    }

    fn delete_secret(&mut self, hash: &secret::Hash) -> Result<(), Refusal> {
        self.secrets.delete(hash);
        Ok(())
    }

    fn append_audit(
        &mut self,
        at: Seconds,
        event: audit::Event,
        actor: &str,
        subject: &str,
        detail: &str,
    ) -> Result<u64, Refusal> {
        let seq = self.next_number();
        let (actor, subject, detail) = (actor.to_owned(), subject.to_owned(), detail.to_owned());
        self.audit.put(seq, audit::Entry { seq, at, event, actor, subject, detail });
        Ok(seq)
    }

    fn trim_audit(&mut self, refused: bool, keep: u64) -> Result<(), Refusal> {
        let is_of_kind = |entry: &&audit::Entry| (entry.event == audit::Event::CallRefused) == refused;
        let old = self.audit.values().rev().filter(is_of_kind).skip(keep as usize).map(|entry| entry.seq);
        for seq in old.collect::<Vec<_>>() {
            self.audit.delete(&seq);
        }
        Ok(())
    }

    fn set_alive_at(&mut self, now: Seconds) -> Result<(), Refusal> {
        self.alive_at.put((), now);
        Ok(())
    }
}
