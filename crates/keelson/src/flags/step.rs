//! [`Step`]: when kube-apiserver finds that something is wrong.

/// When kube-apiserver finds that something is wrong, in its order: it reports what is wrong in the
/// first step that fails, and all of it only in [`Step::Validation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The emulated version and feature gates.
    Versions,
    /// The log.
    Logs,
    /// Ranges of addresses of services.
    ServiceRanges,
    /// The folder of a generated certificate.
    CertificateFolder,
    /// Lifetimes and signers of tokens.
    TokenLifetimes,
    /// The key that signs tokens.
    SigningKey,
    /// Sizes of watch caches.
    WatchCaches,
    /// All flags, whose errors are reported together.
    Validation,
    /// The address and port.
    Listener,
    /// The serving certificate.
    ServingCertificate,
    /// Cipher suites, versions and groups of TLS.
    Tls,
    /// Certificates for single host names.
    NamedCertificates,
    /// Priority and fairness.
    Fairness,
    /// Versions of APIs.
    Apis,
    /// The proxies to nodes and servers.
    Egress,
    /// Traces.
    Tracing,
    /// The encryption of stored objects.
    Encryption,
    /// Authorities of client certificates.
    ClientCa,
    /// OpenID Connect issuers.
    Issuers,
    /// The front proxy.
    FrontProxy,
    /// Keys that verify tokens.
    TokenKeys,
    /// Static tokens.
    StaticTokens,
    /// The webhook that authenticates tokens.
    TokenWebhook,
    /// Authorizers and their files.
    Authorization,
    /// The audit policy.
    AuditPolicy,
    /// The audit log.
    AuditLog,
    /// The audit webhook.
    AuditWebhook,
    /// Requests to other kube-apiservers.
    Peers,
    /// The connection to etcd.
    Etcd,
    /// Admission plug-ins.
    Admission,
    /// Certificates for kubelets.
    Kubelets,
    /// The endpoints of the service `kubernetes`.
    Endpoints,
    /// The certificate for extension API servers.
    ProxyClient,
    /// Suites that HTTP/2 needs.
    Http2,
    /// What this server alone refuses.
    Own,
}
