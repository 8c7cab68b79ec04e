//! Creates one Pod of 2 KB again and again, as dry runs, for callgrind:
//! `create ROUNDS [POLICIES RESOURCE]`. With POLICIES, so many ValidatingAdmissionPolicies for
//! RESOURCE are there: `pods` match, others do not. Prints what a create takes.

#![allow(clippy::print_stdout)]

use keelson_admission::policies::{MutatingPolicies, ValidatingPolicies};
use keelson_auth::{Attributes, MASTERS, Permit, User};
use keelson_registry::options::WriteOptions;
use keelson_registry::{Registry, RegistryOptions, SystemClock};
use keelson_schema::decode::{self, Format};
use keelson_store::Embedded;
use std::io::Write;

const POD: &[u8] = include_bytes!("../../schema/examples/pod.json");

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let registry = open().await;
    let permit = Permit::internal("example");
    let make = |resource: &str, namespace: &str, body: &'static str| {
        let target = registry.target("", resource, namespace, "");
        let body = decode::decode(target.schema(), body.as_bytes(), Format::Json, &|_| true);
        (target, body.expect("the body is valid"))
    };
    let parsed = keelson_schema::json::parse(POD).expect("the Pod is JSON").value;
    let namespace = parsed.str_at(&["metadata", "namespace"]).unwrap_or("default").to_owned();
    let account = parsed.str_at(&["spec", "serviceAccountName"]).unwrap_or("default");
    let options = WriteOptions::default();
    let name = format!("{{\"metadata\":{{\"name\":\"{namespace}\"}}}}").leak();
    let (target, body) = make("namespaces", "", name);
    let _ = registry.create(&permit, &target, body, &options).await;
    let name = format!("{{\"metadata\":{{\"name\":\"{account}\"}}}}").leak();
    let (target, body) = make("serviceaccounts", &namespace, name);
    let _ = registry.create(&permit, &target, body, &options).await;
    let policies: usize = std::env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(0);
    let resource = std::env::args().nth(3).unwrap_or_default();
    for number in 0..policies {
        for (plural, body) in policy(number, &resource) {
            let target = registry.target("admissionregistration.k8s.io", plural, "", "");
            let body = decode::decode(target.schema(), body.as_bytes(), Format::Json, &|_| true)
                .expect("the policy is valid");
            registry.create(&permit, &target, body, &options).await.expect("a policy is made");
        }
    }
    let target = registry.target("", "pods", &namespace, "");
    let options = WriteOptions { dry_run: true, ..options };
    // The server's own writes pass no policy.
    let asked = Attributes {
        verb: "create".into(),
        gvr: target.gvr().clone(),
        namespace: target.namespace.clone(),
        ..Attributes::default()
    };
    let authorizer = registry.options.authorizer.clone();
    let permit = authorizer
        .authorize(User::default().with_group(MASTERS), asked)
        .await
        .expect("an administrator may");
    let mut created = 0;
    let begin = std::time::Instant::now();
    for _ in 0..rounds {
        let mut body =
            decode::decode(target.schema(), POD, Format::Json, &|_| true).expect("valid");
        for name in ["resourceVersion", "uid", "creationTimestamp", "managedFields"] {
            body.object.metadata_mut().remove(name);
        }
        let answer = registry.create(&permit, &target, body, &options).await;
        if let Err(failure) = &answer {
            panic!("{}", failure.message);
        }
        created += usize::from(answer.is_ok());
    }
    assert_eq!(created, rounds);
    let each = begin.elapsed() / u32::try_from(rounds.max(1)).unwrap_or(1);
    let line = format!("{each:?} a create with {policies} policies for {resource:?}\n");
    std::io::stdout().write_all(line.as_bytes()).expect("standard output is there");
}

/// A server without a network, whose policies act.
async fn open() -> std::sync::Arc<Registry> {
    let options = RegistryOptions {
        service_ranges: vec!["10.0.0.0/24".into()],
        node_ports: Default::default(),
        kubernetes_node_port: None,
        node_address_types: vec![],
        advertise_address: [192, 0, 2, 1].into(),
        advertise_port: 6443,
        publishes_endpoint: true,
        runtime_config: vec![],
        features: keelson_meta::Features::default(),
        allows_privileged: true,
        garbage_collection: true,
        fairness: true,
        event_ttl: std::time::Duration::ZERO,
        other_stores: vec![],
        simulated_nodes: None,
        admission: keelson_admission::Chain::default(),
        dynamic_admission: vec![
            std::sync::Arc::new(MutatingPolicies),
            std::sync::Arc::new(ValidatingPolicies),
        ],
        conversion_webhooks: None,
        authorizer: std::sync::Arc::default(),
    };
    let opened = keelson_builtin::open(Embedded::in_memory(), Box::new(SystemClock), options).await;
    opened.expect("an empty store opens").registry
}

/// A policy and its binding, each with its resource.
fn policy(number: usize, resource: &str) -> [(&'static str, String); 2] {
    let name = format!("{{\"name\":\"p{number}\"}}");
    let rule = format!(
        "{{\"apiGroups\":[\"\"],\"apiVersions\":[\"v1\"],\"operations\":[\"CREATE\",\"UPDATE\"],\
         \"resources\":[\"{resource}\"]}}"
    );
    let expression = "object.spec.containers.all(c, !c.image.endsWith(':latest'))";
    let policy = format!(
        "{{\"metadata\":{name},\"spec\":{{\"matchConstraints\":{{\"resourceRules\":[{rule}]}},\
         \"validations\":[{{\"expression\":\"{expression}\"}}]}}}}"
    );
    let binding = format!(
        "{{\"metadata\":{name},\"spec\":{{\"policyName\":\"p{number}\",\"validationActions\":[\"Deny\"]}}}}"
    );
    [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
}
