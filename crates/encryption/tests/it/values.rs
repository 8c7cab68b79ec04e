//! Values that kube-apiserver 1.36.3 has stored in etcd (`values.txt`: path, a part of the plain
//! value, the stored value in base64), and values that were changed.

use crate::flips::flipped;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use keelson_encryption::{Config, Encryption, Opened, key_of};
use keelson_meta::Features;
use keelson_metrics::Exposition;
use std::sync::Arc;

const VALUES: &str = include_str!("files/values.txt");
const PATH: &[u8] = b"/registry/secrets/default/a";
const SECRETS: (&str, &str) = ("", "secrets");

/// Returns a configuration of secrets, with these providers in YAML. `K16`, `K24` and `K32` are
/// keys.
fn config(providers: &[&str]) -> Config {
    let secret = |bytes: usize| STANDARD.encode(&b"0123456789abcdef0123456789abcdef"[..bytes]);
    let mut text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n\
                    resources:\n- resources: [secrets]\n  providers:\n"
        .to_owned();
    for provider in providers {
        text.push_str(&format!("  - {provider}\n"));
    }
    for bytes in [16, 24, 32] {
        text = text.replace(&format!("K{bytes}"), &secret(bytes));
    }
    Config::parse(&text, "FILE", Features::default()).expect("a configuration")
}

async fn encryption(providers: &[&str]) -> Arc<Encryption> {
    Encryption::start(&config(providers), Arc::default()).await.expect("an encryption")
}

const GCM: &str =
    "aesgcm: {keys: [{name: g1, secret: K32}, {name: g24, secret: K24}, {name: g16, secret: K16}]}";
const CBC: &str =
    "aescbc: {keys: [{name: c1, secret: K32}, {name: c24, secret: K24}, {name: c16, secret: K16}]}";
const BOX: &str = "secretbox: {keys: [{name: s1, secret: K32}]}";

/// Returns the value and whether it is stale.
fn open(encryption: &Encryption, stored: &Bytes, path: &[u8]) -> Result<(Bytes, bool), String> {
    match encryption.open(SECRETS, path, stored.clone())? {
        Opened::Plain { value, is_stale } => Ok((value, is_stale)),
        Opened::Waits { .. } => panic!("no plug-in is configured"),
    }
}

#[tokio::test]
async fn values_of_kube_apiserver_are_read() {
    let encryption = encryption(&[GCM, CBC, BOX, "identity: {}"]).await;
    let mut keys = vec![];
    for line in VALUES.lines() {
        let [path, uid, stored] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let stored: Bytes = STANDARD.decode(stored).expect("base64").into();
        let (value, _) = open(&encryption, &stored, path.as_bytes()).expect(path);
        assert!(value.starts_with(b"k8s\0"), "{path}");
        assert!(value.windows(uid.len()).any(|part| part == uid.as_bytes()), "{path}");
        keys.push(key_of(&stored));
    }
    keys.sort();
    let expected = [
        "aescbc:c1",
        "aescbc:c16",
        "aescbc:c24",
        "aesgcm:g1",
        "aesgcm:g16",
        "aesgcm:g24",
        "secretbox:s1",
    ];
    assert_eq!(keys, expected);
}

/// A copy of each value cost a start more than its decryption.
#[tokio::test]
async fn a_value_that_nobody_else_holds_is_decrypted_where_it_is() {
    for provider in [GCM, CBC, BOX] {
        let encryption = encryption(&[provider, "identity: {}"]).await;
        let plain = Bytes::from(vec![b'p'; 300]);
        let stored = encryption.seal(SECRETS, PATH, &plain).expect("an encrypted value");
        let held = stored.to_vec();
        let places = stored.as_ptr_range();
        let Ok(Opened::Plain { value, .. }) = encryption.open(SECRETS, PATH, stored) else {
            panic!("{provider}");
        };
        assert_eq!(value, plain, "{provider}");
        assert!(places.contains(&value.as_ptr()), "{provider}");
        // One that is held stays as it is.
        let held = Bytes::from(held);
        let (value, _) = open(&encryption, &held, PATH).expect(provider);
        assert_eq!(value, plain, "{provider}");
        assert!(key_of(&held) != "identity" && !held.as_ptr_range().contains(&value.as_ptr()));
    }
}

