//! Reads a command line as Go's package pflag does, with its messages: `--x value`, `--x=value`,
//! bare booleans, underscores for dashes, lists that grow, `-v3`, `--`. It does no IO.

use super::go_values as go;
use super::table::{Face, Flag, Group, Kind};
use keelson_meta::status::quote;
use keelson_meta::time::GoDuration;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The value of a flag.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A duration.
    Duration(GoDuration),
    /// Text, or what is checked and kept as text.
    Text(String),
    /// A list.
    List(Vec<String>),
    /// A map, in the order of its keys.
    Pairs(BTreeMap<String, String>),
}

/// Why a command line cannot be read, in the words of pflag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No flag has this name.
    #[error("unknown flag: --{name}")]
    Unknown {
        /// The name as it was given.
        name: String,
    },
    /// No flag has this letter.
    #[error("unknown shorthand flag: '{letter}' in -{letters}")]
    UnknownLetter {
        /// The letter.
        letter: char,
        /// The rest of the argument from it on.
        letters: String,
    },
    /// The value is missing.
    #[error("flag needs an argument: {flag}")]
    NeedsValue {
        /// The flag as it was given.
        flag: String,
    },
    /// The flag has no name.
    #[error("bad flag syntax: {argument}")]
    Syntax {
        /// The argument.
        argument: String,
    },
    /// The value is invalid.
    #[error("invalid argument {} for {} flag: {why}", quote(value), quote(flag))]
    Value {
        /// The value.
        value: String,
        /// The flag: `--v`, or `-v, --v`.
        flag: String,
        /// What is wrong.
        why: String,
    },
}

/// The flags of a command line with their values.
#[derive(Debug)]
pub struct Values {
    face: Face,
    values: BTreeMap<&'static str, Value>,
    given: BTreeSet<&'static str>,
    /// The names of the flags that were asked for: none must be swallowed.
    asked: RefCell<BTreeSet<&'static str>>,
    /// Arguments that are no flags.
    pub words: Vec<String>,
    /// What users of deprecated flags are told, a line each.
    pub warnings: Vec<String>,
}

