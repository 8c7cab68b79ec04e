//! [`Claims`]: the claims of a service account token.

use keelson_meta::Str;
use serde_json::{Map, Value, json};

/// The issuer of legacy tokens, which are stored in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
const LEGACY: &str = "kubernetes.io/serviceaccount/";

/// Name and uid of an object that a token is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// Name.
    pub name: Str,
    /// uid.
    pub uid: Str,
}

/// The claims of a service account token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The audiences; empty for the API server.
    pub audiences: Vec<Str>,
    /// Seconds since 1970.
    pub expires: Option<i64>,
    /// Seconds since 1970.
    pub not_before: Option<i64>,
    /// Seconds since 1970.
    pub issued: Option<i64>,
    /// `jti`.
    pub id: Str,
    /// The namespace of the service account.
    pub namespace: Str,
    /// The service account.
    pub account: Reference,
    /// The Pod that the token is bound to.
    pub pod: Option<Reference>,
    /// The Secret that the token is bound to, or that contains the legacy token.
    pub secret: Option<Reference>,
    /// The Node that the token is bound to, or that of the Pod.
    pub node: Option<Reference>,
    /// When the client should have refreshed the token; seconds since 1970.
    pub warn_after: Option<i64>,
    /// Whether it is a legacy token, which is stored in a Secret and does not expire.
    pub is_legacy: bool,
}

impl Claims {
    /// Parses the claims of a token; `None` when they are not those of a service account.
    pub fn read(claims: &Value) -> Option<Claims> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_legacy = text("iss") == LEGACY_ISSUER;
        let mut read = Claims {
            audiences: audiences(claims.get("aud"))?,
            expires: seconds(claims.get("exp"))?,
            not_before: seconds(claims.get("nbf"))?,
            issued: seconds(claims.get("iat"))?,
            id: text("jti").into(),
            is_legacy,
            ..Claims::default()
        };
        if is_legacy {
            let part = |name: &str| Str::new(text(&format!("{LEGACY}{name}")));
            read.namespace = part("namespace");
            read.account =
                Reference { name: part("service-account.name"), uid: part("service-account.uid") };
            read.secret = Some(Reference { name: part("secret.name"), uid: Str::default() });
        } else {
            let private = claims.get("kubernetes.io")?;
            read.namespace = private.get("namespace")?.as_str()?.into();
            read.account = reference(private.get("serviceaccount"))?;
            let bound = |name: &str| match private.get(name) {
                None | Some(Value::Null) => Some(None),
                given => reference(given).map(Some),
            };
            (read.pod, read.secret, read.node) = (bound("pod")?, bound("secret")?, bound("node")?);
            read.warn_after = seconds(private.get("warnafter"))?;
        }
        let subject = format!("system:serviceaccount:{}:{}", read.namespace, read.account.name);
        let is_whole = !read.namespace.is_empty()
            && !read.account.name.is_empty()
            && !read.account.uid.is_empty()
            && text("sub") == subject;
        is_whole.then_some(read)
    }

    /// Returns the claims as they are signed.
    pub fn to_value(&self, issuer: &str) -> Value {
        let show = |reference: &Reference| match reference.uid.as_str() {
            "" => json!({"name": reference.name.as_str()}),
            uid => json!({"name": reference.name.as_str(), "uid": uid}),
        };
        let mut private = Map::new();
        private.insert("namespace".to_owned(), self.namespace.as_str().into());
        private.insert("serviceaccount".to_owned(), show(&self.account));
        let bound = [("node", &self.node), ("pod", &self.pod), ("secret", &self.secret)];
        for (name, reference) in bound {
            if let Some(reference) = reference {
                private.insert(name.to_owned(), show(reference));
            }
        }
        if let Some(after) = self.warn_after {
            private.insert("warnafter".to_owned(), after.into());
        }
        let audiences: Vec<&str> = self.audiences.iter().map(Str::as_str).collect();
        json!({
            "aud": audiences, "exp": self.expires, "iat": self.issued, "iss": issuer,
            "jti": self.id.as_str(), "kubernetes.io": private, "nbf": self.not_before,
            "sub": format!("system:serviceaccount:{}:{}", self.namespace, self.account.name)
        })
    }
}

/// Returns the claims of a legacy token.
pub fn legacy(namespace: &str, account: &str, uid: &str, secret: &str) -> Value {
    let mut claims = Map::new();
    let facts = [
        ("namespace", namespace),
        ("secret.name", secret),
        ("service-account.name", account),
        ("service-account.uid", uid),
    ];
    claims.insert("iss".to_owned(), LEGACY_ISSUER.into());
    for (name, fact) in facts {
        claims.insert(format!("{LEGACY}{name}"), fact.into());
    }
    let subject = format!("system:serviceaccount:{namespace}:{account}");
    claims.insert("sub".to_owned(), subject.into());
    Value::Object(claims)
}

/// Returns one or several audiences; `None` for invalid values.
fn audiences(value: Option<&Value>) -> Option<Vec<Str>> {
    match value {
        None | Some(Value::Null) => Some(vec![]),
        Some(Value::String(one)) => Some(vec![one.into()]),
        Some(Value::Array(several)) => {
            several.iter().map(|one| one.as_str().map(Str::new)).collect()
        }
        Some(_) => None,
    }
}

/// Returns a time; `None` for an invalid value, `Some(None)` if it is absent.
#[expect(clippy::option_option, reason = "absent and unreadable must not be confused")]
fn seconds(value: Option<&Value>) -> Option<Option<i64>> {
    match value {
        None | Some(Value::Null) => Some(None),
        Some(value) =>
        {
            #[expect(clippy::cast_possible_truncation, reason = "far times saturate")]
            value.as_i64().or_else(|| value.as_f64().map(|number| number as i64)).map(Some)
        }
    }
}

fn reference(value: Option<&Value>) -> Option<Reference> {
    let text = |name: &str| match value?.get(name) {
        None => Some(Str::default()),
        Some(text) => text.as_str().map(Str::new),
    };
    Some(Reference { name: text("name").filter(|name| !name.is_empty())?, uid: text("uid")? })
}
