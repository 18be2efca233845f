//! Jobs: atomic, isolated, completed once, and not before readers see the change.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bytes::Bytes;

use super::{Case, NOW, SCOPE, Subject, TIMEOUT, ask, await_one, change, commit, envelope, id, query, submit};
use crate::account::{Account, Role};
use crate::audit;
use crate::id::{NodeId, RunId};
use crate::message::{Instruction, Reply, State};
use crate::node::{Event, Node};
use crate::object::{Content, Object};
use crate::port::{Fab, Job, Read, Topic, Traffic, Tx};
use crate::refusal::{Kind, Refusal};
use crate::run::{self, NewRun, Run};
use crate::secret::{self, Purpose, Secret, SecretId};
use crate::token::{self, Token};

pub(super) const CASES: &[Case] = &[
    ("a job sees its own writes", sees_itself),
    ("a job sees the changes of earlier jobs", sees_the_one_before),
    ("a rolled back job leaves no trace", refused),
    ("a rolled back job does not affect other jobs of its batch", refused_among_others),
    ("a reader sees a snapshot", one_moment),
    ("a reader never sees uncommitted changes", nothing_uncommitted),
    ("a job completes when readers can see its change, not before", done_after_visible),
    ("topics of committed jobs are announced after the commit, topics of rolled back jobs never", announced),
    ("jobs of many threads complete once, those of each thread in order", many_submitters),
    ("deferred jobs complete once, and not before readers see the change", patient),
    ("a failed query does not affect later queries", refused_question),
];

const RUN: RunId = RunId(1 << 63);
const NODE: NodeId = NodeId(u64::MAX);

fn no() -> Refusal {
    Refusal::new(Kind::Denied, "no")
}

fn later(round: u32) -> f64 {
    NOW + f64::from(round)
}

/// Writes to every table. Each round updates, adds to and deletes from the previous round.
fn touch_everything(tx: &mut dyn Tx, round: u32) -> Result<(), Refusal> {
    let mut node = Node::register(NODE, ("aid", "name"), b"key", 30.0, NOW);
    node.apply(Event::Activate { interval_s: 30.0 }, later(round)).map_err(|_| no())?;
    tx.put_node(&node)?;
    let mut run = Run::new(RUN, NewRun::default(), NOW);
    run.apply(run::Event::Claim, later(round)).map_err(|_| no())?;
    tx.put_run(&run)?;
    tx.add_traffic(RUN, Traffic { bytes_sent: 1, bytes_received: 2 })?;
    tx.put_fab(&Fab { hash: round.to_string(), content: Bytes::from_static(b"fab"), verifications: vec![1] })?;
    tx.put_context(RUN, round.to_string().as_bytes())?;
    tx.append_log(RUN, later(round), &format!("round {round}\n"))?;
    tx.put_token(&Token { run: RUN, hash: [round as u8; 32], state: token::State::issue(later(round)) })?;
    tx.delete_token(RunId(u64::from(round) - 1))?;
    tx.put_token(&Token { run: RunId(round.into()), hash: [100 + round as u8; 32], state: token::State::issue(NOW) })?;
    tx.put_instruction(&Instruction::restore(envelope("instruction", RUN, NODE), round, State::Delivered))?;
    tx.put_instruction(&Instruction::new(envelope(&format!("instruction {round}"), RUN, NODE)))?;
    tx.delete_instruction(id(&format!("instruction {}", round - 1)))?;
    let reply = |label: &str, to: &str, ready| Reply { envelope: envelope(label, RUN, NODE), reply_to: id(to), ready };
    tx.put_reply(&reply("reply", "instruction", round > 1))?;
    tx.put_reply(&reply(&format!("reply {round}"), &format!("instruction {round}"), false))?;
    tx.delete_reply(id(&format!("reply {}", round - 1)))?;
    let object = |label: &str| Object { references: round, has_content: true, ..Object::new(SCOPE, id(label)) };
    match tx.object(SCOPE, id("object"))? {
        Some(_) => tx.update_object(&object("object"))?,
        None => tx.insert_object(&object("object"), &[])?,
    }
    let mine = format!("object {round}");
    tx.insert_object(&object(&mine), &[id("object")])?;
    tx.put_content(id(&mine), &Content::Inline(Bytes::from(mine.clone())))?;
    tx.delete_object(SCOPE, id(&format!("object {}", round - 1)))?;
    tx.put_account(&Account::new("account", "name", Role::ALL[round as usize], NOW))?;
    tx.put_account(&Account::new(&mine, &mine, Role::Viewer, NOW))?;
    let secret = |number: u32| Secret::new([number as u8; 32], Purpose::Join, "account", "label", Some(1.0), NOW);
    tx.put_secret(&secret(0).restore(secret::State::Used { at: later(round), node: Some(NODE) }))?;
    tx.put_secret(&secret(round))?;
    tx.delete_secret(&secret(round - 1).hash)?;
    tx.append_audit(later(round), audit::Event::ALL[round as usize], "actor", "subject", &mine)?;
    tx.trim_audit(false, 1)?;
    tx.set_alive_at(later(round))?;
    tx.wake(Topic::Log(RunId(round.into())));
    Ok(())
}

