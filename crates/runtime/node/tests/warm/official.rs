//! Executes the same instruction with a worker and with the functions of official Flower; compares the objects.

use std::process::Command;

use prost::Message as _;

use crate::instruction::{Instruction, below};
use crate::place::{Place, behaving, lasting, releases};

#[tokio::test]
async fn replies_have_the_same_objects_as_those_of_official_flower() {
    for release in releases() {
        let place = Place::new(&release.python, lasting());
        let numbers = |count: u32| (0..count).map(f64::from).collect::<Vec<_>>();
        // Arrays of one chunk, of three, of equal chunks, and empty ones.
        let arrays = vec![numbers(1000), numbers(1_500_000), vec![0.0; 2_000_000], Vec::new()];
        for what in ["double", "count"] {
            let job = Instruction::new(9, what).arrays(arrays.clone()).job(&place.objects, behaving());
            let input = tempfile::tempdir().unwrap();
            std::fs::create_dir(input.path().join("objects")).unwrap();
            for id in place.objects.all().unwrap() {
                let object = place.objects.read(id).unwrap().unwrap();
                std::fs::write(input.path().join("objects").join(id.to_string()), object).unwrap();
            }
            std::fs::write(input.path().join("root"), &job.tree.object_id).unwrap();
            std::fs::write(input.path().join("context"), job.context.encode_to_vec()).unwrap();
            let app = behaving();
            let output = Command::new(&release.python)
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/warm/official.py"))
                .args([input.path(), &app.directory])
                .arg(&app.client_app)
                .envs([("FLWR_TELEMETRY_ENABLED", "0"), ("FLWR_DISABLE_UPDATE_CHECK", "1")])
                .env("FLWR_HOME", place.directory.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let output = String::from_utf8(output.stdout).unwrap();
            let [ids, state] = output.lines().collect::<Vec<_>>()[..] else { panic!("{output}") };

            let reply = crate::place::replied(place.apps.execute(job).await);
            if what == "double" {
                assert_eq!(below(&reply.tree).join(" "), ids, "{release:?}");
                assert!(below(&reply.tree).len() > 8);
            }
            let ours: String =
                reply.context.state.unwrap().encode_to_vec().iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(ours, state, "{what} {release:?}");
        }
    }
}