impl Values {
    /// Reads a command line without the name of the program.
    pub fn read(
        face: Face,
        groups: &[&'static Group],
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Values, FlagError> {
        let flags = || groups.iter().flat_map(|group| group.flags);
        let values = flags().map(|flag| (flag.name, flag.default_value(face)));
        let mut read = Values {
            face,
            values: values.collect(),
            given: BTreeSet::new(),
            asked: RefCell::default(),
            words: vec![],
            warnings: vec![],
        };
        let by_name: BTreeMap<&str, &'static Flag> =
            flags().map(|flag| (flag.name, flag)).collect();
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            if argument == "--" {
                read.words.extend(rest);
                break;
            }
            if let Some(long) = argument.strip_prefix("--") {
                read.long(&by_name, (&argument, long), &mut rest)?;
            } else if argument.len() > 1 && argument.starts_with('-') {
                read.letters(&by_name, &argument[1..], &mut rest)?;
            } else {
                read.words.push(argument);
            }
        }
        Ok(read)
    }

    fn long(
        &mut self,
        by_name: &BTreeMap<&str, &'static Flag>,
        given: (&str, &str),
        rest: &mut impl Iterator<Item = String>,
    ) -> Result<(), FlagError> {
        let (argument, long) = given;
        if long.starts_with(['-', '=']) {
            return Err(FlagError::Syntax { argument: argument.to_owned() });
        }
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        let unknown = || FlagError::Unknown { name: name.to_owned() };
        let flag = *by_name.get(name.replace('_', "-").as_str()).ok_or_else(unknown)?;
        let value = value.or_else(|| flag.kind.bare_value().map(str::to_owned));
        let missing = || FlagError::NeedsValue { flag: format!("--{name}") };
        self.set(flag, value.or_else(|| rest.next()).ok_or_else(missing)?)
    }

    fn letters(
        &mut self,
        by_name: &BTreeMap<&str, &'static Flag>,
        letters: &str,
        rest: &mut impl Iterator<Item = String>,
    ) -> Result<(), FlagError> {
        let mut letters = letters;
        while let Some(letter) = letters.chars().next() {
            let after = &letters[letter.len_utf8()..];
            let flag = by_name.values().find(|flag| flag.letter() == Some(letter));
            let unknown = || FlagError::UnknownLetter { letter, letters: letters.to_owned() };
            let flag = flag.copied().ok_or_else(unknown)?;
            if after.len() > 1 && after.starts_with('=') {
                return self.set(flag, after[1..].to_owned());
            }
            if let Some(value) = flag.kind.bare_value() {
                self.set(flag, value.to_owned())?;
                letters = after;
                continue;
            }
            if !after.is_empty() {
                return self.set(flag, after.to_owned());
            }
            let missing = || FlagError::NeedsValue { flag: format!("'{letter}' in -{letters}") };
            return self.set(flag, rest.next().ok_or_else(missing)?);
        }
        Ok(())
    }

    fn set(&mut self, flag: &'static Flag, value: String) -> Result<(), FlagError> {
        let is_first = self.given.insert(flag.name);
        let old = self.values.get(flag.name).filter(|_| !is_first);
        match flag.kind.read(&value, old) {
            Ok(value) => self.values.insert(flag.name, value),
            Err(why) => {
                let flag = match flag.letter() {
                    Some(letter) => format!("-{letter}, --{}", flag.name),
                    None => format!("--{}", flag.name),
                };
                return Err(FlagError::Value { value, flag, why });
            }
        };
        if let Some(advice) = flag.deprecated {
            self.warnings.push(format!("Flag --{} has been deprecated, {advice}", flag.name));
        }
        Ok(())
    }

    /// Returns the command whose flags these are.
    pub fn face(&self) -> Face {
        self.face
    }

    /// Returns whether a flag was given.
    pub fn is_given(&self, name: &'static str) -> bool {
        self.given.contains(name)
    }

    /// Returns the value of a flag as text.
    pub fn shown_value(&self, name: &'static str) -> String {
        self.value(name).to_string()
    }

    /// Returns whether a flag has another value than its default.
    pub fn is_changed(&self, flag: &Flag) -> bool {
        self.values.get(flag.name) != Some(&flag.default_value(self.face))
    }

    fn value(&self, name: &'static str) -> &Value {
        self.asked.borrow_mut().insert(name);
        self.values.get(name).unwrap_or_else(|| unreachable!("there is no flag --{name}"))
    }

    /// Returns a boolean.
    pub fn bool(&self, name: &'static str) -> bool {
        matches!(self.value(name), Value::Bool(true))
    }

    /// Returns an integer.
    pub fn int(&self, name: &'static str) -> i64 {
        let &Value::Int(number) = self.value(name) else { unreachable!("--{name} is no integer") };
        number
    }

    /// Returns a floating-point number.
    pub fn float(&self, name: &'static str) -> f64 {
        let &Value::Float(number) = self.value(name) else { unreachable!("--{name} is no number") };
        number
    }

    /// Returns a duration, which may be negative.
    pub fn signed_duration(&self, name: &'static str) -> GoDuration {
        let &Value::Duration(duration) = self.value(name) else {
            unreachable!("--{name} is no duration")
        };
        duration
    }

    /// Returns a duration; zero if it is negative.
    pub fn duration(&self, name: &'static str) -> Duration {
        Duration::from_nanos(u64::try_from(self.signed_duration(name).0).unwrap_or(0))
    }

    /// Returns text.
    pub fn text(&self, name: &'static str) -> &str {
        let Value::Text(text) = self.value(name) else { unreachable!("--{name} is no text") };
        text
    }

    /// Returns text that is not empty.
    pub fn some_text(&self, name: &'static str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Returns the path of a file or folder, if there is one.
    pub fn path(&self, name: &'static str) -> Option<PathBuf> {
        self.some_text(name).map(PathBuf::from)
    }

    /// Returns an address, if there is one.
    pub fn ip(&self, name: &'static str) -> Option<IpAddr> {
        self.some_text(name).and_then(|text| text.parse().ok())
    }

    /// Returns a list.
    pub fn list(&self, name: &'static str) -> &[String] {
        let Value::List(list) = self.value(name) else { unreachable!("--{name} is no list") };
        list
    }

    /// Returns a map.
    pub fn pairs(&self, name: &'static str) -> &BTreeMap<String, String> {
        let Value::Pairs(pairs) = self.value(name) else { unreachable!("--{name} is no map") };
        pairs
    }

    /// Returns the names of the flags whose values were asked for.
    #[cfg(test)]
    pub fn asked(&self) -> BTreeSet<&'static str> {
        self.asked.borrow().clone()
    }

    /// Returns all flags and their values as text, in the order of their names, for `/flagz`.
    pub fn shown(&self) -> Vec<(String, String)> {
        let shown = self.values.iter().map(|(name, value)| ((*name).to_owned(), value.to_string()));
        shown.collect()
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Bool(is_on) => write!(f, "{is_on}"),
            Value::Int(number) => write!(f, "{number}"),
            Value::Float(number) => write!(f, "{number}"),
            Value::Duration(duration) => write!(f, "{duration}"),
            Value::Text(text) => f.write_str(text),
            Value::List(list) => write!(f, "[{}]", list.join(",")),
            Value::Pairs(pairs) => {
                let pairs: Vec<_> =
                    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
                f.write_str(&pairs.join(","))
            }
        }
    }
}

