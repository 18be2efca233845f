//! Conditions on attributes of machines, in the grammar of OneFlow: `CPU > 80 && MEMORY < 90`.
//!
//! The site evaluates them. They are parsed with the grammar of OneFlow to show their actual meaning: there is no precedence
//! (`a && b || c` is `a && (b || c)`), and `!` applies to everything after it. Expressions with such surprises cause a warning.

use std::fmt;

use serde::{Deserialize, Serialize};

const MAX_CHARS: usize = 500;
/// Limit for the nesting of parentheses and `!`.
const MAX_DEPTH: u32 = 32;

/// A condition that the site can parse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Expression {
    text: String,
    tree: Tree,
}

#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Compare(Operand, Comparison, Operand),
    Not(Box<Tree>),
    Group(Box<Tree>),
    And(Box<Tree>, Box<Tree>),
    Or(Box<Tree>, Box<Tree>),
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Number(f64),
    Attribute(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// Longer operators first, because some begin with a shorter one.
const COMPARISONS: [(&str, Comparison); 8] = [
    ("==", Comparison::Equal),
    ("=", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<>", Comparison::Unequal),
    (">=", Comparison::GreaterOrEqual),
    (">", Comparison::Greater),
    ("<=", Comparison::LessOrEqual),
    ("<", Comparison::Less),
];

impl Expression {
    /// `Err`: what is wrong, and at which character.
    pub fn parse(text: &str) -> Result<Expression, String> {
        if text.chars().count() > MAX_CHARS {
            return Err(format!("it has more than {MAX_CHARS} characters"));
        }
        let mut reader = Reader { text, at: 0 };
        let tree = reader.expression(0)?;
        match reader.rest() {
            "" => Ok(Expression { text: text.trim_matches(' ').to_owned(), tree }),
            _ => Err(reader.wrong("`&&`, `||` or the end")),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the condition holds. Comparisons of unknown attributes are false.
    pub fn holds(&self, value: &dyn Fn(&str) -> Option<f64>) -> bool {
        holds(&self.tree, value)
    }

    /// The attributes of the condition in capitals, without duplicates, in the order of the text.
    pub fn attributes(&self) -> Vec<String> {
        let mut found = Vec::new();
        gather(&self.tree, &mut found);
        found
    }

    /// Differences between the meaning to the site and the likely intention.
    pub fn surprises(&self) -> Vec<String> {
        let mut told = Vec::new();
        surprise(&self.tree, &mut told);
        told.sort();
        told.dedup();
        told
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Expression> for String {
    fn from(expression: Expression) -> String {
        expression.text
    }
}

impl TryFrom<String> for Expression {
    type Error = String;

    fn try_from(text: String) -> Result<Expression, String> {
        Expression::parse(&text)
    }
}

fn holds(tree: &Tree, value: &dyn Fn(&str) -> Option<f64>) -> bool {
    let number = |operand: &Operand| match operand {
        Operand::Number(number) => Some(*number),
        Operand::Attribute(name) => value(&name.to_ascii_uppercase()),
    };
    match tree {
        Tree::Compare(left, comparison, right) => match (number(left), number(right)) {
            (Some(left), Some(right)) => comparison.holds(left, right),
            _ => false,
        },
        Tree::Not(inner) => !holds(inner, value),
        Tree::Group(inner) => holds(inner, value),
        Tree::And(left, right) => holds(left, value) && holds(right, value),
        Tree::Or(left, right) => holds(left, value) || holds(right, value),
    }
}

impl Comparison {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Comparison::Equal => left == right,
            Comparison::Unequal => left != right,
            Comparison::Greater => left > right,
            Comparison::GreaterOrEqual => left >= right,
            Comparison::Less => left < right,
            Comparison::LessOrEqual => left <= right,
        }
    }
}

fn gather(tree: &Tree, found: &mut Vec<String>) {
    match tree {
        Tree::Compare(left, _, right) => {
            for operand in [left, right] {
                if let Operand::Attribute(name) = operand
                    && !found.contains(&name.to_ascii_uppercase())
                {
                    found.push(name.to_ascii_uppercase());
                }
            }
        }
        Tree::Not(inner) | Tree::Group(inner) => gather(inner, found),
        Tree::And(left, right) | Tree::Or(left, right) => {
            gather(left, found);
            gather(right, found);
        }
    }
}

fn surprise(tree: &Tree, told: &mut Vec<String>) {
    match tree {
        Tree::Compare(left, _, right) => {
            let quoted = |operand: &Operand| matches!(operand, Operand::Attribute(name) if !name.starts_with(char::is_alphabetic));
            if quoted(left) || quoted(right) {
                told.push(
                    "quotes are part of the attribute name, which no machine has: the condition never holds".to_owned(),
                );
            }
        }
        Tree::Group(inner) => surprise(inner, told),
        Tree::Not(inner) => {
            if matches!(**inner, Tree::And(..) | Tree::Or(..)) {
                told.push("`!` negates everything after it, not only the next comparison".to_owned());
            }
            surprise(inner, told);
        }
        Tree::And(left, right) | Tree::Or(left, right) => {
            let mixed = matches!((tree, &**right), (Tree::And(..), Tree::Or(..)) | (Tree::Or(..), Tree::And(..)));
            if mixed {
                told.push(
                    "`&&` and `||` are mixed without parentheses: OneFlow reads `a && b || c` as `a && (b || c)`"
                        .to_owned(),
                );
            }
            surprise(left, told);
            surprise(right, told);
        }
    }
}

/// Parses from left to right. Words are separated by spaces only.
struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches(' ').len();
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        if found {
            self.at += sign.len();
        }
        found
    }

    fn wrong(&self, wanted: &str) -> String {
        let found: String = self.rest().chars().take(8).collect();
        let place = self.text[..self.at].chars().count() + 1;
        match found.is_empty() {
            true => format!("it ends, but {wanted} is expected"),
            false => format!("at character {place}: `{}`, but {wanted} is expected", found.escape_debug()),
        }
    }

    fn expression(&mut self, depth: u32) -> Result<Tree, String> {
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} nested parentheses or `!`"));
        }
        self.blanks();
        let mut chain = vec![(self.condition(depth)?, None)];
        loop {
            self.blanks();
            let and = self.takes("&&") || self.takes("&");
            let or = !and && (self.takes("||") || self.takes("|"));
            if !and && !or {
                break;
            }
            self.blanks();
            let next = self.condition(depth)?;
            chain.push((next, Some(and)));
        }
        self.blanks();
        // Right-associative, without precedence.
        let (mut tree, mut joined) = chain.pop().expect("at least one");
        while let (Some((left, before)), Some(and)) = (chain.pop(), joined) {
            tree = match and {
                true => Tree::And(Box::new(left), Box::new(tree)),
                false => Tree::Or(Box::new(left), Box::new(tree)),
            };
            joined = before;
        }
        Ok(tree)
    }

    fn condition(&mut self, depth: u32) -> Result<Tree, String> {
        if self.takes("!") {
            return Ok(Tree::Not(Box::new(self.expression(depth + 1)?)));
        }
        if self.takes("(") {
            let inner = self.expression(depth + 1)?;
            return match self.takes(")") {
                true => Ok(Tree::Group(Box::new(inner))),
                false => Err(self.wrong("`)`")),
            };
        }
        let left = self.operand()?;
        self.blanks();
        let found = COMPARISONS.iter().find(|(sign, _)| self.rest().starts_with(sign));
        let Some((sign, comparison)) = found else { return Err(self.wrong("a comparison like `>`")) };
        self.at += sign.len();
        self.blanks();
        Ok(Tree::Compare(left, *comparison, self.operand()?))
    }

    fn operand(&mut self) -> Result<Operand, String> {
        let rest = self.rest();
        let word = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
            text.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(end)
        };
        if let Some(length) = number_length(rest) {
            self.at += length;
            return rest[..length].parse().map(Operand::Number).map_err(|_| self.wrong("a number"));
        }
        let quote = rest.chars().next().filter(|c| *c == '\'' || *c == '"');
        let length = match quote {
            None => word(rest),
            Some(quote) => word(&rest[1..]).filter(|end| rest[1 + end..].starts_with(quote)).map(|end| end + 2),
        };
        let Some(length) = length else { return Err(self.wrong("a number or the name of an attribute")) };
        self.at += length;
        Ok(Operand::Attribute(rest[..length].to_owned()))
    }
}

