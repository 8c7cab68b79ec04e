"""exec, attach, logs and port-forward of the official Python client: python3 streams.py KUBECONFIG.

There is the pod `web` on the node `n1`, which runs commands on this machine. Ends with a line that says what was done.
"""

import socketserver
import sys
import threading

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import portforward, stream

WEB = {"name": "web", "namespace": "default"}
TIMEOUT = 20
LOG = "/api/v1/nodes/n1/proxy/testkit/log/default/web/main"


def execute(core, script, given=None):
    """Runs a script. Returns its output, its error output and its exit code."""
    running = stream(
        core.connect_get_namespaced_pod_exec, **WEB, command=["sh", "-c", script], stdin=given is not None,
        stdout=True, stderr=True, tty=False, _preload_content=False,
    )
    if given is not None:
        running.write_stdin(given)
    running.run_forever(timeout=TIMEOUT)
    return running.read_stdout(), running.read_stderr(), running.returncode


def check_exec(core):
    assert execute(core, "echo out; echo err >&2; exit 7") == ("out\n", "err\n", 7)
    assert execute(core, "true") == ("", "", 0)
    assert execute(core, 'read line; echo "got $line"', "word\n") == ("got word\n", "", 0)
    output, _, code = execute(core, "seq 200000")
    assert (output.count("\n"), output.endswith("\n200000\n"), code) == (200000, True, 0)
    joined = stream(core.connect_get_namespaced_pod_exec, **WEB, command=["echo", "hi"], stdout=True)
    assert joined == "hi\n", joined
    try:
        stream(core.connect_get_namespaced_pod_exec, "gone", "default", command=["true"], stdout=True)
    except ApiException as refused:
        assert refused.status == 0 or "404" in refused.reason, refused
    else:
        raise AssertionError("a command ran in a pod that is not there")


def check_attach(core):
    attached = stream(
        core.connect_get_namespaced_pod_attach, **WEB, stdin=True, stdout=True, stderr=True, tty=False,
        _preload_content=False,
    )
    attached.write_stdin("typed\n")
    assert attached.readline_stdout(timeout=TIMEOUT) == "typed"
    attached.close()


def check_logs(core):
    rest, configuration = core.api_client.rest_client, core.api_client.configuration
    url = configuration.host + LOG
    # A token; a user with a certificate has none.
    headers = {setting["key"]: setting["value"] for setting in configuration.auth_settings().values()}

    def say(line):
        text = {"Content-Type": "text/plain", **headers}
        answer = rest.request("POST", f"{url}?stream=stdout", headers=text, body=line)
        assert answer.status == 200, answer.status

    def restart():
        assert rest.request("DELETE", url, headers=headers).status == 200

    say("first")
    following = core.read_namespaced_pod_log(**WEB, follow=True, _preload_content=False, _request_timeout=TIMEOUT)
    lines = iter(following)
    assert b"first" in next(lines)
    say("second")
    assert b"second" in next(lines)
    restart()
    assert list(lines) == [], "the log ends with the container"
    say("third")
    current = core.read_namespaced_pod_log(**WEB)
    previous = core.read_namespaced_pod_log(**WEB, previous=True)
    assert "third" in current and "first" not in current, current
    assert "first" in previous and "second" in previous and "third" not in previous, previous


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while piece := self.request.recv(65536):
            self.request.sendall(piece)


def check_port_forward(core):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        forwarded = portforward(core.connect_get_namespaced_pod_portforward, **WEB, ports=str(port))
        connection = forwarded.socket(port)
        connection.settimeout(TIMEOUT)
        sent = b"0123456789" * 2000
        connection.sendall(sent)
        received = b""
        while len(received) < len(sent) and (piece := connection.recv(65536)):
            received += piece
        assert received == sent, len(received)
        connection.close()
        assert forwarded.error(port) is None, forwarded.error(port)
        server.shutdown()


def main():
    config.load_kube_config(sys.argv[1])
    for check in (check_exec, check_attach, check_logs, check_port_forward):
        # Streams change the client that they use.
        check(client.CoreV1Api(client.ApiClient()))
    print("exec, attach, logs, port-forward")


main()
