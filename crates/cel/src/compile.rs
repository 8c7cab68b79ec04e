//! Compiles expressions: parsed, checked, planned, with an estimate of their cost.

use crate::cost::{self, Estimate};
use crate::environment::Environment;
use crate::program::Program;
use crate::source::{CompileErrors, Issues};
use crate::{checker, parser, plan, validate};
use std::fmt;

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// It does not parse or check.
    Compilation(CompileErrors),
    /// A constant in it cannot be computed.
    Instantiation(String),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::Compilation(errors) => write!(f, "compilation failed: {errors}"),
            CompileError::Instantiation(error) => {
                write!(f, "program instantiation failed: {error}")
            }
        }
    }
}

impl std::error::Error for CompileError {}

/// An expression that compiled, and what it may cost.
#[derive(Debug)]
pub struct Compiled {
    /// What evaluates it.
    pub program: Program,
    /// The least and the most it costs, by the sizes that the variables' types declare.
    pub cost: Estimate,
}

impl Environment {
    /// Compiles an expression.
    pub fn compile(&self, text: &str) -> Result<Compiled, CompileError> {
        let mut issues = Issues::default();
        let parsed = parser::parse(text, self.syntax(), &mut issues);
        if !issues.is_empty() {
            issues.finish(text).map_err(CompileError::Compilation)?;
            unreachable!("issues were found");
        }
        let Some(parsed) = parsed else {
            return Err(CompileError::Instantiation("nothing was parsed".to_owned()));
        };
        let checked = checker::check(self, parsed, &mut issues);
        if issues.is_empty() && self.homogeneous_literals {
            validate::validate(&checked, &mut issues);
        }
        issues.finish(text).map_err(CompileError::Compilation)?;
        let cost = cost::estimate(self, &checked);
        let program = plan::plan(self, &checked).map_err(CompileError::Instantiation)?;
        Ok(Compiled { program, cost })
    }
}
