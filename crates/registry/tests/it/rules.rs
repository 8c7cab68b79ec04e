//! Rules of single kinds, each as one request and its answer: the code and the causes of a refusal.

use crate::harness::{self, Harness};
use keelson_meta::Value;

/// Requests in order against one namespace `n`.
struct Session {
    harness: Harness,
}

impl Session {
    async fn open() -> Session {
        let harness = Harness::open().await;
        let body = br#"{"metadata":{"name":"n"}}"#;
        harness.send("POST", "/api/v1/namespaces", "", body).await;
        let account = br#"{"metadata":{"name":"default"},"automountServiceAccountToken":false}"#;
        harness.send("POST", "/api/v1/namespaces/n/serviceaccounts", "", account).await;
        Session { harness }
    }

    async fn send(&self, request: &str, body: &str) -> (u16, Value) {
        let (method, path) = request.split_once(' ').expect("a request is a method and a path");
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "" };
        self.harness.send(method, path, media, body.as_bytes()).await.expect("the path is known")
    }

    /// The answer is `code` and the causes are these.
    async fn check(&self, request: &str, body: &str, code: u16, causes: &[&str]) {
        let (got, answer) = self.send(request, body).await;
        assert_eq!(harness::causes(&answer), causes, "{request} {body}");
        assert_eq!(got, code, "{request} {body}");
    }

    /// The answer holds this text at this place.
    async fn check_at(&self, request: &str, body: &str, place: &[&str], expected: &str) {
        let (_, answer) = self.send(request, body).await;
        let found = answer.at(place).map(keelson_meta::status::show).unwrap_or_default();
        assert_eq!(found, expected, "{request} {body} at {place:?}");
    }
}

const PODS: &str = "POST /api/v1/namespaces/n/pods?dryRun=All";

#[tokio::test]
async fn a_pod_is_given_what_it_leaves_open() {
    let session = Session::open().await;
    let minimal = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    for (place, expected) in [
        (["spec", "restartPolicy"], "\"Always\""),
        (["spec", "dnsPolicy"], "\"ClusterFirst\""),
        (["spec", "terminationGracePeriodSeconds"], "30"),
        (["spec", "enableServiceLinks"], "true"),
        (["status", "phase"], "\"Pending\""),
        (["status", "qosClass"], "\"BestEffort\""),
    ] {
        session.check_at(PODS, minimal, &place, expected).await;
    }
}

#[tokio::test]
async fn the_class_of_service_follows_from_requests_and_limits() {
    let session = Session::open().await;
    for (resources, expected) in [
        (r#"{"limits":{"cpu":"1","memory":"1Gi"}}"#, "\"Guaranteed\""),
        (r#"{"requests":{"cpu":"1"}}"#, "\"Burstable\""),
        (r#"{"limits":{"cpu":"1"}}"#, "\"Burstable\""),
        (r#"{"limits":{"example.com/gpu":"1"}}"#, "\"BestEffort\""),
    ] {
        let body = format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[
                {{"name":"c","image":"i","resources":{resources}}}]}}}}"#
        );
        session.check_at(PODS, &body, &["status", "qosClass"], expected).await;
    }
}

#[tokio::test]
async fn faults_of_a_pod_are_told_in_order() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"p"},"spec":{"restartPolicy":"Sometimes",
        "volumes":[{"name":"v","secret":{}}],
        "containers":[{"name":"c","volumeMounts":[{"name":"v","mountPath":"/v"}]}]}}"#;
    let causes = [
        "spec.volumes[0].secret.secretName: Required value",
        "spec.containers[0].image: Required value",
        "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \
         \"OnFailure\", \"Never\"",
    ];
    session.check(PODS, body, 422, &causes).await;
}

