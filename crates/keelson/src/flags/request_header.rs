//! The flags that say which proxies name users in headers.

use anyhow::{Context, Result};
use keelson::FrontProxyOptions;
use keelson_auth::FrontProxy;
use std::path::PathBuf;
use std::sync::Arc;

/// `--requestheader-*`.
#[derive(clap::Args, Debug)]
pub struct RequestHeader {
    /// Authorities of proxies that name users in headers.
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of the certificates of such proxies [default: all names].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    requestheader_allowed_names: Vec<String>,
    /// Headers with the name of the user; the first that is not empty counts.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    requestheader_username_headers: Vec<String>,
    /// Headers with the uid of the user.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    requestheader_uid_headers: Vec<String>,
    /// Headers with a group of the user each.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    requestheader_group_headers: Vec<String>,
    /// Prefixes of headers with extra fields of the user.
    #[arg(long, value_delimiter = ',', value_name = "PREFIXES")]
    requestheader_extra_headers_prefix: Vec<String>,
}

impl RequestHeader {
    /// The front proxy that the flags describe.
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
