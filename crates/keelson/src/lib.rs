//! Keelson: the Kubernetes API as one small, fast server that can also be embedded in a program.
//!
//! ```no_run
//! # async fn example() -> Result<(), keelson::StartError> {
//! let keelson = keelson::Keelson::builder().in_memory().token("secret", "admin").start().await?;
//! println!("serving on {}", keelson.address());
//! keelson.stop().await;
//! # Ok(()) }
//! ```
//!
//! There is no global state: any number of servers can run in one process.

mod admin_client;
mod auditing;
mod authentication;
mod authorization;
mod backend;
mod backup_socket;
mod builder;
mod controllers;
mod egress_selection;
mod election;
mod encryption;
mod encryption_admin;
mod etcd;
mod etcd_data;
mod etcd_overrides;
mod etcd_stand_in;
mod event_ttl;
pub mod feature_gates;
mod files;
mod front_proxy;
mod in_process_admission;
mod kubeconfig;
mod kubelets;
mod options;
mod pki;
pub mod playground;
mod private_files;
mod reloads;
mod server;
mod simulation_admin;
mod start_error;
mod stored_values;
mod supervisor;
mod trace_export;
mod tracing_config;
mod user_kubeconfig;
mod validator;

pub use admin_client::AdminClient;
pub use auditing::{AuditLogOptions, AuditOptions, AuditPolicyFile, AuditWebhookOptions};
pub use authentication::{AuthenticationFile, JwtOptions, TokenWebhookOptions};
pub use authorization::Authorization;
pub use backup_socket::backup_socket;
pub use builder::Builder;
pub use egress_selection::read_egress_selector;
pub use encryption::EncryptionFile;
pub use encryption_admin::{
    KeyCounts, ROTATE_PATH, STATUS_PATH as ENCRYPTION_PATH, count_key, key_list, resource_name,
};
pub use etcd::Etcd;
pub use etcd_data::EtcdData;
pub use etcd_overrides::{BadOverride, EtcdOverride};
pub use etcd_stand_in::{EtcdAddress, EtcdStandIn};
pub use files::raise_open_files;
pub use front_proxy::FrontProxyOptions;
pub use in_process_admission::AdmissionRequest;
pub use keelson_admission::Operation;
pub use keelson_admission::{
    Chain as AdmissionChain, NameError as AdmissionNameError, PlugInConfig as AdmissionConfig,
};
pub use keelson_audit::{
    Batching as AuditBatching, Format as AuditFormat, LogFileOptions as AuditLogFileOptions,
    Mode as AuditMode, Truncation as AuditTruncation,
};
pub use keelson_meta::time::Timestamp;
pub use keelson_metrics::MetricsSelection;
pub use keelson_registry::{Clock, Registry, SteppedClock, SystemClock};
pub use keelson_resources::{StorageMediaType, producer};
pub use keelson_server::{
    BrowserOptions, CrossOrigins, KUBERNETES_VERSION, Limits, OTHER_STORES_MAX, TlsOptions,
};
pub use keelson_store::Store;
pub use keelson_workloads::{SimulatedPorts, Simulation, StageFiles};
pub use kubeconfig::Kubeconfig;
pub use kubelets::KubeletOptions;
pub use options::{
    AdmissionOptions, ApiOptions, AuthenticationOptions, ControllerOptions, FarSideOptions,
    NetworkOptions, RecordingOptions, ServingOptions, StorageOptions,
};
pub use pki::{
    AuthorityFiles, CertificateError, NamedCertificate, Pki, ServiceAccountTokenOptions,
    SigningOptions,
};
pub use private_files::{FileError, write as write_private};
pub use server::{Keelson, KubeconfigRenewals};
pub use simulation_admin::{CLOCK_PATH, PORTS_PATH, STATUS_PATH as SIMULATION_PATH};
pub use start_error::StartError;
pub use stored_values::Decrypter;
pub use tracing_config::TracingOptions;
pub use user_kubeconfig::{USER_CERTIFICATE_DURATION_MAX, UserCertificate};
pub use validator::{Validator, ValidatorInput, Verdict};
