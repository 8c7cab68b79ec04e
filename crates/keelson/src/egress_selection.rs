//! The file of `--egress-selector-config-file` (`EgressSelectorConfiguration` of
//! `apiserver.k8s.io`), read strictly, with kube-apiserver's messages.

use crate::files::go_words;
use keelson_egress::{EgressSelector, Identity, Peer, Route, Scheme, Trust, Tunneler};
use keelson_meta::Value;
use keelson_meta::go_url::Url;
use keelson_meta::status::quote;
use keelson_schema::types::{ListShape, Types};
use keelson_schema::{Field, Shape, Struct, StructId, decode, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, LazyLock};

const GROUP: &str = "apiserver.k8s.io/";
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
const KIND: &str = "EgressSelectorConfiguration";
const NAMES: [&str; 3] = ["cluster", "controlplane", "etcd"];
/// What errors say of the place of all of them.
const PLACE: &str = "service.connection";
const HTTPS_PORT: u16 = 443;
const HTTP_PORT: u16 = 80;

const ROOT: StructId = StructId(0);

static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let text = |name| Field::new(name, Shape::String);
    let of = |name, number| Field::new(name, Shape::Struct(StructId(number)));
    let selections = Shape::List(Box::new(ListShape::atomic(Shape::Struct(StructId(1)))));
    let named = |name: &str, fields| {
        Struct::new(format!("io.k8s.apiserver.pkg.apis.apiserver.v1beta1.{name}"), fields)
    };
    Types::new(vec![
        named(
            KIND,
            vec![text("kind"), text("apiVersion"), Field::new("egressSelections", selections)],
        ),
        named("EgressSelection", vec![text("name"), of("connection", 2)]),
        named("Connection", vec![text("proxyProtocol"), of("transport", 3)]),
        named("Transport", vec![of("tcp", 4), of("uds", 5)]),
        named("TCPTransport", vec![text("url"), of("tlsConfig", 6)]),
        named("UDSTransport", vec![text("udsName")]),
        named(
            "TLSConfig",
            vec![text("caBundle"), text("clientKey"), text("clientCert"), text("tlsServerName")],
        ),
    ])
});

/// Reads a file. Returns the proxies of networks.
pub fn read_egress_selector(path: &Path) -> Result<EgressSelector, String> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!(
            "failed to read egress selector config: unable to read egress selector configuration \
             from {} [{}]",
            quote(&shown),
            go_words(path, &error)
        )
    })?;
    parse(&text)
}

fn parse(text: &str) -> Result<EgressSelector, String> {
    let file =
        decode(text).map_err(|why| format!("failed to read egress selector config: {why}"))?;
    let selections = file.array_at(&["egressSelections"]);
    let errors = check(selections);
    match errors.as_slice() {
        [] => {}
        [error] => {
            return Err(format!("failed to validate egress selector configuration: {error}"));
        }
        errors => {
            let errors = errors.join(", ");
            return Err(format!("failed to validate egress selector configuration: [{errors}]"));
        }
    }
    let mut selector = EgressSelector::default();
    for selection in selections {
        let name = name_of(selection);
        let proxy = proxy(selection).map_err(|why| {
            format!(
                "failed to setup egress selector: failed to create dialer for egressSelection {}: \
                 {why}",
                quote(&name)
            )
        })?;
        match name.as_str() {
            "cluster" => selector.cluster = proxy,
            "controlplane" => selector.control_plane = proxy,
            _ => selector.etcd = proxy,
        }
    }
    Ok(selector)
}

fn decode(text: &str) -> Result<Value, String> {
    decode::configuration_file(&TYPES, ROOT, text, GROUP, &VERSIONS, KIND)
}

/// Returns the name of a selection. `master` is the older name of `controlplane`, in lower case
/// only.
fn name_of(selection: &Value) -> String {
    match selection.str_at(&["name"]).unwrap_or_default() {
        "master" => "controlplane".to_owned(),
        name => name.to_lowercase(),
    }
}

/// Returns all that is wrong, each once.
fn check(selections: &[Value]) -> Vec<String> {
    let mut errors: Vec<String> = vec![];
    for selection in selections {
        let connection = Connection::of(selection);
        match connection.protocol {
            "Direct" => connection.check_direct(&mut errors),
            "HTTPConnect" => connection.check_http_connect(&mut errors),
            "GRPC" => connection.check_grpc(&mut errors),
            other => errors.push(format!(
                "{PLACE}.protocol: Unsupported value: {}: supported values: \"Direct\", \
                 \"HTTPConnect\", \"GRPC\"",
                quote(other)
            )),
        }
    }
    let mut seen = BTreeSet::new();
    for (number, selection) in selections.iter().enumerate() {
        let name = name_of(selection);
        let quoted = quote(&name);
        let is_known = NAMES.contains(&name.as_str());
        if !seen.insert(name) {
            errors.push(format!("{PLACE}[{number}]: Duplicate value: {quoted}"));
        } else if !is_known {
            errors.push(format!(
                "{PLACE}: Unsupported value: {quoted}: supported values: \"cluster\", \
                 \"controlplane\", \"etcd\""
            ));
        }
    }
    let mut known = BTreeSet::new();
    errors.retain(|error| known.insert(error.clone()));
    errors
}

