//! The rules of a configuration file, in the order in which kube-apiserver reports them.

use super::{GroupResource, decode_secret, kms_time};
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, FieldError, Map, Path, Value};
use std::collections::{HashMap, HashSet};

/// The lengths of keys, in bytes.
const AES_KEYS: &[usize] = &[16, 24, 32];
const SECRETBOX_KEYS: &[usize] = &[32];

const OVERLAP: &str = "using overlapping resources such as 'secrets' and '*.' in the same resource \
    list is not allowed as they will be masked";
const EVENTS: &str = "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. \
    Use 'events' instead in the config file";

/// Checks a decoded file.
pub(super) fn check(file: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let root = Path::new("resources");
    let entries = file.array_at(&["resources"]);
    if entries.is_empty() {
        errors.push(FieldError::required(&root, "at least one resources is required"));
    }
    let mut kms_names = HashSet::new();
    for (at, entry) in entries.iter().enumerate() {
        check_entry(entry, &root.index(at), &mut kms_names, &mut errors);
    }
    errors
}

fn check_entry<'v>(
    entry: &'v Value,
    path: &Path<'_>,
    kms_names: &mut HashSet<&'v str>,
    errors: &mut ErrorList,
) {
    let resources: Vec<&str> =
        entry.array_at(&["resources"]).iter().map(|name| name.as_str().unwrap_or("")).collect();
    let place = path.field("resources");
    if resources.is_empty() {
        errors.push(FieldError::required(&place, &format!("at least one {place} is required")));
    }
    check_overlap(&resources, &place, errors);
    for (at, name) in resources.iter().enumerate() {
        if let Some(why) = fault_of_resource(name) {
            errors.push(FieldError::invalid(&place.index(at), *name, why));
        }
    }
    let providers = entry.array_at(&["providers"]);
    let place = path.field("providers");
    if providers.is_empty() {
        errors.push(FieldError::required(&place, &format!("at least one {place} is required")));
    }
    for (at, provider) in providers.iter().enumerate() {
        check_provider(provider, &place.index(at), kms_names, errors);
    }
}

fn check_overlap(resources: &[&str], path: &Path<'_>, errors: &mut ErrorList) {
    // The number of resources of each group, and whether one of them is a wildcard.
    let mut groups: HashMap<String, (usize, bool)> = HashMap::new();
    let mut known = HashSet::new();
    let mut has_duplicate = false;
    let mut has_everything = false;
    for name in resources {
        let parsed = GroupResource::parse(name);
        let (count, has_wildcard) = groups.entry(parsed.group.clone()).or_default();
        *count += 1;
        *has_wildcard |= parsed.resource == "*";
        has_everything |= parsed == GroupResource::parse("*.*");
        has_duplicate |= !known.insert(parsed);
    }
    let has_overlap = has_everything && resources.len() > 1
        || groups.values().any(|(count, has_wildcard)| *has_wildcard && *count > 1);
    let names = || Value::Array(resources.iter().map(|name| Value::from(*name)).collect());
    if has_duplicate {
        let why = "the same resource cannot be specified multiple times";
        errors.push(FieldError::invalid(path, names(), why));
    }
    if has_overlap {
        errors.push(FieldError::invalid(path, names(), OVERLAP));
    }
}

fn fault_of_resource(name: &str) -> Option<&'static str> {
    let GroupResource { group, resource } = GroupResource::parse(name);
    if name.to_lowercase() != name {
        return Some("resource name should not contain capital letters");
    }
    match name {
        "*" => {
            return Some(
                "use '*.' to encrypt all the resources from core API group or *.* to encrypt all \
                 resources",
            );
        }
        "apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations" => {
            return Some("resources which do not have REST API/s cannot be encrypted");
        }
        _ => {}
    }
    match &*group {
        "events.k8s.io" => Some(EVENTS),
        "extensions" => {
            Some("'extensions' group has been removed and cannot be used for encryption")
        }
        "*" if resource != "*" => {
            Some("encrypting the same resource across groups is not supported")
        }
        _ => None,
    }
}

