//! The CEL expressions of an authentication configuration.

use keelson_cel::{
    DeclField, DeclType, Environment, Limits, List, ListKind, ObjectType, Program, Shape, Type,
    Val, Version, adapt,
};
use keelson_meta::Value;
use std::sync::Arc;

/// The compiled expressions of one issuer, in the order of its configuration.
#[derive(Debug, Default)]
pub struct Rules {
    pub(super) username: Option<Expression>,
    pub(super) groups: Option<Expression>,
    pub(super) uid: Option<Expression>,
    /// Keys and value expressions.
    pub(super) extra: Vec<(String, Expression)>,
    /// Claim validation rules with their messages.
    pub(super) claims: Vec<(Expression, String)>,
    /// User validation rules with their messages.
    pub(super) user: Vec<(Expression, String)>,
}

/// A compiled expression and its text.
#[derive(Debug)]
pub(super) struct Expression {
    pub text: String,
    program: Program,
    /// The type of the variable `user`, if the expression reads it.
    decl_type: Option<Arc<DeclType>>,
}

fn environment() -> Environment {
    Environment::kubernetes(Version::NEW_EXPRESSIONS)
}

fn claims_environment() -> Environment {
    environment().with_variable("claims", Type::map(Type::String, Type::Any))
}

/// Returns whether an expression reads this claim.
pub(super) fn reads_claim(text: &str, claim: &str) -> bool {
    claims_environment().selects(text, "claims", claim)
}

/// The variable that an expression may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// `claims`.
    Claims,
    /// `user`.
    User,
}

impl Expression {
    /// Compiles an expression; a condition must be a boolean.
    pub fn compile(text: &str, subject: Subject, is_condition: bool) -> Result<Expression, String> {
        if text.trim().is_empty() {
            return Err("expression must not be empty".to_owned());
        }
        let decl_type = (subject == Subject::User).then(|| Arc::new(user_type()));
        let env = match &decl_type {
            None => claims_environment(),
            Some(user) => environment().with_decl_type("user", user.clone()),
        };
        let program = env.compile(text).map_err(|error| error.to_string())?.program;
        if is_condition && *program.result_type() != Type::Bool {
            return Err("must evaluate to bool".to_owned());
        }
        Ok(Expression { text: text.to_owned(), program, decl_type })
    }

    /// Evaluates the expression for claims or a user.
    fn value<T>(
        &self,
        subject: &Value,
        read: impl FnOnce(&Val<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let variables = [adapt(subject, self.decl_type.as_deref()).ok()];
        let outcome = self.program.evaluate(&variables, &Limits::default());
        match &outcome.result {
            Ok(value) => read(value),
            Err(error) => Err(format!("expression '{}' resulted in error: {error}", self.text)),
        }
    }

    /// Returns a string; `None` for other types.
    pub fn text(&self, subject: &Value) -> Result<Option<String>, String> {
        self.value(subject, |value| Ok(value.as_str().map(str::to_owned)))
    }

    /// Returns a boolean; `None` for other types.
    pub fn truth(&self, subject: &Value) -> Result<Option<bool>, String> {
        self.value(subject, |value| Ok(value.as_bool()))
    }

    /// Returns a string or a list of strings, without empty ones; null is an empty list.
    pub fn texts(&self, subject: &Value) -> Result<Vec<String>, String> {
        self.value(subject, |value| match value {
            Val::Null => Ok(vec![]),
            Val::List(list) => texts(list),
            value => match value.as_str() {
                Some(text) => Ok(some_text(text).into_iter().collect()),
                None => Err(NOT_TEXTS.to_owned()),
            },
        })
    }
}

const NOT_TEXTS: &str = "expression must return a string or a list of strings";

fn texts(list: &List<'_>) -> Result<Vec<String>, String> {
    let mut all = vec![];
    for at in 0..list.len() {
        let Some(item) = list.get(at) else { break };
        let item = item.map_err(|error| error.to_string())?;
        let text = item.as_str().ok_or_else(|| NOT_TEXTS.to_owned())?;
        all.extend(some_text(text));
    }
    Ok(all)
}

fn some_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn user_type() -> DeclType {
    let text = || DeclType::new(Shape::String);
    let list = |of: DeclType| DeclType::new(Shape::List(Arc::new(of), ListKind::Atomic));
    let field = |name: &str, decl_type: DeclType| DeclField {
        name: name.into(),
        property: name.into(),
        decl_type: Arc::new(decl_type),
    };
    let extra = DeclType::new(Shape::Map(Arc::new(list(text()))));
    let fields = vec![
        field("username", text()),
        field("uid", text()),
        field("groups", list(text())),
        field("extra", extra),
    ];
    DeclType::new(Shape::Object(Arc::new(ObjectType::new("kubernetes.UserInfo", fields))))
}
