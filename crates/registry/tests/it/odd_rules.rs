//! Tables of rarely used rules: a request, the status code and the causes.

use crate::rules::Session;

/// A request, the status code, and the causes, of which long ones are given by their start.
type Row = (&'static str, &'static str, u16, &'static [&'static str]);

async fn check(session: &Session, rows: &[Row]) {
    for (request, body, code, causes) in rows {
        let (got, answer) = session.send(request, body).await;
        let found = crate::harness::causes(&answer);
        assert_eq!(found.len(), causes.len(), "{request} {body}: {found:?}");
        for (found, want) in found.iter().zip(*causes) {
            assert!(found.starts_with(want), "{request} {body}: {found} instead of {want}");
        }
        assert_eq!(got, *code, "{request} {body}: {answer:?}");
    }
}

/// A Pod, or a Pod template, whose spec has these fields and one container.
fn pod(members: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","image":"i"}}],{members}}}}}"#
    )
}

const PODS: &str = "POST /api/v1/namespaces/n/pods?dryRun=All";
const TEMPLATE: &str = r#""template":{"metadata":{"labels":{"a":"b"}},
    "spec":{"containers":[{"name":"c","image":"i"}]}}"#;

#[tokio::test]
async fn volume_errors_have_the_field_paths_of_upstream() {
    let session = Session::open().await;
    for (members, want) in [
        (
            r#""volumes":[{"name":"v","gcePersistentDisk":{"pdName":"","partition":300}}]"#,
            &[
                "spec.volumes[0].persistentDisk.pdName: Required value",
                "spec.volumes[0].persistentDisk.partition: Invalid value: 300: must be between 1 \
                 and 255, inclusive",
            ][..],
        ),
        (
            r#""volumes":[{"name":"v","awsElasticBlockStore":{"volumeID":"a","partition":-1}}]"#,
            &[
                "spec.volumes[0].awsElasticBlockStore.partition: Invalid value: -1: must be between 1 \
               and 255, inclusive",
            ],
        ),
        (r#""volumes":[{"name":"v","awsElasticBlockStore":{"volumeID":"a"}}]"#, &[]),
        (
            r#""volumes":[{"name":"v","downwardAPI":{"items":[{"path":"l","fieldRef":{}},{}]}}]"#,
            &[
                "spec.volumes[0].downwardAPI.fieldRef.fieldPath: Required value",
                "spec.volumes[0].downwardAPI.path: Required value",
                "spec.volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef \
                 is required",
            ],
        ),
        (
            r#""hostnameOverride":"A","nodeName":"../a""#,
            &[
                "spec.hostnameOverride: Invalid value: \"A\"",
                "spec.nodeName: Invalid value: \"../a\"",
            ],
        ),
        (
            r#""initContainers":[{"name":"i","image":"i","resources":{"claims":[{}]},
                "restartPolicyRules":[{"action":"X"}]}]"#,
            &[
                "spec.initContainers[0].resources.claims[0]: Required value",
                "spec.initContainers[0].restartPolicy: Required value: must specify restartPolicy",
            ],
        ),
    ] {
        let code = if want.is_empty() { 201 } else { 422 };
        let (got, answer) = session.send(PODS, &pod(members)).await;
        let found = crate::harness::causes(&answer);
        assert_eq!(found.len(), want.len(), "{members}: {found:?}");
        assert!(found.iter().zip(want).all(|(found, want)| found.starts_with(want)), "{found:?}");
        assert_eq!(got, code, "{members}");
    }
}

