//! The status.

use super::{CONVENTIONS_CONDITIONS, CONVENTIONS_SPEC};
use crate::definition::Version;
use crate::finding::{Check, Report, Rule, Severity};

pub static SUBRESOURCE: Rule = Rule {
    id: "status-subresource",
    severity: Severity::Error,
    section: CONVENTIONS_SPEC,
    summary: "A kind with a status has the subresource status.",
    advice: "Add `subresources: {status: {}}`. Without it, each update of the spec can overwrite the status, and who \
             may write one may write the other.",
    check: Check::Version(subresource),
};

pub static REQUIRED: Rule = Rule {
    id: "status-required",
    severity: Severity::Error,
    section: CONVENTIONS_SPEC,
    summary: "The status is not required.",
    advice: "With the subresource status, the server drops the status of a new object and then misses it: nothing can \
             be created. Remove it from `required`.",
    check: Check::Version(required),
};

pub static PHASE: Rule = Rule {
    id: "status-phase",
    severity: Severity::Warning,
    section: CONVENTIONS_CONDITIONS,
    summary: "A status has conditions, not a phase.",
    advice: "A phase cannot grow a value without breaking clients that know the old ones, and hides the properties \
             that it stands for. Use conditions; Ready or Succeeded sums them up.",
    check: Check::Version(phase),
};

pub static CONDITIONS: Rule = Rule {
    id: "status-conditions",
    severity: Severity::Advice,
    section: CONVENTIONS_CONDITIONS,
    summary: "A status has conditions.",
    advice: "Tools such as `kubectl wait` and those that deploy understand them without knowing the kind.",
    check: Check::Version(conditions),
};

pub static OBSERVED_GENERATION: Rule = Rule {
    id: "observed-generation",
    severity: Severity::Advice,
    section: CONVENTIONS_CONDITIONS,
    summary: "A status tells which generation of the spec it is about: observedGeneration.",
    advice: "Without it, nobody can tell a status that is out of date from a current one. Add it to the status or to \
             its conditions.",
    check: Check::Version(observed_generation),
};

fn subresource(version: &Version<'_>, report: &mut Report) {
    let has_subresource =
        version.object.at(&["subresources", "status"]).is_some_and(|status| !status.is_null());
    if let (Some(status), false) = (version.find("status"), has_subresource) {
        report.field(version, status, "", "the status has no subresource");
    }
}

fn required(version: &Version<'_>, report: &mut Report) {
    if let Some(root) = version.root().filter(|root| root.requires("status")) {
        let message = "the status is required, so that no object can be created";
        report.version(version, format!("{}.required", root.path), message);
    }
}

fn phase(version: &Version<'_>, report: &mut Report) {
    if let Some(phase) = version.find("status.phase").filter(|phase| phase.kind() == "string") {
        report.field(version, phase, "", "the status has a phase, not conditions");
    }
}

fn conditions(version: &Version<'_>, report: &mut Report) {
    let Some(status) = version.find("status").filter(|status| !status.is_builtin) else { return };
    if status.members().next().is_some() && status.member("conditions").is_none() {
        report.field(version, status, "properties", "the status has no conditions");
    }
}

fn observed_generation(version: &Version<'_>, report: &mut Report) {
    let (Some(status), Some(_)) = (version.find("status"), version.find("status.conditions"))
    else {
        return;
    };
    let item = version.fields.iter().find(|field| field.field == "status.conditions[*]");
    let in_items = item.is_some_and(|item| item.member("observedGeneration").is_some());
    if status.member("observedGeneration").is_none() && !in_items {
        report.field(
            version,
            status,
            "",
            "neither the status nor its conditions have an observedGeneration",
        );
    }
}
