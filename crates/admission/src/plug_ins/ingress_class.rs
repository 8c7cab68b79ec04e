//! DefaultIngressClass: sets the default class of an ingress. Also selects one of several default
//! classes.

use crate::attributes::Recorder;
use crate::request::Request;
use keelson_meta::{Failure, Object};

const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
const LEGACY_CLASS: &str = "kubernetes.io/ingress.class";

pub(crate) fn set_default(
    req: &Request<'_>,
    ingress: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.creates("networking.k8s.io", "ingresses")
        || ingress.at(&["spec", "ingressClassName"]).is_some_and(|name| !name.is_null())
        || ingress.annotation(LEGACY_CLASS).is_some()
    {
        return Ok(());
    }
    let classes = req.stored.list_with("networking.k8s.io", "ingressclasses", "", &[DEFAULT])?;
    if let Some(class) = newest(classes, &[DEFAULT]) {
        ingress.object_mut("spec").insert("ingressClassName", class.name());
    }
    Ok(())
}

/// Returns the newest class with one of these annotations; among those of the same second, the
/// first by name.
pub(crate) fn newest(classes: Vec<Object>, annotations: &[&str]) -> Option<Object> {
    let is_default = |class: &Object| {
        annotations.iter().any(|annotation| class.annotation(annotation) == Some("true"))
    };
    // All times have one form, so they sort as text.
    classes.into_iter().filter(is_default).min_by(|a, b| {
        let times = b.creation_timestamp().cmp(a.creation_timestamp());
        times.then_with(|| a.name().cmp(b.name()))
    })
}
