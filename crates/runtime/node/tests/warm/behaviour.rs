//! What apps see, and how their replies, exceptions and crashes are handled.

use std::collections::BTreeMap;

use trellis_node::app::InstalledApp;
use trellis_wire::object::{ConfigValue, MetricValue};
use trellis_wire::proto;

use crate::instruction::{Content, Instruction, NODE, TASK};
use crate::place::{Place, app, behaving, crashed, ended, lasting, releases, replied};

fn config(entries: &[(&str, &str)]) -> BTreeMap<String, proto::Scalar> {
    let scalar = |text: &str| proto::Scalar { scalar: Some(proto::scalar::Scalar::String(text.to_owned())) };
    entries.iter().map(|(name, value)| ((*name).to_owned(), scalar(value))).collect()
}

#[tokio::test]
async fn an_app_is_loaded_once_and_keeps_its_context() {
    for release in releases() {
        let place = Place::new(&release.python, lasting());
        let mut context = Instruction::new(9, "count").context;
        context.run_config = config(&[("rate", "0.1")]);
        context.node_config = config(&[("partition", "3")]);
        // Available from 1.31 on.
        let series_id = if release.minor() < 31 { 0 } else { 12 };
        context.series_id = series_id;
        let mut seen = Vec::new();
        for count in 1..=3 {
            let reply = place.reply(Instruction::new(9, "count").context(context)).await;
            let content = Content::of(&reply, &place.objects);
            assert_eq!(content.number("count"), count, "{release:?}");
            seen.push((content.number("pid"), content.number("loaded")));
            context = reply.context;
        }
        assert_eq!(seen, [seen[0]; 3], "{release:?}");
        assert_eq!((context.run_id, context.node_id), (9, NODE));
        assert_eq!(context.series_id, series_id);
        assert_eq!(context.run_config, config(&[("rate", "0.1")]));

        let content = place.content(Instruction::new(9, "configured").context(context)).await;
        let text = |record: &str, name: &str| match &content.config[record][name] {
            ConfigValue::String(text) => text.clone(),
            other => format!("{other:?}"),
        };
        assert_eq!((text("run", "rate"), text("node", "partition")), ("0.1".to_owned(), "3".to_owned()));
        assert_eq!(text("directory", "now"), place.directory.path().to_str().unwrap());
        assert_eq!(text("directory", "home"), "set");
    }
}

#[tokio::test]
async fn a_reply_has_the_metadata_of_its_instruction() {
    for release in releases() {
        let place = Place::new(&release.python, lasting());
        let job = Instruction::new(9, "count").job(&place.objects, behaving());
        let asked = job.metadata().clone();
        let reply = replied(place.apps.execute(job).await);
        let metadata = reply.message.metadata.unwrap();
        assert_eq!(metadata.message_id, reply.tree.object_id);
        assert_eq!(metadata.reply_to_message_id, asked.message_id);
        assert_eq!((metadata.run_id, metadata.src_node_id, metadata.dst_node_id), (9, NODE, 1));
        assert_eq!((metadata.group_id.as_str(), metadata.message_type.as_str()), ("4", "train"));
        assert!(metadata.created_at > asked.created_at);
        assert!(metadata.ttl > 3000.0 && metadata.ttl < 3600.0, "{}", metadata.ttl);
        // Available from 1.31 on.
        assert_eq!(metadata.dst_task_id, (release.minor() >= 31).then_some(TASK), "{release:?}");
        assert_eq!(reply.message.content, Some(proto::RecordDict::default()));
        assert!(reply.runtime_s > 0.0 && reply.runtime_s < 60.0);
    }
}

#[tokio::test]
async fn an_exception_of_an_app_is_an_error_reply() {
    for release in releases() {
        let place = Place::new(&release.python, lasting());
        let reply = place.reply(Instruction::new(9, "raises")).await;
        let error = reply.message.error.unwrap();
        assert_eq!(error.code, 2);
        assert_eq!(error.reason, "<class 'ZeroDivisionError'>:<'nothing to divide by'>");
        assert_eq!(reply.message.content, None);
        // As with official apps, changes of the context before the exception are kept.
        let content = place.content(Instruction::new(9, "count").context(reply.context)).await;
        assert_eq!(content.number("count"), 42);
        assert_eq!(place.apps.status()[0].messages, 2);
    }
}

