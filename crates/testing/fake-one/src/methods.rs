//! The supported methods of oned and their parameters.

use crate::rpc::Value;

/// Types after the session: `i` integer, `s` text, `b` boolean, `a` array; those after `|` are optional.
const METHODS: [(&str, &str); 69] = [
    ("one.system.version", ""),
    ("one.system.config", ""),
    ("one.acl.info", ""),
    ("one.user.info", "i|b"),
    ("one.user.allocate", "sssa"),
    ("one.user.login", "ssi|i"),
    ("one.user.update", "is|i"),
    ("one.user.quota", "is"),
    ("one.userpool.info", ""),
    ("one.grouppool.info", ""),
    ("one.clusterpool.info", ""),
    ("one.datastorepool.info", ""),
    ("one.hostpool.info", ""),
    ("one.zonepool.info", ""),
    ("one.template.allocate", "s"),
    ("one.template.info", "i|bb"),
    ("one.template.update", "is|i"),
    ("one.template.rename", "is"),
    ("one.template.delete", "i|b"),
    ("one.template.clone", "is|b"),
    ("one.template.chmod", "iiiiiiiiii|b"),
    ("one.template.chown", "iii"),
    ("one.template.lock", "ii|b"),
    ("one.template.unlock", "i"),
    ("one.template.instantiate", "is|bsb"),
    ("one.templatepool.info", "iii"),
    ("one.vm.allocate", "s|b"),
    ("one.vm.info", "i|b"),
    ("one.vm.update", "is|i"),
    ("one.vm.updateconf", "is|i"),
    ("one.vm.rename", "is"),
    ("one.vm.action", "si"),
    ("one.vm.recover", "ii"),
    ("one.vm.chmod", "iiiiiiiiii"),
    ("one.vm.chown", "iii"),
    ("one.vm.monitoring", "i"),
    ("one.vmpool.info", "iiii|s"),
    ("one.vmpool.infoextended", "iiii|s"),
    ("one.vmpool.infoset", "sb"),
    ("one.image.allocate", "si|b"),
    ("one.image.info", "i|b"),
    ("one.image.update", "is|i"),
    ("one.image.rename", "is"),
    ("one.image.delete", "i|b"),
    ("one.image.persistent", "ib"),
    ("one.image.enable", "ib"),
    ("one.image.chmod", "iiiiiiiiii"),
    ("one.image.chown", "iii"),
    ("one.imagepool.info", "iii"),
    ("one.vn.allocate", "si"),
    ("one.vn.info", "i|b"),
    ("one.vn.update", "is|i"),
    ("one.vn.add_ar", "is"),
    ("one.vn.reserve", "is"),
    ("one.vn.hold", "is"),
    ("one.vn.release", "is"),
    ("one.vn.delete", "i"),
    ("one.vn.chmod", "iiiiiiiiii"),
    ("one.vnpool.info", "iii"),
    ("one.document.allocate", "si"),
    ("one.document.info", "i|b"),
    ("one.document.update", "is|i"),
    ("one.document.rename", "is"),
    ("one.document.delete", "i"),
    ("one.document.chmod", "iiiiiiiiii"),
    ("one.document.chown", "iii"),
    ("one.document.lock", "ii|b"),
    ("one.document.unlock", "i"),
    ("one.documentpool.info", "iiii"),
];

/// Parameters after the session, in order; omitted ones are missing at the end.
#[derive(Debug, PartialEq)]
pub struct Parameters(Vec<Value>);

/// Code and text of the fault.
pub type Fault = (i32, String);

/// The session and the other parameters.
pub fn checked(method: &str, given: Vec<Value>) -> Result<(String, Parameters), Fault> {
    let Some((_, wanted)) = METHODS.iter().find(|(name, _)| *name == method) else {
        return Err((-506, format!("Method '{method}' not defined")));
    };
    let required = wanted.split('|').next().unwrap_or_default().len();
    let mut given = given.into_iter();
    let session = match given.next() {
        Some(Value::Text(session)) => session,
        Some(_) => return Err((-501, "Parameter that is supposed to be a string is not".to_owned())),
        None => return Err((-501, "Not enough parameters".to_owned())),
    };
    let rest: Vec<Value> = given.collect();
    for (value, kind) in rest.iter().zip(wanted.chars().filter(|kind| *kind != '|')) {
        let word = match (kind, value) {
            ('i', Value::Int(_)) | ('s', Value::Text(_)) | ('b', Value::Bool(_)) | ('a', Value::Array(_)) => continue,
            ('i', _) => "integer",
            ('b', _) => "boolean",
            ('a', _) => "an array",
            _ => "a string",
        };
        return Err((-501, format!("Parameter that is supposed to be {word} is not")));
    }
    match rest.len() < required {
        true => Err((-501, "Not enough parameters".to_owned())),
        false => Ok((session, Parameters(rest))),
    }
}

impl Parameters {
    /// 0 if the parameter is omitted.
    pub fn int(&self, at: usize) -> i64 {
        match self.0.get(at) {
            Some(Value::Int(number)) => *number,
            _ => 0,
        }
    }

    pub fn text(&self, at: usize) -> &str {
        match self.0.get(at) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    pub fn truth(&self, at: usize) -> bool {
        matches!(self.0.get(at), Some(Value::Bool(true)))
    }

    pub fn first_of_array(&self, at: usize) -> Option<i64> {
        match self.0.get(at) {
            Some(Value::Array(values)) => match values.first() {
                Some(Value::Int(number)) => Some(*number),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_wrongly_gets_the_recorded_fault() {
        let s = |text: &str| Value::Text(text.to_owned());
        let i = Value::Int;
        for (method, given, wanted) in [
            ("one.nope.info", vec![s("a:b")], Err((-506, "Method 'one.nope.info' not defined"))),
            ("one.vmpool.info", vec![s("a:b"), i(-2), i(-1), i(-1)], Err((-501, "Not enough parameters"))),
            ("one.vm.info", vec![s("a:b"), s("x")], Err((-501, "Parameter that is supposed to be integer is not"))),
            (
                "one.vm.action",
                vec![s("a:b"), i(1), s("x")],
                Err((-501, "Parameter that is supposed to be a string is not")),
            ),
            ("one.vm.info", vec![s("a:b"), i(0), Value::Bool(true), i(3)], Ok(())),
            ("one.template.instantiate", vec![s("a:b"), i(0), s("n")], Ok(())),
        ] {
            let got = checked(method, given).map(|_| ());
            assert_eq!(got, wanted.map_err(|(code, text)| (code, text.to_owned())), "{method}");
        }
    }
}
