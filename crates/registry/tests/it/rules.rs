//! Rules of single kinds: a request, its status code and its causes.

use crate::harness::{self, Harness, SetClock};
use keelson_meta::Value;
use keelson_store::Embedded;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Requests in order against one namespace `n`.
pub(crate) struct Session {
    pub harness: Harness,
}

impl Session {
    pub async fn open() -> Session {
        Session::over(Harness::open().await).await
    }

    pub async fn over(harness: Harness) -> Session {
        let body = br#"{"metadata":{"name":"n"}}"#;
        harness.send("POST", "/api/v1/namespaces", "", body).await;
        let account = br#"{"metadata":{"name":"default"},"automountServiceAccountToken":false}"#;
        harness.send("POST", "/api/v1/namespaces/n/serviceaccounts", "", account).await;
        Session { harness }
    }

    pub async fn send(&self, request: &str, body: &str) -> (u16, Value) {
        let (method, path) = request.split_once(' ').expect("a request is a method and a path");
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "" };
        self.harness.send(method, path, media, body.as_bytes()).await.expect("the path is known")
    }

    /// Checks the status code and the causes.
    pub async fn check(&self, request: &str, body: &str, code: u16, causes: &[&str]) {
        let (got, answer) = self.send(request, body).await;
        assert_eq!(harness::causes(&answer), causes, "{request} {body}");
        assert_eq!(got, code, "{request} {body}");
    }

    /// Checks a string at a path of the response.
    pub async fn check_at(&self, request: &str, body: &str, place: &[&str], expected: &str) {
        let (_, answer) = self.send(request, body).await;
        let found = answer.at(place).map(keelson_meta::status::show).unwrap_or_default();
        assert_eq!(found, expected, "{request} {body} at {place:?}");
    }
}

const PODS: &str = "POST /api/v1/namespaces/n/pods?dryRun=All";

