//! kubectl with a simulated cluster: what people do with workloads and nodes.

use super::Kubectl;
use super::streams::SPDY;
use keelson::{Keelson, SimulatedPorts, Simulation};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn start() -> Option<Kubectl> {
    let simulation = Simulation { nodes: 3, ..Simulation::default() };
    Kubectl::start(Keelson::builder().simulate(simulation))
}

#[test]
fn workloads_are_rolled_out_and_back_scaled_and_restarted() {
    let Some(kubectl) = start() else { return };
    kubectl.run(&[
        ("k create deployment web --image=nginx:1 --replicas=3", 0, "created"),
        ("k rollout status deployment/web --timeout=60s", 0, "successfully rolled out"),
        ("k set image deployment/web nginx=nginx:2", 0, "image updated"),
        ("k rollout status deployment/web --timeout=60s", 0, "successfully rolled out"),
        ("k annotate deployment/web kubernetes.io/change-cause=second", 0, "annotated"),
        ("k rollout history deployment/web", 0, "1         <none>\n2         "),
        ("k rollout history deployment/web --revision=2", 0, "nginx:2"),
        ("k rollout undo deployment/web", 0, "rolled back"),
        ("k rollout status deployment/web --timeout=60s", 0, "successfully rolled out"),
        ("k get deployment web -o jsonpath={..image}", 0, "nginx:1"),
        ("k rollout pause deployment/web", 0, "paused"),
        ("k rollout resume deployment/web", 0, "resumed"),
        ("k rollout restart deployment/web", 0, "restarted"),
        ("k rollout status deployment/web --timeout=60s", 0, "successfully rolled out"),
        ("k scale deployment/web --replicas=5", 0, "scaled"),
        ("k wait deployment/web --for=jsonpath='{.status.readyReplicas}'=5 --timeout=60s", 0, "met"),
        ("k autoscale deployment/web --min=6 --max=8 --cpu-percent=50", 0, "autoscaled"),
        ("k wait deployment/web --for=jsonpath='{.status.readyReplicas}'=6 --timeout=60s", 0, "met"),
        ("k expose deployment/web --port=80", 0, "exposed"),
        ("k wait endpointslice -l kubernetes.io/service-name=web --for=jsonpath='{.endpoints[5].conditions.ready}'=true --timeout=60s", 0, "met"),
        ("k delete deployment web --cascade=foreground --timeout=60s", 0, "deleted"),
        ("k get pods -l app=web -o name | wc -l", 0, "0"),
    ]);
}

#[test]
fn pods_and_jobs_run_to_their_ends() {
    let Some(kubectl) = start() else { return };
    kubectl.run(&[
        ("k run once --image=busybox --restart=Never -- sh -c 'exit 3'", 0, "created"),
        ("k wait pod/once --for=jsonpath='{.status.phase}'=Failed --timeout=60s", 0, "met"),
        ("k get pod once -o jsonpath={..terminated.exitCode}", 0, "3"),
        ("k logs once", 0, "ended with exit code 3 (Error)"),
        ("k run web --image=nginx", 0, "created"),
        ("k wait pod/web --for=condition=Ready --timeout=60s", 0, "met"),
        ("k exec web -- ls", 1, "is simulated"),
        ("k create job one --image=busybox -- true", 0, "created"),
        ("k wait job/one --for=condition=Complete --timeout=60s", 0, "met"),
        ("k create job two --image=busybox -- false", 0, "created"),
        ("k create cronjob tick --image=busybox --schedule='0 0 1 1 *' -- true", 0, "created"),
        ("k create job three --from=cronjob/tick", 0, "created"),
        ("k wait job/three --for=condition=Complete --timeout=60s", 0, "met"),
    ]);
}

#[test]
fn nodes_are_tainted_cordoned_and_drained() {
    let Some(kubectl) = start() else { return };
    kubectl.run(&[
        ("k wait node --all --for=condition=Ready --timeout=60s", 0, "met"),
        ("k create deployment web --image=nginx --replicas=4", 0, "created"),
        ("k rollout status deployment/web --timeout=60s", 0, "successfully rolled out"),
        ("k taint nodes keelson-node-0 a=b:NoExecute", 0, "tainted"),
        ("k wait pod -l app=web --field-selector=spec.nodeName=keelson-node-0 --for=delete --timeout=60s", 0, ""),
        ("k rollout status deployment/web --timeout=60s", 0, "successfully rolled out"),
        ("k cordon keelson-node-1", 0, "cordoned"),
        ("k drain keelson-node-1 --ignore-daemonsets --timeout=60s", 0, "drained"),
        ("k rollout status deployment/web --timeout=60s", 0, "successfully rolled out"),
        ("k get pods -l app=web -o jsonpath={..nodeName}", 0, "keelson-node-2 keelson-node-2 keelson-node-2 keelson-node-2"),
        ("k run late --image=nginx --overrides='{\"spec\": {\"nodeName\": \"keelson-node-1\"}}'", 0, "created"),
        ("k uncordon keelson-node-1", 0, "uncordoned"),
        ("k taint nodes keelson-node-0 a=b:NoExecute-", 0, "untainted"),
        ("k describe node keelson-node-0", 0, "keelson simulation"),
    ]);
}

/// Sends a text through a port-forward to a port of the pod `web`, and returns the answer.
fn through_port_forward(
    kubectl: &Kubectl,
    prelude: &str,
    port: u16,
    text: &str,
) -> io::Result<String> {
    let line = format!(
        "{prelude}exec \"$KUBECTL\" --kubeconfig=admin.kubeconfig port-forward pod/web :{port}"
    );
    let mut forwarding = kubectl.spawn_shell(&line);
    // `Forwarding from 127.0.0.1:40123 -> 80`
    let said = forwarding.line();
    let local: u16 = said
        .split(':')
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|port| port.parse().ok())
        .expect("a local port");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, local)).expect("a connection");
    stream.write_all(text.as_bytes()).expect("written");
    stream.shutdown(Shutdown::Write).expect("half closed");
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn registered_ports_of_simulated_pods_are_forwarded() {
    let ports = SimulatedPorts::default();
    let simulation = Simulation { ports: ports.clone(), ..Simulation::default() };
    let Some(kubectl) = Kubectl::start(Keelson::builder().simulate(simulation)) else { return };
    kubectl.run(&[
        ("k run web --image=nginx", 0, "created"),
        ("k wait pod/web --for=condition=Ready --timeout=60s", 0, "met"),
        ("k port-forward pod/web :80", 1, "is simulated"),
        ("k get --raw '/keelson/simulation' ", 0, "SimulationStatus"),
    ]);
    let upper = |mut connection: tokio::io::DuplexStream| async move {
        let mut text = String::new();
        connection.read_to_string(&mut text).await.expect("a text");
        connection.write_all(text.to_uppercase().as_bytes()).await.expect("written");
    };
    ports.serve(("default", "web", 80), upper).expect("it is registered");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("a text");
            stream.write_all(text.len().to_string().as_bytes()).expect("written");
        }
    });
    ports.forward(("default", "web", 81), address).expect("it is registered");
    let long = "hello ".repeat(20_000);
    for prelude in ["", SPDY] {
        let forwarded = |port, text| through_port_forward(&kubectl, prelude, port, text);
        assert_eq!(forwarded(80, &long).expect("an answer"), long.to_uppercase());
        assert_eq!(forwarded(81, &long).expect("an answer"), "120000");
        // kubectl ends, and may not have read the text before.
        match forwarded(82, "x") {
            Ok(answer) => assert_eq!(answer, ""),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }
    kubectl.server.stop();
}
