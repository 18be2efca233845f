//! XML-RPC of oned. Independent of methods.

use crate::element::{Content, Element, escaped};

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Int(i64),
    Bool(bool),
    Text(String),
    Array(Vec<Value>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub method: String,
    pub parameters: Vec<Value>,
}

pub fn parse(body: &str) -> Result<Call, String> {
    let root = Element::parse(body)?;
    if root.name != "methodCall" {
        return Err(format!("a methodCall was expected, not {}", root.name));
    }
    let method = root.child("methodName").ok_or("there is no methodName")?.text().trim().to_owned();
    let parameters = match root.child("params") {
        None => Vec::new(),
        Some(params) => params
            .children()
            .iter()
            .map(|param| value(param.child("value").ok_or("a param without a value")?))
            .collect::<Result<_, String>>()?,
    };
    Ok(Call { method, parameters })
}

fn value(element: &Element) -> Result<Value, String> {
    let typed = match &element.content {
        // A value without a type is a string.
        Content::Plain(text) | Content::Free(text) => return Ok(Value::Text(text.clone())),
        Content::Elements(elements) => elements.first().ok_or("an empty value")?,
    };
    match typed.name.as_str() {
        "string" => Ok(Value::Text(typed.text().to_owned())),
        "int" | "i4" | "i8" => {
            typed.text().trim().parse().map(Value::Int).map_err(|_| format!("{:?} is not a number", typed.text()))
        }
        "boolean" => match typed.text().trim() {
            "1" => Ok(Value::Bool(true)),
            "0" => Ok(Value::Bool(false)),
            other => Err(format!("{other:?} is neither 0 nor 1")),
        },
        "array" => {
            let data = typed.child("data").ok_or("an array without data")?;
            data.children().iter().map(value).collect::<Result<_, _>>().map(Value::Array)
        }
        other => Err(format!("values of type {other} are not understood")),
    }
}

/// The three elements of a success.
pub fn success(result: &Value) -> String {
    answer(&["<boolean>1</boolean>".to_owned(), typed(result), "<i4>0</i4>".to_owned()])
}

/// The five elements of an error.
pub fn failure(message: &str, code: i32, object: i64) -> String {
    answer(&[
        "<boolean>0</boolean>".to_owned(),
        format!("<string>{}</string>", escaped(message)),
        format!("<i4>{code}</i4>"),
        format!("<i4>{object}</i4>"),
        "<i8>-1</i8>".to_owned(),
    ])
}

fn typed(value: &Value) -> String {
    match value {
        Value::Int(number) => format!("<i4>{number}</i4>"),
        Value::Bool(truth) => format!("<boolean>{}</boolean>", u8::from(*truth)),
        Value::Text(text) => format!("<string>{}</string>", escaped(text)),
        Value::Array(values) => {
            let inner: String = values.iter().map(|value| format!("<value>{}</value>", typed(value))).collect();
            format!("<array><data>{inner}</data></array>")
        }
    }
}

fn answer(values: &[String]) -> String {
    let values: String = values.iter().map(|value| format!("<value>{value}</value>\r\n")).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\r\n<methodResponse>\r\n<params>\r\n<param><value><array><data>\r\n\
         {values}</data></array></value></param>\r\n</params>\r\n</methodResponse>\r\n"
    )
}

pub fn fault(code: i32, text: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\r\n<methodResponse>\r\n<fault>\r\n<value><struct>\r\n\
         <member><name>faultCode</name>\r\n<value><i4>{code}</i4></value></member>\r\n\
         <member><name>faultString</name>\r\n<value><string>{}</string></value></member>\r\n\
         </struct></value>\r\n</fault>\r\n</methodResponse>\r\n",
        escaped(text)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_with_its_types() {
        let body = "<?xml version='1.0'?><methodCall><methodName>one.x</methodName><params>\n<param><value><string>a&amp;b</string></value></param>\
                    <param><value><i4>-3</i4></value></param><param><value><boolean>1</boolean></value></param><param><value>bare</value></param>\
                    <param><value><array><data><value><int>1</int></value></data></array></value></param></params></methodCall>";
        let call = parse(body).expect("it is a call");
        assert_eq!(call.method, "one.x");
        let text = |text: &str| Value::Text(text.to_owned());
        let wanted =
            vec![text("a&b"), Value::Int(-3), Value::Bool(true), text("bare"), Value::Array(vec![Value::Int(1)])];
        assert_eq!(call.parameters, wanted);
    }

    #[test]
    fn what_is_no_call_is_refused() {
        for body in [
            "",
            "<a/>",
            "<methodCall/>",
            "<methodCall><methodName>m</methodName><params><param/></params></methodCall>",
        ] {
            assert!(parse(body).is_err(), "{body}");
        }
    }
}
