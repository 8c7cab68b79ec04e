//! [`Webhook`]: one webhook of a configuration, parsed and compiled.

use super::review_version::Version;
use crate::config::Credentials;
use crate::match_conditions::MatchConditions;
use crate::rules::Rule;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use keelson_cel::admission::Compiler;
use keelson_egress::{Client, Egress, Peer, Route, Trust};
use keelson_meta::selector::Selector;
use keelson_meta::{Str, Value};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const TIMEOUT_SECONDS_DEFAULT: i64 = 10;
const TIMEOUT_SECONDS_MAX: i64 = 30;
const HTTPS_PORT: u16 = 443;

/// The client and the credentials of a webhook plug-in.
pub(crate) struct Caller {
    pub egress: Arc<Egress>,
    pub credentials: Arc<Credentials>,
}

/// A webhook of a configuration.
pub(crate) struct Webhook {
    pub configuration: Str,
    pub name: Str,
    pub rules: Vec<Rule>,
    /// `matchPolicy: Equivalent`.
    pub matches_equivalents: bool,
    pub namespace_selector: Result<Selector, String>,
    pub object_selector: Result<Selector, String>,
    pub conditions: MatchConditions,
    /// `failurePolicy: Ignore`.
    pub ignores_failures: bool,
    pub timeout: Duration,
    /// Whether it has no side effects on dry run.
    pub supports_dry_run: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub is_reinvoked: bool,
    /// The first known version of `admissionReviewVersions`.
    pub version: Option<Version>,
    endpoint: Result<Endpoint, String>,
    client: OnceLock<Result<Arc<Client>, String>>,
}

/// The client configuration of a webhook: URL or service.
pub(crate) struct Endpoint {
    peer: Peer,
    /// The host as configured, with the port if it has one.
    host: String,
    /// Path and query.
    pub path: String,
    /// The URL as errors print it.
    pub url: String,
}

impl Webhook {
    /// Compiles a webhook of a `v1` configuration.
    pub fn new(configuration: &Str, webhook: &Value) -> Webhook {
        let text = |name: &str| webhook.str_at(&[name]).unwrap_or_default();
        let seconds = webhook
            .int_at(&["timeoutSeconds"])
            .unwrap_or(TIMEOUT_SECONDS_DEFAULT)
            .clamp(1, TIMEOUT_SECONDS_MAX)
            .unsigned_abs();
        let versions = webhook.array_at(&["admissionReviewVersions"]).iter();
        let compiler = Compiler::webhook(keelson_cel::Version::STORED_EXPRESSIONS);
        Webhook {
            configuration: configuration.clone(),
            name: text("name").into(),
            rules: webhook.array_at(&["rules"]).iter().map(Rule::new).collect(),
            matches_equivalents: text("matchPolicy") != "Exact",
            namespace_selector: Selector::from_object(webhook.get("namespaceSelector")),
            object_selector: Selector::from_object(webhook.get("objectSelector")),
            conditions: MatchConditions::new(&compiler, webhook.array_at(&["matchConditions"])),
            ignores_failures: text("failurePolicy") == "Ignore",
            timeout: Duration::from_secs(seconds),
            supports_dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
            version: versions.filter_map(Value::as_str).find_map(Version::parse),
            endpoint: Endpoint::new(webhook, seconds),
            client: OnceLock::new(),
        }
    }

    /// Returns the key among all webhooks of its type.
    pub fn key(&self) -> (&Str, &Str) {
        (&self.configuration, &self.name)
    }

    /// Returns the endpoint and its client.
    pub fn endpoint(&self, caller: &Caller) -> Result<(&Endpoint, &Arc<Client>), &str> {
        let endpoint = self.endpoint.as_ref().map_err(String::as_str)?;
        let client = self.client.get_or_init(|| endpoint.client(caller));
        Ok((endpoint, client.as_ref().map_err(String::as_str)?))
    }
}

impl Endpoint {
    /// Returns the client of the endpoint.
    pub fn client(&self, caller: &Caller) -> Result<Arc<Client>, String> {
        let mut peer = self.peer.clone();
        caller.credentials.set_credentials(&mut peer, &self.host);
        caller.egress.client(&peer).map_err(|error| error.to_string())
    }

    /// Parses `clientConfig`. `seconds` is the timeout of a call.
    pub fn new(webhook: &Value, seconds: u64) -> Result<Endpoint, String> {
        let config = webhook.get("clientConfig").unwrap_or(&Value::Null);
        let (mut peer, shown, path) = match config.get("service") {
            Some(service) if !service.is_null() => of_service(service),
            _ => of_url(config.str_at(&["url"]).unwrap_or_default())?,
        };
        if let Some(bundle) = config.str_at(&["caBundle"]).filter(|text| !text.is_empty()) {
            let pem = STANDARD.decode(bundle).unwrap_or_default();
            peer.trust = Trust::Bundle(pem.into());
        }
        let path = format!("{}?timeout={seconds}s", clean(&path));
        Ok(Endpoint { peer, url: format!("https://{shown}{path}"), host: shown, path })
    }
}

/// The peer, the host as errors print it, and the path.
type Located = (Peer, String, String);

fn of_service(service: &Value) -> Located {
    let text = |name: &str| service.str_at(&[name]).unwrap_or_default();
    let port = service.int_at(&["port"]).and_then(|port| u16::try_from(port).ok());
    let host = format!("{}.{}.svc", text("name"), text("namespace"));
    let peer = Peer { route: Route::Given, ..Peer::new(host, port.unwrap_or(HTTPS_PORT)) };
    let shown = peer.authority();
    (peer, shown, text("path").to_owned())
}

fn of_url(url: &str) -> Result<Located, String> {
    let invalid = || format!("webhook URL {url:?} cannot be used");
    let uri: Uri = url.parse().map_err(|_| invalid())?;
    let authority = uri.authority().ok_or_else(invalid)?;
    let port = match authority.as_str().rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port.parse().map_err(|_| invalid())?,
        _ => HTTPS_PORT,
    };
    Ok((Peer::new(authority.host(), port), authority.as_str().to_owned(), uri.path().to_owned()))
}

/// Removes empty and dot segments and a trailing slash, like Go's `path.Clean`.
fn clean(path: &str) -> String {
    let mut segments: Vec<&str> = vec![];
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn urls_are_printed_as_upstream_prints_them() {
        let check = |config: Value, want: &str| {
            let webhook = value!({"clientConfig": (config)});
            let shown = match Endpoint::new(&webhook, 10) {
                Ok(endpoint) => endpoint.url,
                Err(error) => error,
            };
            assert_eq!(shown, want);
        };
        let url = |url: &str| value!({"url": (url)});
        check(url("https://127.0.0.1:9443"), "https://127.0.0.1:9443/?timeout=10s");
        check(url("https://a.b/c/"), "https://a.b/c?timeout=10s");
        check(url("https://a.b//c/./d/../e"), "https://a.b/c/e?timeout=10s");
        check(url("https://[::1]:1/a%20b"), "https://[::1]:1/a%20b?timeout=10s");
        check(url("https://a:99999"), "webhook URL \"https://a:99999\" cannot be used");
        let service = value!({"service": {"name": "s", "namespace": "n", "port": 443}});
        check(service, "https://s.n.svc:443/?timeout=10s");
        let service =
            value!({"service": {"name": "s", "namespace": "n", "port": 1, "path": "/p/"}});
        check(service, "https://s.n.svc:1/p?timeout=10s");
    }
}
