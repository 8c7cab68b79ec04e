//! Measures the time of authorizer decisions and token authentication: `decide [ROUNDS]`. Uses RBAC
//! with 1,000 roles and 5,000 bindings, and service account tokens, new and cached ones.

// The example prints its results.
#![allow(clippy::print_stdout)]

use keelson_auth::rbac::{GROUP, Rbac};
use keelson_auth::service_account::{
    Claims, EXTENDED_SECONDS_DEFAULT, Reference, ServiceAccountOptions, ServiceAccountTokens,
    SigningKey, TokenKeys,
};
use keelson_auth::{Attributes, BoxFuture, Change, Feed, GroupResource, Objects, User};
use keelson_meta::{Failure, GroupVersionResource, Object, Str, Timestamp, Value, value};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

const ROLES: usize = 1_000;
const BINDINGS: usize = 5_000;
const KEY: &str = include_str!("../src/service_account/testdata/p256.pem");

/// Roles, bindings and one service account.
struct Stored;

impl Objects for Stored {
    fn revision(&self) -> u64 {
        1
    }

    fn lag(&self) -> Option<BoxFuture<Result<(), Failure>>> {
        None
    }

    fn latest(&self) -> BoxFuture<Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn follow(&self, _: &'static [GroupResource]) -> Box<dyn Feed> {
        Box::new(All)
    }

    fn modified(&self, _: GroupResource, _: &str, _: &str) -> Option<u64> {
        Some(1)
    }

    fn get(&self, _: GroupResource, _: &str, name: &str) -> Result<Option<Object>, Failure> {
        Ok(Object::from_value(value!({"metadata": {"name": name, "uid": "u"}})))
    }

    fn labelled(&self, _: GroupResource, _: &str, _: (&str, &str)) -> Result<Vec<Object>, Failure> {
        Ok(vec![])
    }
}

struct All;

impl Feed for All {
    fn take(&mut self, out: &mut Vec<(usize, Change)>) -> Result<(), Failure> {
        let mut put = |resource: usize, object: Value| {
            out.extend(Object::from_value(object).map(|object| (resource, Change::Put(object))));
        };
        for i in 0..ROLES {
            let rule = |resource: String| {
                value!({"verbs": ["get", "list", "watch"], "apiGroups": ["", "apps"],
                    "resources": [(resource), "configmaps"]})
            };
            let rules: Vec<Value> = (0..8).map(|n| rule(format!("things{n}"))).collect();
            let namespace = format!("ns{}", i % 50);
            let name = format!("r{i}");
            put(1, value!({"metadata": {"name": name, "namespace": namespace}, "rules": (rules)}));
        }
        for i in 0..BINDINGS {
            let name = format!("b{i}");
            let namespace = format!("ns{}", i % 50);
            let role = format!("r{}", i % ROLES);
            let user = format!("user{}", i % 500);
            let group = format!("group{}", i % 100);
            put(
                3,
                value!({
                    "metadata": {"name": name, "namespace": namespace},
                    "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": role},
                    "subjects": [{"kind": "User", "name": user}, {"kind": "Group", "name": group}]
                }),
            );
        }
        Ok(())
    }
}

/// Default number of rounds of each measurement.
const ROUNDS: usize = 20_000;

/// Prints the mean time of a round.
async fn measure<F: Future<Output = bool>>(
    what: &str,
    rounds: usize,
    want: bool,
    work: impl Fn() -> F,
) {
    assert_eq!(work().await, want, "{what}");
    let began = Instant::now();
    for _ in 0..rounds {
        assert_eq!(work().await, want);
    }
    let nanos = began.elapsed().as_nanos() / rounds.max(1) as u128;
    println!("{what}: {:.2} us", nanos as f64 / 1000.0);
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let rounds: usize =
        std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let rbac = Rbac::default();
    rbac.attach(Arc::new(Stored));
    let groups: Vec<Str> = (0..4).map(|n| Str::from(format!("group{n}"))).collect();
    let user = User { name: "user3".into(), groups: groups.into(), ..User::default() };
    let attributes = |resource: &str| Attributes {
        verb: "get".into(),
        gvr: GroupVersionResource::new("", "v1", resource),
        namespace: "ns3".into(),
        name: "x".into(),
        ..Attributes::default()
    };
    let allowed = attributes("configmaps");
    let denied = attributes("secrets");
    let is_allowed =
        async |attributes: &Attributes| rbac.decide(&user, attributes).await.is_allowed();
    measure("RBAC allows", rounds, true, || is_allowed(&allowed)).await;
    measure("RBAC denies", rounds, false, || is_allowed(&denied)).await;
    let options = ServiceAccountOptions {
        issuers: vec!["https://issuer".to_owned()],
        audiences: vec!["api".into()],
        expiration_seconds_max: None,
        extends_expiration: true,
        extended_seconds: EXTENDED_SECONDS_DEFAULT,
        lookup: true,
        jwks_uri: None,
    };
    let signing = SigningKey::read(KEY).expect("a key");
    let verifying = vec![signing.verifying.clone()];
    let keys = TokenKeys { signing: Some(Arc::new(signing)), verifying };
    let tokens = ServiceAccountTokens::new(options, keys);
    tokens.attach(Arc::new(Stored));
    let issue = async |name: String| {
        let account = Reference { name: name.into(), uid: "u".into() };
        let namespace = "ns".into();
        let claims = Claims { expires: Some(600), namespace, account, ..Claims::default() };
        tokens.issue(&claims).await.expect("a token")
    };
    let is_valid = async |token: &str| {
        let user = tokens.authenticate(token, &[], Timestamp::new(0, 0)).await;
        user.is_ok_and(|user| user.is_some())
    };
    let cached = issue("cached".to_owned()).await;
    measure("token cached", rounds, true, || is_valid(&cached)).await;
    let rounds = rounds / 10;
    let mut new_tokens = Vec::new();
    for n in 0..=rounds {
        new_tokens.push(issue(format!("a{n}")).await);
    }
    let new_tokens = RefCell::new(new_tokens);
    measure("token verified", rounds, true, async || {
        let token = new_tokens.borrow_mut().pop();
        is_valid(&token.expect("one for each round")).await
    })
    .await;
}
