//! `trellis model` from a shell: output, files, exit codes.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use trellis_models::{App, Checkpoint, Manifest, Measured, ModelStore, Origin, read_model};
use trellis_strategy::{Layout, Model, Slot, State};
use trellis_wire::records::Dtype;

const BINARY: &str = env!("CARGO_BIN_EXE_trellis");

struct Shell {
    home: TempDir,
}

impl Shell {
    /// With two checkpoints of run 4711, and one of run 42 that it was resumed from.
    fn new() -> Shell {
        let shell = Shell { home: tempfile::tempdir().expect("a temporary directory") };
        for (run, round) in [("42", 5), ("4711", 10), ("4711", 20)] {
            shell.store().save(&checkpoint(run, round)).expect("saved");
        }
        shell
    }

    fn store(&self) -> ModelStore {
        ModelStore::new(self.home.path().join(".local/state/trellis/superlink/models"))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(BINARY);
        command.env_clear().env("HOME", self.home.path()).current_dir(self.home.path()).stdin(Stdio::null());
        command.arg("model").args(line.split_whitespace()).output().expect("the binary runs")
    }

    /// The output of a command that must succeed.
    fn good(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.good(&format!("{line} -o json"))).expect("JSON")
    }

    /// The error of a command that must fail with a code.
    fn bad(&self, code: i32, line: &str) -> String {
        let output = self.run(line);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), ""), "{line}");
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn checkpoint(run: &str, round: u64) -> Checkpoint {
    let slot = |name: &str, dtype, shape: &[usize]| Slot { name: name.to_owned(), dtype, shape: shape.to_vec() };
    let layout = Layout(vec![
        slot("fc.weight", Dtype::F32, &[2, 3]),
        slot("fc.scale", Dtype::Bf16, &[2]),
        slot("steps", Dtype::I64, &[]),
    ]);
    let arrays = layout.0.iter().map(|slot| vec![1; slot.bytes()].into()).collect();
    let measured = Measured {
        round,
        train: [("loss".to_owned(), 0.5)].into(),
        evaluate: [("accuracy".to_owned(), 0.9375), ("loss".to_owned(), f64::NAN)].into(),
    };
    let manifest = Manifest {
        run_id: run.to_owned(),
        round,
        rounds_planned: 20,
        is_final: round == 20,
        strategy: "FedAdam".to_owned(),
        seed: 7,
        metrics: measured.clone(),
        history: vec![measured],
        app: App { fab_id: "ada/digits".to_owned(), fab_version: "1.0.0".to_owned(), fab_hash: "5e1f".to_owned() },
        resumed_from: (run == "4711").then(|| Origin { run: "42".to_owned(), round: 5, before: None }),
        saved_at: 1_763_197_200.0 + round as f64,
        ..Manifest::default()
    };
    let state = State { numbers: [("clipping-norm".to_owned(), 0.25)].into(), ..State::default() };
    Checkpoint { manifest, model: Model { layout: Arc::new(layout), arrays }, state }
}

#[test]
fn the_list_is_for_people_and_for_programs() {
    let shell = Shell::new();
    let expected = "\
FEDERATION  RUN   ROUND  STRATEGY  SAVED                 SIZE   STATE   METRICS
-           42    5/20   FedAdam   2025-11-15 09:00:05Z  444 B  latest  accuracy 0.9375
-           4711  10/20  FedAdam   2025-11-15 09:00:10Z  444 B  -       accuracy 0.9375
-           4711  20/20  FedAdam   2025-11-15 09:00:20Z  444 B  final   accuracy 0.9375
";
    assert_eq!(shell.good("ls"), expected);
    assert_eq!(shell.good("ls 42").lines().count(), 2);
    let listed = shell.json("ls 4711");
    assert_eq!(listed["checkpoints"][1]["round"], 20);
    assert_eq!(listed["checkpoints"][1]["final"], true);
    assert!(shell.good("ls 42 -o yaml").contains("\n  - run_id: \"42\"\n    round: 5\n"));
}

#[test]
fn an_empty_list_says_where_it_looked() {
    let shell = Shell::new();
    let remark = |line: &str| {
        let output = shell.run(line);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b""[..]), "{line}");
        text(&output.stderr)
    };
    assert!(remark("ls 7").contains("No checkpoints of run 7 in"));
    assert!(
        remark("ls --models elsewhere").contains("No checkpoints in elsewhere; select another directory with --models")
    );
}

