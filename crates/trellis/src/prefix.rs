//! Finds items by a prefix of their id.

use trellis_terminal::clean;

use crate::remote::CommandError;

/// Ids in the error for an ambiguous prefix.
const MAX_LISTED: usize = 5;

#[derive(Debug, PartialEq, Eq)]
pub enum Found<T> {
    One(T),
    None,
    /// The ids with this prefix.
    Many(Vec<String>),
}

/// The item with this id, or else the only one whose id has this prefix.
pub fn find<T>(text: &str, all: impl IntoIterator<Item = T>, id: impl Fn(&T) -> &str) -> Found<T> {
    let mut fitting: Vec<T> = all.into_iter().filter(|it| !text.is_empty() && id(it).starts_with(text)).collect();
    if let Some(exact) = fitting.iter().position(|it| id(it) == text) {
        return Found::One(fitting.swap_remove(exact));
    }
    match fitting.len() {
        0 => Found::None,
        1 => Found::One(fitting.remove(0)),
        _ => Found::Many(fitting.iter().map(|it| id(it).to_owned()).collect()),
    }
}

/// Why a beginning is not enough.
pub fn too_short(text: &str, ids: &[String]) -> CommandError {
    let listed: Vec<String> = ids.iter().take(MAX_LISTED).map(|id| clean(id)).collect();
    let more = if ids.len() > MAX_LISTED { ", ..." } else { "" };
    let what = format!("{} ids begin with {text}: {}{more}", ids.len(), listed.join(", "));
    CommandError::usage(what, "give more characters of the id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_by_its_beginning() {
        let ids = ["4711", "47", "52", "5301"];
        let found = |text: &str| find(text, ids, |id| *id);
        assert_eq!(found("4711"), Found::One("4711"));
        assert_eq!(found("47"), Found::One("47"), "an exact match takes precedence");
        assert_eq!(found("471"), Found::One("4711"));
        assert_eq!(found("6"), Found::None);
        assert_eq!(found(""), Found::None);
        assert_eq!(found("5"), Found::Many(vec!["52".to_owned(), "5301".to_owned()]));
    }
}
