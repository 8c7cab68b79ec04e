//! DefaultIngressClass: an ingress without a class gets the default one. Also how the default of
//! several classes is found.

use crate::attributes::Notes;
use crate::request::Request;
use keelson_meta::{Failure, Object};

const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
const LEGACY_CLASS: &str = "kubernetes.io/ingress.class";

pub(crate) fn set_default(
    req: &Request<'_>,
    ingress: &mut Object,
    _notes: &mut Notes,
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

/// Of the classes that one of these annotations marks as the default, the one that was made last; of
/// those of one second, the one whose name comes first.
pub(crate) fn newest(classes: Vec<Object>, annotations: &[&str]) -> Option<Object> {
    let is_default = |class: &Object| {
        annotations.iter().any(|annotation| class.annotation(annotation) == Some("true"))
    };
    // What sorts by text sorts by time: all times are of one form.
    classes.into_iter().filter(is_default).min_by(|a, b| {
        let times = b.creation_timestamp().cmp(a.creation_timestamp());
        times.then_with(|| a.name().cmp(b.name()))
    })
}
