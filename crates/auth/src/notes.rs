//! [`CredentialNotes`]: what authentication says of a request beside its user.

use keelson_meta::Str;

/// What authentication says of a request beside its user, also when it refuses it.
#[derive(Debug, Default)]
pub struct CredentialNotes {
    /// A Warning header for the client.
    pub warning: Option<&'static str>,
    /// Audit annotations of the request.
    pub annotations: Vec<(Str, Str)>,
}

impl CredentialNotes {
    /// Adds an audit annotation.
    pub(crate) fn annotate(&mut self, key: &'static str, value: impl Into<Str>) {
        self.annotations.push((Str::new_static(key), value.into()));
    }
}
