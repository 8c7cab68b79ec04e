//! The rules, a module for each subject. [`RULES`] has all of them.

mod columns;
mod conditions;
mod enums;
mod expressions;
mod lists;
mod names;
mod numbers;
mod presence;
mod references;
mod resources;
mod server;
mod status;
mod times;
mod versions;

use crate::finding::Rule;
pub use server::{REFUSED, is_served_version};

const CONVENTIONS_CONDITIONS: &str = "API conventions, \"Typical status properties\"";
const CONVENTIONS_CONSTANTS: &str = "API conventions, \"Constants\"";
const CONVENTIONS_NAMING: &str = "API conventions, \"Naming conventions\"";
const CONVENTIONS_KINDS: &str = "API conventions, \"Types (Kinds)\"";
const CONVENTIONS_OPTIONAL: &str = "API conventions, \"Optional vs. Required\"";
const CONVENTIONS_PRIMITIVE: &str = "API conventions, \"Primitive types\"";
const CONVENTIONS_REFERENCES: &str = "API conventions, \"Object references\"";
const CONVENTIONS_SPEC: &str = "API conventions, \"Spec and Status\"";
const CONVENTIONS_SUBOBJECTS: &str =
    "API conventions, \"Lists of named subobjects preferred over maps\"";
const CONVENTIONS_UNIONS: &str = "API conventions, \"Unions\"";
const CONVENTIONS_UNITS: &str = "API conventions, \"Units\"";
const CONVENTIONS_VALIDATION: &str = "API conventions, \"Validation\"";
const CHANGES_COMPATIBILITY: &str = "API changes, \"On compatibility\"";
const SERVER: &str = "the API server's own validation";

/// All rules, in the order of docs/lint.md.
pub static RULES: &[&Rule] = &[
    &REFUSED,
    &server::UNKNOWN_FIELD,
    &server::UNKNOWN_FORMAT,
    &resources::KIND_NAME,
    &resources::PLURAL,
    &resources::SHORT_NAME,
    &resources::LIST_KIND,
    &resources::ROOT_FIELDS,
    &resources::UNKNOWN_FIELDS_KEPT,
    &versions::NAME,
    &versions::LOST_FIELDS,
    &names::FIELD_NAME,
    &names::ACRONYM,
    &names::BOOLEAN,
    &names::LIST,
    &names::DESCRIPTION,
    &numbers::INTEGER_FORMAT,
    &numbers::INTEGER_BOUNDS,
    &numbers::INT64_RANGE,
    &numbers::FLOATING_POINT,
    &numbers::UNIT,
    &times::DURATION,
    &times::NAME,
    &times::FORMAT,
    &enums::CASE,
    &enums::BOOLEAN,
    &enums::DISCRIMINATOR,
    &lists::OBJECTS,
    &lists::SCALARS,
    &lists::MAP,
    &lists::LIST_LENGTH,
    &lists::STRING_LENGTH,
    &presence::REQUIRED_DEFAULT,
    &presence::SPEC,
    &presence::NULLABLE,
    &status::SUBRESOURCE,
    &status::REQUIRED,
    &status::PHASE,
    &status::CONDITIONS,
    &status::OBSERVED_GENERATION,
    &conditions::LIST,
    &conditions::LIST_MAP,
    &conditions::FIELDS,
    &conditions::STATUS_VALUES,
    &references::NAME,
    &references::STRING,
    &references::VERSION,
    &references::NAMESPACE,
    &expressions::MESSAGE,
    &expressions::MESSAGE_WORDS,
    &expressions::COST,
    &columns::PATH,
    &columns::TYPE,
    &columns::AGE,
    &columns::SCALE,
];
