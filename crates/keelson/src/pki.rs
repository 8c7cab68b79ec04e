//! Keys and certificates: files given, pairs made and renewed, and what signs certificates and
//! tokens.

mod certificates;
mod service_account_keys;
mod signing;
mod tls_files;

pub use certificates::{CertificateError, Pki};
pub(crate) use certificates::{Pair, host_names};
pub use service_account_keys::ServiceAccountTokenOptions;
pub use signing::{AuthorityFiles, SigningOptions};
pub use tls_files::NamedCertificate;
pub(crate) use tls_files::{CurrentFiles, TlsFiles, pair_of_folder};
