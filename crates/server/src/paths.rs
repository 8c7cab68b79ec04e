//! Non-resource paths: discovery, version, health, OpenAPI, the index.

use crate::aggregated;
use crate::app::App;
use crate::body::Body;
use crate::component_pages;
use crate::discovery;
use crate::extra_paths::ExtraRequest;
use crate::fairness;
use crate::health_checks;
use crate::metrics::{self, RequestLabels};
use crate::metrics_page;
use crate::negotiate::{self, Encoding};
use crate::open_api;
use crate::request_body::RequestBody;
use crate::request_head::RequestHead;
use crate::respond::{self, Reply};
use bytes::Bytes;
use http::{Method, header};
use keelson_meta::{Failure, Status, Str, Value, value};
use keelson_schema::json;
use std::sync::Arc;

/// Responds to a request for a non-resource path.
pub(crate) async fn answer(
    app: &Arc<App>,
    head: &RequestHead,
    path: &str,
    user: &Str,
    body: &mut RequestBody,
) -> Result<Reply, Failure> {
    if let Some(reply) = health_checks::answer(app, head, path) {
        return Ok(reply);
    }
    if let Some(reply) = component_pages::answer(app, head, path) {
        return reply;
    }
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match without_last_slashes(&parts) {
        ["" | "index.html"] => Ok(index(app)),
        ["api"] => core_versions(app, head),
        ["apis"] => groups(app, head),
        ["api", version] => resources(app, head, "", version),
        ["apis", name] => group(app, head, name),
        ["apis", "", _] => Ok(respond::no_such_page()),
        ["apis", group, version] => resources(app, head, group, version),
        ["version"] => version(app, head),
        ["version", ..] => Err(Status::no_such_path()),
        ["openapi", rest @ ..] => open_api::answer(app, head, rest).await,
        [".well-known", "openid-configuration"] => openid_configuration(app, head),
        ["openid", "v1", "jwks"] => key_set(app, head),
        ["metrics"] => {
            let body = Body::Whole(Some(metrics_page::text(app).await.into()));
            Ok(respond::compress(head, respond::with_body(200, metrics::MEDIA_TYPE, body)))
        }
        ["debug", "api_priority_and_fairness", dump] => {
            let now = app.registry.clock.now();
            let fairness = app.state.fairness.as_ref();
            let details = head.query.get("includeRequestDetails");
            let has_details = details.is_some_and(|text| !text.is_empty());
            let text = fairness.and_then(|all| fairness::dump(all, dump, has_details, now));
            let Some(text) = text else { return Ok(respond::no_such_page()) };
            let mut reply = respond::text(200, &text);
            reply.headers_mut().remove(header::X_CONTENT_TYPE_OPTIONS);
            Ok(reply)
        }
        ["metrics", "slis"] => {
            let body = Body::Whole(Some(metrics_page::slis(app).into()));
            Ok(respond::with_body(200, metrics::MEDIA_TYPE, body))
        }
        _ => extra(app, head, path, user, body).await,
    }
}

/// Responds with what the program adds.
async fn extra(
    app: &App,
    head: &RequestHead,
    path: &str,
    user: &Str,
    body: &mut RequestBody,
) -> Result<Reply, Failure> {
    let mut paths = app.extra_paths.iter();
    let found = paths.find(|extra| extra.path == path && extra.method == head.method);
    let Some(extra) = found else { return Ok(respond::no_such_page()) };
    // The memory of the body stays reserved until the response is known.
    let (body, _held) = match extra.has_body {
        true => body.read(app.limits.body_bytes_max, &app.state.bodies).await?,
        false => (Bytes::new(), None),
    };
    let request = ExtraRequest { query: &head.query, user, body };
    Ok(respond::value(head, 200, Encoding::Json, &(extra.answer)(&request).await?))
}

/// Removes the slashes at the end of a path that its handler ignores: all below `/api`, `/apis` and
/// `/version`, but one after `/apis` itself, and none below `/openapi`.
fn without_last_slashes<'a, 'b>(parts: &'a [&'b str]) -> &'a [&'b str] {
    match parts {
        ["apis", ""] => &parts[..1],
        ["apis", "", ..] => parts,
        ["api" | "apis" | "version", ..] => {
            let last = parts.iter().rposition(|part| !part.is_empty()).unwrap_or(0);
            &parts[..=last]
        }
        ["openapi", ..] => parts,
        [rest @ .., ""] if rest.len() > 1 => rest,
        all => all,
    }
}