/// Of federations on this machine, of runs in the process of `trellis run`, and of a SuperLink that was started by hand.
#[test]
fn models_of_all_federations_are_found_and_removed() {
    let shell = Shell::new();
    let home = shell.path(".local/state/trellis/models");
    for (federation, run) in [("lab", "5501"), ("ward", "5502"), ("_in-process", "6000")] {
        ModelStore::new(home.join(federation)).save(&checkpoint(run, 20)).expect("saved");
    }
    let listed = shell.json("ls");
    let found = |line: &Value| {
        (line["federation"].as_str().unwrap_or("").to_owned(), line["run_id"].as_str().unwrap().to_owned())
    };
    let found: Vec<(String, String)> = listed["checkpoints"].as_array().unwrap().iter().map(found).collect();
    for expected in [("lab", "5501"), ("ward", "5502"), ("_in-process", "6000"), ("", "4711")] {
        assert!(found.contains(&(expected.0.to_owned(), expected.1.to_owned())), "{expected:?} is not in {found:?}");
    }
    assert_eq!(shell.json("ls --federation lab")["checkpoints"].as_array().map(Vec::len), Some(1));
    assert!(shell.good("show 60").starts_with("Run         6000\n"), "by a prefix of its id");
    assert!(shell.bad(2, "show 55").contains("2 ids begin with 55: 5501, 5502"));
    assert!(shell.bad(1, "rm 5501 7").contains("run 7 has no checkpoints"));
    assert!(shell.bad(1, "rm 4711@11").contains("it has checkpoints of rounds 10, 20"));
    assert_eq!(shell.good("rm 5501 4711@20"), "5501@20 removed\n4711@20 removed\n");
    assert_eq!(shell.json("rm 4711")["items"][0]["rounds"], serde_json::json!([10]));
    let left = shell.json("ls")["checkpoints"].as_array().map(Vec::len);
    assert_eq!((left, home.join("lab/5501").exists()), (Some(3), false));
}

#[test]
fn a_checkpoint_is_shown_with_all_that_is_known_of_it() {
    let shell = Shell::new();
    let shown = shell.good("show 4711");
    for line in [
        "Run         4711\n",
        "Round       20 of 20, the last\n",
        "Strategy    FedAdam, seed 7\n",
        "App         ada/digits 1.0.0 (5e1f)\n",
        "Lineage     resumed from 42@5\n",
        "Evaluation  accuracy 0.9375, loss NaN\n",
        "Remembers   clipping-norm 0.25\n",
        "(verified)\n",
        "Model       3 arrays, 9 elements, 36 B\n",
        "fc.weight  float32   2 x 3   24\n",
        "steps      int64     scalar  8\n",
    ] {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
    let shown = shell.json("show 4711@10");
    assert_eq!((&shown["round"], &shown["verified"]), (&10.into(), &true.into()));
    assert_eq!(shown["arrays"][0]["shape"], serde_json::json!([2, 3]));
    assert_eq!(shown["metrics"]["evaluate"]["loss"], "NaN");
    let path = shown["path"].as_str().expect("a path").to_owned();
    assert_eq!(shell.json(&format!("show {path}"))["run_id"], "4711");
}

#[test]
fn a_damaged_checkpoint_is_told_and_the_one_before_is_shown() {
    let shell = Shell::new();
    let damaged = shell.store().root().join("4711/round-000020/model.safetensors");
    fs::write(&damaged, b"short").expect("written");
    let output = shell.run("show 4711 -o json");
    assert!(text(&output.stderr).contains("skipped a newer one: the checkpoint"), "{}", text(&output.stderr));
    let shown: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    assert_eq!(shown["round"], 10);
    assert!(shown["skipped"][0]["problem"].as_str().expect("text").contains("it has 5 bytes"));
    assert!(shell.bad(1, "show 4711@20").contains("is damaged"));
    fs::remove_file(damaged.with_file_name("manifest.json")).expect("removed");
    assert!(shell.good("ls 4711").contains("damaged  the checkpoint"));
}

#[test]
fn exports_appear_whole_and_overwrite_nothing_unasked() {
    let shell = Shell::new();
    let told = shell.good("export 4711@10 --out model.safetensors");
    assert!(told.starts_with("4711@10 is in model.safetensors ("), "{told}");
    let exported = read_model(shell.path("model.safetensors")).expect("a model");
    assert_eq!(exported, checkpoint("4711", 10).model);

    let complaint = shell.bad(2, "export 4711 --out model.safetensors");
    assert!(complaint.contains("model.safetensors exists") && complaint.contains("--force"), "{complaint}");
    shell.good("export 42 --out model.safetensors --format npz --positional --force");
    let names: Vec<String> = read_model(shell.path("model.safetensors"))
        .expect("npz")
        .layout
        .0
        .iter()
        .map(|slot| slot.name.clone())
        .collect();
    assert_eq!(names, ["0", "1", "2"]);

    let output = shell.run("export 4711 --out model.npz");
    assert_eq!(
        text(&output.stderr),
        "note: numpy has no bfloat16: written as float32, with the same values: fc.scale\n"
    );
    shell.good("export 4711 --out model.pt");
    assert!(shell.path("model.pt").is_file());
}

#[test]
fn all_mistakes_are_told_at_once_with_what_to_do() {
    let shell = Shell::new();
    fs::write(shell.path("model.pt"), b"").expect("written");
    let complaint = shell.bad(2, "export 4711 --out model.pt --positional");
    for told in ["2 problems", "--positional is for npz only", "model.pt exists"] {
        assert!(complaint.contains(told), "{told}: {complaint}");
    }
    assert!(shell.bad(2, "export 4711 --out model").contains("give --format safetensors, npz or pytorch"));
    assert!(shell.bad(2, "show 4711@last").contains("write RUN@ROUND"));
    assert!(shell.bad(2, "show .hidden").contains("is not a valid run id"));
    assert!(shell.bad(1, "show 4711@3").contains("it has checkpoints of rounds 10, 20"));
    assert!(shell.bad(1, "show 5").contains("run 5 has no checkpoints"));
    assert!(shell.bad(1, "export 4711 --out nowhere/model.npz").contains("cannot write"));
}
