//! Files of PEM and others as Go's packages os and crypto/tls read them, with their messages.

use keelson_meta::status::quote;
use keelson_schema::yaml;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Error, ErrorKind};
use std::path::Path;

/// Returns the words of Go for an error of a file.
pub fn error(path: &str, error: &Error) -> String {
    let text = error.to_string();
    let why = text.split(" (os error").next().unwrap_or_default().to_lowercase();
    // Go opens a folder, and finds out when it reads.
    let does = if error.kind() == ErrorKind::IsADirectory { "read" } else { "open" };
    format!("{does} {path}: {why}")
}

/// Reads a file.
pub fn read(path: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|failed| error(path, &failed))
}

/// Returns the types of the blocks of a text in PEM: `CERTIFICATE`, `EC PRIVATE KEY`.
pub fn blocks(pem: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(pem);
    let mut found = vec![];
    let mut open: Option<&str> = None;
    for line in text.lines().map(str::trim) {
        let label = |word: &str| {
            let rest = line.strip_prefix("-----")?.strip_prefix(word)?;
            rest.strip_suffix("-----")
        };
        if let Some(name) = label("BEGIN ") {
            open = Some(name);
        } else if open.is_some() && label("END ") == open {
            found.extend(open.take().map(str::to_owned));
        }
    }
    found
}

/// Checks a certificate and its key, both in PEM, as `tls.X509KeyPair` does.
pub fn key_pair(certificate: &[u8], key: &[u8]) -> Result<(), String> {
    let of_certificate = blocks(certificate);
    if !of_certificate.iter().any(|name| name == "CERTIFICATE") {
        return Err(match &of_certificate[..] {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [one] if one.ends_with("PRIVATE KEY") => {
                "tls: failed to find certificate PEM data in certificate input, but did find a \
                 private key; PEM inputs may have been switched"
                    .to_owned()
            }
            all => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping \
                 PEM blocks of the following types: [{}]",
                all.join(" ")
            ),
        });
    }
    let of_key = blocks(key);
    if !of_key.iter().any(|name| name.ends_with("PRIVATE KEY")) {
        return Err(match &of_key[..] {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [one] if one == "CERTIFICATE" => {
                "tls: found a certificate rather than a key in the PEM for the private key"
                    .to_owned()
            }
            all => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after \
                 skipping PEM blocks of the following types: [{}]",
                all.join(" ")
            ),
        });
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|_| "x509: malformed certificate".to_owned())?;
    let key = PrivateKeyDer::from_pem_slice(key).ok();
    let key = key.and_then(|key| any_supported_type(&key).ok());
    let key = key.ok_or("tls: failed to parse private key")?;
    match CertifiedKey::new(chain, key).keys_match() {
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Err("tls: private key does not match public key".to_owned())
        }
        Err(rustls::Error::InvalidCertificate(_)) => Err("x509: malformed certificate".to_owned()),
        _ => Ok(()),
    }
}

/// Checks a CA bundle of client certificates, which kube-apiserver reloads under a name.
pub fn ca_bundle(name: &str, path: &str) -> Result<(), String> {
    let pem = read(path)?;
    if pem.is_empty() {
        return Err(format!("missing content for CA bundle \"{name}::{path}\""));
    }
    if !blocks(&pem).iter().any(|block| block == "CERTIFICATE") {
        return Err(format!(
            "error loading CA bundle for \"{name}::{path}\": data does not contain any valid RSA or \
             ECDSA certificates"
        ));
    }
    Ok(())
}

/// Checks a serving certificate and its key, which kube-apiserver reloads under a name.
pub fn serving_pair(name: &str, certificate: &str, key: &str) -> Result<(), String> {
    if certificate.is_empty() || key.is_empty() {
        return Err("missing filename for serving cert".to_owned());
    }
    let certificate_pem = read(certificate)?;
    let key_pem = read(key)?;
    if certificate_pem.is_empty() || key_pem.is_empty() {
        return Err(format!("missing content for serving cert \"{name}::{certificate}::{key}\""));
    }
    key_pair(&certificate_pem, &key_pem)
}

/// Checks the kubeconfig of a webhook.
pub fn kubeconfig(path: &str) -> Result<(), String> {
    if let Err(failed) = std::fs::metadata(path) {
        return Err(error(path, &failed).replacen("open", "stat", 1));
    }
    let failed = |why: String| format!("error loading config file {}: {why}", quote(path));
    let text = read(path).map_err(failed)?;
    let parsed = yaml::parse(&text).map_err(|why| failed(why.to_string()))?.value;
    if ["clusters", "users", "contexts"].iter().all(|list| parsed.array_at(&[list]).is_empty()) {
        return Err("invalid configuration: no configuration has been provided, try setting \
                    KUBERNETES_MASTER environment variable"
            .to_owned());
    }
    let named = |list: &str, name: &str| {
        let mut items = parsed.array_at(&[list]).iter();
        items.find(|item| item.str_at(&["name"]) == Some(name)).cloned()
    };
    let context = parsed.str_at(&["current-context"]).unwrap_or_default();
    if context.is_empty() {
        return Ok(());
    }
    let Some(context) = named("contexts", context) else {
        return Err(format!(
            "invalid configuration: [context was not found for specified context: {context}, cluster \
             has no server defined]"
        ));
    };
    let cluster = context.str_at(&["context", "cluster"]).unwrap_or_default();
    let authority = named("clusters", cluster);
    let authority = authority.as_ref().and_then(|cluster| {
        cluster.str_at(&["cluster", "certificate-authority"]).filter(|path| !path.is_empty())
    });
    let Some(authority) = authority else { return Ok(()) };
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let authority = folder.join(authority).display().to_string();
    read(&authority).map(drop).map_err(|why| {
        format!(
            "invalid configuration: unable to read certificate-authority {authority} for {cluster} \
             due to {why}"
        )
    })
}
