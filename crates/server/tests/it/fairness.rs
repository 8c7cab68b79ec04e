//! Priority and fairness with real requests. A request whose body does not come holds its seat.

use crate::world::{Client, Options, POLL_TIMEOUT, Response, Server};
use keelson_server::Limits;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const DUMPS: &str = "/debug/api_priority_and_fairness";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;

/// Starts a server on which one level has a single seat: `narrow`, for users whose names are given.
fn start(queuing: &Value, users: &[&str]) -> Server {
    let limits = Limits {
        requests_in_flight_max: 5,
        mutating_requests_in_flight_max: 5,
        ..Limits::default()
    };
    let server = Server::start_plain(Options::default().with(|options| options.limits = limits));
    let client = server.client();
    let limited = json!({
        "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue", "queuing": (queuing)}
    });
    let level = json!({
        "metadata": {"name": "narrow"}, "spec": {"type": "Limited", "limited": (limited)}
    });
    assert_eq!(client.post(&format!("{GROUP}/prioritylevelconfigurations"), &level).status, 201);
    let subjects = users.iter().map(|user| json!({"kind": "User", "user": {"name": user}}));
    let all = json!({
        "subjects": (subjects.collect::<Vec<_>>()),
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
            "clusterScope": true, "namespaces": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    });
    let schema = json!({"metadata": {"name": "narrow"}, "spec": {
        "priorityLevelConfiguration": {"name": "narrow"}, "matchingPrecedence": 50,
        "distinguisherMethod": {"type": "ByUser"}, "rules": [all]
    }});
    assert_eq!(client.post(&format!("{GROUP}/flowschemas"), &schema).status, 201);
    wait_until("the configuration acts", || {
        get_as(&client, users[0], "/version").header(SCHEMA) == Some(&*uid(&client, NARROW))
    });
    server
}

const SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
const LEVEL: &str = "x-kubernetes-pf-prioritylevel-uid";
const NARROW: &str = "flowschemas/narrow";

fn uid(client: &Client, path: &str) -> String {
    let object = client.get(&format!("{GROUP}/{path}"));
    object.body["metadata"]["uid"].as_str().unwrap_or_else(|| panic!("{object:?}")).to_owned()
}