#[tokio::test]
async fn a_pod_changes_its_image_but_not_its_containers() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    session.check("POST /api/v1/namespaces/n/pods", body, 201, &[]).await;
    let place = "PATCH /api/v1/namespaces/n/pods/p";
    let body = r#"{"spec":{"containers":[{"name":"c","image":"j","imagePullPolicy":"Always",
        "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}]}}"#;
    session.check_at(place, body, &["metadata", "generation"], "2").await;
    let body = r#"{"spec":{"containers":[{"name":"c","image":"j"},{"name":"d","image":"j"}]}}"#;
    let causes = ["spec.containers: Forbidden: pod updates may not add or remove containers"];
    session.check(place, body, 422, &causes).await;
    let body = r#"{"spec":{"tolerations":[{"key":"a","operator":"Exists"}]}}"#;
    session.check(place, body, 200, &[]).await;
    let causes =
        ["spec.tolerations: Forbidden: existing toleration can not be modified except its \
         tolerationSeconds"];
    session.check(place, r#"{"spec":{"tolerations":null}}"#, 422, &causes).await;
}

#[tokio::test]
async fn a_deployment_keeps_its_selector() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},
        "template":{"metadata":{"labels":{"a":"b","c":"d"}},
        "spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    session.check("POST /apis/apps/v1/namespaces/n/deployments", body, 201, &[]).await;
    let place = "PATCH /apis/apps/v1/namespaces/n/deployments/d";
    let body = r#"{"spec":{"selector":{"matchLabels":{"c":"d"}}}}"#;
    let causes =
        [r#"spec.selector: Invalid value: {"matchLabels":{"a":"b","c":"d"}}: field is immutable"#];
    session.check(place, body, 422, &causes).await;
    let body = r#"{"metadata":{"annotations":{"x":"y"}}}"#;
    session.check_at(place, body, &["metadata", "generation"], "2").await;
}

#[tokio::test]
async fn a_job_is_given_a_selector_of_its_own() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"j"},"spec":{"template":{
        "spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}"#;
    let (code, job) = session.send("POST /apis/batch/v1/namespaces/n/jobs", body).await;
    let uid = job.str_at(&["metadata", "uid"]);
    let chosen = ["spec", "selector", "matchLabels", "batch.kubernetes.io/controller-uid"];
    assert_eq!((code, job.str_at(&chosen)), (201, uid));
    let labels = ["spec", "template", "metadata", "labels", "job-name"];
    assert_eq!(job.str_at(&labels), Some("j"));
}

#[tokio::test]
async fn schedules_of_cron_jobs_are_read() {
    let session = Session::open().await;
    let place = "POST /apis/batch/v1/namespaces/n/cronjobs?dryRun=All";
    for (schedule, causes) in [
        ("*/5 * * * *", vec![]),
        ("@hourly", vec![]),
        (
            "* * * *",
            vec![
                "spec.schedule: Invalid value: \"* * * *\": expected exactly 5 fields, found 4: \
                  [* * * *]",
            ],
        ),
    ] {
        let body = format!(
            r#"{{"metadata":{{"name":"c"}},"spec":{{"schedule":"{schedule}","jobTemplate":{{"spec":
            {{"template":{{"spec":{{"restartPolicy":"Never",
            "containers":[{{"name":"c","image":"i"}}]}}}}}}}}}}}}"#
        );
        let code = if causes.is_empty() { 201 } else { 422 };
        session.check(place, &body, code, &causes).await;
    }
}

