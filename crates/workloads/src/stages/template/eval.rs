//! Renders a parsed template.

use super::arguments::is_true;
use super::functions;
use super::parse::{Operand, ParsedTemplate, Pipeline, TemplatePart};
use super::printf::shown;
use super::{TemplateError, TemplateFacts};
use keelson_meta::{Str, Value};

/// Steps of one rendering: parts, calls, and the values that they make.
const STEPS_MAX: u64 = 200_000;
/// Bytes of one rendered text.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Blocks and templates that may be within each other.
const DEPTH_MAX: usize = 96;

/// Renders a template.
pub fn render(
    parsed: &ParsedTemplate,
    object: &Value,
    facts: &TemplateFacts,
) -> Result<String, TemplateError> {
    let mut rendering = Rendering {
        parsed,
        facts,
        variables: vec![("$".to_owned(), object.clone())],
        out: String::new(),
        steps: 0,
        depth: 0,
    };
    rendering.parts(&parsed.main, object)?;
    Ok(rendering.out)
}

/// How a list of parts was left.
#[derive(Clone, Copy, PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
}

struct Rendering<'a> {
    parsed: &'a ParsedTemplate,
    facts: &'a TemplateFacts,
    /// The variables that are visible, the newest last.
    variables: Vec<(String, Value)>,
    out: String,
    steps: u64,
    depth: usize,
}

impl Rendering<'_> {
    fn step(&mut self, line: u32, count: u64) -> Result<(), TemplateError> {
        self.steps = self.steps.saturating_add(count);
        match self.steps > STEPS_MAX {
            true => Err(TemplateError::new(line, "it takes too many steps")),
            false => Ok(()),
        }
    }

    fn write(&mut self, line: u32, text: &str) -> Result<(), TemplateError> {
        if self.out.len().saturating_add(text.len()) > OUTPUT_BYTES_MAX {
            return Err(TemplateError::new(line, "it makes more than 1 MiB of text"));
        }
        self.out.push_str(text);
        Ok(())
    }

    /// Renders parts in a scope of their own.
    fn parts(&mut self, parts: &[TemplatePart], dot: &Value) -> Result<Flow, TemplateError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(TemplateError::new(0, "blocks and templates are nested too deeply"));
        }
        let visible = self.variables.len();
        let mut flow = Flow::Next;
        for part in parts {
            flow = self.part(part, dot)?;
            if flow != Flow::Next {
                break;
            }
        }
        self.variables.truncate(visible);
        self.depth -= 1;
        Ok(flow)
    }

    fn part(&mut self, part: &TemplatePart, dot: &Value) -> Result<Flow, TemplateError> {
        self.step(0, 1)?;
        match part {
            TemplatePart::Plain(text) => self.write(0, text)?,
            TemplatePart::Action(pipeline) => {
                let value = self.pipeline(pipeline, dot)?;
                if pipeline.variable.is_none() {
                    self.write(pipeline.line, &shown(&value))?;
                }
            }
            TemplatePart::If { branches, otherwise } => {
                return self.branch(branches, otherwise, dot, false);
            }
            TemplatePart::With { branches, otherwise } => {
                return self.branch(branches, otherwise, dot, true);
            }
            TemplatePart::Range { index, item, over, body, otherwise } => {
                let visible = self.variables.len();
                let over_value = self.pipeline(over, dot)?;
                let pairs = pairs(over_value).map_err(|why| TemplateError::new(over.line, why))?;
                if pairs.is_empty() {
                    return self.parts(otherwise, dot);
                }
                for (key, value) in pairs {
                    self.step(over.line, 1)?;
                    let named = [(index, key), (item, value.clone())];
                    for (name, value) in named {
                        if let Some(name) = name {
                            self.variables.push((name.clone(), value));
                        }
                    }
                    let flow = self.parts(body, &value)?;
                    self.variables.truncate(visible);
                    if flow == Flow::Break {
                        break;
                    }
                }
            }
            TemplatePart::Break => return Ok(Flow::Break),
            TemplatePart::Continue => return Ok(Flow::Continue),
            TemplatePart::Call(name, argument, line) => {
                self.call(name, argument.as_ref(), *line, dot)?
            }
        }
        Ok(Flow::Next)
    }

    fn branch(
        &mut self,
        branches: &[(Pipeline, Vec<TemplatePart>)],
        otherwise: &[TemplatePart],
        dot: &Value,
        sets_dot: bool,
    ) -> Result<Flow, TemplateError> {
        let visible = self.variables.len();
        for (condition, body) in branches {
            let value = self.pipeline(condition, dot)?;
            if is_true(&value) {
                let flow = self.parts(body, if sets_dot { &value } else { dot });
                self.variables.truncate(visible);
                return flow;
            }
        }
        let flow = self.parts(otherwise, dot);
        self.variables.truncate(visible);
        flow
    }

    /// Renders a template that `define` has named. It sees only its argument.
    fn call(
        &mut self,
        name: &str,
        argument: Option<&Pipeline>,
        line: u32,
        dot: &Value,
    ) -> Result<(), TemplateError> {
        let argument = match argument {
            Some(argument) => self.pipeline(argument, dot)?,
            None => Value::Null,
        };
        let Some(body) = self.parsed.named.get(name) else {
            return Err(TemplateError::new(line, format!("template {name:?} is not defined")));
        };
        let own = vec![("$".to_owned(), argument.clone())];
        let outer = std::mem::replace(&mut self.variables, own);
        self.parts(body, &argument)?;
        self.variables = outer;
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Value, TemplateError> {
        let line = pipeline.line;
        let mut value: Option<Value> = None;
        for call in &pipeline.calls {
            let last = value.take();
            value = Some(self.evaluate(call, last, dot, line)?);
        }
        let value = value.unwrap_or_default();
        if let Some((name, is_new)) = &pipeline.variable {
            self.step(line, size(&value))?;
            if *is_new {
                self.variables.push((name.clone(), value.clone()));
            } else {
                let mut visible = self.variables.iter_mut().rev();
                let known = visible
                    .find(|(known, _)| known == name)
                    .ok_or_else(|| undefined(line, name))?;
                known.1 = value.clone();
            }
        }
        Ok(value)
    }

    fn evaluate(
        &mut self,
        call: &[Operand],
        last: Option<Value>,
        dot: &Value,
        line: u32,
    ) -> Result<Value, TemplateError> {
        self.step(line, 1)?;
        let Some((first, rest)) = call.split_first() else { return Ok(Value::Null) };
        let Operand::Function(name, path) = first else { return self.operand(first, dot, line) };
        let value = match name.as_str() {
            // These evaluate only the arguments that decide.
            "and" | "or" => self.decide(name == "or", rest, last, dot, line)?,
            _ => {
                let mut arguments = vec![];
                for operand in rest {
                    arguments.push(self.operand(operand, dot, line)?);
                }
                arguments.extend(last);
                self.apply(name, arguments, line)?
            }
        };
        field(value, path, line)
    }

    fn apply(
        &mut self,
        name: &str,
        arguments: Vec<Value>,
        line: u32,
    ) -> Result<Value, TemplateError> {
        let value = functions::call(name, arguments, self.facts)
            .map_err(|why| TemplateError::new(line, format!("{name}: {why}")))?;
        self.step(line, size(&value))?;
        Ok(value)
    }

    /// Returns the first argument that is true (`or`) or not true (`and`), or the last one.
    fn decide(
        &mut self,
        wanted: bool,
        arguments: &[Operand],
        last: Option<Value>,
        dot: &Value,
        line: u32,
    ) -> Result<Value, TemplateError> {
        let mut value = Value::Null;
        for argument in arguments {
            value = self.operand(argument, dot, line)?;
            if is_true(&value) == wanted {
                return Ok(value);
            }
        }
        match last {
            Some(last) => Ok(last),
            None if arguments.is_empty() => Err(TemplateError::new(line, "it needs an argument")),
            None => Ok(value),
        }
    }

    fn operand(
        &mut self,
        operand: &Operand,
        dot: &Value,
        line: u32,
    ) -> Result<Value, TemplateError> {
        match operand {
            Operand::Literal(value) => Ok(value.clone()),
            Operand::Dot(path) => at(dot, path, line),
            Operand::Variable(name, path) => {
                let mut visible = self.variables.iter().rev();
                let known = visible.find(|(known, _)| known == name);
                at(&known.ok_or_else(|| undefined(line, name))?.1, path, line)
            }
            Operand::Function(..) => self.evaluate(std::slice::from_ref(operand), None, dot, line),
            Operand::Nested(pipeline, path) => {
                let value = self.pipeline(pipeline, dot)?;
                field(value, path, line)
            }
        }
    }
}

