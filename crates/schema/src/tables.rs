//! Table responses (`as=Table`), the rows that `kubectl get` shows. A built-in kind has a list of
//! columns and a function for the cells; other kinds have the default table of name and creation
//! time.
//!
//! Objects are printed in one version per kind: core/v1 for events (events.k8s.io is supported
//! too), autoscaling/v2 for autoscalers, otherwise v1 if the kind has it.

use crate::openapi::{Descriptions, UNPACKED_BYTES};
use keelson_meta::{Object, Str, Timestamp, Value, value};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::OnceLock;

mod column;
mod custom;
mod json_path;
mod row;

mod access;
mod admission;
mod autoscaling;
mod cluster;
mod core;
mod gated;
mod network;
mod pods;
mod storage;
mod workloads;

pub use column::{Column, Description};
use column::{NAME, date, literal};
pub use custom::CustomColumns;
use row::Row;

/// Prints the objects of one kind as rows.
#[derive(Debug)]
pub struct Printer {
    group: &'static str,
    kind: &'static str,
    columns: &'static [Column],
    cells: fn(&Row<'_>) -> Vec<Value>,
}

/// The printers of all kinds that have their own.
static PRINTERS: &[&[Printer]] = &[
    pods::PRINTERS,
    workloads::PRINTERS,
    autoscaling::PRINTERS,
    network::PRINTERS,
    core::PRINTERS,
    cluster::PRINTERS,
    storage::PRINTERS,
    access::PRINTERS,
    admission::PRINTERS,
    gated::PRINTERS,
];

/// The printer of all other kinds.
static DEFAULT: Printer = Printer {
    group: "",
    kind: "",
    columns: &[NAME, date("Created At", literal("When the object was created."))],
    cells: |row| vec![row.name(), row.created_at().into()],
};

/// Returns the printer of a kind. The search is linear; call it once per list.
pub fn printer(group: &str, kind: &str) -> &'static Printer {
    let mut all = PRINTERS.iter().copied().flatten();
    all.find(|printer| printer.kind == kind && printer.group == group).unwrap_or(&DEFAULT)
}

/// Returns the columns of a kind's table.
pub fn columns(group: &str, kind: &str) -> &'static [Column] {
    printer(group, kind).columns
}

/// Returns the cells of an object's row, in column order.
pub fn cells(group: &str, kind: &str, obj: &Object, now: Timestamp) -> Vec<Value> {
    printer(group, kind).cells(obj, now)
}

impl Printer {
    /// Whether the kind has the default table.
    pub fn is_default(&self) -> bool {
        self.kind.is_empty()
    }

    /// Returns the columns of the table.
    pub fn columns(&self) -> &'static [Column] {
        self.columns
    }

    /// Returns the cells of an object's row, in column order. Ages are relative to `now`.
    pub fn cells(&self, obj: &Object, now: Timestamp) -> Vec<Value> {
        (self.cells)(&Row { obj, now })
    }

    /// Returns the conditions of an object's row. Only pods that have ended have any.
    pub fn conditions(&self, obj: &Object) -> Vec<Value> {
        if (self.group, self.kind) != ("", "Pod") {
            return vec![];
        }
        pods::row_conditions(obj)
    }

    /// Whether rows are sorted differently from the list.
    pub fn sorts_rows(&self) -> bool {
        self.kind == "FlowSchema"
    }

    /// Compares rows of a table: list order, except for flow schemas, which are sorted by
    /// precedence.
    pub fn compare_rows(&self, a: &Object, b: &Object) -> Ordering {
        if !self.sorts_rows() {
            return Ordering::Equal;
        }
        let rank = |obj: &Object| obj.int_at(&["spec", "matchingPrecedence"]).unwrap_or(0);
        rank(a).cmp(&rank(b)).then_with(|| a.name().cmp(b.name()))
    }

    /// Returns `columnDefinitions` of the Table.
    pub fn column_definitions(&self) -> Vec<Value> {
        let definition = |column: &Column| {
            let description = match column.description {
                Description::Literal(literal) => literal,
                Description::Field { type_name, field } => {
                    description_of(type_name, field).unwrap_or_default()
                }
            };
            value!({
                "name": (column.name), "type": (column.kind), "format": (column.format),
                "description": description, "priority": (i64::from(column.priority))
            })
        };
        self.columns.iter().map(definition).collect()
    }
}

/// The descriptions of the fields that columns show. Read from all descriptions when the first
/// Table is made, see [`describing_bytes`].
static FIELD_DESCRIPTIONS: OnceLock<HashMap<(Str, Str), Box<str>>> = OnceLock::new();

/// Returns how many bytes the next call of [`Printer::column_definitions`] reads: many for the
/// first.
pub fn describing_bytes() -> usize {
    if FIELD_DESCRIPTIONS.get().is_some() { 0 } else { UNPACKED_BYTES }
}

/// Returns the description of a field that a column shows.
fn description_of(type_name: &str, field: &str) -> Option<&'static str> {
    let texts = FIELD_DESCRIPTIONS.get_or_init(|| {
        let all = Descriptions::read();
        let printers = PRINTERS.iter().copied().flatten().chain([&DEFAULT]);
        let columns = printers.flat_map(|printer| printer.columns);
        let texts = columns.filter_map(|column| match column.description {
            Description::Literal(_) => None,
            Description::Field { type_name, field } => Some((
                (type_name.into(), field.into()),
                all.of_member(type_name, field)?.as_ref().into(),
            )),
        });
        texts.collect()
    });
    texts.get(&(type_name.into(), field.into())).map(|text| &**text)
}

#[cfg(test)]
mod tests;
