"""Compares sequences of requests on two servers: python3 sequences.py WANT_URL GOT_URL TOKEN [--sequences N] [--seed S] [--kind K] [-v].

A sequence is ten requests about one object of a built-in kind: creates, updates with current and old resourceVersions, patches
of all types, applies by several managers, status updates, finalizers, deletions with options, reads. At the end, the events of
the object are read by a watch of one second, concurrently with other sequences. Both servers get the same requests; compared
are status codes, warnings and bodies without values that a server generates (uids, times, versions, addresses). A sequence
ends at the first difference. Needs only the standard library.
"""

import argparse
import collections
import concurrent.futures
import copy
import http.client
import json
import random
import re
import ssl
import time
import urllib.parse

NAMESPACE = "sequences"
STEPS = 10
# Concurrent watches.
WATCHES = 32

CONTAINERS = [{"name": "c", "image": "i:1"}]
POD = {"automountServiceAccountToken": False, "containers": CONTAINERS}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": CONTAINERS}}
WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
ONCE = {"template": {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}}
WEBHOOK = {"name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1:9/"}, "sideEffects": "None",
           "admissionReviewVersions": ["v1"], "namespaceSelector": {"matchLabels": {"none": "such"}}}
POLICY = {"matchConstraints": {"namespaceSelector": {"matchLabels": {"none": "such"}}, "resourceRules": [
    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
          "validations": [{"expression": "true"}]}
MUTATION = {"matchConstraints": POLICY["matchConstraints"], "reinvocationPolicy": "Never", "mutations": [
    {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}]}
EVENT = {"eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "a.com/c", "reportingInstance": "i", "action": "a",
         "reason": "r", "type": "Normal", "regarding": {"kind": "Pod", "name": "p", "namespace": NAMESPACE}}
REQUEST = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}

# group/version, resource, kind, namespaced, the object, fields that patches change (path: values), status.
KINDS = [
    ("v1", "configmaps", "ConfigMap", True, {"data": {"a": "b"}}, {"data.a": ["c", "", None], "immutable": [True]}, None),
    ("v1", "secrets", "Secret", True, {"stringData": {"a": "b"}}, {"stringData.x": ["y"], "type": ["other"]}, None),
    ("v1", "pods", "Pod", True, {"spec": POD},
     {"spec.activeDeadlineSeconds": [5, 0, None], "spec.containers.0.image": ["j", ""], "spec.nodeName": ["n"],
      "spec.tolerations": [[{"operator": "Exists"}], []], "spec.terminationGracePeriodSeconds": [1, -1]},
     {"phase": "Running", "podIP": "10.1.1.1"}),
    ("v1", "services", "Service", True, {"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}},
     {"spec.ports": [[{"port": 81}], [{"port": 80, "protocol": "UDP"}], []], "spec.type": ["NodePort", "ClusterIP", "ExternalName"],
      "spec.externalName": ["x.example.com"], "spec.sessionAffinity": ["ClientIP", "None"]}, None),
    ("v1", "serviceaccounts", "ServiceAccount", True, {}, {"automountServiceAccountToken": [True, False, None]}, None),
    ("v1", "persistentvolumeclaims", "PersistentVolumeClaim", True,
     {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}},
     {"spec.resources.requests.storage": ["2Gi", "1"], "spec.volumeName": ["v"]}, {"phase": "Bound"}),
    ("v1", "persistentvolumes", "PersistentVolume", False,
     {"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}},
     {"spec.capacity.storage": ["2Gi"], "spec.hostPath.path": ["/y"], "spec.mountOptions": [["a"]]}, {"phase": "Available"}),
    ("v1", "limitranges", "LimitRange", True, {"spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "99Ti"}}]}},
     {"spec.limits": [[], [{"type": "PersistentVolumeClaim", "max": {"storage": "98Ti"}}]]}, None),
    ("v1", "resourcequotas", "ResourceQuota", True, {"spec": {"hard": {"count/leases.coordination.k8s.io": "9999"}}},
     {"spec.hard": [{"pods": "99999"}, {"x": "1"}], "spec.scopes": [["Terminating"]]}, {"hard": {"count/x.y": "3"}, "used": {"count/x.y": "1"}}),
    ("v1", "replicationcontrollers", "ReplicationController", True, {"spec": {"selector": {"a": "b"}, "template": TEMPLATE}},
     {"spec.replicas": [2, -1, None], "spec.minReadySeconds": [3]}, {"replicas": 1}),
    ("v1", "podtemplates", "PodTemplate", True, {"template": TEMPLATE}, {"template.spec.nodeName": ["n"]}, None),
    ("v1", "nodes", "Node", False, {"spec": {"podCIDR": "10.9.0.0/24"}},
     {"spec.unschedulable": [True, False], "spec.taints": [[{"key": "a", "effect": "NoSchedule"}], []], "spec.podCIDR": ["10.8.0.0/24"]},
     {"capacity": {"cpu": "1"}}),
    ("v1", "namespaces", "Namespace", False, {}, {"spec.finalizers": [["a.com/b"], []]}, None),
    ("v1", "endpoints", "Endpoints", True, {"subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 1}]}]},
     {"subsets": [[], [{"addresses": [{"ip": "10.1.1.2"}]}]]}, None),
    ("apps/v1", "deployments", "Deployment", True, {"spec": WORKLOAD},
     {"spec.replicas": [2, 0, None, -1], "spec.paused": [True], "spec.selector.matchLabels": [{"x": "y"}],
      "spec.strategy.type": ["Recreate"]}, {"replicas": 1, "observedGeneration": 1}),
    ("apps/v1", "replicasets", "ReplicaSet", True, {"spec": WORKLOAD}, {"spec.replicas": [2, None], "spec.minReadySeconds": [3]},
     {"replicas": 1}),
    ("apps/v1", "statefulsets", "StatefulSet", True, {"spec": {**WORKLOAD, "serviceName": "s"}},
     {"spec.replicas": [2, None], "spec.serviceName": ["t"], "spec.template.spec.hostname": ["h"]}, {"replicas": 1}),
    ("apps/v1", "daemonsets", "DaemonSet", True, {"spec": WORKLOAD},
     {"spec.minReadySeconds": [3, None], "spec.updateStrategy.type": ["OnDelete"], "spec.template.spec.nodeName": ["n"]},
     {"currentNumberScheduled": 1, "numberMisscheduled": 0, "desiredNumberScheduled": 1, "numberReady": 0}),
    ("batch/v1", "jobs", "Job", True, {"spec": ONCE},
     {"spec.parallelism": [2, 0], "spec.suspend": [True, False], "spec.completions": [3], "spec.ttlSecondsAfterFinished": [5]},
     {"active": 1}),
    ("batch/v1", "cronjobs", "CronJob", True, {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": ONCE}}},
     {"spec.schedule": ["1 * * * *", "x"], "spec.suspend": [True], "spec.timeZone": ["Etc/UTC", "No/Where"]}, {"lastScheduleTime": "2024-01-01T00:00:00Z"}),
    ("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True,
     {"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}},
     {"spec.maxReplicas": [5, 0], "spec.minReplicas": [2, None, 9]}, {"currentReplicas": 1, "desiredReplicas": 2}),
    ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", True,
     {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
     {"spec.minAvailable": ["50%", -1, None], "spec.maxUnavailable": [1]},
     {"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1}),
    ("networking.k8s.io/v1", "ingresses", "Ingress", True,
     {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
     {"spec.ingressClassName": ["c", "C"], "spec.defaultBackend.service.port.number": [81, 0]}, {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}),
    ("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", True, {"spec": {"podSelector": {}}},
     {"spec.policyTypes": [["Egress"], ["x"]], "spec.podSelector.matchLabels": [{"a": "b"}]}, None),
    ("networking.k8s.io/v1", "ingressclasses", "IngressClass", False, {"spec": {"controller": "a.com/b"}},
     {"spec.controller": ["a.com/c"], "spec.parameters": [{"kind": "K", "name": "n"}]}, None),
    ("discovery.k8s.io/v1", "endpointslices", "EndpointSlice", True,
     {"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"port": 1}]},
     {"endpoints": [[], [{"addresses": ["10.1.1.2"]}]], "addressType": ["IPv6"]}, None),
    ("coordination.k8s.io/v1", "leases", "Lease", True, {"spec": {"holderIdentity": "a"}},
     {"spec.holderIdentity": ["b", None], "spec.leaseDurationSeconds": [5, 0]}, None),
    ("rbac.authorization.k8s.io/v1", "roles", "Role", True, {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
     {"rules": [[], [{"verbs": []}]]}, None),
    ("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", False,
     {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}, {"rules": [[], [{"verbs": ["x"], "nonResourceURLs": ["/x"]}]]}, None),
    ("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", True,
     {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]},
     {"subjects": [[], [{"kind": "Group", "name": "g"}]], "roleRef.name": ["s"]}, None),
    ("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", False, {"value": 5},
     {"value": [6], "description": ["d"], "preemptionPolicy": ["Never"]}, None),
    ("storage.k8s.io/v1", "storageclasses", "StorageClass", False, {"provisioner": "a.com/b"},
     {"provisioner": ["a.com/c"], "allowVolumeExpansion": [True], "reclaimPolicy": ["Retain"]}, None),
    ("storage.k8s.io/v1", "csidrivers", "CSIDriver", False, {"spec": {"attachRequired": False}},
     {"spec.attachRequired": [True], "spec.storageCapacity": [True], "spec.fsGroupPolicy": ["None", "x"]}, None),
    ("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", False,
     {"spec": {"attacher": "a.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}},
     {"spec.nodeName": ["m"]}, {"attached": True}),
    ("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", False, {"handler": "h"}, {"handler": ["i"], "scheduling": [{"nodeSelector": {"a": "b"}}]}, None),
    ("resource.k8s.io/v1", "deviceclasses", "DeviceClass", False, {"spec": {}},
     {"spec.selectors": [[{"cel": {"expression": "true"}}], [{"cel": {"expression": "1"}}]]}, None),
    ("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", True, {"spec": REQUEST},
     {"spec.devices.requests.0.exactly.count": [2], "spec.devices": [None]}, {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}),
    ("flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False,
     {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}},
     {"spec.limited.nominalConcurrencyShares": [3, -1], "spec.type": ["Exempt"]}, None),
    ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False,
     {"webhooks": [WEBHOOK]}, {"webhooks.0.failurePolicy": ["Ignore", "x"], "webhooks.0.timeoutSeconds": [3, 99]}, None),
    ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False,
     {"webhooks": [WEBHOOK]}, {"webhooks.0.reinvocationPolicy": ["IfNeeded", "x"], "webhooks": [[]]}, None),
    ("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False, {"spec": POLICY},
     {"spec.failurePolicy": ["Ignore", "x"], "spec.validations.0.expression": ["false", "1"], "spec.matchConstraints": [None]},
     {"observedGeneration": 1}),
    ("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False,
     {"spec": {"policyName": "none", "validationActions": ["Deny"]}},
     {"spec.validationActions": [["Warn"], ["Deny", "Warn"], []], "spec.policyName": ["other"]}, None),
    ("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False, {"spec": MUTATION},
     {"spec.reinvocationPolicy": ["IfNeeded", "x"], "spec.mutations": [[]]}, None),
    ("admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False,
     {"spec": {"policyName": "none"}}, {"spec.policyName": ["other", None], "spec.paramRef": [{"name": "p"}]}, None),
    ("apps/v1", "controllerrevisions", "ControllerRevision", True, {"data": {"a": {"b": 1}}, "revision": 1},
     {"revision": [2, -1], "data": [{"a": {"b": 2}}, None]}, None),
    ("autoscaling/v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True,
     {"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}},
     {"spec.maxReplicas": [5, 0], "spec.targetCPUUtilizationPercentage": [70, None, 0]}, {"currentReplicas": 1, "desiredReplicas": 2}),
    ("rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", False,
     {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]},
     {"subjects": [[], [{"kind": "Group", "name": "g"}]], "roleRef.name": ["s"]}, None),
    ("storage.k8s.io/v1", "csinodes", "CSINode", False, {"spec": {"drivers": [{"name": "a.com", "nodeID": "n"}]}},
     {"spec.drivers": [[], [{"name": "b.com", "nodeID": "n", "allocatable": {"count": 1}}]], "spec.drivers.0.nodeID": ["m"]}, None),
    ("storage.k8s.io/v1", "csistoragecapacities", "CSIStorageCapacity", True, {"storageClassName": "s", "capacity": "1Gi"},
     {"capacity": ["2Gi", None], "storageClassName": ["t"], "nodeTopology": [{"matchLabels": {"a": "b"}}]}, None),
    ("storage.k8s.io/v1", "volumeattributesclasses", "VolumeAttributesClass", False, {"driverName": "a.com", "parameters": {"a": "b"}},
     {"driverName": ["b.com"], "parameters": [{"a": "c"}, None]}, None),
    ("resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, {"spec": {"spec": REQUEST}},
     {"spec.spec.devices": [None], "spec.metadata": [{"labels": {"a": "b"}}]}, None),
    ("resource.k8s.io/v1", "resourceslices", "ResourceSlice", False,
     {"spec": {"driver": "a.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d"}]}},
     {"spec.devices": [[], [{"name": "e"}]], "spec.pool.generation": [2, -1], "spec.driver": ["b.com"]}, None),
    ("events.k8s.io/v1", "events", "Event", True, EVENT, {"note": ["n"], "reason": ["r"], "type": ["x"], "series": [None]}, None),
    ("certificates.k8s.io/v1", "certificatesigningrequests", "CertificateSigningRequest", False,
     {"spec": {"request": "", "signerName": "a.com/b", "usages": ["client auth"]}}, {"spec.signerName": ["a.com/c"]}, None),
]

# Ages in tables, and node ports that a server chose.
CELL = re.compile(r"^\d+[smh].*$|(?<=\d:)3[0-2]\d\d\d\b")
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
ADDRESS = re.compile(r"\b10\.0\.0\.\d+\b")
TLS = ssl._create_unverified_context()
VERSION = re.compile(r"((?:resource version|resourceVersion|ResourceVersion)[^0-9]{0,60})\d+")


class Server:
    """A server, with one connection of its own."""

    def __init__(self, url, token):
        self.url, self.token, self.connection = urllib.parse.urlsplit(url), token, None

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def send(self, method, path, body=None, content_type="application/json", accept="application/json"):
        if self.connection is None:
            self.connection = http.client.HTTPSConnection(self.url.hostname, self.url.port, timeout=60, context=TLS)
        head = {"Authorization": f"Bearer {self.token}", "Accept": accept, "Content-Type": content_type}
        text = None if body is None else json.dumps(body, separators=(",", ":"))
        try:
            self.connection.request(method, path, body=text, headers=head)
            response = self.connection.getresponse()
            data = response.read()
        except (http.client.HTTPException, OSError) as fault:
            self.close()
            return 0, f"{type(fault).__name__}: {fault}", []
        warnings = response.headers.get_all("Warning") or []
        if path.find("watch=1") >= 0 and response.status == 200:
            return response.status, [json.loads(line) for line in data.splitlines()], warnings
        try:
            return response.status, json.loads(data), warnings
        except ValueError:
            return response.status, data.decode(errors="replace"), warnings


class Normalizer:
    """Replaces generated values in responses by placeholders."""

    def __init__(self):
        self.numbers = {}

    def number(self, category, text):
        return f"<{category}-{self.numbers.setdefault((category, text), len(self.numbers))}>"

    def text(self, text):
        text = ADDRESS.sub("<ip>", text)
        text = UID.sub(lambda found: self.number("uid", found.group()), text)
        text = TIME.sub("<time>", VERSION.sub(r"\1<rv>", text))
        head, mark, rest = text.partition("Invalid value: {")
        return head + mark if mark else text.split("\n")[0]

    def value(self, value, key=""):
        if isinstance(value, dict):
            return {name: self.value(value[name], name) for name in sorted(value)}
        if isinstance(value, list):
            items = [self.value(item, key) for item in value]
            # The causes of conflicts with several managers are unordered.
            return sorted(items, key=json.dumps) if key in ("managedFields", "causes") else items
        if isinstance(value, str):
            if key == "resourceVersion":
                return "<rv>"
            return self.number("ip", value) if key in ("clusterIP", "clusterIPs") and value[:1].isdigit() else self.text(value)
        if key in ("nodePort", "healthCheckNodePort"):
            return "<port>"
        return value


def set_member(target, path, value):
    """Sets a member by a dotted path; None removes it."""
    steps = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step, following in zip(steps, steps[1:]):
        if isinstance(step, int):
            if not isinstance(target, list) or step >= len(target):
                return
            target = target[step]
        else:
            target = target.setdefault(step, [] if isinstance(following, int) else {})
    if not isinstance(target, (dict, list)):
        return
    if isinstance(steps[-1], int):
        if steps[-1] < len(target):
            target[steps[-1]] = value
    elif value is None:
        target.pop(steps[-1], None)
    else:
        target[steps[-1]] = value


class Sequence:
    """A sequence for one object. A step is a function of the server's last response, so both servers get equal requests."""

    def __init__(self, number, seed, only):
        self.random = random.Random(f"{seed}/{number}")
        kinds = [kind for kind in KINDS if only in (None, kind[2])]
        self.version, self.resource, self.kind, namespaced, base, self.changes, self.state = self.random.choice(kinds)
        self.name = f"s{seed}-{number}"
        self.base = {"apiVersion": self.version, "kind": self.kind, "metadata": {"name": self.name}, **copy.deepcopy(base)}
        root = f"/api/{self.version}" if self.version == "v1" else f"/apis/{self.version}"
        self.all = f"{root}/namespaces/{NAMESPACE}/{self.resource}" if namespaced else f"{root}/{self.resource}"
        self.path = f"{self.all}/{self.name}"
        self.steps = [("create", *self.create())] + [self.step() for _ in range(STEPS - 1)]

    def create(self):
        body = copy.deepcopy(self.base)
        if self.random.random() < 0.3:
            body["metadata"]["labels"] = {"l": "1"}
        if self.random.random() < 0.2:
            body["metadata"]["finalizers"] = ["example.com/f"]
        return (lambda last_response: ("POST", self.all, body, "application/json"),)

    def change(self):
        path = self.random.choice(sorted(self.changes))
        return path, self.random.choice(self.changes[path])

    def metadata_change(self):
        return self.random.choice([{"labels": {"l": "2"}}, {"labels": {"l": None}}, {"annotations": {"n": "1"}},
                                   {"finalizers": ["example.com/f"]}, {"finalizers": []}, {"finalizers": None}, {"labels": {"b d": "x"}},
                                   {"generation": 7}, {"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}]}])

    def query(self):
        return self.random.choice(["", "", "", "?fieldManager=other", "?dryRun=All", "?fieldValidation=Strict"])

    def step(self):
        verb = self.random.choice(["update", "update", "stale", "merge", "merge", "metadata", "json", "strategic", "apply", "apply",
                                   "apply-b", "status", "delete", "get", "table", "list", "create", "unfinalize", "select"])
        make = getattr(self, verb.replace("-", "_"))
        return (verb, *make())

    def update(self, version=None):
        (path, value), query, meta = self.change(), self.query(), self.metadata_change()

        def request(last_response):
            body = copy.deepcopy(last_response or self.base)
            if version is not None:
                body["metadata"]["resourceVersion"] = version
            body["metadata"].setdefault("labels", {})["u"] = "1"
            for name, member in meta.items():
                if member is None or isinstance(member, dict) and None in member.values():
                    body["metadata"].pop(name, None)
                else:
                    body["metadata"][name] = member
            set_member(body, path, value)
            return "PUT", self.path + query, body, "application/json"
        return (request,)

    def stale(self):
        return self.update("1")

    def merge(self, content_type="merge-patch"):
        (path, value), query = self.change(), self.query()

        def request(last_response):
            body = {}
            if any(step.isdigit() for step in path.split(".")):
                top = path.split(".")[0]
                body[top] = copy.deepcopy((last_response or self.base).get(top))
                set_member(body, path, value)
            else:
                set_member(body, path, value)
                if value is None:
                    at = body
                    for step in path.split(".")[:-1]:
                        at = at.setdefault(step, {})
                    at[path.split(".")[-1]] = None
            return "PATCH", self.path + query, body, f"application/{content_type}+json"
        return (request,)

    def strategic(self):
        return self.merge("strategic-merge-patch")

    def metadata(self):
        return self.metadata_patch(self.metadata_change())

    def metadata_patch(self, body):
        query = self.query()
        return (lambda last_response: ("PATCH", self.path + query, {"metadata": body}, "application/merge-patch+json"),)

    def json(self):
        (path, value), test = self.change(), self.random.random() < 0.3
        pointer = "/" + path.replace(".", "/")
        operations = [{"op": "remove", "path": pointer}] if value is None else [{"op": "add", "path": pointer, "value": value}]
        if test:
            operations.insert(0, {"op": "test", "path": "/metadata/name", "value": self.name})
        return (lambda last_response: ("PATCH", self.path, operations, "application/json-patch+json"),)

    def apply(self, manager="a"):
        (path, value), force = self.change(), self.random.choice(["", "", "&force=true"])
        replaces_list = self.random.random() < 0.5
        body = copy.deepcopy(self.base)
        if not replaces_list:
            body = {name: body[name] for name in ("apiVersion", "kind", "metadata")}
        if not any(step.isdigit() for step in path.split(".")) or replaces_list:
            set_member(body, path, value)
        body["metadata"]["labels"] = {f"m-{manager}": self.random.choice(["1", "2"]), "shared": manager}
        return (lambda last_response: ("PATCH", f"{self.path}?fieldManager={manager}{force}", body, "application/apply-patch+yaml"),)

    def apply_b(self):
        return self.apply("b")

    def status(self):
        state, query = self.state or {"phase": "Active"}, self.query()
        return (lambda last_response: ("PATCH", f"{self.path}/status{query}", {"status": state}, "application/merge-patch+json"),)

    def list(self):
        return self.list_objects(f"fieldSelector=metadata.name={self.name}")

    def delete(self):
        options = self.random.choice([None, {}, {"propagationPolicy": "Orphan"}, {"propagationPolicy": "Foreground"},
                                      {"preconditions": {"uid": "x"}}, {"preconditions": {"resourceVersion": "1"}}, {"dryRun": ["All"]},
                                      {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": -1}, {"propagationPolicy": "x"}])
        return (lambda last_response: ("DELETE", self.path, options, "application/json"),)

    def get(self):
        return (lambda last_response: ("GET", self.path, None, "application/json"),)

    def table(self):
        return (lambda last_response: ("GET", self.path, None, "table"),)

    def list_objects(self, query):
        return (lambda last_response: ("GET", f"{self.all}?{query}", None, "application/json"),)

    def unfinalize(self):
        return self.metadata_patch({"finalizers": None})

    def select(self):
        return self.list_objects(f"fieldSelector=metadata.name={self.name}&labelSelector=" + self.random.choice(["l", "l=1", "!l", "u,l"]))

    def run(self, make_servers):
        """Returns the number of equal responses and the first difference, if any."""
        servers = make_servers()
        try:
            return self.compare(servers)
        finally:
            for server in servers:
                server.close()

    def compare(self, servers):
        last_responses = [None, None]
        self.normalizers, self.start_versions = [Normalizer(), Normalizer()], []
        for server in servers:
            self.start_versions.append(server.send("GET", f"{self.all}?limit=1")[1]["metadata"]["resourceVersion"])
        for at, (verb, request) in enumerate(self.steps):
            responses = []
            for i, server in enumerate(servers):
                method, path, body, content_type = request(last_responses[i])
                accept = "application/json;as=Table;v=v1;g=meta.k8s.io" if content_type == "table" else "application/json"
                code, response, warnings = server.send(method, path, body, "application/json" if content_type == "table" else content_type, accept)
                if isinstance(response, dict) and response.get("kind") == self.kind and "dryRun" not in path and method != "DELETE":
                    last_responses[i] = response
                responses.append((code, self.without_ages(self.normalizers[i].value(response)), warnings))
            if responses[0] != responses[1]:
                return at, (verb, request(last_responses[0])[:3], *responses)
        return STEPS, None

    def events(self, server, i, seconds=1):
        """Returns the watch events of the sequence."""
        query = f"watch=1&timeoutSeconds={seconds}&resourceVersion={self.start_versions[i]}&fieldSelector=metadata.name={self.name}"
        code, found, _ = server.send("GET", f"{self.all}?{query}")
        server.close()
        if code != 200:
            return [(code, found)]
        return [(event["type"], self.normalizers[i].value(event["object"])) for event in found if event["type"] != "BOOKMARK"]

    @staticmethod
    def without_ages(response):
        """Removes ages from tables."""
        if isinstance(response, dict) and response.get("kind") == "Table":
            for row in response.get("rows") or []:
                row["cells"] = [CELL.sub("<own>", cell) if isinstance(cell, str) else cell for cell in row["cells"]]
            response.pop("columnDefinitions", None)
        return response


def first_difference(want, got, path=""):
    """Returns the path of the first difference, and both values."""
    if isinstance(want, dict) and isinstance(got, dict):
        for name in sorted(want.keys() | got.keys()):
            if want.get(name) != got.get(name):
                return first_difference(want.get(name), got.get(name), f"{path}.{name}")
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
        for at, (one, other) in enumerate(zip(want, got)):
            if one != other:
                return first_difference(one, other, f"{path}[{at}]")
        return f"{path}.length", len(want), len(got)
    return path, want, got


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("want")
    parser.add_argument("got")
    parser.add_argument("token")
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kind")
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    def servers():
        return [Server(args.want, args.token), Server(args.got, args.token)]

    for server in servers():
        server.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        server.send("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        server.close()
    start_time = time.time()
    equal, steps, steps_total, by_kind = 0, 0, 0, collections.Counter()
    watches = concurrent.futures.ThreadPoolExecutor(WATCHES)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool, watches:
        def one(number):
            sequence = Sequence(number, args.seed, args.kind)
            equal_responses, difference = sequence.run(servers)
            events = [watches.submit(sequence.events, server, i) for i, server in enumerate(servers())] if difference is None else []
            return number, sequence, equal_responses, difference, events

        for number, sequence, equal_responses, difference, events in pool.map(one, range(args.sequences)):
            if events:
                want, got = (each.result() for each in events)
                if len(want) != len(got):
                    # A second is too short on a busy machine.
                    want, got = (sequence.events(server, i, seconds=5) for i, server in enumerate(servers()))
                difference = None if want == got else ("watch", sequence.path, want, got)
                equal_responses += difference is None
            steps, steps_total = steps + equal_responses, steps_total + min(equal_responses + 1, STEPS + 1)
            equal += difference is None
            if difference is not None:
                by_kind[sequence.kind] += 1
                if args.v:
                    print(f"sequence {number}, step {equal_responses}, {sequence.kind}:")
                    verb, sent_request, want, got = difference
                    path, want, got = first_difference(want, got)
                    print(f"    {verb} {json.dumps(sent_request)[:700]}")
                    print(f"    {path}: want {json.dumps(want)[:400]} got {json.dumps(got)[:400]}", flush=True)
    for kind, count in by_kind.most_common():
        print(f"{kind}: {count} differ")
    print(f"alike: {equal} of {args.sequences} sequences, {steps} of {steps_total} answers; {time.time() - start_time:.0f} s")


if __name__ == "__main__":
    main()
