//! [`PlugIn`]: an entry in the table of plug-ins, with its constructors.

use crate::attributes::Recorder;
use crate::metrics::{Phase, Share};
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Object};

/// Mutates or rejects the object of a request. Warnings and audit annotations go to the recorder.
pub(crate) type Admit = fn(&Request<'_>, &mut Object, &mut Recorder) -> Result<(), Failure>;

/// Rejects the object of a request as it would be stored, or accepts it.
pub(crate) type Validate = fn(&Request<'_>, &Object, &mut Recorder) -> Result<(), Failure>;

/// An admission plug-in.
pub(crate) struct PlugIn {
    /// The name in `--enable-admission-plugins`.
    pub name: &'static str,
    pub default_on: bool,
    pub does: Behavior,
    /// The operations that metrics count for it in the mutating phase.
    counted_admit: Operations,
    /// The operations that metrics count for it in the validating phase.
    counted_validate: Operations,
}

/// The implementation of a plug-in.
pub(crate) enum Behavior {
    /// Functions for the mutating and the validating phase.
    Steps { admit: Option<Admit>, validate: Option<Validate> },
    /// A [`DynamicPlugIn`](crate::DynamicPlugIn) with this name.
    Dynamic,
    /// A known name without an implementation in this crate.
    Nothing,
}

/// A bit set of operations.
pub(crate) type Operations = u8;

pub(crate) const CREATE: Operations = 1 << Operation::Create as u8;
pub(crate) const UPDATE: Operations = 1 << Operation::Update as u8;
pub(crate) const DELETE: Operations = 1 << Operation::Delete as u8;
pub(crate) const CONNECT: Operations = 1 << Operation::Connect as u8;
pub(crate) const WRITE: Operations = CREATE | UPDATE;
pub(crate) const ALL: Operations = WRITE | DELETE | CONNECT;

pub(crate) const fn mutates(name: &'static str, admit: Admit, operations: Operations) -> PlugIn {
    let does = Behavior::Steps { admit: Some(admit), validate: None };
    PlugIn { name, default_on: true, does, counted_admit: operations, counted_validate: 0 }
}

pub(crate) const fn validates(
    name: &'static str,
    validate: Validate,
    operations: Operations,
) -> PlugIn {
    let does = Behavior::Steps { admit: None, validate: Some(validate) };
    PlugIn { name, default_on: true, does, counted_admit: 0, counted_validate: operations }
}

pub(crate) const fn both(
    name: &'static str,
    admit: Admit,
    validate: Validate,
    operations: Operations,
) -> PlugIn {
    let does = Behavior::Steps { admit: Some(admit), validate: Some(validate) };
    PlugIn { name, default_on: true, does, counted_admit: operations, counted_validate: operations }
}

impl PlugIn {
    pub const fn off_by_default(self) -> PlugIn {
        PlugIn { default_on: false, ..self }
    }

    /// Counts the plug-in in metrics for the mutating phase only.
    pub const fn counted_as_mutating(self) -> PlugIn {
        PlugIn { counted_validate: 0, ..self }
    }

    /// Returns the function of the mutating phase.
    pub fn admit(&self) -> Option<Admit> {
        match self.does {
            Behavior::Steps { admit, .. } => admit,
            Behavior::Dynamic | Behavior::Nothing => None,
        }
    }

    /// Returns the function of the validating phase.
    pub fn validate(&self) -> Option<Validate> {
        match self.does {
            Behavior::Steps { validate, .. } => validate,
            Behavior::Dynamic | Behavior::Nothing => None,
        }
    }

    /// Returns how the plug-in is counted in a phase.
    pub fn share(&self, phase: Phase, operation: Operation) -> Option<Share> {
        let is_done = match (phase, operation) {
            // Deletions have no mutating phase here.
            (Phase::Admit, Operation::Create | Operation::Update) => self.admit().is_some(),
            _ => self.validate().is_some(),
        };
        let share = match self.does {
            Behavior::Steps { .. } if is_done => Share::OfPass,
            Behavior::Dynamic => Share::OfIdle,
            Behavior::Steps { .. } | Behavior::Nothing => return None,
        };
        self.is_counted(phase, operation).then_some(share)
    }

    /// Returns whether metrics count the plug-in in this phase.
    pub fn is_counted(&self, phase: Phase, operation: Operation) -> bool {
        let operations = match phase {
            Phase::Admit => self.counted_admit,
            Phase::Validate => self.counted_validate,
        };
        operations & 1 << operation as u8 != 0
    }
}

/// Returns a plug-in that is implemented elsewhere or not at all.
pub(crate) const fn nothing(
    name: &'static str,
    default_on: bool,
    counted_admit: Operations,
    counted_validate: Operations,
) -> PlugIn {
    PlugIn { name, default_on, does: Behavior::Nothing, counted_admit, counted_validate }
}

pub(crate) const fn dynamic(
    name: &'static str,
    default_on: bool,
    counted_admit: Operations,
    counted_validate: Operations,
) -> PlugIn {
    PlugIn { does: Behavior::Dynamic, ..nothing(name, default_on, counted_admit, counted_validate) }
}
