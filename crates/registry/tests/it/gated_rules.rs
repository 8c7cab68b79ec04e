//! Rules that feature gates switch, each with its gate as it is by default and the other way round.

use crate::harness::{self, Harness};
use crate::rules::Session;
use keelson_meta::{Feature, Features};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const POST_POD: &str = "POST /api/v1/namespaces/n/pods";
const STATUS: &str = "PATCH /api/v1/namespaces/n/pods/p/status";
const RESIZE: &str = "PATCH /api/v1/namespaces/n/pods/p/resize";
const PATCH_JOB: &str = "PATCH /apis/batch/v1/namespaces/n/jobs/j";
const JOB_STATUS: &str = "PATCH /apis/batch/v1/namespaces/n/jobs/j/status";

/// Sends requests; returns the causes of the last answer, and requires the others to succeed.
async fn causes(features: Features, requests: &[(&str, &str)]) -> Vec<String> {
    let Session { harness } = Session::over(Harness::with_features(features).await).await;
    let mut causes = vec![];
    for (at, (line, body)) in requests.iter().enumerate() {
        let (method, path) = line.split_once(' ').expect("a method");
        let media = if method == "POST" { JSON } else { MERGE };
        let answer = harness.send(method, path, media, body.as_bytes()).await;
        let (code, answer) = answer.expect("the path is known");
        causes = harness::causes(&answer);
        assert_eq!(code < 300, causes.is_empty(), "{line}: {code} {answer:?}");
        assert!(at + 1 == requests.len() || code < 300, "{line}: {code} {causes:?}");
    }
    causes
}

/// Checks the causes of the last of some requests, with the default and with a gate switched.
async fn check(gate: Feature, requests: &[(&str, &str)], by_default: &[&str], switched: &[&str]) {
    let features = Features::default();
    assert_eq!(causes(features, requests).await, by_default, "{gate:?} by default");
    let features = features.with(gate, !features.is_on(gate));
    assert_eq!(causes(features, requests).await, switched, "{gate:?} switched");
}

/// Checks causes that no gate changes.
async fn check_always(requests: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(causes(Features::default(), requests).await, expected);
}

#[tokio::test]
async fn gates_switch_rules_of_names_and_addresses() {
    let pod = r#"{"metadata":{"name":"p",
        "annotations":{"controller.kubernetes.io/pod-deletion-cost":"x"}},
        "spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let why = "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \
               \"x\": must be a 32bit integer";
    check(Feature::PodDeletionCost, &[(POST_POD, pod)], &[why], &[]).await;
    let service = r#"{"metadata":{"name":"1a"},"spec":{"ports":[{"port":1}]}}"#;
    let why = "metadata.name: Invalid value: \"1a\": a DNS-1035 label must consist of lower case \
               alphanumeric characters or '-', start with an alphabetic character, and end with an \
               alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
               '[a-z]([-a-z0-9]*[a-z0-9])?')";
    let post = "POST /api/v1/namespaces/n/services";
    check(Feature::RelaxedServiceNameValidation, &[(post, service)], &[], &[why]).await;
    let service = r#"{"metadata":{"name":"a"},"spec":{"clusterIP":"010.0.0.9",
        "ports":[{"port":1}]}}"#;
    let why = "spec.clusterIPs[0]: Invalid value: \"010.0.0.9\": must not have leading 0s";
    check(Feature::StrictIPCIDRValidation, &[(post, service)], &[why], &[]).await;
    let policy = r#"{"metadata":{"name":"a"},"spec":{"podSelector":{},
        "ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.1/8"}}]}]}}"#;
    let why = "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"10.0.0.1/8\": must not have \
               bits set beyond the prefix length";
    let post = "POST /apis/networking.k8s.io/v1/namespaces/n/networkpolicies";
    check(Feature::StrictIPCIDRValidation, &[(post, policy)], &[why], &[]).await;
}

