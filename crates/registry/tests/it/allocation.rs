//! Allocation and release of addresses and node ports of services.

use crate::harness::{self, Harness};
use keelson_builtin::PortLeaks;
use keelson_meta::{Object, Value, value};
use keelson_registry::options::WriteOptions;
use keelson_registry::{RegistryOptions, SystemClock};
use keelson_schema::decode::Decoded;
use keelson_store::Embedded;
use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn create(harness: &Harness, name: &str, query: &str, spec: &str) -> (u16, Value) {
    let body = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{spec}}}"#);
    let path = format!("{SERVICES}{query}");
    harness.send("POST", &path, "", body.as_bytes()).await.expect("an answer")
}

async fn code_of(harness: &Harness, method: &str, path: &str) -> u16 {
    harness.send(method, path, "", b"").await.expect("an answer").0
}

fn address(service: &Value) -> String {
    service.str_at(&["spec", "clusterIP"]).unwrap_or_default().to_owned()
}

fn node_port(service: &Value) -> i64 {
    let ports = service.array_at(&["spec", "ports"]);
    ports.first().and_then(|port| port.int_at(&["nodePort"])).unwrap_or(0)
}

#[tokio::test]
async fn an_ip_address_object_exists_until_its_service_is_deleted() {
    let harness = Harness::open().await;
    let (code, service) = create(&harness, "a", "", r#"{"ports":[{"port":80}]}"#).await;
    assert_eq!(code, 201, "{service:?}");
    let given = address(&service);
    let number: u32 = given.strip_prefix("10.0.0.").and_then(|n| n.parse().ok()).expect("in range");
    assert!((17..=254).contains(&number), "{given}: the first sixteen are given last");
    let held = format!("/apis/networking.k8s.io/v1/ipaddresses/{given}");
    let (code, object) = harness.send("GET", &held, "", b"").await.expect("an answer");
    assert_eq!(code, 200);
    assert_eq!(object.str_at(&["spec", "parentRef", "name"]), Some("a"));

    let spec = format!(r#"{{"clusterIP":"{given}","ports":[{{"port":80}}]}}"#);
    let (code, refused) = create(&harness, "b", "", &spec).await;
    let why = format!(
        "spec.clusterIPs: Invalid value: [\"{given}\"]: failed to allocate IP {given}: provided IP \
         is already allocated"
    );
    assert_eq!((code, harness::causes(&refused)), (422, vec![why]));

    assert_eq!(code_of(&harness, "DELETE", &format!("{SERVICES}/a")).await, 200);
    assert_eq!(code_of(&harness, "GET", &held).await, 404);
    assert_eq!(create(&harness, "b", "", &spec).await.0, 201);
}

#[tokio::test]
async fn endpoints_are_deleted_with_their_service() {
    let harness = Harness::open().await;
    let endpoints = "/api/v1/namespaces/default/endpoints";
    for name in ["a", "b"] {
        let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        let (code, _) =
            harness.send("POST", endpoints, "", body.as_bytes()).await.expect("an answer");
        assert_eq!(code, 201);
        assert_eq!(create(&harness, name, "", r#"{"ports":[{"port":80}]}"#).await.0, 201);
    }
    let dry = br#"{"dryRun":["All"]}"#;
    let (code, _) =
        harness.send("DELETE", &format!("{SERVICES}/a"), "", dry).await.expect("an answer");
    assert_eq!(code, 200);
    assert_eq!(code_of(&harness, "GET", &format!("{endpoints}/a")).await, 200);
    assert_eq!(code_of(&harness, "DELETE", &format!("{SERVICES}/a")).await, 200);
    assert_eq!(code_of(&harness, "GET", &format!("{endpoints}/a")).await, 404);
    assert_eq!(code_of(&harness, "GET", &format!("{endpoints}/b")).await, 200);
}

/// Upstream drops the port with the policy that needed it, and frees it.
#[tokio::test]
async fn a_service_that_needs_no_health_check_gives_up_its_port() {
    let harness = Harness::open().await;
    let local = r#"{"type":"LoadBalancer","externalTrafficPolicy":"Local","ports":[{"port":80}]}"#;
    let (code, service) = create(&harness, "a", "", local).await;
    assert_eq!(code, 201, "{service:?}");
    let port = service.int_at(&["spec", "healthCheckNodePort"]).expect("a port");
    let merge = "application/merge-patch+json";
    let patch = async |spec: &str| {
        let body = format!(r#"{{"spec":{spec}}}"#);
        let path = format!("{SERVICES}/a");
        harness.send("PATCH", &path, merge, body.as_bytes()).await.expect("an answer")
    };
    let (code, service) = patch(r#"{"externalTrafficPolicy":"Cluster"}"#).await;
    assert_eq!((code, service.at(&["spec", "healthCheckNodePort"])), (200, None), "{service:?}");
    let again = format!(r#"{{"externalTrafficPolicy":"Local","healthCheckNodePort":{port}}}"#);
    let (code, service) = patch(&again).await;
    assert_eq!(code, 200, "{service:?}");
    // A port that is changed too is an error.
    let other = r#"{"externalTrafficPolicy":"Cluster","healthCheckNodePort":30999}"#;
    let (code, refused) = patch(other).await;
    let why = "spec.healthCheckNodePort: Invalid value: 30999: may only be set when `type` is \
               'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
    assert_eq!((code, harness::causes(&refused)), (422, vec![why.to_owned()]));
}

/// `--service-node-port-range`: ports are allocated from it, others are rejected, and allocations
/// of a previous range are kept if they fit.
#[tokio::test]
async fn node_ports_come_from_the_configured_range() {
    let store = Embedded::in_memory();
    let open = |range: &str| {
        let range = range.parse().expect("a range");
        Harness::with_ports(store.clone(), Box::new(SystemClock), range)
    };
    let node =
        |port: u16| format!(r#"{{"type":"NodePort","ports":[{{"port":80,"nodePort":{port}}}]}}"#);
    let any = r#"{"type":"NodePort","ports":[{"port":80}]}"#;
    let outside = |port: u16, range: &str| {
        vec![format!(
            "spec.ports[0].nodePort: Invalid value: {port}: provided port is not in the valid range. \
             The range of valid ports is {range}"
        )]
    };
    let harness = open("20000-20001").await;
    let (code, refused) = create(&harness, "a", "", &node(30_000)).await;
    assert_eq!((code, harness::causes(&refused)), (422, outside(30_000, "20000-20001")));
    let mut given = vec![];
    for name in ["a", "b"] {
        let (code, service) = create(&harness, name, "", any).await;
        assert_eq!(code, 201, "{service:?}");
        given.push(node_port(&service));
    }
    given.sort_unstable();
    assert_eq!(given, [20_000, 20_001]);
    let (code, full) = create(&harness, "c", "", any).await;
    assert_eq!(
        (code, full.str_at(&["message"]).map(|m| m.contains("range is full"))),
        (500, Some(true))
    );

    let harness = open("20001+10").await;
    harness
        .services
        .free_leaked_ports(&harness.registry, &mut PortLeaks::default())
        .await
        .expect("ports are noted");
    let (code, _) = create(&harness, "c", "", &node(20_001)).await;
    assert_eq!(code, 422, "a service of before has it");
    assert_eq!(create(&harness, "c", "", &node(20_011)).await.0, 201);
}

#[tokio::test]
async fn dry_runs_and_rejected_writes_allocate_nothing() {
    let harness = Harness::open().await;
    let spec =
        r#"{"type":"NodePort","clusterIP":"10.0.0.20","ports":[{"port":80,"nodePort":30080}]}"#;
    assert_eq!(create(&harness, "a", "?dryRun=All", spec).await.0, 201);
    let held = "/apis/networking.k8s.io/v1/ipaddresses/10.0.0.20";
    assert_eq!(code_of(&harness, "GET", held).await, 404);
    // The address is free, the port is out of range: nothing may stay allocated.
    let wrong = spec.replace("30080", "80");
    assert_eq!(create(&harness, "a", "?dryRun=All", &wrong).await.0, 201);
    let (code, refused) = create(&harness, "a", "", &wrong).await;
    let why = "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. \
               The range of valid ports is 30000-32767";
    assert_eq!((code, harness::causes(&refused)), (422, vec![why.to_owned()]));
    assert_eq!(code_of(&harness, "GET", held).await, 404);
    assert_eq!(create(&harness, "a", "", spec).await.0, 201);
    // A create whose name is taken releases what was allocated for it.
    let other =
        r#"{"type":"NodePort","clusterIP":"10.0.0.21","ports":[{"port":80,"nodePort":30081}]}"#;
    assert_eq!(create(&harness, "a", "", other).await.0, 409);
    assert_eq!(create(&harness, "b", "", other).await.0, 201);
}

#[tokio::test]
async fn a_node_port_is_unique_in_a_service() {
    let harness = Harness::open().await;
    let ports = |node: &str| {
        format!(r#"[{{"name":"a","port":80,"nodePort":30080}},{{"name":"b","port":81{node}}}]"#)
    };
    let twice = ports(r#","nodePort":30080"#);
    let spec = format!(r#"{{"type":"NodePort","ports":{twice}}}"#);
    let (code, refused) = create(&harness, "a", "", &spec).await;
    let why = "spec.ports[1].nodePort: Invalid value: 30080: provided port is already allocated";
    assert_eq!((code, harness::causes(&refused)), (422, vec![why.to_owned()]));
    // A headless service gets no node ports; validation rejects them.
    let spec = format!(r#"{{"type":"NodePort","clusterIP":"None","ports":{twice}}}"#);
    let (code, refused) = create(&harness, "a", "", &spec).await;
    let why = [
        "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
        "spec.ports[1].nodePort: Duplicate value: 30080",
    ];
    assert_eq!((code, harness::causes(&refused)), (422, why.map(str::to_owned).to_vec()));
    let spec = format!(r#"{{"type":"NodePort","ports":{}}}"#, ports(""));
    assert_eq!(create(&harness, "a", "", &spec).await.0, 201);
    let patch = br#"[{"op":"replace","path":"/spec/ports/1/nodePort","value":30080}]"#;
    let (code, refused) = harness
        .send("PATCH", &format!("{SERVICES}/a"), "application/json-patch+json", patch)
        .await
        .expect("an answer");
    assert_eq!(
        (code, refused.str_at(&["message"])),
        (500, Some("duplicate nodePort: {TCP 30080}"))
    );
}

async fn put(harness: &Harness, name: &str, spec: &str) -> (u16, Value) {
    let body = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{spec}}}"#);
    let path = format!("{SERVICES}/{name}?dryRun=All");
    harness.send("PUT", &path, "application/json", body.as_bytes()).await.expect("an answer")
}

/// An update keeps omitted node ports by port name; a dry run returns a port outside the range.
#[tokio::test]
async fn a_port_keeps_its_node_port_by_name() {
    let harness = Harness::open().await;
    let spec = r#"{"type":"NodePort","ports":[{"name":"a","port":80,"nodePort":30501},
        {"name":"b","port":81,"nodePort":30502},{"name":"c","port":81,"protocol":"UDP","nodePort":30502}]}"#;
    assert_eq!(create(&harness, "s", "", spec).await.0, 201);
    let b = r#"{"name":"b","port":81}"#;
    let c = r#"{"name":"c","port":81,"protocol":"UDP"}"#;
    for (ports, want) in [
        (format!(r#"{{"name":"z","port":80}},{b},{c}"#), [32_769, 30_502, 30_502]),
        (
            format!(r#"{{"name":"b","port":80}},{{"name":"a","port":81}},{c}"#),
            [30_502, 30_501, 30_502],
        ),
        (format!(r#"{{"name":"a","port":8,"protocol":"UDP"}},{b},{c}"#), [30_501, 30_502, 30_502]),
        (format!(r#"{{"name":"a","port":80,"nodePort":30502}},{b},{c}"#), [30_502, 32_769, 32_770]),
    ] {
        let (code, service) =
            put(&harness, "s", &format!(r#"{{"type":"NodePort","ports":[{ports}]}}"#)).await;
        let got: Vec<_> = service.array_at(&["spec", "ports"]).iter().collect();
        let got: Vec<_> = got.iter().map(|port| port.int_at(&["nodePort"])).collect();
        assert_eq!((code, got), (200, want.map(Some).to_vec()), "{ports}");
    }
    let twice = format!(r#"{{"type":"NodePort","ports":[{b},{{"name":"c","port":82}}]}}"#);
    let (code, refused) = put(&harness, "s", &twice).await;
    let why = Some("duplicate nodePort: {TCP 30502}");
    assert_eq!((code, refused.str_at(&["message"])), (500, why));
    let none = r#"{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,
        "ports":[{"name":"a","port":80}]}"#;
    let (code, service) = put(&harness, "s", none).await;
    assert_eq!((code, node_port(&service)), (200, 0));
}

#[tokio::test]
async fn cluster_ips_and_ip_families_of_an_update_must_match() {
    let harness = Harness::open().await;
    let free = r#"{"clusterIP":"None","ports":[{"port":80}]}"#;
    assert_eq!(create(&harness, "free", "", free).await.0, 201);
    assert_eq!(create(&harness, "s", "", r#"{"ports":[{"port":80}]}"#).await.0, 201);
    for (name, fields, why) in [
        (
            "s",
            r#""clusterIP":"1.2.3.4""#,
            r#"spec.clusterIPs[0]: Invalid value: ["1.2.3.4"]: may not change once set"#,
        ),
        (
            "s",
            r#""clusterIP":"::1""#,
            r#"spec.clusterIPs[0]: Invalid value: ["::1"]: IPv6 is not configured on this cluster"#,
        ),
        (
            "s",
            r#""clusterIP":"::1","ipFamilies":["IPv4"]"#,
            r#"spec.clusterIPs[0]: Invalid value: "::1": expected an IPv4 value as indicated by `ipFamilies[0]`"#,
        ),
        (
            "free",
            r#""clusterIP":"None","selector":{"a":"b"}"#,
            "spec.ipFamilyPolicy: Invalid value: \
            \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
    ] {
        let (code, refused) =
            put(&harness, name, &format!(r#"{{{fields},"ports":[{{"port":80}}]}}"#)).await;
        assert_eq!((code, harness::causes(&refused)), (422, vec![why.to_owned()]), "{fields}");
    }
}

/// Upstream allocates addresses before it returns warnings.
#[tokio::test]
async fn a_service_without_an_address_causes_no_warning() {
    let harness = Harness::open().await;
    let target = harness.registry.target("", "services", "default", "s");
    for (address, warned) in [("10.0.0.9", 1), ("::1", 0)] {
        let service = value!({"metadata": {"name": "s"}, "spec": {
            "externalIPs": ["203.0.113.9"], "clusterIP": (address), "ports": [{"port": 80}]}});
        let mut service = Object::from_value(service).expect("an object");
        service.set_gvk(&target.schema().gvk);
        let permit = harness.permit_to_create(&target).await;
        let body = Decoded { object: service, strict_errors: vec![] };
        let options = WriteOptions { dry_run: true, ..WriteOptions::default() };
        let told = match harness.registry.create(&permit, &target, body, &options).await {
            Ok(written) => written.warnings.len(),
            Err(refused) => refused.warnings.len(),
        };
        assert_eq!(told, warned, "{address}");
    }
}

#[tokio::test]
async fn a_service_is_validated_after_its_ports_are_allocated() {
    let harness = Harness::open().await;
    let spec = r#"{"type":"NodePort","ports":[{"port":80,"nodePort":30080}]}"#;
    assert_eq!(create(&harness, "a", "", spec).await.0, 201);
    let wrong = spec.replace(":80,", ":70000,");
    let (code, refused) = create(&harness, "b", "", &wrong).await;
    let why = "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated";
    assert_eq!((code, harness::causes(&refused)), (422, vec![why.to_owned()]));
    // Addresses and ports requested by an invalid service stay free.
    let (code, refused) = create(&harness, "b", "", &wrong.replace("30080", "30081")).await;
    assert_eq!((code, harness::causes(&refused).len()), (422, 2), "{refused:?}");
    assert_eq!(create(&harness, "b", "", &spec.replace("30080", "30081")).await.0, 201);
}

#[tokio::test]
async fn concurrent_services_share_no_address_and_no_port() {
    let harness = Arc::new(Harness::open().await);
    let makers: Vec<_> = (0..60)
        .map(|n| {
            let harness = harness.clone();
            tokio::spawn(async move {
                let spec = r#"{"type":"NodePort","ports":[{"port":80}]}"#;
                create(&harness, &format!("s{n}"), "", spec).await
            })
        })
        .collect();
    let mut addresses = HashSet::new();
    let mut ports = HashSet::new();
    for maker in makers {
        let (code, service) = maker.await.expect("a service");
        assert_eq!(code, 201, "{service:?}");
        assert!(addresses.insert(address(&service)), "{service:?}");
        assert!(ports.insert(node_port(&service)), "{service:?}");
    }
    assert!(ports.iter().all(|port| (30_000..=32_767).contains(port)));
}

#[tokio::test]
async fn a_changed_service_type_releases_its_allocations() {
    let harness = Harness::open().await;
    let spec =
        r#"{"type":"NodePort","clusterIP":"10.0.0.30","ports":[{"port":80,"nodePort":30090}]}"#;
    assert_eq!(create(&harness, "a", "", spec).await.0, 201);
    let path = format!("{SERVICES}/a");
    let patch = br#"{"spec":{"type":"ClusterIP"}}"#;
    let (code, changed) = harness
        .send("PATCH", &path, "application/merge-patch+json", patch)
        .await
        .expect("an answer");
    assert_eq!((code, node_port(&changed), address(&changed).as_str()), (200, 0, "10.0.0.30"));
    let taken = r#"{"type":"NodePort","ports":[{"port":80,"nodePort":30090}]}"#;
    assert_eq!(create(&harness, "b", "", taken).await.0, 201);
    let patch = br#"{"spec":{"type":"ExternalName","externalName":"example.org","ports":null}}"#;
    let (code, changed) = harness
        .send("PATCH", &path, "application/merge-patch+json", patch)
        .await
        .expect("an answer");
    assert_eq!((code, address(&changed).as_str()), (200, ""), "{changed:?}");
    let held = "/apis/networking.k8s.io/v1/ipaddresses/10.0.0.30";
    assert_eq!(code_of(&harness, "GET", held).await, 404);
}

async fn put_range(harness: &Harness, value: &'static str) {
    harness.put_raw("/registry/ranges/servicenodeports", value).await;
}

#[tokio::test]
async fn a_leaked_node_port_is_released_after_several_repairs() {
    let harness = Harness::open().await;
    let spec =
        |port: u16| format!(r#"{{"type":"NodePort","ports":[{{"port":80,"nodePort":{port}}}]}}"#);
    assert_eq!(create(&harness, "a", "", &spec(30_002)).await.0, 201);
    // As another server may have left it: 30001 has no owner, and 30002 is not recorded as
    // allocated.
    let range =
        r#"{"kind":"RangeAllocation","apiVersion":"v1","range":"30000-32767","data":"Ag=="}"#;
    put_range(&harness, range).await;
    let mut leaks = PortLeaks::default();
    for _ in 0..4 {
        let (code, refused) = create(&harness, "b", "", &spec(30_001)).await;
        let why =
            "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated";
        assert_eq!((code, harness::causes(&refused)), (422, vec![why.to_owned()]));
        harness.services.free_leaked_ports(&harness.registry, &mut leaks).await.expect("a look");
    }
    assert_eq!(create(&harness, "b", "", &spec(30_001)).await.0, 201);
    assert_eq!(create(&harness, "c", "", &spec(30_002)).await.0, 422);
}

#[tokio::test]
async fn unreadable_node_ports_are_not_allocated() {
    let harness = Harness::open().await;
    put_range(&harness, "what?").await;
    let spec = r#"{"type":"NodePort","ports":[{"port":80}]}"#;
    assert_eq!(create(&harness, "a", "", spec).await.0, 500);
    assert_eq!(create(&harness, "a", "", r#"{"ports":[{"port":80}]}"#).await.0, 201);
}

#[tokio::test]
async fn no_port_is_released_while_a_service_is_unreadable() {
    let harness = Harness::open().await;
    let spec =
        |port: u16| format!(r#"{{"type":"NodePort","ports":[{{"port":80,"nodePort":{port}}}]}}"#);
    assert_eq!(create(&harness, "a", "", &spec(30_001)).await.0, 201);
    // Its port is allocated to a service that is unreadable.
    let key = "/registry/services/specs/default/a";
    let was = harness.registry.store.get(key.as_bytes()).await.expect("a read").expect("a service");
    harness.put_raw(key, "what?").await;
    let mut leaks = PortLeaks::default();
    for _ in 0..6 {
        let failure = harness
            .services
            .free_leaked_ports(&harness.registry, &mut leaks)
            .await
            .expect_err("unreadable");
        assert_eq!(failure.code, 500, "{failure:?}");
    }
    harness.put_raw(key, was.value).await;
    harness.services.free_leaked_ports(&harness.registry, &mut leaks).await.expect("a look");
    assert_eq!(create(&harness, "b", "", &spec(30_001)).await.0, 422);
}

#[tokio::test]
async fn a_port_range_change_keeps_the_ports_of_services() {
    let harness = Harness::open().await;
    let spec =
        |port: u16| format!(r#"{{"type":"NodePort","ports":[{{"port":80,"nodePort":{port}}}]}}"#);
    assert_eq!(create(&harness, "a", "", &spec(30_001)).await.0, 201);
    let range = r#"{"kind":"RangeAllocation","apiVersion":"v1","range":"1-9","data":"Ag=="}"#;
    put_range(&harness, range).await;
    let (code, refused) = create(&harness, "b", "", &spec(30_002)).await;
    let why = refused.str_at(&["message"]).unwrap_or_default();
    assert!(why.contains("the provided range does not match the previous range"), "{refused:?}");
    assert_eq!(code, 500);
    let mut leaks = PortLeaks::default();
    harness.services.free_leaked_ports(&harness.registry, &mut leaks).await.expect("a look");
    assert_eq!(create(&harness, "b", "", &spec(30_001)).await.0, 422);
    assert_eq!(create(&harness, "b", "", &spec(30_002)).await.0, 201);
}

/// Number of polls that covers every await of a create.
const POLLS_MAX: usize = 30;

/// Drops a create after `polls` polls.
async fn cut_off(harness: &Harness, name: &str, spec: &str, polls: usize) {
    let mut create = pin!(create(harness, name, "", spec));
    let mut left = polls;
    poll_fn(|context| {
        left -= 1;
        let is_done = create.as_mut().poll(context).is_ready();
        if is_done || left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_create_leaves_no_port_to_two_services() {
    let harness = Harness::open().await;
    for polls in 1..=POLLS_MAX {
        let port = 30_100 + polls;
        let spec = format!(r#"{{"type":"NodePort","ports":[{{"port":80,"nodePort":{port}}}]}}"#);
        cut_off(&harness, &format!("cut{polls}"), &spec, polls).await;
        // Whether the port is free depends on where the create was cancelled.
        create(&harness, &format!("next{polls}"), "", &spec).await;
    }
    let mut ports = HashSet::new();
    for name in (1..=POLLS_MAX).flat_map(|n| [format!("cut{n}"), format!("next{n}")]) {
        let path = format!("{SERVICES}/{name}");
        let (code, service) = harness.send("GET", &path, "", b"").await.expect("an answer");
        assert!(code == 404 || ports.insert(node_port(&service)), "{service:?}");
    }
}

#[tokio::test]
async fn the_service_kubernetes_gets_its_node_port_when_it_is_created() {
    let store = Embedded::in_memory();
    let path = "/api/v1/namespaces/default/services/kubernetes";
    let open = |port: u16| {
        let change = move |options: &mut RegistryOptions| options.kubernetes_node_port = Some(port);
        Harness::with_options(store.clone(), Box::new(SystemClock), change)
    };
    // The next server finds the service, and does not change it.
    for port in [30443, 30444] {
        let harness = open(port).await;
        let (_, service) = harness.send("GET", path, "", b"").await.expect("a path");
        let spec = service.get("spec").expect("a spec");
        assert_eq!(spec.str_at(&["type"]), Some("NodePort"));
        assert_eq!(spec.str_at(&["externalTrafficPolicy"]), Some("Cluster"));
        let ports = spec.array_at(&["ports"]);
        assert_eq!(ports.first().and_then(|port| port.int_at(&["nodePort"])), Some(30443));
        let taken = r#"{"type":"NodePort","ports":[{"port":80,"nodePort":30443}]}"#;
        assert_eq!(create(&harness, "a", "", taken).await.0, 422);
    }
}
