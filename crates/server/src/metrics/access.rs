//! Metrics of authentication and authorization.

use keelson_auth::User;
use keelson_meta::{Failure, Reason};
use keelson_metrics::{Bounds, Counter, Description, Exposition, Histogram, MetricType, Unit};
use std::time::Duration;

/// The values of the label `result`, for authentication and authorization.
const AUTHENTICATION: [&str; 3] = ["success", "failure", "error"];
const AUTHORIZATION: [&str; 3] = ["allowed", "no-opinion", "error"];
/// The values of the label `username`; the last two are for email addresses and for all other
/// users.
const USERS: [&str; 7] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
    "email_id",
    "other",
];

/// Results of authentication and authorization.
#[derive(Debug)]
pub(crate) struct Access {
    authentication: [Histogram; 3],
    authorization: [Histogram; 3],
    users: [Counter; USERS.len()],
    /// How long the certificates of clients are still valid.
    certificates: Histogram,
}

impl Access {
    pub fn new() -> Access {
        let histograms = || std::array::from_fn(|_| Histogram::new(&SECONDS));
        Access {
            authentication: histograms(),
            authorization: histograms(),
            users: std::array::from_fn(|_| Counter::default()),
            certificates: Histogram::new(&REMAINING_SECONDS),
        }
    }

    /// Counts an authentication. A failure without credentials counts as `failure`, with
    /// credentials as `error`.
    pub fn authenticated(
        &self,
        result: &Result<User, Failure>,
        has_credentials: bool,
        took: Duration,
    ) {
        let which = match result {
            Ok(user) => {
                self.users[user_label(&user.name)].increment();
                0
            }
            Err(_) if !has_credentials => 1,
            Err(_) => 2,
        };
        self.authentication[which].observe_duration(took);
    }

    /// Counts the certificate of a client by the rest of its life. Both are seconds since 1970.
    pub fn certificate(&self, not_after: i64, now: i64) {
        let left = u64::try_from(not_after.saturating_sub(now)).unwrap_or(0);
        self.certificates.observe(left);
    }

    /// Counts an authorization.
    pub fn authorized<T>(&self, result: &Result<T, Failure>, took: Duration) {
        let which = match result {
            Ok(_) => 0,
            Err(failure) if failure.reason == Reason::Forbidden => 1,
            Err(_) => 2,
        };
        self.authorization[which].observe_duration(took);
    }

    pub fn write(&self, out: &mut Exposition) {
        let kinds = [
            (&ATTEMPTS, &AUTHENTICATION_SECONDS, AUTHENTICATION, &self.authentication),
            (&DECISIONS, &AUTHORIZATION_SECONDS, AUTHORIZATION, &self.authorization),
        ];
        for (number, seconds, results, histograms) in kinds {
            let observed =
                || results.iter().zip(histograms).filter(|(_, histogram)| histogram.total() > 0);
            let mut text = out.family(number);
            observed()
                .for_each(|(result, histogram)| text.value(&[result], histogram.total() as f64));
            drop(text);
            let mut text = out.family(seconds);
            observed().for_each(|(result, histogram)| text.histogram(&[result], histogram));
        }
        out.family(&CERTIFICATES).histogram(&[], &self.certificates);
        let mut text = out.family(&USER_REQUESTS);
        for (name, count) in USERS.iter().zip(&self.users).filter(|(_, count)| count.get() > 0) {
            text.value(&[name], count.get() as f64);
        }
    }
}

/// Returns the index of a user's label.
fn user_label(name: &str) -> usize {
    let known = &USERS[..USERS.len() - 2];
    match known.iter().position(|known| *known == name) {
        Some(at) => at,
        None if name.contains('@') => USERS.len() - 2,
        None => USERS.len() - 1,
    }
}

static SECONDS: Bounds = Bounds {
    unit: Unit::Seconds,
    upper: &[
        0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
        8.192, 16.384,
    ],
};

static ATTEMPTS: Description = Description {
    name: "authentication_attempts",
    help: "[ALPHA] Authentications by their result: success, failure or error.",
    metric_type: MetricType::Counter,
    labels: &["result"],
};

static AUTHENTICATION_SECONDS: Description = Description {
    name: "authentication_duration_seconds",
    help: "[ALPHA] Seconds that authentications took, by their result.",
    metric_type: MetricType::Histogram,
    labels: &["result"],
};

static DECISIONS: Description = Description {
    name: "authorization_attempts_total",
    help: "[ALPHA] Authorizations by their result: allowed, no-opinion or error.",
    metric_type: MetricType::Counter,
    labels: &["result"],
};

static AUTHORIZATION_SECONDS: Description = Description {
    name: "authorization_duration_seconds",
    help: "[ALPHA] Seconds that authorizations took, by their result.",
    metric_type: MetricType::Histogram,
    labels: &["result"],
};

static USER_REQUESTS: Description = Description {
    name: "authenticated_user_requests",
    help: "[ALPHA] Authenticated requests by user; users that are not well known count together.",
    metric_type: MetricType::Counter,
    labels: &["username"],
};

static REMAINING_SECONDS: Bounds = Bounds::amount(&[
    0.0,
    1800.0,
    3600.0,
    7200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
]);

static CERTIFICATES: Description = Description::histogram(
    "apiserver_client_certificate_expiration_seconds",
    "[ALPHA] Seconds that the certificates of clients were still valid when they were used.",
    &[],
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_do_not_become_labels() {
        let label = |name: &str| USERS[user_label(name)];
        assert_eq!(label("admin"), "admin");
        assert_eq!(label("kubelet"), "kubelet");
        assert_eq!(label("jane@example.com"), "email_id");
        assert_eq!(label("jane"), "other");
        assert_eq!(label("other"), "other");
        assert_eq!(label("email_id"), "other");
    }
}
