//! The feature gates of kube-apiserver 1.36.2, from its metric `kubernetes_feature_enabled` and its
//! error messages, with their dependencies.

use super::{Row, Stage};

macro_rules! features {
    ($($name:ident: $stage:ident $default:ident $($locked:ident)?;)*) => {
        /// A feature gate of Kubernetes 1.36.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names are those of Kubernetes")]
        #[repr(u8)]
        pub enum Feature {
            $($name,)*
        }

        /// Indexed by the number of the feature, in the order of names.
        pub(super) const ROWS: &[Row] = &[$(Row {
            feature: Feature::$name,
            name: stringify!($name),
            stage: Stage::$stage,
            default_on: features!(@is $default),
            locked: false $(|| features!(@is $locked))?,
        },)*];
    };
    (@is on) => { true };
    (@is off) => { false };
    (@is locked) => { true };
}

features! {
    APIResponseCompression: Beta on;
    APIServerIdentity: Beta on;
    APIServerTracing: Ga on locked;
    APIServingWithRoutine: Alpha off;
    AggregatedDiscoveryRemoveBetaType: Deprecated on locked;
    AllowDNSOnlyNodeCSR: Deprecated off;
    AllowInsecureKubeletCertificateSigningRequests: Deprecated off;
    AllowOverwriteTerminationGracePeriodSeconds: Deprecated off locked;
    AllowParsingUserUIDFromCertAuth: Beta on;
    AllowServiceExternalIPs: Ga on;
    AllowUnsafeMalformedObjectDeletion: Alpha off;
    AnonymousAuthConfigurableEndpoints: Ga on locked;
    AnyVolumeDataSource: Ga on locked;
    AtomicFIFO: Beta on;
    AuthorizeNodeWithSelectors: Ga on locked;
    AuthorizePodWebsocketUpgradeCreatePermission: Beta on;
    AuthorizeWithSelectors: Ga on locked;
    BtreeWatchCache: Ga on locked;
    CBORServingAndStorage: Alpha off;
    CPUManagerPolicyAlphaOptions: Alpha off;
    CPUManagerPolicyBetaOptions: Beta on;
    CPUManagerPolicyOptions: Ga on locked;
    CRDObservedGenerationTracking: Beta on;
    CRDValidationRatcheting: Ga on locked;
    CRIListStreaming: Alpha off;
    CSIServiceAccountTokenSecrets: Ga on locked;
    CSIVolumeHealth: Alpha off;
    ChangeContainerStatusOnKubeletRestart: Deprecated off;
    ClearingNominatedNodeNameAfterBinding: Beta on;
    ClientsAllowCARotation: Beta on;
    ClientsAllowCBOR: Alpha off;
    ClientsAllowTLSCacheGC: Beta on;
    ClientsPreferCBOR: Alpha off;
    CloudControllerManagerWatchBasedRoutesReconciliation: Alpha off;
    CloudControllerManagerWebhook: Alpha off;
    ClusterTrustBundle: Beta off;
    ClusterTrustBundleProjection: Beta off;
    ComponentFlagz: Beta on;
    ComponentStatusz: Beta on;
    ConcurrentWatchObjectDecode: Beta off;
    ConsistentListFromCache: Ga on locked;
    ConstrainedImpersonation: Beta on;
    ContainerCheckpoint: Beta on;
    ContainerRestartRules: Beta on;
    ContainerStopSignals: Alpha off;
    ContextualLogging: Beta on;
    ControllerManagerReleaseLeaderElectionLockOnExit: Alpha off;
    CoordinatedLeaderElection: Beta off;
    CrossNamespaceVolumeDataSource: Alpha off;
    CustomCPUCFSQuotaPeriod: Ga on;
    CustomResourceFieldSelectors: Ga on locked;
    DRAAdminAccess: Ga on locked;
    DRAConsumableCapacity: Beta on;
    DRADeviceBindingConditions: Beta on;
    DRADeviceTaintRules: Beta off;
    DRADeviceTaints: Beta on;
    DRAExtendedResource: Beta on;
    DRAListTypeAttributes: Alpha off;
    DRANodeAllocatableResources: Alpha off;
    DRAPartitionableDevices: Beta on;
    DRAPrioritizedList: Ga on;
    DRAResourceClaimDeviceStatus: Beta on;
    DRAResourceClaimGranularStatusAuthorization: Beta on;
    DRAResourcePoolStatus: Alpha off;
    DRASchedulerFilterTimeout: Beta on;
    DRAWorkloadResourceClaims: Alpha off;
    DeclarativeValidation: Ga on locked;
    DeclarativeValidationBeta: Beta on;
    DeclarativeValidationTakeover: Deprecated off;
    DeploymentReplicaSetTerminatingReplicas: Beta on;
    DetectCacheInconsistency: Beta on;
    DisableAllocatorDualWrite: Ga on locked;
    DisableCPUQuotaWithExclusiveCPUs: Deprecated on;
    DisableNodeKubeProxyVersion: Deprecated on locked;
    DynamicResourceAllocation: Ga on locked;
    EnvFiles: Beta on;
    EventedPLEG: Alpha off;
    ExecProbeTimeout: Ga on locked;
    ExtendWebSocketsToKubelet: Beta on;
    ExternalServiceAccountTokenSigner: Ga on locked;
    GangScheduling: Alpha off;
    GenericWorkload: Alpha off;
    GitRepoVolumeDriver: Deprecated off locked;
    GracefulNodeShutdown: Beta on;
    GracefulNodeShutdownBasedOnPodPriority: Beta on;
    HPAConfigurableTolerance: Beta on;
    HPAScaleToZero: Alpha off;
    HostnameOverride: Beta on;
    ImageMaximumGCAge: Ga on locked;
    ImageVolume: Ga on locked;
    ImageVolumeWithDigest: Alpha off;
    InOrderInformers: Ga on locked;
    InOrderInformersBatchProcess: Beta on;
    InPlacePodLevelResourcesVerticalScaling: Beta on;
    InPlacePodVerticalScaling: Ga on locked;
    InPlacePodVerticalScalingExclusiveCPUs: Alpha off;
    InPlacePodVerticalScalingExclusiveMemory: Alpha off;
    InPlacePodVerticalScalingInitContainers: Beta on;
    InformerResourceVersion: Ga on;
    JobBackoffLimitPerIndex: Ga on locked;
    JobManagedBy: Ga on locked;
    JobPodReplacementPolicy: Ga on locked;
    JobSuccessPolicy: Ga on locked;
    KMSv1: Deprecated off;
    KubeletCgroupDriverFromCRI: Ga on locked;
    KubeletCrashLoopBackOffMax: Beta on;
    KubeletEnsureSecretPulledImages: Beta on;
    KubeletFineGrainedAuthz: Ga on locked;
    KubeletInUserNamespace: Alpha off;
    KubeletPSI: Ga on locked;
    KubeletPodResourcesDynamicResources: Ga on locked;
    KubeletPodResourcesGet: Ga on locked;
    KubeletPodResourcesListUseActivePods: Deprecated on;
    KubeletRegistrationGetOnExistsOnly: Deprecated off;
    KubeletSeparateDiskGC: Beta on;
    KubeletServiceAccountTokenForCredentialProviders: Beta on;
    KubeletTracing: Ga on locked;
    ListFromCacheSnapshot: Beta on;
    LocalStorageCapacityIsolationFSQuotaMonitoring: Beta off;
    LogarithmicScaleDown: Ga on locked;
    LoggingAlphaOptions: Alpha off;
    LoggingBetaOptions: Beta on;
    ManifestBasedAdmissionControlConfig: Alpha off;
    MatchLabelKeysInPodAffinity: Ga on locked;
    MatchLabelKeysInPodTopologySpread: Beta on;
    MatchLabelKeysInPodTopologySpreadSelectorMerge: Beta on;
    MaxUnavailableStatefulSet: Beta off;
    MemoryQoS: Alpha off;
    MultiCIDRServiceAllocator: Ga on locked;
    MutableCSINodeAllocatableCount: Ga on locked;
    MutablePVNodeAffinity: Alpha off;
    MutablePodResourcesForSuspendedJobs: Beta on;
    MutableSchedulingDirectivesForSuspendedJobs: Beta on;
    MutatingAdmissionPolicy: Ga on;
    NFTablesProxyMode: Ga on locked;
    NativeHistograms: Alpha off;
    NodeDeclaredFeatures: Beta on;
    NodeInclusionPolicyInPodTopologySpread: Ga on locked;
    NodeLogQuery: Ga on locked;
    NodeSwap: Ga on locked;
    NominatedNodeNameForExpectation: Beta on;
    OpenAPIEnums: Beta on;
    OpportunisticBatching: Beta on;
    OrderedNamespaceDeletion: Ga on locked;
    PLEGOnDemandRelist: Beta on;
    PersistentVolumeClaimUnusedSinceTime: Alpha off;
    PodAndContainerStatsFromCRI: Alpha off;
    PodCertificateRequest: Beta off;
    PodDeletionCost: Beta on;
    PodLevelResourceManagers: Alpha off;
    PodLevelResources: Beta on;
    PodLifecycleSleepAction: Ga on locked;
    PodLifecycleSleepActionAllowZero: Ga on locked;
    PodLogsQuerySplitStreams: Alpha off;
    PodObservedGenerationTracking: Ga on locked;
    PodReadyToStartContainersCondition: Beta on;
    PodSchedulingReadiness: Ga on locked;
    PodTopologyLabelsAdmission: Beta on;
    PodsAPI: Alpha off;
    PortForwardWebsockets: Beta on;
    PreferSameTrafficDistribution: Ga on locked;
    PreventStaticPodAPIReferences: Beta on;
    ProcMountType: Ga on locked;
    QOSReserved: Alpha off;
    RecoverVolumeExpansionFailure: Ga on locked;
    RecursiveReadOnlyMounts: Ga on locked;
    ReduceDefaultCrashLoopBackOffDecay: Alpha off;
    RelaxedDNSSearchValidation: Ga on locked;
    RelaxedEnvironmentVariableValidation: Ga on locked;
    RelaxedServiceNameValidation: Beta on;
    ReloadKubeletClientCAFile: Beta on;
    ReloadKubeletServerCertificateFile: Beta on;
    RemoteRequestHeaderUID: Beta on;
    ResilientWatchCacheInitialization: Ga on locked;
    ResourceHealthStatus: Beta on;
    ResourceHealthStatusMessage: Beta on;
    RestartAllContainersOnContainerExits: Beta on;
    RetryGenerateName: Ga on locked;
    RotateKubeletServerCertificate: Beta on;
    RuntimeClassInImageCriApi: Alpha off;
    SELinuxChangePolicy: Ga on locked;
    SELinuxMount: Beta off;
    SELinuxMountReadWriteOncePod: Ga on locked;
    SchedulerAsyncAPICalls: Beta off;
    SchedulerAsyncPreemption: Beta on;
    SchedulerPopFromBackoffQ: Beta on;
    SchedulerQueueingHints: Ga on locked;
    SeparateCacheWatchRPC: Deprecated off locked;
    SeparateTaintEvictionController: Ga on locked;
    ServiceAccountNodeAudienceRestriction: Beta on;
    ServiceAccountTokenJTI: Ga on locked;
    ServiceAccountTokenNodeBinding: Ga on locked;
    ServiceAccountTokenNodeBindingValidation: Ga on locked;
    ServiceAccountTokenPodNodeInfo: Ga on locked;
    ServiceCIDRStatusFieldWiping: Deprecated on;
    ShardedListAndWatch: Alpha off;
    SidecarContainers: Ga on locked;
    SizeBasedListCostEstimate: Beta on;
    StaleControllerConsistencyDaemonSet: Beta on;
    StaleControllerConsistencyJob: Beta on;
    StaleControllerConsistencyReplicaSet: Beta on;
    StaleControllerConsistencyStatefulSet: Beta on;
    StatefulSetSemanticRevisionComparison: Beta on;
    StorageCapacityScoring: Alpha off;
    StorageNamespaceIndex: Deprecated on;
    StorageVersionAPI: Alpha off;
    StorageVersionHash: Beta on;
    StorageVersionMigrator: Beta off;
    StreamingCollectionEncodingToJSON: Ga on locked;
    StreamingCollectionEncodingToProtobuf: Ga on locked;
    StrictIPCIDRValidation: Beta on;
    StructuredAuthenticationConfiguration: Ga on locked;
    StructuredAuthenticationConfigurationEgressSelector: Beta on;
    StructuredAuthenticationConfigurationJWKSMetrics: Beta on;
    SupplementalGroupsPolicy: Ga on locked;
    SystemdWatchdog: Ga on locked;
    TaintTolerationComparisonOperators: Alpha off;
    TokenRequestServiceAccountUIDValidation: Beta on;
    TopologyAwareWorkloadScheduling: Alpha off;
    TopologyManagerPolicyAlphaOptions: Alpha off;
    TopologyManagerPolicyBetaOptions: Beta on;
    TopologyManagerPolicyOptions: Ga on locked;
    TranslateStreamCloseWebsocketRequests: Beta on;
    UnauthenticatedHTTP2DOSMitigation: Beta on;
    UnknownVersionInteroperabilityProxy: Beta on;
    UnlockWhileProcessingFIFO: Beta on;
    UserNamespacesHostNetworkSupport: Alpha off;
    UserNamespacesSupport: Ga on locked;
    VolumeAttributesClass: Ga on locked;
    VolumeLimitScaling: Alpha off;
    WatchCacheInitializationPostStartHook: Beta on;
    WatchList: Beta on;
    WatchListClient: Beta on;
    WinDSR: Ga on locked;
    WinOverlay: Ga on locked;
    WindowsCPUAndMemoryAffinity: Alpha off;
    WindowsGracefulNodeShutdown: Beta on;
    WindowsHostNetwork: Deprecated off;
    WorkloadAwarePreemption: Alpha off;
    WorkloadWithJob: Alpha off;
}

