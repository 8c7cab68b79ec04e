//! NetworkPolicies.

use crate::check::{Field, children, default, default_empty, new_cidr};
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, Object, Value, ip, names};

/// NetworkPolicies.
pub(crate) const fn policy(base: Strategy) -> Strategy {
    Strategy { default: default_policy, validate: |new, _| validate(new), ..base }
}

fn default_policy(policy: &mut Object) {
    let spec = policy.object_mut("spec");
    let mut types = vec![Value::from("Ingress")];
    if spec.get("egress").is_some_and(|rules| !rules.is_empty()) {
        types.push("Egress".into());
    }
    default_empty(spec, "policyTypes", types);
    for direction in ["ingress", "egress"] {
        for rule in children(spec, direction) {
            children(rule, "ports").for_each(|port| default(port, "protocol", "TCP"));
        }
    }
}

fn validate(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    spec.field("podSelector").label_selector(&mut errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.field(direction).items() {
            rule.field("ports").items().for_each(|port| validate_port(&port, &mut errors));
            rule.field(peers).items().for_each(|peer| validate_peer(&peer, &mut errors));
        }
    }
    let types = spec.field("policyTypes");
    if types.array().len() > 2 {
        types.invalid(&mut errors, "may not specify more than two policyTypes");
        return errors;
    }
    types.items().for_each(|kind| kind.one_of(&mut errors, &["Ingress", "Egress"]));
    errors
}

fn validate_port(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("protocol").one_of_if_set(errors, &["TCP", "UDP", "SCTP"]);
    let port = at.field("port");
    let end = at.field("endPort");
    match port.value {
        Value::Null => {
            if end.is_set() {
                end.invalid(errors, "may not be specified when `port` is not specified");
            }
        }
        Value::String(_) => {
            if end.is_set() {
                end.invalid(errors, "may not be specified when `port` is non-numeric");
            }
            port.rule(errors, names::is_valid_port_name);
        }
        _ => {
            port.port(errors);
            if end.is_set() {
                if end.number() < port.number() {
                    end.invalid_as(
                        errors,
                        port.number(),
                        "must be greater than or equal to `port`",
                    );
                }
                end.port(errors);
            }
        }
    }
}

fn validate_peer(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut peers = 0;
    for name in ["podSelector", "namespaceSelector"] {
        let selector = at.field(name);
        if selector.is_set() {
            peers += 1;
            selector.label_selector(errors);
        }
    }
    let block = at.field("ipBlock");
    if block.is_set() {
        validate_block(&block, errors);
        if peers > 0 {
            at.forbidden(errors, "may not specify both ipBlock and another peer");
        }
        peers += 1;
    }
    if peers == 0 {
        at.required(errors, "must specify a peer");
    }
}

fn validate_block(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let range = at.field("cidr");
    if !range.not_empty(errors, "") {
        return;
    }
    errors.extend(new_cidr(range.text(), &range.path));
    let Some(outer) = ip::parse_cidr(range.text()) else { return };
    for except in at.field("except").items() {
        errors.extend(new_cidr(except.text(), &except.path));
        let Some(inner) = ip::parse_cidr(except.text()) else { continue };
        if !outer.contains(inner.network()) || outer.prefix_bits >= inner.prefix_bits {
            except.invalid(errors, "must be a strict subset of `cidr`");
        }
    }
}
