//! Parses and validates a policy file, with kube-apiserver's messages (apiserver
//! `pkg/audit/policy`, `pkg/apis/audit/validation`).

use super::types::POLICY;
use super::{ANY, GroupResources, Policy, Rule};
use crate::level::{Level, Stage, Stages};
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, FieldError, Path, Value, names};
use keelson_schema::canonical::{Canonicalizer, GoDecoder};
use keelson_schema::yaml;
use thiserror::Error;

const VERSION: &str = "audit.k8s.io/v1";
const KIND: &str = "Policy";

/// Why a policy file is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PolicyError {
    /// It is not a policy.
    #[error("failed decoding: {0}")]
    Decode(String),
    /// It does not say that it is a policy.
    #[error("unknown group version field audit.k8s.io/__internal, Kind=Policy in policy")]
    NoKind,
    /// Its rules contradict themselves.
    #[error("{0}")]
    Invalid(String),
    /// It has no rules.
    #[error("loaded illegal policy with 0 rules")]
    NoRules,
}

/// Parses a file. As upstream, unknown and duplicate fields are ignored.
pub(super) fn parse(text: &str) -> Result<Policy, PolicyError> {
    let parsed = yaml::parse(text).map_err(|error| PolicyError::Decode(error.to_string()))?;
    check_kind(&parsed.value)?;
    let mut canonicalizer = Canonicalizer::new(&POLICY.types, GoDecoder::Json);
    let value = canonicalizer.object(POLICY.root(), parsed.value);
    let value = Value::Object(value.map_err(|error| PolicyError::Decode(error.0))?);
    let duplicates = parsed.duplicates.iter();
    let mut ignored: Vec<String> = duplicates
        .map(|(line, key)| format!("yaml: line {line}: key {key} already set in map"))
        .collect();
    let unknown = canonicalizer.unknown_fields.iter();
    ignored.extend(unknown.map(|path| format!("unknown field {}", quote(path))));
    let mut errors = ErrorList::new();
    let policy = Policy {
        omit_stages: stages(&value, &Path::new("omitStages"), &mut errors),
        rules: rules(&value, &mut errors),
        omit_managed_fields: flag(&value).unwrap_or_default(),
        ignored: (!ignored.is_empty()).then(|| ignored.join(", ")),
    };
    if !errors.is_empty() {
        return Err(PolicyError::Invalid(errors.aggregate()));
    }
    if policy.rules.is_empty() {
        return Err(PolicyError::NoRules);
    }
    Ok(policy)
}

fn check_kind(file: &Value) -> Result<(), PolicyError> {
    let given = |name: &str| file.str_at(&[name]).unwrap_or_default();
    match (given("apiVersion"), given("kind")) {
        (VERSION, KIND) => Ok(()),
        ("", "") => Err(PolicyError::NoKind),
        (VERSION, kind @ ("Event" | "EventList" | "PolicyList")) => Err(PolicyError::Decode(
            format!("converting (v1.{kind}) to (audit.Policy): unknown conversion"),
        )),
        (version, kind) => {
            let kind = quote(kind);
            let version = quote(version);
            let why = format!(
                "no kind {kind} is registered for version {version} in scheme \
                 \"pkg/runtime/scheme.go:111\""
            );
            Err(PolicyError::Decode(why))
        }
    }
}

fn rules(policy: &Value, errors: &mut ErrorList) -> Vec<Rule> {
    let path = Path::new("rules");
    let rules = policy.array_at(&["rules"]).iter().enumerate();
    rules.map(|(at, rule)| read_rule(rule, &path.index(at), errors)).collect()
}

fn read_rule(rule: &Value, path: &Path<'_>, errors: &mut ErrorList) -> Rule {
    let level = level(rule, &path.field("level"), errors);
    let urls = texts(rule, "nonResourceURLs");
    let url_path = path.field("nonResourceURLs");
    for (at, url) in urls.iter().enumerate() {
        check_url(url, &url_path.index(at), errors);
    }
    let resources = resources(rule, &path.field("resources"), errors);
    let omit_stages = stages(rule, &path.field("omitStages"), errors);
    let namespaces = texts(rule, "namespaces");
    if !urls.is_empty() && (!resources.is_empty() || !namespaces.is_empty()) {
        let why = "rules cannot apply to both regular resources and non-resource URLs";
        errors.push(FieldError::invalid(&url_path, list(&urls), why));
    }
    Rule {
        level,
        users: texts(rule, "users"),
        user_groups: texts(rule, "userGroups"),
        verbs: texts(rule, "verbs"),
        resources,
        namespaces,
        urls,
        omit_stages,
        omit_managed_fields: flag(rule),
    }
}

fn level(rule: &Value, path: &Path<'_>, errors: &mut ErrorList) -> Level {
    let name = rule.str_at(&["level"]).unwrap_or_default();
    let level = Level::parse(name);
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if level.is_none() {
        errors.push(FieldError::not_supported(path, name, &Level::ALL.map(Level::name)));
    }
    level.unwrap_or(Level::None)
}

fn check_url(url: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if url == "*" {
        return;
    }
    if !url.starts_with('/') {
        let why = "non-resource URL rules must begin with a '/' character";
        errors.push(FieldError::invalid(path, url, why));
    }
    let before_last = url.char_indices().next_back().map_or("", |(last, _)| &url[..last]);
    if before_last.contains('*') {
        let why = "non-resource URL wildcards '*' must be the final character of the rule";
        errors.push(FieldError::invalid(path, url, why));
    }
}

fn resources(rule: &Value, path: &Path<'_>, errors: &mut ErrorList) -> Vec<GroupResources> {
    let read = |resources: &Value| {
        let group = resources.str_at(&["group"]).unwrap_or_default().to_owned();
        let read = GroupResources {
            resources: texts(resources, "resources"),
            names: texts(resources, "resourceNames"),
            group,
        };
        // As upstream, the paths have no index.
        if !read.group.is_empty() && read.group != ANY {
            let faults = names::is_dns1123_subdomain(&read.group);
            if !faults.is_empty() {
                let path = path.field("group");
                let faults = faults.join(",");
                errors.push(FieldError::invalid(&path, read.group.as_str(), &faults));
            }
        }
        if !read.names.is_empty() && read.resources.is_empty() {
            let why = "using resourceNames requires at least one resource";
            let path = path.field("resourceNames");
            errors.push(FieldError::invalid(&path, list(&read.names), why));
        }
        read
    };
    rule.array_at(&["resources"]).iter().map(read).collect()
}

fn stages(of: &Value, path: &Path<'_>, errors: &mut ErrorList) -> Stages {
    let mut stages = Stages::default();
    for (at, name) in texts(of, "omitStages").iter().enumerate() {
        match Stage::parse(name) {
            Some(stage) => stages.insert(stage),
            None => {
                let why = format!("allowed stages are {}", Stage::ALL.map(Stage::name).join(","));
                errors.push(FieldError::invalid(&path.index(at), name.as_str(), &why));
            }
        }
    }
    stages
}

fn flag(of: &Value) -> Option<bool> {
    of.get("omitManagedFields").and_then(Value::as_bool)
}

fn texts(of: &Value, name: &str) -> Vec<String> {
    let texts = of.array_at(&[name]).iter();
    texts.map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

fn list(texts: &[String]) -> Value {
    Value::Array(texts.iter().map(|text| Value::from(text.as_str())).collect())
}
