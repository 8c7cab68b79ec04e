//! [`Decisions`]: the `authorizer` variable of expressions. Evaluation is synchronous and
//! authorizers are async: an evaluation that needs an unknown decision is repeated once the
//! decision is known.

use keelson_auth::{Attributes, Authorizer, SERVICE_ACCOUNT_PREFIX, Selectors, User, long_work};
use keelson_cel::{Check, CheckTarget, Decision};
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::{Failure, GroupVersionResource, Str, selector};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Authorizer decisions cached for the expressions of one request.
#[derive(Debug)]
pub struct Decisions {
    user: User,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Each check with its decision. Few: one check costs a third of the cost limit of an
    /// expression.
    known: Vec<(Check, Decision)>,
    /// The first check of an evaluation without a known decision.
    missing: Option<Check>,
}

impl Decisions {
    /// Returns an empty cache.
    pub fn new(user: User) -> Decisions {
        Decisions { user, state: Mutex::default() }
    }

    /// Calls `brief` until it needs no unknown decision, and returns its result. Every call but
    /// the last adds one decision, so the cost limits bound the number of calls. A call that takes
    /// long is given up, and what `whole` returns is called instead, on another thread.
    pub async fn evaluate<T, W>(
        &self,
        authorizer: &Authorizer,
        mut brief: impl FnMut(&Decisions) -> T,
        mut whole: impl FnMut() -> W,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        W: FnOnce(&Decisions) -> T + Send + 'static,
    {
        loop {
            let evaluate = || {
                let result = brief(self);
                (result, self.state().missing.take())
            };
            let elsewhere = || {
                let copy = self.copy();
                let whole = whole();
                move || {
                    let result = whole(&copy);
                    let missing = copy.state().missing.take();
                    (result, missing)
                }
            };
            let check = match long_work::run(&self.user.name, evaluate, elsewhere).await? {
                (result, None) => return Ok(result),
                (_, Some(check)) => check,
            };
            let decision = self.decide(authorizer, &check).await;
            self.state().known.push((check, decision));
        }
    }

    /// Returns a copy with the known decisions.
    fn copy(&self) -> Decisions {
        let known = self.state().known.clone();
        Decisions { user: self.user.clone(), state: Mutex::new(State { known, missing: None }) }
    }

    async fn decide(&self, authorizer: &Authorizer, check: &Check) -> Decision {
        let attributes = attributes(check);
        let decision = match &check.service_account {
            None => authorizer.decide(&self.user, &attributes).await,
            Some((namespace, name)) => {
                authorizer.decide(&service_account(namespace, name), &attributes).await
            }
        };
        Decision {
            allowed: decision.is_allowed(),
            reason: decision.reason.to_string(),
            error: decision.error.map(|error| error.message.clone()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl keelson_cel::Authorizer for Decisions {
    fn authorize(&self, check: &Check) -> Decision {
        let mut state = self.state();
        if let Some((_, decision)) = state.known.iter().find(|(known, _)| known == check) {
            return decision.clone();
        }
        // The result of this evaluation is discarded, so any decision will do.
        state.missing.get_or_insert_with(|| check.clone());
        Decision::default()
    }
}

fn attributes(check: &Check) -> Attributes {
    let verb = check.verb.clone();
    let resource = match &check.target {
        CheckTarget::Path(path) => {
            let path = path.to_string();
            return Attributes { verb, non_resource: true, path, ..Attributes::default() };
        }
        CheckTarget::Resource(resource) => resource,
    };
    let selectors = Selectors {
        labels: Some(&resource.label_selector)
            .filter(|text| !text.is_empty())
            .and_then(|text| selector::parse(text).ok()),
        fields: Some(&resource.field_selector)
            .filter(|text| !text.is_empty())
            .and_then(|text| FieldSelector::parse(text).ok()),
    };
    let has_selectors = selectors.labels.is_some() || selectors.fields.is_some();
    Attributes {
        verb,
        gvr: GroupVersionResource::new(&*resource.group, "*", &*resource.resource),
        subresource: resource.subresource.clone(),
        namespace: resource.namespace.clone(),
        name: resource.name.clone(),
        selectors: has_selectors.then(|| Box::new(selectors)),
        ..Attributes::default()
    }
}

/// Returns the user of a service account, without the extras of a token.
fn service_account(namespace: &str, name: &str) -> User {
    let groups = ["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
    User {
        name: format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}").into(),
        groups: groups.into_iter().map(Str::from).collect(),
        ..User::default()
    }
}