/// Features and the features that they require.
pub(super) const DEPENDENCIES: &[(Feature, &[Feature])] = &[
    (Feature::ClusterTrustBundleProjection, &[Feature::ClusterTrustBundle]),
    (Feature::DRADeviceBindingConditions, &[Feature::DRAResourceClaimDeviceStatus]),
    (Feature::DRADeviceTaintRules, &[Feature::DRADeviceTaints]),
    (
        Feature::DRAResourceClaimGranularStatusAuthorization,
        &[Feature::DRAResourceClaimDeviceStatus],
    ),
    (Feature::DRAWorkloadResourceClaims, &[Feature::GenericWorkload]),
    (Feature::ExtendWebSocketsToKubelet, &[Feature::NodeDeclaredFeatures]),
    (Feature::GangScheduling, &[Feature::GenericWorkload]),
    (Feature::GracefulNodeShutdownBasedOnPodPriority, &[Feature::GracefulNodeShutdown]),
    (
        Feature::InPlacePodLevelResourcesVerticalScaling,
        &[Feature::NodeDeclaredFeatures, Feature::PodLevelResources],
    ),
    (Feature::InPlacePodVerticalScalingInitContainers, &[Feature::NodeDeclaredFeatures]),
    (
        Feature::MatchLabelKeysInPodTopologySpreadSelectorMerge,
        &[Feature::MatchLabelKeysInPodTopologySpread],
    ),
    (Feature::PodLevelResourceManagers, &[Feature::PodLevelResources]),
    (Feature::ResourceHealthStatusMessage, &[Feature::ResourceHealthStatus]),
    (
        Feature::RestartAllContainersOnContainerExits,
        &[Feature::ContainerRestartRules, Feature::NodeDeclaredFeatures],
    ),
    (Feature::StaleControllerConsistencyDaemonSet, &[Feature::AtomicFIFO]),
    (Feature::StaleControllerConsistencyJob, &[Feature::AtomicFIFO]),
    (Feature::StaleControllerConsistencyReplicaSet, &[Feature::AtomicFIFO]),
    (Feature::StaleControllerConsistencyStatefulSet, &[Feature::AtomicFIFO]),
    (Feature::StorageVersionAPI, &[Feature::APIServerIdentity]),
    (Feature::TopologyAwareWorkloadScheduling, &[Feature::GenericWorkload]),
    (Feature::UnknownVersionInteroperabilityProxy, &[Feature::APIServerIdentity]),
    (Feature::UserNamespacesHostNetworkSupport, &[Feature::NodeDeclaredFeatures]),
    (Feature::WindowsGracefulNodeShutdown, &[Feature::GracefulNodeShutdown]),
    (Feature::WorkloadAwarePreemption, &[Feature::GangScheduling]),
    (Feature::WorkloadWithJob, &[Feature::GenericWorkload]),
];
