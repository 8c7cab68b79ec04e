//! Warnings about services (upstream `pkg/api/service/warnings.go`).

use super::addresses::is_headless;
use crate::check::Field;
use keelson_meta::{Object, Str, ip};

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";

/// Returns the warnings about a service.
pub(super) fn of(service: &Object) -> Vec<Str> {
    let mut warnings: Vec<String> = vec![];
    if service.annotation(HINTS).is_some() {
        warnings.push(format!(
            "annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let spec = Field::of(service, "spec");
    let external = spec.field("externalIPs");
    let has_external = !external.array().is_empty();
    let balancer = spec.field("loadBalancerIP");
    if is_headless(spec.value) {
        let affinity = spec.str("sessionAffinity");
        for (name, is_set) in [
            ("spec.loadBalancerIP", !balancer.text().is_empty()),
            ("spec.externalIPs", has_external),
            ("spec.SessionAffinity", !matches!(affinity, "" | "None")),
        ] {
            if is_set {
                warnings.push(format!("{name} is ignored for headless services"));
            }
        }
    } else {
        for at in spec.field("clusterIPs").items() {
            warnings.extend(ip::warnings_for_ip(at.text(), &at.path));
        }
    }
    for at in external.items() {
        warnings.extend(ip::warnings_for_ip(at.text(), &at.path));
    }
    if !balancer.text().is_empty() {
        warnings.extend(ip::warnings_for_ip(balancer.text(), &balancer.path));
    }
    for at in spec.field("loadBalancerSourceRanges").items() {
        warnings.extend(ip::warnings_for_cidr(at.text(), &at.path));
    }
    if has_external {
        warnings.push(match spec.str("type") {
            "ExternalName" => {
                "spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned()
            }
            _ => "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .to_owned(),
        });
    }
    if spec.str("type") != "ExternalName" && !spec.str("externalName").is_empty() {
        let why = "spec.externalName is ignored when spec.type is not \"ExternalName\"";
        warnings.push(why.to_owned());
    }
    if spec.str("trafficDistribution") == "PreferClose" {
        let why = "\"PreferClose\" is deprecated; use \"PreferSameZone\"";
        warnings.push(format!("spec.trafficDistribution: {why}"));
    }
    warnings.into_iter().map(Str::from).collect()
}
