//! User inputs of a template: `M|type|description|options|default`.

const KINDS: [&str; 10] = [
    "text",
    "text64",
    "password",
    "number",
    "number-float",
    "range",
    "range-float",
    "list",
    "list-multiple",
    "boolean",
];

/// All problems of an input.
pub fn problems(text: &str) -> Vec<String> {
    let fields: Vec<&str> = text.split('|').collect();
    if !(3..=5).contains(&fields.len()) {
        return vec![format!("it has {} fields, and should have M|type|description|options|default", fields.len())];
    }
    let mut problems = Vec::new();
    if !["M", "O"].contains(&fields[0]) {
        problems.push(format!("it begins with {:?}, and should with M (mandatory) or O (optional)", fields[0]));
    }
    let kind = fields[1];
    if !KINDS.contains(&kind) {
        problems.push(format!("the type {kind:?} is none of {}", KINDS.join(", ")));
        return problems;
    }
    let options = fields.get(3).map(|text| text.trim()).unwrap_or_default();
    let default = fields.get(4).map(|text| text.trim()).unwrap_or_default();
    problems.extend(value_problem(kind, options, default));
    problems
}

fn value_problem(kind: &str, options: &str, default: &str) -> Option<String> {
    let is_number = |text: &str| match kind.ends_with("-float") {
        true => text.parse::<f64>().is_ok(),
        false => text.parse::<i64>().is_ok(),
    };
    let listed = |text: &str| options.split(',').any(|option| option.trim() == text);
    match kind {
        "range" | "range-float" => match options.split_once("..") {
            Some((from, to)) if is_number(from) && is_number(to) => {
                (!default.is_empty() && !is_number(default)).then(|| format!("the default {default:?} is not a number"))
            }
            _ => Some(format!("the options {options:?} are no range as 1..10")),
        },
        "list" | "list-multiple" if options.is_empty() => Some("a list needs options".to_owned()),
        "list" if !default.is_empty() && !listed(default) => Some(format!("the default {default:?} is not an option")),
        "list-multiple" => {
            let stranger = default.split(',').map(str::trim).find(|text| !text.is_empty() && !listed(text));
            stranger.map(|text| format!("the default {text:?} is not an option"))
        }
        "number" | "number-float" if !default.is_empty() && !is_number(default) => {
            Some(format!("the default {default:?} is not a number"))
        }
        "boolean" if !default.is_empty() && !["YES", "NO"].contains(&default) => {
            Some(format!("the default {default:?} is neither YES nor NO"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs() {
        for text in [
            "M|text|Password|| ",
            "O|text|What a day",
            "M|range|Rounds|1..100|10",
            "M|range-float|Rate|0.1..1|0.5",
            "M|list|Strategy|FedAvg,FedProx|FedAvg",
            "O|list-multiple|Which|a,b,c|a,c",
            "M|boolean|TLS||YES",
            "O|number|Port||9092",
            "O|password|Secret||",
        ] {
            assert_eq!(problems(text), Vec::<String>::new(), "{text}");
        }
        for (text, expected) in [
            ("M|text", "it has 2 fields, and should have M|type|description|options|default"),
            ("X|text|a||", "it begins with \"X\", and should with M (mandatory) or O (optional)"),
            ("M|range|a||", "the options \"\" are no range as 1..10"),
            ("M|range|a|1..9|x", "the default \"x\" is not a number"),
            ("M|list|a||", "a list needs options"),
            ("M|list|a|b,c|d", "the default \"d\" is not an option"),
            ("M|list-multiple|a|b,c|b,d", "the default \"d\" is not an option"),
            ("M|number|a||1.5", "the default \"1.5\" is not a number"),
            ("M|boolean|a||true", "the default \"true\" is neither YES nor NO"),
        ] {
            assert_eq!(problems(text), [expected], "{text}");
        }
        assert_eq!(problems("X|date|a||").len(), 2);
    }
}
