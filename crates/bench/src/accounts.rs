//! The cost of a service account's requests compared to the administrator's: its token is verified,
//! and RBAC authorizes it.

use crate::Bench;
use crate::bodies::{member, pod};
use crate::client::{ApiRequest, Client};
use crate::drive::{Load, drive};
use crate::report::Report;
use crate::start::quantile;
use crate::target::Target;
use anyhow::{Context, Result};
use http::HeaderValue;
use serde_json::{Value, json};

/// Rounds of both users in turn, so that noise of the machine affects both.
const ROUNDS: u32 = 8;
/// A round lasts the duration of a profile divided by this.
const ROUND_DIVISOR: u32 = 3;
/// The Pod that is read.
pub const POD: &str = "read";

/// Measures the rate of gets.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let workers = bench.run.connections;
    let (ratio, load) = rate(bench, workers).await?;
    let name = format!("get a Pod as a service account, {workers} connections");
    report.add(&name, "administrator's rate over its", "x", ratio);
    report.add_errors(&name, &load.errors);
    Ok(())
}

/// Returns the administrator's rate of gets over that of a service account with a role, each on
/// `workers` connections, and the merged load with its errors.
pub async fn rate(bench: &Bench, workers: usize) -> Result<(f64, Load)> {
    let account = bench.with(account(bench).await?);
    let path = format!("{}/{POD}", bench.pods());
    let duration = bench.duration() / ROUND_DIVISOR;
    let mut ratios = vec![];
    let mut all = Load::default();
    for _ in 0..ROUNDS {
        let mut rates = [0.0; 2];
        for (rate, bench) in rates.iter_mut().zip([bench, &account]) {
            let path = path.clone();
            let load =
                drive(bench, workers, duration, move |_, _, _| Some(ApiRequest::get(path.clone())))
                    .await?;
            *rate = load.rate();
            all.merge(&load);
        }
        ratios.push(rates[0] / rates[1]);
    }
    Ok((quantile(&ratios, 0.5), all))
}

/// Creates a Pod and a service account that may get Pods, and returns the target with its token.
pub async fn account(bench: &Bench) -> Result<Target> {
    let mut client = Client::connect(&bench.target).await?;
    let pod = ApiRequest::post(bench.pods(), pod(1, 0).fill(POD, 0));
    client.require_success(pod).await?;
    account_of(bench, "reader").await
}

/// Creates a service account that may get and create Pods and list ConfigMaps, and returns the
/// target with its token.
pub async fn account_of(bench: &Bench, name: &str) -> Result<Target> {
    let mut client = Client::connect(&bench.target).await?;
    let mut make = async |path: String, body: Value| {
        client.require_success(ApiRequest::post(path, body.to_string())).await
    };
    let accounts = bench.path("/api/v1", "serviceaccounts");
    make(accounts.clone(), json!({"metadata": {"name": name}})).await?;
    let group = "rbac.authorization.k8s.io";
    let rbac = |resource| bench.path(&format!("/apis/{group}/v1"), resource);
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "create"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    ]);
    make(rbac("roles"), json!({"metadata": {"name": name}, "rules": rules})).await?;
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": bench.namespace});
    let role = json!({"apiGroup": group, "kind": "Role", "name": name});
    let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]});
    make(rbac("rolebindings"), binding).await?;
    let answer = make(format!("{accounts}/{name}/token"), json!({"spec": {}})).await?;
    let token = member(&answer, "token").context("no token in the answer to a TokenRequest")?;
    let authorization = Some(HeaderValue::try_from(format!("Bearer {token}"))?);
    Ok(Target { authorization, ..Target::clone(&bench.target) })
}