/// The connection of a selection.
struct Connection<'a> {
    protocol: &'a str,
    transport: Option<&'a Value>,
    tcp: Option<&'a Value>,
    uds: Option<&'a Value>,
}

impl<'a> Connection<'a> {
    fn of(selection: &'a Value) -> Connection<'a> {
        let transport = selection.at(&["connection", "transport"]).filter(|it| is_set(it));
        let part = |name| transport.and_then(|it| it.get(name)).filter(|it| is_set(it));
        Connection {
            protocol: selection.str_at(&["connection", "proxyProtocol"]).unwrap_or_default(),
            transport,
            tcp: part("tcp"),
            uds: part("uds"),
        }
    }

    fn check_direct(&self, errors: &mut Vec<String>) {
        if self.transport.is_some() {
            errors.push(format!(
                "{PLACE}.transport: Invalid value: \"direct\": config must be absent for direct connect"
            ));
        }
    }

    fn check_http_connect(&self, errors: &mut Vec<String>) {
        if self.transport.is_none() {
            let why = "Required value: transport must be set for HTTPConnect";
            errors.push(format!("{PLACE}.transport: {why}"));
            return;
        }
        match (self.tcp, self.uds) {
            (Some(tcp), Some(_)) => errors.push(format!(
                "{PLACE}.tcp: Invalid value: {}: TCP and UDS cannot both be set",
                shown_tcp(tcp)
            )),
            (None, None) => {
                let why = "Required value: One of TCP or UDS must be set";
                errors.push(format!("{PLACE}.tcp: {why}"));
            }
            (Some(tcp), None) => check_tcp(tcp, errors),
            (None, Some(uds)) => check_uds(uds, errors),
        }
    }

    fn check_grpc(&self, errors: &mut Vec<String>) {
        match (self.transport, self.uds) {
            (None, _) => {
                let why = "Required value: transport must be set for GRPC";
                errors.push(format!("{PLACE}.transport: {why}"));
            }
            (Some(_), Some(uds)) => check_uds(uds, errors),
            (Some(_), None) => {
                errors.push(format!("{PLACE}.uds: Required value: UDS must be set with GRPC"));
            }
        }
    }
}

fn is_set(value: &Value) -> bool {
    value.as_object().is_some()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.str_at(&[name]).unwrap_or_default()
}

/// Returns the JSON of a struct whose fields have no other names there.
fn shown_tcp(tcp: &Value) -> String {
    let string = |value: &str| {
        let mut out = vec![];
        json::write_value(&Value::from(value), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    };
    let tls = tcp.get("tlsConfig").filter(|tls| is_set(tls)).map(|tls| {
        let field = |name, known| format!("{}:{}", string(name), string(text(tls, known)));
        let fields = [
            field("CABundle", "caBundle"),
            field("ClientKey", "clientKey"),
            field("ClientCert", "clientCert"),
            field("TLSServerName", "tlsServerName"),
        ];
        format!("{{{}}}", fields.join(","))
    });
    let tls = tls.as_deref().unwrap_or("null");
    format!("{{\"URL\":{},\"TLSConfig\":{tls}}}", string(text(tcp, "url")))
}

fn check_uds(uds: &Value, errors: &mut Vec<String>) {
    if text(uds, "udsName").is_empty() {
        let why = "Invalid value: \"nil\": must be present for UDS connections";
        errors.push(format!("{PLACE}.udsName: {why}"));
    }
}

fn check_tcp(tcp: &Value, errors: &mut Vec<String>) {
    let url = text(tcp, "url");
    let tls = tcp.get("tlsConfig").filter(|tls| is_set(tls));
    if url.starts_with("http://") {
        if tls.is_some() {
            let why = "Invalid value: \"nil\": config must not be present when using HTTP";
            errors.push(format!("{PLACE}.tlsConfig: {why}"));
        }
        return;
    }
    if !url.starts_with("https://") {
        errors.push(format!(
            "{PLACE}.url: Invalid value: {}: supported connection protocols are http:// and https://",
            quote(url)
        ));
        return;
    }
    let Some(tls) = tls else {
        let why = "Required value: TLSConfig must be present when using HTTPS";
        errors.push(format!("{PLACE}.tlsConfig: {why}"));
        return;
    };
    let mut check = |name: &str, absent: Option<&str>, missing: &str| {
        let path = text(tls, name);
        let place = format!("{PLACE}.tlsConfig.{name}");
        match (path, absent) {
            ("", None) => {}
            ("", Some(why)) => errors.push(format!("{place}: Invalid value: \"nil\": {why}")),
            (path, _) if Path::new(path).exists() => {}
            (path, _) => {
                errors.push(format!("{place}: Invalid value: {}: {missing}", quote(path)));
            }
        }
    };
    check("caBundle", None, "TLS config ca bundle does not exist");
    let absent = Some("Using TLS requires clientCert");
    check("clientCert", absent, "TLS client cert does not exist");
    let absent = Some("Using TLS requires requires clientKey");
    check("clientKey", absent, "TLS client key does not exist");
}

/// Returns the proxy of a selection that was checked; `None`: connections are direct.
fn proxy(selection: &Value) -> Result<Option<Arc<Tunneler>>, String> {
    let connection = Connection::of(selection);
    let socket = connection.uds.map(|uds| text(uds, "udsName"));
    let tunneler = match (connection.protocol, socket, connection.tcp) {
        ("GRPC", Some(socket), _) => Tunneler::grpc_socket(socket),
        ("HTTPConnect", Some(socket), _) => Tunneler::http_connect_socket(socket),
        ("HTTPConnect", None, Some(tcp)) => {
            let peer = peer(tcp)?;
            Tunneler::http_connect(&peer).map_err(|error| error.to_string())?
        }
        _ => return Ok(None),
    };
    Ok(Some(Arc::new(tunneler)))
}

/// Returns the proxy of a URL, with its certificates.
fn peer(tcp: &Value) -> Result<Peer, String> {
    let url = text(tcp, "url");
    let parsed =
        Url::parse(url).map_err(|why| format!("invalid proxy server url {}: {why}", quote(url)))?;
    let is_secure = parsed.scheme == "https";
    let default = if is_secure { HTTPS_PORT } else { HTTP_PORT };
    let (host, port) = match parsed.host.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(default)),
        _ => (parsed.host.as_str(), default),
    };
    let mut peer = Peer::new(host, port);
    peer.route = Route::Node;
    if !is_secure {
        peer.scheme = Scheme::Http;
        return Ok(peer);
    }
    let tls = tcp.get("tlsConfig").cloned().unwrap_or(Value::Null);
    let read = |name: &str| {
        let path = text(&tls, name).to_owned();
        std::fs::read(&path).map_err(|error| go_words(Path::new(&path), &error))
    };
    let certificate = text(&tls, "clientCert");
    let key = text(&tls, "clientKey");
    let failed = |why: String| format!("failed to read key pair {certificate} & {key}, got {why}");
    peer.identity = Some(Identity {
        chain: read("clientCert").map_err(failed)?.into(),
        key: read("clientKey").map_err(failed)?.into(),
    });
    let bundle = text(&tls, "caBundle");
    if !bundle.is_empty() {
        let bytes = read("caBundle");
        let bytes = bytes.map_err(|why| format!("failed to read cert file {bundle}, got {why}"))?;
        peer.trust = Trust::Bundle(bytes.into());
    }
    let name = text(&tls, "tlsServerName");
    peer.server_name = (!name.is_empty()).then(|| name.to_owned());
    Ok(peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(selections: &str) -> Result<String, String> {
        let text = format!(
            r#"{{"kind":"{KIND}","apiVersion":"apiserver.k8s.io/v1beta1","egressSelections":{selections}}}"#
        );
        let selector = parse(&text)?;
        let shown = |tunneler: &Option<Arc<Tunneler>>| {
            tunneler.as_ref().map_or("direct".to_owned(), |it| format!("{it:?}"))
        };
        let all = [&selector.control_plane, &selector.cluster, &selector.etcd];
        Ok(all.map(shown).join(", "))
    }

    #[test]
    fn networks_have_proxies() {
        for (selections, expected) in [
            ("[]", "direct, direct, direct"),
            (
                r#"[{"name":"cluster","connection":{"proxyProtocol":"GRPC","transport":{"uds":{"udsName":"/g"}}}},
                    {"name":"Etcd","connection":{"proxyProtocol":"Direct"}},
                    {"name":"master","connection":{"proxyProtocol":"HTTPConnect",
                     "transport":{"uds":{"udsName":"/c"}}}}]"#,
                "CONNECT by /c, gRPC to /g, direct",
            ),
            (
                r#"[{"name":"etcd","connection":{"proxyProtocol":"HTTPConnect",
                    "transport":{"tcp":{"url":"http://[::1]:8131"}}}}]"#,
                "direct, direct, CONNECT by [::1]:8131",
            ),
        ] {
            assert_eq!(parsed(selections).as_deref(), Ok(expected), "{selections}");
        }
    }

    #[test]
    fn wrong_files_get_upstreams_messages() {
        let failed = "failed to validate egress selector configuration: service.connection";
        let of = |connection: &str| format!(r#"[{{"name":"cluster","connection":{connection}}}]"#);
        let tcp = |tcp: &str| {
            of(&format!(r#"{{"proxyProtocol":"HTTPConnect","transport":{{"tcp":{tcp}}}}}"#))
        };
        for (selections, expected) in [
            (
                of("{}"),
                ".protocol: Unsupported value: \"\": supported values: \"Direct\", \"HTTPConnect\", \
                 \"GRPC\"",
            ),
            (
                of(r#"{"proxyProtocol":"Direct","transport":{}}"#),
                ".transport: Invalid value: \"direct\": config must be absent for direct connect",
            ),
            (
                of(r#"{"proxyProtocol":"HTTPConnect"}"#),
                ".transport: Required value: transport must be set for HTTPConnect",
            ),
            (
                of(r#"{"proxyProtocol":"HTTPConnect","transport":{}}"#),
                ".tcp: Required value: One of TCP or UDS must be set",
            ),
            (
                of(r#"{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"a"},"uds":{}}}"#),
                ".tcp: Invalid value: {\"URL\":\"a\",\"TLSConfig\":null}: TCP and UDS cannot both be \
                 set",
            ),
            (
                of(r#"{"proxyProtocol":"GRPC"}"#),
                ".transport: Required value: transport must be set for GRPC",
            ),
            (
                of(r#"{"proxyProtocol":"GRPC","transport":{"tcp":{"url":"https://a"}}}"#),
                ".uds: Required value: UDS must be set with GRPC",
            ),
            (
                of(r#"{"proxyProtocol":"GRPC","transport":{"uds":{}}}"#),
                ".udsName: Invalid value: \"nil\": must be present for UDS connections",
            ),
            (
                tcp(r#"{"url":"ftp://a"}"#),
                ".url: Invalid value: \"ftp://a\": supported connection protocols are http:// and \
                 https://",
            ),
            (
                tcp(r#"{"url":"http://a","tlsConfig":{}}"#),
                ".tlsConfig: Invalid value: \"nil\": config must not be present when using HTTP",
            ),
            (
                tcp(r#"{"url":"https://a"}"#),
                ".tlsConfig: Required value: TLSConfig must be present when using HTTPS",
            ),
            (
                tcp(
                    r#"{"url":"https://a","tlsConfig":{"clientCert":"/dev/null","clientKey":"/absent"}}"#,
                ),
                ".tlsConfig.clientKey: Invalid value: \"/absent\": TLS client key does not exist",
            ),
        ] {
            assert_eq!(parsed(&selections), Err(format!("{failed}{expected}")), "{selections}");
        }
    }

    #[test]
    fn a_network_has_one_selection() {
        let several = r#"[{"name":"Master","connection":{"proxyProtocol":"Direct"}},
            {"name":"etcd","connection":{"proxyProtocol":"Direct"}},
            {"name":"ETCD","connection":{"proxyProtocol":"Direct"}}]"#;
        // Only `master` itself is the older name.
        let expected = "failed to validate egress selector configuration: [service.connection: \
            Unsupported value: \"master\": supported values: \"cluster\", \"controlplane\", \"etcd\", \
            service.connection[2]: Duplicate value: \"etcd\"]";
        assert_eq!(parsed(several), Err(expected.to_owned()));
    }

    #[test]
    fn unreadable_files_get_upstreams_messages() {
        let read = "failed to read egress selector config: ";
        let unknown =
            format!(r#"{{"kind":"{KIND}","apiVersion":"apiserver.k8s.io/v1beta1","foo":1}}"#);
        let why = format!("{read}strict decoding error: unknown field \"foo\"");
        assert_eq!(parse(&unknown).map(drop), Err(why));
        let other = format!(r#"{{"kind":"{KIND}","apiVersion":"apiserver.k8s.io/v1"}}"#);
        let why = format!(
            "{read}no kind \"{KIND}\" is registered for version \"apiserver.k8s.io/v1\" in scheme \
             \"pkg/runtime/scheme.go:111\""
        );
        assert_eq!(parse(&other).map(drop), Err(why));
        let why = format!(
            "{read}unable to read egress selector configuration from \"/absent\" [open /absent: no \
             such file or directory]"
        );
        assert_eq!(read_egress_selector(Path::new("/absent")).map(drop), Err(why));
    }
}