fn undefined(line: u32, name: &str) -> TemplateError {
    TemplateError::new(line, format!("variable {name:?} is not defined"))
}

fn field(value: Value, path: &[String], line: u32) -> Result<Value, TemplateError> {
    if path.is_empty() { Ok(value) } else { at(&value, path, line) }
}

/// Returns the field of a value. A field of nil is nil: Go's templates fail there, but upstream's
/// own Stages read such fields of typed objects.
fn at(value: &Value, path: &[String], line: u32) -> Result<Value, TemplateError> {
    let mut found = value;
    for name in path {
        found = match found {
            Value::Object(map) => match map.get(name) {
                Some(field) => field,
                None => return Ok(Value::Null),
            },
            Value::Null => return Ok(Value::Null),
            other => {
                let kind = other.type_name();
                let why = format!("a value of type {kind} has no field {name:?}");
                return Err(TemplateError::new(line, why));
            }
        };
    }
    Ok(found.clone())
}

/// Returns what `range` goes over: indexes and items, or keys in their order and values.
fn pairs(value: Value) -> Result<Vec<(Value, Value)>, String> {
    const COUNT_MAX: i64 = 100_000;
    match value {
        Value::Null => Ok(vec![]),
        Value::Array(items) => {
            let numbered = (0_i64..).zip(items);
            Ok(numbered.map(|(index, item)| (Value::Int(index), item)).collect())
        }
        Value::Object(map) => {
            let sorted = map.sorted().into_iter();
            Ok(sorted.map(|(key, value)| (Value::String(key.clone()), value.clone())).collect())
        }
        Value::Int(count) if count <= COUNT_MAX => {
            Ok((0..count.max(0)).map(|number| (Value::Int(number), Value::Int(number))).collect())
        }
        other => Err(format!("range cannot go over a value of type {}", other.type_name())),
    }
}

/// Returns about how much a value takes: one for each part, and one more for 16 bytes of text.
fn size(value: &Value) -> u64 {
    let of_text = |text: &Str| 1 + text.len() as u64 / 16;
    match value {
        Value::String(text) | Value::Raw(text) => of_text(text),
        Value::Array(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::Object(map) => {
            1 + map.iter().map(|(key, value)| of_text(key) + size(value)).sum::<u64>()
        }
        _ => 1,
    }
}
