//! The paths of a group version, from its resources and their verbs.

use super::custom::CustomVersion;
use super::facts::Facts;
pub(super) use super::operations::ANY_MEDIA;
use super::operations::{
    Answer, Body, META, OBJECT_MEDIA, Operation, PathItem, discovery_operation, group_title,
    lower_first, path_item, upper_first,
};
use super::parameters::{self, Parameter};
use crate::catalogue::{Catalogue, Resource, Subresource};
use keelson_meta::{GroupVersionKind, Str};

const STREAM_MEDIA: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

const LOG_MEDIA: &[&str] =
    &["text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

const PATCH_MEDIA: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Builds the paths of a group version.
pub(super) struct Scope<'a> {
    catalogue: &'a Catalogue,
    facts: &'a Facts,
    group: &'a str,
    version: &'a str,
    /// `AppsV1`, a part of every `operationId`.
    title: String,
    /// `apps_v1`.
    tag: Str,
    /// `/apis/apps/v1`.
    root: String,
    /// The custom resources, if the resources are not in the catalogue.
    custom: Option<&'a CustomVersion<'a>>,
    items: Vec<PathItem>,
}

impl<'a> Scope<'a> {
    /// Returns the paths of a group version with these resources, sorted.
    pub fn paths(
        catalogue: &'a Catalogue,
        facts: &'a Facts,
        group: &'a str,
        version: &'a str,
        resources: impl Iterator<Item = &'a Resource>,
        custom: Option<&'a CustomVersion<'a>>,
    ) -> Vec<PathItem> {
        let title = group_title(group);
        let mut scope = Scope {
            catalogue,
            facts,
            group,
            version,
            tag: format!("{}_{version}", lower_first(&title)).into(),
            title: format!("{title}{}", upper_first(version)),
            root: match group {
                "" => format!("/api/{version}"),
                _ => format!("/apis/{group}/{version}"),
            },
            custom,
            items: vec![],
        };
        let list = discovery_operation(
            format!("get{}APIResources", scope.title),
            "Lists the resources of the group version.",
            scope.tag.clone(),
            "APIResourceList",
        );
        scope.add(format!("{}/", scope.root), vec![], vec![list]);
        for resource in resources {
            scope.collection(resource);
            scope.object(resource);
            scope.watches(resource);
            for sub in &resource.subresources {
                scope.subresource(resource, sub);
            }
        }
        scope.items.sort_by(|a, b| a.path.cmp(&b.path));
        scope.items
    }

    /// Adds a path if it has operations.
    fn add(&mut self, path: String, common: Vec<Parameter>, operations: Vec<Operation>) {
        if !operations.is_empty() {
            self.items.push(path_item(path, common, operations));
        }
    }

    /// Returns `/pods` or `/namespaces/{namespace}/pods`, with its parameters.
    fn base(&self, resource: &Resource) -> (String, Vec<Parameter>) {
        if resource.namespaced {
            let path = format!("{}/namespaces/{{namespace}}/{}", self.root, resource.name);
            (path, vec![parameters::namespace()])
        } else {
            (format!("{}/{}", self.root, resource.name), vec![])
        }
    }

    fn collection(&mut self, resource: &Resource) {
        let (path, mut common) = self.base(resource);
        common.push(parameters::PRETTY);
        let mut operations = vec![];
        if resource.has_verb("deletecollection") {
            operations.push(self.delete_collection(resource));
        }
        if resource.has_verb("list") {
            operations.push(self.list(resource, ""));
        }
        if resource.has_verb("create") {
            operations.push(self.post(resource, "", &resource.kind));
        }
        self.add(path, common, operations);
        if resource.namespaced && resource.has_verb("list") {
            let path = format!("{}/{}", self.root, resource.name);
            let list = self.list(resource, "ForAllNamespaces");
            self.add(path, vec![parameters::PRETTY], vec![list]);
        }
    }

    fn object(&mut self, resource: &Resource) {
        let (path, mut common) = self.base(resource);
        common.extend([parameters::name(&resource.kind.kind), parameters::PRETTY]);
        let mut operations = vec![];
        if resource.has_verb("delete") {
            operations.push(self.delete(resource));
        }
        self.read_and_write(resource, "", &resource.kind, &resource.verbs, &mut operations);
        self.add(format!("{path}/{{name}}"), common, operations);
    }

    /// Adds `get`, `update` and `patch` of an object or a subresource.
    fn read_and_write(
        &self,
        resource: &Resource,
        part: &str,
        kind: &GroupVersionKind,
        verbs: &[Str],
        operations: &mut Vec<Operation>,
    ) {
        let has = |verb: &str| verbs.iter().any(|v| v == verb);
        if has("get") {
            operations.push(self.get(resource, part, kind));
        }
        if has("patch") {
            operations.push(self.patch(resource, part, kind));
        }
        if has("update") {
            operations.push(self.put(resource, part, kind));
        }
    }