/// An attempt in place must not spoil the value for the next key.
#[tokio::test]
async fn keys_and_providers_of_one_name_are_tried_in_turn() {
    let other = STANDARD.encode([7; 32]);
    let old = encryption(&["aesgcm: {keys: [{name: k, secret: K32}]}"]).await;
    let keys =
        format!("aesgcm: {{keys: [{{name: k, secret: {other}}}, {{name: k, secret: K32}}]}}");
    let one = format!("aesgcm: {{keys: [{{name: k, secret: {other}}}]}}");
    let in_one = encryption(&[&keys]).await;
    let in_two = encryption(&[&one, "aesgcm: {keys: [{name: k, secret: K32}]}"]).await;
    let none = encryption(&[&one, &one]).await;
    let seal = || old.seal(SECRETS, PATH, &"value".into()).expect("an encrypted value");
    for encryption in [in_one, in_two] {
        let opened = encryption.open(SECRETS, PATH, seal());
        assert_eq!(opened, Ok(Opened::Plain { value: "value".into(), is_stale: true }));
    }
    let why = "cipher: message authentication failed";
    assert_eq!(none.open(SECRETS, PATH, seal()), Err(why.to_owned()));
}

#[tokio::test]
async fn no_changed_value_of_an_authenticated_cipher_is_read() {
    let plain = Bytes::from(vec![b'p'; 300]);
    for provider in [
        GCM,
        "aesgcm: {keys: [{name: g24, secret: K24}]}",
        "aesgcm: {keys: [{name: g16, secret: K16}]}",
        BOX,
    ] {
        let encryption = encryption(&[provider, "identity: {}"]).await;
        let stored = encryption.seal(SECRETS, PATH, &plain).expect("an encrypted value");
        for (n, changed) in flipped(&stored).enumerate() {
            let opened = open(&encryption, &changed, PATH);
            // Without its prefix it is no encrypted value: the reader of objects refuses it.
            let is_foreign = !changed.starts_with(b"k8s:enc:");
            match opened {
                Err(why) => assert!(!why.is_empty()),
                Ok((value, _)) => assert!(is_foreign && value == changed, "{n} of {provider}"),
            }
        }
    }
}

#[tokio::test]
async fn aescbc_alone_serves_changed_values() {
    let encryption = encryption(&[CBC]).await;
    let stored = encryption.seal(SECRETS, PATH, &vec![b'p'; 300].into()).expect("a value");
    let header = b"k8s:enc:aescbc:v1:c1:".len();
    let mut changed = stored.to_vec();
    changed[header] ^= 1;
    let (value, _) = open(&encryption, &changed.into(), PATH).expect("a changed value");
    assert_eq!((value[0], value[1], value.len()), (b'p' ^ 1, b'p', 300));
    let check = |stored: &[u8], expected: &str| {
        let got = open(&encryption, &Bytes::copy_from_slice(stored), PATH);
        assert_eq!(got.expect_err("an error"), expected);
    };
    check(&stored[..header + 15], "the stored data was shorter than the required size");
    check(&stored[..header + 33], "the stored data is not a multiple of the block size");
    check(&stored[..header + 16], "invalid PKCS7 data (empty or not padded)");
}

#[tokio::test]
async fn a_value_of_another_path_is_read_only_where_upstream_reads_it() {
    for (provider, is_read) in [(GCM, false), (CBC, true), (BOX, true)] {
        let encryption = encryption(&[provider]).await;
        let stored = encryption.seal(SECRETS, PATH, &"v".into()).expect("a value");
        let moved = open(&encryption, &stored, b"/registry/secrets/default/b");
        assert_eq!(moved.is_ok(), is_read, "{provider}: {moved:?}");
    }
}

#[tokio::test]
async fn the_first_key_writes_and_others_are_stale() {
    let old = encryption(&["aesgcm: {keys: [{name: a, secret: K16}]}"]).await;
    let plain = Bytes::from_static(b"v");
    let stored = old.seal(SECRETS, PATH, &plain).expect("a value");
    assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:a:"));
    let failed = "cipher: message authentication failed";
    let check = async |providers: &[&str], stored: &Bytes, expected: Result<bool, &str>| {
        let encryption = encryption(providers).await;
        let got = open(&encryption, stored, PATH).map(|(value, is_stale)| {
            assert_eq!(value, "v");
            is_stale
        });
        assert_eq!(got.as_ref().map_err(String::as_str), expected.as_ref().map_err(|why| *why));
    };
    let second_key = "aesgcm: {keys: [{name: b, secret: K32}, {name: a, secret: K16}]}";
    check(&[second_key], &stored, Ok(true)).await;
    check(&["identity: {}", second_key], &stored, Ok(true)).await;
    check(&[BOX, "aesgcm: {keys: [{name: a, secret: K16}]}"], &stored, Ok(true)).await;
    // The same name with another key does not hide the right one.
    let same_name = "aesgcm: {keys: [{name: a, secret: K32}, {name: a, secret: K16}]}";
    check(&[same_name], &stored, Ok(true)).await;
    check(&["aesgcm: {keys: [{name: a, secret: K32}]}"], &stored, Err(failed)).await;
    check(
        &["aesgcm: {keys: [{name: b, secret: K16}]}"],
        &stored,
        Err("no matching key was found for the provided AES transformer"),
    )
    .await;
    check(&[BOX], &stored, Err("no matching prefix found")).await;
    check(&["identity: {}"], &stored, Err("no matching prefix found")).await;
    check(&["identity: {}", GCM], &plain, Ok(false)).await;
    check(&[GCM, "identity: {}"], &plain, Ok(true)).await;
    let others = encryption(&[GCM]).await.open(("", "configmaps"), PATH, stored);
    assert_eq!(others, Err("identity transformer tried to read encrypted data".to_owned()));
}

