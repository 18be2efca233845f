//! Elasticity expressions with OneFlow's peculiarities: right-associative, without precedence, `!` negates everything after
//! it, and a comparison with an unknown value is false.

#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    Not(Box<Expression>),
    Compare(Operand, &'static str, Operand),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    Number(f64, String),
    /// With its quotes, if there are any; then the attribute is unknown.
    Variable(String),
}

const COMPARISONS: [&str; 8] = ["==", "=", "!=", "<>", ">=", ">", "<=", "<"];
/// Maximum depth of parentheses.
const DEPTH: usize = 64;

pub fn parse(text: &str) -> Result<Expression, String> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let expression = parser.expression()?;
    match parser.at == text.len() {
        true => Ok(expression),
        false => Err(parser.wrong("Expected one of ' ', '&&', '&', '||', '|'")),
    }
}

impl Expression {
    pub fn is_true(&self, value: &dyn Fn(&str) -> Option<f64>) -> bool {
        match self {
            Expression::And(left, right) => left.is_true(value) && right.is_true(value),
            Expression::Or(left, right) => left.is_true(value) || right.is_true(value),
            Expression::Not(inner) => !inner.is_true(value),
            Expression::Compare(left, how, right) => {
                let (Some(left), Some(right)) = (left.value(value), right.value(value)) else { return false };
                match *how {
                    "==" | "=" => left == right,
                    "!=" | "<>" => left != right,
                    ">=" => left >= right,
                    ">" => left > right,
                    "<=" => left <= right,
                    _ => left < right,
                }
            }
        }
    }

    /// Form in OneFlow's log: `CPU[50.25] > 50`, `NOPE[--] > 1`.
    pub fn shown(&self, value: &dyn Fn(&str) -> Option<f64>) -> String {
        match self {
            Expression::And(left, right) => format!("{} && {}", left.shown(value), right.shown(value)),
            Expression::Or(left, right) => format!("{} || {}", left.shown(value), right.shown(value)),
            Expression::Not(inner) => format!("!({})", inner.shown(value)),
            Expression::Compare(left, how, right) => format!("{} {how} {}", left.shown(value), right.shown(value)),
        }
    }
}

impl Operand {
    fn value(&self, value: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        match self {
            Operand::Number(number, _) => Some(*number),
            Operand::Variable(name) => value(&name.to_uppercase()),
        }
    }

    fn shown(&self, value: &dyn Fn(&str) -> Option<f64>) -> String {
        match self {
            Operand::Number(_, text) => text.clone(),
            Operand::Variable(name) => match value(&name.to_uppercase()) {
                Some(number) => format!("{name}[{number}]"),
                None => format!("{name}[--]"),
            },
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches(' ').len();
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn expression(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.wrong("Too deep"));
        }
        self.spaces();
        let left = self.condition()?;
        self.spaces();
        let expression = if self.eat("&&") || self.eat("&") {
            Expression::And(Box::new(left), Box::new(self.expression()?))
        } else if self.eat("||") || self.eat("|") {
            Expression::Or(Box::new(left), Box::new(self.expression()?))
        } else {
            left
        };
        self.spaces();
        self.depth -= 1;
        Ok(expression)
    }

    fn condition(&mut self) -> Result<Expression, String> {
        if self.eat("!") {
            self.spaces();
            return Ok(Expression::Not(Box::new(self.expression()?)));
        }
        if self.eat("(") {
            let inner = self.expression()?;
            return match self.eat(")") {
                true => Ok(inner),
                false => Err(self.wrong("Expected one of ' ', ')'")),
            };
        }
        let left = self.operand()?;
        self.spaces();
        let Some(how) = COMPARISONS.iter().find(|how| self.text[self.at..].starts_with(**how)).copied() else {
            return Err(self.wrong("Expected one of ' ', '==', '=', '!=', '<>', '>=', '>', '<=', '<'"));
        };
        self.at += how.len();
        self.spaces();
        Ok(Expression::Compare(left, how, self.operand()?))
    }

    fn operand(&mut self) -> Result<Operand, String> {
        let rest = self.rest();
        let quoted = rest.starts_with(['"', '\'']);
        let body = if quoted { &rest[1..] } else { rest };
        if body.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let end = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(body.len());
            let length = if quoted { end + 2 } else { end };
            if !quoted || body[end..].starts_with(&rest[..1]) {
                let name = rest[..length].to_owned();
                self.at += length;
                return Ok(Operand::Variable(name));
            }
        }
        let sign = usize::from(rest.starts_with('-'));
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let whole = digits(&rest[sign..]);
        let mut length = sign + whole;
        if whole > 0 && rest[length..].starts_with('.') {
            let part = digits(&rest[length + 1..]);
            length += if part > 0 { part + 1 } else { 0 };
        }
        match (whole > 0).then(|| rest[..length].parse()) {
            Some(Ok(number)) if !quoted => {
                let text = rest[..length].to_owned();
                self.at += length;
                Ok(Operand::Number(number, text))
            }
            _ => Err(self.wrong("Expected one of ' ', '-', [0-9], '\"', '\\'', [a-zA-Z]")),
        }
    }

    fn wrong(&self, what: &str) -> String {
        let column = self.at + 1;
        let before = self.text[..self.at].trim_end();
        format!("{what} at line 1, column {column} (byte {column}) after {before}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oddities_are_those_of_the_real_one() {
        let value = |name: &str| match name {
            "CPU" => Some(50.25),
            "ATT" => Some(15.5),
            _ => None,
        };
        for (text, wanted) in [
            ("CPU > 90 && ATT > 1 || ATT > 1", Some(false)),
            ("!CPU > 90 && ATT > 100", Some(true)),
            ("\"CPU\" > 50", Some(false)),
            ("NOPE > 1", Some(false)),
            ("!(NOPE > 1)", Some(true)),
            ("5 > 3", Some(true)),
            ("CPU > ATT", Some(true)),
            ("cpu>50", Some(true)),
            ("(CPU >= 50.25) | ATT <> 15.5", Some(true)),
            ("CPU > 1e2", None),
            ("CPU > .5", None),
            ("CPU > +5", None),
            ("CPU > 5.", None),
            ("CPU > 5 AND ATT > 1", None),
            ("CPU\t> 5", None),
            ("CPU => 5", None),
            ("", None),
        ] {
            let read = parse(text).ok().map(|expression| expression.is_true(&value));
            assert_eq!(read, wanted, "{text}");
        }
        let shown = parse("CPU > 50 && NOPE > 1").expect("it can be read").shown(&value);
        assert_eq!(shown, "CPU[50.25] > 50 && NOPE[--] > 1");
    }

    #[test]
    fn missing_objects_give_the_recorded_errors() {
        let wanted = "Expected one of ' ', '-', [0-9], '\"', '\\'', [a-zA-Z] at line 1, column 6 (byte 6) after CPU >";
        assert_eq!(parse("CPU >"), Err(wanted.to_owned()));
        assert!(parse(&"(".repeat(10_000)).is_err());
    }
}