fn get_as(client: &Client, user: &str, path: &str) -> Response {
    client.request("GET", path, &format!("Impersonate-User: {user}\r\n"), None)
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + POLL_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Sends the head of a request that is allowed to all users, without its body.
fn begin(client: &Client, user: &str) -> BufReader<TcpStream> {
    let length = REVIEW.len();
    client.write(
        format!(
            "POST {REVIEWS} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer t\r\n\
             Impersonate-User: {user}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        )
        .as_bytes(),
    )
}

/// Sends the body. Returns the whole response as text.
fn end(mut request: BufReader<TcpStream>) -> String {
    request.get_mut().write_all(REVIEW.as_bytes()).expect("an open connection");
    let mut text = String::new();
    request.read_to_string(&mut text).expect("an answer");
    text
}

/// Returns the cells of the row of `narrow` in a dump.
fn rows(client: &Client, dump: &str) -> Vec<Vec<String>> {
    let dump = client.get(&format!("{DUMPS}/{dump}")).body;
    let lines = dump.as_str().expect("text").lines();
    let narrow = lines.filter(|line| line.starts_with("narrow,"));
    narrow.map(|line| line.split(',').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// Waits until `narrow` has this many requests that wait and are executed.
fn wait_for(client: &Client, waiting: u32, executing: u32) {
    let wanted = [waiting.to_string(), executing.to_string()];
    wait_until(&format!("{waiting} wait, {executing} are executed"), || {
        rows(client, "dump_priority_levels")[0][4..6] == wanted
    });
}

fn metric(client: &Client, line: &str) -> bool {
    let text = client.get("/metrics").body;
    text.as_str().is_some_and(|text| text.lines().any(|known| known == line))
}

#[test]
fn responses_name_the_flow_schema_and_the_level() {
    let server = start(&json!({"queues": 1, "handSize": 1, "queueLengthLimit": 5}), &["alice"]);
    let client = server.client();
    let check = |response: &Response, schema: &str, level: &str| {
        let schema = uid(&client, &format!("flowschemas/{schema}"));
        let level = uid(&client, &format!("prioritylevelconfigurations/{level}"));
        assert_eq!(response.header(SCHEMA), Some(&*schema), "{response:?}");
        assert_eq!(response.header(LEVEL), Some(&*level), "{response:?}");
    };
    check(&client.get("/api/v1/nodes"), "exempt", "exempt");
    check(&client.get("/api/v1/nodes/none"), "exempt", "exempt");
    check(&client.send_as("GET /healthz", "", b""), "probes", "exempt");
    check(&client.send_as("GET /api/v1/nodes", "", b""), "global-default", "global-default");
    check(&get_as(&client, "bob", "/version"), "global-default", "global-default");
    check(&get_as(&client, "alice", "/api/v1/nodes"), "narrow", "narrow");
    check(&get_as(&client, "system:kube-scheduler", "/api"), "kube-scheduler", "workload-high");
    let account = get_as(&client, "system:serviceaccount:kube-system:a", "/api");
    check(&account, "kube-system-service-accounts", "workload-high");
    let watch = client.open_watch("/api/v1/nodes?watch=1&timeoutSeconds=1");
    assert_eq!(watch.header(SCHEMA), Some(&*uid(&client, "flowschemas/exempt")));
    // Nobody is known yet, and what lasts needs no seat.
    let unknown = client.send_as("GET /api", "Authorization: Bearer none\r\n", b"");
    assert_eq!((unknown.status, unknown.header(SCHEMA)), (401, None));
    let log = client.get("/api/v1/namespaces/default/pods/none/log");
    assert_eq!((log.status, log.header(LEVEL)), (404, None));
    server.stop();
}

#[test]
fn a_full_level_queues_and_rejects_and_leaves_others_alone() {
    let server = start(&json!({"queues": 1, "handSize": 1, "queueLengthLimit": 1}), &["alice"]);
    let client = server.client();
    let first = begin(&client, "alice");
    wait_for(&client, 0, 1);
    let second = begin(&client, "alice");
    wait_for(&client, 1, 1);
    let requests = rows(&client, "dump_requests?includeRequestDetails=1");
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0][..5], ["narrow", "narrow", "0", "0", "alice"]);
    assert_eq!(requests[0][6..10], ["1", "0", "0s", "0001-01-01T00:00:00Z"]);
    assert_eq!(requests[0][10..13], ["alice", "create", REVIEWS]);
    assert_eq!(requests[0][15..17], ["authentication.k8s.io/v1", "selfsubjectreviews"]);
    let refused = get_as(&client, "alice", "/version");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.body, json!("Too many requests, please try again later.\n"));
    // As a kube-apiserver 1.36.3 answered, whatever the client accepts.
    assert_eq!(refused.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(refused.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header(SCHEMA), Some(&*uid(&client, NARROW)));
    assert_eq!(get_as(&client, "alice", "/api/v1/nodes").status, 429);
    let waiting = "apiserver_current_inqueue_requests{request_kind=\"mutating\"} 1";
    assert!(metric(&client, waiting));
    // Other levels have their seats.
    assert_eq!(get_as(&client, "bob", "/version").status, 200);
    assert_eq!(client.send_as("GET /healthz", "", b"").status, 200);
    assert!(end(first).starts_with("HTTP/1.1 201"));
    wait_for(&client, 0, 1);
    assert!(end(second).starts_with("HTTP/1.1 201"));
    wait_for(&client, 0, 0);
    let labels = "flow_schema=\"narrow\",priority_level=\"narrow\"";
    let rejected = "apiserver_flowcontrol_rejected_requests_total";
    assert!(metric(&client, &format!("{rejected}{{{labels},reason=\"queue-full\"}} 2")));
    let terminated = "apiserver_request_terminations_total{code=\"429\",component=\"apiserver\",\
                      group=\"\",resource=\"nodes\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",\
                      version=\"v1\"} 1";
    assert!(metric(&client, terminated));
    let seats = "apiserver_flowcontrol_current_limit_seats{priority_level=\"narrow\"} 1";
    assert!(metric(&client, seats));
    server.stop();
}

#[test]
fn a_request_whose_client_goes_away_or_whose_time_passes_leaves_its_queue() {
    let server = start(&json!({"queues": 1, "handSize": 1, "queueLengthLimit": 5}), &["alice"]);
    let client = server.client();
    let held = begin(&client, "alice");
    wait_for(&client, 0, 1);
    let gone = begin(&client, "alice");
    wait_for(&client, 1, 1);
    drop(gone);
    wait_for(&client, 0, 1);
    // A quarter of the time may be spent in the queue.
    let late = get_as(&client, "alice", "/version?timeout=400ms");
    assert_eq!((late.status, late.header("retry-after")), (429, Some("1")));
    let level = &rows(&client, "dump_priority_levels")[0];
    assert_eq!(level[7..], ["0", "1", "1"], "rejected, timed out, cancelled");
    // A request that is executed returns its seat when its client goes away.
    drop(held);
    wait_for(&client, 0, 0);
    assert_eq!(get_as(&client, "alice", "/version").status, 200);
    server.stop();
}

#[test]
fn a_user_with_few_requests_is_not_drowned_out_by_one_with_many() {
    // One queue for each user: with more, a user has a part of the seats for each of his queues.
    let queuing = json!({"queues": 64, "handSize": 1, "queueLengthLimit": 50});
    let server = start(&queuing, &["elephant", "mouse"]);
    let client = server.client();
    let first = begin(&client, "elephant");
    wait_for(&client, 0, 1);
    let herd: Vec<_> = (0..20).map(|_| begin(&client, "elephant")).collect();
    wait_for(&client, 20, 1);
    let mouse = std::thread::scope(|scope| {
        let mouse = scope.spawn(|| get_as(&client, "mouse", "/version").status);
        wait_for(&client, 21, 1);
        // The next seat is the mouse's, and an elephant, whose body never comes, has the one after
        // it.
        assert!(end(first).starts_with("HTTP/1.1 201"));
        mouse.join().expect("an answer")
    });
    assert_eq!(mouse, 200);
    wait_for(&client, 19, 1);
    drop(herd);
    wait_for(&client, 0, 0);
    server.stop();
}

#[test]
fn a_watch_returns_its_seat_when_its_initial_events_are_out() {
    let server = start(&json!({"queues": 1, "handSize": 1, "queueLengthLimit": 5}), &["alice"]);
    let client = server.client();
    let binding = json!({
        "metadata": {"name": "alice"}, "subjects": [{"kind": "User", "name": "alice"}],
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(client.post(bindings, &binding).status, 201);
    let path = "/api/v1/configmaps?watch=1";
    wait_until("the binding acts", || get_as(&client, "alice", "/api/v1/configmaps").status == 200);
    let headers = "Impersonate-User: alice\r\n";
    let watches: Vec<_> = (0..3).map(|_| client.stream(path, headers)).collect();
    wait_for(&client, 0, 0);
    assert_eq!(get_as(&client, "alice", "/version").status, 200);
    drop(watches);
    server.stop();
}

/// As upstream does not: a client that reads slowly would keep those of its level waiting.
#[test]
fn a_long_list_returns_its_seat_when_it_begins_to_be_sent() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let queuing = json!({"queues": 1, "handSize": 1, "queueLengthLimit": 5});
    let server = start(&queuing, &["slow"]);
    let client = server.client();
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"metadata": {"name": "slow"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "slow"}]});
    let bindings = format!("/apis/{group}/v1/clusterrolebindings");
    assert_eq!(client.post(&bindings, &binding).status, 201);
    // More than the buffers of both sides hold.
    let text = "v".repeat(900_000);
    for at in 0..30 {
        let map = json!({"metadata": {"name": format!("m-{at}")}, "data": {"k": text}});
        assert_eq!(client.post(MAPS, &map).status, 201);
    }
    let mut list = client.write(
        format!(
            "GET {MAPS} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer t\r\n\
             Impersonate-User: slow\r\n\r\n"
        )
        .as_bytes(),
    );
    let mut line = String::new();
    list.read_line(&mut line).expect("a status line");
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    wait_for(&client, 0, 0);
    assert_eq!(get_as(&client, "slow", "/version").status, 200);
    let mut rest = String::new();
    list.read_to_string(&mut rest).expect("the list");
    assert!(rest.len() > 30 * text.len() && rest.ends_with("]}\n"), "{}", rest.len());
    server.stop();
}

