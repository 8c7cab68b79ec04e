//! Tests of the reader and the writer on single texts and values.

use super::*;
use keelson_meta::{Map, value};

fn check(text: impl AsRef<[u8]>, want: Result<Value, &str>) {
    let text = text.as_ref();
    let got = parse(text).map(|p| p.value).map_err(|e| e.to_string());
    let excerpt = String::from_utf8_lossy(&text[..text.len().min(80)]);
    assert_eq!(got, want.map_err(str::to_owned), "{excerpt}");
}

#[test]
fn scalars_follow_yaml_1_1() {
    check(
        "a: yes\nb: off\nc: 010\nd: 0x1F\ne: 1.0\nf: 1.5\ng: ~\nh: '1'\ni: 1_000\nj: 2001-01-01\nk: v1",
        Ok(value!({"a": true, "b": false, "c": 8, "d": 31, "e": 1, "f": 1.5, "g": null,
                   "h": "1", "i": 1000, "j": "2001-01-01", "k": "v1"})),
    );
    check("1: a\ntrue: b", Ok(value!({"1": "a", "true": "b"})));
}

#[test]
fn json_fast_path_agrees_with_the_scanner() {
    for text in [
        r#"{"a":"b","c":[1,-2,true,null,{}],"d":{"e":[],"f":""}}"#,
        "{\n  \"a\": \"x: y # z\",\n  \"b\": [ \"- c\" ]\n}\n",
        r#"{"a":"\u00e9\n\t\"\\ /😀","é":"ü"}"#,
        r#"{"a":1.5,"b":0.1,"c":9007199254740993,"d":-0.25}"#,
        r#"{"b":-0,"d":1E-2}"#,
        r#"{"yes":"no","null":"~","1":"2","":"="}"#,
    ] {
        assert_eq!(parse(text).unwrap(), scan(text.as_bytes()).unwrap(), "{text}");
        assert!(plain_json(text.as_bytes()).is_some(), "{text}");
    }
    for odd in [
        r#"{"a":1,"a":2}"#,
        "{\t}",
        r#"{"a":"\ud83d\ude00"}"#,
        r#"{"a":1.0}"#,
        "a: 1",
        r#"{"a":"\/"}"#,
        "{\"a\"\n:1}",
        "{\"a\":\"\u{2028}\"}",
        r#"{"a":1e400}"#,
    ] {
        assert_eq!(plain_json(odd.as_bytes()), None, "{odd}");
    }
}

#[test]
fn only_the_first_document_counts() {
    check("---\na: 1\n---\nb: 2\n", Ok(value!({"a": 1})));
    check("", Ok(Value::Null));
    check("# only a comment\n", Ok(Value::Null));
}

#[test]
fn merge_keys_and_aliases_are_expanded() {
    check(
        "base: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  z: 3\n",
        Ok(value!({"base": {"x": 1, "z": 2}, "use": {"z": 3, "x": 1}})),
    );
}

#[test]
fn expansion_of_aliases_is_limited() {
    let texts =
        |count: usize| format!("a: &a {}\nb: [{}]", "x".repeat(1 << 20), "*a,".repeat(count));
    check(texts(4), Err("yaml: document contains excessive aliasing"));
    assert!(parse(texts(3)).is_ok());
    // Each list is 100 levels deep and contains the one before.
    let level =
        |at: usize| format!("- &a{} {}*a{at}{}\n", at + 1, "[".repeat(100), "]".repeat(100));
    let levels = |count| format!("- &a0 []\n{}", (0..count).map(level).collect::<String>());
    check(levels(5), Err("yaml: exceeded max depth of 10000"));
    assert_eq!(parse(levels(2)).err(), None);
}

