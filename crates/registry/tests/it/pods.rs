//! Rules of Pods: annotations, and subresources that write a part of the Pod.

use crate::harness;
use crate::rules::Session;

/// Patches a subresource of the Pod `/api/v1/namespaces/n/pods/p` with JSON patches and checks the
/// causes.
async fn check_subresource(pod: &str, subresource: &str, cases: &[(&str, &[&str])]) {
    let session = Session::open().await;
    session.check("POST /api/v1/namespaces/n/pods", pod, 201, &[]).await;
    let path = format!("/api/v1/namespaces/n/pods/p/{subresource}?dryRun=All");
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
    check_subresource(pod, "resize", cases).await;
    let windows = pod.replace(r#""spec":{"#, r#""spec":{"os":{"name":"windows"},"#);
    let patch = r#"[{"op":"add","path":"/spec/containers/0/resources/requests/cpu","value":"1"}]"#;
    let refused: &[&str] = &["[]: Forbidden: windows pods cannot be resized"];
    check_subresource(&windows, "resize", &[(patch, refused)]).await;
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
    check_subresource(pod, "ephemeralcontainers", &cases).await;

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

#[tokio::test]
async fn annotations_of_pods_and_templates_are_checked() {
    let session = Session::open().await;
    let check = async |annotation: &str, value: &str, place: &str, fault: &str| {
        let meta = format!(r#""annotations":{{"{annotation}":"{value}"}}"#);
        let spec = r#""spec":{"containers":[{"name":"c","image":"i",
            "securityContext":{"appArmorProfile":{"type":"Unconfined"}}}]}"#;
        let pod = format!(r#"{{"metadata":{{"name":"p",{meta}}},{spec}}}"#);
        let deployment = format!(
            r#"{{"metadata":{{"name":"d"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},
                "template":{{"metadata":{{"labels":{{"a":"b"}},{meta}}},{spec}}}}}}}"#
        );
        let path = "POST /api/v1/namespaces/n/pods?dryRun=All";
        let in_pod = if place.starts_with("spec") { "" } else { "metadata." };
        session.check(path, &pod, 422, &[&format!("{in_pod}{place}: {fault}")]).await;
        let path = "POST /apis/apps/v1/namespaces/n/deployments?dryRun=All";
        session.check(path, &deployment, 422, &[&format!("spec.template.{place}: {fault}")]).await;
    };
    for (annotation, value, place, fault) in [
        (
            "kubernetes.io/config.mirror",
            "x",
            "annotations[kubernetes.io/config.mirror]",
            "Invalid value: \"x\": must set spec.nodeName if mirror pod annotation is set",
        ),
        (
            "controller.kubernetes.io/pod-deletion-cost",
            "+1",
            "annotations[controller.kubernetes.io/pod-deletion-cost]",
            "Invalid value: \"+1\": must be a 32bit integer",
        ),
        (
            "seccomp.security.alpha.kubernetes.io/pod",
            "localhost/../x",
            "annotations.seccomp.security.alpha.kubernetes.io/pod",
            "Invalid value: \"../x\": must not contain '..'",
        ),
        (
            "container.seccomp.security.alpha.kubernetes.io/c",
            "x",
            "annotations.container.seccomp.security.alpha.kubernetes.io/c",
            "Invalid value: \"x\": must be a valid seccomp profile",
        ),
        (
            "scheduler.alpha.kubernetes.io/tolerations",
            "x",
            "annotations",
            "Invalid value: \"scheduler.alpha.kubernetes.io/tolerations\": invalid character 'x' \
             looking for beginning of value",
        ),
        (
            "container.apparmor.security.beta.kubernetes.io/x",
            "unconfined",
            "annotations[container.apparmor.security.beta.kubernetes.io/x]",
            "Invalid value: \"x\": container not found",
        ),
        (
            "container.apparmor.security.beta.kubernetes.io/c",
            "runtime/default",
            "spec.containers[0].securityContext.appArmorProfile.type",
            "Forbidden: apparmor type in annotation and field must match",
        ),
    ] {
        check(annotation, value, place, fault).await;
    }
}

#[tokio::test]
async fn a_pod_keeps_its_profiles_and_stays_a_mirror_pod() {
    const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/c";
    const MIRROR: &str = "kubernetes.io/config.mirror";
    let session = Session::open().await;
    let spec = r#""spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}"#;
    let plain = format!(r#"{{"metadata":{{"name":"plain"}},{spec}}}"#);
    let noted = format!(
        r#"{{"metadata":{{"name":"noted","annotations":{{"{APPARMOR}":"unconfined","{MIRROR}":"x"}}}},
            {spec}}}"#
    );
    for pod in [&plain, &noted] {
        session.check("POST /api/v1/namespaces/n/pods", pod, 201, &[]).await;
    }
    for (name, annotation, value, fault) in [
        ("plain", APPARMOR, "\"unconfined\"", "may not add AppArmor annotations"),
        ("plain", MIRROR, "\"x\"", "may not add mirror pod annotation"),
        ("noted", APPARMOR, "null", "may not remove or update AppArmor annotations"),
        ("noted", MIRROR, "\"y\"", "may not remove or update mirror pod annotation"),
    ] {
        let path = format!("PATCH /api/v1/namespaces/n/pods/{name}");
        let patch = format!(r#"{{"metadata":{{"annotations":{{"{annotation}":{value}}}}}}}"#);
        let cause = format!("metadata.annotations[{annotation}]: Forbidden: {fault}");
        session.check(&path, &patch, 422, &[&cause]).await;
    }
}