#[test]
fn dumps_have_the_form_of_kube_apiserver() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    let dump = |name: &str| {
        let dump = client.get(&format!("{DUMPS}/{name}"));
        assert_eq!(dump.header("content-type"), Some("text/plain; charset=utf-8"));
        dump.body.as_str().expect("text").lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let levels = dump("dump_priority_levels");
    assert_eq!(
        levels[..2],
        [
            "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, \
             DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests",
            "catch-all,         0,            true,   false,       0,               0,                 \
             0,                  0,                0,                0",
        ]
    );
    assert_eq!(levels.len(), 9);
    let queues = dump("dump_queues");
    let names = "PriorityLevelName, Index,  PendingRequests, ExecutingRequests, SeatsInUse, \
                 NextDispatchR, InitialSeatsSum, MaxSeatsSum, TotalWorkSum";
    let last = "workload-low,      127,    0,               0,                 0,          \
                0.00000000ss,  0,               0,           0.00000000ss";
    assert_eq!((queues[0].as_str(), queues.last().map(String::as_str)), (names, Some(last)));
    assert_eq!(client.get(&format!("{DUMPS}/others")).status, 404);
    assert_eq!(get_as(&client, "bob", &format!("{DUMPS}/dump_queues")).status, 403);
    server.stop();
}

