//! Ids by their beginning. Knows nothing of what they are ids of.

use crate::remote::{Trouble, clean};

/// At most so many ids are told where a beginning fits several.
const TOLD: usize = 5;

#[derive(Debug, PartialEq, Eq)]
pub enum Found<T> {
    One(T),
    None,
    /// The ids that begin so.
    Many(Vec<String>),
}

/// What has this id, or else the only one whose id begins so.
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
pub fn too_short(text: &str, ids: &[String]) -> Trouble {
    let told: Vec<String> = ids.iter().take(TOLD).map(|id| clean(id)).collect();
    let more = if ids.len() > TOLD { ", ..." } else { "" };
    let what = format!("{} ids begin with {text}: {}{more}", ids.len(), told.join(", "));
    Trouble::usage(what, "give more of it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_by_its_beginning() {
        let ids = ["4711", "47", "52", "5301"];
        let found = |text: &str| find(text, ids, |id| *id);
        assert_eq!(found("4711"), Found::One("4711"));
        assert_eq!(found("47"), Found::One("47"), "one that is exact is meant");
        assert_eq!(found("471"), Found::One("4711"));
        assert_eq!(found("6"), Found::None);
        assert_eq!(found(""), Found::None);
        assert_eq!(found("5"), Found::Many(vec!["52".to_owned(), "5301".to_owned()]));
    }
}
