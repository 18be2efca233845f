//! Only administrators see the values of `env`; other callers see the names. If a document with masks is sent back, the
//! masked values stay unchanged.

use std::collections::BTreeMap;

use trellis_api::Detail;
use trellis_spec::Federation;

use super::document::wrong;

/// Replaces a value that the caller may not see.
pub const MASK: &str = "********";

/// Masks the document for callers without the role administrator.
pub fn mask(federation: &Federation) -> Federation {
    let mut masked = federation.clone();
    let pools = masked.pools.iter_mut().map(|pool| &mut pool.env);
    let values = pools.chain([&mut masked.coordinator.env]).flat_map(BTreeMap::values_mut);
    values.for_each(|value| MASK.clone_into(value));
    masked
}

/// Replaces masks by the values of the applied document. Returns an error for each mask without such a value.
pub fn unmask(federation: &mut Federation, applied: Option<&Federation>) -> Vec<Detail> {
    let mut problems = Vec::new();
    let known = applied.map(|applied| &applied.coordinator.env);
    restore(&mut federation.coordinator.env, known, "spec.coordinator.env", &mut problems);
    for (index, pool) in federation.pools.iter_mut().enumerate() {
        let same = applied.and_then(|applied| applied.pools.iter().find(|applied| applied.name == pool.name));
        restore(&mut pool.env, same.map(|same| &same.env), &format!("spec.pools[{index}].env"), &mut problems);
    }
    problems
}

fn restore(
    env: &mut BTreeMap<String, String>,
    applied: Option<&BTreeMap<String, String>>,
    path: &str,
    problems: &mut Vec<Detail>,
) {
    for (name, value) in env.iter_mut().filter(|(_, value)| *value == MASK) {
        match applied.and_then(|applied| applied.get(name)) {
            Some(applied) => applied.clone_into(value),
            None => {
                let what = "the value is masked, and the applied document has none to keep";
                problems.push(wrong(&format!("{path}.{name}"), what, "give the value itself"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn federation(env: &str) -> Federation {
        let text = format!(
            "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: demo}}\nspec:\n  coordinator: {{env: {env}}}\n  \
             pools:\n  - {{name: clinic, count: 2, env: {env}}}\n"
        );
        trellis_spec::read(&text, "demo").expect("a document").remove(0)
    }

    #[test]
    fn a_masked_document_that_comes_back_keeps_its_values() {
        let applied = federation("{TOKEN: hush, LEVEL: high}");
        let masked = mask(&applied);
        assert_eq!(masked, federation(&format!("{{TOKEN: \"{MASK}\", LEVEL: \"{MASK}\"}}")));
        let mut edited = masked.clone();
        edited.pools[0].env.insert("LEVEL".to_owned(), "low".to_owned());
        assert_eq!(unmask(&mut edited, Some(&applied)), []);
        assert_eq!(edited.coordinator, applied.coordinator);
        assert_eq!(edited.pools[0].env["TOKEN"], "hush");
        assert_eq!(edited.pools[0].env["LEVEL"], "low");
    }

    #[test]
    fn a_mask_without_a_value_is_refused_by_name() {
        let applied = federation("{TOKEN: hush}");
        let mut other = federation(&format!("{{OTHER: \"{MASK}\"}}"));
        let paths = |problems: Vec<Detail>| problems.into_iter().map(|problem| problem.path).collect::<Vec<_>>();
        let expected = ["spec.coordinator.env.OTHER", "spec.pools[0].env.OTHER"];
        assert_eq!(paths(unmask(&mut other.clone(), Some(&applied))), expected);
        assert_eq!(paths(unmask(&mut other, None)), expected);
    }
}
