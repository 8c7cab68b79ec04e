//! The kinds of `policy`: PodDisruptionBudgets.

use crate::apps::{at_most_100_percent, count_or_percent};
use crate::check::{Field, Go, GoMembers, as_go};
use crate::conditions;
use crate::row::Row;
use crate::strategy::{Check, Generation, Strategy};
use keelson_meta::{ErrorList, Object, names};

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[Row {
    resource: "poddisruptionbudgets",
    strategy: disruption_budget(Strategy {
        generation: Generation::OnSpecChange,
        unconditional_update: false,
        create_checks: &[Check::Rules],
        update_checks: &[Check::Rules, Check::Change],
        status_checks: &[Check::Rules],
        ..Strategy::GENERIC
    }),
    ..Row::PLAIN
}];

/// PodDisruptionBudgets.
pub(super) const fn disruption_budget(base: Strategy) -> Strategy {
    Strategy {
        name_rule: names::name_is_path_segment,
        validate: |new, _| validate_budget(new),
        validate_status: |new, _| validate_budget_status(new),
        ..base
    }
}

fn validate_budget_status(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    conditions::validate(&status.field("conditions"), &mut errors);
    for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        status.field(name).not_negative(&mut errors);
    }
    errors
}

fn validate_budget(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let min = spec.field("minAvailable");
    let max = spec.field("maxUnavailable");
    if min.is_set() && max.is_set() {
        let words = "minAvailable and maxUnavailable cannot be both set";
        const MEMBERS: GoMembers = &[
            ("MinAvailable", Go::Pointer),
            ("Selector", Go::Pointer),
            ("MaxUnavailable", Go::Pointer),
            ("UnhealthyPodEvictionPolicy", Go::Pointer),
        ];
        spec.invalid_as(&mut errors, as_go(spec.value, MEMBERS), words);
    }
    for at in [min, max] {
        if at.is_set() {
            count_or_percent(&at, &mut errors);
            at_most_100_percent(&at, &mut errors);
        }
    }
    spec.field("selector").label_selector(&mut errors);
    let policies = &["AlwaysAllow", "IfHealthyBudget"];
    spec.field("unhealthyPodEvictionPolicy").one_of_if_set(&mut errors, policies);
    errors
}
