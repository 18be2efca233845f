//! XML-RPC of oned: encodes calls and decodes responses. Pure.

use crate::xml::{self, Element};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Int(i32),
    Long(i64),
    Bool(bool),
    Text(String),
    Array(Vec<Value>),
    Struct(Vec<(String, Value)>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Value {
        Value::Int(number)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Value {
        Value::Bool(truth)
    }
}

impl Value {
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Any integer type.
    pub fn as_number(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(i64::from(*number)),
            Value::Long(number) => Some(*number),
            _ => None,
        }
    }
}

/// A call as a server decodes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub method: String,
    pub parameters: Vec<Value>,
}

/// A fault: an unknown method, or parameters of the wrong type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault {code}: {text}")]
pub struct Fault {
    pub code: i32,
    pub text: String,
}

pub fn encode_call(method: &str, parameters: &[Value]) -> String {
    let mut out = String::from("<?xml version=\"1.0\"?><methodCall><methodName>");
    xml::escape_into(&mut out, method);
    out.push_str("</methodName><params>");
    for parameter in parameters {
        out.push_str("<param>");
        value_into(&mut out, parameter);
        out.push_str("</param>");
    }
    out + "</params></methodCall>"
}

pub fn decode_call(text: &str) -> Result<Call, String> {
    let root = document(text, "methodCall")?;
    let method = root.child("methodName").ok_or("the call has no methodName")?.text.trim().to_owned();
    let parameters = root.child("params").map(|params| params.all("param").map(single).collect());
    Ok(Call { method, parameters: parameters.transpose()?.unwrap_or_default() })
}

pub fn encode_response(outcome: Result<&Value, &Fault>) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?><methodResponse>");
    match outcome {
        Ok(value) => {
            out.push_str("<params><param>");
            value_into(&mut out, value);
            out.push_str("</param></params>");
        }
        Err(fault) => {
            out.push_str("<fault>");
            let members = vec![
                ("faultCode".to_owned(), Value::Int(fault.code)),
                ("faultString".to_owned(), Value::Text(fault.text.clone())),
            ];
            value_into(&mut out, &Value::Struct(members));
            out.push_str("</fault>");
        }
    }
    out + "</methodResponse>"
}

/// The outer error means that the text is not a response.
pub fn decode_response(text: &str) -> Result<Result<Value, Fault>, String> {
    let root = document(text, "methodResponse")?;
    if let Some(fault) = root.child("fault") {
        let Value::Struct(members) = single(fault)? else { return Err("the fault is not a struct".to_owned()) };
        let member = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let code = member("faultCode").and_then(Value::as_number).and_then(|code| i32::try_from(code).ok());
        let text = member("faultString").and_then(Value::as_text).unwrap_or_default().to_owned();
        return Ok(Err(Fault { code: code.ok_or("the fault has no faultCode")?, text }));
    }
    let param = root.child("params").and_then(|params| params.child("param"));
    Ok(Ok(single(param.ok_or("the answer has neither a value nor a fault")?)?))
}

fn document(text: &str, name: &str) -> Result<Element, String> {
    let root = xml::parse(text)?;
    match root.name == name {
        true => Ok(root),
        false => Err(format!("expected {name}, found {}", root.name)),
    }
}

fn single(holder: &Element) -> Result<Value, String> {
    value(holder.child("value").ok_or_else(|| format!("there is no value in {}", holder.name))?)
}

