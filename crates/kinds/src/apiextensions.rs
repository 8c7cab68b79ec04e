//! The kinds of `apiextensions.k8s.io`: CustomResourceDefinitions. Their rules are in
//! `definitions`, those for the expressions in them in `expressions`.

use crate::definitions::definition;
use crate::expressions::validate_definition;
use crate::row::Row;
use crate::strategy::{Generation, Strategy};

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[Row {
    resource: "customresourcedefinitions",
    strategy: definition(Strategy {
        generation: Generation::OnSpecChange,
        early_preconditions: true,
        unconditional_update: false,
        standard_finalizers: false,
        validate_last: Some(validate_definition),
        ..Strategy::GENERIC
    }),
    storage_prefix: "apiextensions.k8s.io/customresourcedefinitions",
    stored_version: Some("v1beta1"),
    ..Row::PLAIN
}];
