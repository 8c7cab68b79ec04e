//! The front proxy: `--requestheader-*`.

use crate::flags::pflag::Values;
use anyhow::{Context, Result};
use keelson::FrontProxyOptions;
use keelson_auth::FrontProxy;
use std::sync::Arc;

/// Returns the headers that the flags describe, or what is wrong with them.
pub fn check(values: &Values) -> Result<FrontProxy, Vec<String>> {
    let trimmed = |flag| values.list(flag).iter().map(|value| value.trim().to_owned()).collect();
    let headers = FrontProxy {
        allowed_names: values.list("requestheader-allowed-names").to_vec(),
        username_headers: trimmed("requestheader-username-headers"),
        uid_headers: trimmed("requestheader-uid-headers"),
        group_headers: trimmed("requestheader-group-headers"),
        extra_header_prefixes: trimmed("requestheader-extra-headers-prefix"),
    };
    FrontProxyOptions::check(&headers)?;
    Ok(headers)
}

/// Returns the front proxy with these headers.
pub fn options(values: &Values, headers: FrontProxy) -> Result<Option<FrontProxyOptions>> {
    let Some(path) = values.path("requestheader-client-ca-file") else { return Ok(None) };
    std::fs::metadata(&path)
        .with_context(|| format!("--requestheader-client-ca-file: {}", path.display()))?;
    Ok(Some(FrontProxyOptions { client_ca_file: path, headers: Arc::new(headers) }))
}
