//! PriorityClasses of pods and PodGroups.

use crate::request::Request;
use keelson_meta::{Failure, Object};

pub(crate) const GROUP: &str = "scheduling.k8s.io";
pub(crate) const RESOURCE: &str = "priorityclasses";

/// Returns the default class; if there are several, the one with the lowest value.
pub(crate) fn default_class(req: &Request<'_>) -> Result<Option<Object>, Failure> {
    let mut classes = req.stored.list_with(GROUP, RESOURCE, "", &["globalDefault"])?;
    classes.retain(|class| class.at(&["globalDefault"]).and_then(|v| v.as_bool()) == Some(true));
    Ok(classes.into_iter().min_by_key(|class| class.int_at(&["value"])))
}
