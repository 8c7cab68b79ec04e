//! The verb get.

use crate::conversion::convert_entry;
use crate::options::Freshness;
use crate::registry::Registry;
use crate::target::{Answer, Target};
use keelson_auth::Permit;
use keelson_meta::Failure;

impl Registry {
    /// Returns an object.
    pub async fn get(
        &self,
        permit: &Permit,
        target: &Target,
        freshness: Freshness,
    ) -> Result<Answer, Failure> {
        target.assert_readable(permit);
        self.read(target, freshness).await
    }

    /// Returns an object, for verbs that are not authorized as a get.
    pub(crate) async fn read(
        &self,
        target: &Target,
        freshness: Freshness,
    ) -> Result<Answer, Failure> {
        let span = target.span("cacher.Get");
        if span.is_recorded() {
            span.set("resource-version", freshness.resource_version());
        }
        match freshness {
            Freshness::Latest => self.wait_for_latest_of(&target.kind).await?,
            Freshness::Any => self.wait_for_known_of(&target.kind).await?,
            Freshness::NotOlderThan(revision) | Freshness::Exact(revision) => {
                self.wait_for_revision(&target.kind, revision).await?;
            }
        }
        let entry = self.entry(target)?.ok_or_else(|| target.not_found())?;
        convert_entry!(self, target, entry).map(Answer::Entry)
    }
}
