//! A table of all authenticators and all faults of credentials. A combination that does not
//! exist has a reason.

mod world;

use serde_json::json;
use world::{Claim, World};

/// The cases of each authenticator. `Right` is first: if it fails, the others prove nothing.
const COLUMNS: [&str; 11] = [
    "right",
    "expired",
    "of another issuer",
    "for another audience",
    "of another key",
    "algorithm none",
    "HS256 with the public key",
    "revoked",
    "key rotated",
    "file changed on disk",
    "not there",
];

/// The test of a cell.
enum Cell {
    Test(fn(&World)),
    /// The combination does not exist, for this reason.
    No(&'static str),
}
use Cell::{No, Test};

struct Row {
    name: &'static str,
    cells: [Cell; COLUMNS.len()],
}

const NO_CLAIMS: &str = "it is a word that is looked up, and says nothing of itself";
const NO_ALGORITHM: &str = "it is not signed";
const TLS: &str = "algorithms are those of TLS, which has neither";
const AT_THE_START: &str = "the file is read at the start, as by kube-apiserver";
const USER: &str = "alice";
const REFUSED: &str = "401";

const CLIENT_CERTIFICATE: Row = Row {
    name: "client certificate",
    cells: [
        Test(|w| w.certificate("users", "client", 3600, USER)),
        Test(|w| w.certificate("users", "client", -10, REFUSED)),
        Test(|w| w.certificate("strangers", "client", 3600, REFUSED)),
        // The audience of a certificate is its extended key usage.
        Test(|w| w.certificate("users", "server", 3600, REFUSED)),
        Test(|w| w.certificate("users' namesake", "client", 3600, REFUSED)),
        No(TLS),
        No(TLS),
        No("there are no revocation lists, as in kube-apiserver"),
        Test(|w| {
            w.trust_users(&["users", "users' successor"]);
            w.until_certificate("users' successor", USER);
            w.certificate("users", "client", 3600, USER);
        }),
        Test(|w| {
            w.trust_users(&["users' successor"]);
            w.until_certificate("users", REFUSED);
            w.certificate("users' successor", "client", 3600, USER);
        }),
        // The request is then anonymous, and may not create a SelfSubjectReview.
        Test(|w| w.no_credentials("403")),
    ],
};

const FRONT_PROXY: Row = Row {
    name: "front proxy",
    cells: [
        Test(|w| w.proxied("proxies", "client", 3600, USER)),
        Test(|w| w.proxied("proxies", "client", -10, REFUSED)),
        Test(|w| w.proxied("strangers", "client", 3600, REFUSED)),
        Test(|w| w.proxied("proxies", "server", 3600, REFUSED)),
        Test(|w| w.proxied("proxies' namesake", "client", 3600, REFUSED)),
        No(TLS),
        No(TLS),
        No("there are no revocation lists, as in kube-apiserver"),
        Test(|w| {
            w.trust_proxies(&["proxies", "proxies' successor"]);
            w.until_proxied("proxies' successor", USER);
            w.proxied("proxies", "client", 3600, USER);
        }),
        Test(|w| {
            w.trust_proxies(&["proxies' successor"]);
            w.until_proxied("proxies", REFUSED);
            w.proxied("proxies' successor", "client", 3600, USER);
        }),
        // A user certificate is not a proxy certificate: its user headers are ignored.
        Test(|w| w.proxied("users", "client", 3600, "alice-of-users")),
    ],
};

const STATIC_TOKEN: Row = Row {
    name: "static token",
    cells: [
        Test(|w| w.token("static", USER)),
        No(NO_CLAIMS),
        No(NO_CLAIMS),
        Test(|w| w.review("static", "elsewhere", "")),
        Test(|w| w.token("statiC", REFUSED)),
        No(NO_ALGORITHM),
        No(NO_ALGORITHM),
        No(AT_THE_START),
        No(NO_ALGORITHM),
        No(AT_THE_START),
        Test(|w| w.token("unknown", REFUSED)),
    ],
};

const BOOTSTRAP: &str = "system:bootstrap:abcdef";
const BOOTSTRAP_TOKEN: Row = Row {
    name: "bootstrap token",
    cells: [
        Test(|w| w.bootstrap(json!({}), "kube-system", BOOTSTRAP)),
        Test(|w| {
            let over = json!({"expiration": "2020-01-01T00:00:00Z"});
            w.bootstrap(over, "kube-system", REFUSED);
        }),
        // Secrets of other namespaces are not bootstrap tokens.
        Test(|w| w.bootstrap(json!({}), "default", REFUSED)),
        Test(|w| {
            let only_signs = json!({"usage-bootstrap-authentication": "false"});
            w.bootstrap(only_signs, "kube-system", REFUSED);
        }),
        Test(|w| {
            let other = json!({"token-secret": "fedcba9876543210"});
            w.bootstrap(other, "kube-system", REFUSED);
        }),
        No(NO_ALGORITHM),
        No(NO_ALGORITHM),
        Test(|w| {
            w.bootstrap(json!({}), "kube-system", BOOTSTRAP);
            w.delete("/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef");
            w.token(world::BOOTSTRAP_TOKEN, REFUSED);
        }),
        Test(|w| {
            w.bootstrap(json!({"token-secret": "fedcba9876543210"}), "kube-system", REFUSED);
            w.token("abcdef.fedcba9876543210", BOOTSTRAP);
        }),
        No("it stands in a Secret"),
        Test(|w| w.token("aaaaaa.0123456789abcdef", REFUSED)),
    ],
};

const ROBOT: &str = "system:serviceaccount:default:robot";
const SERVICE_ACCOUNT_TOKEN: Row = Row {
    name: "service account token, bound to a Pod",
    cells: [
        Test(|w| w.account_token(&[], ROBOT)),
        Test(|w| w.account_token(&[Claim::Number("exp", -120)], REFUSED)),
        Test(|w| w.account_token(&[Claim::Text("iss", "https://elsewhere")], REFUSED)),
        Test(|w| w.account_token(&[Claim::Text("aud", "elsewhere")], REFUSED)),
        Test(|w| w.account_token(&[Claim::OtherKey], REFUSED)),
        Test(|w| w.account_token(&[Claim::Unsigned], REFUSED)),
        Test(|w| w.account_token(&[Claim::Hmac], REFUSED)),
        Test(|w| {
            let token = w.signed_account_token(&[]);
            w.token(&token, ROBOT);
            w.delete("/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0");
            w.token(&token, REFUSED);
            w.make_account();
        }),
        Test(|w| {
            let old = w.signed_account_token(&[]);
            w.set_account_keys(&["old", "new"]);
            let new = w.signed_account_token(&[Claim::Key("new")]);
            w.until_token(&new, ROBOT);
            w.token(&old, ROBOT);
        }),
        Test(|w| {
            let old = w.signed_account_token(&[]);
            w.token(&old, ROBOT);
            w.set_account_keys(&["new"]);
            w.until_token(&old, REFUSED);
            w.account_token(&[Claim::Key("new")], ROBOT);
        }),
        Test(|w| w.token("a.b.c", REFUSED)),
    ],
};

const LEGACY_TOKEN: Row = Row {
    name: "service account token, in a Secret",
    cells: [
        Test(|w| w.legacy_token(&[], ROBOT)),
        No("it has no times"),
        Test(|w| w.legacy_token(&[Claim::Text("iss", "https://elsewhere")], REFUSED)),
        Test(|w| {
            w.legacy_token(&[], ROBOT);
            w.review(&w.signed_legacy_token(&[]), "elsewhere", "");
        }),
        Test(|w| w.legacy_token(&[Claim::OtherKey], REFUSED)),
        Test(|w| w.legacy_token(&[Claim::Unsigned], REFUSED)),
        Test(|w| w.legacy_token(&[Claim::Hmac], REFUSED)),
        Test(|w| {
            w.legacy_token(&[], ROBOT);
            w.delete("/api/v1/namespaces/default/secrets/legacy");
            w.token(&w.signed_legacy_token(&[]), REFUSED);
        }),
        Test(|w| {
            w.set_account_keys(&["old", "new"]);
            let token = w.signed_legacy_token(&[Claim::Key("new")]);
            w.put_legacy_secret(&token);
            w.until_token(&token, ROBOT);
        }),
        Test(|w| {
            w.set_account_keys(&["new"]);
            w.put_legacy_secret(&w.signed_legacy_token(&[]));
            w.until_token(&w.signed_legacy_token(&[]), REFUSED);
        }),
        // A token is valid only while it is the one in the Secret.
        Test(|w| {
            w.put_legacy_secret("other");
            w.token(&w.signed_legacy_token(&[Claim::Key("new")]), REFUSED);
        }),
    ],
};

const OIDC_USER: &str = "oidc:alice";
const OIDC_TOKEN: Row = Row {
    name: "OpenID Connect",
    cells: [
        Test(|w| w.oidc(&[], OIDC_USER)),
        Test(|w| w.oidc(&[Claim::Number("exp", -1)], REFUSED)),
        Test(|w| w.oidc(&[Claim::Text("iss", "https://elsewhere")], REFUSED)),
        Test(|w| w.oidc(&[Claim::Text("aud", "elsewhere")], REFUSED)),
        Test(|w| w.oidc(&[Claim::OtherKey], REFUSED)),
        Test(|w| w.oidc(&[Claim::Unsigned], REFUSED)),
        Test(|w| w.oidc(&[Claim::Hmac], REFUSED)),
        No("only the issuer could say so, who is not asked"),
        Test(|w| {
            let old = w.signed_oidc(&[]);
            w.rotate_oidc_key();
            w.until_token(&w.signed_oidc(&[]), OIDC_USER);
            w.until_token(&old, REFUSED);
        }),
        Test(|w| {
            w.write_oidc_config("them");
            w.until_token(&w.signed_oidc(&[Claim::Text("aud", "them")]), OIDC_USER);
            w.oidc(&[], REFUSED);
        }),
        Test(|w| w.oidc(&[Claim::Without("sub")], REFUSED)),
    ],
};

const ASKED: &str = "the webhook decides, and says yes or no";
const WEBHOOK: Row = Row {
    name: "webhook",
    cells: [
        Test(|w| w.token("hook-right", "hook")),
        No(ASKED),
        No(ASKED),
        Test(|w| w.token("hook-elsewhere", REFUSED)),
        Test(|w| w.token("hook-wrong", REFUSED)),
        No(ASKED),
        No(ASKED),
        Test(|w| {
            w.token("hook-right", "hook");
            w.revoke_at_webhook();
            w.token("hook-right", REFUSED);
        }),
        No(ASKED),
        No(AT_THE_START),
        // An error does not authenticate.
        Test(|w| w.token("hook-broken", REFUSED)),
    ],
};

/// Proves: R-AUTH-01.
#[test]
fn every_authenticator_accepts_valid_and_rejects_invalid_credentials() {
    let table = [
        CLIENT_CERTIFICATE,
        FRONT_PROXY,
        STATIC_TOKEN,
        BOOTSTRAP_TOKEN,
        SERVICE_ACCOUNT_TOKEN,
        LEGACY_TOKEN,
        OIDC_TOKEN,
        WEBHOOK,
    ];
    let mut tested = 0;
    for row in table {
        let world = World::start();
        for (column, cell) in COLUMNS.iter().zip(row.cells) {
            world.enter(format!("{}: {column}", row.name));
            match cell {
                Test(test) => {
                    test(&world);
                    tested += 1;
                }
                No(why) => assert!(!why.is_empty()),
            }
        }
        world.stop();
    }
    assert_eq!(tested, 64);
}