#[tokio::test]
async fn a_pod_is_defaulted() {
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
async fn the_qos_class_follows_from_requests_and_limits() {
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
async fn errors_of_a_pod_are_in_order() {
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
async fn a_job_gets_a_generated_selector() {
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
async fn a_job_without_labels_shares_those_of_its_template() {
    let session = Session::open().await;
    let name = "j".repeat(64);
    let too_long = format!("Invalid value: \"{name}\": must be no more than 63 bytes");
    let template_fault = format!("spec.template.labels: {too_long}");
    let fault = format!("metadata.labels: {too_long}");
    for (labels, template, expected, faults) in [
        ("", r#""a":"b""#, 5, vec![&fault, &fault, &template_fault, &template_fault]),
        (r#""a":"b""#, r#""a":"b""#, 1, vec![&template_fault, &template_fault]),
        ("", "", 4, vec![&template_fault, &template_fault]),
    ] {
        let job = |name: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}","labels":{{{labels}}}}},"spec":{{"template":{{
                "metadata":{{"labels":{{{template}}}}},"spec":{{"restartPolicy":"Never",
                "containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
            )
        };
        let path = "POST /apis/batch/v1/namespaces/n/jobs?dryRun=All";
        let (code, made) = session.send(path, &job("j")).await;
        let found = made.at(&["metadata", "labels"]).and_then(Value::as_object);
        assert_eq!((code, found.map_or(0, |map| map.len())), (201, expected), "{made:?}");
        let (code, answer) = session.send(path, &job(&name)).await;
        assert_eq!((code, harness::causes(&answer).iter().collect::<Vec<_>>()), (422, faults));
    }
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
async fn services_have_type_specific_fields() {
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
async fn immutable_config_maps_and_secrets_do_not_change() {
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
async fn metadata_errors_are_reported_by_each_validator() {
    let session = Session::open().await;
    for (path, object, faults) in [
        ("/api/v1/namespaces/n/configmaps", "", 4),
        ("/apis/networking.k8s.io/v1/ingressclasses", r#""spec":{"controller":"a.com/b"}"#, 4),
        (
            "/api/v1/namespaces/n/replicationcontrollers",
            r#""spec":{"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},
            "spec":{"containers":[{"name":"c","image":"i"}]}}}"#,
            3,
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            r#""spec":{"driver":"a.com","nodeName":"n","devices":[{"name":"d"}],
            "pool":{"name":"p","generation":1,"resourceSliceCount":1}}"#,
            3,
        ),
    ] {
        let comma = if object.is_empty() { "" } else { "," };
        let body = format!(r#"{{"metadata":{{"name":"a"}}{comma}{object}}}"#);
        session.check(&format!("POST {path}"), &body, 201, &[]).await;
        let patch = r#"{"metadata":{"labels":{"a":"!"}}}"#;
        let (_, answer) = session.send(&format!("PATCH {path}/a"), patch).await;
        assert_eq!(harness::causes(&answer).len(), faults, "{path}");
    }
}

#[tokio::test]
async fn an_update_creates_where_the_kind_allows_it() {
    let session = Session::open().await;
    for (path, code) in [
        ("/apis/node.k8s.io/v1/runtimeclasses", 201),
        ("/apis/coordination.k8s.io/v1/namespaces/n/leases", 201),
        ("/api/v1/namespaces/n/podtemplates", 404),
        ("/api/v1/namespaces/n/configmaps", 404),
    ] {
        let body = r#"{"metadata":{"name":"a"},"handler":"h","template":{"spec":{
            "containers":[{"name":"c","image":"i"}]}}}"#;
        session.check(&format!("PUT {path}/a"), body, code, &[]).await;
    }
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
async fn an_empty_required_list_reads_back_as_null() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"r"},"rules":[]}"#;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles";
    session.check(&format!("POST {roles}"), body, 201, &[]).await;
    session.check_at(&format!("GET {roles}/r"), "", &["rules"], "null").await;
}

#[tokio::test]
async fn a_stored_older_version_is_converted_once() {
    let session = Session::open().await;
    let path = "apis/autoscaling/v1/namespaces/n/horizontalpodautoscalers";
    let body = r#"{"metadata":{"name":"h"},"spec":{"maxReplicas":3,
        "scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}"#;
    session.check(&format!("POST /{path}"), body, 201, &[]).await;
    let body = r#"{"status":{"currentCPUUtilizationPercentage":60,"currentReplicas":1,
        "desiredReplicas":1}}"#;
    session.check(&format!("PATCH /{path}/h/status"), body, 200, &[]).await;
    let path = "GET /apis/autoscaling/v2/namespaces/n/horizontalpodautoscalers/h";
    let current =
        r#"[{"type":"Resource","resource":{"name":"cpu","current":{"averageUtilization":60}}}]"#;
    session.check_at(path, "", &["status", "currentMetrics"], current).await;
}

