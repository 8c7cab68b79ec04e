//! Compiles an expression: parse, check, estimate the cost, plan.

use crate::cost_estimate::{self, Estimate};
use crate::environment::Environment;
use crate::issues::{CompileErrors, Issues};
use crate::program::Program;
use crate::value::EvalError;
use crate::{checker, meter, parser, plan, validate};
use std::fmt;

/// Work of compiling the shortest expression: declaring the variables.
const COMPILATION_WORK: u64 = 10_000;

/// Work of compiling a byte of an expression.
const BYTE_WORK: u64 = 300;

/// Why an expression cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// A syntax or type error.
    Compilation(CompileErrors),
    /// A constant subexpression that cannot be evaluated.
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

/// A compiled expression and its estimated cost.
#[derive(Debug)]
pub struct Compiled {
    /// The program to evaluate.
    pub program: Program,
    /// The minimum and maximum cost, from the sizes that the types of the variables declare.
    pub cost: Estimate,
}

impl Environment {
    /// Compiles an expression.
    pub fn compile(&self, text: &str) -> Result<Compiled, CompileError> {
        meter::begin(0);
        meter::work(COMPILATION_WORK.saturating_add(text.len() as u64 * BYTE_WORK))
            .map_err(|ended| CompileError::Instantiation(EvalError::from(ended).to_string()))?;
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
        let cost = cost_estimate::estimate(self, &checked);
        let program = plan::plan(self, &checked).map_err(CompileError::Instantiation)?;
        Ok(Compiled { program, cost })
    }
}
