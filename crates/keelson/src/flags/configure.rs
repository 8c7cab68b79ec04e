//! From a command line to the configuration of a server.

use super::groups;
use super::pflag::{FlagError, Values};
use super::setup::Setup;
use super::table::{Effect, Face};
use keelson::Builder;

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

/// Returns the configuration that the values describe, or what is wrong with them or with the files
/// that they name.
pub fn configure_from_files(face: Face, values: &Values) -> Result<Configured, Vec<String>> {
    let check = match face {
        Face::Serve => |_: &mut Setup<'_>| {},
        Face::KubeApiserver => groups::check_files,
    };
    configured(face, values, check)
}

/// Returns the configuration that the values describe, or what is wrong with them. Only files whose
/// content it needs are read.
#[cfg(test)]
pub fn configure(face: Face, values: &Values) -> Result<Configured, Vec<String>> {
    configured(face, values, |_| {})
}

fn configured(
    face: Face,
    values: &Values,
    check_files: impl FnOnce(&mut Setup<'_>),
) -> Result<Configured, Vec<String>> {
    let mut builder = keelson::Keelson::builder();
    if face == Face::KubeApiserver {
        builder = builder.without_manager();
    }
    builder.flags = values.shown();
    let errors = vec![];
    let notes = vec![];
    let mut setup = Setup { face, values, builder: &mut builder, errors, notes };
    groups::apply(&mut setup);
    // Files are checked in the words of kube-apiserver before they are read.
    let applied = std::mem::take(&mut setup.errors);
    check_files(&mut setup);
    setup.errors.extend(applied);
    for flag in groups::of(face).iter().flat_map(|group| group.flags) {
        match flag.effect {
            Effect::Refused(what) if values.is_changed(flag) => {
                setup.fail(format!("--{}: {what} is not there yet", flag.name));
            }
            Effect::Accepted(why) if values.is_given(flag.name) => {
                setup.notes.push(format!("--{} has no effect: {why}", flag.name));
            }
            _ => {}
        }
    }
    let Setup { errors, notes, .. } = setup;
    let errors = Setup::reported(errors);
    match errors.is_empty() {
        true => Ok(Configured { builder, notes }),
        false => Err(errors),
    }
}
