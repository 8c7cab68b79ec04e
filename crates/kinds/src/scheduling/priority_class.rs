//! PriorityClasses.

use crate::check::{Field, default};
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, Object, Value};

/// PriorityClasses.
pub(super) const fn priority_class(base: Strategy) -> Strategy {
    Strategy {
        default: |class| default(&mut class.root, "preemptionPolicy", "PreemptLowerPriority"),
        validate: validate_priority_class,
        deletion_forbidden: |name| {
            let is_system = SYSTEM_CLASSES.iter().any(|(known, _)| *known == name);
            is_system.then_some("this is a system priority class and cannot be deleted")
        },
        ..base
    }
}

/// The system priority classes.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const USER_PRIORITY_MAX: i64 = 1_000_000_000;

fn validate_priority_class(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let number = Field::of(new, "value");
    let policy = Field::of(new, "preemptionPolicy");
    if let Some(old) = old {
        if number.number() != old.int_at(&["value"]).unwrap_or(0) {
            number.forbidden(&mut errors, "may not be changed in an update.");
        }
        policy.unchanged(&mut errors, old.get("preemptionPolicy").unwrap_or(&Value::Null));
        return errors;
    }
    let name = new.name();
    if name.starts_with("system-") {
        let known = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name);
        let why = match known {
            Some((_, expected)) if *expected == number.number() => None,
            Some((_, expected)) => {
                Some(format!("value of {name} PriorityClass must be {expected}"))
            }
            None => Some(format!("{name} is not a known system priority class")),
        };
        if let Some(why) = why {
            let words = format!(
                "priority class names with 'system-' prefix are reserved for system use only. \
                 error: {why}"
            );
            Field::of(new, "metadata").field("name").forbidden(&mut errors, &words);
        }
    } else if number.number() > USER_PRIORITY_MAX {
        let words =
            format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}");
        number.forbidden(&mut errors, &words);
    }
    if policy.is_set() {
        policy.required_one_of(&mut errors, &["PreemptLowerPriority", "Never"]);
    }
    errors
}
