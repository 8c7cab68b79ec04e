//! DeleteOptions as clients give them, in a body or a query, and their validation.
//!
//! An empty text is a value here, never an absent one: a precondition of an empty uid fails for
//! every object.

use crate::options::{DeleteOptions, Propagation};
use keelson_meta::{ErrorList, Failure, FieldError, Path, Str, Value};

/// DeleteOptions as a client gave them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenDeleteOptions {
    /// `dryRun`.
    pub dry_run: Vec<Str>,
    /// `gracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// `orphanDependents`, the older form of `propagationPolicy`.
    pub orphan_dependents: Option<bool>,
    /// `propagationPolicy`.
    pub propagation_policy: Option<Str>,
    /// `preconditions`, even if neither uid nor resourceVersion is set.
    pub has_preconditions: bool,
    /// `preconditions.uid`.
    pub uid: Option<Str>,
    /// `preconditions.resourceVersion`.
    pub resource_version: Option<Str>,
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`.
    pub ignore_read_error: Option<bool>,
}

impl GivenDeleteOptions {
    /// Reads decoded options, whose fields have the types of the schema.
    #[must_use]
    pub fn from_value(options: &Value) -> GivenDeleteOptions {
        let text = |place: &[&str]| options.str_at(place).map(Str::new);
        let flag = |name: &str| options.get(name).and_then(Value::as_bool);
        let dry_run = options.array_at(&["dryRun"]).iter().filter_map(Value::as_str);
        GivenDeleteOptions {
            dry_run: dry_run.map(Str::new).collect(),
            grace_period_seconds: options.get("gracePeriodSeconds").and_then(Value::as_int),
            orphan_dependents: flag("orphanDependents"),
            propagation_policy: text(&["propagationPolicy"]),
            has_preconditions: options.get("preconditions").is_some_and(|given| !given.is_null()),
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            ignore_read_error: flag("ignoreStoreReadErrorWithClusterBreakingPotential"),
        }
    }

    /// Validates the options.
    pub fn validate(&self) -> Result<DeleteOptions, Failure> {
        let mut errors = ErrorList::new();
        let path = Path::new("propagationPolicy");
        let policy = self.propagation_policy.as_deref().map(|word| (word, propagation(word)));
        if let Some((word, _)) = policy
            && self.orphan_dependents.is_some()
        {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(&path, word, why));
        }
        if let Some((word, None)) = policy {
            let valid = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::not_supported(&path, word, &valid));
        }
        check_dry_run(&self.dry_run, &mut errors);
        errors.into_result("meta.k8s.io", "DeleteOptions", "")?;
        let from_orphan = self.orphan_dependents.map(|orphan| match orphan {
            true => Propagation::Orphan,
            false => Propagation::Background,
        });
        Ok(DeleteOptions {
            dry_run: !self.dry_run.is_empty(),
            grace_period_seconds: self.grace_period_seconds,
            propagation: policy.and_then(|(_, policy)| policy).or(from_orphan),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            ignore_read_error: self.ignore_read_error.unwrap_or(false),
            given: self.names(),
        })
    }

    /// Returns the names of the options that are set.
    fn names(&self) -> Vec<&'static str> {
        let given = [
            ("dryRun", !self.dry_run.is_empty()),
            ("propagationPolicy", self.propagation_policy.is_some()),
            ("orphanDependents", self.orphan_dependents.is_some()),
            ("gracePeriodSeconds", self.grace_period_seconds.is_some()),
            ("preconditions", self.has_preconditions),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()
    }
}

/// Checks the values of `dryRun`: only `All` is valid. Returns whether there are any.
pub fn check_dry_run(given: &[Str], errors: &mut ErrorList) -> bool {
    if given.iter().any(|word| word != "All") {
        let items: Vec<Value> = given.iter().cloned().map(Value::String).collect();
        errors.push(FieldError::not_supported(&Path::new("dryRun"), items, &["All"]));
    }
    !given.is_empty()
}

fn propagation(word: &str) -> Option<Propagation> {
    match word {
        "Foreground" => Some(Propagation::Foreground),
        "Background" => Some(Propagation::Background),
        "Orphan" => Some(Propagation::Orphan),
        _ => None,
    }
}
