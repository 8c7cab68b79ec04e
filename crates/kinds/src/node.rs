//! The kinds of `node.k8s.io`: RuntimeClasses.

use crate::check::Field;
use crate::core::pod::warnings::collect_warnings;
use crate::row::Row;
use crate::strategy::{Check, Strategy};
use keelson_meta::{ErrorList, FieldError, Object, SmallSet, Value, names, value};

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[Row {
    resource: "runtimeclasses",
    strategy: runtime_class(Strategy {
        create_on_update: true,
        unconditional_update: false,
        update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
        standard_finalizers: false,
        ..Strategy::GENERIC
    }),
    ..Row::PLAIN
}];

/// RuntimeClasses.
pub(super) const fn runtime_class(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, _| validate_runtime_class(new),
        warnings: |new, _| {
            collect_warnings(|warnings| {
                let scheduling = Field::of(new, "scheduling");
                let selector = scheduling.field("nodeSelector");
                for (key, _) in selector.entries() {
                    warnings.push_renamed_label(&selector.path, key);
                }
            })
        },
        validate_change: |new, old| {
            let mut errors = ErrorList::new();
            let stored = old.and_then(|old| old.get("handler")).unwrap_or(&Value::Null);
            Field::of(new, "handler").unchanged_value(&mut errors, stored);
            errors
        },
        ..base
    }
}

fn validate_runtime_class(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    Field::of(new, "handler").required_rule(&mut errors, names::is_dns1123_label);
    let overhead = Field::of(new, "overhead");
    crate::core::pod::resources::overhead(&overhead, overhead.get("podFixed"), &mut errors);
    let scheduling = Field::of(new, "scheduling");
    scheduling.field("nodeSelector").labels(&mut errors);
    let tolerations = scheduling.field("tolerations");
    crate::core::pod::scheduling::plain_tolerations(&tolerations, &mut errors);
    let mut seen: SmallSet<[String; 4]> = SmallSet::new();
    for toleration in tolerations.items() {
        let text = |name: &str| toleration.str(name).to_owned();
        // Tolerations that differ only in `tolerationSeconds` are duplicates.
        if !seen.insert(["key", "operator", "value", "effect"].map(text)) {
            let seconds = toleration.get("tolerationSeconds").clone();
            // The message shows the Go struct.
            let shown = value!({
                "Key": (text("key")), "Operator": (text("operator")), "Value": (text("value")),
                "Effect": (text("effect")), "TolerationSeconds": (seconds)
            });
            errors.push(FieldError::duplicate(&toleration.path, shown));
        }
    }
    errors
}
