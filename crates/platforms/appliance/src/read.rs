//! From values to settings: every problem at once, each with the variable, its value unless it is a secret, and what to do. Pure.

mod gateway;
mod runtime;
mod superlink;
mod supernode;
mod training;
mod value;

use std::collections::BTreeMap;
use std::time::Duration;

use trellis_flower::launch::LogLevel;
use value::Bad;

use crate::context::{MAX_VALUE_BYTES, Origin, Said, Values};
use crate::problem::{Problem, Problems, Warning};
use crate::settings::{Common, Keepalive, Role, RoleSettings, Settings};
use crate::variables::{self, Kind, Status, VARIABLES, Variable};

/// Below this, middle boxes and the other side may take probes for an attack.
const SHORT_KEEPALIVE_S: u64 = 10;

/// What the values mean to a VM whose image is for `image_role`.
pub fn read(values: &Values, image_role: Role) -> Result<(Settings, Vec<Warning>), Problems> {
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

/// A variable as it would be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    pub variable: &'static str,
    /// Under which name it was said; `None`: nobody did, it is the default.
    pub said: Option<(String, Origin)>,
    /// Fit to be shown; `None`: a secret.
    pub value: Option<String>,
}

/// All variables of the role that have a value, in the order of the table.
pub fn used(values: &Values, image_role: Role) -> Vec<Used> {
    let reader = Reader::new(values, image_role);
    let mut all = Vec::new();
    for variable in VARIABLES.iter().filter(|variable| variable.is_for(reader.role)) {
        for spoken in
            reader.spoken.range((variable.name, None)..=(variable.name, Some(u32::MAX))).map(|(_, spoken)| spoken)
        {
            let shown = Problem::new("", "", "").showing(&spoken.text).value;
            let value = if variable.secret { None } else { shown };
            all.push(Used { variable: variable.name, said: Some((spoken.spelling.clone(), spoken.origin)), value });
        }
        if !reader.is_said(variable.name) && !variable.default.is_empty() {
            all.push(Used { variable: variable.name, said: None, value: Some(variable.default.to_owned()) });
        }
    }
    all
}

/// What somebody said, as text.
#[derive(Debug, Clone)]
struct Spoken {
    spelling: String,
    origin: Origin,
    text: String,
}

/// Gathers what is said about the variables while they are read.
struct Reader {
    role: Role,
    assigned: Option<(String, String)>,
    /// By name, and number of the peer.
    spoken: BTreeMap<(&'static str, Option<u32>), Spoken>,
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
}

impl Reader {
    fn new(values: &Values, image_role: Role) -> Reader {
        let assigned = values.assigned().map(|(part, generation)| (part.to_owned(), generation.to_owned()));
        let problems = values.problems().to_vec();
        let mut reader = Reader { role: image_role, assigned, spoken: BTreeMap::new(), problems, warnings: Vec::new() };
        let mut found: BTreeMap<(&'static str, Option<u32>), Vec<Said<'_>>> = BTreeMap::new();
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
            reader.hear(variable(name), number, said);
        }
        if let Some(role) = reader.take("FL_ROLE", |text| Role::parse(text).ok_or(Bad::kind())) {
            reader.role = role;
        }
        reader.leave_out_other_roles();
        reader
    }

    fn unknown(&mut self, name: &str) {
        let advice = match variables::nearest(name) {
            Some(meant) => format!("did you mean {meant}?"),
            None => "trellis appliance vars lists all there are".to_owned(),
        };
        self.warnings.push(Problem::new(name, "there is no such variable, so it does nothing", advice));
    }

    /// Several spellings are one variable: they must agree, unless the controller decides.
    fn hear(&mut self, variable: &'static Variable, number: Option<u32>, mut said: Vec<Said<'_>>) {
        match variable.status {
            Status::Effective => {}
            Status::Elsewhere { .. } => return,
            Status::Refused { why } => {
                let names = said.iter().map(|said| Problem::new(said.name, why, "leave it out"));
                return self.problems.extend(names);
            }
        }
        if said.iter().any(|said| said.origin == Origin::Assignment) {
            said.retain(|said| said.origin == Origin::Assignment);
        }
        let mut texts: Vec<Spoken> = Vec::new();
        for said in said {
            match text(variable, &said) {
                Ok(text) => texts.push(Spoken { spelling: said.name.to_owned(), origin: said.origin, text }),
                Err(problem) => self.problems.push(problem),
            }
        }
        let alias = texts.iter().find(|spoken| variable.aliases.iter().any(|alias| spoken.spelling.ends_with(alias)));
        if let Some(Spoken { spelling, .. }) = alias {
            let what = format!("this is an old name of {}", variable.name);
            self.warnings.push(Problem::new(spelling, what, format!("write {}", variable.name)));
        }
        let Some(first) = texts.first().cloned() else { return };
        if let Some(other) = texts.iter().find(|other| !same(variable.kind, &other.text, &first.text)) {
            let what = format!("{} says something else, and both are one variable", other.spelling);
            let advice = format!("keep one of {} and {}", first.spelling, other.spelling);
            let problem = Problem::new(&first.spelling, what, advice);
            self.problems.push(if variable.secret { problem } else { problem.showing(&first.text) });
        }
        self.spoken.insert((variable.name, number), first);
    }

    /// OneFlow gives inputs of a service to all of its roles, so this is no mistake, but somebody may have meant it.
    fn leave_out_other_roles(&mut self) {
        let role = self.role;
        let warnings = &mut self.warnings;
        self.spoken.retain(|(name, _), spoken| {
            let ours = variable(name).is_for(role);
            if !ours {
                let what = format!("it does nothing in a {}", role.name());
                warnings.push(Problem::new(&spoken.spelling, what, "nothing, where the whole service was given it"));
            }
            ours
        });
    }

