//! Checked-in files that the program must reproduce: examples with their canonical form, the JSON Schema, the reference.
//! UPDATE_GOLDENS=1 writes them instead; review the difference.

use std::path::{Path, PathBuf};

use trellis_spec::{ConfigValue, Name, read, read_with_warnings, reference, render_node_config, schema, to_yaml};

const REFERENCE_BEGINS: &str =
    "<!-- What follows is made by the program: UPDATE_GOLDENS=1 cargo test -p trellis-spec -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Compares a file, or writes it.
fn check(path: &Path, made: &str) {
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(path, made).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == made, "{} differs from the output of the program:\n{made}", path.display());
}

fn examples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let ours = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "yaml" || ending == "json");
    let mut examples: Vec<PathBuf> = entries.filter(ours).collect();
    examples.sort();
    examples
}

#[test]
fn examples_mean_what_they_meant() {
    let examples = examples();
    assert!(examples.len() >= 6, "all of them are there");
    for path in examples {
        let name = path.file_name().unwrap().to_str().unwrap();
        let reading = read_with_warnings(&std::fs::read_to_string(&path).unwrap(), name)
            .unwrap_or_else(|problems| panic!("{problems}"));
        let [federation] = &reading.federations[..] else { panic!("{name} has one federation") };
        let warnings: String = reading.warnings.iter().map(|warning| format!("# warning: {warning}\n")).collect();
        let lost: String = federation.promises_lost().iter().map(|lost| format!("# lost: {lost}\n")).collect();
        let canonical = to_yaml(federation);
        assert_eq!(read(&canonical, name).as_ref(), Ok(&reading.federations), "{name}");
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/canonical").join(name).with_extension("yaml");
        check(&kept, &format!("{warnings}{lost}{canonical}"));
    }
}

#[test]
fn the_schema_is_published_as_it_is() {
    let made = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    check(&root().join("docs/schema/federation.json"), &made);
}

#[test]
fn the_reference_is_published_as_it_is() {
    let path = root().join("docs/federation.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (introduction, _) = text.split_once(REFERENCE_BEGINS).expect("the reference has its place");
    check(&path, &format!("{introduction}{REFERENCE_BEGINS}\n{}", reference()));
}

/// The documents of the documentation can be read.
#[test]
fn documents_in_the_documentation_are_read() {
    for page in ["federation.md", "multi-site.md"] {
        let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
        let shown = text.split("```yaml\n").skip(1).map(|after| after.split("```").next().unwrap());
        let whole: Vec<&str> = shown.filter(|document| document.contains("apiVersion")).collect();
        assert!(!whole.is_empty(), "{page}");
        for document in whole {
            read(document, page).unwrap_or_else(|problems| panic!("{problems}\n{document}"));
        }
    }
}

/// A likely mistake causes a warning, and the document is accepted.
#[test]
fn what_is_risky_is_warned_of() {
    let document =
        |rest: &str| format!("apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: digits}}\nspec:\n{rest}");
    let cloud = "opennebula: {endpoint: 'https://one.example.org/RPC2', network: private}";
    let gateway = "link: {wireguard: {endpoint: 'vpn.example.org:51820', networks: [10.0.NUMBER.0/24]}}";
    let site =
        |name: &str, number: &str| format!("  - {{name: {name}, {cloud}, {}}}\n", gateway.replace("NUMBER", number));
    let rules = "scaling: {min: 1, max: 4, policies: [{when: A > 1 && B > 1 || C > 1, change: +1}]}";
    for (text, expected) in [
        (
            format!(
                "  security: {{tls: {{mode: none}}}}\n  sites:\n{}{}  pools: [{{name: a, site: far}}]\n",
                site("hub", "1"),
                site("far", "2")
            ),
            "not the networks within them",
        ),
        (format!("  sites:\n{}  nodes: 1\n", site("hub", "1")), "this gateway has no peer"),
        (format!("  sites: [{{name: hub, {cloud}}}]\n  pools: [{{name: a, {rules}}}]\n"), "mixed without parentheses"),
        (
            format!(
                "  sites: [{{name: hub, {cloud}}}]\n  pools: [{{name: a, {}}}]\n  training: {{minTrainNodes: 3}}\n",
                rules.replace(" || C > 1", "")
            ),
            "scaling may reduce the pools to 1 nodes",
        ),
    ] {
        let reading =
            read_with_warnings(&document(&text), "risky.yaml").unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        let [warning] = &reading.warnings[..] else { panic!("{:?}\n{text}", reading.warnings) };
        assert!(warning.what.contains(expected), "{warning}");
    }
}

#[test]
fn the_smallest_document_has_five_lines() {
    let text = std::fs::read_to_string(root().join("examples/smallest.yaml")).unwrap();
    assert_eq!(text.lines().count(), 5);
    let federation = read(&text, "smallest.yaml").unwrap().remove(0);
    assert_eq!((federation.pools[0].name.as_str(), federation.pools[0].count), ("nodes", 4));
    assert_eq!(federation.promises_lost(), Vec::<String>::new());
}

#[test]
fn each_node_gets_its_own_config() {
    let text = std::fs::read_to_string(root().join("examples/kubernetes-operator.yaml")).unwrap();
    let federation = read(&text, "kubernetes-operator.yaml").unwrap().remove(0);
    let site = Name::new("campus").unwrap();
    let rendered = render_node_config(&federation.pools[0], 2, 3, &site, "node-7");
    let text = |text: &str| ConfigValue::Text(text.to_owned());
    let expected = [
        ("cached", ConfigValue::Bool(true)),
        ("literal", text("{x} {{.Index}}")),
        ("num-partitions", ConfigValue::Int(3)),
        ("partition-id", ConfigValue::Int(2)),
        ("path", text("/data/clinics/node-7")),
        // As in the operator: only whole numbers become numbers.
        ("rate", text("0.01")),
    ];
    assert_eq!(rendered, expected.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
}

#[test]
fn deep_nesting_is_refused_without_harm() {
    for text in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000)] {
        assert!(read(&text, "deep.yaml").is_err());
    }
}

/// Other programs write characters beyond the first 65,536 as two escapes.
#[test]
fn json_with_escaped_pairs_is_read() {
    let text = r#"{"apiVersion": "trellis.dev/v1", "kind": "Federation", "metadata": {"name": "a"},
        "spec": {"pools": [{"name": "a", "env": {"FACE": "\ud83d\ude00 \u00e9 \/"}}]}}"#;
    let federation = read(text, "pairs.json").unwrap_or_else(|problems| panic!("{problems}")).remove(0);
    assert_eq!(federation.pools[0].env["FACE"], "\u{1f600} é /");
}
