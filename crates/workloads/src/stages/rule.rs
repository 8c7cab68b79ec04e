//! [`StageRule`]: a Stage that was understood.

use super::StagedKind;
use super::expressions::{Condition, DurationSource, NumberSource};
use super::template::StageTemplate;
use keelson_meta::Str;
use keelson_registry::Subresource;
use keelson_registry::options::PatchForm;

/// One Stage.
#[derive(Debug)]
pub struct StageRule {
    pub name: String,
    /// What it is about.
    pub kind: StagedKind,
    pub selector: StageSelector,
    /// How often it is chosen among those that match.
    pub weight: NumberSource,
    /// The shortest time until it is played.
    pub delay: Option<DurationSource>,
    /// The longest time; if it is shorter than the other, it is the time.
    pub jitter: Option<DurationSource>,
    pub steps: Vec<StageStep>,
}

/// Which objects a Stage matches.
#[derive(Debug, Default)]
pub struct StageSelector {
    pub labels: Vec<(String, String)>,
    pub annotations: Vec<(String, String)>,
    pub conditions: Vec<Condition>,
}

/// What a Stage does.
#[derive(Debug)]
pub enum StageStep {
    Event { kind: &'static str, reason: String, message: String },
    Finalizers { adds: Vec<Str>, removes: Vec<Str>, empties: bool },
    Delete,
    Patch(TemplatedPatch),
    Apply(TemplatedApply),
}

/// A patch of the object.
#[derive(Debug)]
pub struct TemplatedPatch {
    /// The field that the template renders; empty: the object.
    pub root: String,
    pub template: StageTemplate,
    pub subresource: Subresource,
    /// `None`: strategic for Pods and Nodes, else a merge patch.
    pub form: Option<PatchForm>,
    /// As whom it is sent; empty: as the simulation.
    pub user: String,
}

/// An object that is created or changed.
#[derive(Debug)]
pub struct TemplatedApply {
    pub template: StageTemplate,
    pub subresource: Subresource,
    pub form: PatchForm,
    pub user: String,
}
