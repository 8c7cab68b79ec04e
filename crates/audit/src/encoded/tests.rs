//! Tests of the JSON and the legacy line of events.

use super::*;
use crate::event::{ObjectReference, ResponseStatus};
use crate::level::{Level, Stage};
use crate::request::RequestUri;
use http::HeaderValue;
use keelson_meta::{Timestamp, User};
use smallvec::smallvec;
use std::net::IpAddr;

/// Returns an event with the fewest fields.
pub(crate) fn small_event() -> Event {
    Event {
        level: Level::Metadata,
        audit_id: HeaderValue::from_static("id"),
        stage: Stage::RequestReceived,
        request_uri: RequestUri::Redacted("/healthz?a=<&>".to_owned()),
        verb: Str::default(),
        user: None,
        impersonated_user: None,
        impersonation_constraint: None,
        source_addresses: smallvec![],
        user_agent: HeaderValue::from_static(""),
        object: None,
        status: None,
        request_object: None,
        response_object: None,
        received: Timestamp::new(1_795_725_663, 744_007_999),
        stage_time: Timestamp::new(1_795_725_663, 748_325_000),
        annotations: vec![],
    }
}

fn full_event() -> Event {
    let status = keelson_meta::value!({
        "kind": "Status", "status": "Failure", "message": "m", "reason": "Conflict",
        "details": {"name": "n", "kind": "pods"}, "code": 409
    });
    Event {
        level: Level::RequestResponse,
        stage: Stage::ResponseComplete,
        verb: "create".into(),
        user: Some(User {
            name: "admin".into(),
            uid: "u".into(),
            groups: ["a".into(), "b\"".into()].into(),
            extra: vec![("z".into(), vec!["1".into(), "2".into()]), ("k".into(), vec![])],
        }),
        impersonated_user: Some(User { name: "bob".into(), ..User::default() }),
        impersonation_constraint: Some("impersonate:user-info".into()),
        source_addresses: smallvec![IpAddr::from([1, 2, 3, 4])],
        user_agent: HeaderValue::from_static("test/1"),
        object: Some(ObjectReference {
            resource: "pods".into(),
            namespace: "ns".into(),
            name: "n".into(),
            uid: "ou".into(),
            group: "g".into(),
            version: "v1".into(),
            resource_version: "7".into(),
            subresource: "log".into(),
        }),
        status: Some(ResponseStatus::of(&status, 409)),
        request_object: Some(Bytes::from_static(b"{\"a\":1}")),
        response_object: Some(Bytes::from_static(b"[]")),
        annotations: vec![("a".into(), "x".into()), ("b".into(), "".into())],
        ..small_event()
    }
}

#[test]
fn fields_have_the_order_of_kube_apiserver() {
    let check = |event: &Event, expected: &str| {
        let line = Encoded::new(event).text(Format::Json, None);
        assert_eq!(String::from_utf8_lossy(&line), format!("{expected}\n"));
    };
    check(
        &small_event(),
        "{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"Metadata\",\"auditID\":\
         \"id\",\"stage\":\"RequestReceived\",\"requestURI\":\"/healthz?a=\\u003c\\u0026\\u003e\",\
         \"verb\":\"\",\"user\":{},\"requestReceivedTimestamp\":\"2026-11-26T20:41:03.744007Z\",\
         \"stageTimestamp\":\"2026-11-26T20:41:03.748325Z\"}",
    );
    check(
        &full_event(),
        "{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"RequestResponse\",\
         \"auditID\":\"id\",\"stage\":\"ResponseComplete\",\"requestURI\":\
         \"/healthz?a=\\u003c\\u0026\\u003e\",\"verb\":\"create\",\"user\":{\"username\":\"admin\",\
         \"uid\":\"u\",\"groups\":[\"a\",\"b\\\"\"],\"extra\":{\"k\":[],\"z\":[\"1\",\"2\"]}},\
         \"impersonatedUser\":{\"username\":\"bob\"},\"authenticationMetadata\":\
         {\"impersonationConstraint\":\"impersonate:user-info\"},\"sourceIPs\":[\"1.2.3.4\"],\
         \"userAgent\":\"test/1\",\"objectRef\":{\"resource\":\"pods\",\"namespace\":\"ns\",\
         \"name\":\"n\",\"uid\":\"ou\",\"apiGroup\":\"g\",\"apiVersion\":\"v1\",\
         \"resourceVersion\":\"7\",\"subresource\":\"log\"},\"responseStatus\":{\"metadata\":{},\
         \"status\":\"Failure\",\"message\":\"m\",\"reason\":\"Conflict\",\"details\":{\"name\":\
         \"n\",\"kind\":\"pods\"},\"code\":409},\"requestObject\":{\"a\":1},\"responseObject\":[],\
         \"requestReceivedTimestamp\":\"2026-11-26T20:41:03.744007Z\",\"stageTimestamp\":\
         \"2026-11-26T20:41:03.748325Z\",\"annotations\":{\"a\":\"x\",\"b\":\"\"}}",
    );
}

#[test]
fn the_legacy_line_is_that_of_kube_apiserver() {
    assert_eq!(
        legacy::line(&small_event()),
        "2026-11-26T20:41:03.744007999Z AUDIT: id=\"id\" stage=\"RequestReceived\" \
         ip=\"<unknown>\" method=\"\" user=\"<none>\" groups=\"<none>\" as=\"<self>\" \
         asgroups=\"<lookup>\" user-agent=\"\" namespace=\"<none>\" uri=\"/healthz?a=<&>\" \
         response=\"<deferred>\""
    );
    assert_eq!(
        legacy::line(&full_event()),
        "2026-11-26T20:41:03.744007999Z AUDIT: id=\"id\" stage=\"ResponseComplete\" \
         ip=\"1.2.3.4\" method=\"create\" user=\"admin\" groups=\"\\\"a\\\",\\\"b\\\\\\\"\\\"\" \
         as=\"bob\" asgroups=\"\" user-agent=\"test/1\" namespace=\"ns\" uri=\"/healthz?a=<&>\" \
         response=\"409\""
    );
}
