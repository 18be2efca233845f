//! Parameters of a query: what a route takes is said once, checked here and told by the OpenAPI document. Unknown ones are
//! refused: `dryrun=true` must not apply.

use serde_json::{Value, json};

use super::fault::{Fault, Kind, detail};

/// One that a route takes.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    pub about: &'static str,
    pub form: Form,
}

#[derive(Debug, Clone, Copy)]
pub enum Form {
    Number {
        least: u64,
        most: u64,
    },
    Flag,
    /// Nothing but this.
    Word(&'static str),
    Text {
        pattern: &'static str,
        longest: usize,
        fits: fn(&str) -> bool,
    },
}

impl Form {
    pub fn schema(self) -> Value {
        match self {
            Form::Number { least, most } => json!({"type": "integer", "minimum": least, "maximum": most}),
            Form::Flag => json!({"type": "boolean"}),
            Form::Word(word) => json!({"type": "string", "enum": [word]}),
            Form::Text { pattern, .. } => json!({"type": "string", "pattern": pattern}),
        }
    }

    /// `Err`: what to do about a value that cannot be used.
    pub fn check(self, value: &str) -> Result<(), String> {
        match self {
            Form::Number { least, most } => match value.parse::<u64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(()),
                _ => Err(format!("give a whole number from {least} to {most}")),
            },
            Form::Flag if matches!(value, "true" | "false") => Ok(()),
            Form::Flag => Err("give true or false".to_owned()),
            Form::Word(word) if value == word => Ok(()),
            Form::Word(word) => Err(format!("give {word}, or leave it out")),
            Form::Text { longest, fits, .. } if value.len() <= longest && fits(value) => Ok(()),
            Form::Text { pattern, longest, .. } => Err(format!("give at most {longest} bytes that match {pattern}")),
        }
    }
}

/// What a call gave, already checked.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what follows the question mark, or says everything that is wrong with it.
    pub fn read(text: &str, known: &[Parameter]) -> Result<Query, Fault> {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(text.as_bytes()).into_owned().collect();
        let mut problems = Vec::new();
        for (at, (name, value)) in pairs.iter().enumerate() {
            let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
                problems.push(detail(name, "there is no such parameter", offered(known)));
                continue;
            };
            if pairs[..at].iter().any(|(earlier, _)| earlier == name) {
                problems.push(detail(name, "it is given more than once", "give it once"));
            }
            if let Err(advice) = parameter.form.check(value) {
                problems.push(detail(name, format!("{value:?} cannot be used"), advice));
            }
        }
        if problems.is_empty() {
            return Ok(Query(pairs));
        }
        Err(Fault::new(Kind::MALFORMED, "Parameters of the query cannot be used.").with(problems))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    pub fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }
}

fn offered(known: &[Parameter]) -> String {
    match known {
        [] => "this call takes none".to_owned(),
        known => format!("this call takes {}", known.iter().map(|one| one.name).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Parameter] = &[
        Parameter { name: "limit", about: "", form: Form::Number { least: 1, most: 1000 } },
        Parameter { name: "dry_run", about: "", form: Form::Flag },
    ];

    #[test]
    fn good_ones_are_found() {
        let query = Query::read("limit=7&dry_run=true", KNOWN).unwrap();
        assert_eq!((query.number("limit"), query.flag("dry_run"), query.text("cursor")), (Some(7), true, None));
        assert!(!Query::read("", KNOWN).unwrap().flag("dry_run"));
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let fault = Query::read("limit=0&limit=x&dryrun=true&dry_run=yes", KNOWN).unwrap_err();
        let told: Vec<_> = fault.problems.iter().map(|one| format!("{}: {}", one.path, one.what)).collect();
        assert_eq!(
            told,
            [
                "limit: \"0\" cannot be used",
                "limit: it is given more than once",
                "limit: \"x\" cannot be used",
                "dryrun: there is no such parameter",
                "dry_run: \"yes\" cannot be used",
            ]
        );
    }
}
