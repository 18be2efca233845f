//! Converts values to settings. Reports all problems at once, each with the variable, its value unless it is a secret, and
//! advice. Pure.

mod gateway;
mod runtime;
mod superlink;
mod supernode;
mod training;
mod value;

use std::collections::BTreeMap;
use std::time::Duration;

use trellis_flower::launch::LogLevel;
use value::Invalid;

use crate::context::{MAX_VALUE_BYTES, Origin, Value, Values};
use crate::problem::{Diagnostic, Problems, problem, shown};
use crate::settings::{Common, Keepalive, Role, RoleSettings, Settings};
use crate::variables::{self, Kind, Status, VARIABLES, Variable};

/// Shorter intervals may look like an attack to middleboxes and servers.
const SHORT_KEEPALIVE_S: u64 = 10;

/// Converts the values for a VM whose image has the role `image_role`.
pub fn read(values: &Values, image_role: Role) -> Result<(Settings, Vec<Diagnostic>), Problems> {
    let mut reader = Reader::new(values, image_role);
    let common = common(&mut reader);
    let role = match reader.role {
        Role::SuperLink => RoleSettings::SuperLink(superlink::read(&mut reader, &common)),
        Role::SuperNode => RoleSettings::SuperNode(supernode::read(&mut reader, &common)),
        Role::Gateway => match gateway::read(&mut reader) {
            Some(gateway) => RoleSettings::Gateway(gateway),
            None => return Err(Problems(reader.problems, reader.warnings)),
        },
    };
    match reader.problems.is_empty() {
        true => Ok((Settings { common, role }, reader.warnings)),
        false => Err(Problems(reader.problems, reader.warnings)),
    }
}

/// A variable and its effective value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveValue {
    pub variable: &'static str,
    /// Spelling and origin of the value; `None` if it is the default.
    pub said: Option<(String, Origin)>,
    /// Printable value; `None` if it is a secret.
    pub value: Option<String>,
}

/// All variables of the role that have a value, in the order of the table.
pub fn effective_values(values: &Values, image_role: Role) -> Vec<EffectiveValue> {
    let reader = Reader::new(values, image_role);
    let mut all = Vec::new();
    for variable in VARIABLES.iter().filter(|variable| variable.is_for(reader.role)) {
        for given in reader.given.range((variable.name, None)..=(variable.name, Some(u32::MAX))).map(|(_, given)| given)
        {
            let value = (!variable.secret).then(|| shown(&given.text));
            all.push(EffectiveValue {
                variable: variable.name,
                said: Some((given.spelling.clone(), given.origin)),
                value,
            });
        }
        if !reader.is_set(variable.name) && !variable.default.is_empty() {
            all.push(EffectiveValue { variable: variable.name, said: None, value: Some(variable.default.to_owned()) });
        }
    }
    all
}

/// The value as text, if it is set.
#[derive(Debug, Clone)]
struct Given {
    spelling: String,
    origin: Origin,
    text: String,
}