/// Returns the results of all queries about [`touch_everything`] as one text.
fn snapshot(read: &dyn Read, rounds: u32) -> Result<String, Refusal> {
    let mut seen = vec![
        format!("{:?} {:?} {:?}", read.node(NODE)?, read.node_by_key(b"key")?, read.nodes()?),
        format!("{:?} {:?} {:?}", read.online_nodes(NOW)?, read.run(RUN)?, read.runs()?),
        format!("{:?} {:?} {:?}", read.pending_runs()?, read.unfinished_runs()?, read.traffic(RUN)?),
        format!("{:?} {:?} {:?}", read.context(RUN)?, read.log_after(RUN, 0.0, 1 << 20)?, read.token(RUN)?),
        format!("{:?} {:?} {:?}", read.tokens_until(f64::MAX)?, read.deliverable(NODE)?, read.in_progress(NODE)?),
        format!("{:?}", read.runs_waiting_for(NODE)?),
        format!("{:?} {:?}", read.instructions_of_run(RUN)?, read.expired_instructions(f64::MAX, 100)?),
        format!("{:?} {:?} {:?}", read.replies_of_run(RUN)?, read.object_count()?, read.alive_at()?),
        format!("{:?}", read.parents(SCOPE, id("object"))?),
        format!("{:?} {:?} {:?}", read.account("account")?, read.account_by_name("name")?, read.accounts()?),
        format!("{:?} {:?} {:?}", read.secrets()?, read.secrets_of("account")?, read.ended_secrets(f64::MAX, 9)?),
        format!("{:?}", read.census(NOW)?),
        format!("{:?} {:?} {}", read.audit_after(0, 9)?, read.audit_newest(9)?, read.audit_count()?),
    ];
    let label = |what: &str, round| if round == 0 { what.to_owned() } else { format!("{what} {round}") };
    for round in 0..=rounds {
        let instruction = id(&label("instruction", round));
        let (reply, object) = (id(&label("reply", round)), id(&label("object", round)));
        seen.push(format!("{:?} {:?}", read.fab(&round.to_string())?, read.token_by_hash(&[round as u8; 32])?));
        seen.push(format!("{:?} {:?}", read.instruction(instruction)?, read.reply_to(instruction)?));
        seen.push(format!("{:?} {:?}", read.reply(reply)?, read.object(SCOPE, object)?));
        let hash = [round as u8; 32];
        seen.push(format!("{:?} {:?}", read.secret(&hash)?, read.secret_by_id(SecretId::of(&hash))?));
        seen.push(format!("{:?} {:?}", read.children(SCOPE, object)?, read.content(object)?));
    }
    Ok(seen.join("\n"))
}

fn sees_itself(subject: &Subject<'_>) {
    let (before, inside) = change(subject.store, |tx| {
        touch_everything(tx, 1)?;
        let before = snapshot(tx, 2)?;
        touch_everything(tx, 2)?;
        Ok((before, snapshot(tx, 2)?))
    })
    .expect("a sound change is kept");
    assert_ne!(before, inside);
    assert_eq!(query(subject, |read| snapshot(read, 2)), inside, "readers see the state that the job saw");
}

fn sees_the_one_before(subject: &Subject<'_>) {
    const JOBS: u32 = 300;
    let results: Vec<_> = (1..=JOBS)
        .map(|n| {
            submit(subject.store, move |tx| {
                let before = tx.run(RUN)?.map_or(0, |run| run.launches);
                let mut run = Run::new(RUN, NewRun::default(), NOW);
                run.launches = n;
                tx.put_run(&run)?;
                Ok(before)
            })
        })
        .collect();
    let seen: Vec<u32> = results.iter().map(|result| await_one(result).expect("kept")).collect();
    assert_eq!(seen, (0..JOBS).collect::<Vec<_>>());
}

