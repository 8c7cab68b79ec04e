//! Rules of what controllers and kubelets write: statuses, and annotations of nodes. The messages
//! are those of kube-apiserver 1.36.

use crate::rules::Session;

const CONDITION: &str = r#"{"type":"A","status":"x","reason":"R","message":"",
    "lastTransitionTime":"2020-01-01T00:00:00Z"}"#;
const BAD_STATUS: &str = "status.conditions[0].status: Unsupported value: \"x\": supported values: \
                          \"False\", \"True\", \"Unknown\"";

/// Creates an object, and checks updates of its status.
async fn check(
    session: &Session,
    collection: &str,
    body: &str,
    name: &str,
    statuses: &[(&str, &[&str])],
) {
    assert_eq!(session.send(&format!("POST {collection}"), body).await.0, 201);
    for (status, causes) in statuses {
        let request = format!("PATCH {collection}/{name}/status");
        let code = if causes.is_empty() { 200 } else { 422 };
        session.check(&request, &format!(r#"{{"status":{status}}}"#), code, causes).await;
    }
}

#[tokio::test]
async fn the_status_of_a_disruption_budget_has_valid_conditions_and_counts() {
    let session = Session::open().await;
    let both = format!(r#"{{"currentHealthy":-1,"conditions":[{CONDITION}]}}"#);
    let negative = |name: &str, number: i64| {
        format!("status.{name}: Invalid value: {number}: must be greater than or equal to 0")
    };
    let current = negative("currentHealthy", -1);
    let counts = [negative("disruptionsAllowed", -1), negative("expectedPods", -3)];
    check(
        &session,
        "/apis/policy/v1/namespaces/n/poddisruptionbudgets",
        r#"{"metadata":{"name":"b"},"spec":{"minAvailable":1}}"#,
        "b",
        &[
            (&both, &[BAD_STATUS, &current]),
            (
                r#"{"conditions":[],"disruptionsAllowed":-1,"expectedPods":-3,"currentHealthy":0}"#,
                &[&counts[0], &counts[1]],
            ),
            (r#"{"disruptionsAllowed":1,"expectedPods":2}"#, &[]),
        ],
    )
    .await;
}

/// Only an update of the Deployment itself gives it a new generation for its annotations.
#[tokio::test]
async fn annotations_of_a_status_leave_the_generation_of_a_deployment() {
    let session = Session::open().await;
    let collection = "/apis/apps/v1/namespaces/n/deployments";
    let body = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{
        "metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    assert_eq!(session.send(&format!("POST {collection}"), body).await.0, 201);
    for (place, value, generation) in [("d/status", "b", "1"), ("d", "c", "2")] {
        let body = format!(r#"{{"metadata":{{"annotations":{{"a":"{value}"}}}}}}"#);
        let request = format!("PATCH {collection}/{place}");
        session.check_at(&request, &body, &["metadata", "generation"], generation).await;
        let (_, stored) = session.send(&format!("GET {collection}/d"), "").await;
        assert_eq!(stored.str_at(&["metadata", "annotations", "a"]), Some(value));
    }
}

#[tokio::test]
async fn the_status_of_a_policy_has_valid_conditions_and_complete_warnings() {
    let session = Session::open().await;
    let status = format!(
        r#"{{"conditions":[{CONDITION}],"typeChecking":{{"expressionWarnings":[
            {{"fieldRef":"","warning":"w"}},{{"fieldRef":"x","warning":""}}]}}}}"#
    );
    check(
        &session,
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        r#"{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],
            "apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},
            "validations":[{"expression":"true"}]}}"#,
        "p",
        &[(
            &status,
            &[
                "status.typeChecking.expressionWarnings[0].fieldRef: Required value",
                "status.typeChecking.expressionWarnings[1].warning: Required value",
                BAD_STATUS,
            ],
        )],
    )
    .await;
}

