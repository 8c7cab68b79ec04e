//! The versions of `AdmissionReview`.

/// A version of `AdmissionReview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V1Beta1,
}

impl Version {
    /// Parses a version; `None` when it is unknown.
    pub fn parse(text: &str) -> Option<Version> {
        match text {
            "v1" => Some(Version::V1),
            "v1beta1" => Some(Version::V1Beta1),
            _ => None,
        }
    }

    /// Returns the name of the version.
    pub fn name(self) -> &'static str {
        match self {
            Version::V1 => "v1",
            Version::V1Beta1 => "v1beta1",
        }
    }
}