fn refused(subject: &Subject<'_>) {
    commit(subject, |tx| touch_everything(tx, 1));
    let before = query(subject, |read| snapshot(read, 2));
    let refusal = change(subject.store, |tx| {
        touch_everything(tx, 2)?;
        tx.wake(Topic::Finished(RUN));
        Err::<(), _>(no())
    });
    assert_eq!(refusal.unwrap_err().kind, Kind::Denied);
    assert_eq!(query(subject, |read| snapshot(read, 2)), before);
    commit(subject, |tx| {
        tx.wake(Topic::Launch);
        Ok(())
    });
    let heard = subject.announced_until(Topic::Launch);
    assert!(!heard.contains(&Topic::Finished(RUN)), "a topic of the refused job was announced: {heard:?}");
    assert!(!heard.contains(&Topic::Log(RunId(2))), "a topic of the refused job was announced: {heard:?}");
    commit(subject, |tx| touch_everything(tx, 2));
    assert_ne!(query(subject, |read| snapshot(read, 2)), before, "the next job starts without the rolled back changes");
}

/// Blocks the writer until the returned sender is dropped, so that other jobs queue up.
fn hold_the_writer(subject: &Subject<'_>) -> (Receiver<Result<(), Refusal>>, Sender<()>) {
    let (started_tx, started) = channel();
    let (go, wait) = channel::<()>();
    let held = submit(subject.store, move |_| {
        // The receiver is gone if the store runs the job a second time: do not block then.
        if started_tx.send(()).is_ok() {
            let _ = wait.recv_timeout(TIMEOUT);
        }
        Ok(())
    });
    await_one(&started);
    (held, go)
}

fn refused_among_others(subject: &Subject<'_>) {
    let (held, go) = hold_the_writer(subject);
    let results: Vec<_> = (0..100)
        .map(|n| {
            submit(subject.store, move |tx| {
                tx.append_log(RUN, NOW, &format!("{n} "))?;
                if n % 3 == 0 { Err(no()) } else { Ok(n) }
            })
        })
        .collect();
    drop(go);
    await_one(&held).expect("kept");
    let kept: Vec<_> = results.iter().filter_map(|result| await_one(result).ok()).collect();
    assert_eq!(kept, (0..100).filter(|n| n % 3 != 0).collect::<Vec<_>>());
    let log = query(subject, |read| read.log_after(RUN, 0.0, 1 << 20)).expect("a log");
    assert_eq!(log.text, kept.iter().map(|n| format!("{n} ")).collect::<String>());
}

fn one_moment(subject: &Subject<'_>) {
    commit(subject, |tx| touch_everything(tx, 1));
    let mut snapshots = Vec::new();
    let read = subject.store.read(&mut |read| {
        snapshots.push(snapshot(read, 2)?);
        change(subject.store, |tx| touch_everything(tx, 2))?;
        snapshots.push(snapshot(read, 2)?);
        Ok(())
    });
    read.expect("readers and writers do not block each other");
    assert_eq!(snapshots[0], snapshots[1], "the reader saw a change after its start");
    assert_ne!(query(subject, |read| snapshot(read, 2)), snapshots[0], "the next reader sees the change");
}

fn nothing_uncommitted(subject: &Subject<'_>) {
    commit(subject, |tx| touch_everything(tx, 1));
    let before = query(subject, |read| snapshot(read, 2));
    let (started_tx, written) = channel();
    let (go, wait) = channel::<()>();
    let result = submit(subject.store, move |tx| {
        touch_everything(tx, 2)?;
        if started_tx.send(()).is_ok() {
            let _ = wait.recv_timeout(TIMEOUT);
        }
        Ok(())
    });
    await_one(&written);
    assert_eq!(query(subject, |read| snapshot(read, 2)), before);
    drop((go, written));
    await_one(&result).expect("kept");
    assert_ne!(query(subject, |read| snapshot(read, 2)), before);
}

/// Signals its completion and blocks until it is released.
struct BlockingJob {
    done: Sender<Result<(), Refusal>>,
    release: Receiver<()>,
}

impl Job for BlockingJob {
    fn run(&mut self, tx: &mut dyn Tx) -> bool {
        touch_everything(tx, 1).is_ok()
    }

    fn done(self: Box<Self>, committed: Result<(), Refusal>) {
        let _ = self.done.send(committed);
        let _ = self.release.recv_timeout(TIMEOUT);
    }
}

fn done_after_visible(subject: &Subject<'_>) {
    let (reported, done) = channel();
    let (free, release) = channel();
    subject.store.submit(Box::new(BlockingJob { done: reported, release }));
    await_one(&done).expect("kept");
    // `done` has not returned yet: this detects a store that commits afterwards.
    assert!(query(subject, |read| read.run(RUN)).is_some(), "the job completed before readers could see it");
    drop(free);
    assert!(done.recv_timeout(TIMEOUT).is_err(), "the job completed twice");
}