#[test]
fn merged_maps_may_have_anchors_and_hold_aliases() {
    check(
        "a: &a {x: [1]}\nb: {<<: &b {q: *a, z: &c [2]}, z: 3}\nc: [*b, *c]\nd: {<<: [*a, *b], x: 4}",
        Ok(value!({
            "a": {"x": [1]},
            "b": {"z": 3, "q": {"x": [1]}},
            "c": [{"q": {"x": [1]}, "z": [2]}, [2]],
            "d": {"x": 4, "q": {"x": [1]}, "z": [2]}
        })),
    );
}

#[test]
fn alias_bomb_is_rejected() {
    let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for i in 1..9 {
        let row = vec![format!("*a{}", i - 1); 10].join(",");
        text.push_str(&format!("a{i}: &a{i} [{row}]\n"));
    }
    check(&text, Err("yaml: document contains excessive aliasing"));
    check("[".repeat(5_000), Err("yaml: line 1: did not find expected node content"));
}

#[test]
fn errors_name_the_line() {
    check("a: b: c", Err("yaml: mapping values are not allowed in this context"));
    check("a: 1\nb: c: d", Err("yaml: line 2: mapping values are not allowed in this context"));
    check("{", Err("yaml: line 1: did not find expected node content"));
}

#[test]
fn long_and_multiline_keys_have_their_own_line() {
    let long = "k".repeat(129);
    let mut map = Map::new();
    map.insert(long.as_str(), value!({"a": [1, {"b": 2}]}));
    map.insert("x\ny", value!([1, 2]));
    let mut text = String::new();
    write(&Value::Object(map.clone()), &mut text);
    let want = format!("? {long}\n: a:\n  - 1\n  - b: 2\n? |-\n  x\n  y\n: - 1\n  - 2\n");
    assert_eq!(text, want);
    assert_eq!(parse(&text).expect("YAML").value, Value::Object(map));
}

/// `12` is before `1a`, `1a` before `9`, and `9` before `12`: many of such keys panicked.
#[test]
fn keys_whose_order_is_a_circle_are_written() {
    let mut state = 0_u32;
    let mut map = Map::new();
    for n in 0..25 {
        let mut key = String::new();
        for _ in 0..3 {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
            key.push(char::from(b"0129az"[(state >> 16) as usize % 6]));
        }
        map.insert(key.as_str(), Value::Int(n));
    }
    let mut text = String::new();
    write(&Value::Object(map.clone()), &mut text);
    assert_eq!(parse(&text).expect("YAML").value, Value::Object(map));
}

#[test]
fn special_characters_are_escaped() {
    let text = "\u{1}\u{7f}\u{85}\u{a0}é\u{2028}\u{fffe}😀<\"\\";
    let mut out = String::new();
    write(&Value::from(text), &mut out);
    let want = r#""\x01\x7F\N"#.to_owned() + "\u{a0}é" + r#"\L\uFFFE\U0001F600<\"\\""#;
    assert_eq!(out.trim_end(), want);
    assert_eq!(parse(&out).expect("YAML").value, Value::from(text));
}

#[test]
fn whole_floats_are_the_integers_that_json_writes() {
    check("2233720368547758e2", Ok(value!(223372036854775800_i64)));
    check("-1e18", Ok(Value::Int(-1_000_000_000_000_000_000)));
    check("1e19", Ok(value!(1e19)));
    check("1e21", Ok(value!(1e21)));
}

#[test]
fn document_of_one_multiline_string_is_indented() {
    let text = Value::from("\n|\n\n|");
    let mut out = String::new();
    write(&text, &mut out);
    assert_eq!(parse(&out).map(|parsed| parsed.value), Ok(text), "{out}");
}

#[test]
fn huge_numbers_are_text_and_infinite_ones_are_rejected() {
    let digits = "9".repeat(400);
    check(&digits, Ok(value!((digits.as_str()))));
    check("a: [.inf]", Err("json: unsupported value: +Inf"));
    check("a: -.INF\nb: 1", Err("json: unsupported value: -Inf"));
    check("b: .nan\na: .inf", Err("json: unsupported value: +Inf"));
}

