//! The list of values in the chart's README equals values.yaml.

use std::fs;

use crate::tools::{chart, golden};

const BEGIN: &str = "<!-- values: UPDATE_GOLDENS=1 cargo test -p trellis --test packaging -->\n";

/// Name, default and text of each value that has a text.
fn described(values: &str) -> Vec<(String, String, String)> {
    let (mut found, mut path, mut text) = (Vec::new(), Vec::<(usize, String)>::new(), None::<String>);
    for line in values.lines() {
        let trimmed = line.trim_start();
        let depth = line.len() - trimmed.len();
        if let Some(comment) = trimmed.strip_prefix("#: ") {
            text = Some(comment.to_owned());
            continue;
        }
        let Some((name, default)) = trimmed.split_once(':').filter(|_| !trimmed.starts_with(['#', '-'])) else {
            continue;
        };
        path.retain(|(deeper, _)| *deeper < depth);
        path.push((depth, name.to_owned()));
        if let Some(text) = text.take() {
            let name = path.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(".");
            let default = match default.trim() {
                "" => "see values.yaml".to_owned(),
                default => format!("`{default}`"),
            };
            found.push((name, default, text));
        }
    }
    found
}

#[test]
fn the_readme_lists_all_values() {
    let values = fs::read_to_string(chart().join("values.yaml")).expect("values.yaml");
    let rows =
        described(&values).into_iter().map(|(name, default, text)| format!("| `{name}` | {default} | {text} |\n"));
    let table = format!("| value | default | what it does |\n|---|---|---|\n{}", rows.collect::<String>());
    let file = chart().join("README.md");
    let readme = fs::read_to_string(&file).expect("README.md");
    let (before, _) = readme.split_once(BEGIN).expect("a place for the values");
    golden(&file, &format!("{before}{BEGIN}{table}"));
}
