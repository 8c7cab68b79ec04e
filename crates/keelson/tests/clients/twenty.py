"""The official Python client against a server: python3 twenty.py KUBECONFIG.

Creates, reads, lists, patches, applies, watches and deletes one object of each kind of twenty.yaml, with the dynamic
client, and a few with the typed one. Ends with a line that says how many kinds there were.
"""

import pathlib
import sys

import yaml
from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

LABEL = "example.org/step"


def each(resources, obj):
    """One object through all verbs."""
    kind, name = obj["kind"], obj["metadata"]["name"]
    resource = resources.get(api_version=obj["apiVersion"], kind=kind)
    where = {"namespace": obj["metadata"].get("namespace")}
    made = resource.create(body=obj, **where)
    assert made.metadata.uid, kind
    assert resource.get(name=name, **where).metadata.uid == made.metadata.uid, kind

    listed = resource.get(**where)
    assert listed.kind == f"{kind}List", listed.kind
    assert name in [item.metadata.name for item in listed.items], kind

    merge = "application/merge-patch+json"
    body = {"metadata": {"labels": {LABEL: "patched"}}}
    patched = resource.patch(body=body, name=name, content_type=merge, **where)
    assert patched.metadata.labels[LABEL] == "patched", kind

    config_of = dict(obj, metadata=dict(obj["metadata"], labels={LABEL: "applied"}))
    applied = resource.server_side_apply(
        body=config_of, name=name, field_manager="python", force_conflicts=True, **where
    )
    assert applied.metadata.labels[LABEL] == "applied", kind
    owners = [(owner.manager, owner.operation) for owner in applied.metadata.managedFields]
    assert ("python", "Apply") in owners, (kind, owners)

    resource.delete(name=name, body={"propagationPolicy": "Background"}, **where)
    seen = []
    since = listed.metadata.resourceVersion
    for event in resource.watch(resource_version=since, timeout=10, **where):
        labels = event["object"].metadata.labels
        # The server itself writes conditions in between.
        if event["object"].metadata.name == name and labels:
            if seen[-1:] != [(event["type"], labels[LABEL])]:
                seen.append((event["type"], labels[LABEL]))
        if event["type"] == "DELETED":
            break
    want = [("MODIFIED", "patched"), ("MODIFIED", "applied"), ("DELETED", "applied")]
    assert seen == want, (kind, seen)
    try:
        resource.get(name=name, **where)
    except ApiException as gone:
        assert gone.status == 404, kind
    else:
        raise AssertionError(f"{kind} is still there")


def typed(api):
    """The typed client: pages, watches, conflicts, the scale of a Deployment."""
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
    for i in range(5):
        meta = client.V1ObjectMeta(name=f"page-{i}")
        core.create_namespaced_config_map("clients", client.V1ConfigMap(metadata=meta, data={"i": str(i)}))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map("clients", limit=2, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert [name for name in names if name.startswith("page-")] == [f"page-{i}" for i in range(5)], names

    stale = core.read_namespaced_config_map("page-0", "clients")
    core.replace_namespaced_config_map("page-0", "clients", client.V1ConfigMap(metadata=stale.metadata, data={"i": "9"}))
    try:
        core.replace_namespaced_config_map("page-0", "clients", stale)
    except ApiException as conflict:
        assert conflict.status == 409 and '"reason":"Conflict"' in conflict.body, conflict
    else:
        raise AssertionError("a stale write went through")

    watcher = watch.Watch()
    first = [event["object"].metadata.name for event in watcher.stream(core.list_namespace, timeout_seconds=1)]
    assert "default" in first and "clients" in first, first

    labels = {"a": "b"}
    spec = client.V1PodSpec(containers=[client.V1Container(name="c", image="registry.example.org/c:1")])
    template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels), spec=spec)
    wanted = client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels=labels), template=template)
    apps.create_namespaced_deployment(
        "clients", client.V1Deployment(metadata=client.V1ObjectMeta(name="typed"), spec=wanted)
    )
    scaled = apps.patch_namespaced_deployment_scale("typed", "clients", {"spec": {"replicas": 3}})
    assert scaled.spec.replicas == 3, scaled
    assert apps.read_namespaced_deployment("typed", "clients").spec.replicas == 3


def main():
    config.load_kube_config(sys.argv[1])
    api = client.ApiClient()
    assert client.VersionApi(api).get_code().major == "1"
    resources = dynamic.DynamicClient(api).resources
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "clients"}}
    resources.get(api_version="v1", kind="Namespace").create(body=namespace)
    text = pathlib.Path(__file__).with_name("twenty.yaml").read_text()
    objects = list(yaml.safe_load_all(text))
    for obj in objects:
        each(resources, obj)
    typed(api)
    print(f"{len({obj['kind'] for obj in objects})} kinds")


main()
