//! [`MatchConditions`]: the CEL expressions that restrict which requests a webhook or policy sees
//! (apiserver `admission/plugin/webhook/matchconditions`).

use crate::decisions::Decisions;
use keelson_auth::Authorizer;
use keelson_cel::admission::{Compiler, Expression, Inputs, Purpose, Variables, activation};
use keelson_cel::{CompositedVariables, MATCH_CONDITIONS_COST_MAX, Resource, Val};
use keelson_meta::{Failure, Str, Value};
use std::sync::{Arc, OnceLock};

/// The `matchConditions` of a webhook or a policy, compiled on first use. Copies share them.
#[derive(Clone, Debug)]
pub struct MatchConditions(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    compiler: Compiler,
    /// Names and texts.
    conditions: Vec<(Str, Str)>,
    /// In the order of `conditions`.
    compiled: OnceLock<Vec<Expression>>,
}

/// The result of match conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matched {
    /// All conditions are true.
    Yes,
    /// A condition is false.
    No {
        /// The name of the condition.
        condition: Str,
    },
    /// No condition is false, and some failed: the failure policy applies. With the error.
    Failed(String),
}

impl MatchConditions {
    /// Reads the conditions of a configuration. A compile error is returned on evaluation.
    pub fn new(compiler: &Compiler, conditions: &[Value]) -> MatchConditions {
        let conditions = conditions.iter().map(|condition| {
            let text = |name: &str| condition.str_at(&[name]).unwrap_or_default().into();
            (text("name"), text("expression"))
        });
        MatchConditions(Arc::new(Shared {
            compiler: compiler.clone(),
            conditions: conditions.collect(),
            compiled: OnceLock::new(),
        }))
    }

    /// Returns whether there are no conditions; every request matches then.
    pub fn is_empty(&self) -> bool {
        self.0.conditions.is_empty()
    }

    /// Returns the compiled conditions; `None`: the work was ended, and its result will be
    /// discarded.
    fn compiled(&self) -> Option<&[Expression]> {
        let Shared { compiler, conditions, compiled } = &*self.0;
        if let Some(compiled) = compiled.get() {
            return Some(compiled);
        }
        let new = |text: &Str| Expression::new(compiler, text, Purpose::Condition);
        let made = conditions.iter().map(|(_, text)| new(text)).collect();
        if keelson_cel::is_interrupted() {
            return None;
        }
        Some(compiled.get_or_init(|| made))
    }

    /// Evaluates the conditions of a webhook; `resource` is that of the request.
    pub async fn matches(
        &self,
        inputs: &Inputs<'_>,
        resource: &Resource,
        decisions: &Decisions,
        authorizer: &Authorizer,
    ) -> Result<Matched, Failure> {
        if self.is_empty() {
            return Ok(Matched::Yes);
        }
        let none = CompositedVariables::new();
        let brief = |decisions: &Decisions| {
            self.evaluate(&inputs.variables_with(decisions, resource.clone()), &none)
        };
        let whole = || {
            let conditions = self.clone();
            let inputs = inputs.to_owned_inputs();
            let resource = resource.clone();
            let none = CompositedVariables::new();
            move |decisions: &Decisions| {
                conditions.evaluate(&inputs.inputs().variables_with(decisions, resource), &none)
            }
        };
        decisions.evaluate(authorizer, brief, whole).await
    }

    /// Evaluates the conditions without waiting for authorizer decisions. One false condition means
    /// no match even if others failed.
    pub fn evaluate(&self, variables: &Variables<'_>, computed: &CompositedVariables) -> Matched {
        let activation = activation(variables, computed);
        let mut budget = MATCH_CONDITIONS_COST_MAX;
        let mut is_false = None;
        let mut errors: Vec<String> = vec![];
        let compiled = self.compiled().unwrap_or_default();
        for ((name, _), expression) in self.0.conditions.iter().zip(compiled) {
            match expression.evaluate(&activation, &mut budget) {
                Err(out_of_budget) => return Matched::Failed(out_of_budget.to_string()),
                Ok(Err(error)) => errors.push(error),
                Ok(Ok(Val::Bool(false))) => is_false = is_false.or(Some(name)),
                Ok(Ok(_)) => {}
            }
        }
        match is_false {
            Some(condition) => Matched::No { condition: condition.clone() },
            None if errors.is_empty() => Matched::Yes,
            None => Matched::Failed(aggregate(errors)),
        }
    }
}