/// Returns the metric labels of a request, for the few paths that are counted.
pub(crate) fn request_labels(head: &RequestHead, path: &str) -> Option<RequestLabels<'static>> {
    let path = match path {
        "/healthz" => "/healthz",
        "/livez" => "/livez",
        "/readyz" => "/readyz",
        "/openapi/v3" => "openapi/v3",
        path if path.starts_with("/openapi/v3/") => "openapi/v3/",
        _ => return None,
    };
    let none = RequestLabels {
        component: "",
        group: "",
        resource: "",
        scope: "",
        subresource: path,
        verb: "GET",
        version: "",
    };
    (head.method == Method::GET).then_some(none)
}

/// Responds with the OIDC discovery document of the service account issuer.
fn openid_configuration(app: &App, head: &RequestHead) -> Result<Reply, Failure> {
    only_get(head)?;
    negotiate::check_accepts(head.header(header::ACCEPT), Encoding::Json.media_type())?;
    let options = &app.registry.options;
    let address = format!("{}:{}", options.advertise_address, options.advertise_port);
    let tokens = app.authenticator.service_accounts();
    let Some(tokens) = tokens else { return Ok(respond::no_such_page()) };
    match tokens.openid_configuration(&address) {
        Some(value) => Ok(public_json(&value, "application/json", tokens.keys_age_seconds_max())),
        None => Ok(respond::no_such_page()),
    }
}

/// Responds with the public keys that verify service account tokens.
fn key_set(app: &App, head: &RequestHead) -> Result<Reply, Failure> {
    const JWKS: &str = "application/jwk-set+json";
    only_get(head)?;
    negotiate::check_accepts(head.header(header::ACCEPT), JWKS)?;
    match app.authenticator.service_accounts() {
        Some(tokens) => Ok(public_json(&tokens.key_set(), JWKS, tokens.keys_age_seconds_max())),
        None => Ok(respond::no_such_page()),
    }
}

fn public_json(value: &Value, media_type: &'static str, age_seconds_max: u64) -> Reply {
    let mut text = vec![];
    json::write_value(value, &mut text);
    let body = Body::Whole(Some(text.into()));
    let mut reply = respond::with_body(200, media_type, body);
    if let Ok(age) = http::HeaderValue::from_str(&format!("public, max-age={age_seconds_max}")) {
        reply.headers_mut().insert(header::CACHE_CONTROL, age);
    }
    reply
}

/// Refuses other methods, where upstream has a route of go-restful: its plain handlers (`/`,
/// `/apis`, groups, OpenAPI) answer every method.
fn only_get(head: &RequestHead) -> Result<(), Failure> {
    match head.method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(Status::method_not_allowed()),
    }
}

/// Responds with `/api`, aggregated if the client accepts that.
fn core_versions(app: &App, head: &RequestHead) -> Result<Reply, Failure> {
    only_get(head)?;
    let accept = head.header(header::ACCEPT);
    if let Some(encoding) = negotiate::accept_aggregated(accept) {
        return aggregated(app, head, true, encoding);
    }
    let encoding = negotiate::accept_document(accept)?;
    let options = &app.registry.options;
    let address = format!("{}:{}", options.advertise_address, options.advertise_port);
    Ok(respond::document(head, encoding, &discovery::core_versions(&address)))
}

/// Responds with `/apis`, aggregated if the client accepts that.
fn groups(app: &App, head: &RequestHead) -> Result<Reply, Failure> {
    let accept = head.header(header::ACCEPT);
    if let Some(encoding) = negotiate::accept_aggregated(accept) {
        return aggregated(app, head, false, encoding);
    }
    let encoding = negotiate::accept_group(accept)?;
    Ok(respond::document(head, encoding, &discovery::groups(&app.registry)))
}