fn value(element: &Element) -> Result<Value, String> {
    // A value without a type is text.
    let Some(typed) = element.children.first() else { return Ok(Value::Text(element.text.clone())) };
    let wrong = |kind: &str| format!("{:?} is not {kind}", typed.text);
    let trimmed = typed.text.trim();
    Ok(match typed.name.as_str() {
        "i4" | "int" => Value::Int(trimmed.parse().map_err(|_| wrong("an int"))?),
        "i8" => Value::Long(trimmed.parse().map_err(|_| wrong("an i8"))?),
        "boolean" => match trimmed {
            "1" | "true" => Value::Bool(true),
            "0" | "false" => Value::Bool(false),
            _ => return Err(wrong("a boolean")),
        },
        "string" => Value::Text(typed.text.clone()),
        "array" => {
            let data = typed.child("data").ok_or("an array has no data")?;
            Value::Array(data.all("value").map(value).collect::<Result<_, _>>()?)
        }
        "struct" => Value::Struct(typed.all("member").map(member).collect::<Result<_, _>>()?),
        other => return Err(format!("values of the type {other} are not known")),
    })
}

fn member(element: &Element) -> Result<(String, Value), String> {
    Ok((element.text_of("name").to_owned(), single(element)?))
}

fn value_into(out: &mut String, value: &Value) {
    out.push_str("<value>");
    match value {
        Value::Int(number) => out.push_str(&format!("<int>{number}</int>")),
        Value::Long(number) => out.push_str(&format!("<i8>{number}</i8>")),
        Value::Bool(truth) => out.push_str(&format!("<boolean>{}</boolean>", u8::from(*truth))),
        Value::Text(text) => {
            out.push_str("<string>");
            xml::escape_into(out, text);
            out.push_str("</string>");
        }
        Value::Array(values) => {
            out.push_str("<array><data>");
            values.iter().for_each(|value| value_into(out, value));
            out.push_str("</data></array>");
        }
        Value::Struct(members) => {
            out.push_str("<struct>");
            for (name, value) in members {
                out.push_str("<member><name>");
                xml::escape_into(out, name);
                out.push_str("</name>");
                value_into(out, value);
                out.push_str("</member>");
            }
            out.push_str("</struct>");
        }
    }
    out.push_str("</value>");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values() -> impl Strategy<Value = Value> {
        let texts = prop_oneof!["[ -~\n\t\r]{0,20}", "\\PC{0,8}", Just("]]><![CDATA[".to_owned())];
        let leaf = prop_oneof![
            any::<i32>().prop_map(Value::Int),
            any::<i64>().prop_map(Value::Long),
            any::<bool>().prop_map(Value::Bool),
            texts.prop_map(Value::Text),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::vec(("[a-z<&]{1,5}", inner), 0..4).prop_map(Value::Struct),
            ]
        })
    }

    proptest! {
        #[test]
        fn calls_and_answers_survive_the_way(method in "[a-z.]{1,12}", parameters in prop::collection::vec(values(), 0..4)) {
            let call = decode_call(&encode_call(&method, &parameters)).unwrap();
            prop_assert_eq!((call.method, call.parameters.clone()), (method, parameters));
            let answer = Value::Array(call.parameters);
            prop_assert_eq!(decode_response(&encode_response(Ok(&answer))).unwrap(), Ok(answer));
        }
    }

    #[test]
    fn faults_survive_the_way() {
        let fault = Fault { code: -506, text: "Method 'one.nope' not defined <>".into() };
        assert_eq!(decode_response(&encode_response(Err(&fault))), Ok(Err(fault)));
    }

    #[test]
    fn invalid_responses_are_rejected_with_a_reason() {
        let answer = |inner: &str| format!("<methodResponse><params><param>{inner}</param></params></methodResponse>");
        for (text, expected) in [
            ("<html/>".to_owned(), "expected methodResponse, found html"),
            ("<methodResponse/>".to_owned(), "the answer has neither a value nor a fault"),
            (answer("<value><int>x</int></value>"), "\"x\" is not an int"),
            (answer("<value><nil/></value>"), "values of the type nil are not known"),
            (answer("<value><array/></value>"), "an array has no data"),
            (answer(""), "there is no value in param"),
        ] {
            assert_eq!(decode_response(&text), Err(expected.to_owned()), "{text}");
        }
        assert_eq!(decode_response(&answer("<value> x </value>")), Ok(Ok(Value::Text(" x ".into()))));
    }
}
