//! Cron expressions with five fields. Only checks that OneFlow can parse them.

/// Names, minimum and maximum of the fields; names of values.
const FIELDS: [(&str, u32, u32, &[&str]); 5] = [
    ("minute", 0, 59, &[]),
    ("hour", 0, 23, &[]),
    ("day of the month", 1, 31, &[]),
    ("month", 1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    ("day of the week", 0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];
const WORDS: [&str; 6] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@hourly"];

/// All problems of an expression.
pub fn problems(text: &str) -> Vec<String> {
    let text = text.trim();
    if text.starts_with('@') {
        return match WORDS.contains(&text) {
            true => Vec::new(),
            false => vec![format!("{text:?} is none of {}", WORDS.join(", "))],
        };
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return vec![format!("{text:?} has {} fields, and should have 5", fields.len())];
    }
    let checked = fields.iter().zip(FIELDS).flat_map(|(field, (name, least, greatest, names))| {
        field.split(',').filter_map(move |part| {
            let why = part_problem(part, least, greatest, names)?;
            Some(format!("{part:?} is not a valid {name}: {why}"))
        })
    });
    checked.collect()
}

fn part_problem(part: &str, least: u32, greatest: u32, names: &[&str]) -> Option<String> {
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (part, None),
    };
    if let Some(step) = step
        && !step.parse::<u32>().is_ok_and(|step| step > 0)
    {
        return Some("the step is not a number above 0".to_owned());
    }
    if range == "*" {
        return None;
    }
    let value = |text: &str| match names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
        Some(at) => Some(least + at as u32),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None => None,
    };
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    match (value(from), value(to)) {
        (Some(from), Some(to)) if from < least || to > greatest || from > to => {
            Some(format!("the range is {least} to {greatest}"))
        }
        (Some(_), Some(_)) => None,
        _ => Some("it is not a number".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recurrences() {
        for text in ["0 9 * * mon,wed-fri", "*/5 0-12/2 1,15 JAN 0", "@daily", " 1 2 3 4 5 "] {
            assert_eq!(problems(text), Vec::<String>::new(), "{text}");
        }
        for (text, expected) in [
            ("60 * * * *", vec!["\"60\" is not a valid minute: the range is 0 to 59"]),
            ("0 0 L * *", vec!["\"L\" is not a valid day of the month: it is not a number"]),
            (
                "5-1 */0 * 13 x",
                vec![
                    "\"5-1\" is not a valid minute: the range is 0 to 59",
                    "\"*/0\" is not a valid hour: the step is not a number above 0",
                    "\"13\" is not a valid month: the range is 1 to 12",
                    "\"x\" is not a valid day of the week: it is not a number",
                ],
            ),
            ("* * * *", vec!["\"* * * *\" has 4 fields, and should have 5"]),
            ("@never", vec!["\"@never\" is none of @yearly, @annually, @monthly, @weekly, @daily, @hourly"]),
            (
                ", * * * *",
                vec![
                    "\"\" is not a valid minute: it is not a number",
                    "\"\" is not a valid minute: it is not a number",
                ],
            ),
        ] {
            assert_eq!(problems(text), expected, "{text}");
        }
    }
}
