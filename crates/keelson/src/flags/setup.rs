//! From the values of flags to the configuration of a server.

use super::groups;
use super::pflag::{FlagError, Values};
use super::table::{Effect, Face};
use keelson::Builder;

/// The state while the groups apply their flags.
pub struct Setup<'a> {
    /// The command.
    pub face: Face,
    /// The values of its flags.
    pub values: &'a Values,
    /// The configuration.
    pub builder: &'a mut Builder,
    /// What is wrong with a flag that is checked before the others.
    pub first_error: Option<String>,
    /// All that is wrong with the flags.
    pub errors: Vec<String>,
    /// What the log has to say of the flags.
    pub notes: Vec<String>,
}

impl Setup<'_> {
    /// Records that a flag is wrong.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.errors.push(why.into());
    }

    /// Records that a flag is wrong before the others are checked: only this is reported.
    pub fn fail_first(&mut self, why: impl Into<String>) {
        self.first_error.get_or_insert(why.into());
    }

    /// Returns a value, or records why there is none.
    pub fn take<T>(&mut self, result: anyhow::Result<T>) -> Option<T> {
        result.inspect_err(|error| self.fail(format!("{error:#}"))).ok()
    }
}

/// The configuration that a command line describes.
pub struct Configured {
    /// The configuration of the server.
    pub builder: Builder,
    /// What the log has to say of the flags.
    pub notes: Vec<String>,
}

/// Returns the format of the log. `--log-format` of `serve` is the older name.
pub fn log_format(values: &Values) -> &str {
    match values.face() {
        Face::Serve if values.is_given("log-format") => values.text("log-format"),
        _ => values.text("logging-format"),
    }
}

/// Reads a command line.
pub fn read(face: Face, arguments: Vec<String>) -> Result<Values, FlagError> {
    Values::read(face, &groups::of(face), arguments)
}

/// Returns the configuration that the values describe, or all that is wrong with them.
pub fn configure(face: Face, values: &Values) -> Result<Configured, Vec<String>> {
    let mut builder = keelson::Keelson::builder();
    builder.flags = values.shown();
    let (first_error, errors, notes) = (None, vec![], vec![]);
    let mut setup = Setup { face, values, builder: &mut builder, first_error, errors, notes };
    groups::apply(&mut setup);
    for flag in groups::of(face).iter().flat_map(|group| group.flags) {
        match flag.effect {
            Effect::Refused(what) if values.is_changed(flag) => {
                setup.errors.push(format!("--{}: {what} is not there yet", flag.name));
            }
            Effect::Accepted(why) if values.is_given(flag.name) => {
                setup.notes.push(format!("--{} has no effect: {why}", flag.name));
            }
            _ => {}
        }
    }
    let Setup { first_error, mut errors, notes, .. } = setup;
    if let Some(first) = first_error {
        errors = vec![first];
    }
    match errors.is_empty() {
        true => Ok(Configured { builder, notes }),
        false => Err(errors),
    }
}
