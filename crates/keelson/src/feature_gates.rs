//! `--feature-gates`: the feature gates of Kubernetes 1.36 ([`Features`]), and those of them that
//! Keelson cannot change.

use keelson_meta::{Feature, FeatureGateError, Features};

/// An invalid value of `--feature-gates`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatesError {
    /// kube-apiserver refuses the value, too.
    #[error(transparent)]
    Gates(FeatureGateError),
    /// The gate can be changed in kube-apiserver, but not in Keelson.
    #[error("{name} is {is_on} in Keelson and cannot be switched")]
    Fixed {
        /// The name of the gate.
        name: &'static str,
        /// Its fixed value.
        is_on: bool,
    },
}

/// Parses the `NAME=BOOL` values of `--feature-gates`. Setting a gate of [`FIXED`] by name to
/// another value than its default is an error; `AllAlpha` and `AllBeta` do not affect it.
pub fn parse(values: &[String]) -> Result<Features, GatesError> {
    let is_named = |feature: &Feature| {
        values.iter().any(|value| {
            let name = value.split_once('=').map_or("", |(name, _)| name.trim());
            name.strip_prefix("kube:").unwrap_or(name) == feature.name()
        })
    };
    let mut features =
        Features::parse(values.iter().map(String::as_str)).map_err(GatesError::Gates)?;
    for fixed in FIXED {
        let is_on = Features::DEFAULT.is_on(*fixed);
        if features.is_on(*fixed) != is_on && is_named(fixed) {
            return Err(GatesError::Fixed { name: fixed.name(), is_on });
        }
        features = features.with(*fixed, is_on);
    }
    Ok(features)
}

/// Gates that can be changed in kube-apiserver, but not in Keelson. COMPAT.md lists them, too.
const FIXED: &[Feature] = &[
    Feature::APIServerIdentity,
    Feature::CRDObservedGenerationTracking,
    Feature::ManifestBasedAdmissionControlConfig,
    Feature::OpenAPIEnums,
    Feature::RemoteRequestHeaderUID,
    Feature::ServiceCIDRStatusFieldWiping,
    Feature::ShardedListAndWatch,
    Feature::StorageVersionAPI,
    Feature::StructuredAuthenticationConfigurationEgressSelector,
    Feature::WorkloadWithJob,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_gate_is_refused_only_when_it_is_named() {
        let parse = |value: &str| {
            let values: Vec<String> = value.split(',').map(str::to_owned).collect();
            parse(&values).map_err(|error| error.to_string())
        };
        let fixed = Feature::OpenAPIEnums;
        assert_eq!(parse("AllBeta=false").map(|features| features.is_on(fixed)), Ok(true));
        assert_eq!(parse("kube:OpenAPIEnums=true"), Ok(Features::default()));
        let why = "OpenAPIEnums is true in Keelson and cannot be switched";
        assert_eq!(parse("kube:OpenAPIEnums=false"), Err(why.to_owned()));
        let why = "unrecognized feature gate: NoSuch";
        assert_eq!(parse("NoSuch=true"), Err(why.to_owned()));
    }
}