#[tokio::test]
async fn services_have_types_with_fields_of_their_own() {
    let session = Session::open().await;
    let place = "POST /api/v1/namespaces/n/services?dryRun=All";
    for (spec, causes) in [
        (r#"{"ports":[{"port":80}]}"#, vec![]),
        (r#"{}"#, vec!["spec.ports: Required value"]),
        (r#"{"clusterIP":"None"}"#, vec![]),
        (r#"{"type":"ExternalName"}"#, vec!["spec.externalName: Required value"]),
        (
            r#"{"ports":[{"port":80,"nodePort":30000}]}"#,
            vec!["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        ),
        (
            r#"{"ports":[{"port":80},{"port":81}]}"#,
            vec!["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"],
        ),
    ] {
        let body = format!(r#"{{"metadata":{{"name":"s"}},"spec":{spec}}}"#);
        let code = if causes.is_empty() { 201 } else { 422 };
        session.check(place, &body, code, &causes).await;
    }
}

#[tokio::test]
async fn what_is_sealed_does_not_change() {
    const SEALED: &str = "Forbidden: field is immutable when `immutable` is set";
    let session = Session::open().await;
    for kind in ["configmaps", "secrets"] {
        let body = r#"{"metadata":{"name":"a"},"immutable":true,"data":{"k":"dg=="}}"#;
        session.check(&format!("POST /api/v1/namespaces/n/{kind}"), body, 201, &[]).await;
        let place = format!("PATCH /api/v1/namespaces/n/{kind}/a");
        let causes = [format!("immutable: {SEALED}"), format!("data: {SEALED}")];
        let causes = [causes[0].as_str(), causes[1].as_str()];
        session.check(&place, r#"{"immutable":null,"data":{"k":"dw=="}}"#, 422, &causes).await;
        session.check(&place, r#"{"metadata":{"labels":{"a":"b"}}}"#, 200, &[]).await;
    }
}

#[tokio::test]
async fn secrets_of_a_type_hold_its_keys() {
    let session = Session::open().await;
    let place = "POST /api/v1/namespaces/n/secrets?dryRun=All";
    for (kind, causes) in [
        (
            "kubernetes.io/tls",
            vec!["data[tls.crt]: Required value", "data[tls.key]: Required value"],
        ),
        ("kubernetes.io/ssh-auth", vec!["data[ssh-privatekey]: Required value"]),
        ("example.com/own", vec![]),
    ] {
        let body = format!(r#"{{"metadata":{{"name":"s"}},"type":"{kind}"}}"#);
        let code = if causes.is_empty() { 201 } else { 422 };
        session.check(place, &body, code, &causes).await;
    }
}

#[tokio::test]
async fn faults_of_metadata_are_told_by_each_who_looks() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"a"}}"#;
    session.check("POST /api/v1/namespaces/n/configmaps", body, 201, &[]).await;
    let (_, answer) = session
        .send("PATCH /api/v1/namespaces/n/configmaps/a", r#"{"metadata":{"labels":{"a":"!"}}}"#)
        .await;
    assert_eq!(harness::causes(&answer).len(), 4);
}

#[tokio::test]
async fn events_of_the_newer_group_are_strict() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"e"}}"#;
    let elsewhere = "involvedObject.namespace: Invalid value: \"\": does not match event.namespace";
    session.check("POST /api/v1/namespaces/n/events", body, 422, &[elsewhere]).await;
    let causes =
        [elsewhere, "eventTime: Required value", "type: Invalid value: \"\": has invalid value: "];
    session.check("POST /apis/events.k8s.io/v1/namespaces/n/events", body, 422, &causes).await;
}

#[tokio::test]
async fn a_list_that_must_be_there_and_is_empty_reads_back_as_null() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"r"},"rules":[]}"#;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles";
    session.check(&format!("POST {roles}"), body, 201, &[]).await;
    session.check_at(&format!("GET {roles}/r"), "", &["rules"], "null").await;
}

/// A write to a part of a pod that stands at `/api/v1/namespaces/n/pods/p`: the faults of a JSON patch.
async fn check_part(pod: &str, part: &str, cases: &[(&str, &[&str])]) {
    let session = Session::open().await;
    session.check("POST /api/v1/namespaces/n/pods", pod, 201, &[]).await;
    let path = format!("/api/v1/namespaces/n/pods/p/{part}?dryRun=All");
    for (patch, causes) in cases {
        let media = "application/json-patch+json";
        let answer = session.harness.send("PATCH", &path, media, patch.as_bytes()).await;
        let (code, answer) = answer.expect("the path is known");
        assert_eq!(harness::causes(&answer), *causes, "{patch}");
        assert_eq!(code, if causes.is_empty() { 200 } else { 422 }, "{patch}");
    }
}

#[tokio::test]
async fn a_resize_changes_cpu_and_memory_of_the_same_containers() {
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[
        {"name":"c","image":"i","resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2"}}}]}}"#;
    const SPEC: &str = "spec: Forbidden: only cpu and memory resources are mutable";
    let cases: &[(&str, &[&str])] = &[
        (
            r#"[{"op":"add","path":"/spec/containers/0/resources/requests/cpu","value":"1500m"}]"#,
            &[],
        ),
        (r#"[{"op":"add","path":"/spec/containers/0/image","value":"other"}]"#, &[]),
        (
            r#"[{"op":"add","path":"/spec/containers/0/resources/requests/ephemeral-storage",
                "value":"1Gi"}]"#,
            &[SPEC],
        ),
        (
            r#"[{"op":"add","path":"/spec/containers/0/resizePolicy",
                "value":[{"resourceName":"cpu","restartPolicy":"NotRequired"}]}]"#,
            &[SPEC],
        ),
        (
            r#"[{"op":"add","path":"/spec/containers/0/name","value":"x"}]"#,
            &["spec.containers[0].name: Forbidden: containers may not be renamed or reordered on \
               resize"],
        ),
        (
            r#"[{"op":"remove","path":"/spec/containers/0/resources"}]"#,
            &[
                "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of \
                 resizing",
                "spec.containers[0].resources.requests: Forbidden: resource requests cannot be \
                 removed",
                "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
            ],
        ),
        (
            r#"[{"op":"add","path":"/spec/initContainers","value":[{"name":"x","image":"i"}]}]"#,
            &[
                "spec.initContainers: Forbidden: initContainers may not be added or removed on resize",
            ],
        ),
        (
            r#"[{"op":"add","path":"/spec/containers/0/resources/requests/cpu","value":"3"}]"#,
            &["spec.containers[0].resources.requests: Invalid value: \"3\": must be less than or \
               equal to cpu limit of 2"],
        ),
    ];
    check_part(pod, "resize", cases).await;
    let windows = pod.replace(r#""spec":{"#, r#""spec":{"os":{"name":"windows"},"#);
    let patch = r#"[{"op":"add","path":"/spec/containers/0/resources/requests/cpu","value":"1"}]"#;
    let refused: &[&str] = &["[]: Forbidden: windows pods cannot be resized"];
    check_part(&windows, "resize", &[(patch, refused)]).await;
}

