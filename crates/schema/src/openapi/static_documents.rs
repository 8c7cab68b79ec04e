//! Documents that do not depend on the served resources.

use super::operations::{
    Answer, OBJECT_MEDIA, Operation, PathItem, discovery_operation, path_item,
};
use keelson_meta::Str;

/// A document with one path.
pub(super) struct StaticDocument {
    pub document: &'static str,
    id: &'static str,
    description: &'static str,
    tag: &'static str,
    /// Full name of the response type; empty: text.
    answer: &'static str,
    /// Content types of the response.
    produces: &'static [&'static str],
    consumes: &'static [&'static str],
}

impl StaticDocument {
    /// Returns the path of the document.
    pub fn path_item(&self) -> PathItem {
        let answer = match self.answer {
            "" => Answer::Text,
            name => Answer::Type(Str::new_static(name)),
        };
        let operation = Operation {
            answer,
            produces: self.produces,
            consumes: self.consumes,
            ..discovery_operation(
                self.id.to_owned(),
                self.description,
                Str::new_static(self.tag),
                "",
            )
        };
        path_item(format!("/{}/", self.document), vec![], vec![operation])
    }
}

/// All static documents.
pub(super) const STATIC_DOCUMENTS: [StaticDocument; 4] = [
    StaticDocument {
        document: ".well-known/openid-configuration",
        id: "getServiceAccountIssuerOpenIDConfiguration",
        description: "Tells how tokens of service accounts are checked (OpenID discovery).",
        tag: "WellKnown",
        answer: "",
        produces: &["application/json"],
        consumes: &[],
    },
    StaticDocument {
        document: "apis",
        id: "getAPIVersions",
        description: "Lists the groups and their versions.",
        tag: "apis",
        answer: "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList",
        produces: OBJECT_MEDIA,
        consumes: OBJECT_MEDIA,
    },
    StaticDocument {
        document: "openid/v1/jwks",
        id: "getServiceAccountIssuerOpenIDKeyset",
        description: "Lists the public keys of tokens of service accounts.",
        tag: "openid",
        answer: "",
        produces: &["application/jwk-set+json"],
        consumes: &[],
    },
    StaticDocument {
        document: "version",
        id: "getCodeVersion",
        description: "Tells the version of the server.",
        tag: "version",
        answer: "io.k8s.apimachinery.pkg.version.Info",
        produces: &["application/json"],
        consumes: &["application/json"],
    },
];
