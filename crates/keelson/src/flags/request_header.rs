//! The flags of the front proxy.

use anyhow::{Context, Result};
use keelson::FrontProxyOptions;
use keelson_auth::FrontProxy;
use std::path::PathBuf;
use std::sync::Arc;

/// `--requestheader-*`.
#[derive(clap::Args, Debug)]
pub struct RequestHeaderFlags {
    /// CA bundle for client certificates of front proxies, which name users in headers.
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxy certificates [default: all names].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    requestheader_allowed_names: Vec<String>,
    /// Headers that hold the user name; the first that is not empty is used.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    requestheader_username_headers: Vec<String>,
    /// Headers that hold the uid of the user.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    requestheader_uid_headers: Vec<String>,
    /// Headers that hold the groups of the user, one per header.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    requestheader_group_headers: Vec<String>,
    /// Prefixes of headers that hold extra fields of the user.
    #[arg(long, value_delimiter = ',', value_name = "PREFIXES")]
    requestheader_extra_headers_prefix: Vec<String>,
}

impl RequestHeaderFlags {
    /// Returns the front proxy that the flags describe.
    pub fn options(&self) -> Result<Option<FrontProxyOptions>> {
        let trimmed = |values: &[String]| values.iter().map(|v| v.trim().to_owned()).collect();
        let headers = FrontProxy {
            allowed_names: self.requestheader_allowed_names.clone(),
            username_headers: trimmed(&self.requestheader_username_headers),
            uid_headers: trimmed(&self.requestheader_uid_headers),
            group_headers: trimmed(&self.requestheader_group_headers),
            extra_header_prefixes: trimmed(&self.requestheader_extra_headers_prefix),
        };
        FrontProxyOptions::check(&headers).map_err(anyhow::Error::msg)?;
        let Some(path) = &self.requestheader_client_ca_file else { return Ok(None) };
        std::fs::metadata(path)
            .with_context(|| format!("--requestheader-client-ca-file: {}", path.display()))?;
        Ok(Some(FrontProxyOptions { client_ca_file: path.clone(), headers: Arc::new(headers) }))
    }
}
