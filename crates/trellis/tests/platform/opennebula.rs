//! A site in a recorded OpenNebula cloud: its problems end `trellis apply`, and logs on other machines are named.

use trellis_fake_one::hypervisor::PretendSettings;
use trellis_fake_one::template::Template;
use trellis_fake_one::{Config, FakeOne, Machines};

use crate::scene::{Scene, eventually};

async fn cloud() -> FakeOne {
    let (machines, users) = (Machines::Pretend(PretendSettings::default()), vec![("me".to_owned(), "pw".to_owned())]);
    let one = FakeOne::start(Config { machines, users, ..Config::default() }).await.expect("the fake starts");
    for image in ["trellis-superlink", "trellis-supernode"] {
        let text = format!("NAME=\"{image}\"\nTYPE=\"OS\"\nPATH=\"/var/tmp/{image}.qcow2\"");
        let template = Template::parse(&text).expect("a template");
        one.handle().with(|cloud| {
            let image = cloud.add_image(0, template, 1).expect("an image");
            cloud.images.get_mut(&image).expect("it is there").owned.permissions[6] = true;
        });
    }
    one
}

fn document(one: &FakeOne, network: &str) -> String {
    let (endpoint, flow) = (one.oned_url(), one.flow_url());
    format!(
        "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: lab}}\nspec:\n  nodes: 1\n  sites:\n  - name: \
         cloud\n    opennebula: {{endpoint: '{endpoint}', flow: '{flow}', authFile: one_auth, network: {network}}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_ends_with_what_the_site_lacks_and_logs_say_where_they_are() {
    let one = cloud().await;
    let scene = Scene::new();
    scene.write("one_auth", "me:pw\n");
    scene.write("lab.yaml", &document(&one, "nowhere"));
    tokio::task::block_in_place(|| {
        let (code, told) = scene.bad(&["apply", "-f", "lab.yaml", "--timeout", "1s"]);
        assert!(code == 1 && told.contains("lab is not ready after 1s"), "{told}");
        // Long before the time is over.
        let (code, told) = scene.bad(&["apply", "-f", "lab.yaml", "--timeout", "10m"]);
        assert!(code == 1 && told.contains("lab is stalled") && told.contains("no network nowhere"), "{told}");
        let (code, told) = scene.bad(&["logs", "--part", "coordinator"]);
        assert!(code == 1 && told.contains("coordinator has no VM at site cloud"), "{told}");
        scene.write("lab.yaml", &document(&one, "net1"));
        scene.good(&["apply", "-f", "lab.yaml", "--no-wait"]);
        eventually("the VM of the log", || {
            let (_, told) = scene.bad(&["logs", "--part", "coordinator"]);
            (told.contains("the log of coordinator is in VM") && told.contains("journalctl")).then_some(())
        });
        scene.good(&["delete", "lab"]);
    });
}