#[tokio::test]
async fn an_empty_struct_is_not_an_absent_one() {
    const PLACE: &str = "PATCH /api/v1/namespaces/n/pods/p?dryRun=All";
    const CHANGED: &str = "spec: Forbidden: pod updates may not change fields other than";
    const CLAIM: &str = r#"{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],
        "resources":{"requests":{"storage":"1Gi"}}}}"#;
    const VOLUME: &str = r#"{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],
        "capacity":{"storage":"1Gi"},"rbd":{"image":"i","monitors":["m"]}}}"#;
    let session = Session::open().await;
    let made = pod(r#""restartPolicy":"Never""#);
    session.check("POST /api/v1/namespaces/n/pods", &made, 201, &[]).await;
    session.check("POST /api/v1/namespaces/n/persistentvolumeclaims", CLAIM, 201, &[]).await;
    session.check("POST /api/v1/persistentvolumes", VOLUME, 201, &[]).await;
    let sets = |name: &str, rest: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},
                {TEMPLATE}{rest}}}}}"#
        )
    };
    let apps = "/apis/apps/v1/namespaces/n";
    session.check(&format!("POST {apps}/daemonsets"), &sets("d", ""), 201, &[]).await;
    session.check(&format!("POST {apps}/statefulsets"), &sets("s", ""), 201, &[]).await;
    check(
        &session,
        &[
            (PLACE, r#"{"spec":{"affinity":{}}}"#, 422, &[CHANGED]),
            (PLACE, r#"{"spec":{"nodeSelector":{},"hostAliases":[]}}"#, 200, &[]),
            (
                "PATCH /api/v1/namespaces/n/persistentvolumeclaims/c?dryRun=All",
                r#"{"spec":{"selector":{}}}"#,
                422,
                &["spec: Forbidden: spec is immutable after creation"],
            ),
            (
                "PATCH /api/v1/persistentvolumes/v?dryRun=All",
                r#"{"spec":{"rbd":{"readOnly":false}}}"#,
                200,
                &[],
            ),
            (
                "PATCH /api/v1/persistentvolumes/v?dryRun=All",
                r#"{"spec":{"rbd":{"secretRef":{}}}}"#,
                422,
                &["spec.persistentvolumesource: Forbidden"],
            ),
            (
                "PATCH /apis/apps/v1/namespaces/n/statefulsets/s?dryRun=All",
                r#"{"spec":{"serviceName":null}}"#,
                200,
                &[],
            ),
        ],
    )
    .await;
    let template = r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i",
        "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",
        "imagePullPolicy":"Always","resources":{}LIFECYCLE}]}}}}"#;
    let generation = ["metadata", "annotations", "deprecated.daemonset.template.generation"];
    for (lifecycle, want) in [("", "\"1\""), (r#","lifecycle":{}"#, "\"2\"")] {
        let body = template.replace("LIFECYCLE", lifecycle);
        let place = format!("PATCH {apps}/daemonsets/d?dryRun=All");
        session.check_at(&place, &body, &generation, want).await;
    }
}

#[tokio::test]
async fn invalid_percentages_count_as_zero() {
    let session = Session::open().await;
    const DAEMONS: &str = "POST /apis/apps/v1/namespaces/n/daemonsets?dryRun=All";
    let daemons = |update: &str| {
        format!(
            r#"{{"metadata":{{"name":"d"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},
                {TEMPLATE},"updateStrategy":{{"rollingUpdate":{update}}}}}}}"#
        )
    };
    let percent = "a valid percent string must be a numeric string followed by an ending '%'";
    for (update, want) in [
        (r#"{"maxSurge":"-1%"}"#, vec![format!("maxSurge: Invalid value: \"-1%\": {percent}")]),
        (
            r#"{"maxSurge":"200%"}"#,
            vec![
                "maxSurge: Invalid value: \"200%\": must not be greater than 100%".to_owned(),
                "maxSurge: Invalid value: \"200%\": may not be set when maxUnavailable".to_owned(),
            ],
        ),
        (
            r#"{"maxUnavailable":"-1%"}"#,
            vec![
                format!("maxUnavailable: Invalid value: \"-1%\": {percent}"),
                "maxUnavailable: Required value: cannot be 0 when maxSurge is 0".to_owned(),
            ],
        ),
    ] {
        let (_, answer) = session.send(DAEMONS, &daemons(update)).await;
        let found = crate::harness::causes(&answer);
        assert_eq!(found.len(), want.len(), "{found:?}");
        let place = "spec.updateStrategy.rollingUpdate.";
        let fits = |(found, want): (&String, &String)| found.starts_with(&format!("{place}{want}"));
        assert!(found.iter().zip(&want).all(fits), "{found:?}");
    }
}

