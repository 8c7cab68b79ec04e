//! [`Conditions`]: match conditions of an authorization webhook, in CEL over the spec of a
//! SubjectAccessReview.

use crate::json::to_value;
use keelson_cel::{
    DeclField, DeclType, Environment, Limits, ListKind, MATCH_CONDITIONS_COST_MAX, ObjectType,
    Program, Shape, Type, Version, adapt,
};
use std::sync::Arc;

/// Compiled conditions.
#[derive(Debug)]
pub(super) struct Conditions {
    conditions: Vec<(String, Program)>,
    spec: Arc<DeclType>,
}

/// Whether the webhook is called for a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Matched {
    Yes,
    No,
    /// No condition is false, and some failed to evaluate.
    Failed(String),
}

/// Compiles one condition; the error has kube-apiserver's text.
pub(super) fn compile(text: &str) -> Result<Program, String> {
    let env = Environment::kubernetes(Version::NEW_EXPRESSIONS)
        .with_decl_type("request", Arc::new(spec_type()));
    let program = env.compile(text).map_err(|error| error.to_string())?.program;
    match program.result_type() {
        Type::Bool => Ok(program),
        other => Err(format!("must evaluate to bool but got {other}")),
    }
}

impl Conditions {
    pub fn compile(texts: &[String]) -> Result<Conditions, String> {
        let conditions = texts
            .iter()
            .map(|text| Ok((text.clone(), compile(text)?)))
            .collect::<Result<_, String>>()?;
        Ok(Conditions { conditions, spec: Arc::new(spec_type()) })
    }

    /// Evaluates the conditions. One false condition means no match even if others failed.
    pub fn matches(&self, spec: &serde_json::Value) -> Matched {
        if self.conditions.is_empty() {
            return Matched::Yes;
        }
        let spec = to_value(spec);
        let variables = [adapt(&spec, Some(&self.spec)).ok()];
        let mut left = MATCH_CONDITIONS_COST_MAX;
        let mut errors: Vec<String> = vec![];
        for (text, program) in &self.conditions {
            let limits = Limits { cost_max: left };
            let outcome = program.evaluate(&variables, &limits);
            left = left.saturating_sub(outcome.cost);
            match outcome.result.map(|value| value.as_bool()) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => return Matched::No,
                Ok(None) => errors.push(format!("cel evaluation error: {text} is no boolean")),
                Err(error) => {
                    errors.push(format!(
                        "cel evaluation error: expression '{text}' resulted in error: {error}"
                    ));
                }
            }
        }
        match errors.as_slice() {
            [] => Matched::Yes,
            [one] => Matched::Failed(one.clone()),
            several => Matched::Failed(format!("[{}]", several.join(", "))),
        }
    }
}

/// Returns the type of a SubjectAccessReview spec.
fn spec_type() -> DeclType {
    let text = || DeclType::new(Shape::String);
    let texts = || DeclType::new(Shape::List(Arc::new(text()), ListKind::Atomic));
    let object = |name: &str, fields: Vec<(&str, DeclType)>| {
        let fields = fields.into_iter().map(|(name, decl_type)| DeclField {
            name: name.into(),
            property: name.into(),
            decl_type: Arc::new(decl_type),
        });
        DeclType::new(Shape::Object(Arc::new(ObjectType::new(name, fields.collect()))))
    };
    let selector = |name: &str| {
        let requirement = object(
            &format!("kubernetes.{name}Requirement"),
            vec![("key", text()), ("operator", text()), ("values", texts())],
        );
        let requirements = DeclType::new(Shape::List(Arc::new(requirement), ListKind::Atomic));
        object(
            &format!("kubernetes.{name}Attributes"),
            vec![("rawSelector", text()), ("requirements", requirements)],
        )
    };
    let resource = object(
        "kubernetes.ResourceAttributes",
        vec![
            ("namespace", text()),
            ("verb", text()),
            ("group", text()),
            ("version", text()),
            ("resource", text()),
            ("subresource", text()),
            ("name", text()),
            ("fieldSelector", selector("FieldSelector")),
            ("labelSelector", selector("LabelSelector")),
        ],
    );
    let path = object("kubernetes.NonResourceAttributes", vec![("path", text()), ("verb", text())]);
    object(
        "kubernetes.SubjectAccessReviewSpec",
        vec![
            ("resourceAttributes", resource),
            ("nonResourceAttributes", path),
            ("user", text()),
            ("groups", texts()),
            ("extra", DeclType::new(Shape::Map(Arc::new(texts())))),
            ("uid", text()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(conditions: &[&str], want: &Matched) {
        let texts: Vec<String> = conditions.iter().map(|text| (*text).to_owned()).collect();
        let spec = json!({"user": "a", "groups": ["g"],
            "resourceAttributes": {"verb": "get", "resource": "pods"}});
        let got = Conditions::compile(&texts).unwrap().matches(&spec);
        assert_eq!(got, *want, "{conditions:?}");
    }

    #[test]
    fn a_false_condition_takes_precedence_over_errors() {
        check(&[], &Matched::Yes);
        check(&["has(request.resourceAttributes)", "'g' in request.groups"], &Matched::Yes);
        check(
            &["request.resourceAttributes.namespace == 'n'", "request.user == 'b'"],
            &Matched::No,
        );
        let error = "cel evaluation error: expression 'request.uid == 'n'' resulted in error: no \
                     such key: uid";
        check(&["request.uid == 'n'"], &Matched::Failed(error.to_owned()));
    }
}
