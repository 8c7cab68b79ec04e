//! Rarely used rules, each with the message of kube-apiserver.

use crate::rules::Session;
use keelson_registry::Subresource;
use keelson_registry::options::WriteOptions;
use keelson_schema::decode::{Format, decode};

const PODS: &str = "POST /api/v1/namespaces/n/pods?dryRun=All";

#[tokio::test]
async fn volumes_name_secrets_and_servers_in_full() {
    let session = Session::open().await;
    let place = "POST /api/v1/persistentvolumes?dryRun=All";
    let pairs = |registry: &str| {
        format!(
            "spec.quobyte.registry: Invalid value: \"{registry}\": must be a host:port pair or multiple \
                 pairs separated by commas"
        )
    };
    let quobyte = |registry: &str| format!(r#""quobyte":{{"registry":"{registry}","volume":"v"}}"#);
    let csi = |name: &str, secret: &str| {
        format!(r#""csi":{{"driver":"a","volumeHandle":"x","{name}":{secret}}}"#)
    };
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
        '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
        validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let tenant =
        format!(r#""quobyte":{{"registry":"a","volume":"v","tenant":"{}"}}"#, "x".repeat(65));
    let cases = [
        (r#""cinder":{"volumeID":"x","secretRef":{"name":"s"}}"#.to_owned(),
            vec!["spec.cinder.secretRef.namespace: Required value".to_owned()]),
        (csi("nodeStageSecretRef", "{}"), vec![]),
        (csi("nodePublishSecretRef", r#"{"name":"a_b","namespace":"b"}"#),
            vec![format!("spec.csi.nodePublishSecretRef.name: Invalid value: \"a_b\": {subdomain}")]),
        (quobyte("a:1,[::1]:2"), vec![]),
        (quobyte("a:1:2"), vec![pairs("a:1:2")]),
        (quobyte("[a]1:2"), vec![pairs("[a]1:2")]),
        (tenant, vec!["spec.quobyte.tenant: Required value: must be a UUID and may not exceed a length of 64 \
            characters".to_owned()]),
    ];
    for (source, causes) in cases {
        let body = format!(
            r#"{{"metadata":{{"name":"v"}},"spec":{{"accessModes":["ReadWriteOnce"],
                "capacity":{{"storage":"1Gi"}},{source}}}}}"#
        );
        let causes: Vec<&str> = causes.iter().map(String::as_str).collect();
        let code = if causes.is_empty() { 201 } else { 422 };
        session.check(place, &body, code, &causes).await;
    }
    let body = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}],
        "volumes":[{"name":"v","csi":{"driver":"a","nodePublishSecretRef":{}}}]}}"#;
    let causes = ["spec.volumes[0].csi.nodePublishSecretRef.name: Required value"];
    session.check(PODS, body, 422, &causes).await;
}

/// Rules of small kinds.
#[tokio::test]
async fn rules_of_small_kinds() {
    let session = Session::open().await;
    session
        .check(
            "POST /api/v1/namespaces/n/limitranges?dryRun=All",
            r#"{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Pod","default":{"cpu":"1"},
                "defaultRequest":{"cpu":"2"},"max":{"cpu":"1"}}]}}"#,
            422,
            &[
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
                "spec.limits[0].defaultRequest: Forbidden: may not be specified when `type` is 'Pod'",
            ],
        )
        .await;
    session
        .check(
            "POST /apis/policy/v1/namespaces/n/poddisruptionbudgets?dryRun=All",
            r#"{"metadata":{"name":"b"},"spec":{"minAvailable":"1%","maxUnavailable":1}}"#,
            422,
            &["spec: Invalid value: {\"MinAvailable\":\"1%\",\"Selector\":null,\"MaxUnavailable\":1,\
               \"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set"],
        )
        .await;
    session
        .check(
            "POST /apis/storage.k8s.io/v1/storageclasses?dryRun=All",
            r#"{"metadata":{"name":"c"},"provisioner":"a","allowedTopologies":[
                {"matchLabelExpressions":[{"key":"a","values":["b"]},{"key":"a","values":["c"]}]},
                {"matchLabelExpressions":[{"key":"a","values":["b"]}]}]}"#,
            422,
            &["allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: \"a\""],
        )
        .await;
    session
        .check(
            "POST /apis/networking.k8s.io/v1/ingressclasses?dryRun=All",
            r#"{"metadata":{"name":"c"},"spec":{"controller":"a.b/c","parameters":{"apiGroup":"","kind":"K",
                "name":"n"}}}"#,
            422,
            &["spec.parameters.apiGroup: Invalid value: \"\": a lowercase RFC 1123 subdomain must consist of \
               lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
               character (e.g. 'example.com', regex used for validation is \
               '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
        )
        .await;
}

