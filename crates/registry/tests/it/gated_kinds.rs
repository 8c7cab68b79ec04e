//! Rules of the kinds and fields that need feature gates, as a kube-apiserver with these gates
//! answers.

use crate::harness::Harness;
use crate::rules::Session;
use keelson_meta::Features;

async fn session(gates: &str) -> Session {
    let features = Features::parse(gates.split(',')).expect("gates that go together");
    Session::over(Harness::with_features(features).await).await
}

const GROUPS: &str = "POST /apis/scheduling.k8s.io/v1alpha2/namespaces/n/podgroups?dryRun=All";
const WORKLOADS: &str = "POST /apis/scheduling.k8s.io/v1alpha2/namespaces/n/workloads?dryRun=All";
const BUNDLES: &str = "POST /apis/certificates.k8s.io/v1beta1/clustertrustbundles?dryRun=All";
const REQUESTS: &str =
    "POST /apis/certificates.k8s.io/v1beta1/namespaces/n/podcertificaterequests?dryRun=All";
const CANDIDATES: &str =
    "POST /apis/coordination.k8s.io/v1beta1/namespaces/n/leasecandidates?dryRun=All";
const MIGRATIONS: &str =
    "POST /apis/storagemigration.k8s.io/v1beta1/storageversionmigrations?dryRun=All";
const TAINTS: &str = "POST /apis/resource.k8s.io/v1beta2/devicetaintrules?dryRun=All";
const POOLS: &str = "POST /apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests?dryRun=All";
const ALL: &str = "AllAlpha=true,AllBeta=true";

#[tokio::test]
async fn resources_behind_a_gate_are_served_with_it() {
    let off = session("").await;
    let on = session(ALL).await;
    for (group, resource) in [
        ("scheduling.k8s.io", "podgroups"),
        ("scheduling.k8s.io", "workloads"),
        ("certificates.k8s.io", "clustertrustbundles"),
        ("certificates.k8s.io", "podcertificaterequests"),
        ("storagemigration.k8s.io", "storageversionmigrations"),
    ] {
        let has = |session: &Session| session.harness.registry.kind(group, resource).is_some();
        assert_eq!((has(&off), has(&on)), (false, true), "{resource}");
    }
}

#[tokio::test]
async fn pod_groups_and_workloads_have_one_policy_and_few_parts() {
    let session = session(ALL).await;
    let group = |spec: &str| format!(r#"{{"metadata":{{"name":"g"}},"spec":{spec}}}"#);
    for (spec, code, causes) in [
        (r#"{"schedulingPolicy":{"basic":{}}}"#, 201, &[][..]),
        (
            "{}",
            422,
            &["spec.schedulingPolicy: Invalid value: \"\": must specify one of: `basic`, `gang`"],
        ),
        (
            r#"{"schedulingPolicy":{"basic":{},"gang":{"minCount":1}}}"#,
            422,
            &[
                "spec.schedulingPolicy: Invalid value: \"{basic, gang}\": must specify exactly one of: `basic`, `gang`",
            ],
        ),
        (
            r#"{"schedulingPolicy":{"gang":{"minCount":-1}}}"#,
            422,
            &[
                "spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1",
            ],
        ),
        (
            r#"{"schedulingPolicy":{"basic":{}},"schedulingConstraints":{"topology":[{"key":"a"},{"key":"b"}]}}"#,
            422,
            &["spec.schedulingConstraints.topology: Too many: 2: must have at most 1 item"],
        ),
    ] {
        session.check(GROUPS, &group(spec), code, causes).await;
    }
    session
        .check_at(
            GROUPS,
            &group(r#"{"schedulingPolicy":{"basic":{}}}"#),
            &["metadata", "finalizers"],
            "[\"scheduling.k8s.io/podgroup-protection\"]",
        )
        .await;
    session.check_at(GROUPS, &group(r#"{"schedulingPolicy":{"basic":{}},"podGroupTemplateRef":{"workload":{"workloadName":"w","podGroupTemplateName":"t"}}}"#), &["message"], "\"podgroups.scheduling.k8s.io \\\"g\\\" is forbidden: PodGroup rejected: Workload \\\"w\\\" not found\"").await;
    session.check(WORKLOADS, &group("{}"), 422, &["spec.podGroupTemplates: Required value"]).await;
}

#[tokio::test]
async fn a_trust_bundle_is_named_after_its_signer_and_holds_certificates() {
    let session = session(ALL).await;
    let bundle = |name: &str, signer: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"signerName":"{signer}","trustBundle":""}}}}"#
        )
    };
    const EMPTY: &str = "spec.trustBundle: Invalid value: \"<value omitted>\": at least one trust anchor must be provided";
    session.check(BUNDLES, &bundle("a", ""), 422, &[EMPTY]).await;
    session.check(BUNDLES, &bundle("example.com:s:a", "example.com/s"), 422, &[EMPTY]).await;
    let colon = "metadata.name: Invalid value: \"a:b\": ClusterTrustBundle without signer name must not have \":\" in its name";
    session.check(BUNDLES, &bundle("a:b", ""), 422, &[colon, EMPTY]).await;
    let prefix = "metadata.name: Invalid value: \"a\": ClusterTrustBundle for signerName example.com/s must be named with prefix example.com:s:";
    session.check(BUNDLES, &bundle("a", "example.com/s"), 422, &[prefix, EMPTY]).await;
}

