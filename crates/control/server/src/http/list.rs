//! Lists in pages. A cursor is the sort key of the last entry of a page, so that pages neither repeat nor miss entries that
//! stay, whatever comes and goes meanwhile. To callers it is a word without meaning; any that is well-formed is a place.

use trellis_api::{MAX_PAGE, Page, USUAL_PAGE};
use trellis_digest::{hex, unhex};

use super::query::{Form, Parameter, Query};

/// Of a cursor: two digits for each byte of a sort key.
const LONGEST_CURSOR: usize = 1024;

pub const PARAMETERS: &[Parameter] = &[LIMIT, CURSOR];

pub const LIMIT: Parameter = Parameter {
    name: "limit",
    about: "Entries of a page at most; 100 where nothing is said.",
    form: Form::Number { least: 1, most: MAX_PAGE as u64 },
};
pub const CURSOR: Parameter = Parameter {
    name: "cursor",
    about: "Where the page begins: `next` of the page before. None: with the first entry.",
    form: Form::Text {
        pattern: "^([0-9a-f]{2}){1,512}$",
        longest: LONGEST_CURSOR,
        fits: |text| !text.is_empty() && unhex(text).is_some(),
    },
};

/// The page that was asked for, of entries whose keys rise.
pub fn page<T>(entries: impl IntoIterator<Item = T>, query: &Query, key: impl Fn(&T) -> String) -> Page<T> {
    let limit = query.number(LIMIT.name).map_or(USUAL_PAGE, |limit| limit as usize);
    let after = query.text(CURSOR.name).and_then(unhex);
    let mut rest = entries.into_iter().skip_while(|entry| match &after {
        Some(after) => key(entry).as_bytes() <= after.as_slice(),
        None => false,
    });
    let items: Vec<T> = rest.by_ref().take(limit).collect();
    let more = rest.next().is_some();
    let next = items.last().filter(|_| more).map(|last| hex(key(last).as_bytes()));
    Page { items, next }
}

/// Sorts `clinic-2` before `clinic-10`.
pub fn natural_key(name: &str) -> String {
    let digits = name.len() - name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    let (stem, number) = name.split_at(name.len() - digits);
    // The name itself makes it unlike that of every other: `a` and `a0`.
    format!("{stem}{number:0>20} {name}")
}

/// Sorts the newest first.
pub fn newest_first_key(at_s: f64, id: &str) -> String {
    let at_ms = (at_s * 1000.0) as u64;
    format!("{:020}-{id}", u64::MAX - at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(entries: &[&str], text: &str) -> (Vec<String>, Option<String>) {
        let query = Query::read(text, PARAMETERS).unwrap();
        let page = page(entries.iter().map(|entry| (*entry).to_owned()), &query, |name| natural_key(name));
        (page.items, page.next)
    }

    #[test]
    fn pages_follow_each_other_to_the_end() {
        let all = ["a", "b", "c", "d"];
        let (first, next) = ask(&all, "limit=2");
        assert_eq!(first, ["a", "b"]);
        let (second, end) = ask(&all, &format!("limit=2&cursor={}", next.unwrap()));
        assert_eq!((second, end), (vec!["c".to_owned(), "d".to_owned()], None));
    }

    #[test]
    fn what_comes_and_goes_meanwhile_moves_nothing() {
        let (_, next) = ask(&["b", "d", "f"], "limit=2");
        let (second, end) = ask(&["a", "e", "f"], &format!("limit=2&cursor={}", next.unwrap()));
        assert_eq!((second, end), (vec!["e".to_owned(), "f".to_owned()], None));
    }

    #[test]
    fn any_well_formed_cursor_is_a_place() {
        assert_eq!(ask(&["a"], "cursor=ff").0, [""; 0]);
        assert_eq!(ask(&["a"], "cursor=00").0, ["a"]);
        for bad in ["cursor=", "cursor=0", "cursor=0g", "cursor=FF"] {
            assert!(Query::read(bad, PARAMETERS).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_sort_as_people_do() {
        assert!(natural_key("clinic-2") < natural_key("clinic-10"));
        assert!(natural_key("clinic-10") < natural_key("lab-1"));
        assert!(newest_first_key(200.0, "1") < newest_first_key(100.5, "2"));
        assert!(newest_first_key(100.5, "2") < newest_first_key(100.4, "1"));
    }
}