/// A Go struct without JSON names is printed with all of its fields.
#[tokio::test]
async fn messages_format_structs_as_go_does() {
    let session = Session::open().await;
    let set = |strategy: &str| {
        format!(
            r#"{{"metadata":{{"name":"s"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},
                "template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[
                {{"name":"c","image":"i"}}]}}}},"updateStrategy":{strategy}}}}}"#
        )
    };
    let sets = "POST /apis/apps/v1/namespaces/n/statefulsets?dryRun=All";
    let causes = [
        "spec.updateStrategy.rollingUpdate: Invalid value: {\"Partition\":0,\"MaxUnavailable\":null}: \
                   only allowed for updateStrategy 'RollingUpdate'",
    ];
    session.check(sets, &set(r#"{"type":"OnDelete","rollingUpdate":{}}"#), 422, &causes).await;
    let causes =
        ["spec.updateStrategy: Invalid value: {\"Type\":\"x\",\"RollingUpdate\":null}: must be \
                   'RollingUpdate' or 'OnDelete'"];
    session.check(sets, &set(r#"{"type":"x"}"#), 422, &causes).await;
    let body = r#"{"metadata":{"name":"j"},"spec":{"successPolicy":{"rules":[{"succeededCount":1}]},
        "template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}"#;
    let causes = ["spec.successPolicy: Invalid value: {\"Rules\":[{\"SucceededIndexes\":null,\
                   \"SucceededCount\":1}]}: requires indexed completion mode"];
    session.check("POST /apis/batch/v1/namespaces/n/jobs?dryRun=All", body, 422, &causes).await;
    let body = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","securityContext":
        {"privileged":true,"allowPrivilegeEscalation":false,"seLinuxOptions":{"level":"a"}}}]}}"#;
    let causes = [
        "spec.containers[0].securityContext: Invalid value: {\"Capabilities\":null,\"Privileged\":true,\
        \"SELinuxOptions\":{\"User\":\"\",\"Role\":\"\",\"Type\":\"\",\"Level\":\"a\"},\"WindowsOptions\":null,\
        \"RunAsUser\":null,\"RunAsGroup\":null,\"RunAsNonRoot\":null,\"ReadOnlyRootFilesystem\":null,\
        \"AllowPrivilegeEscalation\":false,\"ProcMount\":null,\"SeccompProfile\":null,\"AppArmorProfile\":null}: \
        cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
    ];
    session.check(PODS, body, 422, &causes).await;
}

/// Claim templates of equal names give pods one volume, in the place of the first.
#[tokio::test]
async fn claim_templates_of_a_stateful_set_may_have_equal_names() {
    let session = Session::open().await;
    let set = |names: &[&str], volumes: &str| {
        let claims: Vec<String> = names
            .iter()
            .map(|name| {
                format!(
                    r#"{{"metadata":{{"name":"{name}"}},"spec":{{"accessModes":["ReadWriteOnce"],
                        "resources":{{"requests":{{"storage":"1Gi"}}}}}}}}"#
                )
            })
            .collect();
        format!(
            r#"{{"metadata":{{"name":"s"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},
                "serviceName":"s","volumeClaimTemplates":[{}],"template":{{
                "metadata":{{"labels":{{"a":"b"}}}},"spec":{{"volumes":[{volumes}],
                "containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#,
            claims.join(",")
        )
    };
    let sets = "POST /apis/apps/v1/namespaces/n/statefulsets?dryRun=All";
    let claimed = r#"{"name":"a","emptyDir":{}}"#;
    session.check(sets, &set(&["a", "a"], claimed), 201, &[]).await;
    let twice = r#"{"name":"x","emptyDir":{}},{"name":"x","emptyDir":{}}"#;
    let causes = ["spec.template.spec.volumes[3].name: Duplicate value: \"x\""];
    session.check(sets, &set(&["b", "a", "b"], twice), 422, &causes).await;
}

/// The affinity of a volume may change from the first labels of nodes to those in their place.
#[tokio::test]
async fn labels_of_a_volume_are_brought_up_to_date() {
    let session = Session::open().await;
    let volume = |name: usize, labels: &[&str]| {
        let expressions: Vec<String> = labels
            .iter()
            .map(|label| format!(r#"{{"key":"{label}","operator":"In","values":["v"]}}"#))
            .collect();
        let expressions = expressions.join(",");
        format!(
            r#"{{"metadata":{{"name":"v{name}"}},"spec":{{"accessModes":["ReadWriteOnce"],
                "capacity":{{"storage":"5Gi"}},"local":{{"path":"/l"}},"nodeAffinity":{{"required":{{
                "nodeSelectorTerms":[{{"matchExpressions":[{expressions}]}}]}}}}}}}}"#
        )
    };
    let beta = ["failure-domain.beta.kubernetes.io/zone", "beta.kubernetes.io/os"];
    let now = ["topology.kubernetes.io/zone", "kubernetes.io/os"];
    let volumes = "/api/v1/persistentvolumes";
    for (at, (before, after, code)) in [
        (beta, now, 200),
        (beta, [now[0], beta[1]], 200),
        (beta, [now[1], now[0]], 422),
        (now, beta, 422),
        (["a", "b"], ["a", "c"], 422),
    ]
    .into_iter()
    .enumerate()
    {
        let created = session.send(&format!("POST {volumes}"), &volume(at, &before)).await.0;
        let place = format!("PUT {volumes}/v{at}");
        let updated = session.send(&place, &volume(at, &after)).await.0;
        assert_eq!((created, updated), (201, code), "{before:?} {after:?}");
    }
}

