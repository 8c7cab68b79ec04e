//! What others own of what an apply wants to change.

use crate::fields::{FieldSet, path_text};
use crate::managed::{Manager, Operation};
use keelson_meta::status::{Details, Failure, quote};
use keelson_meta::{Cause, Reason, Status};
use std::fmt;

/// Conflicts that an answer lists.
const CONFLICTS_MAX: usize = 10_000;
/// Bytes of owners and fields of these conflicts; the one that goes beyond is the last.
const CONFLICT_BYTES_MAX: usize = 1 << 20;

/// One field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner as messages show it: `"kubectl-edit" using apps/v1`.
    pub manager: String,
    /// `.spec.replicas`.
    pub field: String,
}

/// All conflicts of one apply, grouped by owner. Never empty when it is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// Takes owners, sorted, with the fields that they would lose. Those of which there are too many
    /// are left out.
    pub(super) fn new(lost: &[(Manager, FieldSet)]) -> Self {
        let mut conflicts = Conflicts::default();
        let mut bytes = 0;
        for (manager, fields) in lost {
            let manager = shown(manager);
            fields.each(&mut |path| {
                if conflicts.0.len() < CONFLICTS_MAX && bytes < CONFLICT_BYTES_MAX {
                    let field = path_text(path);
                    bytes += manager.len() + field.len();
                    conflicts.0.push(Conflict { manager: manager.clone(), field });
                }
            });
        }
        conflicts
    }

    /// True when there is no conflict.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The 409.
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

fn shown(manager: &Manager) -> String {
    let mut text = quote(&manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", quote(&manager.subresource)));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}
