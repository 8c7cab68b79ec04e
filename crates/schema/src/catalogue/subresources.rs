//! What each subresource does. Their names stand here and in `resources.txt`; other rooms ask for
//! the class.

/// What a subresource does: it decides who handles a request for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubresourceClass {
    /// The status of the object.
    Status,
    /// Another part of the object, by its name.
    Part(&'static str),
    /// The object's number of replicas, as a Scale.
    Scale,
    /// A POST acts on the object, for example binds a pod.
    Action(&'static str),
    /// The log of a container.
    Log,
    /// A stream between the client and a container.
    Connect(Session),
    /// Requests that are passed on to a node, pod or service.
    Proxy,
}

/// What a stream to a container carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// A command that is started in the container.
    Exec,
    /// The process that runs in the container.
    Attach,
    /// Connections to ports of the pod.
    PortForward,
}

impl SubresourceClass {
    /// Returns the class of a subresource; `None` for an empty or unknown name.
    pub fn of(name: &str) -> Option<SubresourceClass> {
        Some(match name {
            "status" => SubresourceClass::Status,
            "ephemeralcontainers" => SubresourceClass::Part("ephemeralcontainers"),
            "resize" => SubresourceClass::Part("resize"),
            "approval" => SubresourceClass::Part("approval"),
            "finalize" => SubresourceClass::Part(FINALIZE),
            "scale" => SubresourceClass::Scale,
            "binding" => SubresourceClass::Action("binding"),
            "eviction" => SubresourceClass::Action("eviction"),
            "token" => SubresourceClass::Action("token"),
            "log" => SubresourceClass::Log,
            "exec" => SubresourceClass::Connect(Session::Exec),
            "attach" => SubresourceClass::Connect(Session::Attach),
            "portforward" => SubresourceClass::Connect(Session::PortForward),
            "proxy" => SubresourceClass::Proxy,
            _ => return None,
        })
    }

    /// Whether a request connects the client to something that runs, for as long as it likes.
    pub fn is_connection(self) -> bool {
        matches!(
            self,
            SubresourceClass::Log | SubresourceClass::Connect(_) | SubresourceClass::Proxy
        )
    }

    /// Whether a request reads or writes a part of the stored object itself.
    pub fn is_part(self) -> bool {
        matches!(self, SubresourceClass::Status | SubresourceClass::Part(_))
    }

    /// Whether Namespace objects have the subresource. In a URL it follows a namespace's name,
    /// where the resources in a namespace stand, too.
    pub fn is_of_namespaces(self) -> bool {
        matches!(self, SubresourceClass::Status | SubresourceClass::Part(FINALIZE))
    }
}

const FINALIZE: &str = "finalize";

#[cfg(test)]
mod tests {
    use crate::catalogue::Catalogue;

    #[test]
    fn namespaces_have_the_subresources_that_urls_take_for_theirs() {
        let catalogue = Catalogue::shared();
        let core = catalogue.groups.iter().find(|group| group.name.is_empty()).expect("core");
        let all = core.versions.iter().flat_map(|version| &version.resources);
        for sub in all.clone().flat_map(|resource| &resource.subresources) {
            let namespaces = all.clone().find(|resource| resource.name == "namespaces");
            let is_theirs = namespaces.expect("namespaces").subresource(&sub.name).is_some();
            assert_eq!(sub.class.is_of_namespaces(), is_theirs, "{}", sub.name);
        }
    }
}
