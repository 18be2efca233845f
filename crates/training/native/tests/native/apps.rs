//! The built-in apps end to end: messages with objects in, messages with objects out.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fs;

use bytes::Bytes;
use trellis_core::id::ObjectId;
use trellis_native::{
    AppError, ClientApp, Context, Handled, Instruction, NotHandled, Stop, builtin, builtins, handle_message,
};
use trellis_wire::object::{ConfigRecord, Entries, MetricRecord, MetricValue};
use trellis_wire::proto::{self, Scalar, scalar};
use trellis_wire::records::{Array, Arrays, FetchError, Outgoing, Record, Records, Tensor, inflate, message};

const NOW: f64 = 1_763_221_300.0;

fn settings(given: &[(&str, &str)]) -> BTreeMap<String, String> {
    given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn app(name: &str, given: &[(&str, &str)]) -> Box<dyn ClientApp> {
    builtin(name, &settings(given)).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn problems(name: &str, given: &[(&str, &str)]) -> Vec<String> {
    builtin(name, &settings(given)).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

fn int(number: i64) -> Scalar {
    Scalar { scalar: Some(scalar::Scalar::Sint64(number)) }
}

fn partition(id: i64, of: i64) -> BTreeMap<String, Scalar> {
    BTreeMap::from([("partition-id".to_owned(), int(id)), ("num-partitions".to_owned(), int(of))])
}

fn round(number: i64) -> Record {
    ConfigRecord(Entries::default().with("server-round", number)).into()
}

fn instruction(message_type: &str, records: &Records) -> Outgoing {
    let metadata = proto::Metadata {
        run_id: 5,
        src_node_id: 1,
        dst_node_id: 77,
        group_id: "g".into(),
        ttl: 3600.0,
        message_type: message_type.into(),
        created_at: NOW - 100.0,
        ..proto::Metadata::default()
    };
    message(metadata, records)
}

fn fetched(objects: &[(ObjectId, Bytes)]) -> impl FnMut(ObjectId) -> Result<Bytes, FetchError> {
    let objects: HashMap<ObjectId, Bytes> = objects.iter().cloned().collect();
    move |id| objects.get(&id).cloned().ok_or_else(|| "missing".into())
}

fn handle(app: &dyn ClientApp, sent: &Outgoing, context: &proto::Context) -> Result<Handled, NotHandled> {
    let fetch = &mut fetched(&sent.objects);
    handle_message(app, &sent.message, &sent.tree, context, &Stop::default(), fetch, &|| NOW)
}

fn content(reply: &Outgoing) -> Result<Records, String> {
    if let Some(error) = &reply.message.error {
        assert_eq!(error.code, 2);
        return Err(error.reason.clone());
    }
    Ok(inflate(reply.tree.object_id.parse().unwrap(), &mut fetched(&reply.objects)).unwrap())
}

/// Sends one message to an app on a node; returns the content of its reply.
fn ask(
    app: &dyn ClientApp,
    message_type: &str,
    records: &Records,
    node_config: &BTreeMap<String, Scalar>,
) -> Result<Records, String> {
    let context = proto::Context { node_config: node_config.clone(), ..proto::Context::default() };
    content(&handle(app, &instruction(message_type, records), &context).unwrap().reply)
}

fn float(metrics: &MetricRecord, name: &str) -> f64 {
    match metrics.0.get(name) {
        Some(MetricValue::Double(number)) => *number,
        other => panic!("{name} is {other:?}"),
    }
}

fn num_examples(records: &Records) -> i64 {
    match records.metrics("metrics").unwrap().0.get("num-examples") {
        Some(MetricValue::Sint64(number)) => *number,
        other => panic!("{other:?}"),
    }
}

/// Arrays by name, with their shapes and numbers.
type Model = Vec<(String, Vec<usize>, Vec<f32>)>;

fn values(arrays: &Arrays) -> Model {
    let read = |(name, array): &(String, _)| {
        let tensor = Array::tensor(array).unwrap();
        (name.clone(), tensor.shape().to_vec(), tensor.values().to_f32().unwrap())
    };
    arrays.iter().map(read).collect()
}

/// The mean of models, weighted by examples.
fn averaged(replies: &[Records]) -> Arrays {
    let total: i64 = replies.iter().map(num_examples).sum();
    let mut mean: Option<Model> = None;
    for reply in replies {
        let weight = num_examples(reply) as f32 / total as f32;
        let mut model = values(reply.arrays("arrays").unwrap());
        model.iter_mut().for_each(|(_, _, numbers)| numbers.iter_mut().for_each(|number| *number *= weight));
        mean = Some(match mean {
            None => model,
            Some(mut mean) => {
                for ((_, _, sum), (_, _, numbers)) in mean.iter_mut().zip(model) {
                    sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
                }
                mean
            }
        });
    }
    let arrays = mean.unwrap().into_iter();
    arrays.fold(Arrays::default(), |all, (name, shape, numbers)| all.with(name, Tensor::new(shape, numbers).unwrap()))
}

/// FedAvg on five nodes; returns the accuracy over all their test examples.
fn federated(app: &dyn ClientApp, rounds: i64) -> f64 {
    const NODES: i64 = 5;
    let init = ask(app, "query.init", &Records::default(), &partition(0, NODES)).unwrap();
    let mut model = init.arrays("arrays").unwrap().clone();
    let sent = |model: &Arrays, number| Records::default().with("arrays", model.clone()).with("config", round(number));
    for number in 1..=rounds {
        let instruction = sent(&model, number);
        let replies: Vec<Records> =
            (0..NODES).map(|id| ask(app, "train", &instruction, &partition(id, NODES)).unwrap()).collect();
        model = averaged(&replies);
    }
    let instruction = sent(&model, rounds);
    let replies: Vec<Records> =
        (0..NODES).map(|id| ask(app, "evaluate", &instruction, &partition(id, NODES)).unwrap()).collect();
    let total: i64 = replies.iter().map(num_examples).sum();
    let found = |reply: &Records| float(reply.metrics("metrics").unwrap(), "eval_acc") * num_examples(reply) as f64;
    replies.iter().map(found).sum::<f64>() / total as f64
}

#[test]
fn five_nodes_learn_the_digits_together() {
    for (name, partition, rounds, expected) in [
        ("mlp", "iid", 4, 0.88),
        ("logistic", "iid", 4, 0.88),
        ("mlp", "dirichlet:0.5", 8, 0.85),
        ("mlp", "by-label:4", 12, 0.75),
    ] {
        let app = app(name, &[("partition", partition), ("local-epochs", "3")]);
        let accuracy = federated(&*app, rounds);
        assert!(accuracy > expected, "{name} {partition}: {accuracy}");
    }
}

#[test]
fn a_train_reply_has_the_records_that_strategies_expect() {
    let app = app("mlp", &[("hidden", "8")]);
    let node = partition(1, 3);
    let init = ask(&*app, "query.init", &Records::default(), &node).unwrap();
    assert_eq!(init.names().collect::<Vec<_>>(), ["arrays"]);
    let model = init.arrays("arrays").unwrap();
    assert_eq!(model.names().collect::<Vec<_>>(), ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]);
    let seeded = Records::default().with("config", ConfigRecord(Entries::default().with("seed", 9i64)));
    assert_ne!(ask(&*app, "query.init", &seeded, &node).unwrap(), init);

    let sent = instruction("train", &init.clone().with("config", round(1)));
    let context =
        proto::Context { run_id: 5, node_id: 77, node_config: node.clone(), series_id: 3, ..Default::default() };
    let Handled { reply, context: after } = handle(&*app, &sent, &context).unwrap();
    let metadata = reply.message.metadata.clone().unwrap();
    assert_eq!((metadata.src_node_id, metadata.dst_node_id, metadata.message_type.as_str()), (77, 1, "train"));
    assert_eq!(Some(metadata.reply_to_message_id), sent.message.metadata.map(|metadata| metadata.message_id));
    assert_eq!((metadata.created_at, metadata.ttl), (NOW, 3500.0));
    assert_eq!(after, proto::Context { state: Some(proto::RecordDict::default()), ..context });
    let trained = content(&reply).unwrap();
    assert_eq!(trained.names().collect::<Vec<_>>(), ["arrays", "metrics"]);
    assert_eq!(trained.arrays("arrays").unwrap().names().collect::<Vec<_>>(), model.names().collect::<Vec<_>>());
    assert_ne!(trained.arrays("arrays"), Some(model));
    let metrics = trained.metrics("metrics").unwrap();
    assert_eq!(metrics.0.names().collect::<Vec<_>>(), ["train_loss", "num-examples"]);
    assert_eq!(num_examples(&trained), 480, "1797 / 3, minus the test fifth");

    let evaluated = ask(&*app, "evaluate", &init, &node).unwrap();
    let metrics = evaluated.metrics("metrics").unwrap();
    assert_eq!(metrics.0.names().collect::<Vec<_>>(), ["eval_loss", "eval_acc", "num-examples"]);
    assert_eq!((evaluated.len(), num_examples(&evaluated)), (1, 119));
}

#[test]
fn models_from_python_lists_and_other_float_types_are_accepted() {
    let app = app("logistic", &[]);
    let zeros = |names: [&str; 2]| {
        Arrays::default()
            .with(names[0], Tensor::new(vec![10, 64], vec![0.0f64; 640]).unwrap())
            .with(names[1], Tensor::new(vec![10], vec![0.0f32; 10]).unwrap())
    };
    let train = |names| {
        let records = ask(&*app, "train", &Records::default().with("arrays", zeros(names)), &BTreeMap::new()).unwrap();
        records.arrays("arrays").unwrap().clone()
    };
    let (named, numbered) = (train(["weight", "bias"]), train(["0", "1"]));
    assert_eq!(numbered.names().collect::<Vec<_>>(), ["0", "1"]);
    assert_eq!(named.get("weight"), numbered.get("0"));
    assert_eq!(named.get("weight").unwrap().dtype, "float32");
}

#[test]
fn errors_about_models_state_the_expected_parameters() {
    let app = app("logistic", &[]);
    let whole = BTreeMap::new();
    let found = |records: &Records| ask(&*app, "train", records, &whole).unwrap_err();
    let expected = "expected: weight float32 [10, 64], bias float32 [10]";
    assert_eq!(
        found(&Records::default().with("model", Arrays::default())),
        format!("the message has no ArrayRecord \"arrays\" with a model (its records: model); {expected}")
    );
    let model = |weight: Tensor, bias: &str| {
        let bias = Arrays::default().with("weight", weight).with(bias, Tensor::new(vec![10], vec![0f32; 10]).unwrap());
        Records::default().with("arrays", bias)
    };
    let weight = |shape: Vec<usize>| Tensor::new(shape.clone(), vec![0f32; shape.iter().product()]).unwrap();
    assert_eq!(
        found(&model(weight(vec![64, 10]), "bias")),
        format!(
            "the array \"weight\" has the wrong shape; {expected}; \
             received: weight float32 [64, 10], bias float32 [10]"
        )
    );
    assert!(found(&model(weight(vec![10, 64]), "b")).starts_with("the array \"bias\" is missing; expected"));
    let integers = Tensor::new(vec![10, 64], vec![0i32; 640]).unwrap();
    assert!(found(&model(integers, "bias")).starts_with("the array \"weight\" is not of floats; expected"));
    let infinite = Tensor::new(vec![10, 64], vec![f32::INFINITY; 640]).unwrap();
    assert_eq!(found(&model(infinite, "bias")), "the array \"weight\" contains non-finite values");
    let empty = Records::default().with("arrays", Arrays::default());
    assert!(found(&empty).starts_with("the model has 0 arrays where 2 were expected"), "{}", found(&empty));
}

#[test]
fn invalid_partitions_and_message_types_are_refused() {
    let app = app("logistic", &[]);
    let init = ask(&*app, "query.init", &Records::default(), &BTreeMap::new()).unwrap();
    let found = |message_type, node: &BTreeMap<_, _>| ask(&*app, message_type, &init, node).unwrap_err();
    assert!(
        found("train", &partition(3, 3)).starts_with("partition-id 3 of the node is not below its num-partitions 3")
    );
    assert!(found("train", &partition(0, 1000)).starts_with("1797 examples are too few for 1000 partitions"));
    let mut half = partition(0, 2);
    half.remove("num-partitions");
    assert!(found("evaluate", &half).starts_with("the node config has partition-id but no num-partitions"));
    assert!(found("train", &partition(-1, 3)).starts_with("partition-id in the node config must be"));
    assert!(found("query", &half).ends_with("it handles train, evaluate, query.init"));
    assert!(found("train.more", &half).starts_with("this app does not handle train.more"));
    assert!(found("system", &half).starts_with("messages of the type \"system\" are not for apps"));
}

#[test]
fn echo_returns_the_received_model() {
    let app = app("echo", &[("num-examples", "12")]);
    let model = Arrays::default().with("x", Tensor::new(vec![3], vec![1i8, 2, 3]).unwrap());
    let records = Records::default().with("any", model.clone()).with("config", round(1));
    let reply = ask(&*app, "train", &records, &BTreeMap::new()).unwrap();
    assert_eq!((reply.arrays("any"), reply.len(), num_examples(&reply)), (Some(&model), 2, 12));
    let reply = ask(&*app, "evaluate", &records, &BTreeMap::new()).unwrap();
    assert_eq!((reply.len(), num_examples(&reply)), (1, 12));
}

/// Counts its instructions in the state. The action `fail` changes the state and then fails.
struct Counter;

impl ClientApp for Counter {
    fn handle(&self, instruction: Instruction<'_>, context: &mut Context) -> Result<Records, AppError> {
        instruction.stop.check()?;
        let count = context.state.metrics("seen").map_or(0, |seen| match seen.0.get("count") {
            Some(MetricValue::Sint64(count)) => *count,
            _ => 0,
        });
        let seen = MetricRecord(Entries::default().with("count", count + 1));
        context.state.insert("seen", seen.clone());
        if instruction.action == Some("fail") {
            return Err(AppError::failed("as requested"));
        }
        Ok(Records::default()
            .with("round", MetricRecord(Entries::default().with("round", instruction.round.unwrap())))
            .with("seen", seen))
    }
}

#[test]
fn state_is_preserved_unless_the_app_fails() {
    let records = Records::default().with("config", round(8));
    let mut context = proto::Context { run_id: 1, ..Default::default() };
    let mut counts = Vec::new();
    for message_type in ["train", "query.fail", "train", "evaluate"] {
        let handled = handle(&Counter, &instruction(message_type, &records), &context).unwrap();
        context = handled.context;
        counts.push(content(&handled.reply).map(|records| records.metrics("seen").unwrap().0.get("count").cloned()));
    }
    let count = |number| Ok(Some(MetricValue::Sint64(number)));
    assert_eq!(counts, [count(1), Err("as requested".to_owned()), count(2), count(3)]);
}

#[test]
fn failures_of_the_node_are_errors_and_not_replies() {
    let sent = instruction("train", &Records::default().with("config", round(1)));
    let run = |sent: &Outgoing, objects: &[(ObjectId, Bytes)], stop: &Stop| {
        let clock = Cell::new(0);
        let now = || {
            clock.set(clock.get() + 1);
            NOW
        };
        let handled = handle_message(
            &Counter,
            &sent.message,
            &sent.tree,
            &proto::Context::default(),
            stop,
            &mut fetched(objects),
            &now,
        );
        assert_eq!(clock.get(), i32::from(handled.is_ok()), "the clock is read once, for the reply");
        handled
    };
    let never = Stop::default();
    assert!(matches!(run(&sent, &sent.objects[1..], &never), Err(NotHandled::Content(_))));
    let stopped = Stop::default();
    stopped.stop();
    assert!(matches!(run(&sent, &sent.objects, &stopped), Err(NotHandled::Stopped)));
    let blank = Outgoing { message: proto::Message::default(), ..sent.clone() };
    assert!(matches!(run(&blank, &sent.objects, &never), Err(NotHandled::Incomplete)));
    // Unreadable content is answered with an error reply, which tells the sender.
    let mut broken = sent.objects.clone();
    broken[0].1 = Bytes::from_static(b"ConfigRecord  1\0x");
    let handled = run(&sent, &broken, &never).unwrap();
    let found = content(&handled.reply).unwrap_err();
    assert!(found.starts_with("the content of the message cannot be read: object"), "{found}");
}

#[test]
fn all_errors_of_settings_are_reported_at_once() {
    assert_eq!(problems("logistik", &[]), ["app: there is no native app \"logistik\" (to do: did you mean logistic?)"]);
    assert_eq!(problems("cnn", &[]), ["app: there is no native app \"cnn\" (to do: there are logistic, mlp, echo)"]);
    let given = [
        ("batchsize", "3"),
        ("lr", "-1"),
        ("learning-rate", "1"),
        ("partition", "dirichlet"),
        ("hidden", "0"),
        ("label", "x"),
        ("test-fraction", "1"),
        ("zzz", ""),
    ];
    let found = problems("mlp", &given);
    let places: Vec<&str> = found.iter().map(|problem| problem.split(':').next().unwrap()).collect();
    assert_eq!(places, ["batchsize", "lr", "zzz", "hidden", "label", "partition", "test-fraction"], "{found:#?}");
    assert!(found[0].ends_with("did you mean batch-size?)"));
    assert!(found[1].contains("the same setting as lr"), "{found:?}");
    assert_eq!(
        found[3],
        "hidden: \"0\" cannot be used (to do: write a whole number from 1 to 65536, or leave it out for 64)"
    );
    assert!(problems("echo", &[("lr", "1")])[0].ends_with("(to do: known are num-examples, vary)"));
}

#[test]
fn every_app_works_as_described() {
    for described in builtins() {
        let defaults: Vec<(&str, &str)> =
            described.settings.iter().map(|setting| (setting.name, setting.default)).collect();
        let explicit: Vec<(&str, &str)> = defaults
            .into_iter()
            .filter(|(name, _)| *name != "scale" && *name != "label" && *name != "classes")
            .collect();
        app(described.name, &[]);
        app(described.name, &explicit);
    }
}

#[test]
fn a_table_can_be_learned() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("points.csv");
    // Points above and below a line, with large offsets and different scales.
    let row = |i: i32| {
        let (x, y) = (f64::from(i % 20), f64::from(i / 20));
        format!("{},{},{}\n", 1000.0 + x, y / 1000.0, if x > y { "right" } else { "left" })
    };
    fs::write(&path, format!("x,y,side\n{}", (0..400).map(row).collect::<String>())).unwrap();
    let dataset = format!("csv:{}", path.display());
    let learned = |given: &[(&str, &str)]| {
        let given = [&[("dataset", dataset.as_str()), ("local-epochs", "20")], given].concat();
        let app = app("logistic", &given);
        let init = ask(&*app, "query.init", &Records::default(), &BTreeMap::new()).unwrap();
        let trained = ask(&*app, "train", &init, &BTreeMap::new()).unwrap();
        let evaluated = ask(&*app, "evaluate", &trained, &BTreeMap::new()).unwrap();
        float(evaluated.metrics("metrics").unwrap(), "eval_acc")
    };
    let accuracy = learned(&[]);
    assert!(accuracy > 0.95, "{accuracy}");
    // Without scaling, training fails: the setting has an effect.
    let unscaled = learned(&[("scale", "none")]);
    assert!(unscaled < 0.9, "{unscaled}");
    assert!(learned(&[("classes", "left,right,other")]) > 0.95);
    let found = problems("logistic", &[("dataset", &dataset), ("label", "sude"), ("lr", "x")]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        problems("mlp", &[("dataset", "csv:")]),
        ["dataset: \"csv:\" cannot be used (to do: write digits or csv:PATH, or leave it out for digits)"]
    );
}
