//! [`Setup`]: the state while groups of flags are checked and applied.

use super::pflag::Values;
use super::table::Face;
use keelson::Builder;
use std::time::Duration;

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

    /// Returns a duration, and records if it is negative.
    pub fn duration(&mut self, name: &'static str) -> Duration {
        let duration = self.values.signed_duration(name);
        if duration.0 < 0 {
            self.fail(format!("--{name}: {duration} is negative"));
        }
        self.values.duration(name)
    }

    /// Returns a value, or records why there is none.
    pub fn take<T>(&mut self, result: anyhow::Result<T>) -> Option<T> {
        result.inspect_err(|error| self.fail(format!("{error:#}"))).ok()
    }
}
