//! The versions of `AdmissionReview`.

/// A version of `AdmissionReview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V1Beta1,
}

impl Version {
    /// The version of that name, if it is known.
    pub fn parse(text: &str) -> Option<Version> {
        match text {
            "v1" => Some(Version::V1),
            "v1beta1" => Some(Version::V1Beta1),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Version::V1 => "v1",
            Version::V1Beta1 => "v1beta1",
        }
    }
}