fn announced(subject: &Subject<'_>) {
    let (held, go) = hold_the_writer(subject);
    for n in 0..50 {
        let _unheard = submit(subject.store, move |tx| {
            tx.wake(Topic::Replies(RunId(n)));
            tx.add_traffic(RunId(n), Traffic { bytes_sent: 1, bytes_received: 0 })?;
            if n % 2 == 0 { Ok(()) } else { Err(no()) }
        });
    }
    let topics = [Topic::Node(NODE), Topic::Launch, Topic::Log(RUN), Topic::Finished(RUN)];
    let _unheard = submit(subject.store, move |tx| {
        topics.into_iter().for_each(|topic| tx.wake(topic));
        Ok(())
    });
    drop(go);
    await_one(&held).expect("kept");
    let mut heard = Vec::new();
    while !topics.iter().all(|topic| heard.contains(topic)) {
        for topic in await_one(subject.announced) {
            if let Topic::Replies(run) = topic {
                assert_eq!(
                    query(subject, |read| read.traffic(run)).bytes_sent,
                    1,
                    "{run} was announced before its commit"
                );
            }
            heard.push(topic);
        }
    }
    let mut runs: Vec<u64> =
        heard.iter().filter_map(|t| if let Topic::Replies(run) = t { Some(run.0) } else { None }).collect();
    runs.sort_unstable();
    assert_eq!(runs, (0..50).step_by(2).collect::<Vec<_>>());
}

/// Reports each completion with its number.
struct Numbered {
    submitter: u64,
    number: u32,
    done: Sender<(u64, u32, bool)>,
}

impl Job for Numbered {
    fn run(&mut self, tx: &mut dyn Tx) -> bool {
        tx.append_log(RunId(self.submitter), NOW, &format!("{} ", self.number)).is_ok()
    }

    fn done(self: Box<Self>, committed: Result<(), Refusal>) {
        let _ = self.done.send((self.submitter, self.number, committed.is_ok()));
    }
}

fn many_submitters(subject: &Subject<'_>) {
    run_submitters(subject, |_| false);
}

/// Every second submitter defers its jobs.
fn patient(subject: &Subject<'_>) {
    let (tell, reported) = channel();
    subject.store.submit_deferred(Box::new(Numbered { submitter: 100, number: 0, done: tell }));
    assert_eq!(await_one(&reported), (100, 0, true), "without other jobs");
    run_submitters(subject, |submitter| submitter % 2 == 0);
}

fn run_submitters(subject: &Subject<'_>, has_time: fn(u64) -> bool) {
    const SUBMITTERS: u64 = 8;
    const JOBS: u32 = 200;
    let (done, all_done) = channel();
    let store = subject.store;
    let mut counts = BTreeMap::new();
    thread::scope(|scope| {
        for submitter in 0..SUBMITTERS {
            let done = done.clone();
            scope.spawn(move || {
                for number in 0..JOBS {
                    let job = Box::new(Numbered { submitter, number, done: done.clone() });
                    if has_time(submitter) { store.submit_deferred(job) } else { store.submit(job) }
                }
            });
        }
        drop(done);
        // The loop ends when the last job was dropped.
        while let Ok((submitter, number, committed)) = all_done.recv_timeout(TIMEOUT) {
            assert!(committed);
            *counts.entry((submitter, number)).or_insert(0) += 1;
            let log = ask(store, |read| read.log_after(RunId(submitter), 0.0, 1 << 20)).expect("readable");
            let line = format!(" {number} ");
            let seen = log.is_some_and(|log| format!(" {}", log.text).contains(&line));
            assert!(seen, "job {number} of {submitter} completed before readers could see it");
        }
    });
    assert_eq!(counts.len(), SUBMITTERS as usize * JOBS as usize);
    assert!(counts.values().all(|count| *count == 1));
    let expected: String = (0..JOBS).map(|number| format!("{number} ")).collect();
    for submitter in 0..SUBMITTERS {
        let log = query(subject, |read| read.log_after(RunId(submitter), 0.0, 1 << 20)).expect("a log");
        assert_eq!(log.text, expected, "the order of submitter {submitter}");
    }
}

fn refused_question(subject: &Subject<'_>) {
    commit(subject, |tx| touch_everything(tx, 1));
    for _ in 0..20 {
        let refusal = ask(subject.store, |read| read.run(RUN).and(Err::<(), _>(no())));
        assert_eq!(refusal.unwrap_err().kind, Kind::Denied);
    }
    assert!(query(subject, |read| read.run(RUN)).is_some());
    commit(subject, |tx| touch_everything(tx, 2));
}
