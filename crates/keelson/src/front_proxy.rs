//! [`FrontProxyOptions`]: the front proxies that name users in headers.

use keelson_auth::FrontProxy;
use std::path::PathBuf;
use std::sync::Arc;

/// The header in which API aggregation sends the user name.
const USERNAME_HEADER: &str = "X-Remote-User";
/// The header in which API aggregation sends the uid.
const UID_HEADER: &str = "X-Remote-Uid";

/// The front proxies that name users in headers (`--requestheader-*`).
#[derive(Clone, Debug)]
pub struct FrontProxyOptions {
    /// `--requestheader-client-ca-file`: CA bundle for the proxies' client certificates.
    pub client_ca_file: PathBuf,
    /// The allowed common names and the header names.
    pub headers: Arc<FrontProxy>,
}

impl FrontProxyOptions {
    pub(crate) fn ca_file_and_headers(&self) -> (PathBuf, Arc<FrontProxy>) {
        (self.client_ca_file.clone(), self.headers.clone())
    }

    /// Validates the header flags as kube-apiserver does.
    pub fn check(headers: &FrontProxy) -> Result<(), Vec<String>> {
        let mut errors = vec![];
        let lists = [
            ("requestheader-username-headers", &headers.username_headers),
            ("requestheader-uid-headers", &headers.uid_headers),
            ("requestheader-group-headers", &headers.group_headers),
            ("requestheader-extra-headers-prefix", &headers.extra_header_prefixes),
            ("requestheader-allowed-names", &headers.allowed_names),
        ];
        for (flag, values) in lists {
            if values.iter().any(|value| value.trim().is_empty()) {
                errors.push(format!("empty value in \"{flag}\""));
            }
        }
        let has = |headers: &[String], name: &str| {
            headers.is_empty() || headers.iter().any(|header| header.eq_ignore_ascii_case(name))
        };
        if !has(&headers.uid_headers, UID_HEADER) {
            errors.push(format!(
                "--requestheader-uid-headers is set without specifying the standard {UID_HEADER} \
                 header - API aggregation will not work"
            ));
        }
        if !has(&headers.username_headers, USERNAME_HEADER) {
            tracing::warn!(
                "--requestheader-username-headers is set without specifying the standard \
                 {USERNAME_HEADER} header - API aggregation will not work"
            );
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_flags_are_checked_as_by_kube_apiserver() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let empty = FrontProxy { username_headers: list(&["A", " "]), ..FrontProxy::default() };
        let result = FrontProxyOptions::check(&empty);
        assert_eq!(
            result,
            Err(vec!["empty value in \"requestheader-username-headers\"".to_owned()])
        );
        let uid = FrontProxy { uid_headers: list(&["X-Uid"]), ..FrontProxy::default() };
        let error = FrontProxyOptions::check(&uid).unwrap_err();
        let words = "without specifying the standard X-Remote-Uid header";
        assert!(error.len() == 1 && error[0].contains(words), "{error:?}");
        let good = FrontProxy { uid_headers: list(&["x-remote-uid"]), ..FrontProxy::default() };
        assert_eq!(FrontProxyOptions::check(&good), Ok(()));
    }
}
