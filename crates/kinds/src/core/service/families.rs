//! Defaults and validation of `ipFamilyPolicy` and `ipFamilies` by the IP families of the cluster.

use super::validate_addresses;
use keelson_meta::{ErrorList, Failure, FieldError, Object, Path, Str, Value, ip};

const HEADLESS: &str = "None";

/// Sets `ipFamilyPolicy` and `ipFamilies`. `families` are those of the service CIDRs, the default
/// one first. Returns 422 when the service does not fit them.
pub fn complete(
    service: &mut Object,
    old: Option<&Object>,
    families: &[&str],
) -> Result<(), Failure> {
    if is_external_name(service) || old.is_some_and(|old| keeps_families(service, old)) {
        return Ok(());
    }
    if policy(service).is_empty() {
        let wanted = match old.map(policy) {
            Some(policy) if !policy.is_empty() => policy.to_owned(),
            _ if is_headless_without_selector(service) => "RequireDualStack".to_owned(),
            _ => "SingleStack".to_owned(),
        };
        service.object_mut("spec").insert("ipFamilyPolicy", wanted);
    }
    into_result(service, validate_addresses(service, old))?;
    let mut errors = ErrorList::new();
    if let Some(old) = old {
        shorten(service, old, &mut errors);
    }
    check_lengths(service, &mut errors);
    let mut found: Vec<Str> = texts(service, "ipFamilies").into_iter().map(Str::from).collect();
    infer(service, families, &mut found, &mut errors);
    into_result(service, errors)?;
    let is_headless_without_selector = is_headless_without_selector(service);
    if !is_headless_without_selector {
        require_configured(service, families, &found)?;
    }
    if found.is_empty() {
        found.extend(families.first().map(Str::new));
    }
    let wants_both = policy(service) != "SingleStack";
    if wants_both && found.len() == 1 && (is_headless_without_selector || families.len() == 2) {
        found.push(Str::new_static(if found[0] == "IPv4" { "IPv6" } else { "IPv4" }));
    }
    let found: Vec<Value> = found.into_iter().map(Value::String).collect();
    service.object_mut("spec").insert("ipFamilies", found);
    Ok(())
}

/// Returns whether the type is ExternalName.
pub fn is_external_name(service: &Object) -> bool {
    service.str_at(&["spec", "type"]) == "ExternalName"
}

/// Returns whether the service is headless.
pub fn is_headless(service: &Object) -> bool {
    texts(service, "clusterIPs").first() == Some(&HEADLESS)
}

/// Returns whether the service is headless without a selector: it may use families that the cluster
/// does not have.
fn is_headless_without_selector(service: &Object) -> bool {
    service.str_at(&["spec", "clusterIP"]) == HEADLESS
        && service.at(&["spec", "selector"]).is_none_or(Value::is_empty)
}

fn policy(service: &Object) -> &str {
    service.str_at(&["spec", "ipFamilyPolicy"])
}

/// Returns a list of strings in the spec.
pub fn texts<'o>(service: &'o Object, name: &str) -> Vec<&'o str> {
    service.array_at(&["spec", name]).iter().filter_map(Value::as_str).collect()
}

/// Returns whether an update keeps the families: a PreferDualStack service does not change with the
/// cluster.
pub fn keeps_families(service: &Object, old: &Object) -> bool {
    let prefers =
        |service: &Object| policy(service) == "PreferDualStack" && !is_external_name(service);
    prefers(service)
        && prefers(old)
        && texts(service, "clusterIPs") == texts(old, "clusterIPs")
        && texts(service, "ipFamilies") == texts(old, "ipFamilies")
}

/// Removes the secondary address and family when the policy becomes SingleStack.
fn shorten(service: &mut Object, old: &Object, errors: &mut ErrorList) {
    let spec = Path::new("spec");
    let path = spec.field("ipFamilyPolicy");
    for (name, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let now = texts(service, name);
        let before = texts(old, name);
        if policy(service) == "SingleStack" {
            if now == before && now.len() > 1 {
                let first = service.array_at(&["spec", name])[..1].to_vec();
                service.object_mut("spec").insert(name, first);
            }
        } else if !now.is_empty() && now.len() < before.len() && now == before[..now.len()] {
            let why = format!("must be 'SingleStack' to release the secondary {what}");
            errors.push(FieldError::invalid(&path, policy(service), &why));
        }
    }
}