    /// Adds the deprecated paths below `/watch`.
    fn watches(&mut self, resource: &Resource) {
        if !resource.has_verb("watch") {
            return;
        }
        let (path, common) = self.base(resource);
        let watch = |path: &str| path.replacen(&self.root, &format!("{}/watch", self.root), 1);
        let with = |mut common: Vec<Parameter>, name: Option<Parameter>| {
            common.push(parameters::PRETTY);
            common.extend(name);
            common.extend(parameters::LIST);
            common
        };
        let scope = if resource.namespaced { "Namespaced" } else { "" };
        let kind = &resource.kind.kind;
        let mut found = vec![(
            watch(&path),
            with(common.clone(), None),
            self.watch(resource, format!("{scope}{kind}List"), "watchlist"),
        )];
        if resource.namespaced {
            found.push((
                watch(&format!("{}/{}", self.root, resource.name)),
                with(vec![], None),
                self.watch(resource, format!("{kind}ListForAllNamespaces"), "watchlist"),
            ));
        }
        if resource.has_verb("get") {
            found.push((
                watch(&format!("{path}/{{name}}")),
                with(common, Some(parameters::name(kind))),
                self.watch(resource, format!("{scope}{kind}"), "watch"),
            ));
        }
        for (path, common, operation) in found {
            self.add(path, common, vec![operation]);
        }
    }

    fn subresource(&mut self, resource: &Resource, sub: &Subresource) {
        let (path, mut common) = self.base(resource);
        let path = format!("{path}/{{name}}/{}", sub.name);
        common.push(parameters::name(&sub.kind.kind));
        if sub.kind.kind.ends_with("Options") {
            return self.connections(resource, sub, path, common);
        }
        common.push(parameters::PRETTY);
        let mut operations = vec![];
        if sub.name == "log" {
            common.extend(parameters::LOG);
            let mut log = self.get(resource, &sub.name, &sub.kind);
            (log.answer, log.produces) = (Answer::Text, LOG_MEDIA);
            operations.push(log);
        } else {
            self.read_and_write(resource, &sub.name, &sub.kind, &sub.verbs, &mut operations);
        }
        if sub.has_verb("create") {
            operations.push(self.post(resource, &sub.name, &sub.kind));
        }
        self.add(path, common, operations);
    }

    /// Adds connect subresources: streams and proxies.
    fn connections(
        &mut self,
        resource: &Resource,
        sub: &Subresource,
        path: String,
        mut common: Vec<Parameter>,
    ) {
        common.extend_from_slice(parameters::connect_parameters(&sub.kind.kind));
        let is_proxy = sub.kind.kind.ends_with("ProxyOptions");
        let methods: &[&'static str] = match is_proxy {
            true => &["delete", "get", "head", "options", "patch", "post", "put"],
            false => &["get", "post"],
        };
        let all = |rest: &str| -> Vec<Operation> {
            methods.iter().map(|method| self.connect(resource, sub, method, rest)).collect()
        };
        let plain = all("");
        let with_path = all("WithPath");
        self.add(path.clone(), common.clone(), plain);
        if is_proxy {
            common.push(parameters::rest());
            self.add(format!("{path}/{{path}}"), common, with_path);
        }
    }

    /// Returns an operation with common values. `name` follows the group version in its id.
    fn operation(
        &self,
        method: &'static str,
        verb: &str,
        name: &str,
        kind: &GroupVersionKind,
    ) -> Operation {
        Operation {
            method,
            id: format!("{verb}{}{name}", self.title),
            description: String::new(),
            tag: self.tag.clone(),
            action: method,
            kind: Some(kind.clone()),
            parameters: vec![],
            body: None,
            codes: &[200],
            answer: Answer::Type(self.type_name(kind)),
            produces: OBJECT_MEDIA,
            consumes: ANY_MEDIA,
        }
    }

    /// Returns `NamespacedPodStatus` for `pods/status`.
    fn name(&self, resource: &Resource, part: &str) -> String {
        let scope = if resource.namespaced { "Namespaced" } else { "" };
        format!("{scope}{}{}", resource.kind.kind, upper_first(part))
    }

    fn type_name(&self, kind: &GroupVersionKind) -> Str {
        if let Some(schema) = self.catalogue.schema(kind) {
            return schema.root().name.clone();
        }
        self.custom.map(|custom| custom.type_name(&kind.kind)).unwrap_or_default()
    }

    fn list(&self, resource: &Resource, suffix: &str) -> Operation {
        let kind = &resource.kind;
        let name = match suffix {
            "" => self.name(resource, ""),
            _ => format!("{}{suffix}", kind.kind),
        };
        let mut out = self.operation("get", "list", &name, kind);
        let named = self.custom.and_then(|custom| custom.list_kind(resource));
        let list_kind = named.map_or_else(|| Str::from(format!("{}List", kind.kind)), Str::new);
        let list = GroupVersionKind::new(kind.group.clone(), kind.version.clone(), list_kind);
        out.description = format!("Lists or watches {}.", resource.name);
        out.action = "list";
        out.parameters = parameters::LIST.to_vec();
        out.answer = Answer::Type(self.type_name(&list));
        out.produces = STREAM_MEDIA;
        out
    }

