//! The Common Expression Language as Kubernetes 1.36 has it: validation rules, policies, match conditions.
//!
//! [`Environment::compile`] parses, checks and plans an expression and estimates its cost;
//! [`Program::evaluate`] computes it over [`keelson_meta::Value`] without copying the object, counting what
//! it costs. Messages of errors are those of cel-go 0.26, which clients see in `Status`.
//!
//! ```
//! use keelson_cel::{Declared, DeclaredField, Environment, Limits, ObjectType, Shape, Version, adapt};
//! use keelson_meta::value;
//! use std::sync::Arc;
//!
//! let int = || Arc::new(Declared::new(Shape::Int));
//! let field = |name: &str| DeclaredField {
//!     name: name.into(),
//!     property: name.into(),
//!     declared: int(),
//! };
//! let object = ObjectType::new("spec", vec![field("minReplicas"), field("replicas")]);
//! let schema = Arc::new(Declared::new(Shape::Object(Arc::new(object))));
//! let env = Environment::kubernetes(Version::NEW_EXPRESSIONS).with_declared("self", schema.clone());
//! let rule = env.compile("self.minReplicas <= self.replicas").unwrap();
//!
//! let spec = value!({"minReplicas": 1, "replicas": 3});
//! let variables = [adapt(&spec, Some(&schema)).ok()];
//! let outcome = rule.program.evaluate(&variables, &Limits::default());
//! assert_eq!(outcome.result.unwrap().as_bool(), Some(true));
//! assert_eq!((outcome.cost, rule.cost.max), (5, 5));
//! ```
//!
//! Promise: no IO, no clock, no async; equal inputs give equal outputs. No input panics, and no expression
//! takes more time or memory than its cost limit pays for.
//!
//! Why not the crate `cel` (0.15): it parses and interprets, but has no type checker, neither static
//! nor runtime costs, none of Kubernetes' libraries, and its errors are not those clients know.

pub mod admission;
mod ast;
mod authorizer;
mod charge;
mod checker;
mod compile;
mod cost;
pub mod device;
mod environment;
mod equality;
mod eval;
mod format;
mod functions;
mod json;
mod lexer;
mod literal;
mod parser;
mod plan;
mod program;
mod registry;
mod semver;
mod source;
mod stack;
mod steps;
mod types;
mod unify;
mod url;
mod validate;
mod value;

pub use authorizer::{Authorizer, AuthorizerVal, Check, Decision, Resource, Target};
pub use compile::{CompileError, Compiled};
pub use cost::Estimate;
pub use environment::{ESTIMATED_RULE_COST_MAX, ESTIMATED_SCHEMA_COST_MAX, Environment, Version};
pub use eval::{
    Computed, ComputedSet, EXPRESSION_COST_MAX, Limits, MATCH_CONDITIONS_COST_MAX, OBJECT_COST_MAX,
    Outcome, Scope,
};
pub use format::NamedFormat;
pub use functions::regex::check_pattern;
pub use json::to_json;
pub use parser::{EXPRESSION_CHARS_MAX, NESTING_DEPTH_MAX};
pub use program::Program;
pub use registry::Library;
pub use semver::Semver;
pub use source::{CompileErrors, Issue, REPORTED_ERRORS_MAX};
pub use types::{Declared, DeclaredField, ListKind, ObjectType, Shape, Type, escape};
pub use url::Url;
pub use value::{
    EvalError, Evaluated, Joined, List, Map, NO_SUCH_OVERLOAD, Opaque, OwnedMap, Text, Val, adapt,
};