#[tokio::test]
async fn wildcards_stand_behind_names() {
    let text = "apiVersion: v1\nkind: EncryptionConfig\nresources:\n\
        - resources: [secrets, widgets.example.com]\n  providers: [{aesgcm: {keys: [{name: name, secret: K}]}}]\n\
        - resources: [configmaps]\n  providers: [{identity: {}}]\n\
        - resources: ['*.apps']\n  providers: [{aesgcm: {keys: [{name: group, secret: K}]}}]\n\
        - resources: ['*.']\n  providers: [{aesgcm: {keys: [{name: core, secret: K}]}}]\n\
        - resources: ['*.*']\n  providers: [{aesgcm: {keys: [{name: all, secret: K}]}}]\n".replace("secret: K", "secret: MDEyMzQ1Njc4OWFiY2RlZg==");
    let config = Config::parse(&text, "FILE", Features::default()).expect("a configuration");
    let encryption = Encryption::start(&config, Arc::default()).await.expect("an encryption");
    let check = |group: &str, resource: &str, expected: &str| {
        assert_eq!(encryption.write_key(group, resource), expected);
        let stored = encryption.seal((group, resource), PATH, &"v".into()).expect("a value");
        assert_eq!(key_of(&stored), expected, "{resource}.{group}");
    };
    check("", "secrets", "aesgcm:name");
    check("example.com", "widgets", "aesgcm:name");
    check("", "configmaps", "identity");
    check("", "pods", "aesgcm:core");
    check("apps", "deployments", "aesgcm:group");
    check("batch", "jobs", "aesgcm:all");
}

/// The series are those of a kube-apiserver 1.36.3 after the same: a name of a provider and one of
/// its key, `identity` for reads and nothing for writes of values in clear, `unknown` for values
/// that no provider knows.
#[tokio::test]
async fn transformations_are_counted_by_provider_and_key() {
    let encryption = encryption(&[GCM, "identity: {}"]).await;
    let value = Bytes::from_static(b"v");
    let stored = encryption.seal(SECRETS, b"/a", &value).expect("a value");
    assert_eq!(open(&encryption, &stored, b"/a").map(|(value, _)| value), Ok(value.clone()));
    open(&encryption, &stored, b"/b").expect_err("the path is another");
    open(&encryption, &value, b"/a").expect("a value in clear");
    let unknown = Bytes::from_static(b"k8s:enc:aescbc:v1:c1:x");
    open(&encryption, &unknown, b"/a").expect_err("no provider");
    let plain = self::encryption(&["identity: {}"]).await;
    plain.seal(("apps", "deployments"), b"/a", &value).expect("not encrypted");
    plain.seal(SECRETS, b"/a", &value).expect("in clear");
    let lines = |encryption: &Encryption| {
        let mut out = Exposition::default();
        encryption.metrics().write(&mut out);
        let text = out.finish();
        let operations = "apiserver_storage_transformation_operations_total{resource=\"secrets\",";
        let lines = text.lines().filter_map(|line| line.strip_prefix(operations));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let gcm = "transformer_prefix=\"k8s:enc:aesgcm:v1:\"}";
    let key = "transformer_prefix=\"g1:\"}";
    let read = "transformation_type=\"from_storage\"";
    let failed = "status=\"unknown-non-grpc\"";
    let expected = [
        format!("status=\"OK\",{read},{key} 1"),
        format!("status=\"OK\",{read},transformer_prefix=\"identity\"}} 1"),
        format!("status=\"OK\",{read},{gcm} 1"),
        format!("status=\"OK\",transformation_type=\"to_storage\",{key} 1"),
        format!("status=\"OK\",transformation_type=\"to_storage\",{gcm} 1"),
        format!("{failed},{read},{key} 1"),
        format!("{failed},{read},{gcm} 1"),
        format!("{failed},{read},transformer_prefix=\"unknown\"}} 1"),
    ];
    assert_eq!(lines(&encryption), expected);
    let written = "status=\"OK\",transformation_type=\"to_storage\",transformer_prefix=\"\"} 1";
    assert_eq!(lines(&plain), [written]);
}
