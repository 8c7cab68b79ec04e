//! `/healthz`, `/livez` and `/readyz`: all checks together and one by one, with kube-apiserver's
//! names.

use crate::app::App;
use crate::request_head::RequestHead;
use crate::respond::{self, Reply};

/// Most stores of single resources, each with its checks (`--etcd-servers-overrides`).
pub const OTHER_STORES_MAX: usize = 8;

/// A health check.
struct Check {
    name: &'static str,
    probe: Probe,
    /// The endpoints that include it.
    on: CheckedBy,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckedBy {
    All,
    Ready,
    /// `/livez` and `/healthz`.
    Live,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// Always passes: what the check names is done before the first request, or has no state of its
    /// own in Keelson.
    Started,
    /// The store accepts writes.
    Store,
    /// The store of single resources with this number accepts writes. Only listed where there is
    /// one.
    OtherStore(usize),
    /// The server is not shutting down.
    Shutdown,
    /// The component of this name works. Only listed where the configuration has it.
    Component(&'static str),
}

const fn check(on: CheckedBy, name: &'static str, probe: Probe) -> Check {
    Check { name, probe, on }
}

/// A check that only some configurations have.
const fn optional(name: &'static str) -> Check {
    check(CheckedBy::All, name, Probe::Component(name))
}

const fn started(name: &'static str) -> Check {
    check(CheckedBy::All, name, Probe::Started)
}

/// All checks, in the order of the verbose output.
const CHECKS: &[Check] = &[
    started("ping"),
    started("log"),
    check(CheckedBy::Live, "loopback-serving-certificate", Probe::Started),
    check(CheckedBy::All, "etcd", Probe::Store),
    check(CheckedBy::Ready, "etcd-readiness", Probe::Store),
    check(CheckedBy::All, "etcd-override-0", Probe::OtherStore(0)),
    check(CheckedBy::Ready, "etcd-override-readiness-0", Probe::OtherStore(0)),
    check(CheckedBy::All, "etcd-override-1", Probe::OtherStore(1)),
    check(CheckedBy::Ready, "etcd-override-readiness-1", Probe::OtherStore(1)),
    check(CheckedBy::All, "etcd-override-2", Probe::OtherStore(2)),
    check(CheckedBy::Ready, "etcd-override-readiness-2", Probe::OtherStore(2)),
    check(CheckedBy::All, "etcd-override-3", Probe::OtherStore(3)),
    check(CheckedBy::Ready, "etcd-override-readiness-3", Probe::OtherStore(3)),
    check(CheckedBy::All, "etcd-override-4", Probe::OtherStore(4)),
    check(CheckedBy::Ready, "etcd-override-readiness-4", Probe::OtherStore(4)),
    check(CheckedBy::All, "etcd-override-5", Probe::OtherStore(5)),
    check(CheckedBy::Ready, "etcd-override-readiness-5", Probe::OtherStore(5)),
    check(CheckedBy::All, "etcd-override-6", Probe::OtherStore(6)),
    check(CheckedBy::Ready, "etcd-override-readiness-6", Probe::OtherStore(6)),
    check(CheckedBy::All, "etcd-override-7", Probe::OtherStore(7)),
    check(CheckedBy::Ready, "etcd-override-readiness-7", Probe::OtherStore(7)),
    optional("kms-providers"),
    check(CheckedBy::Ready, "informer-sync", Probe::Started),
    optional("poststarthook/start-encryption-provider-config-automatic-reload"),
    started("poststarthook/start-apiserver-admission-initializer"),
    started("poststarthook/generic-apiserver-start-informers"),
    started("poststarthook/priority-and-fairness-config-consumer"),
    started("poststarthook/priority-and-fairness-filter"),
    started("poststarthook/storage-object-count-tracker-hook"),
    started("poststarthook/start-apiextensions-informers"),
    started("poststarthook/start-apiextensions-controllers"),
    started("poststarthook/crd-informer-synced"),
    started("poststarthook/start-system-namespaces-controller"),
    started("poststarthook/peer-endpoint-reconciler-controller"),
    started("poststarthook/start-cluster-authentication-info-controller"),
    started("poststarthook/start-kube-apiserver-identity-lease-controller"),
    started("poststarthook/start-kube-apiserver-identity-lease-garbage-collector"),
    check(CheckedBy::All, "poststarthook/storage-readiness", Probe::Store),
    started("poststarthook/start-legacy-token-tracking-controller"),
    started("poststarthook/start-service-ip-repair-controllers"),
    started("poststarthook/rbac/bootstrap-roles"),
    started("poststarthook/scheduling/bootstrap-system-priority-classes"),
    started("poststarthook/priority-and-fairness-config-producer"),
    started("poststarthook/bootstrap-controller"),
    started("poststarthook/start-kubernetes-service-cidr-controller"),
    started("poststarthook/start-kube-aggregator-informers"),
    started("poststarthook/apiservice-status-local-available-controller"),
    started("poststarthook/apiservice-status-remote-available-controller"),
    started("poststarthook/apiservice-registration-controller"),
    started("poststarthook/apiservice-discovery-controller"),
    started("poststarthook/kube-apiserver-autoregistration"),
    started("autoregister-completion"),
    started("poststarthook/apiservice-openapi-controller"),
    started("poststarthook/apiservice-openapiv3-controller"),
    check(CheckedBy::Ready, "shutdown", Probe::Shutdown),
];

const ROOTS: [&str; 3] = ["healthz", "livez", "readyz"];

/// Returns the paths of all checks, for the index.
pub(crate) fn paths(app: &App) -> impl Iterator<Item = String> {
    ROOTS.into_iter().flat_map(|root| {
        let single = checks(app, root).map(move |check| format!("/{root}/{}", check.name));
        std::iter::once(format!("/{root}")).chain(single)
    })
}

fn checks(app: &App, root: &str) -> impl Iterator<Item = &'static Check> {
    let other = if root == "readyz" { CheckedBy::Live } else { CheckedBy::Ready };
    CHECKS.iter().filter(move |check| match check.probe {
        Probe::Component(name) => app.health.is_listed(name),
        Probe::OtherStore(number) => {
            number < app.registry.options.other_stores.len() && check.on != other
        }
        _ => check.on != other,
    })
}

/// Responds to a request for a health check. Returns `None` for other paths.
pub(crate) fn answer(app: &App, head: &RequestHead, path: &str) -> Option<Reply> {
    let path = path.strip_prefix('/')?;
    let (root, name) = match path.split_once('/') {
        Some((root, name)) => (root, Some(name)),
        None => (path, None),
    };
    let root = ROOTS.into_iter().find(|known| *known == root)?;
    Some(match name {
        None => aggregate(app, head, root),
        Some(name) => single(app, root, name),
    })
}

fn single(app: &App, root: &str, name: &str) -> Reply {
    let failing = app.health.failures();
    let component = failing.iter().find(|(component, _)| *component == name);
    let state = match (checks(app, root).find(|check| check.name == name), component) {
        (Some(check), _) => app.probe(check.probe),
        (None, Some((_, why))) => Err(why.clone()),
        (None, None) => return respond::no_such_page(),
    };
    match state {
        Ok(()) => respond::text(200, "ok"),
        Err(why) => respond::text(500, &format!("internal server error: {why}\n")),
    }
}

fn aggregate(app: &App, head: &RequestHead, root: &'static str) -> Reply {
    let state = if root == "readyz" { app.ready() } else { app.live() };
    app.state.health.log_change(root == "readyz", &state);
    let mut unmatched: Vec<&str> = head.query.all("exclude").collect();
    let excluded = unmatched.clone();
    let mut text = String::new();
    let mut all_pass = true;
    for check in checks(app, root) {
        unmatched.retain(|name| *name != check.name);
        if excluded.contains(&check.name) {
            text.push_str(&format!("[+]{} excluded: ok\n", check.name));
            continue;
        }
        let has_passed = app.probe(check.probe).is_ok();
        app.state.health_counts.count(check.name, root, has_passed);
        all_pass &= has_passed;
        text.push_str(&match has_passed {
            true => format!("[+]{} ok\n", check.name),
            false => format!("[-]{} failed: reason withheld\n", check.name),
        });
    }
    // Components that upstream does not have. Their owners have logged why they fail.
    for (component, why) in app.health.failures() {
        if app.health.is_listed(component) {
            continue;
        }
        unmatched.retain(|name| *name != component);
        if !excluded.contains(&component) {
            all_pass = false;
            text.push_str(&format!("[-]{component} failed: {why}\n"));
        }
    }
    if !unmatched.is_empty() {
        let names = unmatched
            .iter()
            .map(|name| keelson_meta::status::quote(name))
            .collect::<Vec<_>>()
            .join(", ");
        let words = "warn: some health checks cannot be excluded: no matches for";
        text.push_str(&format!("{words} {names}\n"));
    }
    if !all_pass {
        text.push_str(&format!("{root} check failed\n"));
        return respond::text(500, &text);
    }
    if head.query.get("verbose").is_none() {
        return respond::text(200, "ok");
    }
    text.push_str(&format!("{root} check passed\n"));
    respond::text(200, &text)
}

impl App {
    fn probe(&self, probe: Probe) -> Result<(), String> {
        match probe {
            Probe::Started => Ok(()),
            Probe::Store => self.live(),
            Probe::OtherStore(number) => match self.registry.options.other_stores.get(number) {
                Some(other) => other.store.health().map_err(|error| format!("store: {error}")),
                None => Ok(()),
            },
            Probe::Shutdown if self.is_draining() => Err("process is shutting down".to_owned()),
            Probe::Shutdown => Ok(()),
            Probe::Component(name) => {
                let failing = self.health.failures();
                let found = failing.into_iter().find(|(component, _)| *component == name);
                found.map_or(Ok(()), |(_, why)| Err(why))
            }
        }
    }
}