#[tokio::test]
async fn a_node_status_without_config_gets_none() {
    let session = Session::open().await;
    session.check("POST /api/v1/nodes", r#"{"metadata":{"name":"x"}}"#, 201, &[]).await;
    let body =
        r#"{"status":{"config":{"active":{"configMap":{"name":"x"}}},"volumesInUse":["a"]}}"#;
    let path = "PATCH /api/v1/nodes/x/status";
    session.check_at(path, body, &["status", "config"], "").await;
    session.check_at(path, body, &["status", "volumesInUse"], r#"["a"]"#).await;
}

#[tokio::test]
async fn amounts_of_resource_lists_hold_thousandths() {
    let session = Session::open().await;
    let path = "POST /api/v1/namespaces/n/resourcequotas?dryRun=All";
    for (given, stored) in
        [("0.1m", "1m"), ("1u", "1m"), ("1500u", "2m"), ("5m", "5m"), ("0.5", "500m")]
    {
        let body =
            format!(r#"{{"metadata":{{"name":"q"}},"spec":{{"hard":{{"cpu":"{given}"}}}}}}"#);
        session.check_at(path, &body, &["spec", "hard", "cpu"], &format!("{stored:?}")).await;
    }
}

#[tokio::test]
async fn an_image_that_is_no_reference_is_pulled_if_absent() {
    let session = Session::open().await;
    let path = "POST /api/v1/namespaces/n/pods?dryRun=All";
    for (image, policy) in [
        ("i".to_owned(), "Always"),
        ("i:1".to_owned(), "IfNotPresent"),
        ("a".repeat(64), "IfNotPresent"),
        ("a".repeat(63), "Always"),
        ("r.io/".to_owned() + &"a".repeat(255), "Always"),
        ("r.io/".to_owned() + &"a".repeat(256), "IfNotPresent"),
    ] {
        let body = format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","image":"{image}"}}]}}}}"#
        );
        let (_, answer) = session.send(path, &body).await;
        let containers = answer.array_at(&["spec", "containers"]);
        assert_eq!(containers[0].str_at(&["imagePullPolicy"]), Some(policy), "{image}");
    }
}

#[tokio::test]
async fn match_label_keys_require_a_selector() {
    let session = Session::open().await;
    let causes = [
        "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
        "spec.topologySpreadConstraints[0].matchLabelKeys: Forbidden: must not be specified when \
         labelSelector is not set",
    ];
    let body = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}],
        "topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"","whenUnsatisfiable":"DoNotSchedule",
            "matchLabelKeys":["$"]}]}}"#;
    session.check(PODS, body, 422, &causes).await;
}

#[tokio::test]
async fn a_port_keeps_its_node_port_by_number() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[
        {"name":"a","port":80,"nodePort":30041},{"name":"b","port":80}]}}"#;
    let causes = [
        "spec.ports[1].nodePort: Duplicate value: 30041",
        "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\
         \"Port\":80,\"TargetPort\":0,\"NodePort\":0}",
    ];
    session.check("POST /api/v1/namespaces/n/services?dryRun=All", body, 422, &causes).await;
}

#[tokio::test]
async fn node_ports_are_dropped_with_the_type_unless_one_is_new() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[
        {"name":"a","port":80,"nodePort":30041},{"name":"b","port":81,"nodePort":30042}]}}"#;
    session.check("POST /api/v1/namespaces/n/services", body, 201, &[]).await;
    let put = "PUT /api/v1/namespaces/n/services/s?dryRun=All";
    let body = |second: u16| {
        format!(
            r#"{{"metadata":{{"name":"s"}},"spec":{{"type":"ClusterIP","ports":[
            {{"name":"a","port":80,"nodePort":30041}},
            {{"name":"b","port":81,"nodePort":{second}}}]}}}}"#
        )
    };
    session.check(put, &body(30042), 200, &[]).await;
    let causes = [0, 1].map(|at| {
        let place = format!("spec.ports[{at}].nodePort");
        format!("{place}: Forbidden: may not be used when `type` is 'ClusterIP'")
    });
    session.check(put, &body(2), 422, &causes.each_ref().map(String::as_str)).await;
}

#[tokio::test]
async fn an_external_name_service_drops_only_known_traffic_policies() {
    let session = Session::open().await;
    let request = "POST /api/v1/namespaces/n/services?dryRun=All";
    let body = |policy: &str| {
        format!(
            r#"{{"metadata":{{"name":"s"}},"spec":{{"type":"ExternalName",
            "externalName":"a.b","internalTrafficPolicy":{policy:?}}}}}"#
        )
    };
    let place = ["spec", "internalTrafficPolicy"];
    session.check_at(request, &body("Local"), &place, "").await;
    for unknown in ["", "X"] {
        let cause = format!(
            "spec.internalTrafficPolicy: Unsupported value: {unknown:?}: supported values: \
             \"Cluster\", \"Local\""
        );
        session.check(request, &body(unknown), 422, &[&cause]).await;
    }
}