/// No indexes were read, so none of them can succeed.
#[tokio::test]
async fn a_success_policy_with_bad_indexes_has_no_index() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"j"},"spec":{"completionMode":"Indexed","completions":9,
        "successPolicy":{"rules":[{"succeededIndexes":"0,x","succeededCount":1}]},
        "template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}"#;
    let causes = [
        "spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"0,x\": error parsing \
         succeededIndexes: cannot convert string to integer for index: \"x\"",
        "spec.successPolicy.rules[0].succeededCount: Invalid value: 1: must be less than or equal to 0 \
         (the number of indexes in the specified succeededIndexes field)",
    ];
    session.check("POST /apis/batch/v1/namespaces/n/jobs?dryRun=All", body, 422, &causes).await;
}

#[tokio::test]
async fn pods_ask_for_whole_pages_and_fit_projections() {
    let session = Session::open().await;
    let limits = |amounts: &str| {
        format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","image":"i",
                "resources":{{"limits":{{"cpu":"1",{amounts}}}}}}}]}}}}"#
        )
    };
    session.check(PODS, &limits(r#""hugepages-2Mi":"4Mi""#), 201, &[]).await;
    for (name, amount) in [("hugepages-2Mi", "3Mi"), ("hugepages-x", "1"), ("hugepages-1500m", "3")]
    {
        let why = format!(
            "Invalid value: \"{amount}\": {amount} is not positive integer multiple of {name}"
        );
        let places = ["limits", "requests"]
            .map(|list| format!("spec.containers[0].resources.{list}[{name}]: {why}"));
        let causes = places.each_ref().map(String::as_str);
        session.check(PODS, &limits(&format!(r#""{name}":"{amount}""#)), 422, &causes).await;
    }
    let pod = |member: &str| {
        format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","image":"i"}}],{member}}}}}"#
        )
    };
    let projected = |sources: &str| {
        pod(&format!(r#""volumes":[{{"name":"v","projected":{{"sources":[{sources}]}}}}]"#))
    };
    let secret = r#""secret":{"name":"s","items":[{"key":"k","path":"p"}]}"#;
    let map = r#""configMap":{"name":"c","items":[{"key":"k","path":"p"}]}"#;
    let token = r#""serviceAccountToken":{"path":"p"}"#;
    let twice = "spec.volumes[0].projected: Invalid value: \"c\": conflicting duplicate paths";
    let several = "spec.volumes[0].projected.sources[0]: Forbidden: may not specify more than 1 volume type per \
                   source";
    let both = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys[0]: \
                Invalid value: \"x\": exists in both matchLabelKeys and mismatchLabelKeys";
    let term = r#""affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"a",
        "labelSelector":{},"matchLabelKeys":["x"],"mismatchLabelKeys":["x"]}]}}"#;
    for (body, causes) in [
        (projected(&format!("{{{secret}}},{{{map}}}")), vec![twice]),
        (projected(&format!("{{{secret},{map}}}")), vec![twice, several]),
        (projected(&format!("{{{secret}}},{{{token}}}")), vec![]),
        (
            projected(r#"{"serviceAccountToken":{"path":"/a"}}"#),
            vec!["spec.volumes[0].projected.path: Invalid value: \"/a\": must be a relative path"],
        ),
        (pod(term), vec![both]),
        (
            pod(r#""resources":{"limits":{"cpu":"1","x":"1"}}"#),
            vec![
                "spec.resources.limits[x]: Invalid value: \"x\": must be a standard resource type or fully \
                  qualified",
            ],
        ),
    ] {
        let code = if causes.is_empty() { 201 } else { 422 };
        session.check(PODS, &body, code, &causes).await;
    }
}

#[tokio::test]
async fn a_schedule_names_a_zone_that_exists() {
    let session = Session::open().await;
    for (schedule, why) in [
        ("TZ=x * * * * *", Some("provided bad location x: unknown time zone x")),
        ("TZ=../x * * * * *", Some("provided bad location ../x: time: invalid location name")),
        (
            "CRON_TZ=UTC",
            Some("invalid schedule format: runtime error: slice bounds out of range [:-1]"),
        ),
        ("CRON_TZ=UTC * * * * *", None),
    ] {
        let body = format!(
            r#"{{"metadata":{{"name":"c"}},"spec":{{"schedule":"{schedule}","jobTemplate":{{"spec":{{"template":
                {{"spec":{{"restartPolicy":"Never","containers":[{{"name":"c","image":"i"}}]}}}}}}}}}}}}"#
        );
        let place = format!("spec.schedule: Invalid value: \"{schedule}\":");
        let no_zone =
            format!("{place} cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        let why = why.map(|why| format!("{place} {why}"));
        let causes: Vec<&str> = why.as_deref().into_iter().chain([no_zone.as_str()]).collect();
        session
            .check("POST /apis/batch/v1/namespaces/n/cronjobs?dryRun=All", &body, 422, &causes)
            .await;
    }
}

