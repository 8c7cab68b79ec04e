"""A small operator with the official Python client against a server: python3 greeter.py KUBECONFIG.

Creates the definition of greeter.yaml, waits until it is established, and runs an operator in a thread of its own that
watches objects, holds them with a finalizer, writes their status and lets them go. Meanwhile objects are made, changed and
deleted. Ends with a line that says how many objects were released.
"""

import pathlib
import sys
import threading
import time

import yaml
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

GROUP, VERSION, NAMESPACE, PLURAL = "operators.example.com", "v1", "default", "greetings"
OF = (GROUP, VERSION, NAMESPACE, PLURAL)
FINALIZER = "operators.example.com/greeting"
PATIENCE = 20


def until(what, holds):
    """What `holds` gives, as soon as it is something."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, what
    return found


class Operator(threading.Thread):
    """Follows all objects until it has released as many as it should."""

    def __init__(self, api, count):
        super().__init__(daemon=True)
        self.api, self.count, self.released, self.fault = api, count, [], None

    def run(self):
        try:
            stream = watch.Watch().stream(self.api.list_namespaced_custom_object, *OF, timeout_seconds=PATIENCE)
            for event in stream:
                if event["type"] in ("ADDED", "MODIFIED"):
                    self.reconcile(event["object"])
                if event["type"] == "DELETED":
                    self.released.append(event["object"]["metadata"]["name"])
                if len(self.released) == self.count:
                    return
        except Exception as fault:  # pylint: disable=broad-except
            self.fault = fault

    def reconcile(self, obj):
        metadata = obj["metadata"]
        name, finalizers = metadata["name"], metadata.get("finalizers", [])
        if "deletionTimestamp" in metadata:
            body = {"metadata": {"finalizers": [f for f in finalizers if f != FINALIZER]}}
            self.api.patch_namespaced_custom_object(*OF, name, body)
        elif FINALIZER not in finalizers:
            body = {"metadata": {"finalizers": finalizers + [FINALIZER]}}
            self.api.patch_namespaced_custom_object(*OF, name, body)
        elif obj.get("status", {}).get("observedGeneration") != metadata["generation"]:
            message = f"{obj['spec']['words']}, {obj['spec']['whom']}"
            status = {"phase": "Ready", "message": message, "observedGeneration": metadata["generation"]}
            self.api.patch_namespaced_custom_object_status(*OF, name, {"status": status})


def greeting(name, whom):
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Greeting", "metadata": {"name": name}, "spec": {"whom": whom}}


def refused(api, whom):
    try:
        api.create_namespaced_custom_object(*OF, greeting("bad", whom))
    except ApiException as answer:
        return answer.status
    return None


def main():
    config.load_kube_config(sys.argv[1])
    definitions, api = client.ApiextensionsV1Api(), client.CustomObjectsApi()
    definition = yaml.safe_load((pathlib.Path(__file__).parent / "greeter.yaml").read_text())
    name = definition["metadata"]["name"]
    definitions.create_custom_resource_definition(definition)

    def established():
        conditions = definitions.read_custom_resource_definition(name).status.conditions or []
        return any(one.type == "Established" and one.status == "True" for one in conditions)

    until("the definition is established", established)
    names = [f"g{number}" for number in range(5)]
    operator = Operator(api, len(names))
    operator.start()
    for number, one in enumerate(names):
        made = until("the resource is served", lambda: created(api, greeting(one, f"whom{number}")))
        assert made["spec"]["words"] == "Hello", made
    assert [refused(api, whom) for whom in ["nobody", "w" * 21, 5]] == [422] * 3

    def status_of(one):
        return api.get_namespaced_custom_object_status(*OF, one).get("status", {})

    for number, one in enumerate(names):
        until(f"{one} is ready", lambda: status_of(one).get("message") == f"Hello, whom{number}")
    api.patch_namespaced_custom_object(*OF, names[0], {"spec": {"words": "Good day"}})
    until("the change is seen", lambda: status_of(names[0]).get("message") == "Good day, whom0")
    assert status_of(names[0])["observedGeneration"] == 2
    for one in names:
        api.delete_namespaced_custom_object(*OF, one)
    until("all are gone", lambda: not api.list_namespaced_custom_object(*OF)["items"])
    operator.join(PATIENCE)
    assert operator.fault is None, operator.fault
    definitions.delete_custom_resource_definition(name)
    until("the resource is gone", lambda: listed(api) == 404)
    print(f"{len(set(operator.released))} released")


def created(api, obj):
    try:
        return api.create_namespaced_custom_object(*OF, obj)
    except ApiException as answer:
        assert answer.status == 404, answer
        return None


def listed(api):
    try:
        api.list_namespaced_custom_object(*OF)
    except ApiException as answer:
        return answer.status
    return 200


main()