#[test]
fn default_seats_are_those_of_kube_apiserver() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    let has = |name: &str, level: &str, seats: u32| {
        let line =
            format!("apiserver_flowcontrol_{name}_limit_seats{{priority_level=\"{level}\"}}");
        assert!(metric(&client, &format!("{line} {seats}")), "{line} {seats}");
    };
    for (level, nominal, lower, upper) in [
        ("catch-all", 13, 13, 613),
        ("exempt", 0, 0, 600),
        ("global-default", 49, 24, 649),
        ("leader-election", 25, 25, 625),
        ("node-high", 98, 73, 698),
        ("system", 74, 50, 674),
    ] {
        has("nominal", level, nominal);
        has("lower", level, lower);
        has("upper", level, upper);
    }
    // The loop that sets changed objects back finds nothing to change.
    let levels = client.get(&format!("{GROUP}/prioritylevelconfigurations")).body;
    let levels = levels["items"].as_array().expect("a list");
    assert!(levels.iter().all(|level| level["metadata"]["generation"] == 1), "{levels:?}");
    server.stop();
}

#[test]
fn without_priority_and_fairness_there_are_no_headers_and_dumps() {
    let limits = Limits { fairness: false, ..Limits::default() };
    let server = Server::start_plain(Options::default().with(|options| options.limits = limits));
    let client = server.client();
    let version = client.get("/version");
    assert_eq!((version.status, version.header(SCHEMA), version.header(LEVEL)), (200, None, None));
    assert_eq!(client.get(&format!("{DUMPS}/dump_queues")).status, 404);
    server.stop();
}
