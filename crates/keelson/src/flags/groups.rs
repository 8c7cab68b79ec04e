//! The groups of flags, in the order of the help.

mod admission;
mod api_enablement;
mod auditing;
mod authentication;
mod authorization;
mod cluster_signing;
mod egress_selector;
mod etcd;
mod features;
mod generic;
mod global;
mod keelson;
mod logs;
mod metrics;
mod misc;
mod secure_serving;
mod traces;

use super::setup::Setup;
use super::table::{Face, Group};

/// The groups of kube-apiserver.
const UPSTREAM: [&Group; 15] = [
    &generic::GROUP,
    &etcd::GROUP,
    &secure_serving::GROUP,
    &auditing::GROUP,
    &features::GROUP,
    &authentication::GROUP,
    &authorization::GROUP,
    &api_enablement::GROUP,
    &egress_selector::GROUP,
    &admission::GROUP,
    &metrics::GROUP,
    &logs::GROUP,
    &traces::GROUP,
    &misc::GROUP,
    &global::GROUP,
];

/// Returns the groups of a command, in the order of its help.
pub fn of(face: Face) -> Vec<&'static Group> {
    let own: &[&Group] = match face {
        Face::Serve => &[&keelson::GROUP, &cluster_signing::GROUP],
        Face::KubeApiserver => &[],
    };
    own.iter().copied().chain(UPSTREAM).collect()
}

/// Checks the files that kube-apiserver reads before it serves, and the address that it listens on.
pub fn check_files(setup: &mut Setup<'_>) {
    etcd::check_files(setup);
    secure_serving::check_files(setup);
    authentication::check_files(setup);
    authorization::check_files(setup);
    auditing::check_files(setup);
    misc::check_files(setup);
}

/// Checks all flags, in the order of kube-apiserver's checks, and applies them.
pub fn apply(setup: &mut Setup<'_>) {
    global::apply(setup);
    generic::apply(setup);
    etcd::apply(setup);
    features::apply(setup);
    secure_serving::apply(setup);
    // Anonymous requests depend on the authorizers.
    let before = setup.errors.len();
    let allows_all = authorization::apply(setup);
    let of_authorization = setup.errors.split_off(before);
    authentication::apply(setup, allows_all);
    setup.errors.extend(of_authorization);
    auditing::apply(setup);
    traces::apply(setup);
    admission::apply(setup);
    api_enablement::apply(setup);
    authentication::check_token_requests(setup);
    egress_selector::apply(setup);
    metrics::apply(setup);
    logs::apply(setup);
    misc::apply(setup);
    if setup.face == Face::Serve {
        keelson::apply(setup);
        cluster_signing::apply(setup);
    }
}