fn check_lengths(service: &Object, errors: &mut ErrorList) {
    if policy(service) != "SingleStack" {
        return;
    }
    let spec = Path::new("spec");
    for (name, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if texts(service, name).len() == 2 {
            let why = format!(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
            );
            errors.push(FieldError::invalid(&spec.field("ipFamilyPolicy"), policy(service), &why));
        }
    }
}

/// Adds the families of the cluster IPs that the client set.
fn infer(service: &Object, families: &[&str], found: &mut Vec<Str>, errors: &mut ErrorList) {
    let addresses = texts(service, "clusterIPs");
    let spec = Path::new("spec");
    let list = spec.field("clusterIPs");
    for (index, address) in addresses.iter().enumerate().skip(found.len()) {
        let Some(address) = ip::parse_ip(address) else { break };
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        if families.contains(&family) {
            found.push(Str::new_static(family));
        } else {
            let why = format!("{family} is not configured on this cluster");
            let given = service.array_at(&["spec", "clusterIPs"]).to_vec();
            errors.push(FieldError::invalid(&list.index(index), given, &why));
        }
    }
}

fn require_configured(service: &Object, families: &[&str], found: &[Str]) -> Result<(), Failure> {
    let mut errors = ErrorList::new();
    let spec = Path::new("spec");
    if policy(service) == "RequireDualStack" && families.len() < 2 {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid(&spec.field("ipFamilyPolicy"), policy(service), why));
    }
    let list = spec.field("ipFamilies");
    for (index, family) in found.iter().enumerate() {
        if !families.contains(&family.as_str()) {
            let why = "not configured on this cluster";
            errors.push(FieldError::invalid(&list.index(index), family.as_str(), why));
        }
    }
    into_result(service, errors)
}

/// Returns 422 for a service if there are errors.
pub fn into_result(service: &Object, errors: ErrorList) -> Result<(), Failure> {
    errors.into_result("", "Service", service.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn check(spec: Value, families: &[&str], want: Result<(&str, &[&str]), &str>) {
        let object = value!({"metadata": {"name": "s"}, "spec": (spec)});
        let mut service = Object::from_value(object).expect("an object");
        let got = complete(&mut service, None, families)
            .map_err(|status| status.message.clone())
            .map(|()| (policy(&service).to_owned(), texts(&service, "ipFamilies")));
        let want = want.map(|(policy, families)| (policy.to_owned(), families.to_vec()));
        assert_eq!(got.as_ref().map_err(String::as_str), want.as_ref().map_err(|why| *why));
    }

    #[test]
    fn families_follow_from_the_cluster() {
        check(value!({}), &["IPv4"], Ok(("SingleStack", &["IPv4"])));
        check(value!({}), &["IPv6", "IPv4"], Ok(("SingleStack", &["IPv6"])));
        let both = value!({"ipFamilyPolicy": "PreferDualStack"});
        check(both.clone(), &["IPv4"], Ok(("PreferDualStack", &["IPv4"])));
        check(both, &["IPv4", "IPv6"], Ok(("PreferDualStack", &["IPv4", "IPv6"])));
    }

    #[test]
    fn services_without_address_and_selector_are_free_to_choose() {
        let spec = value!({"clusterIP": "None", "clusterIPs": ["None"]});
        check(spec, &["IPv4"], Ok(("RequireDualStack", &["IPv4", "IPv6"])));
        let spec = value!({"clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}});
        check(spec, &["IPv4"], Ok(("SingleStack", &["IPv4"])));
    }

    #[test]
    fn families_that_the_cluster_lacks_are_rejected() {
        check(
            value!({"ipFamilyPolicy": "RequireDualStack"}),
            &["IPv4"],
            Err("Service \"s\" is invalid: spec.ipFamilyPolicy: Invalid value: \
                 \"RequireDualStack\": this cluster is not configured for dual-stack services"),
        );
        check(
            value!({"ipFamilies": ["IPv6"]}),
            &["IPv4"],
            Err("Service \"s\" is invalid: spec.ipFamilies[0]: Invalid value: \"IPv6\": not \
                 configured on this cluster"),
        );
    }
}
