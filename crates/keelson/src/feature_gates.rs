//! `--feature-gates`: the gates of Kubernetes 1.36 ([`Features`]), less those that cannot be switched here.

use keelson_meta::{Feature, FeatureGateError, Features};

/// Why `--feature-gates` was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatesError {
    /// As by kube-apiserver.
    #[error(transparent)]
    Gates(FeatureGateError),
    /// A gate that can be switched in kube-apiserver and not here.
    #[error("{name} is {is_on} in Keelson and cannot be switched")]
    Fixed {
        /// Its name.
        name: &'static str,
        /// Its value.
        is_on: bool,
    },
}

/// Reads the words of `--feature-gates`. A gate of [`FIXED`] that is named with another value than its
/// default is refused; `AllAlpha` and `AllBeta` leave it as it is.
pub fn parse(words: &[String]) -> Result<Features, GatesError> {
    let named = |feature: &Feature| {
        let is_it = |word: &&String| {
            let name = word.split_once('=').map_or("", |(name, _)| name.trim());
            name.strip_prefix("kube:").unwrap_or(name) == feature.name()
        };
        words.iter().any(|word| is_it(&word))
    };
    let mut features =
        Features::parse(words.iter().map(String::as_str)).map_err(GatesError::Gates)?;
    for fixed in FIXED {
        let is_on = Features::DEFAULT.is_on(*fixed);
        if features.is_on(*fixed) != is_on && named(fixed) {
            return Err(GatesError::Fixed { name: fixed.name(), is_on });
        }
        features = features.with(*fixed, is_on);
    }
    Ok(features)
}

/// Gates that kube-apiserver can switch and Keelson cannot. COMPAT.md says the same.
const FIXED: &[Feature] = &[
    Feature::APIResponseCompression,
    Feature::APIServerIdentity,
    Feature::AllowInsecureKubeletCertificateSigningRequests,
    Feature::AllowParsingUserUIDFromCertAuth,
    Feature::AllowServiceExternalIPs,
    Feature::AuthorizePodWebsocketUpgradeCreatePermission,
    Feature::CRDObservedGenerationTracking,
    Feature::ClearingNominatedNodeNameAfterBinding,
    Feature::ConstrainedImpersonation,
    Feature::DRAResourceClaimGranularStatusAuthorization,
    Feature::DeclarativeValidationBeta,
    Feature::DeclarativeValidationTakeover,
    Feature::InPlacePodLevelResourcesVerticalScaling,
    Feature::InPlacePodVerticalScalingInitContainers,
    Feature::ManifestBasedAdmissionControlConfig,
    Feature::MatchLabelKeysInPodTopologySpreadSelectorMerge,
    Feature::MutablePodResourcesForSuspendedJobs,
    Feature::MutableSchedulingDirectivesForSuspendedJobs,
    Feature::MutatingAdmissionPolicy,
    Feature::NominatedNodeNameForExpectation,
    Feature::OpenAPIEnums,
    Feature::PodDeletionCost,
    Feature::PodLogsQuerySplitStreams,
    Feature::PodTopologyLabelsAdmission,
    Feature::PreventStaticPodAPIReferences,
    Feature::RelaxedServiceNameValidation,
    Feature::RemoteRequestHeaderUID,
    Feature::ResourceHealthStatusMessage,
    Feature::RestartAllContainersOnContainerExits,
    Feature::ServiceAccountNodeAudienceRestriction,
    Feature::ServiceCIDRStatusFieldWiping,
    Feature::ShardedListAndWatch,
    Feature::StorageVersionAPI,
    Feature::StorageVersionHash,
    Feature::StrictIPCIDRValidation,
    Feature::StructuredAuthenticationConfigurationEgressSelector,
    Feature::TokenRequestServiceAccountUIDValidation,
    Feature::WatchList,
    Feature::WorkloadWithJob,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_switched_is_refused_by_name_only() {
        let parse = |word: &str| {
            let words: Vec<String> = word.split(',').map(str::to_owned).collect();
            parse(&words).map_err(|why| why.to_string())
        };
        let fixed = Feature::APIResponseCompression;
        assert_eq!(parse("AllBeta=false").map(|features| features.is_on(fixed)), Ok(true));
        assert_eq!(parse("kube:APIResponseCompression=true"), Ok(Features::default()));
        let why = "APIResponseCompression is true in Keelson and cannot be switched";
        assert_eq!(parse("kube:APIResponseCompression=false"), Err(why.to_owned()));
        let why = "unrecognized feature gate: NoSuch";
        assert_eq!(parse("NoSuch=true"), Err(why.to_owned()));
    }
}
