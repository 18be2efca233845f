//! Text form of templates, with the grammar of oned: `KEY = "v"` and `KEY = [ A = "x", B = "y" ]`.

use super::{Template, TemplateError, Value};

pub(super) fn write(template: &Template) -> String {
    let mut out = String::new();
    for (key, value) in &template.0 {
        out.push_str(key);
        out.push('=');
        match value {
            Value::Text(text) => quote_into(&mut out, text),
            // oned rejects empty brackets.
            Value::Vector(pairs) if pairs.is_empty() => quote_into(&mut out, ""),
            Value::Vector(pairs) => {
                out.push_str("[ ");
                for (index, (inner, text)) in pairs.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    out.push_str(inner);
                    out.push('=');
                    quote_into(&mut out, text);
                }
                out.push_str(" ]");
            }
        }
        out.push('\n');
    }
    out
}

fn quote_into(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        if c == '"' || c == '\\' {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

pub(super) fn read(text: &str) -> Result<Template, TemplateError> {
    let mut reading = Reading { rest: text, line: 1 };
    let mut template = Template::default();
    loop {
        reading.skip_between();
        if reading.rest.is_empty() {
            return Ok(template);
        }
        let key = reading.name()?;
        reading.equals(&key)?;
        let value = match reading.rest.starts_with('[') {
            true => Value::Vector(reading.vector()?),
            false => Value::Text(reading.value()?),
        };
        template.0.push((key, value));
    }
}

struct Reading<'a> {
    rest: &'a str,
    line: usize,
}

impl Reading<'_> {
    fn fail<T>(&self, what: String) -> Result<T, TemplateError> {
        Err(TemplateError { line: Some(self.line), what })
    }

    fn advance(&mut self, bytes: usize) {
        self.line += self.rest[..bytes].matches('\n').count();
        self.rest = &self.rest[bytes..];
    }

    fn skip(&mut self, wanted: fn(char) -> bool) {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        self.advance(end);
    }

    /// White space and comments.
    fn skip_between(&mut self) {
        loop {
            self.skip(char::is_whitespace);
            if !self.rest.starts_with('#') {
                return;
            }
            self.skip(|c| c != '\n');
        }
    }

    fn name(&mut self) -> Result<String, TemplateError> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        if end == 0 {
            let found = self.rest.chars().next().map(String::from).unwrap_or("the end".to_owned());
            return self.fail(format!("expected the name of an attribute, found {found:?}"));
        }
        let name = self.rest[..end].to_owned();
        self.advance(end);
        Ok(name)
    }

    fn equals(&mut self, key: &str) -> Result<(), TemplateError> {
        self.skip(is_blank);
        if !self.rest.starts_with('=') {
            return self.fail(format!("there is no = after {key}"));
        }
        self.advance(1);
        self.skip(is_blank);
        Ok(())
    }

    fn vector(&mut self) -> Result<Vec<(String, String)>, TemplateError> {
        self.advance(1);
        let mut pairs = Vec::new();
        loop {
            self.skip_between();
            let key = self.name()?;
            self.equals(&key)?;
            let value = self.value()?;
            pairs.push((key, value));
            self.skip_between();
            match self.rest.chars().next() {
                Some(',') => self.advance(1),
                Some(']') => {
                    self.advance(1);
                    return Ok(pairs);
                }
                _ => return self.fail("expected a comma or a closing bracket".to_owned()),
            }
        }
    }

    /// A quoted text, or a word up to the next space; may be empty.
    fn value(&mut self) -> Result<String, TemplateError> {
        if self.rest.starts_with('"') {
            return self.quoted();
        }
        let end = self.rest.find(|c: char| c.is_whitespace() || "=#,[]".contains(c)).unwrap_or(self.rest.len());
        let word = self.rest[..end].to_owned();
        self.advance(end);
        Ok(word)
    }

    fn quoted(&mut self) -> Result<String, TemplateError> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    self.advance(at + 1);
                    return Ok(text);
                }
                '\\' => match characters.next_if(|&(_, next)| next == '"' || next == '\\') {
                    Some((_, escaped)) => text.push(escaped),
                    None => text.push('\\'),
                },
                _ => text.push(c),
            }
        }
        self.fail("a quote is not closed".to_owned())
    }
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values() -> impl Strategy<Value = String> {
        prop_oneof!["[ -~\n\t]{0,20}", "[\"\\\\\\[\\]\n,=#$ äß😀a]{0,12}", "\\PC{0,8}"]
    }

    fn templates() -> impl Strategy<Value = Template> {
        let names = "[A-Z_][A-Z0-9_]{0,6}";
        let value = prop_oneof![
            values().prop_map(Value::Text),
            prop::collection::vec((names, values()), 1..4).prop_map(Value::Vector),
        ];
        prop::collection::vec((names, value), 0..6).prop_map(Template)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(template in templates()) {
            prop_assert_eq!(Template::parse_text(&template.to_text()).unwrap(), template.clone());
            prop_assert_eq!(Template::parse_xml(&template.to_xml()).unwrap(), template.clone());
            prop_assert_eq!(Template::parse(&template.to_wire().unwrap()).unwrap(), template);
        }

        #[test]
        fn no_text_makes_the_reader_fall(text in "[\"\\\\\\[\\]\n,=#A-C ]{0,40}") {
            let _ = Template::parse(&text);
        }
    }

    #[test]
    fn templates_of_people_are_read() {
        let text = "# a comment\nNAME = web # not a comment of oned's\n";
        assert!(Template::parse_text(text).is_ok());
        let text = "NAME=\"a b\"\nCPU = 0.5\nEMPTY =\nNIC = [ NETWORK = \"net\",\n  MODEL=virtio ]\nNIC=[NETWORK=x]\nLAST=\"\"";
        let expected = Template::new()
            .with("NAME", "a b")
            .with("CPU", "0.5")
            .with("EMPTY", "")
            .with("NIC", [("NETWORK", "net"), ("MODEL", "virtio")])
            .with("NIC", [("NETWORK", "x")])
            .with("LAST", "");
        assert_eq!(Template::parse(text), Ok(expected));
    }

    #[test]
    fn parse_errors_have_a_position() {
        for (text, expected) in [
            ("A=\"x\"\nB", "line 2: there is no = after B"),
            ("NAME=\"x\nCPU=[", "line 1: a quote is not closed"),
            ("A=[", "line 1: expected the name of an attribute, found \"the end\""),
            ("A=[B=\"c\" D=\"e\"]", "line 1: expected a comma or a closing bracket"),
            ("FOO=bar baz\n", "line 1: there is no = after baz"),
        ] {
            assert_eq!(Template::parse(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn all_invalid_attributes_are_reported_at_once() {
        let template = Template::new().with("A B", "x").with("C", [("1D", "a\u{1}b")]).with("E", "fine\n");
        let expected = [
            "\"A B\" is not the name of an attribute: letters, digits and _ only",
            "\"1D\" in C is not the name of an attribute: letters, digits and _ only",
            "the value of C/1D has the control character '\\u{1}', which cannot be sent",
        ];
        assert_eq!(template.to_wire(), Err(expected.map(str::to_owned).to_vec()));
    }

    #[test]
    fn doubtful_values_go_as_xml() {
        assert_eq!(Template::new().with("A", "b c").to_wire().unwrap(), "A=\"b c\"\n");
        let wire = Template::new().with("A", "say \"<hi>\"").to_wire().unwrap();
        assert_eq!(wire, "<TEMPLATE><A>say \"&lt;hi&gt;\"</A></TEMPLATE>");
    }
}
