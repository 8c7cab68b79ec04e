//! `etcdserverpb.Cluster` and `Auth`: one member, and no users.

use std::sync::Arc;

use crate::engine::Engine;
use crate::error::EtcdError;
use crate::proto::{
    AuthStatusResponse, EmptyRequest, HeaderResponse, Member, MemberIdRequest, MemberListResponse,
};

impl Engine {
    pub(crate) async fn member_list(
        self: Arc<Self>,
        _: EmptyRequest,
    ) -> Result<MemberListResponse, EtcdError> {
        let member = Member {
            id: self.ids.member,
            name: self.options.name.clone(),
            peer_urls: self.options.peer_urls.clone(),
            client_urls: self.options.client_urls.clone(),
            is_learner: false,
        };
        // Without a revision, as in etcd.
        Ok(MemberListResponse { header: Some(self.header(0)), members: vec![member] })
    }

    /// There can be no second member.
    pub(crate) async fn member_add(
        self: Arc<Self>,
        _: EmptyRequest,
    ) -> Result<MemberListResponse, EtcdError> {
        Err(EtcdError::NotEnoughMembers)
    }

    /// The only member cannot be removed, or change its URL: nobody would know it.
    pub(crate) async fn member_remove(
        self: Arc<Self>,
        req: MemberIdRequest,
    ) -> Result<MemberListResponse, EtcdError> {
        self.known(req)?;
        Err(EtcdError::NotEnoughMembers)
    }

    pub(crate) async fn member_promote(
        self: Arc<Self>,
        req: MemberIdRequest,
    ) -> Result<MemberListResponse, EtcdError> {
        self.known(req)?;
        Err(EtcdError::NotALearner)
    }

    fn known(&self, req: MemberIdRequest) -> Result<(), EtcdError> {
        if req.id == self.ids.member { Ok(()) } else { Err(EtcdError::MemberNotFound) }
    }

    pub(crate) async fn auth_status(
        self: Arc<Self>,
        _: EmptyRequest,
    ) -> Result<AuthStatusResponse, EtcdError> {
        let header = Some(self.header(self.revision()));
        Ok(AuthStatusResponse { header, enabled: false, auth_revision: 1 })
    }

    /// There are neither users nor roles.
    pub(crate) async fn auth_list(
        self: Arc<Self>,
        _: EmptyRequest,
    ) -> Result<HeaderResponse, EtcdError> {
        Ok(HeaderResponse { header: Some(self.header(self.revision())) })
    }

    /// It needs a user, and none can be made.
    pub(crate) async fn auth_enable(
        self: Arc<Self>,
        _: EmptyRequest,
    ) -> Result<HeaderResponse, EtcdError> {
        Err(EtcdError::NoRootUser)
    }

    pub(crate) async fn authenticate(
        self: Arc<Self>,
        _: EmptyRequest,
    ) -> Result<HeaderResponse, EtcdError> {
        Err(EtcdError::AuthNotEnabled)
    }
}
