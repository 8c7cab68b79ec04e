//! Tables: what a kube-apiserver prints for `as=Table`, the rows that `kubectl get` shows. Each
//! built-in kind has columns as data and one small function for the cells; a kind without them has
//! the default table of name and creation time.
//!
//! An object is printed in its hub version: core/v1 for events (events.k8s.io is understood too),
//! autoscaling/v2 for autoscalers, v1 for all others that have one.

use keelson_meta::{Object, Timestamp, Value, value};
use std::cmp::Ordering;

mod column;
mod custom;
mod source;

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
use column::{NAME, date, words};
pub use custom::CustomColumns;
use source::Source;

/// How objects of one kind become rows.
#[derive(Debug)]
pub struct Printer {
    group: &'static str,
    kind: &'static str,
    columns: &'static [Column],
    cells: fn(&Source<'_>) -> Vec<Value>,
}

/// All kinds that have a printer of their own.
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

/// The printer of kinds that have none of their own.
static DEFAULT: Printer = Printer {
    group: "",
    kind: "",
    columns: &[NAME, date("Created At", words("When the object was created."))],
    cells: |row| vec![row.name(), row.created_at().into()],
};

/// The printer of a kind. To be looked up once for a list, for the search costs a walk over all
/// kinds.
pub fn printer(group: &str, kind: &str) -> &'static Printer {
    let mut all = PRINTERS.iter().copied().flatten();
    all.find(|printer| printer.kind == kind && printer.group == group).unwrap_or(&DEFAULT)
}

/// The columns of a kind's table.
pub fn columns(group: &str, kind: &str) -> &'static [Column] {
    printer(group, kind).columns
}

/// The cells of an object's row, in the order of the columns.
pub fn cells(group: &str, kind: &str, obj: &Object, now: Timestamp) -> Vec<Value> {
    printer(group, kind).cells(obj, now)
}

impl Printer {
    /// True when the kind has no table of its own.
    pub fn is_default(&self) -> bool {
        self.kind.is_empty()
    }

    /// The columns of the table.
    pub fn columns(&self) -> &'static [Column] {
        self.columns
    }

    /// The cells of an object's row, in the order of the columns; ages are counted up to `now`.
    pub fn cells(&self, obj: &Object, now: Timestamp) -> Vec<Value> {
        (self.cells)(&Source { obj, now })
    }

    /// The conditions of an object's row: only pods have any, when they have ended.
    pub fn conditions(&self, obj: &Object) -> Vec<Value> {
        if (self.group, self.kind) != ("", "Pod") {
            return vec![];
        }
        pods::row_conditions(obj)
    }

    /// Whether rows may stand in another order than that of the list.
    pub fn sorts_rows(&self) -> bool {
        self.kind == "FlowSchema"
    }

    /// The order of rows in a list's table: that of the list, except for flow schemas, which stand
    /// in the order in which they are tried.
    pub fn compare_rows(&self, a: &Object, b: &Object) -> Ordering {
        if !self.sorts_rows() {
            return Ordering::Equal;
        }
        let rank = |obj: &Object| obj.int_at(&["spec", "matchingPrecedence"]).unwrap_or(0);
        rank(a).cmp(&rank(b)).then_with(|| a.name().cmp(b.name()))
    }

    /// `columnDefinitions` of the Table; `describe` finds the documentation of a field of a type,
    /// and an unknown one has an empty description.
    pub fn column_definitions<'a>(
        &self,
        describe: impl Fn(&str, &str) -> Option<&'a str>,
    ) -> Vec<Value> {
        let definition = |column: &Column| {
            let description = match column.description {
                Description::Words(words) => words,
                Description::Field { type_name, field } => {
                    describe(type_name, field).unwrap_or_default()
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

#[cfg(test)]
mod tests;