#[test]
fn flow_collections_and_quotes_may_continue_at_the_indentation_of_their_key() {
    check("a: [1,\n2\n]\nb: \"x\ny\"\n", Ok(value!({"a": [1, 2], "b": "x y"})));
    check("a: {b: 1,\nc: 2}\n", Ok(value!({"a": {"b": 1, "c": 2}})));
    check("a: [1.2.3.4, 2001:db8::]", Ok(value!({"a": ["1.2.3.4", "2001:db8::"]})));
    check("a:\tb\n", Ok(value!({"a": "b"})));
    check("a: |\n  b", Ok(value!({"a": "b"})));
    check("\ta: b", Err("yaml: found character that cannot start any token"));
}

#[test]
fn keys_become_text() {
    check(
        "1: a\n1.5: b\ntrue: c\n.inf: d\n1e6: e\n!!binary aGk=: f\n~x: g",
        Ok(value!({"1": "a", "1.5": "b", "true": "c", ".inf": "d", "1e+06": "e", "hi": "f",
                   "~x": "g"})),
    );
    check(
        "~: [x, {1: ~}]",
        Err("unsupported map key of type: %!s(<nil>), key: <nil>, value: []interface {}{\"x\", \
             map[interface {}]interface {}{1:interface {}(nil)}}"),
    );
    check("[a]: b", Err("yaml: invalid map key: []interface {}{\"a\"}"));
}

#[test]
fn merged_entries_are_set_where_the_merge_stands() {
    check("b: &b {x: 1}\nu: {x: 2, <<: *b}", Ok(value!({"b": {"x": 1}, "u": {"x": 1}})));
    check("{<<: [{x: 1}, {x: 2, z: 3}]}", Ok(value!({"x": 1, "z": 3})));
    let message = "yaml: map merge requires map or sequence of maps as the value";
    check("<<: [1]", Err(message));
    check("<<: ~", Err(message));
    check("\"<<\": ~", Ok(value!({"<<": null})));
}

#[test]
fn duplicate_keys_are_reported_in_the_order_in_which_they_are_set() {
    let parsed = parse("a: 1\nb: {c: 1, c: 2}\na: {d: 1,\n  d: 2}\n1: x\n1: y\n\"1\": z");
    let duplicates = parsed.expect("YAML").duplicates;
    let duplicates: Vec<(usize, &str)> =
        duplicates.iter().map(|(line, key)| (*line, key.as_str())).collect();
    assert_eq!(duplicates, [(2, "\"c\""), (4, "\"d\""), (3, "\"a\""), (6, "1")]);
    let many = "a:\n".repeat(20_000);
    assert_eq!(parse(many).expect("YAML").duplicates.len(), 10_000);
}

#[test]
fn texts_may_be_utf_16_and_bad_bytes_count_only_once_they_are_reached() {
    check(b"\xff\xfea\0:\0 \0\x3d\xd8\x00\xde", Ok(value!({"a": "\u{1f600}"})));
    check(b"\xfe\xff\0a\0:\0 \0b", Ok(value!({"a": "b"})));
    check(b"\xef\xbb\xbfa: b", Ok(value!({"a": "b"})));
    check("a: \u{3}", Err("yaml: control characters are not allowed"));
    check(b"a: \xff", Err("yaml: invalid leading UTF-8 octet"));
    check(b"a: \xe2\x82", Err("yaml: incomplete UTF-8 octet sequence"));
    let later = |padding: usize| format!("a: 1\n--- {}\u{3}", "x".repeat(padding));
    check(later(400), Err("yaml: control characters are not allowed"));
    check(later(520), Ok(value!({"a": 1})));
}

#[test]
fn tags_convert_scalars_or_reject_them() {
    check(
        "[!!str 1, !!int \"1\", !!float 1, !!binary aGk=, ! 1, !own 1, !!null '', !!bool yes]",
        Ok(value!(["1", 1, 1, "hi", "1", "1", null, true])),
    );
    check("!!int x", Err("yaml: cannot decode !!str `x` as a !!int"));
    check("!!binary x", Err("yaml: !!binary value contains invalid base64 data"));
    check("!e!x 1", Err("yaml: found undefined tag handle"));
}

