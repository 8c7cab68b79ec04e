//! The verb get.

use crate::conversion::shown;
use crate::kind::{Answer, Target};
use crate::options::Freshness;
use crate::registry::Registry;
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
        match freshness {
            Freshness::Latest => self.fresh().await?,
            Freshness::Any => self.caught_up().await?,
            Freshness::NotOlderThan(revision) | Freshness::Exact(revision) => {
                self.not_older(revision).await?;
            }
        }
        let entry = self.known(target)?.ok_or_else(|| target.not_found())?;
        shown!(self, target, entry).map(Answer::Entry)
    }
}
