//! The Common Expression Language (CEL) of Kubernetes 1.36: validation rules, admission policies,
//! match conditions, device selectors.
//!
//! [`Environment::compile`] parses and type-checks an expression, plans its evaluation and
//! estimates its cost. [`Program::evaluate`] evaluates it over [`keelson_meta::Value`] without
//! copying the object, and counts the cost. Error messages are those of cel-go 0.26; clients see
//! them in `Status`.
//!
//! ```
//! use keelson_cel::{DeclType, DeclField, Environment, Limits, ObjectType, Shape, Version, adapt};
//! use keelson_meta::value;
//! use std::sync::Arc;
//!
//! let int = || Arc::new(DeclType::new(Shape::Int));
//! let field = |name: &str| DeclField {
//!     name: name.into(),
//!     property: name.into(),
//!     decl_type: int(),
//! };
//! let object = ObjectType::new("spec", vec![field("minReplicas"), field("replicas")]);
//! let schema = Arc::new(DeclType::new(Shape::Object(Arc::new(object))));
//! let env = Environment::kubernetes(Version::NEW_EXPRESSIONS)
//!     .with_decl_type("self", schema.clone());
//! let rule = env.compile("self.minReplicas <= self.replicas").unwrap();
//!
//! let spec = value!({"minReplicas": 1, "replicas": 3});
//! let variables = [adapt(&spec, Some(&schema)).ok()];
//! let outcome = rule.program.evaluate(&variables, &Limits::default());
//! assert_eq!(outcome.result.unwrap().as_bool(), Some(true));
//! assert_eq!((outcome.cost, rule.cost.max), (5, 5));
//! ```
//!
//! Promise: no IO, no clock, no async; equal inputs give equal outputs. No input panics. No
//! expression takes more time or memory than its cost limit allows.
//!
//! Why not the crate `cel` (0.15): it parses and interprets, but it has no type checker, no static
//! or runtime cost, none of Kubernetes' libraries, and other error messages than cel-go.

pub mod admission;
mod ast;
mod authorizer;
mod char_index;
mod checker;
mod compile;
mod cost_estimate;
pub mod device;
mod environment;
mod equality;
mod eval;
mod format;
mod functions;
mod issues;
mod json;
mod lexer;
mod literal;
mod meter;
mod parser;
mod pattern;
mod plan;
mod program;
mod registry;
mod runtime_cost;
mod semver;
mod stack;
mod types;
mod unify;
mod validate;
mod value;

pub use authorizer::{Authorizer, AuthorizerVal, Check, CheckTarget, Decision, Resource};
pub use compile::{CompileError, Compiled};
pub use cost_estimate::Estimate;
pub use environment::{ESTIMATED_RULE_COST_MAX, ESTIMATED_SCHEMA_COST_MAX, Environment, Version};
pub use eval::{
    Activation, CompositedVariable, CompositedVariables, EXPRESSION_COST_MAX, Limits,
    MATCH_CONDITIONS_COST_MAX, OBJECT_COST_MAX, Outcome,
};
pub use format::NamedFormat;
pub use functions::regex::check_pattern;
pub use issues::{CompileErrors, Issue, REPORTED_ERRORS_MAX};
pub use json::to_json;
pub use keelson_meta::go_url::Url;
pub use meter::{VALUES_BYTES_MAX, is_interrupted, run_briefly, run_until};
pub use parser::{EXPRESSION_CHARS_MAX, NESTING_DEPTH_MAX};
pub use program::Program;
pub use registry::Library;
pub use semver::Semver;
pub use types::{DeclField, DeclType, ListKind, ObjectType, Shape, Type, escape};
pub use value::{
    ConcatList, EvalError, EvalResult, List, Map, NO_SUCH_OVERLOAD, Opaque, OwnedMap, Text, Val,
    adapt,
};
