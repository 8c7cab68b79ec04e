//! Conflicts: fields that an apply changes and another manager owns.

use crate::fields::{FieldSet, path_text};
use crate::managed::{Manager, Operation};
use keelson_meta::status::{Details, Failure, quote};
use keelson_meta::{Cause, Reason, Status};
use std::fmt;

/// Conflicts that a Status lists.
const CONFLICTS_MAX: usize = 10_000;
/// Bytes of managers and fields in the listed conflicts. The conflict that passes the limit is the
/// last.
const CONFLICT_BYTES_MAX: usize = 1 << 20;

/// One field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The manager as messages show it: `"kubectl-edit" using apps/v1`.
    pub manager: String,
    /// The path of the field: `.spec.replicas`.
    pub field: String,
}

/// All conflicts of one apply, grouped by manager. Not empty when returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// Lists the fields that each manager would lose, up to the limits of a Status. `lost` is
    /// sorted by manager.
    pub(super) fn new(lost: &[(Manager, FieldSet)]) -> Self {
        let mut conflicts = Conflicts::default();
        let mut bytes = 0;
        for (manager, fields) in lost {
            let manager = manager_text(manager);
            fields.for_each_path(&mut |path| {
                if conflicts.0.len() < CONFLICTS_MAX && bytes < CONFLICT_BYTES_MAX {
                    let field = path_text(path);
                    bytes += manager.len() + field.len();
                    conflicts.0.push(Conflict { manager: manager.clone(), field });
                }
            });
        }
        conflicts
    }

    /// Returns whether there is no conflict.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Converts the conflicts into the 409 Status, with one cause for each field.
    pub fn into_status(self) -> Failure {
        let mut status = Status::new(Reason::Conflict, self.to_string());
        let causes = self.0.into_iter().map(|conflict| Cause {
            reason: "FieldManagerConflict".into(),
            message: format!("conflict with {}", conflict.manager),
            field: conflict.field,
        });
        status.details = Some(Details { causes: causes.collect(), ..Details::default() });
        status
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0.as_slice() {
            let Conflict { manager, field } = one;
            return write!(f, "Apply failed with 1 conflict: conflict with {manager}: {field}");
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut last = None;
        for conflict in &self.0 {
            if last != Some(&conflict.manager) {
                let newline = if last.is_some() { "\n" } else { "" };
                write!(f, "{newline}conflicts with {}:", conflict.manager)?;
                last = Some(&conflict.manager);
            }
            write!(f, "\n- {}", conflict.field)?;
        }
        Ok(())
    }
}

fn manager_text(manager: &Manager) -> String {
    let mut text = quote(&manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", quote(&manager.subresource)));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}