#[tokio::test]
async fn the_errors_and_metadata_of_an_attachment_are_bounded() {
    let session = Session::open().await;
    let long = "Too long: may not be more than 262144 bytes";
    let message = |bytes: usize| {
        format!(r#"{{"attached":false,"attachError":{{"message":"{}"}}}}"#, "x".repeat(bytes))
    };
    let metadata = |bytes: usize| {
        format!(
            r#"{{"attached":true,"attachError":null,"attachmentMetadata":{{"a":"{}"}}}}"#,
            "x".repeat(bytes)
        )
    };
    check(
        &session,
        "/apis/storage.k8s.io/v1/volumeattachments",
        r#"{"metadata":{"name":"a"},"spec":{"attacher":"a","nodeName":"n",
            "source":{"persistentVolumeName":"v"}}}"#,
        "a",
        &[
            (&message(1024), &[]),
            (&message(1025), &[&format!("status.attachError.message: {long}")]),
            (
                r#"{"attached":false,"detachError":{"errorCode":-5}}"#,
                &["status.detachError.errorCode: Invalid value: -5: must be between 0 and \
                   2147483647, inclusive"],
            ),
            (&metadata(262_143), &[]),
            (&metadata(262_144), &[&format!("status.attachmentMetadata: {long}")]),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_pods_that_a_node_avoids_have_a_controller() {
    let session = Session::open().await;
    let place =
        "metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[0].PodSignature";
    for (text, cause) in [
        (r#"{"preferAvoidPods":[]}"#, None),
        (r#"{"preferAvoidPods":[{"podSignature":{}}]}"#, Some(format!("{place}: Required value"))),
        (
            r#"{"preferAvoidPods":[{"podSignature":{"podController":{"controller":false}}}]}"#,
            Some(format!(
                "{place}.PodController.Controller: Invalid value: false: must point to a controller"
            )),
        ),
        (
            "{bad",
            Some(
                "metadata.annotations.AvoidPods: Invalid value: \
                 \"scheduler.alpha.kubernetes.io/preferAvoidPods\": invalid character 'b' looking \
                 for beginning of object key string"
                    .to_owned(),
            ),
        ),
    ] {
        let text = text.replace('"', "\\\"");
        let body = format!(
            r#"{{"metadata":{{"name":"n","annotations":
                {{"scheduler.alpha.kubernetes.io/preferAvoidPods":"{text}"}}}}}}"#
        );
        let causes: Vec<&str> = cause.as_deref().into_iter().collect();
        let code = if causes.is_empty() { 201 } else { 422 };
        session.check("POST /api/v1/nodes?dryRun=All", &body, code, &causes).await;
    }
}

#[tokio::test]
async fn a_slice_has_a_protocol_that_exists() {
    let session = Session::open().await;
    for protocol in ["", "x"] {
        let body = format!(
            r#"{{"metadata":{{"name":"e"}},"addressType":"IPv4","endpoints":[],
                "ports":[{{"name":"a","port":1,"protocol":"{protocol}"}}]}}"#
        );
        let cause = format!(
            "ports[0].protocol: Unsupported value: \"{protocol}\": supported values: \"SCTP\", \
             \"TCP\", \"UDP\""
        );
        let request = "POST /apis/discovery.k8s.io/v1/namespaces/n/endpointslices?dryRun=All";
        session.check(request, &body, 422, &[&cause]).await;
    }
}

#[tokio::test]
async fn a_namespace_with_a_generated_name_is_labelled_with_it() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"generateName":"gen-","labels":{"z":"1"}}}"#;
    let (code, made) = session.send("POST /api/v1/namespaces", body).await;
    let name = made.str_at(&["metadata", "name"]).unwrap_or_default();
    let label = made.str_at(&["metadata", "labels", "kubernetes.io/metadata.name"]);
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    assert_eq!((code, label), (201, Some(name)));
}

#[tokio::test]
async fn only_a_pod_without_a_node_may_be_nominated() {
    let session = Session::open().await;
    let pods = "/api/v1/namespaces/n/pods";
    let pod = |name: &str, node: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},
                "spec":{{{node}"containers":[{{"name":"c","image":"i"}}]}}}}"#
        )
    };
    let bound = "status.nominatedNodeName: Forbidden: may not be set on pods that are already \
                 bound to a node";
    let form = "status.nominatedNodeName: Invalid value: \"A\": a lowercase RFC 1123 subdomain \
                must consist of lower case alphanumeric characters, '-' or '.', and must start and \
                end with an alphanumeric character (e.g. 'example.com', regex used for validation \
                is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let free =
        [(r#"{"nominatedNodeName":"a"}"#, &[][..]), (r#"{"nominatedNodeName":"A"}"#, &[form])];
    check(&session, pods, &pod("free", ""), "free", &free).await;
    let on_node: [(&str, &[&str]); 3] = [
        (r#"{"nominatedNodeName":"a"}"#, &[bound]),
        (r#"{"nominatedNodeName":"A"}"#, &[form, bound]),
        (r#"{"nominatedNodeName":""}"#, &[]),
    ];
    check(&session, pods, &pod("bound", r#""nodeName":"x","#), "bound", &on_node).await;
}