/// Duplicate errors, and the order of two errors.
#[tokio::test]
async fn errors_have_the_count_and_order_of_upstream() {
    let session = Session::open().await;
    let pod = |spec: &str| format!(r#"{{"metadata":{{"name":"Bad"}},"spec":{{{spec}}}}}"#);
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
        '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
        validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let name = format!("metadata.name: Invalid value: \"Bad\": {subdomain}");
    let claim =
        format!("spec.volumes[0].name: Invalid value: \"v\": PVC name \"Bad-v\": {subdomain}");
    let ephemeral = r#""containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v","ephemeral":{"volumeClaimTemplate":
        {"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}}}]"#;
    session.check(PODS, &pod(ephemeral), 422, &[&name, &claim]).await;
    let causes = [
        name.as_str(),
        "spec.containers[0].name: Required value",
        "spec.containers[0].image: Required value",
        "spec.containers[1].name: Required value",
        "spec.containers[1].image: Required value",
        "spec.containers[1].name: Duplicate value: \"\"",
    ];
    session.check(PODS, &pod(r#""containers":[{},{}]"#), 422, &causes).await;
    let seccomp = r#""securityContext":{"seccompProfile":{"type":"x","localhostProfile":"p"}},
        "containers":[{"name":"c","image":"i"}]"#;
    let place = "spec.securityContext.seccompProfile";
    let kind = format!(
        "{place}.type: Unsupported value: \"x\": supported values: \"Localhost\", \"RuntimeDefault\", \
             \"Unconfined\""
    );
    let profile = format!(
        "{place}.localhostProfile: Invalid value: {{\"Type\":\"x\",\"LocalhostProfile\":\"p\"}}: can only \
             be set when seccomp type is Localhost"
    );
    session.check(PODS, &pod(seccomp), 422, &[&name, &kind, &profile]).await;
    let class = "POST /apis/scheduling.k8s.io/v1/priorityclasses?dryRun=All";
    let body = r#"{"metadata":{"name":"c"},"value":1,"preemptionPolicy":""}"#;
    session.check(class, body, 422, &["preemptionPolicy: Required value"]).await;
    let classes = "POST /apis/resource.k8s.io/v1/deviceclasses?dryRun=All";
    let body = r#"{"metadata":{"name":"x","generateName":"a/b"},"spec":{}}"#;
    let causes = ["metadata.generateName: Invalid value: \"a/b\": may not contain '/'"];
    session.check(classes, body, 422, &causes).await;
}

/// Fields that can be written through the status subresource.
#[tokio::test]
async fn rules_of_single_statuses() {
    let session = Session::open().await;
    let nodes = "/api/v1/nodes";
    let claims = "/api/v1/namespaces/n/persistentvolumeclaims";
    let node = |status: &str| format!(r#"{{"metadata":{{"name":"o"}},"status":{status}}}"#);
    session.send(&format!("POST {nodes}"), &node("{}")).await;
    let feature = "invalid feature name \"a\": must start with an UpperCamelCase segment, with subsequent segments \
        separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters \
        and slashes";
    let causes = [
        format!("status.declaredFeatures[0]: Invalid value: \"a\": {feature}"),
        "status.declaredFeatures[1]: Duplicate value: \"a\"".to_owned(),
        format!("status.declaredFeatures[1]: Invalid value: \"a\": {feature}"),
    ];
    let put = format!("PUT {nodes}/o/status");
    session
        .check(
            &put,
            &node(r#"{"declaredFeatures":["a","a"]}"#),
            422,
            &causes.each_ref().map(String::as_str),
        )
        .await;
    let claim = |status: &str| {
        format!(
            r#"{{"metadata":{{"name":"c"}},"spec":{{"accessModes":["ReadWriteOnce"],
                "resources":{{"requests":{{"storage":"1Gi"}}}}}},"status":{status}}}"#
        )
    };
    session.send(&format!("POST {claims}"), &claim("{}")).await;
    let causes =
        ["status.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\""];
    let body = claim(r#"{"allocatedResources":{"cpu":"-1"}}"#);
    session.check(&format!("PUT {claims}/c/status"), &body, 422, &causes).await;
    let services = "/api/v1/namespaces/n/services";
    let service = |points: &str| {
        format!(
            r#"{{"metadata":{{"name":"s"}},"spec":{{"type":"LoadBalancer","ports":[{{"port":80}}]}},
                "status":{{"loadBalancer":{{"ingress":{points}}}}}}}"#
        )
    };
    session.send(&format!("POST {services}"), &service("[]")).await;
    let put = format!("PUT {services}/s/status?dryRun=All");
    session.check(&put, &service(r#"[{"ip":"1.2.3.4"}]"#), 200, &[]).await;
    let causes = [
        "status.loadBalancer.ingress[0].ip: Invalid value: \"010.1.1.1\": must not have leading 0s",
    ];
    session.check(&put, &service(r#"[{"ip":"010.1.1.1"}]"#), 422, &causes).await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims";
    let spec =
        r#""spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}"#;
    session
        .send(&format!("POST {claims}"), &format!(r#"{{"metadata":{{"name":"d"}},{spec}}}"#))
        .await;
    let body = r#"{"metadata":{"name":"d"},"status":{"allocation":{"devices":{"results":[
        {"request":"r","driver":"a.com","pool":"a","device":"d","adminAccess":true}]}}}}"#;
    let causes = [
        "status.allocation.devices.results[0].adminAccess: Forbidden: admin access to devices requires the \
        `resource.kubernetes.io/admin-access: true` label on the containing namespace",
    ];
    session.check(&format!("PUT {claims}/d/status"), body, 422, &causes).await;
    let label = r#"{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}"#;
    session.send("PATCH /api/v1/namespaces/n", label).await;
    session.check(&format!("PUT {claims}/d/status"), body, 200, &[]).await;
    // An allocated claim keeps its admin access when the namespace loses the label.
    session.send("PATCH /api/v1/namespaces/n", &label.replace("\"true\"", "null")).await;
    session.check(&format!("PUT {claims}/d/status"), body, 200, &[]).await;
}

/// An empty struct is written with Go's zero values, which its manager owns.
#[tokio::test]
async fn an_empty_struct_has_owners_of_its_zero_values() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"s"},"spec":{"ordinals":{},"selector":{"matchLabels":{"a":"b"}},
        "template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    let sets = "POST /apis/apps/v1/namespaces/n/statefulsets?dryRun=All";
    let (_, answer) = session.send(sets, body).await;
    let owners = &answer.array_at(&["metadata", "managedFields"])[0];
    let ordinals = owners.at(&["fieldsV1", "f:spec", "f:ordinals"]).map(keelson_meta::status::show);
    assert_eq!(ordinals.as_deref(), Some(r#"{".":{},"f:start":{}}"#));
}

/// An error response has the warnings about the request.
#[tokio::test]
async fn a_conflict_comes_with_its_warnings() {
    let session = Session::open().await;
    let owner = r#"{"apiVersion":"a/v1","kind":"K","name":"n","uid":"u"}"#;
    let body = format!(
        r#"{{"metadata":{{"name":"default","uid":"other","ownerReferences":[{owner},{owner}]}}}}"#
    );
    let registry = &session.harness.registry;
    let target = registry.target("", "serviceaccounts", "n", "default");
    let decoded =
        decode(target.schema(), body.as_bytes(), Format::Json, &|_| true).expect("a body");
    let permit = &session.harness.permit;
    let options = WriteOptions::default();
    let updated = registry.update(permit, &target, Subresource::None, decoded, &options).await;
    let failure = updated.expect_err("the uid is another one");
    assert_eq!(failure.code, 409);
    let told =
        failure.warnings.iter().filter(|told| told.contains("duplicate entries; API server"));
    assert_eq!(told.count(), 1, "{:?}", failure.warnings);
}
