//! KMS plug-ins, and their faults.

use crate::flips::flipped;
use bytes::Bytes;
use keelson_encryption::{Config, Encryption, Metrics, Opened, key_of};
use keelson_meta::{Feature, Features};
use keelson_metrics::Exposition;
use keelson_testkit::kms::{FakeKms, KmsBehaviour};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const SECRETS: (&str, &str) = ("", "secrets");
const PATH: &[u8] = b"/registry/secrets/default/a";

/// A plug-in, and a configuration of secrets that uses it.
struct Case {
    kms: FakeKms,
    config: Config,
    _dir: TempDir,
}

impl Case {
    fn new(behaviour: KmsBehaviour) -> Case {
        Case::of_version("v2", behaviour)
    }

    fn v1() -> Case {
        let version = "v1beta1".to_owned();
        Case::of_version("v1", KmsBehaviour { version, ..KmsBehaviour::default() })
    }

    fn of_version(version: &str, behaviour: KmsBehaviour) -> Case {
        let dir = TempDir::new().expect("a folder");
        let kms = FakeKms::start(&dir.path().join("kms.sock"), behaviour);
        let config = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
             - resources: [secrets]\n  providers:\n\
             \x20 - kms: {{apiVersion: {version}, name: p, endpoint: '{}', timeout: 500ms}}\n\
             \x20 - identity: {{}}\n",
            kms.endpoint()
        );
        let features = Features::default().with(Feature::KMSv1, true);
        let config = Config::parse(&config, "FILE", features).expect("a configuration");
        Case { kms, config, _dir: dir }
    }

    async fn start(&self) -> Arc<Encryption> {
        Encryption::start(&self.config, Arc::default()).await.expect("an encryption")
    }
}

fn seal(encryption: &Encryption, value: &str) -> Result<Bytes, String> {
    encryption.seal(SECRETS, PATH, &Bytes::copy_from_slice(value.as_bytes()))
}