/// Collects values and problems during the conversion.
struct Reader {
    role: Role,
    assigned: Option<(String, String)>,
    /// By name, and number of the peer.
    given: BTreeMap<(&'static str, Option<u32>), Given>,
    problems: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

impl Reader {
    fn new(values: &Values, image_role: Role) -> Reader {
        let assigned = values.assigned().map(|(part, generation)| (part.to_owned(), generation.to_owned()));
        let problems = values.problems().to_vec();
        let mut reader = Reader { role: image_role, assigned, given: BTreeMap::new(), problems, warnings: Vec::new() };
        let mut found: BTreeMap<(&'static str, Option<u32>), Vec<Value<'_>>> = BTreeMap::new();
        for name in values.names() {
            match variables::find(name) {
                Some((variable, number)) => {
                    found.entry((variable.name, number)).or_default().extend(values.all(name).take(1))
                }
                None if variables::is_ours(name) => reader.unknown(name),
                None => {}
            }
        }
        for ((name, number), said) in found {
            reader.add(variable(name), number, said);
        }
        if let Some(role) = reader.take("FL_ROLE", |text| Role::parse(text).ok_or(Invalid::kind())) {
            reader.role = role;
        }
        reader.drop_other_roles();
        reader
    }

    fn unknown(&mut self, name: &str) {
        let all = || "run trellis appliance vars for the list".to_owned();
        let advice = variables::did_you_mean(name).unwrap_or_else(all);
        self.warnings.push(problem(name, "there is no such variable, so it is ignored", advice));
    }

    /// Several spellings of a variable must agree, unless the controller sets one of them.
    fn add(&mut self, variable: &'static Variable, number: Option<u32>, mut said: Vec<Value<'_>>) {
        match variable.status {
            Status::Effective => {}
            Status::Elsewhere { .. } => return,
            Status::Refused { why } => {
                let names = said.iter().map(|said| problem(said.name, why, "leave it out"));
                return self.problems.extend(names);
            }
        }
        if said.iter().any(|said| said.origin == Origin::Assignment) {
            said.retain(|said| said.origin == Origin::Assignment);
        }
        let mut texts: Vec<Given> = Vec::new();
        for said in said {
            match text(variable, &said) {
                Ok(text) => texts.push(Given { spelling: said.name.to_owned(), origin: said.origin, text }),
                Err(found) => self.problems.push(found),
            }
        }
        let alias = texts.iter().find(|given| variable.aliases.iter().any(|alias| given.spelling.ends_with(alias)));
        if let Some(Given { spelling, .. }) = alias {
            let what = format!("this is an old name of {}", variable.name);
            self.warnings.push(problem(spelling, what, format!("write {}", variable.name)));
        }
        let Some(first) = texts.first().cloned() else { return };
        if let Some(other) = texts.iter().find(|other| !same(variable.kind, &other.text, &first.text)) {
            let what = format!("{} has another value, and both name the same variable", other.spelling);
            let advice = format!("keep one of {} and {}", first.spelling, other.spelling);
            self.problems.push(problem(variable.place(&first.spelling, &first.text), what, advice));
        }
        self.given.insert((variable.name, number), first);
    }

    /// OneFlow passes inputs of a service to all of its roles, so this is a warning and no error.
    fn drop_other_roles(&mut self) {
        let role = self.role;
        let warnings = &mut self.warnings;
        self.given.retain(|(name, _), given| {
            let ours = variable(name).is_for(role);
            if !ours {
                let what = format!("a {} ignores it", role.name());
                warnings.push(problem(&given.spelling, what, "nothing, if it is set for the whole service"));
            }
            ours
        });
    }

    fn is_set(&self, name: &'static str) -> bool {
        self.given.range((name, None)..=(name, Some(u32::MAX))).next().is_some()
    }

    /// The value of a variable if it is set and valid.
    fn take<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> Option<T> {
        self.take_numbered(name, None, parse)
    }

    fn take_numbered<T>(
        &mut self,
        name: &'static str,
        number: Option<u32>,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<T> {
        let given = self.given.get(&(name, number))?;
        match parse(given.text.trim()) {
            Ok(value) => Some(value),
            Err(bad) => {
                let variable = variable(name);
                let what = bad.what.unwrap_or_else(|| "it is invalid".to_owned());
                let advice = bad.advice.unwrap_or_else(|| format!("give {}", variable.kind));
                self.problems.push(problem(variable.place(&given.spelling, &given.text), what, advice));
                None
            }
        }
    }

    /// The default if the value is missing or invalid, so that the conversion can continue.
    fn or_default<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, Invalid>) -> T {
        let said = self.take(name, &parse);
        said.unwrap_or_else(|| {
            parse(variable(name).default).unwrap_or_else(|_| unreachable!("a test parses all defaults of the table"))
        })
    }

    fn switch(&mut self, name: &'static str) -> bool {
        self.or_default(name, value::switch)
    }

    fn integer(&mut self, name: &'static str) -> u64 {
        self.or_default(name, |text| value::integer(text, variable(name).kind))
    }

    /// For a variable whose range is smaller than that of its type.
    fn count(&mut self, name: &'static str) -> u32 {
        u32::try_from(self.integer(name)).unwrap_or(u32::MAX)
    }

    /// Like `number`, without a second report of the same problem.
    fn count_quietly(&mut self, name: &'static str) -> u32 {
        let problems = self.problems.len();
        let count = self.count(name);
        self.problems.truncate(problems);
        count
    }

    /// Whether a switch is explicitly NO.
    fn is_off(&self, name: &'static str) -> bool {
        self.given.get(&(name, None)).is_some_and(|given| value::switch(given.text.trim()) == Ok(false))
    }

    fn number(&mut self, name: &'static str) -> f64 {
        self.or_default(name, |text| value::number(text, variable(name).kind))
    }

    fn choice(&mut self, name: &'static str) -> &'static str {
        self.or_default(name, |text| value::choice(text, variable(name).kind))
    }

    /// Reports a conflict between variables.
    fn reject(&mut self, name: &'static str, what: impl Into<String>, advice: impl Into<String>) {
        let found = self.about(name, what.into(), advice.into());
        self.problems.push(found);
    }

    fn warn(&mut self, name: &'static str, what: impl Into<String>, advice: impl Into<String>) {
        let warning = self.about(name, what.into(), advice.into());
        self.warnings.push(warning);
    }

    fn about(&self, name: &'static str, what: String, advice: String) -> Diagnostic {
        match self.given.get(&(name, None)) {
            Some(given) => problem(variable(name).place(&given.spelling, &given.text), what, advice),
            None => problem(name, what, advice),
        }
    }
}

fn variable(name: &str) -> &'static Variable {
    VARIABLES.iter().find(|variable| variable.name == name).expect("callers use names of the table")
}

fn text(variable: &Variable, said: &Value<'_>) -> Result<String, Diagnostic> {
    if said.bytes.len() > MAX_VALUE_BYTES {
        let what = format!("it is {} bytes long; the limit is {MAX_VALUE_BYTES}", said.bytes.len());
        return Err(problem(said.name, what, format!("give {}", variable.kind)));
    }
    let Ok(text) = std::str::from_utf8(said.bytes) else {
        return Err(problem(said.name, "it is not UTF-8", format!("give {}", variable.kind)));
    };
    if variable.kind != Kind::Pem && text.trim().chars().any(char::is_control) {
        let what = "it has line breaks or control characters";
        return Err(problem(variable.place(said.name, text), what, format!("give {}", variable.kind)));
    }
    Ok(text.to_owned())
}

fn same(kind: Kind, one: &str, other: &str) -> bool {
    match kind {
        Kind::Switch | Kind::Choice(_) => one.trim().eq_ignore_ascii_case(other.trim()),
        _ => one.trim() == other.trim(),
    }
}

fn common(reader: &mut Reader) -> Common {
    let log_level = match reader.choice("FL_LOG_LEVEL") {
        "DEBUG" => LogLevel::Debug,
        "WARNING" => LogLevel::Warning,
        "ERROR" => LogLevel::Error,
        _ => LogLevel::Info,
    };
    let token = reader.switch("TOKEN");
    if !token {
        reader.warn(
            "TOKEN",
            "without a token OneGate cannot be used to publish or to discover",
            "set TOKEN=YES in CONTEXT",
        );
    }
    let keepalive = keepalive(reader);
    let (part, generation) = reader.assigned.clone().unzip();
    Common {
        generation,
        part,
        runtime: runtime::read(reader),
        flower_version: reader.take("FLOWER_VERSION", value::version),
        isolation: runtime::isolation(reader),
        log_level,
        json_logs: reader.choice("FL_LOG_FORMAT") == "json",
        tls: reader.switch("FL_TLS_ENABLED"),
        keepalive,
        report_ready: reader.switch("REPORT_READY"),
        defer_while_training: reader.switch("FL_DEFER_RECONFIGURE"),
        routes: reader.take("FL_ROUTES", value::routes).unwrap_or_default(),
        ready_script: reader.take("READY_SCRIPT_PATH", value::absolute_path),
    }
}

fn keepalive(reader: &mut Reader) -> Keepalive {
    let interval = reader.integer("FL_GRPC_KEEPALIVE_TIME");
    let timeout = reader.integer("FL_GRPC_KEEPALIVE_TIMEOUT");
    if timeout >= interval {
        let what = format!("the timeout is {timeout} s, and the next probe follows after {interval} s");
        let asked = ["FL_GRPC_KEEPALIVE_TIMEOUT", "FL_GRPC_KEEPALIVE_TIME"];
        let name = if reader.is_set(asked[0]) { asked[0] } else { asked[1] };
        reader.reject(name, what, "give FL_GRPC_KEEPALIVE_TIMEOUT less than FL_GRPC_KEEPALIVE_TIME");
    }
    if interval < SHORT_KEEPALIVE_S {
        let what = format!("proxies may reject a probe every {interval} s");
        reader.warn("FL_GRPC_KEEPALIVE_TIME", what, format!("give {SHORT_KEEPALIVE_S} or more"));
    }
    Keepalive { interval: Duration::from_secs(interval), timeout: Duration::from_secs(timeout) }
}