impl Flag {
    /// Returns the value of the flag when it is not given.
    pub fn default_value(&self, face: Face) -> Value {
        let text = self.default_in(face);
        if text.is_empty() {
            return self.kind.empty();
        }
        let value = self.kind.read(text, None);
        value.unwrap_or_else(|why| unreachable!("the default of --{}: {why}", self.name))
    }
}

impl Kind {
    fn empty(self) -> Value {
        match self {
            Kind::Bool => Value::Bool(false),
            Kind::Int | Kind::Uint | Kind::Level => Value::Int(0),
            Kind::Float | Kind::Float32 => Value::Float(0.0),
            Kind::Duration => Value::Duration(GoDuration(0)),
            Kind::Text | Kind::Ip | Kind::Quantity | Kind::Patterns | Kind::Ports => {
                Value::Text(String::new())
            }
            Kind::Version => Value::Text("false".to_owned()),
            Kind::List | Kind::Array | Kind::Int32List | Kind::Gates => Value::List(vec![]),
            Kind::CertificatesAndKeys => Value::List(vec![]),
            Kind::Config | Kind::Claims | Kind::Labels => Value::Pairs(BTreeMap::new()),
        }
    }

    /// Reads a value. `old` is that of the same flag given before.
    fn read(self, text: &str, old: Option<&Value>) -> Result<Value, String> {
        Ok(match self {
            Kind::Bool => Value::Bool(go::boolean(text)?),
            Kind::Int => Value::Int(go::integer(text, (i64::MIN, i64::MAX))?),
            Kind::Uint => Value::Int(go::unsigned(text)?),
            Kind::Level => Value::Int(go::level(text)?),
            Kind::Float | Kind::Float32 => Value::Float(go::float(text)?),
            Kind::Duration => Value::Duration(go::duration(text)?),
            Kind::Text => Value::Text(text.to_owned()),
            Kind::Ip => Value::Text(go::ip(text)?),
            Kind::Quantity => Value::Text(go::quantity(text)?),
            Kind::Patterns => Value::Text(go::patterns(text)?),
            Kind::Ports => Value::Text(go::ports(text)?),
            Kind::Version => Value::Text(version(text)?),
            Kind::List => list(old, go::csv(text)?),
            Kind::Array => list(old, vec![text.to_owned()]),
            Kind::Int32List => {
                let bounds = (i64::from(i32::MIN), i64::from(i32::MAX));
                let numbers: Vec<String> = text.split(',').map(str::to_owned).collect();
                numbers.iter().try_for_each(|number| go::integer(number, bounds).map(drop))?;
                list(old, numbers)
            }
            Kind::Gates => {
                let gates = text.split(',').filter(|gate| !gate.is_empty());
                list(old, gates.map(|gate| gate.trim().to_owned()).collect())
            }
            Kind::CertificatesAndKeys => list(old, vec![go::certificate_and_key(text)?]),
            Kind::Config => map(old, go::pairs(text)),
            Kind::Claims => map(old, vec![go::pair(text)?]),
            Kind::Labels => map(old, go::labels(text)?),
        })
    }
}

fn list(old: Option<&Value>, more: Vec<String>) -> Value {
    let mut all = match old {
        Some(Value::List(old)) => old.clone(),
        _ => vec![],
    };
    all.extend(more);
    Value::List(all)
}

fn map(old: Option<&Value>, more: Vec<(String, String)>) -> Value {
    let mut all = match old {
        Some(Value::Pairs(old)) => old.clone(),
        _ => BTreeMap::new(),
    };
    all.extend(more);
    Value::Pairs(all)
}

fn version(text: &str) -> Result<String, String> {
    match text {
        "raw" => Ok("raw".to_owned()),
        text if text.starts_with('v') => super::version::check(text).map(|()| text.to_owned()),
        text => go::boolean(text).map(|is_on| is_on.to_string()),
    }
}
