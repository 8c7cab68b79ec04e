//! Lists 1,000 ConfigMaps with a selector of one requirement that none meets, again and again, for
//! callgrind: `list ROUNDS [SELECTOR]`.

use keelson_auth::Permit;
use keelson_meta::selector;
use keelson_registry::options::{Freshness, ListOptions, WriteOptions};
use keelson_registry::{Registry, RegistryOptions, SystemClock};
use keelson_schema::decode::{self, Format};
use keelson_store::Embedded;

const OBJECTS: usize = 1_000;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let labels = arguments.next().unwrap_or_else(|| "app=none".to_owned());
    let registry = open().await;
    let permit = Permit::internal("example");
    let target = registry.target("", "configmaps", "default", "");
    let namespaces = registry.target("", "namespaces", "", "");
    let namespace = br#"{"metadata":{"name":"default"}}"#;
    let body = decode::decode(namespaces.schema(), namespace, Format::Json, &|_| true)
        .expect("the body is valid");
    let _ = registry.create(&permit, &namespaces, body, &WriteOptions::default()).await;
    for number in 0..OBJECTS {
        let body = format!(
            r#"{{"metadata":{{"name":"m{number}","labels":{{"app":"a{number}","tier":"front"}}}}}}"#
        );
        let body = decode::decode(target.schema(), body.as_bytes(), Format::Json, &|_| true)
            .expect("the body is valid");
        let made = registry.create(&permit, &target, body, &WriteOptions::default()).await;
        made.expect("the object is created");
    }
    let options = ListOptions {
        labels: selector::parse(&labels).expect("a selector"),
        fields: Default::default(),
        freshness: Freshness::Any,
        limit: 0,
        continue_from: None,
    };
    for _ in 0..rounds {
        registry.list(&permit, &target, &options).await.expect("a list");
    }
}

/// A server without a network.
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
        dynamic_admission: vec![],
        conversion_webhooks: None,
        authorizer: std::sync::Arc::default(),
    };
    let opened = keelson_builtin::open(Embedded::in_memory(), Box::new(SystemClock), options).await;
    opened.expect("an empty store opens").registry
}
