//! Broken configurations get the messages of kube-apiserver 1.36.3, which wrote `configs.txt`:
//! `== NAME`, the file, `== error`, the message, in which FILE is the path.

use keelson_encryption::Config;
use keelson_meta::Features;

const CONFIGS: &str = include_str!("files/configs.txt");
/// kube-apiserver shows the secrets of an element with two providers.
const REDACTED: [(&str, &str); 1] = [(r#""Secret":"b""#, r#""Secret":"REDACTED""#)];
/// kube-apiserver takes an empty path, and waits for a plug-in that can never answer.
const REFUSED: [(&str, &str); 1] = [(
    "kms without a path",
    "error while building transformers: could not configure KMSv2-Plugin's probe \"a\", error: no \
     path of a socket",
)];

#[test]
fn broken_configurations_get_the_messages_of_kube_apiserver() {
    let mut count = 0;
    for case in CONFIGS.split("== ").skip(1).collect::<Vec<_>>().chunks(2) {
        let [file, expected] = case else { panic!("half a case: {case:?}") };
        let (name, text) = file.split_once('\n').expect("a name");
        let mut expected =
            expected.strip_prefix("error\n").expect("an error").trim_end_matches('\n').to_owned();
        for (secret, redacted) in REDACTED {
            expected = expected.replace(secret, redacted);
        }
        if let Some((_, message)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            expected = (*message).to_owned();
        }
        let error = Config::parse(text, "FILE", Features::default()).expect_err(name).to_string();
        assert_eq!(error.trim_end_matches('\n'), expected, "{name}");
        count += 1;
    }
    assert_eq!(count, 67);
}

#[test]
fn secrets_are_decoded_as_by_go() {
    // Bits behind the last byte, and line ends.
    let text = "apiVersion: v1\nkind: EncryptionConfig\nresources:\n- resources: [secrets]\n  providers:\n\
                - aesgcm: {keys: [{name: a, secret: \"MDEyMzQ1Njc4\\nOWFiY2RlZh==\"}]}\n".replace("- aesgcm", "  - aesgcm");
    let config = Config::parse(&text, "FILE", Features::default()).expect("a configuration");
    assert!(format!("{config:?}").contains("a (16 bytes)"), "{config:?}");
}