#[tokio::test]
async fn labels_of_a_slice_count_as_its_spec() {
    let session = Session::open().await;
    let path = "apis/discovery.k8s.io/v1/namespaces/n/endpointslices";
    let body = r#"{"metadata":{"name":"s","labels":{"a":"b"}},"addressType":"IPv4",
        "endpoints":[{"addresses":["10.1.2.3"]}],"ports":[]}"#;
    session.check(&format!("POST /{path}"), body, 201, &[]).await;
    let patch = |patch: &str| (format!("PATCH /{path}/s"), patch.to_owned());
    let generation = ["metadata", "generation"];
    let (request, body) = patch(r#"{"metadata":{"annotations":{"a":"b"}}}"#);
    session.check_at(&request, &body, &generation, "1").await;
    let (request, body) = patch(r#"{"metadata":{"labels":{"a":"c"}}}"#);
    session.check_at(&request, &body, &generation, "2").await;
    for labels in ["null", r#"{"x":null}"#] {
        let (request, body) = patch(&format!(r#"{{"metadata":{{"labels":{labels}}}}}"#));
        session.check_at(&request, &body, &generation, "3").await;
    }
    // Absent and empty conditions are equal: nothing changes, and no other manager owns them.
    let (request, body) = patch(r#"{"endpoints":[{"addresses":["10.1.2.3"]}]}"#);
    let other = format!("{request}?fieldManager=other");
    let (_, answer) = session.send(&other, &body).await;
    assert_eq!(answer.array_at(&["metadata", "managedFields"]).len(), 1);
}

#[tokio::test]
async fn empty_managed_fields_reset_them() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"m"},"data":{"a":"b"}}"#;
    session.check("POST /api/v1/namespaces/n/configmaps", body, 201, &[]).await;
    let body = r#"{"metadata":{"name":"m","managedFields":[]},"data":{"a":"b"}}"#;
    let (_, answer) = session.send("PUT /api/v1/namespaces/n/configmaps/m", body).await;
    assert_eq!(answer.at(&["metadata", "managedFields"]), None);
}

#[tokio::test]
async fn an_indexed_job_has_errors_of_its_own() {
    let session = Session::open().await;
    let check = async |spec: &str, causes: &[&str]| {
        let body = format!(
            r#"{{"metadata":{{"name":"j"}},"spec":{{{spec},"template":{{"spec":{{
                "restartPolicy":"Never","containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
        );
        session.check("POST /apis/batch/v1/namespaces/n/jobs?dryRun=All", &body, 422, causes).await;
    };
    let negative = "spec.completions: Invalid value: -1: must be greater than or equal to 0";
    check(r#""completionMode":"Indexed","completions":-1"#, &[negative]).await;
    let mode = "spec.completionMode: Unsupported value: \"\": supported values: \"NonIndexed\", \
                \"Indexed\"";
    check(r#""completionMode":"","completions":1,"backoffLimitPerIndex":0"#, &[mode]).await;
}

#[tokio::test]
async fn a_write_that_only_reorders_labels_is_a_no_op() {
    let session = Session::open().await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let body = r#"{"metadata":{"name":"m","labels":{"a":"1","b":"2"}}}"#;
    let (_, first) = session.send(&format!("POST {maps}"), body).await;
    let body = r#"{"metadata":{"name":"m","labels":{"b":"2","a":"1"}}}"#;
    let (_, second) = session.send(&format!("PUT {maps}/m"), body).await;
    let version = ["metadata", "resourceVersion"];
    assert_eq!(first.at(&version), second.at(&version));
}

#[tokio::test]
async fn a_csi_driver_is_checked_and_keeps_how_it_attaches() {
    let session = Session::open().await;
    let path = "/apis/storage.k8s.io/v1/csidrivers";
    session
        .check(&format!("POST {path}"), r#"{"metadata":{"name":"d"},"spec":{}}"#, 201, &[])
        .await;
    let patch = format!("PATCH {path}/d?dryRun=All");
    let short = "spec.tokenRequests[0].expirationSeconds: Invalid value: 1: may not specify a duration \
                 less than 10 minutes";
    for (spec, cause) in [
        (
            r#""attachRequired":false"#,
            "spec.attachedRequired: Invalid value: false: field is immutable",
        ),
        (
            r#""fsGroupPolicy":"x""#,
            "spec.fsGroupPolicy: Unsupported value: \"x\": supported values: \"File\", \"None\", \
             \"ReadWriteOnceWithFSType\"",
        ),
        (r#""tokenRequests":[{"audience":"a","expirationSeconds":1}]"#, short),
    ] {
        session.check(&patch, &format!(r#"{{"spec":{{{spec}}}}}"#), 422, &[cause]).await;
    }
    let body = r#"{"spec":{"podInfoOnMount":true}}"#;
    session.check_at(&patch, body, &["metadata", "generation"], "1").await;
}

#[tokio::test]
async fn a_status_update_of_a_definition_does_not_validate_its_rules() {
    let session = Session::open().await;
    let registry = &session.harness.registry;
    let kind =
        registry.kind("apiextensions.k8s.io", "customresourcedefinitions").expect("built in");
    // A rule that no release accepts: checking rules again would dominate the cost of the write.
    let broken = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{"name":"as.example.com","uid":"u"},"spec":{"group":"example.com","scope":"Cluster",
        "names":{"plural":"as","singular":"a","kind":"A","listKind":"AList"},
        "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{
            "type":"object","x-kubernetes-validations":[{"rule":"self.nosuch("}]}}}]},
        "status":{"storedVersions":["v1"]}}"#;
    let key = kind.store_key("", "as.example.com");
    session.harness.put_object(&kind, key, broken.as_bytes()).await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/as.example.com";
    let status = r#"{"status":{"acceptedNames":{"plural":"as","kind":"A"}}}"#;
    session.check(&format!("PATCH {path}/status"), status, 200, &[]).await;
    let (code, _) =
        session.send(&format!("PATCH {path}"), r#"{"metadata":{"labels":{"a":"b"}}}"#).await;
    assert_eq!(code, 422, "other writes do look");
}

#[tokio::test]
async fn a_stateful_set_does_not_validate_its_pod_names() {
    let session = Session::open().await;
    let body = |kind: &str| {
        format!(
            r#"{{"metadata":{{"name":"{kind}"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},
            "template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"hostname":"A_b","subdomain":"a.b",
            "containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
        )
    };
    const SETS: &str = "POST /apis/apps/v1/namespaces/n/statefulsets?dryRun=All";
    session.check(SETS, &body("s"), 201, &[]).await;
    let path = "POST /apis/apps/v1/namespaces/n/deployments?dryRun=All";
    let (code, answer) = session.send(path, &body("d")).await;
    assert_eq!((code, harness::causes(&answer).len()), (422, 2));
}

#[tokio::test]
async fn a_merge_patch_keeps_the_nulls_of_a_list() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},
        "template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    session.send("POST /apis/apps/v1/namespaces/n/deployments", body).await;
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i","args":[null,"a"]}]}}}}"#;
    let place = ["spec", "template", "spec", "containers"];
    let (_, answer) = session.send("PATCH /apis/apps/v1/namespaces/n/deployments/d", patch).await;
    let containers = answer.array_at(&place);
    let args = containers.first().map(|container| container.array_at(&["args"]));
    assert_eq!(args, Some(&["".into(), "a".into()][..]));
}

#[tokio::test]
async fn a_changed_controller_of_an_ingress_class_is_checked_as_a_new_one_too() {
    let session = Session::open().await;
    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    let body = r#"{"metadata":{"name":"a"},"spec":{"controller":"a.com/b"}}"#;
    session.check(&format!("POST {classes}"), body, 201, &[]).await;
    let patch = format!("PATCH {classes}/a");
    for (body, causes) in [
        (
            r#"{"spec":{"controller":"bad"}}"#,
            &[
                r#"spec.controller: Invalid value: "bad": field is immutable"#,
                "spec.controller: Invalid value: \"bad\": must be a domain-prefixed path (such as \"acme.io/foo\")",
            ][..],
        ),
        (
            r#"{"spec":{"controller":null}}"#,
            &[
                r#"spec.controller: Invalid value: "": field is immutable"#,
                "spec.controller: Required value",
            ],
        ),
    ] {
        session.check(&patch, body, 422, causes).await;
    }
    let (_, answer) = session.send(&patch, r#"{"metadata":{"labels":{"a":"!"}}}"#).await;
    assert_eq!(harness::causes(&answer).len(), 4);
}

#[tokio::test]
async fn an_applied_configuration_may_leave_out_the_name_of_an_object_that_exists() {
    let session = Session::open().await;
    let path = "/api/v1/namespaces/n/configmaps";
    session.check(&format!("POST {path}"), r#"{"metadata":{"name":"a"}}"#, 201, &[]).await;
    for (name, metadata, code) in [
        ("a", r#""metadata":{"labels":{"x":"y"}},"#, 200),
        ("a", "", 200),
        ("a", r#""metadata":{"name":""},"#, 400),
        ("a", r#""metadata":{"name":"b"},"#, 400),
        ("b", "", 400),
    ] {
        let body =
            format!(r#"{{"apiVersion":"v1","kind":"ConfigMap",{metadata}"data":{{"x":"y"}}}}"#);
        let url = format!("{path}/{name}?fieldManager=m");
        let media = "application/apply-patch+yaml";
        let sent = session.harness.send("PATCH", &url, media, body.as_bytes());
        let (got, answer) = sent.await.expect("the path is known");
        assert_eq!(got, code, "{body} {answer:?}");
    }
}

#[tokio::test]
async fn a_write_that_only_reorders_field_managers_is_stored() {
    let seconds = Arc::new(AtomicI64::new(0));
    let clock = Box::new(SetClock(seconds.clone()));
    let session = Session::over(Harness::over(Embedded::in_memory(), clock).await).await;
    let mut versions = vec![];
    // A patch of spec.finalizers is reverted, but the manager owns the field nevertheless.
    for (now, manager, patch) in [
        (1, "a", r#"{"spec":{"finalizers":["a.com/b"]}}"#),
        (2, "a", r#"{"spec":{"finalizers":["a.com/b"]}}"#),
        (3, "b", r#"{"metadata":{"annotations":{"c":"d"}}}"#),
        (4, "a", r#"{"spec":{"finalizers":["a.com/b"]}}"#),
        (5, "a", r#"{"spec":{"finalizers":["a.com/b"]}}"#),
    ] {
        seconds.store(now, Ordering::Relaxed);
        let request = format!("PATCH /api/v1/namespaces/n?fieldManager={manager}");
        let (_, namespace) = session.send(&request, patch).await;
        let text = |place: &[&str]| namespace.str_at(place).unwrap_or_default().to_owned();
        versions.push(text(&["metadata", "resourceVersion"]).parse().unwrap_or(0));
    }
    let changed: Vec<bool> = versions.windows(2).map(|two: &[u64]| two[0] < two[1]).collect();
    assert_eq!(changed, [false, true, true, false]);
}

#[tokio::test]
async fn no_finalizer_is_added_to_a_deleted_csi_node_as_one_fault() {
    let session = Session::open().await;
    let nodes = "/apis/storage.k8s.io/v1/csinodes";
    let body = r#"{"metadata":{"name":"c","finalizers":["a.b/c"]},"spec":{"drivers":[]}}"#;
    session.check(&format!("POST {nodes}"), body, 201, &[]).await;
    session.check(&format!("DELETE {nodes}/c"), "{}", 200, &[]).await;
    let fault = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is \
                 being deleted, found new finalizers []string{\"a.b/d\"}";
    let patch = r#"{"metadata":{"finalizers":["a.b/d"]}}"#;
    session.check(&format!("PATCH {nodes}/c"), patch, 422, &[fault]).await;
}

#[tokio::test]
async fn counts_and_shares_of_rolling_updates_are_read_as_go_reads_them() {
    let session = Session::open().await;
    let path = "/apis/apps/v1/namespaces/n";
    let body = |kind: &str, strategy: &str| {
        let field = if kind == "deployments" { "strategy" } else { "updateStrategy" };
        format!(
            r#"{{"metadata":{{"name":"a"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"{field}":{strategy},
            "template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
        )
    };
    let not_percent = "a valid percent string must be a numeric string followed by an ending '%' \
                       (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
    let update = r#"{"rollingUpdate":{"maxSurge":"10","maxUnavailable":0}}"#;
    let fault =
        format!(r#"spec.strategy.rollingUpdate.maxSurge: Invalid value: "10": {not_percent}"#);
    let request = format!("POST {path}/deployments");
    session.check(&request, &body("deployments", update), 422, &[&fault]).await;
    // Messages have the names of Go's fields.
    let request = format!("POST {path}/daemonsets");
    let update = r#"{"type":"x","rollingUpdate":{"maxSurge":1}}"#;
    let fault = "spec.updateStrategy: Unsupported value: \
                 {\"Type\":\"x\",\"RollingUpdate\":{\"MaxUnavailable\":0,\"MaxSurge\":1}}: \
                 supported values: \"RollingUpdate\", \"OnDelete\"";
    session.check(&request, &body("daemonsets", update), 422, &[fault]).await;
}

#[tokio::test]
async fn an_init_container_may_have_a_resize_policy() {
    let session = Session::open().await;
    let body = |policy: &str| {
        format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"automountServiceAccountToken":false,"containers":[{{"name":"c","image":"i"}}],
            "initContainers":[{{"name":"i","image":"i","resizePolicy":[{{"resourceName":"cpu","restartPolicy":"{policy}"}}]}}]}}}}"#
        )
    };
    session.check(PODS, &body("NotRequired"), 201, &[]).await;
    let fault = "spec.initContainers[0].resizePolicy: Unsupported value: \"x\": supported values: \
                 \"NotRequired\", \"RestartContainer\"";
    session.check(PODS, &body("x"), 422, &[fault]).await;
    let fault = "spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: \
                 \"RestartContainer\": must not be set to 'RestartContainer' for non-sidecar \
                 initContainers";
    session.check(PODS, &body("RestartContainer"), 422, &[fault]).await;
}

#[tokio::test]
async fn a_repeated_review_version_is_reported_once() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"w"},"webhooks":[{"name":"a.b.c","sideEffects":"None",
        "clientConfig":{"url":"https://a/"},"admissionReviewVersions":["ä","ä"]}]}"#;
    let path = "POST /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let (code, answer) = session.send(path, body).await;
    let causes = harness::causes(&answer);
    assert_eq!((code, causes.len()), (422, 3), "{causes:?}");
    let field = "webhooks[0].admissionReviewVersions";
    assert!(causes[0].starts_with(&format!("{field}[0]")), "{causes:?}");
    assert!(causes[1].contains("duplicate version"), "{causes:?}");
    assert!(causes[2].contains("must include at least one of v1, v1beta1"), "{causes:?}");
}

#[tokio::test]
async fn an_ip_mode_without_an_ip_is_reported_once() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"s"},"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}"#;
    session.send("POST /api/v1/namespaces/n/services", body).await;
    let path = "PATCH /api/v1/namespaces/n/services/s/status?dryRun=All";
    for (point, why) in [
        (r#""ipMode":"Always""#, "may not be specified when `ip` is not set"),
        (r#""ipMode":"Always","ip":"1.2.3.4""#, "supported values: \"Proxy\", \"VIP\""),
        (r#""ipMode":"VIP","hostname":"a""#, "may not be specified when `ip` is not set"),
    ] {
        let body = format!(r#"{{"status":{{"loadBalancer":{{"ingress":[{{{point}}}]}}}}}}"#);
        let (code, answer) = session.send(path, &body).await;
        let causes = harness::causes(&answer);
        assert_eq!((code, causes.len()), (422, 1), "{causes:?}");
        assert!(causes[0].contains(why), "{causes:?}");
    }
}
