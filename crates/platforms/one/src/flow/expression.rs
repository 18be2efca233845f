//! Parser for OneFlow's elasticity expressions. It finds errors before OneFlow does, including those that OneFlow never
//! reports. It does not evaluate expressions.

/// An expression. Like OneFlow, it is right-associative, without precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    Compare { left: Operand, right: Operand },
    Not(Box<Expression>),
    Group(Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    Number(String),
    /// With its quotes, if there are any.
    Variable(String),
}

/// Maximum depth.
const DEEPEST: usize = 50;

/// Parses a whole text. The error contains the position.
pub fn parse(text: &str) -> Result<Expression, String> {
    let mut reading = Reading { text, at: 0, depth: 0 };
    let expression = reading.expression()?;
    match reading.rest() {
        "" => Ok(expression),
        rest => Err(reading.fail(&format!("nothing should follow here, not {:?}", first(rest)))),
    }
}

impl Expression {
    /// Problems that OneFlow accepts but interprets in an unexpected way.
    pub fn surprises(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.look(&mut found);
        found
    }

    fn look(&self, found: &mut Vec<String>) {
        match self {
            Expression::Compare { left, right } => {
                for operand in [left, right] {
                    if let Operand::Variable(name) = operand
                        && name.starts_with(['"', '\''])
                    {
                        found.push(format!("{name} is never found: quotes count as a part of the name"));
                    }
                }
            }
            Expression::Not(inner) => {
                if matches!(**inner, Expression::And(..) | Expression::Or(..)) {
                    found.push("! is taken for everything that follows it: use brackets".to_owned());
                }
                inner.look(found);
            }
            Expression::Group(inner) => inner.look(found),
            Expression::And(left, right) => {
                if matches!(**right, Expression::Or(..)) {
                    found.push("a && b || c is read as a && (b || c): use brackets".to_owned());
                }
                left.look(found);
                right.look(found);
            }
            Expression::Or(left, right) => {
                left.look(found);
                right.look(found);
            }
        }
    }
}

struct Reading<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

fn first(rest: &str) -> String {
    rest.chars().next().map(String::from).unwrap_or("the end".to_owned())
}

impl<'a> Reading<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn fail(&self, what: &str) -> String {
        format!("at character {}: {what}", self.text[..self.at].chars().count() + 1)
    }

    /// Only spaces: OneFlow rejects tabs.
    fn spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches(' ').len();
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn expression(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.fail(&format!("there are more than {DEEPEST} conditions in each other")));
        }
        self.spaces();
        let left = self.condition()?;
        self.spaces();
        let expression = if self.take("&&") || self.take("&") {
            Expression::And(Box::new(left), Box::new(self.expression()?))
        } else if self.take("||") || self.take("|") {
            Expression::Or(Box::new(left), Box::new(self.expression()?))
        } else {
            left
        };
        self.spaces();
        self.depth -= 1;
        Ok(expression)
    }

    fn condition(&mut self) -> Result<Expression, String> {
        if self.take("!") {
            return Ok(Expression::Not(Box::new(self.expression()?)));
        }
        if self.take("(") {
            let inner = self.expression()?;
            return match self.take(")") {
                true => Ok(Expression::Group(Box::new(inner))),
                false => Err(self.fail("a bracket is not closed")),
            };
        }
        let left = self.operand()?;
        self.spaces();
        // Longer operators first: `>=` starts with `>`.
        let compared = ["==", "=", "!=", "<>", ">=", ">", "<=", "<"].iter().any(|token| self.take(token));
        if !compared {
            return Err(self.fail(&format!("a comparison should be here, not {:?}", first(self.rest()))));
        }
        self.spaces();
        Ok(Expression::Compare { left, right: self.operand()? })
    }

    fn operand(&mut self) -> Result<Operand, String> {
        let rest = self.rest();
        if let Some(length) = number_length(rest) {
            self.at += length;
            return Ok(Operand::Number(rest[..length].to_owned()));
        }
        let quote = rest.chars().next().filter(|c| ['"', '\''].contains(c));
        let quoted = usize::from(quote.is_some());
        let name = &rest[quoted..];
        let length = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        if length == 0 || !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(self.fail(&format!("a number or a name should be here, not {:?}", first(rest))));
        }
        let end = quoted + length;
        if let Some(quote) = quote
            && !rest[end..].starts_with(quote)
        {
            self.at += end;
            return Err(self.fail("a quote is not closed"));
        }
        self.at += end + quoted;
        Ok(Operand::Variable(rest[..end + quoted].to_owned()))
    }
}

/// `-?\d+(\.\d+)?`
fn number_length(text: &str) -> Option<usize> {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let sign = usize::from(text.starts_with('-'));
    let whole = digits(sign);
    if whole == 0 {
        return None;
    }
    let end = sign + whole;
    match text[end..].starts_with('.').then(|| digits(end + 1)) {
        Some(fraction) if fraction > 0 => Some(end + 1 + fraction),
        _ => Some(end),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_oneflow_reads_is_read() {
        for text in [
            "CPU > 90",
            "5 > 3",
            "CPU > ATT",
            "cpu>50",
            "  CPU>=-1.5 ",
            "!(NOPE > 1)",
            "! NOPE > 1",
            "(A = 1) & (B <> 2 | C != 3)",
            "FL_CLIENT_STATUS == 2",
        ] {
            let read = parse(text);
            assert_eq!(read.map(|read| read.surprises()), Ok(vec![]), "{text}");
        }
    }

    #[test]
    fn what_oneflow_does_not_read_is_an_error() {
        for (text, expected) in [
            ("CPU > 1e2", "at character 8: nothing should follow here, not \"e\""),
            ("CPU > .5", "at character 7: a number or a name should be here, not \".\""),
            ("CPU > +5", "at character 7: a number or a name should be here, not \"+\""),
            ("CPU > 5.", "at character 8: nothing should follow here, not \".\""),
            ("A > 1 AND B > 1", "at character 7: nothing should follow here, not \"A\""),
            ("CPU\t> 1", "at character 4: a comparison should be here, not \"\\t\""),
            ("CPU => 1", "at character 6: a number or a name should be here, not \">\""),
            ("CPU >", "at character 6: a number or a name should be here, not \"the end\""),
            ("(CPU > 1", "at character 9: a bracket is not closed"),
            ("\"CPU > 1", "at character 5: a quote is not closed"),
            ("", "at character 1: a number or a name should be here, not \"the end\""),
        ] {
            assert_eq!(parse(text), Err(expected.to_owned()), "{text}");
        }
        assert!(parse(&"(".repeat(1000)).is_err());
    }

    #[test]
    fn unexpected_precedence_is_reported() {
        for (text, expected) in [
            ("CPU > 90 && ATT > 1 || ATT > 1", "a && b || c is read as a && (b || c): use brackets"),
            ("!CPU > 90 && ATT > 100", "! is taken for everything that follows it: use brackets"),
            ("\"CPU\" > 50", "\"CPU\" is never found: quotes count as a part of the name"),
        ] {
            assert_eq!(parse(text).unwrap().surprises(), [expected], "{text}");
        }
        assert_eq!(parse("(A > 1 && B > 1) || C > 1").unwrap().surprises(), Vec::<String>::new());
        assert_eq!(parse("A > 1 || B > 1 && C > 1").unwrap().surprises(), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_fall(text in "[A-C0-9.!&|<>=()'\" ä-]{0,30}") {
            let _ = parse(&text);
        }
    }
}
