//! [`Setup`]: the state while groups of flags are checked and applied.

use super::pflag::Values;
use super::step::Step;
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
    /// All that is wrong with the flags, each with the step that finds it.
    pub errors: Vec<(Step, String)>,
    /// What the log has to say of the flags.
    pub notes: Vec<String>,
}

impl Setup<'_> {
    /// Records that a flag is wrong.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.fail_at(Step::Validation, why);
    }

    /// Records that a flag is wrong, which kube-apiserver finds in this step. `serve` reports what
    /// is wrong in all steps together.
    pub fn fail_at(&mut self, step: Step, why: impl Into<String>) {
        let step = if self.face == Face::Serve { Step::Validation } else { step };
        self.errors.push((step, why.into()));
    }

    /// Returns a duration, and records if it is negative.
    pub fn duration(&mut self, name: &'static str) -> Duration {
        let duration = self.values.signed_duration(name);
        if duration.0 < 0 && self.face == Face::Serve {
            self.fail(format!("--{name}: {duration} is negative"));
        }
        self.values.duration(name)
    }

    /// Returns a value, or records why there is none.
    pub fn take<T>(&mut self, result: anyhow::Result<T>) -> Option<T> {
        self.take_at(Step::Validation, result)
    }

    /// Returns a value, or records why there is none, which kube-apiserver finds in this step.
    pub fn take_at<T>(&mut self, step: Step, result: anyhow::Result<T>) -> Option<T> {
        result.inspect_err(|error| self.fail_at(step, format!("{error:#}"))).ok()
    }

    /// Returns what is to be reported: all errors of the validation, or the first error of the
    /// first step that fails.
    pub fn reported(errors: Vec<(Step, String)>) -> Vec<String> {
        let Some(step) = errors.iter().map(|(step, _)| *step).min() else { return vec![] };
        let mut of_step: Vec<String> = vec![];
        for (_, error) in errors.into_iter().filter(|(other, _)| *other == step) {
            // As upstream, the same is said once.
            if !of_step.contains(&error) {
                of_step.push(error);
            }
        }
        if step != Step::Validation {
            of_step.truncate(1);
        }
        of_step
    }
}
