//! Templates of Stages: Go's `text/template` with the functions that KWOK adds to it, and those of
//! the library sprig that work on values. There are no functions that read the environment, files
//! or the network.
//!
//! A field that is absent is nil. Steps, sizes and nesting are limited, so that no template takes
//! long or much memory, whatever it says.

mod arguments;
mod collections;
mod eval;
mod functions;
mod general;
mod lex;
mod numbers;
mod parse;
mod printf;
mod texts;

use keelson_meta::{Str, Timestamp, Value};
use std::fmt;

/// Why a template cannot be parsed or rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// The line of the template; 0: not known.
    line: u32,
    why: String,
}

impl TemplateError {
    fn new(line: u32, why: impl Into<String>) -> TemplateError {
        TemplateError { line, why: why.into() }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "template: {}", self.why),
            line => write!(f, "template, line {line}: {}", self.why),
        }
    }
}

/// What the functions of KWOK tell a template.
#[derive(Clone, Debug, Default)]
pub struct TemplateFacts {
    /// `Now`
    pub now: Timestamp,
    /// `StartTime`
    pub started: Timestamp,
    /// What functions that return something random use.
    pub random: [u8; 16],
    /// `NodeName`
    pub node: Str,
    /// `NodeIP`, and `NodeIPWith` of this node.
    pub node_ips: Vec<Str>,
    /// `PodIP` and its like.
    pub pod_ips: Vec<Str>,
}

/// A parsed template.
#[derive(Clone, Debug)]
pub struct StageTemplate {
    parsed: parse::ParsedTemplate,
}

impl StageTemplate {
    /// Parses a template. Fails if it uses a function that is not known.
    pub fn parse(text: &str) -> Result<StageTemplate, TemplateError> {
        Ok(StageTemplate { parsed: parse::parse(text.trim())? })
    }

    /// Renders the template of an object.
    pub fn render(&self, object: &Value, facts: &TemplateFacts) -> Result<String, TemplateError> {
        eval::render(&self.parsed, object, facts)
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
