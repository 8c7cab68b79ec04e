//! Metrics of plug-ins.

use super::{World, object, with_request};
use keelson_admission::{Chain, Operation, Phase, Recorder};
use keelson_meta::{Value, value};
use keelson_metrics::Exposition;

/// Returns how often a plug-in has admitted and rejected requests.
fn counted(chain: &Chain, name: &str, phase: &str) -> (u64, u64) {
    let mut out = Exposition::default();
    chain.metrics().write(&mut out);
    let text = out.finish();
    let count = |rejected| {
        let labels = format!(
            "{{name=\"{name}\",operation=\"CREATE\",rejected=\"{rejected}\",type=\"{phase}\"}}"
        );
        let line =
            format!("apiserver_admission_controller_admission_duration_seconds_count{labels} ");
        let number = text.lines().find_map(|text| text.strip_prefix(&line));
        number.map_or(0, |number| number.parse().expect("a number"))
    };
    (count(false), count(true))
}

#[test]
fn plug_ins_are_counted_up_to_the_one_that_rejects() {
    let chain = Chain::default();
    let world = World::new();
    let pod = |account: &str| {
        let spec =
            value!({"serviceAccountName": (account), "containers": [{"name": "c", "image": "i"}]});
        value!({"metadata": {"name": "p", "namespace": "n"}, "spec": (spec)})
    };
    let create = |pod: Value| {
        let mut pod = object(pod);
        let mut recorder = Recorder::default();
        with_request(&world, "pods", None, |req| {
            chain.admit(req, &mut pod, &mut recorder)?;
            chain.validate(req, &pod, &mut recorder)
        })
    };
    assert_eq!(counted(&chain, "ServiceAccount", "admit"), (0, 0));
    assert!(create(pod("default")).is_ok());
    assert!(create(pod("default")).is_ok());
    assert!(create(pod("none")).is_err());
    assert_eq!(counted(&chain, "NamespaceLifecycle", "admit"), (3, 0), "runs before");
    assert_eq!(counted(&chain, "ServiceAccount", "admit"), (2, 1));
    assert_eq!(counted(&chain, "DefaultTolerationSeconds", "admit"), (2, 0), "runs after");
    assert_eq!(counted(&chain, "ServiceAccount", "validate"), (2, 0));
    assert_eq!(counted(&chain, "MutatingAdmissionWebhook", "admit"), (0, 0));
    chain.count_idle(Phase::Admit, Operation::Create);
    assert_eq!(counted(&chain, "MutatingAdmissionWebhook", "admit"), (1, 0));
}