#[tokio::test]
async fn a_request_for_a_pods_certificate_has_one_key_and_a_bounded_life() {
    let session = session(ALL).await;
    let request = |seconds: &str, key: &str| {
        format!(
            r#"{{"metadata":{{"name":"r"}},"spec":{{"signerName":"example.com/s","podName":"p","podUID":"1",
            "serviceAccountName":"s","serviceAccountUID":"2","nodeName":"n","nodeUID":"3",
            "maxExpirationSeconds":{seconds}{key}}}}}"#
        )
    };
    const KEY: &str = "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
    session.check(REQUESTS, &request("3600", ""), 422, &[KEY]).await;
    let life = "spec.maxExpirationSeconds: Invalid value: 1: must be in the range [3600, 7862400]";
    session.check(REQUESTS, &request("1", ""), 422, &[life, KEY]).await;
    let stub = r#","stubPKCS10Request":"AAAA""#;
    let why = "spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR";
    session.check(REQUESTS, &request("3600", stub), 422, &[why]).await;
}

#[tokio::test]
async fn lease_candidates_have_versions_in_order() {
    let session = session(ALL).await;
    let candidate = |binary: &str, emulation: &str, strategy: &str| {
        format!(
            r#"{{"metadata":{{"name":"A_b"}},"spec":{{"leaseName":"l","binaryVersion":"{binary}",
            "emulationVersion":"{emulation}","strategy":"{strategy}"}}}}"#
        )
    };
    const OLDEST: &str = "OldestEmulationVersion";
    session.check(CANDIDATES, &candidate("1.36.0", "1.35.0", OLDEST), 201, &[]).await;
    let later = "spec.binaryVersion: Invalid value: \"1.36.0\": must be greater than or equal to `emulationVersion`";
    session.check(CANDIDATES, &candidate("1.36.0", "1.37.0", OLDEST), 422, &[later]).await;
    let missing = "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'";
    session.check(CANDIDATES, &candidate("1.36.0", "", OLDEST), 422, &[missing]).await;
    let unknown = "spec.strategy.strategy: Unsupported value: \"X\": supported values: \"OldestEmulationVersion\"";
    session.check(CANDIDATES, &candidate("1.36.0", "1.35.0", "X"), 422, &[unknown]).await;
}

#[tokio::test]
async fn migrations_taint_rules_and_pool_requests_name_their_faults() {
    let session = session(ALL).await;
    for (request, spec, causes) in [
        (
            MIGRATIONS,
            r#"{"resource":{}}"#,
            &["spec.resource.resource: Required value: resource is required to be set"][..],
        ),
        (
            TAINTS,
            r#"{"taint":{"key":"a","effect":"x"}}"#,
            &[
                "spec.taint.effect: Unsupported value: \"x\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
            ],
        ),
        (
            POOLS,
            r#"{"limit":0}"#,
            &[
                "spec.driver: Required value",
                "spec.limit: Invalid value: 0: must be greater than or equal to 1",
            ],
        ),
        (
            POOLS,
            r#"{"driver":"d","poolName":""}"#,
            &["spec.poolName: Invalid value: \"\": segment 0: must not be empty"],
        ),
    ] {
        let body = format!(r#"{{"metadata":{{"name":"a"}},"spec":{spec}}}"#);
        session.check(request, &body, 422, causes).await;
    }
}

#[tokio::test]
async fn validation_follows_the_gates() {
    let off = session("").await;
    let on = session(ALL).await;
    let pod = |spec: &str| {
        format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","image":"i"}}]{spec}}}}}"#
        )
    };
    const PODS: &str = "POST /api/v1/namespaces/n/pods?dryRun=All";
    let compared = pod(r#","tolerations":[{"key":"a","operator":"Gt","value":"05"}]"#);
    let unknown = "spec.tolerations[0].operator: Unsupported value: \"Gt\": supported values: \"Equal\", \"Exists\", \"Lt\", \"Gt\"";
    off.check(PODS, &compared, 422, &[unknown]).await;
    let number = "spec.tolerations[0].value: Invalid value: \"05\": must be a valid decimal integer in canonical form";
    on.check(PODS, &compared, 422, &[number]).await;
    let host = pod(r#","hostUsers":false,"hostNetwork":true"#);
    off.check(PODS, &host, 422, &["spec.hostNetwork: Forbidden: when `hostUsers` is false"]).await;
    on.check(PODS, &host, 201, &[]).await;
    let group = pod(r#","schedulingGroup":{"podGroupName":"g"}"#);
    let place = ["spec", "schedulingGroup", "podGroupName"];
    off.check_at(PODS, &group, &place, "").await;
    on.check_at(PODS, &group, &place, "\"g\"").await;
}

#[tokio::test]
async fn messages_name_only_what_the_gates_allow() {
    let session = session("AllBeta=false").await;
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i",
        "env":[{"name":"A","valueFrom":{"fileKeyRef":{"volumeName":"v","path":"p","key":"A"}}}]}]}}"#;
    let sources = "spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: \
                   `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
    session.check("POST /api/v1/namespaces/n/pods?dryRun=All", pod, 422, &[sources]).await;
    let claim = r#"{"metadata":{"name":"c"},"spec":{"devices":{
        "requests":[{"name":"r","exactly":{"deviceClassName":"a"}}],
        "constraints":[{"requests":["r"],"distinctAttribute":"a.b/c"}]}}}"#;
    let missing = "spec.devices.constraints[0].matchAttribute: Required value";
    let path = "POST /apis/resource.k8s.io/v1/namespaces/n/resourceclaims?dryRun=All";
    session.check(path, claim, 422, &[missing]).await;
}