#[tokio::test]
async fn gates_switch_rules_of_pods() {
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i",
        "restartPolicy":"Never","restartPolicyRules":[{"action":"RestartAllContainers",
        "exitCodes":{"operator":"In","values":[1]}}]}]}}"#;
    let why = "spec.containers[0].restartPolicyRules[0].action: Unsupported value: \
               \"RestartAllContainers\": supported values: \"Restart\"";
    let gate = Feature::RestartAllContainersOnContainerExits;
    check(gate, &[(POST_POD, pod)], &[], &[why]).await;
    let pod = r#"{"metadata":{"name":"p"},"spec":{"nodeName":"a",
        "containers":[{"name":"c","image":"i"}]}}"#;
    let status = r#"{"status":{"nominatedNodeName":"b"}}"#;
    let why = "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound \
               to a node";
    let gate = Feature::ClearingNominatedNodeNameAfterBinding;
    check(gate, &[(POST_POD, pod), (STATUS, status)], &[why], &[]).await;
}

#[tokio::test]
async fn a_label_key_is_selected_once() {
    let pod = |selector: &str| {
        format!(
            r#"{{"metadata":{{"name":"p","labels":{{"app":"x"}}}},"spec":{{
                "containers":[{{"name":"c","image":"i"}}],"topologySpreadConstraints":[{{
                "maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule",
                "matchLabelKeys":["app"],"labelSelector":{selector}}}]}}}}"#
        )
    };
    let gate = Feature::MatchLabelKeysInPodTopologySpreadSelectorMerge;
    let selected = pod(r#"{"matchLabels":{"app":"x"}}"#);
    let merged = "spec.topologySpreadConstraints[0][0]: Invalid value: \"app\": exists in both \
                  matchLabelKeys and labelSelector";
    let alone = "spec.topologySpreadConstraints[0].matchLabelKeys[0]: Invalid value: \"app\": \
                 exists in both matchLabelKeys and labelSelector";
    check(gate, &[(POST_POD, &selected)], &[merged], &[alone]).await;
    check(gate, &[(POST_POD, &pod("{}"))], &[], &[]).await;
    // The requirement that was made of the key stays.
    let label = (r#"PATCH /api/v1/namespaces/n/pods/p"#, r#"{"metadata":{"labels":{"b":"c"}}}"#);
    check_always(&[(POST_POD, &pod("{}")), label], &[]).await;
    let template = format!(
        r#"{{"metadata":{{"name":"d"}},"spec":{{"selector":{{"matchLabels":{{"app":"x"}}}},
            "template":{}}}}}"#,
        selected.replace(r#""name":"p","#, "")
    );
    check_always(&[("POST /apis/apps/v1/namespaces/n/deployments", &template)], &[]).await;
}

#[tokio::test]
async fn a_resize_needs_a_node_that_supports_it() {
    let pod = |more: &str| {
        format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{{more}"containers":[{{"name":"c","image":"i",
                "resources":{{"requests":{{"cpu":"1"}},"limits":{{"cpu":"2"}}}}}}]}}}}"#
        )
    };
    let status = |container: &str| {
        format!(
            r#"{{"status":{{"containerStatuses":[{{"name":"c","ready":true,"restartCount":0,
            "image":"i","imageID":"i","state":{{"running":{{}}}}{container}}}]}}}}"#
        )
    };
    let resize = r#"{"spec":{"containers":[{"name":"c","image":"i","resources":
        {"requests":{"cpu":"1500m"},"limits":{"cpu":"2"}}}]}}"#;
    let plain = pod("");
    let why = "spec: Forbidden: Pod running on node without support for resize";
    check_always(&[(POST_POD, &plain), (STATUS, &status("")), (RESIZE, resize)], &[why]).await;
    let supports = status(r#","resources":{}"#);
    check_always(&[(POST_POD, &plain), (STATUS, &supports), (RESIZE, resize)], &[]).await;
    let whole = pod(r#""resources":{"requests":{"cpu":"2"},"limits":{"cpu":"3"}},"#);
    let gate = Feature::InPlacePodLevelResourcesVerticalScaling;
    let why = "[]: Forbidden: resize of pods with pod-level resources is forbidden when \
               InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";
    check(gate, &[(POST_POD, &whole), (RESIZE, resize)], &[], &[why]).await;
    let removed = r#"{"spec":{"resources":{"limits":{"cpu":null}}}}"#;
    let why = "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed";
    check_always(&[(POST_POD, &whole), (RESIZE, removed)], &[why]).await;
}

#[tokio::test]
async fn a_resize_of_init_containers_has_a_gate() {
    let pod = r#"{"metadata":{"name":"p"},"spec":{
        "initContainers":[{"name":"i","image":"i","resources":{"requests":{"cpu":"1"}}}],
        "containers":[{"name":"c","image":"i"}]}}"#;
    let resize = r#"{"spec":{
        "initContainers":[{"name":"i","image":"i","resources":{"requests":{"cpu":"2"}}}]}}"#;
    let why = "spec: Forbidden: resources for non-sidecar init containers are immutable";
    let gate = Feature::InPlacePodVerticalScalingInitContainers;
    check(gate, &[(POST_POD, pod), (RESIZE, resize)], &[], &[why]).await;
}