#[test]
fn deep_texts_are_rejected_whatever_they_are_made_of() {
    let message = "yaml: exceeded max depth of 10000";
    check("[".repeat(20_000), Err(message));
    check("- ".repeat(20_000), Err(message));
    check("? ".repeat(20_000), Err(message));
    check(format!("{}{}", "[".repeat(300), "]".repeat(300)), Err(message));
    let open = (0..300).map(|_| "{<<: ").collect::<String>();
    check(format!("{open}{{}}{}", "}".repeat(300)), Err(message));
}

#[test]
fn values_round_trip() {
    let value = value!({"b": ["x", {"c": "y: z", "d": [1, [2, 3]]}], "a": "true", "t": "a\nb\n",
        "u": "\n x\ny\n\n", "n": null, "e": {}, "l": [], "w": "it's", "z": "1.5", "ts": "2001-01-01",
        "sp": " lead", "q": "a \"quoted\" \\ word", "star": "*x", "dash": "- x", "tab": "a\tb"});
    let mut text = String::new();
    write(&value, &mut text);
    assert_eq!(parse(&text).map(|p| p.value), Ok(value), "{text}");
}

fn check_written(value: &Value, want: &str) {
    let mut out = String::new();
    write(value, &mut out);
    assert_eq!(out, want);
    assert_eq!(parse(&out).map(|parsed| parsed.value).as_ref(), Ok(value), "{out}");
}

#[test]
fn long_strings_continue_on_the_next_line() {
    let words = "word ".repeat(20);
    let line = "word ".repeat(16);
    check_written(
        &value!({"a": (format!("{words}x")), "b": (words.as_str()), "c": (format!("{words}\t"))}),
        &format!(
            "a: {0}\n  word word word word x\nb: '{0}\n  word word word word '\nc: \"{0}\n  word word word word \\t\"\n",
            line.trim_end()
        ),
    );
    // Keys and literal blocks do not.
    let key = "k ".repeat(60);
    let mut map = Map::new();
    map.insert(format!("{key}k"), format!("{words}x\n"));
    check_written(&Value::Object(map), &format!("{key}k: |\n  {words}x\n"));
}

#[test]
fn keys_are_sorted_by_the_numbers_in_them() {
    check_written(
        &value!({"a10": 1, "a9": 2, "b": 3, "a": 4, "a-b": 5, "a01": 6, "a1": 7, "a100": 8, "a011": 9,
                 "_": 0}),
        "_: 0\na: 4\na-b: 5\na1: 7\na01: 6\na9: 2\na10: 1\na011: 9\na100: 8\nb: 3\n",
    );
}

#[test]
fn styles_of_strings_are_those_of_upstream() {
    check_written(
        &value!([
            "=", "12:30:45", "\tv\nw", "a \nb", "\n", "x\n\n", "a#b", "a #b", "1e3", "<<",
            "a\u{a0}b"
        ]),
        "- =\n- \"12:30:45\"\n- \"\\tv\\nw\"\n- \"a \\nb\"\n- |2+\n\n- |+\n  x\n\n- a#b\n- 'a #b'\n\
         - \"1e3\"\n- '<<'\n- a\u{a0}b\n",
    );
    check_written(&value!([1.5, 1000000, 1e-7, 1e21]), "- 1.5\n- 1000000\n- 1e-07\n- 1e+21\n");
}

#[test]
fn lists_are_indented_like_their_key() {
    let mut text = String::new();
    write(&value!({"items": [{"b": 1, "a": "x"}, "y"], "on": "on"}), &mut text);
    assert_eq!(text, "items:\n- a: x\n  b: 1\n- \"y\"\n\"on\": \"on\"\n");
}