/// The providers in the order in which exactly one of an element is checked.
const PROVIDERS: [(&str, &str); 5] = [
    ("aesgcm", "AESGCM"),
    ("aescbc", "AESCBC"),
    ("secretbox", "Secretbox"),
    ("identity", "Identity"),
    ("kms", "KMS"),
];

fn check_provider<'v>(
    provider: &'v Value,
    path: &Path<'_>,
    kms_names: &mut HashSet<&'v str>,
    errors: &mut ErrorList,
) {
    let of = |name: &str| provider.get(name).filter(|value| !value.is_null());
    match PROVIDERS.iter().filter(|(name, _)| of(name).is_some()).count() {
        0 => {
            let why = "provider does not contain any of the expected providers: KMS, AESGCM, \
                       AESCBC, Secretbox, Identity";
            errors.push(FieldError::invalid(path, shown(provider), why));
        }
        1 => {}
        _ => {
            let why = "more than one provider specified in a single element, should split into \
                       different list elements";
            errors.push(FieldError::invalid(path, shown(provider), why));
        }
    }
    if let Some(kms) = of("kms") {
        check_kms(kms, &path.field("kms"), kms_names, errors);
        kms_names.insert(kms.str_at(&["name"]).unwrap_or_default());
    } else if let Some(aesgcm) = of("aesgcm") {
        check_keys(aesgcm, AES_KEYS, &path.field("aesgcm"), errors);
    } else if let Some(aescbc) = of("aescbc") {
        check_keys(aescbc, AES_KEYS, &path.field("aescbc"), errors);
    } else if let Some(secretbox) = of("secretbox") {
        check_keys(secretbox, SECRETBOX_KEYS, &path.field("secretbox"), errors);
    }
}

/// Returns a provider as kube-apiserver shows it, but without its secrets.
fn shown(provider: &Value) -> Value {
    let mut shown = Map::default();
    for (name, title) in PROVIDERS {
        let value = match (name, provider.get(name).filter(|value| !value.is_null())) {
            (_, None) => Value::Null,
            ("identity", Some(_)) => Value::Object(Map::default()),
            ("kms", Some(kms)) => shown_kms(kms),
            (_, Some(keys)) => {
                let keys = keys.array_at(&["keys"]).iter().map(|key| {
                    let mut shown = Map::default();
                    shown.insert("Name", key.str_at(&["name"]).unwrap_or_default());
                    shown.insert("Secret", "REDACTED");
                    Value::Object(shown)
                });
                let mut shown = Map::default();
                shown.insert("Keys", Value::Array(keys.collect()));
                Value::Object(shown)
            }
        };
        shown.insert(title, value);
    }
    Value::Object(shown)
}

fn shown_kms(kms: &Value) -> Value {
    let text = |name: &str| kms.str_at(&[name]).unwrap_or_default().to_owned();
    let mut shown = Map::default();
    shown.insert("APIVersion", api_version(kms));
    shown.insert("Name", text("name"));
    shown.insert("CacheSize", kms.get("cachesize").cloned().unwrap_or_default());
    shown.insert("Endpoint", text("endpoint"));
    shown.insert("Timeout", kms_time(kms).map_or("3s".to_owned(), |time| time.to_string()));
    Value::Object(shown)
}

fn check_keys(of: &Value, lengths: &[usize], path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.field("keys");
    let keys = of.array_at(&["keys"]);
    if keys.is_empty() {
        errors.push(FieldError::required(&path, "at least one keys is required"));
    }
    for (at, key) in keys.iter().enumerate() {
        let path = path.index(at);
        let text = |name: &str| key.str_at(&[name]).unwrap_or_default();
        if text("name").is_empty() {
            let why = "name is a mandatory field for a key";
            errors.push(FieldError::required(&path.field("name"), why));
        }
        let secret = text("secret");
        let path = path.field("secret");
        if secret.is_empty() {
            errors.push(FieldError::required(&path, "secret is a mandatory field for a key"));
            continue;
        }
        let why = match decode_secret(secret) {
            None => "secrets must be base64 encoded".to_owned(),
            Some(secret) if lengths.contains(&secret.len()) => continue,
            Some(secret) => {
                let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
                let given = secret.len();
                let lengths = lengths.join(" ");
                format!(
                    "secret is not of the expected length, got {given}, expected one of [{lengths}]"
                )
            }
        };
        errors.push(FieldError::invalid(&path, "REDACTED", &why));
    }
}