#[tokio::test]
async fn odd_values_of_sets_nodes_and_paths() {
    let session = Session::open().await;
    let keeps_all = format!(
        r#"{{"metadata":{{"name":"s"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},{TEMPLATE},
            "revisionHistoryLimit":-1}}}}"#
    );
    let sets = "POST /apis/apps/v1/namespaces/n/statefulsets?dryRun=All";
    session.check(sets, &keeps_all, 201, &[]).await;
    check(
        &session,
        &[
            (
                "POST /api/v1/nodes?dryRun=All",
                r#"{"metadata":{"name":"x"},"status":{"capacity":{"a":"-1"}}}"#,
                422,
                &["status.capacity.a: Invalid value", "status.allocatable.a: Invalid value"],
            ),
            (
                "POST /apis/batch/v1/namespaces/n/jobs?dryRun=All",
                r#"{"metadata":{"name":"j"},"spec":{"podFailurePolicy":{"rules":[{"onPodConditions":[
                    {"type":"a","status":"True"}]}]},"template":{"spec":{"restartPolicy":"Never",
                    "containers":[{"name":"c","image":"i"}]}}}}"#,
                422,
                &["spec.podFailurePolicy.rules[0].action: Required value: valid values: [\"Count\" \
                   \"FailIndex\" \"FailJob\" \"Ignore\"]"],
            ),
            (
                "POST /apis/storage.k8s.io/v1/storageclasses?dryRun=All",
                r#"{"metadata":{"name":"s"},"provisioner":"a.b/c","reclaimPolicy":""}"#,
                201,
                &[],
            ),
            (
                "POST /apis/networking.k8s.io/v1/namespaces/n/ingresses?dryRun=All",
                r#"{"metadata":{"name":"i"},"spec":{"rules":[{"http":{"paths":[{"path":"/"}]}}]}}"#,
                422,
                &["spec.rules[0].http.paths[0].pathType: Required value"],
            ),
            (
                "POST /apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations?dryRun=All",
                r#"{"metadata":{"name":"l"},"spec":{"type":"Limited","limited":{"limitResponse":{
                    "type":"Queue","queuing":{"queues":2147483647}}}}}"#,
                422,
                &[
                    "spec.limited.limitResponse.queuing.queues: Invalid value",
                    "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required \
                     entropy bits of deckSize 2147483647",
                ],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn hosts_of_slices_have_a_domain() {
    const SLICES: &str = "POST /apis/discovery.k8s.io/v1/namespaces/n/endpointslices?dryRun=All";
    let session = Session::open().await;
    for (host, want) in [
        ("a.b.", vec![]),
        ("a.", vec!["Invalid value: \"a\": should be a domain with at least two segments"]),
        ("", vec!["Required value"]),
        ("a..b", vec!["Invalid value: \"a..b\": a lowercase RFC 1123 subdomain"]),
    ] {
        let body = format!(
            r#"{{"metadata":{{"name":"s"}},"addressType":"FQDN","endpoints":[{{"addresses":["{host}"]}}]}}"#
        );
        let (_, answer) = session.send(SLICES, &body).await;
        let found = crate::harness::causes(&answer);
        assert_eq!(found.len(), want.len(), "{host}: {found:?}");
        let place = "endpoints[0].addresses[0]: ";
        let fits = |(found, want): (&String, &&str)| found.starts_with(&format!("{place}{want}"));
        assert!(found.iter().zip(&want).all(fits), "{host}: {found:?}");
    }
}