    fn is_said(&self, name: &'static str) -> bool {
        self.spoken.range((name, None)..=(name, Some(u32::MAX))).next().is_some()
    }

    /// A variable that somebody said, and said well.
    fn take<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, Bad>) -> Option<T> {
        self.take_numbered(name, None, parse)
    }

    fn take_numbered<T>(
        &mut self,
        name: &'static str,
        number: Option<u32>,
        parse: impl FnOnce(&str) -> Result<T, Bad>,
    ) -> Option<T> {
        let spoken = self.spoken.get(&(name, number))?;
        match parse(spoken.text.trim()) {
            Ok(value) => Some(value),
            Err(bad) => {
                let variable = variable(name);
                let what = bad.what.unwrap_or_else(|| "it cannot be understood".to_owned());
                let advice = bad.advice.unwrap_or_else(|| format!("give {}", variable.kind));
                let problem = Problem::new(&spoken.spelling, what, advice);
                self.problems.push(if variable.secret { problem } else { problem.showing(&spoken.text) });
                None
            }
        }
    }

    /// The default where nothing is said, and also where something wrong is, so that the rest can be read.
    fn or_default<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, Bad>) -> T {
        let said = self.take(name, &parse);
        said.unwrap_or_else(|| {
            parse(variable(name).default).unwrap_or_else(|_| unreachable!("a test reads all defaults of the table"))
        })
    }

    fn switch(&mut self, name: &'static str) -> bool {
        self.or_default(name, value::switch)
    }

    fn whole(&mut self, name: &'static str) -> u64 {
        self.or_default(name, |text| value::whole(text, variable(name).kind))
    }

    /// Of a variable whose range ends before that of the type.
    fn count(&mut self, name: &'static str) -> u32 {
        u32::try_from(self.whole(name)).unwrap_or(u32::MAX)
    }

    /// Again, where what is wrong with it was told already.
    fn count_quietly(&mut self, name: &'static str) -> u32 {
        let problems = self.problems.len();
        let count = self.count(name);
        self.problems.truncate(problems);
        count
    }

    /// A switch that somebody set to NO.
    fn says_no(&self, name: &'static str) -> bool {
        self.spoken.get(&(name, None)).is_some_and(|spoken| value::switch(spoken.text.trim()) == Ok(false))
    }

    fn number(&mut self, name: &'static str) -> f64 {
        self.or_default(name, |text| value::number(text, variable(name).kind))
    }

    fn choice(&mut self, name: &'static str) -> &'static str {
        self.or_default(name, |text| value::choice(text, variable(name).kind))
    }

    /// Something is wrong with how this variable and others fit together.
    fn refuse(&mut self, name: &'static str, what: impl Into<String>, advice: impl Into<String>) {
        let problem = self.about(name, what.into(), advice.into());
        self.problems.push(problem);
    }

    fn warn(&mut self, name: &'static str, what: impl Into<String>, advice: impl Into<String>) {
        let warning = self.about(name, what.into(), advice.into());
        self.warnings.push(warning);
    }

    fn about(&self, name: &'static str, what: String, advice: String) -> Problem {
        match self.spoken.get(&(name, None)) {
            Some(spoken) if !variable(name).secret => {
                Problem::new(&spoken.spelling, what, advice).showing(&spoken.text)
            }
            Some(spoken) => Problem::new(&spoken.spelling, what, advice),
            None => Problem::new(name, what, advice),
        }
    }
}

fn variable(name: &str) -> &'static Variable {
    VARIABLES.iter().find(|variable| variable.name == name).expect("only names of the table are asked for")
}

fn text(variable: &Variable, said: &Said<'_>) -> Result<String, Problem> {
    if said.bytes.len() > MAX_VALUE_BYTES {
        let what = format!("it is {} bytes long, and at most {MAX_VALUE_BYTES} are read", said.bytes.len());
        return Err(Problem::new(said.name, what, format!("give {}", variable.kind)));
    }
    let Ok(text) = std::str::from_utf8(said.bytes) else {
        return Err(Problem::new(said.name, "it is no text: it is not UTF-8", format!("give {}", variable.kind)));
    };
    if variable.kind != Kind::Pem && text.trim().chars().any(char::is_control) {
        let problem = Problem::new(
            said.name,
            "there are line breaks or control characters in it",
            format!("give {}", variable.kind),
        );
        return Err(if variable.secret { problem } else { problem.showing(text) });
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
            "without a token nothing is published or found through OneGate",
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
    let interval = reader.whole("FL_GRPC_KEEPALIVE_TIME");
    let timeout = reader.whole("FL_GRPC_KEEPALIVE_TIMEOUT");
    if timeout >= interval {
        let what =
            format!("a probe would be given {timeout} s for its answer, and the next one follows after {interval} s");
        let asked = ["FL_GRPC_KEEPALIVE_TIMEOUT", "FL_GRPC_KEEPALIVE_TIME"];
        let name = if reader.is_said(asked[0]) { asked[0] } else { asked[1] };
        reader.refuse(name, what, "give FL_GRPC_KEEPALIVE_TIMEOUT less than FL_GRPC_KEEPALIVE_TIME");
    }
    if interval < SHORT_KEEPALIVE_S {
        let what = format!("a probe every {interval} s is more than proxies on the way may allow");
        reader.warn("FL_GRPC_KEEPALIVE_TIME", what, format!("give {SHORT_KEEPALIVE_S} or more"));
    }
    Keepalive { interval: Duration::from_secs(interval), timeout: Duration::from_secs(timeout) }
}