    fn watch(&self, resource: &Resource, name: String, action: &'static str) -> Operation {
        let mut out = self.operation("get", "watch", &name, &resource.kind);
        let what = if action == "watch" { "one of the" } else { "the" };
        out.description = format!(
            "Watches {what} {}. Deprecated: list with the 'watch' parameter.",
            resource.name
        );
        out.action = action;
        out.answer = Answer::Type(format!("{META}WatchEvent").into());
        out.produces = STREAM_MEDIA;
        out
    }

    fn get(&self, resource: &Resource, part: &str, kind: &GroupVersionKind) -> Operation {
        let mut out = self.operation("get", "read", &self.name(resource, part), kind);
        out.description = format!("Reads {}.", what(resource, part));
        out
    }

    fn post(&self, resource: &Resource, part: &str, kind: &GroupVersionKind) -> Operation {
        let mut out = self.operation("post", "create", &self.name(resource, part), kind);
        out.description = format!("Creates {}.", what(resource, part));
        out.parameters =
            vec![parameters::DRY_RUN, parameters::FIELD_MANAGER, parameters::FIELD_VALIDATION];
        out.codes = &[200, 201, 202];
        out.body = Some(Body { type_name: self.type_name(kind), required: true });
        out
    }

    fn put(&self, resource: &Resource, part: &str, kind: &GroupVersionKind) -> Operation {
        let mut out = self.operation("put", "replace", &self.name(resource, part), kind);
        out.description = format!("Replaces {}.", what(resource, part));
        out.parameters =
            vec![parameters::DRY_RUN, parameters::FIELD_MANAGER, parameters::FIELD_VALIDATION];
        out.codes = &[200, 201];
        out.body = Some(Body { type_name: self.type_name(kind), required: true });
        out
    }

    fn patch(&self, resource: &Resource, part: &str, kind: &GroupVersionKind) -> Operation {
        let mut out = self.operation("patch", "patch", &self.name(resource, part), kind);
        out.description = format!("Changes some fields of {}.", what(resource, part));
        out.parameters = vec![
            parameters::DRY_RUN,
            parameters::FIELD_MANAGER_PATCH,
            parameters::FIELD_VALIDATION,
            parameters::FORCE,
        ];
        out.codes = &[200, 201];
        out.body = Some(Body { type_name: format!("{META}Patch").into(), required: true });
        out.consumes = PATCH_MEDIA;
        out
    }

    fn delete(&self, resource: &Resource) -> Operation {
        let name = self.name(resource, "");
        let mut out = self.operation("delete", "delete", &name, &resource.kind);
        out.description = format!("Deletes {}.", what(resource, ""));
        out.parameters = vec![parameters::DRY_RUN];
        out.parameters.extend(parameters::DELETE);
        out.codes = &[200, 202];
        out.body = Some(delete_options());
        if !self.facts.answers_deleted(self.group, self.version, &resource.name) {
            out.answer = Answer::Type(format!("{META}Status").into());
        }
        out
    }

    fn delete_collection(&self, resource: &Resource) -> Operation {
        let name = format!("Collection{}", self.name(resource, ""));
        let mut out = self.operation("delete", "delete", &name, &resource.kind);
        out.description = format!("Deletes all {} that match.", resource.name);
        out.action = "deletecollection";
        out.parameters = vec![parameters::DRY_RUN];
        out.parameters.extend(parameters::DELETE);
        let is_for_watches = |name: &str| matches!(name, "watch" | "allowWatchBookmarks");
        out.parameters.extend(parameters::LIST.into_iter().filter(|p| !is_for_watches(p.name)));
        out.body = Some(delete_options());
        out.answer = Answer::Type(format!("{META}Status").into());
        out
    }

    fn connect(
        &self,
        resource: &Resource,
        sub: &Subresource,
        method: &'static str,
        rest: &str,
    ) -> Operation {
        let name = format!("{}{}{rest}", upper_first(method), self.name(resource, &sub.name));
        let mut out = self.operation(method, "connect", &name, &sub.kind);
        let upper = method.to_uppercase();
        out.description =
            format!("Connects {upper} requests with the {} of a {}.", sub.name, resource.singular);
        out.action = "connect";
        out.answer = Answer::Text;
        out.produces = ANY_MEDIA;
        out
    }
}

fn delete_options() -> Body {
    Body { type_name: format!("{META}DeleteOptions").into(), required: false }
}

/// Returns `the status of one deployment`.
fn what(resource: &Resource, part: &str) -> String {
    let one = if resource.singular.is_empty() { &resource.name } else { &resource.singular };
    if part.is_empty() { format!("one {one}") } else { format!("the {part} of one {one}") }
}