#[tokio::test]
async fn ephemeral_containers_are_added_and_stay() {
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let place = "/spec/ephemeralContainers";
    let add =
        |container: &str| format!(r#"[{{"op":"add","path":"{place}","value":[{container}]}}]"#);
    let cases = [
        (r#"{"name":"d","image":"i","targetContainerName":"c"}"#, vec![]),
        (
            r#"{"name":"d","image":" i ","targetContainerName":"x"}"#,
            vec![
                "spec.ephemeralContainers[0].targetContainerName: Not found: \"x\"",
                "spec.ephemeralContainers[0].image: Invalid value: \" i \": must not have leading or \
                 trailing whitespace",
            ],
        ),
        (
            r#"{"name":"c","image":"i","restartPolicy":"Always"}"#,
            vec![
                "spec.ephemeralContainers[0].name: Duplicate value: \"c\"",
                "spec.ephemeralContainers[0].restartPolicy: Forbidden: cannot be set for an \
                 Ephemeral Container",
            ],
        ),
    ];
    let patches: Vec<_> = cases.iter().map(|(container, _)| add(container)).collect();
    let cases: Vec<_> =
        patches.iter().zip(&cases).map(|(patch, (_, causes))| (&**patch, &causes[..])).collect();
    check_part(pod, "ephemeralcontainers", &cases).await;

    let session = Session::open().await;
    session.check("POST /api/v1/namespaces/n/pods", pod, 201, &[]).await;
    let part = "PATCH /api/v1/namespaces/n/pods/p/ephemeralcontainers";
    let body = r#"{"metadata":{"labels":{"a":"b"}},
        "spec":{"activeDeadlineSeconds":5,"ephemeralContainers":[{"name":"d","image":"i"}]}}"#;
    let (_, answer) = session.send(part, body).await;
    assert_eq!(answer.at(&["metadata", "labels"]), None, "only the containers are written");
    assert_eq!(answer.at(&["spec", "activeDeadlineSeconds"]), None);
    let gone = "existing ephemeral containers \"d\" may not be removed\n";
    let causes = [&*format!("spec.ephemeralContainers: Forbidden: {gone}")];
    session.check(part, r#"{"spec":{"ephemeralContainers":null}}"#, 422, &causes).await;
}