/// The length of the number at the start of a text: `-?\d+(\.\d+)?`.
fn number_length(text: &str) -> Option<usize> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let sign = usize::from(text.starts_with('-'));
    let whole = digits(&text[sign..]);
    let fraction = text[sign + whole..].strip_prefix('.').map_or(0, digits);
    let fraction = if fraction > 0 { fraction + 1 } else { 0 };
    (whole > 0).then_some(sign + whole + fraction)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(name: &str) -> Option<f64> {
        [("CPU", 50.25), ("ATT", 15.5)].into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// What real OneFlow answers.
    #[test]
    fn it_means_what_the_site_means() {
        for (text, expected) in [
            ("CPU > 50", true),
            ("cpu>50", true),
            ("5 > 3", true),
            ("CPU > ATT", true),
            ("CPU >= 50.25 & ATT <= 15.5", true),
            ("CPU <> 50.25 | ATT = 15.5", true),
            ("CPU > 90 && ATT > 1 || ATT > 1", false),
            ("(CPU > 90 && ATT > 1) || ATT > 1", true),
            ("!CPU > 90 && ATT > 100", true),
            ("\"CPU\" > 50", false),
            ("NOPE > 1", false),
            ("!(NOPE > 1)", true),
            ("CPU > -1", true),
        ] {
            let read = Expression::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(read.holds(&value), expected, "{text}");
        }
    }

    #[test]
    fn what_the_site_cannot_read_is_refused() {
        for text in [
            "",
            "CPU",
            "CPU >",
            "CPU > 1e2",
            "CPU > .5",
            "CPU > +5",
            "CPU > 5.",
            "CPU > 1 AND ATT > 1",
            "CPU\t> 1",
            "CPU => 1",
            "(CPU > 1",
            "CPU > 1)",
            "'CPU > 1",
            "CPU > 1 && ",
            "CPU > 1 !",
            "_A > 1",
            "CPU > é",
        ] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
        assert!(Expression::parse(&format!("{}CPU > 1{}", "(".repeat(40), ")".repeat(40))).is_err());
        assert!(Expression::parse(&format!("CPU > {}", "1".repeat(MAX_CHARS))).is_err());
        assert_eq!(
            Expression::parse("CPU => 1").unwrap_err(),
            "at character 6: `> 1`, but a number or the name of an attribute is expected"
        );
    }

    #[test]
    fn surprises_are_told() {
        for (text, expected) in [
            ("CPU > 1 && ATT > 1 && CPU < 2", ""),
            ("(CPU > 1 && ATT > 1) || CPU < 2", ""),
            ("CPU > 1 && ATT > 1 || CPU < 2", "mixed"),
            ("CPU > 1 || ATT > 1 && CPU < 2", "mixed"),
            ("!CPU > 1 && ATT > 1", "negates"),
            ("!(CPU > 1) ", ""),
            ("'CPU' > 1", "quotes"),
        ] {
            let surprises = Expression::parse(text).expect("a valid expression").surprises();
            assert_eq!(surprises.is_empty(), expected.is_empty(), "{text}: {surprises:?}");
            assert!(surprises.iter().all(|surprise| surprise.contains(expected)), "{text}: {surprises:?}");
        }
        let names = Expression::parse("cpu > 1 && CPU < ATT").expect("a valid expression").attributes();
        assert_eq!(names, ["CPU", "ATT"]);
    }

    fn tree() -> impl Strategy<Value = String> {
        let operand = prop_oneof!["[A-Za-z][A-Za-z0-9_]{0,5}", "-?[0-9]{1,4}(\\.[0-9]{1,2})?"];
        let sign = prop::sample::select(COMPARISONS.map(|(sign, _)| sign).to_vec());
        let compare = (operand.clone(), sign, operand).prop_map(|(left, sign, right)| format!("{left} {sign} {right}"));
        compare.prop_recursive(4, 24, 2, |inner| {
            prop_oneof![
                inner.clone().prop_map(|inner| format!("({inner})")),
                inner.clone().prop_map(|inner| format!("!{inner}")),
                (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("({left}) && {right}")),
                (inner.clone(), inner).prop_map(|(left, right)| format!("({left}) || {right}")),
            ]
        })
    }

    proptest! {
        #[test]
        fn sound_ones_are_read_and_their_text_reads_the_same(text in tree()) {
            let read = Expression::parse(&text).map_err(TestCaseError::fail)?;
            prop_assert_eq!(Expression::parse(read.as_str()), Ok(read.clone()));
            prop_assert_eq!(Expression::parse(&format!("!({text})")).map(|not| not.holds(&value)), Ok(!read.holds(&value)));
        }

        #[test]
        fn no_text_is_too_strange(text in "[-A-Za-z0-9 ()!&|<>=.'\"\\t]{0,60}") {
            let _ = Expression::parse(&text);
        }
    }
}