fn is_stale(encryption: &Encryption, stored: &Bytes) -> bool {
    match encryption.open(SECRETS, PATH, stored.clone()).expect("a value") {
        Opened::Plain { is_stale, .. } | Opened::Waits { is_stale, .. } => is_stale,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_asks_once_for_the_key_of_many_values() {
    let case = Case::new(KmsBehaviour::default());
    let first = case.start().await;
    assert_eq!(first.health(), Ok(()));
    let stored = seal(&first, "v").expect("a value");
    assert!(stored.starts_with(b"k8s:enc:kms:v2:p:"));
    assert!(!stored.windows(4).any(|part| part == b"vvvv"));
    assert_eq!(
        (key_of(&stored), first.write_key("", "secrets")),
        ("kms:p:1".into(), "kms:p:1".into())
    );
    assert_eq!(seal(&first, "v").map(|again| again == stored), Ok(false), "each has its own key");
    let plain = Opened::Plain { value: "v".into(), is_stale: false };
    assert_eq!(first.open(SECRETS, PATH, stored.clone()), Ok(plain.clone()));
    let second = case.start().await;
    let waits = Opened::Waits { stored: stored.clone(), is_stale: false };
    assert_eq!(second.open(SECRETS, PATH, stored.clone()), Ok(waits));
    let reads = (0..20).map(|_| {
        let second = second.clone();
        let stored = stored.clone();
        tokio::spawn(async move { second.open_waiting(SECRETS, PATH, stored).await })
    });
    for read in reads.collect::<Vec<_>>() {
        assert_eq!(read.await.expect("no panic"), Ok("v".into()));
    }
    assert_eq!(case.kms.calls("Decrypt"), 1);
    assert_eq!(second.open(SECRETS, PATH, stored.clone()), Ok(plain));
    let moved = second.open(SECRETS, b"/registry/secrets/default/b", stored);
    assert_eq!(moved, Err("cipher: message authentication failed".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_of_the_plug_in_makes_values_stale() {
    let case = Case::new(KmsBehaviour::default());
    let old = case.start().await;
    let stored = seal(&old, "v").expect("a value");
    case.kms.behave(|kms| kms.key_id = "2".to_owned());
    let new = case.start().await;
    assert!(is_stale(&new, &stored) && !is_stale(&old, &stored));
    assert_eq!(new.open_waiting(SECRETS, PATH, stored.clone()).await, Ok("v".into()));
    assert_eq!(new.write_key("", "secrets"), "kms:p:2");
    // The same server notices it when it asks the plug-in.
    old.check_plugins().await;
    assert!(is_stale(&old, &stored));
    assert_eq!(key_of(&seal(&old, "v").expect("a value")), "kms:p:2");
    // A key that the service has lost is an error for its values alone.
    case.kms.behave(|kms| kms.lost_keys = vec!["1".to_owned()]);
    let later = case.start().await;
    let lost = later.open_waiting(SECRETS, PATH, stored.clone()).await;
    let why = "failed to decrypt DEK, error: rpc error: code = Unknown desc = no key 1";
    assert_eq!(lost, Err(why.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_plug_in_stops_neither_the_start_nor_known_values() {
    let case = Case::new(KmsBehaviour::default());
    let encryption = case.start().await;
    let stored = seal(&encryption, "v").expect("a value");
    case.kms.behave(|kms| kms.failing = vec!["Status", "Encrypt", "Decrypt"]);
    let plain = Opened::Plain { value: "v".into(), is_stale: false };
    assert_eq!(encryption.open(SECRETS, PATH, stored.clone()), Ok(plain));
    seal(&encryption, "w").expect("writes go on for three minutes");
    let dead = case.start().await;
    let status = "kms-provider-0: failed to perform status section of the healthz check for KMS \
                  Provider p, error: rpc error: code = Unknown desc = no Status today";
    assert_eq!(dead.health(), Err(status.to_owned()));
    let nil = "got unexpected nil transformer";
    assert_eq!(seal(&dead, "v"), Err(nil.to_owned()));
    assert_eq!(dead.open(SECRETS, PATH, stored.clone()), Err(nil.to_owned()));
    // Values that are not encrypted are still read.
    let old = Opened::Plain { value: "old".into(), is_stale: true };
    assert_eq!(dead.open(SECRETS, PATH, "old".into()), Ok(old));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_plug_in_has_a_time_limit() {
    let case = Case::new(KmsBehaviour::default());
    case.kms.behave(|kms| kms.delay = Duration::from_secs(2));
    let slow = case.start().await;
    let why = slow.health().expect_err("an error");
    assert!(why.ends_with("code = DeadlineExceeded desc = context deadline exceeded"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_answers_of_a_plug_in_are_refused() {
    let check = async |change: fn(&mut KmsBehaviour), expected: &str| {
        let mut behaviour = KmsBehaviour::default();
        change(&mut behaviour);
        let case = Case::new(behaviour);
        let why = case.start().await.health().expect_err(expected);
        assert!(why.contains(expected), "{why}");
    };
    let source = "failed to validate encrypted DEK source: encrypted DEK source is";
    check(|kms| kms.healthz = "ill".into(), "got unexpected healthz status: ill").await;
    check(|kms| kms.version = "v3".into(), "expected KMSv2 API version v2, got v3").await;
    check(|kms| kms.key_id = String::new(), "keyID is empty").await;
    check(|kms| kms.key_id = "k".repeat(1025), "exceeds the max size of 1024").await;
    check(|kms| kms.ciphertext_bytes = Some(0), &format!("{source} empty")).await;
    check(|kms| kms.ciphertext_bytes = Some(1025), &format!("{source} 1025 bytes")).await;
    check(
        |kms| kms.annotations = [("a".to_owned(), vec![])].into(),
        "failed to validate annotations",
    )
    .await;
    // The key of `Status` counts.
    check(|kms| kms.encrypts_with = Some("2".into()), "failed to rotate DEK").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_of_a_wrong_length_is_refused() {
    let case = Case::new(KmsBehaviour::default());
    let stored = seal(&*case.start().await, "v").expect("a value");
    case.kms.behave(|kms| kms.plaintext_bytes = Some(16));
    let got = case.start().await.open_waiting(SECRETS, PATH, stored.clone()).await;
    assert_eq!(got, Err("invalid seed length 16 used for key generation".to_owned()));
    case.kms.behave(|kms| kms.plaintext_bytes = None);
    assert_eq!(
        case.start().await.open_waiting(SECRETS, PATH, stored.clone()).await,
        Ok("v".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_changed_value_is_read() {
    let case = Case::new(KmsBehaviour::default());
    let encryption = case.start().await;
    let plain = "v".repeat(200);
    let stored = seal(&encryption, &plain).expect("a value");
    for (n, changed) in flipped(&stored).enumerate() {
        // Other keys of the plug-in are asked for, and refused.
        match encryption.open(SECRETS, PATH, changed.clone()) {
            // Protobuf has other texts for the same envelope.
            Ok(Opened::Plain { value, .. }) if value == plain.as_bytes() => {}
            Ok(Opened::Plain { value, .. }) => {
                let is_foreign = !changed.starts_with(b"k8s:enc:");
                assert!(is_foreign && value == changed, "change {n}");
            }
            Ok(Opened::Waits { .. }) | Err(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_is_replaced_once_its_plug_ins_are_well() {
    let case = Case::new(KmsBehaviour::default());
    let plain = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n\
                 resources:\n- {resources: [secrets], providers: [{identity: {}}]}\n";
    let plain = Config::parse(plain, "FILE", Features::default()).expect("a configuration");
    let encryption = Encryption::start(&plain, Arc::default()).await.expect("an encryption");
    assert_eq!((encryption.may_wait(), seal(&encryption, "v")), (false, Ok("v".into())));
    encryption.replace(&case.config).await.expect("a well plug-in");
    assert!(encryption.may_wait() && is_stale(&encryption, &"v".into()));
    let stored = seal(&encryption, "v").expect("a value");
    encryption.replace(&plain).await.expect("no plug-in");
    assert_eq!(
        encryption.open(SECRETS, PATH, stored.clone()),
        Err("no matching prefix found".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_keys_of_plug_ins_are_counted() {
    let case = Case::new(KmsBehaviour::default());
    let metrics = Arc::new(Metrics::new("apiserver-a"));
    let encryption = Encryption::start(&case.config, metrics.clone()).await.expect("an encryption");
    let stored = seal(&encryption, "v").expect("a value");
    encryption.open(SECRETS, PATH, stored.clone()).expect("a value");
    encryption.open(SECRETS, b"/other", stored.clone()).expect_err("the path is another");
    case.kms.behave(|kms| kms.failing = vec!["Status"]);
    encryption.check_plugins().await;
    case.kms.behave(|kms| {
        kms.failing.clear();
        kms.key_id = String::new();
    });
    encryption.check_plugins().await;
    metrics.count_reload(false);
    metrics.set_config("a file");
    let mut out = Exposition::default();
    metrics.write(&mut out);
    let text = out.finish();
    let service = "method_name=\"/v2.KeyManagementService";
    let calls = "apiserver_envelope_encryption_kms_operations_latency_seconds_count";
    for line in [
        format!("{calls}{{grpc_status_code=\"OK\",{service}/Encrypt\",provider_name=\"p\"}} 1"),
        format!("{calls}{{grpc_status_code=\"OK\",{service}/Status\",provider_name=\"p\"}} 2"),
        format!("{calls}{{grpc_status_code=\"Unknown\",{service}/Status\",provider_name=\"p\"}} 1"),
        "apiserver_envelope_encryption_dek_source_cache_size{provider_name=\"p\"} 1".to_owned(),
        "apiserver_envelope_encryption_invalid_key_id_from_status_total{error=\"keyID is empty\",\
         provider_name=\"p\"} 1"
            .to_owned(),
        "apiserver_storage_data_key_generation_duration_seconds_count 1".to_owned(),
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
    }
    // The hashes of `apiserver-a` and of the key `1`.
    let server = "sha256:b5b662adf0e40b9253722f985e321a40f8f9592881365a3ffc91fb56c54da2dc";
    let key = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
    for direction in ["from_storage", "to_storage"] {
        let line = format!(
            "apiserver_envelope_encryption_key_id_hash_total{{apiserver_id_hash=\"{server}\",\
             key_id_hash=\"{key}\",provider_name=\"p\",transformation_type=\"{direction}\"}} 1"
        );
        assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
    }
    let line = format!(
        "apiserver_encryption_config_controller_automatic_reloads_total{{apiserver_id_hash=\"\
         {server}\",status=\"failure\"}} 1"
    );
    assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
    let file = "sha256:7365d029861e32c521f8089b00a6fb32daf0615025b69b599d1ce53501b845c2";
    let line = format!(
        "apiserver_encryption_config_controller_last_config_info{{apiserver_id_hash=\"{server}\",\
         hash=\"{file}\"}} 1"
    );
    assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plug_in_of_version_1_encrypts_the_key_of_each_value() {
    let case = Case::v1();
    let first = case.start().await;
    assert_eq!(first.health(), Ok(()));
    let stored = seal(&first, "v").expect("a value");
    let sealed = stored.strip_prefix(b"k8s:enc:kms:v1:p:").expect("the prefix");
    // The encrypted key: 32 bytes, the fake's `1` and its length; then nonce, text and tag.
    assert_eq!((&sealed[..2], &sealed[34..36]), (&[0, 34][..], &[b'1', 1][..]));
    assert_eq!(sealed.len(), 2 + 34 + 12 + 1 + 16);
    assert_eq!(key_of(&stored), "kms:p");
    assert_eq!(first.write_key("", "secrets"), "kms:p");
    let plain = Opened::Plain { value: "v".into(), is_stale: false };
    assert_eq!(first.open(SECRETS, PATH, stored.clone()), Ok(plain.clone()));
    let second = case.start().await;
    let waits = Opened::Waits { stored: stored.clone(), is_stale: false };
    assert_eq!(second.open(SECRETS, PATH, stored.clone()), Ok(waits));
    assert_eq!(second.open_waiting(SECRETS, PATH, stored.clone()).await, Ok("v".into()));
    assert_eq!(second.open(SECRETS, PATH, stored.clone()), Ok(plain));
    // Two checks and one value; the version is asked once by each server.
    assert_eq!((case.kms.calls("Decrypt"), case.kms.calls("Version")), (3, 2));
    let moved = second.open(SECRETS, b"/registry/secrets/default/b", stored);
    let why = "[cipher: message authentication failed, the stored data is not a multiple of the \
               block size]";
    assert_eq!(moved, Err(why.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_check_makes_another_key_of_a_plug_in_of_version_1() {
    let case = Case::v1();
    let encryption = case.start().await;
    let key_of_next = || seal(&encryption, "v").expect("a value")[17..][..36].to_vec();
    let first = key_of_next();
    assert_eq!(key_of_next(), first, "one key until the next check");
    case.kms.behave(|kms| kms.key_id = "2".to_owned());
    encryption.check_plugins().await;
    let second = key_of_next();
    assert_eq!((first[34], second[34]), (b'1', b'2'));
    // What the plug-in cannot read again is not used.
    case.kms.behave(|kms| kms.plaintext_bytes = Some(31));
    encryption.check_plugins().await;
    let why = "kms-provider-0: failed to perform decrypt section of the healthz check for KMS \
               Provider p, error: the plug-in returns another text than it was given";
    assert_eq!(encryption.health(), Err(why.to_owned()));
    assert_eq!(key_of_next(), second, "writes go on for three minutes");
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_plug_ins_of_version_1_have_the_messages_of_kube_apiserver() {
    let case = Case::v1();
    let stored = seal(&*case.start().await, "v").expect("a value");
    let section =
        "failed to perform encrypt section of the healthz check for KMS Provider p, error: ";
    case.kms.behave(|kms| kms.failing = vec!["Encrypt", "Decrypt"]);
    let dead = case.start().await;
    let why = format!("{section}rpc error: code = Unknown desc = no Encrypt today");
    assert_eq!(dead.health(), Err(format!("kms-provider-0: {why}")));
    assert_eq!(seal(&dead, "v"), Err(why));
    let why = "rpc error: code = Unknown desc = no Decrypt today";
    assert_eq!(dead.open_waiting(SECRETS, PATH, stored.clone()).await, Err(why.to_owned()));
    case.kms.behave(|kms| kms.failing = vec!["Version"]);
    let why = "failed get version from remote KMS provider: rpc error: code = Unknown desc = no \
               Version today";
    assert_eq!(case.start().await.health(), Err(format!("kms-provider-0: {section}{why}")));
    let cut = Bytes::copy_from_slice(&stored[..30]);
    let why = "invalid data encountered by envelope transformer: failed to read uint16 length \
               prefixed data";
    assert_eq!(dead.open(SECRETS, PATH, cut), Err(why.to_owned()));
}
