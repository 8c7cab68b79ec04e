//! JobValidation: the parallelism of a Job with gang scheduling is immutable.

use crate::attributes::Recorder;
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Feature, Object};

const GROUP: &str = "scheduling.k8s.io";
const POD_GROUPS: &str = "podgroups";

/// Rejects a new parallelism when the Job's PodGroup, or one that the Job controls, uses gang
/// scheduling.
pub(crate) fn validate(
    req: &Request<'_>,
    job: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let is_update = req.operation == Operation::Update && req.is("batch", "jobs");
    if !is_update || !req.features.is_on(Feature::GenericWorkload) {
        return Ok(());
    }
    let parallelism = ["spec", "parallelism"];
    let Some(old) = req.old.filter(|old| old.at(&parallelism) != job.at(&parallelism)) else {
        return Ok(());
    };
    let group = match named_group(old) {
        "" => controlled_groups(req, old)?.into_iter().find(is_gang),
        name => {
            let found = req.stored.get(GROUP, POD_GROUPS, req.namespace, name)?;
            found.filter(is_gang)
        }
    };
    let Some(group) = group else { return Ok(()) };
    let why = format!(
        "cannot change parallelism for a Job referencing gang-scheduled PodGroup {:?}",
        group.name()
    );
    Err(req.forbidden(job, &why))
}

/// Returns the PodGroup in a Job's template.
fn named_group(job: &Object) -> &str {
    job.str_at(&["spec", "template", "spec", "schedulingGroup", "podGroupName"])
}

/// Returns the PodGroups whose controller is this Job.
fn controlled_groups(req: &Request<'_>, job: &Object) -> Result<Vec<Object>, Failure> {
    let mut groups = req.stored.list_with(GROUP, POD_GROUPS, req.namespace, &[job.uid()])?;
    groups.retain(|group| {
        group.controller().and_then(|owner| owner.str_at(&["uid"])) == Some(job.uid())
    });
    Ok(groups)
}

fn is_gang(group: &Object) -> bool {
    group.at(&["spec", "schedulingPolicy", "gang"]).is_some_and(|gang| !gang.is_null())
}