#[tokio::test]
async fn a_suspended_job_without_pods_may_change_its_template() {
    let job = |suspend: bool| {
        format!(
            r#"{{"metadata":{{"name":"j"}},"spec":{{"suspend":{suspend},"template":{{"spec":{{
                "restartPolicy":"Never","containers":[{{"name":"c","image":"i",
                "resources":{{"requests":{{"cpu":"1"}}}}}}],
                "affinity":{{"podAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[
                {{"topologyKey":"zone"}}]}}}}}}}}}}}}"#
        )
    };
    const POST: &str = "POST /apis/batch/v1/namespaces/n/jobs";
    let resources = r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i",
        "resources":{"requests":{"cpu":"2"}}}]}}}}"#;
    let selector = r#"{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}"#;
    let others = r#"{"spec":{"template":{"spec":{"affinity":{"podAffinity":null}}}}}"#;
    let stopped = r#"{"status":{"startTime":"2026-01-01T00:00:00Z","conditions":[
        {"type":"Suspended","status":"True"}]}}"#;
    let running = r#"{"status":{"startTime":"2026-01-01T00:00:00Z","active":1,"conditions":[
        {"type":"Suspended","status":"True"}]}}"#;
    let is_refused = async |gate: Option<Feature>, requests: &[(&str, &str)]| {
        let features = match gate {
            Some(gate) => Features::default().with(gate, false),
            None => Features::default(),
        };
        let causes = causes(features, requests).await;
        let whole = causes.iter().any(|why| why.starts_with("spec.template: Invalid value"));
        let spec = causes.iter().any(|why| why.starts_with("spec.template.spec: Invalid value"));
        assert!(causes.iter().all(|why| why.ends_with("field is immutable")), "{causes:?}");
        if whole {
            "template"
        } else if spec {
            "spec"
        } else {
            "no"
        }
    };
    let suspended = job(true);
    let new = (POST, suspended.as_str());
    let resize = (PATCH_JOB, resources);
    let select = (PATCH_JOB, selector);
    let by_resources = Some(Feature::MutablePodResourcesForSuspendedJobs);
    let by_directives = Some(Feature::MutableSchedulingDirectivesForSuspendedJobs);
    assert_eq!(is_refused(None, &[new, resize]).await, "no");
    assert_eq!(is_refused(None, &[new, select]).await, "no");
    assert_eq!(is_refused(None, &[new, (PATCH_JOB, others)]).await, "spec");
    assert_eq!(is_refused(by_resources, &[new, resize]).await, "template");
    assert_eq!(is_refused(by_directives, &[new, select]).await, "no");
    assert_eq!(is_refused(None, &[new, (JOB_STATUS, stopped), resize]).await, "no");
    assert_eq!(is_refused(None, &[new, (JOB_STATUS, stopped), select]).await, "no");
    assert_eq!(is_refused(by_directives, &[new, (JOB_STATUS, stopped), select]).await, "spec");
    assert_eq!(is_refused(None, &[new, (JOB_STATUS, running), resize]).await, "template");
    assert_eq!(is_refused(None, &[(POST, &job(false)), resize]).await, "template");
}
