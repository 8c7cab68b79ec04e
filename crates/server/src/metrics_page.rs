//! The texts of `/metrics` and `/metrics/slis`.

use crate::app::App;
use crate::metrics;
use keelson_metrics::Exposition;

/// Returns the text of all metrics.
pub(crate) async fn text(app: &App) -> String {
    let mut out = Exposition::new(&app.metrics_selection);
    app.state.metrics.write(&mut out);
    if let Some(fairness) = app.state.fairness.as_deref() {
        fairness.write(&mut out);
    }
    match app.audit.as_deref() {
        Some(audit) => audit.metrics().write(&mut out),
        None => keelson_audit::Metrics::default().write(&mut out),
    }
    if let Some(accounts) = app.authenticator.service_accounts() {
        accounts.uses().write(&mut out);
    }
    (app.extra_metrics)(&mut out);
    let mut store_bytes = vec![app.registry.store.size().await];
    for other in &app.registry.options.other_stores {
        store_bytes.push(other.store.size().await);
    }
    metrics::write_registry(&app.registry, &app.version, &store_bytes, &mut out);
    metrics::write_process(&mut out);
    out.write_about();
    out.finish()
}

/// Returns the text of the metrics of health checks.
pub(crate) fn slis(app: &App) -> String {
    let mut out = Exposition::new(&app.metrics_selection);
    app.state.health_counts.write(&mut out);
    metrics::write_start(&mut out);
    out.finish()
}