#[tokio::test]
async fn admin_access_errors_are_reported_with_other_errors() {
    let session = Session::open().await;
    const CLAIMS: &str = "POST /apis/resource.k8s.io/v1/namespaces/n/resourceclaims?dryRun=All";
    const TEMPLATES: &str =
        "POST /apis/resource.k8s.io/v1/namespaces/n/resourceclaimtemplates?dryRun=All";
    const FORBIDDEN: &str = "spec.devices.requests[1].adminAccess: Forbidden: admin access to \
                             devices requires the `resource.kubernetes.io/admin-access: true` label";
    let spec = r#"{"devices":{"requests":[{"name":"A b","exactly":{"deviceClassName":"c"}},
        {"name":"b","exactly":{"deviceClassName":"c","adminAccess":true}}]}}"#;
    let claim = format!(r#"{{"metadata":{{"name":"c"}},"spec":{spec}}}"#);
    let template = format!(r#"{{"metadata":{{"name":"c"}},"spec":{{"spec":{spec}}}}}"#);
    let expect = async |request: &str, body: &str, want: &[&str]| {
        let (_, answer) = session.send(request, body).await;
        let found = crate::harness::causes(&answer);
        assert_eq!(found.len(), want.len(), "{found:?}");
        assert!(found.iter().zip(want).all(|(found, want)| found.starts_with(want)), "{found:?}");
    };
    expect(CLAIMS, &claim, &[FORBIDDEN, "spec.devices.requests[0].name: Invalid value"]).await;
    let name = "spec.spec.devices.requests[0].name: Invalid value";
    expect(TEMPLATES, &template, &[FORBIDDEN, name]).await;
    let labels = r#"{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}"#;
    session.check("PATCH /api/v1/namespaces/n", labels, 200, &[]).await;
    expect(CLAIMS, &claim, &["spec.devices.requests[0].name: Invalid value"]).await;
}

#[tokio::test]
async fn bytes_may_be_a_list_of_numbers() {
    const SECRETS: &str = "POST /api/v1/namespaces/n/secrets?dryRun=All";
    let session = Session::open().await;
    let secret = |data: &str| format!(r#"{{"metadata":{{"name":"s"}},"data":{{"a":{data}}}}}"#);
    for (data, want) in [("[1,2,null]", "\"AQIA\""), ("[]", "\"\"")] {
        session.check_at(SECRETS, &secret(data), &["data", "a"], want).await;
    }
    for (data, given) in [("[256]", "number 256"), ("[{}]", "object"), ("[\"a\"]", "string")] {
        let want = format!(
            "\"Secret in version \\\"v1\\\" cannot be handled as a Secret: json: cannot unmarshal {given} \
             into Go struct field Secret.data of type uint8\""
        );
        session.check_at(SECRETS, &secret(data), &["message"], &want).await;
    }
}

#[tokio::test]
async fn a_claim_forgets_the_devices_that_it_has_no_longer() {
    let session = Session::open().await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims";
    let spec =
        r#""spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}"#;
    let claim = format!(r#"{{"metadata":{{"name":"d"}},{spec}}}"#);
    session.check(&format!("POST {claims}"), &claim, 201, &[]).await;
    let device = |name: &str| format!(r#""driver":"a.com","pool":"p","device":"{name}""#);
    let result = |name: &str| format!(r#"{{"request":"r",{}}}"#, device(name));
    let body = format!(
        r#"{{"status":{{"allocation":{{"devices":{{"results":[{},{}]}}}},
            "devices":[{{{}}},{{{}}}]}}}}"#,
        result("a"),
        result("b"),
        device("a"),
        device("b")
    );
    let status = format!("PATCH {claims}/d/status");
    session.check(&status, &body, 200, &[]).await;
    // Who deallocates does not name what drivers said.
    let deallocated = r#"{"status":{"allocation":null}}"#;
    session.check(&status, deallocated, 200, &[]).await;
    session.check_at(&format!("GET {claims}/d"), "", &["status", "devices"], "").await;
    let foreign = format!(r#"{{"status":{{"devices":[{{{}}}]}}}}"#, device("c"));
    let causes = [
        "status.devices[0]: Invalid value: {\"Driver\":\"a.com\",\"Pool\":\"p\",\"Device\":\"c\",\
         \"ShareID\":\"\"}: must be an allocated device in the claim",
    ];
    session.check(&status, &foreign, 422, &causes).await;
}

#[tokio::test]
async fn a_strategy_of_an_unknown_type_is_shown_whole() {
    let session = Session::open().await;
    let place = "POST /apis/apps/v1/namespaces/n/deployments?dryRun=All";
    for (rolling, shown) in [
        (r#","rollingUpdate":{"maxSurge":1}"#, r#"{"MaxUnavailable":0,"MaxSurge":1}"#),
        ("", "null"),
    ] {
        let body = format!(
            r#"{{"metadata":{{"name":"d"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},
                "strategy":{{"type":"X"{rolling}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},
                "spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
        );
        let cause = format!(
            "spec.strategy: Unsupported value: {{\"Type\":\"X\",\"RollingUpdate\":{shown}}}: supported \
             values: \"Recreate\", \"RollingUpdate\""
        );
        session.check(place, &body, 422, &[&cause]).await;
    }
}

#[tokio::test]
async fn selectors_are_shown_as_go_writes_them() {
    let session = Session::open().await;
    let place = "POST /apis/apps/v1/namespaces/n/deployments?dryRun=All";
    for (selector, shown, why) in [
        (
            r#"{"matchLabels":{},"matchExpressions":[]}"#,
            "{}",
            "empty selector is invalid for deployment",
        ),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"X","values":[]}],"matchLabels":{"a":"b"}}"#,
            r#"{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"X"}]}"#,
            "invalid label selector",
        ),
    ] {
        let body = format!(
            r#"{{"metadata":{{"name":"d"}},"spec":{{"selector":{selector},"template":{{
                "metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
        );
        let (_, answer) = session.send(place, &body).await;
        let want = format!("spec.selector: Invalid value: {shown}: {why}");
        let message = answer.str_at(&["message"]).unwrap_or_default();
        assert!(message.contains(&want), "{message}");
    }
}

