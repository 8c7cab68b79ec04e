//! Property tests of server-side apply on random configurations and histories. `KEELSON_CASES` sets
//! the number of cases of each property and `KEELSON_SEED` the first seed. A failing case prints
//! its seed.

use crate::apply::ApplyError;
use crate::fields::{Element, FieldSet};
use crate::managed::Operation;
use crate::testing::{Server, config_map, json, pod, show};
use crate::typed::{self, Form};
use keelson_meta::{Map, Str, Value};
use std::collections::{BTreeMap, BTreeSet};

/// A seeded random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Returns true with probability 1/`times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns some of the values in random order.
    fn some<T: Copy>(&mut self, of: &[T]) -> Vec<T> {
        let mut left = of.to_vec();
        let count = self.below(of.len() as u64 + 1);
        (0..count).map(|_| left.swap_remove(self.below(left.len() as u64) as usize)).collect()
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Checks a property for every seed.
fn for_all(property: impl Fn(&mut Random)) {
    let first = number("KEELSON_SEED", 1);
    for seed in first..first + number("KEELSON_CASES", 150) {
        let case = std::panic::AssertUnwindSafe(|| {
            property(&mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
        });
        if let Err(panic) = std::panic::catch_unwind(case) {
            eprintln!("KEELSON_SEED={seed} fails");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Returns a random configuration of a Pod without zero values, whose keys are all among `names`.
fn pod_config(random: &mut Random, names: &[&'static str]) -> String {
    let quoted = |items: Vec<String>| items.join(",");
    let containers = random.some(names).into_iter().map(|name| {
        let env = random
            .some(names)
            .into_iter()
            .map(|n| format!(r#"{{"name":"{n}","value":"{}"}}"#, random.below(3)));
        let env = quoted(env.collect());
        let image = random.below(3);
        let port = 80 + names[0].len() as u64 + random.below(2);
        let protocol = random.pick(&["", r#","protocol":"TCP""#, r#","protocol":"UDP""#]);
        let ports = if random.once_in(2) {
            format!(r#","ports":[{{"containerPort":{port}{protocol}}}]"#)
        } else {
            String::new()
        };
        let env = if env.is_empty() { env } else { format!(r#","env":[{env}]"#) };
        format!(r#"{{"name":"{name}","image":"i{image}"{env}{ports}}}"#)
    });
    let containers = quoted(containers.collect());
    let labels = random.some(names).into_iter();
    let labels = quoted(labels.map(|n| format!(r#""{n}":"{}x""#, random.below(2))).collect());
    let finalizers = random.some(names).into_iter();
    let finalizers = quoted(finalizers.map(|name| format!(r#""x.com/{name}""#)).collect());
    let mut metadata = vec![];
    if !labels.is_empty() {
        metadata.push(format!(r#""labels":{{{labels}}}"#));
    }
    if !finalizers.is_empty() {
        metadata.push(format!(r#""finalizers":[{finalizers}]"#));
    }
    let spec = match containers.is_empty() {
        true => String::new(),
        false => format!(r#","spec":{{"containers":[{containers}]}}"#),
    };
    format!(r#"{{"metadata":{{{}}}{spec}}}"#, metadata.join(","))
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Returns the object without `managedFields`, with its lists sorted.
fn sorted_object(server: &Server) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let rest = map.iter().filter(|(key, _)| *key != "managedFields");
                let mut map: Map = rest.map(|(key, item)| (key.clone(), sorted(item))).collect();
                map.sort();
                Value::Object(map)
            }
            Value::Array(items) => {
                let mut items: Vec<Value> = items.iter().map(sorted).collect();
                items.sort_by_key(show);
                Value::Array(items)
            }
            scalar => scalar.clone(),
        }
    }
    show(&sorted(&server.object.clone().into_value()))
}

#[test]
fn a_repeated_apply_changes_nothing() {
    for_all(|random| {
        let mut server = Server::new(pod());
        for manager in ["m1", "m2", "m3"] {
            let config = pod_config(random, &NAMES);
            server.force(manager, &config).unwrap();
            let before = server.object.clone();
            server.apply(manager, &config).unwrap();
            assert_eq!(server.object, before, "{config}");
            assert!(!server.changed, "{config}");
        }
    });
}

#[test]
fn managers_of_different_items_are_independent() {
    for_all(|random| {
        let configs = [
            ("m1", pod_config(random, &["a", "b"])),
            ("m2", pod_config(random, &["xx", "yy", "zz"])),
        ];
        let run = |order: [usize; 3]| {
            let mut server = Server::new(pod());
            for at in order {
                let (manager, config) = &configs[at];
                server.apply(manager, config).unwrap();
            }
            let managers = server.managers();
            let owners: BTreeSet<String> = managers
                .iter()
                .map(|m| format!("{} {}", m.name, show(&m.fields().encode())))
                .collect();
            (sorted_object(&server), owners)
        };
        assert_eq!(run([0, 1, 0]), run([1, 0, 1]), "{configs:?}");
    });
}

#[test]
fn an_empty_apply_removes_everything_that_the_manager_applied() {
    for_all(|random| {
        let mut server = Server::new(pod());
        server.apply("stays", &pod_config(random, &["a", "b"])).unwrap();
        let before = sorted_object(&server);
        for _ in 0..3 {
            server.force("goes", &pod_config(random, &["xx", "yy"])).unwrap();
        }
        server.apply("goes", "{}").unwrap();
        assert_eq!(sorted_object(&server), before);
        assert_eq!(server.managers().iter().filter(|m| m.name == "goes").count(), 0);
    });
}

#[test]
fn managers_own_no_absent_fields() {
    for_all(|random| {
        let mut server = Server::new(pod());
        for _ in 0..12 {
            let manager = random.pick(&["m1", "m2", "m3"]);
            let config = pod_config(random, &NAMES);
            match random.below(4) {
                0 => server.put(manager, &config),
                1 => drop(server.apply(manager, &config)),
                2 => server.force(manager, &config).unwrap(),
                _ => server.patch(manager, &config),
            }
            let present = typed::field_set(&server.schema, Form::Decoded, &server.object.root);
            let present = typed::with_named_fields(&server.schema, present);
            for manager in server.managers().iter() {
                manager.fields().for_each_path(&mut |path| {
                    // Upstream keeps the manager of a map or list that another manager emptied.
                    let is_container = matches!(path.last(), Some(Element::Field(name))
                        if ["labels", "finalizers", "env", "ports", "containers"].contains(&name.as_str()));
                    let owned: Vec<Element> = path.iter().map(|step| (*step).clone()).collect();
                    assert!(
                        is_container || present.contains(&owned),
                        "{} owns {} of {}",
                        manager.name,
                        crate::fields::path_text(path),
                        sorted_object(&server)
                    );
                });
            }
        }
    });
}

#[test]
fn comparing_in_reverse_swaps_added_and_removed() {
    for_all(|random| {
        let schema = pod();
        let objects = [0, 1].map(|_| json(&pod_config(random, &NAMES)));
        let [a, b] = &objects;
        let a = a.as_object().unwrap();
        let b = b.as_object().unwrap();
        for form in [Form::Written, Form::Decoded] {
            let forward = typed::compare(&schema, (form, a), (form, b));
            let reverse = typed::compare(&schema, (form, b), (form, a));
            assert_eq!(forward.added, reverse.removed);
            assert_eq!(forward.removed, reverse.added);
            assert_eq!(forward.modified, reverse.modified);
            assert!(typed::compare(&schema, (form, a), (form, a)).is_empty());
        }
    });
}

#[test]
fn a_merge_sets_the_configuration_and_keeps_other_fields() {
    for_all(|random| {
        let schema = pod();
        let live = pod_config(random, &NAMES);
        let config = pod_config(random, &NAMES);
        let live = json(&live);
        let config = json(&config);
        let live = live.as_object().unwrap();
        let config = config.as_object().unwrap();
        let merged = typed::merge(&schema, live, config).unwrap();
        let changed = typed::compare(&schema, (Form::Written, config), (Form::Written, &merged));
        assert!(changed.modified.is_empty() && changed.removed.is_empty(), "{changed:?}");
        let lost = typed::compare(&schema, (Form::Written, live), (Form::Written, &merged));
        assert!(lost.removed.is_empty(), "{lost:?}");
        assert!(lost.modified.is_subset(&typed::field_set(&schema, Form::Written, config)));
        assert_eq!(typed::merge(&schema, &merged, config).unwrap(), merged);
    });
}

fn random_element(random: &mut Random) -> Element {
    match random.below(6) {
        0 => Element::Index(random.below(3) as i64),
        1 => Element::Value(Box::new(
            random.pick(&[Value::Int(1), Value::Int(10), Value::Bool(true)].each_ref()).clone(),
        )),
        2 => Element::key(vec![
            (Str::new("q"), Value::from(random.pick(&["x", "y\"<"]))),
            (Str::new("p"), Value::Int(random.below(12) as i64)),
        ]),
        _ => Element::field(random.pick(&["a", "b", "c.d/e", "."])),
    }
}

type Paths = BTreeSet<Vec<Element>>;

fn random_paths(random: &mut Random) -> Paths {
    let count = random.below(25);
    (0..count)
        .map(|_| {
            let length = 1 + random.below(3);
            (0..length).map(|_| random_element(random)).collect()
        })
        .collect()
}

fn set_of(paths: &Paths) -> FieldSet {
    let mut set = FieldSet::new();
    paths.iter().for_each(|path| set.insert(path));
    set
}

fn paths_of(set: &FieldSet) -> Paths {
    let mut paths = Paths::new();
    set.for_each_path(&mut |path| {
        paths.insert(path.iter().map(|element| (*element).clone()).collect());
    });
    paths
}

#[test]
fn field_sets_behave_as_sets_of_paths() {
    for_all(|random| {
        let a = random_paths(random);
        let b = random_paths(random);
        let x = set_of(&a);
        let y = set_of(&b);
        assert_eq!(paths_of(&x), a);
        assert_eq!(x.len(), a.len());
        let mut sum = x.clone();
        sum.add(y.clone());
        assert_eq!(paths_of(&sum), a.union(&b).cloned().collect());
        let mut rest = x.clone();
        assert_eq!(rest.subtract(&y), !a.is_disjoint(&b));
        assert_eq!(paths_of(&rest), a.difference(&b).cloned().collect());
        assert_eq!(paths_of(&x.intersection(&y)), a.intersection(&b).cloned().collect());
        assert_eq!(x.is_subset(&y), a.is_subset(&b));
        let mut trees = x.clone();
        trees.subtract_recursive(&y);
        let is_below = |path: &[Element]| (1..=path.len()).any(|end| b.contains(&path[..end]));
        assert_eq!(paths_of(&trees), a.iter().filter(|path| !is_below(path)).cloned().collect());
    });
}

#[test]
fn fields_v1_round_trips() {
    for_all(|random| {
        let set = set_of(&random_paths(random));
        let tree = set.encode();
        let text = show(&tree);
        assert_eq!(FieldSet::decode(&tree).unwrap(), set, "{text}");
        assert_eq!(show(&FieldSet::decode(&json(&text)).unwrap().encode()), text);
    });
}

/// A simple model of a flat map: the value and the managers of each key.
#[derive(Default)]
struct Model {
    keys: BTreeMap<&'static str, (u64, BTreeSet<Owner>)>,
    /// The managers of the map itself: those that created it by an update. They stay when an apply
    /// removes the last key.
    map_owners: BTreeSet<Owner>,
    exists: bool,
}

type Owner = (&'static str, Operation);
type Data = BTreeMap<&'static str, u64>;

impl Model {
    /// An existing object without managers gets none before its first apply.
    fn is_tracked(&self) -> bool {
        !self.exists
            || !self.map_owners.is_empty()
            || self.keys.values().any(|(_, owners)| !owners.is_empty())
    }

    fn apply(&mut self, manager: &'static str, data: &Data, force: bool) -> Result<(), usize> {
        let me = (manager, Operation::Apply);
        let before = (!self.is_tracked()).then_some(("before-first-apply", Operation::Update));
        let makes_map = self.keys.is_empty() && !data.is_empty();
        let lost = |(key, value): (&&str, &u64)| match self.keys.get(*key) {
            Some((live, owners)) if live != value => {
                owners.iter().chain(&before).filter(|owner| **owner != me).count()
            }
            _ => 0,
        };
        let of_map = if makes_map { self.map_owners.len() } else { 0 };
        let conflicts = data.iter().map(lost).sum::<usize>() + of_map;
        if conflicts > 0 && !force {
            return Err(conflicts);
        }
        if let Some(before) = before.filter(|_| !self.keys.is_empty()) {
            self.map_owners.insert(before);
            for (_, owners) in self.keys.values_mut() {
                owners.insert(before);
            }
        }
        if makes_map {
            self.map_owners.clear();
        }
        for (key, value) in data {
            let (live, owners) = self.keys.entry(key).or_insert((*value, BTreeSet::new()));
            if live != value {
                *live = *value;
                owners.clear();
            }
            owners.insert(me);
        }
        self.keys.retain(|key, (_, owners)| {
            let had = !data.contains_key(key) && owners.remove(&me);
            !had || !owners.is_empty()
        });
        self.exists = true;
        Ok(())
    }

    fn put(&mut self, manager: &'static str, data: &Data) {
        let own = self.is_tracked().then_some((manager, Operation::Update));
        if self.keys.is_empty() != data.is_empty() {
            self.map_owners = own.into_iter().filter(|_| !data.is_empty()).collect();
        }
        self.keys.retain(|key, _| data.contains_key(key));
        for (key, value) in data {
            match self.keys.get(key) {
                Some((live, _)) if live == value => {}
                _ => drop(self.keys.insert(key, (*value, own.into_iter().collect()))),
            }
        }
        self.exists = true;
    }

    fn show(&self) -> Vec<String> {
        let keys =
            self.keys.iter().map(|(key, (value, owners))| format!("{key}={value} {owners:?}"));
        keys.chain([format!("map {:?}", self.map_owners)]).collect()
    }
}

/// Shows the state of the server in the form of [`Model::show`].
fn show_server(server: &Server) -> Vec<String> {
    let managers = server.managers();
    let owners = |path: &[Element]| -> BTreeSet<(&str, Operation)> {
        let owning = managers.iter().filter(|manager| manager.fields().contains(path));
        owning.map(|manager| (manager.name.as_str(), manager.operation)).collect()
    };
    let map = Element::field("data");
    let data = server.object.get("data").and_then(Value::as_object);
    let mut lines: Vec<String> = data
        .into_iter()
        .flat_map(Map::iter)
        .map(|(key, value)| {
            let owners = owners(&[map.clone(), Element::Field(key.clone())]);
            format!("{key}={} {owners:?}", value.as_str().unwrap_or_default())
        })
        .collect();
    lines.sort();
    lines.push(format!("map {:?}", owners(&[map])));
    lines
}

#[test]
fn flat_maps_match_the_model() {
    for_all(|random| {
        let mut server = Server::new(config_map());
        let mut model = Model::default();
        for _ in 0..30 {
            let manager = random.pick(&["m1", "m2", "m3"]);
            let keys = random.some(&["a", "b", "c", "d"]);
            let data: Data = keys.into_iter().map(|key| (key, random.below(2))).collect();
            let entries = data.iter().map(|(key, value)| format!(r#""{key}":"{value}""#));
            let text = match data.is_empty() {
                true => "{}".to_owned(),
                false => format!(r#"{{"data":{{{}}}}}"#, entries.collect::<Vec<_>>().join(",")),
            };
            match random.below(3) {
                0 => {
                    model.put(manager, &data);
                    server.put(manager, &text);
                }
                choice => {
                    let expected = model.apply(manager, &data, choice == 1);
                    let got = match choice {
                        1 => server.force(manager, &text),
                        _ => server.apply(manager, &text),
                    };
                    let got = got.map_err(|error| match error {
                        ApplyError::Conflict(conflicts) => conflicts.0.len(),
                        other => panic!("{other}"),
                    });
                    assert_eq!(got, expected, "{manager} applies {text}");
                }
            }
            assert_eq!(show_server(&server), model.show(), "after {manager}: {text}");
        }
    });
}

#[test]
fn large_bodies_are_processed_in_linear_time() {
    const ENTRIES: usize = 40_000;
    let began = std::time::Instant::now();
    let map = |range: std::ops::Range<usize>, value: Value| -> Value {
        Value::Object(range.map(|i| (Str::from(format!("k{i}")), value.clone())).collect())
    };
    let wrap = |data: Value| Value::Object([(Str::new("data"), data)].into_iter().collect());
    let schema = config_map();
    let live = wrap(map(0..ENTRIES, Value::from("v")));
    let other = wrap(map(ENTRIES / 2..ENTRIES * 3 / 2, Value::from("w")));
    let nulls = wrap(map(0..ENTRIES, Value::Null));
    let merged = crate::merge_patch::apply(live.clone(), &other).unwrap();
    assert_eq!(merged.at(&["data"]).and_then(Value::as_object).map(Map::len), Some(60_000));
    assert_eq!(crate::strategic::apply(&schema, live.clone(), other.clone()).unwrap(), merged);
    let emptied = crate::merge_patch::apply(live.clone(), &nulls).unwrap();
    assert_eq!(emptied.at(&["data"]).and_then(Value::as_object).map(Map::len), Some(0));
    crate::strategic::apply(&schema, live.clone(), nulls).unwrap();
    let mut server = Server::new(schema);
    server.apply("m1", &show(&live)).unwrap();
    server.force("m2", &show(&other)).unwrap();
    server.apply("m1", "{}").unwrap();
    let finalizers =
        Value::Array((0..ENTRIES).map(|i| Value::from(format!("x.com/{i}"))).collect());
    let set = format!(r#"{{"metadata":{{"finalizers":{}}}}}"#, show(&finalizers));
    server.apply("m3", &set).unwrap();
    let patch = json(&set);
    crate::strategic::apply(&server.schema, server.object.clone().into_value(), patch).unwrap();
    let deletion = format!(
        r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":{}}}}}"#,
        show(&finalizers)
    );
    crate::strategic::apply(&server.schema, server.object.clone().into_value(), json(&deletion))
        .unwrap();
    let adds = (0..10_000).map(|i| format!(r#"{{"op":"add","path":"/data/n{i}","value":""}}"#));
    let adds = format!("[{}]", adds.collect::<Vec<_>>().join(","));
    // Fails when it exceeds `SHIFTED_ITEMS_MAX`; only the time matters here.
    drop(crate::json_patch::apply(merged, &json(&adds)));
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}