/// Joins errors into one text, without duplicates.
fn aggregate(errors: Vec<String>) -> String {
    let mut unlike: Vec<String> = vec![];
    for error in errors {
        if !unlike.contains(&error) {
            unlike.push(error);
        }
    }
    match unlike.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", unlike.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_auth::{Mode, User};
    use keelson_cel::Version;
    use keelson_meta::{Map, value};

    /// Polls once: the authorizers under test are always ready.
    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(done) => done,
            std::task::Poll::Pending => panic!("the authorizer waits"),
        }
    }

    fn map(value: Value) -> Map {
        keelson_meta::Object::from_value(value).unwrap().root
    }

    fn matched(modes: Vec<Mode>, expressions: &[&str]) -> String {
        let compiler = Compiler::webhook(Version::STORED_EXPRESSIONS);
        let conditions: Vec<Value> = expressions
            .iter()
            .enumerate()
            .map(|(i, text)| value!({"name": (format!("c{i}")), "expression": (*text)}))
            .collect();
        let conditions = MatchConditions::new(&compiler, &conditions);
        let object = map(value!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
        let request = map(value!({"operation": "CREATE", "name": "a"}));
        let inputs = Inputs { object: Some(&object), request: Some(&request), ..Inputs::default() };
        let resource = Resource { resource: "configmaps".into(), ..Resource::default() };
        let decisions = Decisions::new(User { name: "bob".into(), ..User::default() });
        let authorizer = Authorizer::new(modes);
        let matches = conditions.matches(&inputs, &resource, &decisions, &authorizer);
        match now(matches).expect("brief work") {
            Matched::Yes => "yes".to_owned(),
            Matched::No { condition } => format!("no: {condition}"),
            Matched::Failed(error) => error,
        }
    }

    #[test]
    fn a_false_condition_takes_precedence_over_errors() {
        let check = |expressions: &[&str], want: &str| {
            assert_eq!(matched(vec![], expressions), want, "{expressions:?}");
        };
        check(&[], "yes");
        check(&["true", "object.data.k == 'v'", "request.operation == 'CREATE'"], "yes");
        check(&["object.data.x == 'v'", "false"], "no: c1");
        check(&["false", "1 +", "object.x.y == 1"], "no: c0");
        check(&["oldObject == null && namespaceObject == null"], "yes");
    }

    #[test]
    fn errors_are_reported_when_no_condition_is_false() {
        let check = |expressions: &[&str], want: &str| {
            assert_eq!(matched(vec![], expressions), want, "{expressions:?}");
        };
        check(
            &["true", "object.data.x == 'v'"],
            "expression 'object.data.x == 'v'' resulted in error: no such key: x",
        );
        check(
            &["object.x == 1", "object.y == 1"],
            "[expression 'object.x == 1' resulted in error: no such key: x, \
             expression 'object.y == 1' resulted in error: no such key: y]",
        );
        check(&["1"], "compilation error: must evaluate to bool but got int");
    }

    #[test]
    fn each_decision_is_requested_once() {
        let check = |modes: fn() -> Vec<Mode>, expression: &str, want: &str| {
            assert_eq!(matched(modes(), &[expression]), want, "{expression}");
        };
        let all = || vec![Mode::AlwaysAllow];
        let none = || vec![Mode::AlwaysDeny];
        let one = "authorizer.requestResource.check('get').allowed()";
        check(all, one, "yes");
        check(none, one, "no: c0");
        check(all, &format!("{one} && {one} && object != null"), "yes");
        check(
            none,
            "authorizer.path('/x').check('get').reason() == 'Everything is forbidden.'",
            "yes",
        );
        check(all, "authorizer.serviceAccount('a', 'b').path('/x').check('get').allowed()", "yes");
    }

    #[test]
    fn conditions_share_a_budget() {
        let one = "authorizer.requestResource.check('get').allowed()";
        let two = format!("{one} && {one}");
        let words = "validation failed due to running out of cost budget, no further validation rules will \
                     be run";
        let rows: Vec<&str> = vec![&two; 4];
        assert_eq!(matched(vec![Mode::AlwaysAllow], &rows), words);
        assert_eq!(matched(vec![Mode::AlwaysAllow], &rows[..3]), "yes");
    }
}
