//! [`PlugIn`]: a row of the table of plug-ins, and how such rows are made.

use crate::attributes::Notes;
use crate::metrics::{Phase, Share};
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Object};

/// Changes the object of a request, or refuses it, with warnings and audit annotations to the last argument.
pub(crate) type Admit = fn(&Request<'_>, &mut Object, &mut Notes) -> Result<(), Failure>;

/// Refuses the object of a request as it would be stored.
pub(crate) type Validate = fn(&Request<'_>, &Object, &mut Notes) -> Result<(), Failure>;

/// A plug-in.
pub(crate) struct PlugIn {
    /// As `--enable-admission-plugins` has it.
    pub name: &'static str,
    pub default_on: bool,
    pub does: Does,
    /// The operations at which it is asked to change objects, as metrics count it.
    counted_admit: Operations,
    /// The operations at which it is asked to refuse objects, as metrics count it.
    counted_validate: Operations,
}

/// The implementation of a plug-in.
pub(crate) enum Does {
    /// Functions of the mutating and the validating phase.
    Steps { admit: Option<Admit>, validate: Option<Validate> },
    /// A [`DynamicPlugIn`](crate::DynamicPlugIn) of this name.
    Dynamic,
    /// The name is known, and nothing is done for it here.
    Nothing,
}

/// Operations, as bits.
pub(crate) type Operations = u8;

pub(crate) const CREATE: Operations = 1 << Operation::Create as u8;
pub(crate) const UPDATE: Operations = 1 << Operation::Update as u8;
pub(crate) const DELETE: Operations = 1 << Operation::Delete as u8;
pub(crate) const CONNECT: Operations = 1 << Operation::Connect as u8;
pub(crate) const WRITE: Operations = CREATE | UPDATE;
pub(crate) const ALL: Operations = WRITE | DELETE | CONNECT;

pub(crate) const fn mutates(name: &'static str, admit: Admit, operations: Operations) -> PlugIn {
    let does = Does::Steps { admit: Some(admit), validate: None };
    PlugIn { name, default_on: true, does, counted_admit: operations, counted_validate: 0 }
}

pub(crate) const fn validates(
    name: &'static str,
    validate: Validate,
    operations: Operations,
) -> PlugIn {
    let does = Does::Steps { admit: None, validate: Some(validate) };
    PlugIn { name, default_on: true, does, counted_admit: 0, counted_validate: operations }
}

pub(crate) const fn both(
    name: &'static str,
    admit: Admit,
    validate: Validate,
    operations: Operations,
) -> PlugIn {
    let does = Does::Steps { admit: Some(admit), validate: Some(validate) };
    PlugIn { name, default_on: true, does, counted_admit: operations, counted_validate: operations }
}

impl PlugIn {
    pub const fn off_by_default(self) -> PlugIn {
        PlugIn { default_on: false, ..self }
    }

    /// Counted as one that only changes objects.
    pub const fn counted_as_mutating(self) -> PlugIn {
        PlugIn { counted_validate: 0, ..self }
    }

    /// What it does in the mutating phase.
    pub fn admit(&self) -> Option<Admit> {
        match self.does {
            Does::Steps { admit, .. } => admit,
            Does::Dynamic | Does::Nothing => None,
        }
    }

    /// What it does in the validating phase.
    pub fn validate(&self) -> Option<Validate> {
        match self.does {
            Does::Steps { validate, .. } => validate,
            Does::Dynamic | Does::Nothing => None,
        }
    }

    /// What counts for it in a phase, besides what is counted of it alone.
    pub fn share(&self, phase: Phase, operation: Operation) -> Option<Share> {
        let is_done = match (phase, operation) {
            // Deletions are only validated here.
            (Phase::Admit, Operation::Create | Operation::Update) => self.admit().is_some(),
            _ => self.validate().is_some(),
        };
        let share = match self.does {
            Does::Steps { .. } if is_done => Share::OfPass,
            Does::Dynamic => Share::OfIdle,
            Does::Steps { .. } | Does::Nothing => return None,
        };
        self.is_counted(phase, operation).then_some(share)
    }

    /// Whether it is counted in this phase.
    pub fn is_counted(&self, phase: Phase, operation: Operation) -> bool {
        let operations = match phase {
            Phase::Admit => self.counted_admit,
            Phase::Validate => self.counted_validate,
        };
        operations & 1 << operation as u8 != 0
    }
}

/// One that is known by its name and done elsewhere, if at all.
pub(crate) const fn nothing(
    name: &'static str,
    default_on: bool,
    counted_admit: Operations,
    counted_validate: Operations,
) -> PlugIn {
    PlugIn { name, default_on, does: Does::Nothing, counted_admit, counted_validate }
}

pub(crate) const fn dynamic(
    name: &'static str,
    default_on: bool,
    counted_admit: Operations,
    counted_validate: Operations,
) -> PlugIn {
    PlugIn { does: Does::Dynamic, ..nothing(name, default_on, counted_admit, counted_validate) }
}