#[tokio::test]
async fn init_containers_without_names_are_no_duplicates() {
    let session = Session::open().await;
    let body = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"d","image":"i"}],
        "initContainers":[{"image":"i"},{"image":"i"}]}}"#;
    let causes = [
        "spec.initContainers[0].name: Required value",
        "spec.initContainers[1].name: Required value",
    ];
    session.check("POST /api/v1/namespaces/n/pods?dryRun=All", body, 422, &causes).await;
}

#[tokio::test]
async fn a_data_source_stays_with_its_manager() {
    let session = Session::open().await;
    let claims = "/api/v1/namespaces/n/persistentvolumeclaims";
    let body = r#"{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],
        "resources":{"requests":{"storage":"1Gi"}},
        "dataSource":{"kind":"PersistentVolumeClaim","name":"x"}}}"#;
    session.check(&format!("POST {claims}?fieldManager=a"), body, 201, &[]).await;
    let label = r#"{"metadata":{"labels":{"x":"y"}}}"#;
    let (_, patched) = session.send(&format!("PATCH {claims}/c?fieldManager=b"), label).await;
    let managers = patched.array_at(&["metadata", "managedFields"]);
    let owners: Vec<&str> = managers
        .iter()
        .filter(|entry| entry.at(&["fieldsV1", "f:spec", "f:dataSource"]).is_some())
        .filter_map(|entry| entry.str_at(&["manager"]))
        .collect();
    assert_eq!(owners, ["a"]);
}
