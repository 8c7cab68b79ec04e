//! Validators of constants, as in apiserver's CEL environment: durations, timestamps, regular
//! expressions, format strings, and literals with elements of different types.

use crate::ast::{Expr, ExprKind, Id};
use crate::checker::{Checked, Reference};
use crate::functions;
use crate::functions::strings::text_format::{self, Clause};
use crate::issues::Issues;
use crate::literal::Literal;
use crate::pattern::Patterns;
use crate::types::Type;
use crate::value::{Text, Val};

/// Reports the invalid constants of a checked expression.
pub(crate) fn validate(checked: &Checked, issues: &mut Issues) {
    let patterns = Patterns::default();
    let mut validator = Validator { checked, issues, formats: 0, patterns };
    validator.visit(&checked.root);
}

struct Validator<'a> {
    checked: &'a Checked,
    issues: &'a mut Issues,
    /// Number of enclosing `format` calls; their arguments may be of different types.
    formats: usize,
    patterns: Patterns,
}

impl Validator<'_> {
    fn report(&mut self, id: Id, message: impl Into<String>) {
        self.issues.report(self.checked.offsets[id as usize], message);
    }

    fn visit(&mut self, expr: &Expr) {
        crate::stack::ensure_sufficient_stack(|| self.visit_node(expr));
    }

    fn visit_node(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Error | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => self.visit(operand),
            ExprKind::Call { function, target, args } => {
                let formats = usize::from(function == "format");
                self.formats += formats;
                if let Some(target) = target {
                    self.visit(target);
                }
                args.iter().for_each(|arg| self.visit(arg));
                self.formats -= formats;
                self.call(expr, target.as_deref(), args);
            }
            ExprKind::List(items) => {
                items.iter().for_each(|item| self.visit(&item.expr));
                let elements = items.iter().map(|item| (&item.expr, item.optional));
                self.homogeneous(elements.collect());
            }
            ExprKind::Map(entries) => {
                for entry in entries {
                    self.visit(&entry.key);
                    self.visit(&entry.value);
                }
                self.homogeneous(entries.iter().map(|entry| (&entry.key, false)).collect());
                let values = entries.iter().map(|entry| (&entry.value, entry.optional));
                self.homogeneous(values.collect());
            }
            ExprKind::Struct { fields, .. } => {
                fields.iter().for_each(|field| self.visit(&field.value));
            }
            ExprKind::Comprehension(comprehension) => {
                for part in [
                    &comprehension.range,
                    &comprehension.init,
                    &comprehension.condition,
                    &comprehension.step,
                    &comprehension.result,
                ] {
                    self.visit(part);
                }
            }
        }
    }

    fn homogeneous(&mut self, elements: Vec<(&Expr, bool)>) {
        if self.formats > 0 {
            return;
        }
        let ty = |expr: &Expr, optional: bool| match self.checked.ty(expr.id) {
            Type::Optional(inner) if optional => (**inner).clone(),
            other => other.clone(),
        };
        let Some((first, optional)) = elements.first() else { return };
        let expected = ty(first, *optional);
        for (expr, optional) in elements.iter().skip(1) {
            let found = ty(expr, *optional);
            if expected != found {
                self.report(expr.id, format!("expected type '{expected}' but found '{found}'"));
            }
        }
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, args: &[Expr]) {
        let Reference::Call { function, .. } = self.checked.reference(expr.id) else { return };
        match (*function, target, args) {
            ("duration" | "timestamp", None, [arg]) => {
                let Some(val) = constant(arg) else { return };
                let Some(convert) = functions::implementation(function) else { return };
                let is_span_of_number = *function == "duration" && matches!(val, Val::Int(_));
                if is_span_of_number || convert(&[val]).is_err() {
                    self.report(arg.id, format!("invalid {function} argument"));
                }
            }
            ("matches", _, [.., pattern]) => {
                if let Some(Val::String(text)) = constant(pattern)
                    && self.patterns.get(text.as_str()).is_err()
                {
                    self.report(pattern.id, "invalid matches argument");
                }
            }
            ("format", Some(target), [values]) => self.format(expr.id, target, values),
            _ => {}
        }
    }

    fn format(&mut self, call: Id, target: &Expr, values: &Expr) {
        let (Some(Val::String(text)), ExprKind::List(items)) = (constant(target), &values.kind)
        else {
            return;
        };
        let clauses = match text_format::parse(text.as_str()) {
            Ok(clauses) => clauses,
            Err(why) => return self.report(call, why),
        };
        let mut at = 0;
        for clause in clauses {
            let Clause::Value { verb, .. } = clause else { continue };
            let Some(item) = items.get(at) else {
                return self.report(call, format!("index {at} out of range"));
            };
            at += 1;
            let ty = self.checked.ty(item.expr.id).clone();
            if let Some(why) = text_format::type_error(verb, &ty) {
                let message = format!("error during formatting: {why}");
                return self.report(item.expr.id, message);
            }
        }
    }
}

fn constant(expr: &Expr) -> Option<Val<'static>> {
    match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => Some(Val::String(Text::Owned(text.clone()))),
        ExprKind::Literal(Literal::Int(number)) => Some(Val::Int(*number)),
        _ => None,
    }
}
