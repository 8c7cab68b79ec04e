//! `--feature-gates`: which features of Kubernetes are on. Keelson acts on few of them; the others are
//! known so that a configuration that states a default is taken, and one that does not is not taken in
//! silence.

/// The features that can be switched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// `CBORServingAndStorage`: objects are read and written in CBOR too.
    pub cbor: bool,
    /// `AllowUnsafeMalformedObjectDeletion`: objects that cannot be read may be deleted on request.
    pub malformed_object_deletion: bool,
}

/// Why a word was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureGateError {
    /// Not `NAME=true` or `NAME=false`.
    Form {
        /// The word.
        word: String,
    },
    /// No feature of Kubernetes 1.36.
    Unknown {
        /// Its name.
        name: String,
    },
    /// A feature that cannot be switched here.
    Fixed {
        /// Its name.
        name: String,
        /// What it is.
        is_on: bool,
    },
}

impl std::fmt::Display for FeatureGateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FeatureGateError::Form { word } => write!(f, "{word:?} must end in =true or =false"),
            FeatureGateError::Unknown { name } => write!(f, "unrecognized feature gate: {name}"),
            FeatureGateError::Fixed { name, is_on } => {
                write!(f, "{name} is {is_on} in Keelson and cannot be switched")
            }
        }
    }
}

impl std::error::Error for FeatureGateError {}

impl FeatureGates {
    /// Takes a word of the form `NAME=BOOL`.
    pub fn set(&mut self, word: &str) -> Result<(), FeatureGateError> {
        let form = || FeatureGateError::Form { word: word.to_owned() };
        let (name, value) = word.split_once('=').ok_or_else(form)?;
        let (name, value): (&str, bool) = (name.trim(), value.trim().parse().map_err(|_| form())?);
        let switch = match name {
            "CBORServingAndStorage" => Some(&mut self.cbor),
            "AllowUnsafeMalformedObjectDeletion" => Some(&mut self.malformed_object_deletion),
            _ => None,
        };
        if let Some(switch) = switch {
            *switch = value;
            return Ok(());
        }
        let is_in = |names: &str| names.split(' ').any(|other| other == name);
        let is_on = match (is_in(ON), is_in(OFF)) {
            (true, _) => true,
            (_, true) => false,
            _ => return Err(FeatureGateError::Unknown { name: name.to_owned() }),
        };
        if value == is_on {
            return Ok(());
        }
        Err(FeatureGateError::Fixed { name: name.to_owned(), is_on })
    }
}

/// On by default in Kubernetes 1.36.
const ON: &str = "\
    APIResponseCompression APIServerIdentity APIServerTracing AggregatedDiscoveryRemoveBetaType \
    AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests \
    AllowOverwriteTerminationGracePeriodSeconds AllowParsingUserUIDFromCertAuth \
    AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AtomicFIFO \
    AuthorizeNodeWithSelectors AuthorizePodWebsocketUpgradeCreatePermission \
    AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyBetaOptions CPUManagerPolicyOptions \
    CRDValidationRatcheting CSIServiceAccountTokenSecrets ChangeContainerStatusOnKubeletRestart \
    ClearingNominatedNodeNameAfterBinding ConsistentListFromCache ContainerCheckpoint \
    ContainerRestartRules CustomResourceFieldSelectors DRAAdminAccess DRAPrioritizedList \
    DRAResourceClaimDeviceStatus DRASchedulerFilterTimeout DeclarativeValidation \
    DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency DisableAllocatorDualWrite \
    DisableCPUQuotaWithExclusiveCPUs DisableNodeKubeProxyVersion DynamicResourceAllocation \
    EnvFiles ExecProbeTimeout ExternalServiceAccountTokenSigner GitRepoVolumeDriver \
    GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance \
    HonorPVReclaimPolicy HostnameOverride ImageMaximumGCAge ImageVolume InOrderInformers \
    InOrderInformersBatchProcess InPlacePodVerticalScaling InformerResourceVersion \
    JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy KMSv1 \
    KubeletCgroupDriverFromCRI KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages \
    KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesDynamicResources \
    KubeletPodResourcesGet KubeletPodResourcesListUseActivePods \
    KubeletRegistrationGetOnExistsOnly KubeletSeparateDiskGC \
    KubeletServiceAccountTokenForCredentialProviders KubeletTracing ListFromCacheSnapshot \
    LogarithmicScaleDown MatchLabelKeysInPodAffinity MatchLabelKeysInPodTopologySpread \
    MatchLabelKeysInPodTopologySpreadSelectorMerge MaxUnavailableStatefulSet \
    MultiCIDRServiceAllocator MutableCSINodeAllocatableCount MutatingAdmissionPolicy \
    NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread NodeSwap \
    NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching OrderedNamespaceDeletion \
    PodDeletionCost PodLevelResources PodLifecycleSleepAction PodLifecycleSleepActionAllowZero \
    PodObservedGenerationTracking PodReadyToStartContainersCondition PodSchedulingReadiness \
    PodTopologyLabelsAdmission PortForwardWebsockets PreferSameTrafficDistribution \
    PreventStaticPodAPIReferences ProcMountType RecoverVolumeExpansionFailure \
    RecursiveReadOnlyMounts RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation \
    RelaxedServiceNameValidation ReloadKubeletServerCertificateFile RemoteRequestHeaderUID \
    ResilientWatchCacheInitialization ResourceHealthStatus ResourceHealthStatusMessage \
    RetryGenerateName RotateKubeletServerCertificate SELinuxChangePolicy \
    SELinuxMountReadWriteOncePod SchedulerAsyncPreemption SchedulerPopFromBackoffQ \
    SchedulerQueueingHints SeparateCacheWatchRPC SeparateTaintEvictionController \
    ServiceAccountNodeAudienceRestriction ServiceAccountTokenJTI ServiceAccountTokenNodeBinding \
    ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo SidecarContainers \
    SizeBasedListCostEstimate StatefulSetSemanticRevisionComparison StorageNamespaceIndex \
    StorageVersionHash StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf \
    StructuredAuthenticationConfiguration StructuredAuthenticationConfigurationEgressSelector \
    StructuredAuthenticationConfigurationJWKSMetrics SupplementalGroupsPolicy SystemdWatchdog \
    TokenRequestServiceAccountUIDValidation TopologyManagerPolicyBetaOptions \
    TopologyManagerPolicyOptions TranslateStreamCloseWebsocketRequests \
    UnauthenticatedHTTP2DOSMitigation UnlockWhileProcessingFIFO UserNamespacesSupport \
    VolumeAttributesClass WatchCacheInitializationPostStartHook WatchList WatchListClient \
    WinDSR WinOverlay WindowsGracefulNodeShutdown";

