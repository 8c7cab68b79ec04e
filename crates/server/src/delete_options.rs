//! Decodes the options of delete and deletecollection: the body if there is one, otherwise the
//! query.

use crate::query::Query;
use crate::request_head::RequestHead;
use crate::request_object;
use keelson_meta::{Failure, GroupVersionKind, Status, Str};
use keelson_registry::delete_options::GivenDeleteOptions;
use keelson_registry::options::DeleteOptions;
use keelson_schema::Schema;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{self, Format, UNVERSIONED};

const KIND: &str = "DeleteOptions";
/// The group of the options, and of the kinds that share their scheme.
const META_GROUP: &str = "meta.k8s.io";
/// The scheme that reads options, as errors name it.
const SCHEME: &str = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";

/// Kinds that the scheme of options knows in every group version, beside those that all know.
const OPTIONS_KINDS: [&str; 2] = ["CreateOptions", "UpdateOptions"];

/// The other kinds of the group meta.k8s.io: the kind, the version of a body, and that of its Go
/// type.
const META_KINDS: [(&str, &str, &str); 12] = [
    ("GetOptions", "v1", "v1"),
    ("ListOptions", "v1", "v1"),
    ("PartialObjectMetadata", "v1", "v1"),
    ("PartialObjectMetadata", "v1beta1", "v1"),
    ("PartialObjectMetadataList", "v1", "v1"),
    ("PartialObjectMetadataList", "v1beta1", "v1beta1"),
    ("PatchOptions", "v1", "v1"),
    ("Table", "v1", "v1"),
    ("Table", "v1beta1", "v1"),
    ("TableOptions", "v1", "v1"),
    ("TableOptions", "v1beta1", "v1"),
    ("WatchEvent", "v1", "v1"),
];

/// Decodes and validates the options of a request.
pub(crate) fn read(
    head: &RequestHead,
    body: &[u8],
    format: Format,
) -> Result<DeleteOptions, Failure> {
    let given =
        if body.is_empty() { from_query(&head.query)? } else { from_body(head, body, format)? };
    given.validate()
}

/// Converts the query. In contrast to a body, an empty uid or resourceVersion is none.
fn from_query(query: &Query) -> Result<GivenDeleteOptions, Failure> {
    let text = |name: &str| query.get(name).map(Str::new);
    let filled = |name: &str| text(name).filter(|text| !text.is_empty());
    let uid = filled("uid");
    let resource_version = filled("resourceVersion");
    Ok(GivenDeleteOptions {
        dry_run: query.all("dryRun").map(Str::new).collect(),
        grace_period_seconds: query.number("gracePeriodSeconds")?,
        orphan_dependents: query.flag("orphanDependents"),
        propagation_policy: text("propagationPolicy"),
        has_preconditions: uid.is_some() || resource_version.is_some(),
        uid,
        resource_version,
        ignore_read_error: query.flag("ignoreStoreReadErrorWithClusterBreakingPotential"),
    })
}

/// Decodes a body. Upstream takes the kind DeleteOptions in every group version, also in unknown
/// ones.
fn from_body(
    head: &RequestHead,
    body: &[u8],
    format: Format,
) -> Result<GivenDeleteOptions, Failure> {
    let schema = Catalogue::shared()
        .schema(&GroupVersionKind::new("", "v1", KIND))
        .ok_or_else(|| Status::internal("DeleteOptions has no schema"))?;
    let schema = Schema { gvk: GroupVersionKind::new(META_GROUP, "v1", KIND), ..schema };
    let check = |given: &GroupVersionKind| check_kind(given);
    let decoded = decode::decode_options(&schema, body, format, &check);
    let options = decoded.map_err(Status::bad_request)?;
    request_object::record_options(head, &schema, &options);
    Ok(GivenDeleteOptions::from_value(&options.into_value()))
}

fn check_kind(given: &GroupVersionKind) -> Result<(), String> {
    if given.kind == KIND {
        return Ok(());
    }
    let is_meta = |row: &&(&str, &str, &str)| {
        given.group == META_GROUP && (given.kind.as_str(), given.version.as_str()) == (row.0, row.1)
    };
    let go_version = match META_KINDS.iter().find(is_meta) {
        Some((_, _, go_version)) => Some(*go_version),
        None => {
            let mut known = UNVERSIONED.iter().chain(&OPTIONS_KINDS);
            known.any(|kind| *kind == given.kind).then_some("v1")
        }
    };
    Err(match go_version {
        Some(version) => {
            format!("converting ({version}.{}) to (v1.{KIND}): unknown conversion", given.kind)
        }
        None => decode::not_registered(given, SCHEME),
    })
}