/// Responds with the aggregated document, or 304 if the client has it.
fn aggregated(
    app: &App,
    head: &RequestHead,
    core: bool,
    encoding: Encoding,
) -> Result<Reply, Failure> {
    let cache = if core { &app.state.core_discovery } else { &app.state.discovery };
    let named = head.header(header::IF_NONE_MATCH).unwrap_or_default();
    let is_known =
        |hash: &str| named.strip_prefix('"').and_then(|n| n.strip_suffix('"')) == Some(hash);
    let document = cache.document(&app.registry, core, is_known);
    let mut reply = if is_known(&document.hash) {
        let mut reply = respond::no_content();
        *reply.status_mut() = http::StatusCode::NOT_MODIFIED;
        reply
    } else {
        let text = aggregated::encoded(document.text, encoding)?;
        let mut reply = respond::encoded(head.pretty(), 200, encoding, text);
        let shape = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let media_type = format!("{}{shape}", encoding.media_type());
        if let Ok(value) = http::HeaderValue::from_str(&media_type) {
            reply.headers_mut().insert(header::CONTENT_TYPE, value);
        }
        reply
    };
    let headers = reply.headers_mut();
    if let Ok(tag) = http::HeaderValue::from_str(&format!("\"{}\"", document.hash)) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static("public"));
    headers.insert(header::VARY, http::HeaderValue::from_static("Accept"));
    Ok(reply)
}

fn group(app: &App, head: &RequestHead, name: &str) -> Result<Reply, Failure> {
    let Some(found) = discovery::group(&app.registry, name) else {
        return Ok(respond::no_such_page());
    };
    let encoding = negotiate::accept_group(head.header(header::ACCEPT))?;
    Ok(respond::document(head, encoding, &found))
}

fn resources(app: &App, head: &RequestHead, group: &str, version: &str) -> Result<Reply, Failure> {
    match discovery::group_version_resources(&app.registry, group, version) {
        Some(found) => {
            only_get(head)?;
            let accept = head.header(header::ACCEPT);
            let encoding = match discovery::is_built_in(&app.registry, group, version) {
                true => negotiate::accept_document(accept)?,
                false => negotiate::accept_group(accept)?,
            };
            Ok(respond::document(head, encoding, &found))
        }
        // An unknown version of a known group gets a Status, an unknown group the plain 404 page.
        None if app.registry.has_group(group) => Err(Status::no_such_path()),
        None => Ok(respond::no_such_page()),
    }
}

fn version(app: &App, head: &RequestHead) -> Result<Reply, Failure> {
    only_get(head)?;
    let json = Encoding::Json.media_type();
    negotiate::check_accepts(head.header(header::ACCEPT), json)?;
    let git = &app.version.git_version;
    let mut numbers = git.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or("1");
    let minor = numbers.next().unwrap_or("0");
    let value = value!({
        "major": major, "minor": minor,
        "emulationMajor": major, "emulationMinor": minor,
        "minCompatibilityMajor": major, "minCompatibilityMinor": (previous(minor)),
        "gitVersion": (git.as_str()), "gitCommit": (app.version.git_commit.as_str()),
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": (app.version.build.as_str()),
        "platform": (format!("{}/{}", std::env::consts::OS, go_arch()))
    });
    Ok(respond::indented(200, &value))
}

fn previous(minor: &str) -> String {
    minor.parse::<u32>().map_or(minor.to_owned(), |n| n.saturating_sub(1).to_string())
}

fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Responds with the index (`/`): a list of paths.
fn index(app: &App) -> Reply {
    let rest =
        ["/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"];
    let first = ["/.well-known/openid-configuration", "/api", "/api/v1", "/apis", "/apis/"];
    let fixed = rest
        .into_iter()
        .chain(first)
        .chain(["/openid/v1/jwks"])
        .chain(component_pages::paths(app))
        .chain(app.explorer.then_some(keelson_explorer::PATH));
    let mut paths: Vec<String> =
        fixed.map(str::to_owned).chain(health_checks::paths(app)).collect();
    if let Some(groups) = discovery::groups(&app.registry).get("groups").and_then(Value::as_array) {
        for group in groups {
            let name = group.get("name").and_then(Value::as_str).unwrap_or_default();
            paths.push(format!("/apis/{name}"));
            for version in group.array_at(&["versions"]) {
                let version = version.get("groupVersion").and_then(Value::as_str).unwrap_or("");
                paths.push(format!("/apis/{version}"));
            }
        }
    }
    paths.sort();
    let paths: Vec<Value> = paths.into_iter().map(Value::from).collect();
    respond::indented(200, &value!({"paths": (paths)}))
}