/// Off by default in Kubernetes 1.36.
const OFF: &str = "\
    APIServingWithRoutine AllAlpha AllBeta \
    CPUManagerPolicyAlphaOptions CRDObservedGenerationTracking CSIVolumeHealth ClientsAllowCBOR \
    ClientsPreferCBOR CloudControllerManagerWatchBasedRoutesReconciliation \
    CloudControllerManagerWebhook ClusterTrustBundle ClusterTrustBundleProjection \
    ComponentFlagz ComponentStatusz ConcurrentWatchObjectDecode ConstrainedImpersonation \
    ContainerStopSignals CoordinatedLeaderElection CrossNamespaceVolumeDataSource \
    CustomCPUCFSQuotaPeriod DRAConsumableCapacity DRADeviceBindingConditions \
    DRADeviceTaintRules DRADeviceTaints DRAExtendedResource DRAPartitionableDevices \
    DeclarativeValidationTakeover EventedPLEG GangScheduling GenericWorkload HPAScaleToZero \
    ImageVolumeWithDigest InPlacePodLevelResourcesVerticalScaling \
    InPlacePodVerticalScalingAllocatedStatus InPlacePodVerticalScalingExclusiveCPUs \
    InPlacePodVerticalScalingExclusiveMemory KubeletInUserNamespace \
    LocalStorageCapacityIsolationFSQuotaMonitoring MemoryQoS MutablePVNodeAffinity \
    MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs \
    NodeDeclaredFeatures NodeLogQuery PodAndContainerStatsFromCRI PodCertificateRequest \
    PodLogsQuerySplitStreams QOSReserved ReduceDefaultCrashLoopBackOffDecay \
    RestartAllContainersOnContainerExits RuntimeClassInImageCriApi SELinuxMount \
    SchedulerAsyncAPICalls StorageCapacityScoring StorageVersionAPI StorageVersionMigrator \
    StrictIPCIDRValidation TaintTolerationComparisonOperators TopologyManagerPolicyAlphaOptions \
    UnknownVersionInteroperabilityProxy UserNamespacesHostNetworkSupport VolumeLimitScaling \
    WindowsCPUAndMemoryAffinity WindowsHostNetwork";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(word: &str, want: Result<bool, &str>) {
        let mut gates = FeatureGates::default();
        let got = gates.set(word).map(|()| gates.cbor).map_err(|why| why.to_string());
        assert_eq!(got, want.map_err(str::to_owned), "{word}");
    }

    #[test]
    fn only_what_can_be_switched_is() {
        check("CBORServingAndStorage=true", Ok(true));
        check("CBORServingAndStorage=false", Ok(false));
        check("WatchList=true", Ok(false));
        check("AllAlpha=false", Ok(false));
        check("WatchList=false", Err("WatchList is true in Keelson and cannot be switched"));
        check("AllAlpha=true", Err("AllAlpha is false in Keelson and cannot be switched"));
        check("NoSuch=true", Err("unrecognized feature gate: NoSuch"));
        check("=true", Err("unrecognized feature gate: "));
        check("WatchList", Err("\"WatchList\" must end in =true or =false"));
        check("WatchList=yes", Err("\"WatchList=yes\" must end in =true or =false"));
    }
}