fn api_version(kms: &Value) -> &str {
    match kms.str_at(&["apiVersion"]) {
        None | Some("") => "v1",
        Some(version) => version,
    }
}

fn check_kms(kms: &Value, path: &Path<'_>, names: &HashSet<&str>, errors: &mut ErrorList) {
    let text = |name: &str| kms.str_at(&[name]).unwrap_or_default();
    let version = api_version(kms);
    let name = text("name");
    let place = path.field("name");
    if name.is_empty() {
        errors.push(FieldError::required(&place, "name is a mandatory field for a provider"));
    }
    if version != "v1" && name.contains(':') {
        let why = format!("invalid KMS provider name {name}, must not contain ':'");
        errors.push(FieldError::invalid(&place, name, &why));
    }
    if version != "v1" && names.contains(name) {
        let why = format!("duplicate KMS provider name {name}, names must be unique");
        errors.push(FieldError::invalid(&place, name, &why));
    }
    if let Some(time) = kms_time(kms).filter(|time| time.0 <= 0) {
        let why = "timeout should be a positive value";
        errors.push(FieldError::invalid(&path.field("timeout"), time.to_string(), why));
    }
    let endpoint = text("endpoint");
    if let Some(why) = fault_of_endpoint(endpoint) {
        errors.push(FieldError::invalid(&path.field("endpoint"), endpoint, &why));
    }
    if let Some(size) = kms.get("cachesize").filter(|size| !size.is_null()) {
        let why = match (version, size.as_int()) {
            ("v1", Some(0)) => Some("cachesize should be a positive value, or negative to disable"),
            ("v1", _) => None,
            _ => Some("cachesize is not supported in v2"),
        };
        if let Some(why) = why {
            errors.push(FieldError::invalid(&path.field("cachesize"), size.clone(), why));
        }
    }
    if !matches!(version, "v1" | "v2") {
        let why =
            "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
        errors.push(FieldError::invalid(&path.field("apiVersion"), version, why));
    }
}

fn fault_of_endpoint(endpoint: &str) -> Option<String> {
    if endpoint.is_empty() {
        return Some("endpoint is a mandatory field for a kms".to_owned());
    }
    match scheme(endpoint) {
        Err(why) => {
            let endpoint = quote(endpoint);
            Some(format!("invalid endpoint for kms provider, error: parse {endpoint}: {why}"))
        }
        Ok("unix") => None,
        Ok(scheme) => {
            let scheme = quote(scheme);
            Some(format!("unsupported scheme {scheme} for KMS provider, only unix is supported"))
        }
    }
}

/// Returns the scheme of a URL, or what Go's parser says of it.
fn scheme(url: &str) -> Result<&str, String> {
    if url.chars().any(|c| c.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    for (at, _) in url.match_indices('%') {
        let digits = &url.as_bytes()[at + 1..];
        if !digits.iter().take(2).filter(|byte| byte.is_ascii_hexdigit()).count().eq(&2) {
            let bad: String = url[at..].chars().take(3).collect();
            return Err(format!("invalid URL escape {}", quote(&bad)));
        }
    }
    match url.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.')) {
        Some(0) if url.starts_with(':') => Err("missing protocol scheme".to_owned()),
        Some(end) if url[end..].starts_with(':') => Ok(&url[..end]),
        _ => Ok(""),
    }
}

/// Returns the path of the socket of a valid endpoint: `unix:///path`, or `unix:///@name` for one
/// in the abstract namespace.
pub(super) fn socket_path(endpoint: &str) -> Result<String, String> {
    let rest = endpoint.strip_prefix("unix:").unwrap_or(endpoint);
    let path = rest.strip_prefix("//").unwrap_or(rest);
    match path.strip_prefix("/@") {
        _ if path.is_empty() => Err("no path of a socket".to_owned()),
        Some(name) => Ok(format!("@{name}")),
        None => Ok(path.to_owned()),
    }
}