#[tokio::test]
async fn an_app_that_cannot_be_loaded_is_retried_in_a_new_process() {
    for release in releases() {
        let place = Place::new(&release.python, lasting());
        let missing = "<class 'ModuleNotFoundError'>:<'No module named 'a_module_that_nobody_has''>";
        let general = "An exception was raised when attempting to load `ClientApp`";
        // Newer releases do not distinguish a missing module from other exceptions.
        let broken = if release.minor() < 36 { (1, general) } else { (2, missing) };
        for (reference, want) in [("broken:app", broken), ("not_an_app:app", (1, general)), ("broken", (1, general))] {
            let reply = replied(place.execute_with(Instruction::new(9, "count"), app(reference)).await);
            let error = reply.message.error.unwrap();
            assert_eq!((error.code, error.reason.as_str()), want, "{reference} {release:?}");
            assert!(place.resting().is_empty());
        }
        let reason = crashed(place.execute_with(Instruction::new(9, "count"), app("leaves_early:app")).await);
        assert_eq!(reason, "ClientApp called sys.exit('no licence'); its last output:\nno licence");
        place.pid_of(9).await;
    }
}

#[tokio::test]
async fn a_crash_is_described_and_affects_one_instruction() {
    for release in releases() {
        let place = Place::new(&release.python, lasting());
        let cases = [
            ("leaves", "ClientApp called sys.exit(3); its last output:\nleaving", ""),
            ("leaves_at_once", "ClientApp ended with exit code 4; its last output:\ngone without a word", ""),
            ("crashes", "ClientApp ended with signal 11 (SIGSEGV); its last output:\n", "behaving.py"),
            ("killed", "ClientApp ended with signal 9 (SIGKILL), as when memory runs out, without any output", ""),
        ];
        for (what, start, within) in cases {
            let before = place.pid_of(9).await;
            let reason = crashed(place.execute(Instruction::new(9, what)).await);
            assert!(reason.starts_with(start) && reason.contains(within), "{what} {release:?}: {reason}");
            assert_eq!(place.apps.status(), []);
            ended(before).await;
        }
        assert_eq!(place.pid_of(9).await, place.apps.status()[0].pid);
    }
}

#[tokio::test]
async fn an_invalid_answer_is_refused() {
    for release in releases() {
        let place = Place::new(&release.python, lasting());
        let reason = crashed(place.execute(Instruction::new(9, "answers_wrongly")).await);
        assert!(reason.contains("the ClientApp returned a <class 'str'>, not a Message"), "{reason}");
        let reason = crashed(place.execute(Instruction::new(9, "cannot_be_encoded")).await);
        assert!(reason.contains("its reply cannot be sent: <class 'RuntimeError'>:<'not today'>"), "{reason}");
        let reason = crashed(place.execute(Instruction::new(9, "answers_another")).await);
        assert!(reason.contains("a message that is not a reply to the instruction"), "{reason}");
        place.pid_of(9).await;
    }
}

#[tokio::test]
async fn output_and_forks_do_not_disturb_the_protocol() {
    for release in releases() {
        let place = Place::new(&release.python, lasting());
        assert_eq!(place.content(Instruction::new(9, "prints")).await.number("input"), 0);
        let content = place.content(Instruction::new(9, "forks")).await;
        assert_eq!(content.number("squared"), 49);
        place.apps.close().await;
        ended(content.number("left_behind") as u32).await;
    }
}

#[tokio::test]
async fn an_app_with_torch_gets_its_limit_on_every_gpu() {
    for release in releases() {
        let place = Place::new(&release.python, lasting());
        let directory = behaving().directory.with_file_name("app_with_torch");
        let limited = InstalledApp { directory, ..app("limited:app") };
        let reply = replied(place.execute_with(Instruction::new(9, ""), limited).await);
        let limits = &Content::of(&reply, &place.objects).metrics["metrics"];
        assert_eq!(limits["gpu-0"], MetricValue::Double(0.25));
        assert_eq!(limits["gpu-1"], MetricValue::Double(0.25));
    }
}
