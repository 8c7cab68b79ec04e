//! Validates volumes of pods and their mounts. PersistentVolumes share most sources.

use super::context::{Context, Volumes};
use super::env;
use super::paths::{descending, has_backsteps, no_backsteps};
use crate::check::Field;
use keelson_meta::names;
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, FieldError, Path, SmallSet, Value};

/// Validates one volume source.
type Check = fn(&Field<'_, '_>, errors: &mut ErrorList);

/// The volume sources in the order of errors.
const SOURCES: &[(&str, Check)] = &[
    ("emptyDir", empty_dir),
    ("hostPath", host_path),
    ("gitRepo", git_repo),
    ("gcePersistentDisk", gce_disk),
    ("awsElasticBlockStore", aws_disk),
    ("secret", secret),
    ("nfs", nfs),
    ("iscsi", iscsi),
    ("glusterfs", glusterfs),
    ("flocker", flocker),
    ("persistentVolumeClaim", claim),
    ("rbd", rbd),
    ("cinder", cinder),
    ("cephfs", cephfs),
    ("quobyte", quobyte),
    ("downwardAPI", downward),
    ("fc", fibre_channel),
    ("flexVolume", flex),
    ("configMap", config_map),
    ("azureFile", azure_file),
    ("vsphereVolume", vsphere),
    ("photonPersistentDisk", photon),
    ("portworxVolume", portworx),
    ("azureDisk", azure_disk),
    ("storageos", storage_os),
    ("projected", projected),
    ("scaleIO", scale_io),
    ("csi", csi),
    ("ephemeral", ephemeral),
    ("image", image),
];

/// Validates the volumes of a pod with this name, or of a template. Returns the valid ones.
pub(super) fn list<'a>(
    at: &Field<'a, '_>,
    pod: Option<&str>,
    errors: &mut ErrorList,
) -> Volumes<'a> {
    let mut fine = Volumes::new();
    for volume in at.items() {
        let before = errors.len();
        // The reference of an image volume may be empty in a template.
        let image = volume.field("image");
        if pod.is_some() && image.is_set() {
            image.field("reference").not_empty(errors, "");
        }
        source(&volume, errors);
        let name = volume.field("name");
        if let Some(pod) = pod.filter(|_| volume.has("ephemeral")) {
            claim_name(&name, pod, errors);
        }
        name.required_rule(errors, names::is_dns1123_label);
        if fine.contains_key(name.text()) {
            name.duplicate(errors);
        }
        if errors.len() == before {
            fine.insert(volume.str("name"), volume.value);
        }
    }
    fine
}

/// Validates the name of the claim of an ephemeral volume, made of those of the pod and the volume.
fn claim_name(volume: &Field<'_, '_>, pod: &str, errors: &mut ErrorList) {
    if pod.is_empty() || volume.text().is_empty() {
        return;
    }
    let claim = format!("{pod}-{}", volume.text());
    for why in names::is_dns1123_subdomain(&claim) {
        volume.invalid(errors, &format!("PVC name {}: {why}", quote(&claim)));
    }
}

fn source(volume: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut count = 0;
    for (name, check) in SOURCES {
        let at = volume.field(name);
        if !at.is_set() {
            continue;
        }
        count += 1;
        if count > 1 {
            let place = volume.field(source_name_in_errors(name));
            place.forbidden(errors, "may not specify more than 1 volume type");
        } else {
            check(&Field { path: volume.path.field(path_name_in_errors(name)), ..at }, errors);
        }
    }
    if count == 0 {
        volume.required(errors, "must specify a volume type");
    }
}

/// Returns the name of a source in upstream's error for more than one source.
fn source_name_in_errors(name: &'static str) -> &'static str {
    match name {
        "cephfs" => "cephFS",
        "downwardAPI" => "downwarAPI",
        name => name,
    }
}

/// Returns the name of a source in the paths of upstream's errors.
pub(crate) fn path_name_in_errors(name: &str) -> &str {
    match name {
        "gcePersistentDisk" => "persistentDisk",
        name => name,
    }
}

fn empty_dir(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let limit = at.field("sizeLimit");
    if limit.quantity().is_some_and(|limit| limit.sign() < 0) {
        limit.forbidden(errors, "SizeLimit field must be a valid resource quantity");
    }
}

/// Validates `hostPath`.
pub(crate) fn host_path(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const TYPES: &[&str] = &[
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    let path = at.field("path");
    if !path.not_empty(errors, "") {
        return;
    }
    no_backsteps(&path, errors);
    at.field("type").one_of_if_set(errors, TYPES);
}

fn git_repo(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("repository").not_empty(errors, "");
    descending(&at.field("directory"), errors);
}

/// Validates `gcePersistentDisk`.
pub(crate) fn gce_disk(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("pdName").not_empty(errors, "");
    partition(&at.field("partition"), errors);
}

/// Validates a partition. Upstream accepts 0, although its message excludes it.
fn partition(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if at.number() != 0 {
        at.in_range(errors, 1, 255);
    }
}

/// Validates `awsElasticBlockStore`.
pub(crate) fn aws_disk(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("volumeID").not_empty(errors, "");
    partition(&at.field("partition"), errors);
}

/// Validates `portworxVolume`.
pub(crate) fn portworx(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("volumeID").not_empty(errors, "");
}

/// Validates `storageos` of a pod.
fn storage_os(at: &Field<'_, '_>, errors: &mut ErrorList) {
    storage_os_names(at, errors);
    let secret = at.field("secretRef");
    if secret.is_set() {
        secret.field("name").not_empty(errors, "");
    }
}

/// Validates the names in `storageos`.
pub(crate) fn storage_os_names(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("volumeName").required_rule(errors, names::is_dns1123_label);
    at.field("volumeNamespace").rule_if_set(errors, names::is_dns1123_label);
}

fn secret(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("secretName").not_empty(errors, "");
    mode(&at.field("defaultMode"), errors);
    at.field("items").items().for_each(|item| key_to_path(&item, errors));
}

fn config_map(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("name").not_empty(errors, "");
    mode(&at.field("defaultMode"), errors);
    at.field("items").items().for_each(|item| key_to_path(&item, errors));
}

fn key_to_path(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("key").not_empty(errors, "");
    let path = at.field("path");
    path.not_empty(errors, "");
    not_reserved(&path, errors);
    mode_of(&at.field("mode"), errors);
}

fn mode_of(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if at.is_set() {
        mode(at, errors);
    }
}

fn mode(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if !(0..=0o777).contains(&at.number()) {
        at.invalid(errors, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

fn downward(at: &Field<'_, '_>, errors: &mut ErrorList) {
    mode(&at.field("defaultMode"), errors);
    downward_files(at, errors);
}

/// Validates the files of a downwardAPI volume. Errors have the path of the volume.
fn downward_files(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let items = at.field("items");
    items.items().for_each(|item| downward_file(&Field { path: at.path, ..item }, errors));
}

fn downward_file(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let path = at.field("path");
    path.not_empty(errors, "");
    not_reserved(&path, errors);
    let field = at.field("fieldRef");
    let resource = at.field("resourceFieldRef");
    if field.is_set() {
        env::volume_field_ref(&field, errors);
        if resource.is_set() {
            let words = "fieldRef and resourceFieldRef can not be specified simultaneously";
            at.invalid_as(errors, "resource", words);
        }
    } else if resource.is_set() {
        env::resource_ref(&resource, true, errors);
    } else {
        at.required(errors, "one of fieldRef and resourceFieldRef is required");
    }
    mode_of(&at.field("mode"), errors);
}

/// Validates `projected`.
fn projected(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const KINDS: &[(&str, Check)] = &[
        ("secret", projected_object),
        ("configMap", projected_object),
        ("downwardAPI", downward_files),
    ];
    mode(&at.field("defaultMode"), errors);
    let mut paths: SmallSet<&str> = SmallSet::new();
    for source in at.field("sources").items() {
        let mut count = 0;
        for (name, check) in KINDS {
            let found = source.field(name);
            if found.is_set() {
                count += 1;
                check(&found, errors);
                unique_paths(&found, &at.path, &mut paths, errors);
            }
        }
        let token = source.field("serviceAccountToken");
        if token.is_set() {
            count += 1;
            projected_token(&token, &at.path, errors);
        }
        if count > 1 {
            source.forbidden(errors, "may not specify more than 1 volume type per source");
        }
    }
}

/// Checks that no two sources of a volume create the same file. Like upstream, ignores tokens, and
/// shows the name of a source that has one.
fn unique_paths<'a>(
    at: &Field<'a, '_>,
    volume: &Path<'_>,
    paths: &mut SmallSet<&'a str>,
    errors: &mut ErrorList,
) {
    for item in at.get("items").as_array().unwrap_or_default() {
        let path = item.str_at(&["path"]).unwrap_or_default();
        if !path.is_empty() && !paths.insert(path) {
            let shown = at.get("name").as_str().unwrap_or(path);
            errors.push(FieldError::invalid(volume, shown, "conflicting duplicate paths"));
        }
    }
}

fn projected_object(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("name").not_empty(errors, "");
    at.field("items").items().for_each(|item| key_to_path(&item, errors));
}

/// Validates a service account token. Upstream reports a missing path at the volume.
fn projected_token(at: &Field<'_, '_>, volume: &Path<'_>, errors: &mut ErrorList) {
    let seconds = at.field("expirationSeconds");
    if seconds.number() < 10 * 60 {
        seconds.invalid(errors, "may not specify a duration less than 10 minutes");
    }
    if seconds.number() > 1 << 32 {
        seconds.invalid(errors, "may not specify a duration larger than 2^32 seconds");
    }
    // Upstream's paths of these errors lack the source.
    let path = Field { value: at.get("path"), path: volume.field("path") };
    if path.not_empty(errors, "") {
        not_reserved(&path, errors);
    }
}

/// Validates `nfs`.
pub(crate) fn nfs(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("server").not_empty(errors, "");
    let path = at.field("path");
    path.not_empty(errors, "");
    if !path.text().starts_with('/') {
        path.invalid_as(errors, path.text(), "must be an absolute path");
    }
}

/// Validates `iscsi` of a PersistentVolume, where names are validated in full.
pub(crate) fn persistent_iscsi(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const FORM: &str = "must be valid format";
    at.field("targetPortal").not_empty(errors, "");
    let name = at.field("iqn");
    if name.not_empty(errors, "") && !is_iscsi_name(name.text()) {
        name.invalid(errors, FORM);
    }
    iscsi_rest(at, errors);
    let secret = at.field("secretRef");
    if secret.is_set() {
        secret.field("name").not_empty(errors, "");
    }
    let initiator = at.field("initiatorName");
    if initiator.is_set() && !is_iscsi_name(initiator.text()) {
        let place = Field { value: initiator.value, path: at.path.field("initiatorname") };
        place.invalid(errors, FORM);
    }
}

/// Returns whether a text is an iSCSI name: `iqn.2001-04.com.example:storage`, `eui.` with 16
/// hexadecimal digits, or `naa.` with 32.
fn is_iscsi_name(text: &str) -> bool {
    let is_hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if let Some(rest) = text.strip_prefix("eui.") {
        return is_hex(rest, 16);
    }
    if let Some(rest) = text.strip_prefix("naa.") {
        return is_hex(rest, 32);
    }
    let Some(rest) = text.strip_prefix("iqn.") else { return false };
    let date = rest.as_bytes();
    let has_date = date.len() > 8
        && date[..7].iter().enumerate().all(|(place, byte)| match place {
            4 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
        && date[7] == b'.';
    has_date && rest.chars().skip(8).all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
}

/// Validates `iscsi` of a pod.
pub(crate) fn iscsi(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("targetPortal").not_empty(errors, "");
    let name = at.field("iqn");
    if name.not_empty(errors, "") {
        let known = ["iqn", "eui", "naa"].iter().any(|start| name.text().starts_with(start));
        if !known {
            name.invalid(errors, "must be valid format starting with iqn, eui, or naa");
        }
    }
    iscsi_rest(at, errors);
}

fn iscsi_rest(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("lun").in_range_if_set(errors, 0, 255);
    let authenticates = at.flag("chapAuthDiscovery") || at.flag("chapAuthSession");
    if authenticates && !at.has("secretRef") {
        at.field("secretRef").required(errors, "");
    }
}

/// Validates `glusterfs`.
pub(crate) fn glusterfs(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("endpoints").not_empty(errors, "");
    at.field("path").not_empty(errors, "");
}

/// Validates `flocker`.
pub(crate) fn flocker(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let name = at.field("datasetName");
    let id = at.field("datasetUUID");
    if name.text().is_empty() && id.text().is_empty() {
        at.required(errors, "one of datasetName and datasetUUID is required");
    }
    if !name.text().is_empty() && !id.text().is_empty() {
        at.invalid_as(
            errors,
            "resource",
            "datasetName and datasetUUID can not be specified simultaneously",
        );
    }
    if name.text().contains('/') {
        name.invalid(errors, "must not contain '/'");
    }
}

fn claim(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("claimName").not_empty(errors, "");
}

/// Validates `rbd`.
pub(crate) fn rbd(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("monitors").not_empty(errors, "");
    at.field("image").not_empty(errors, "");
}

/// Validates `cephfs`.
pub(crate) fn cephfs(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("monitors").not_empty(errors, "");
}

/// Validates `cinder`.
pub(crate) fn cinder(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("volumeID").not_empty(errors, "");
    let secret = at.field("secretRef");
    if secret.is_set() {
        secret.field("name").not_empty(errors, "");
    }
}

/// Validates `fc`.
pub(crate) fn fibre_channel(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let names = at.field("targetWWNs");
    let ids = at.field("wwids");
    let has_names = !names.array().is_empty();
    let has_ids = !ids.array().is_empty();
    if !has_names && !has_ids {
        names.required(errors, "must specify either targetWWNs or wwids, but not both");
    }
    if has_names && has_ids {
        names.invalid(errors, "targetWWNs and wwids can not be specified simultaneously");
    }
    if has_names {
        let number = at.field("lun");
        if number.is_set() {
            number.in_range(errors, 0, 255);
        } else {
            number.required(errors, "lun is required if targetWWNs is specified");
        }
    }
}

/// Validates `azureFile`.
pub(crate) fn azure_file(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("secretName").not_empty(errors, "");
    at.field("shareName").not_empty(errors, "");
    let namespace = at.field("secretNamespace");
    if namespace.is_set() && namespace.text().is_empty() {
        namespace.required(errors, "");
    }
}

/// Validates `flexVolume`.
pub(crate) fn flex(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("driver").not_empty(errors, "");
    let options = at.field("options");
    for (key, _) in options.entries() {
        let start = key.split('/').next().unwrap_or_default().to_lowercase();
        let reserved = ["kubernetes.io", "k8s.io"];
        if reserved.iter().any(|domain| start == *domain || start.ends_with(&format!(".{domain}")))
        {
            let place = options.path.key(key);
            let words = "flexVolume option keys must not use kubernetes.io or k8s.io namespace";
            errors.push(FieldError::invalid(&place, key, words));
        }
    }
}

/// Validates `vsphereVolume`.
pub(crate) fn vsphere(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("volumePath").not_empty(errors, "");
}

/// Validates `quobyte`.
pub(crate) fn quobyte(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const TENANT_BYTES_MAX: usize = 64;
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = at.field("registry");
    let tenant = at.field("tenant");
    if !registry.not_empty(errors, PAIRS) {
    } else if tenant.text().len() > TENANT_BYTES_MAX {
        tenant.required(errors, "must be a UUID and may not exceed a length of 64 characters");
    } else if !registry.text().split(',').all(is_host_and_port) {
        registry.invalid(errors, PAIRS);
    }
    at.field("volume").not_empty(errors, "");
}

/// Returns whether Go's `net.SplitHostPort` accepts a text: only a host with colons is in brackets.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let inner = host.strip_prefix('[').map(|rest| rest.strip_suffix(']'));
    let (host, has_colon) = match inner {
        Some(None) => return false,
        Some(Some(inner)) => (inner, false),
        None => (host, host.contains(':')),
    };
    !has_colon && !host.contains(['[', ']']) && !port.contains(['[', ']'])
}

/// Validates `azureDisk`.
pub(crate) fn azure_disk(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("diskName").not_empty(errors, "");
    let place = at.field("diskURI");
    place.not_empty(errors, "");
    at.field("cachingMode").one_of_if_set(errors, &["None", "ReadOnly", "ReadWrite"]);
    at.field("kind").one_of_if_set(errors, &["Dedicated", "Managed", "Shared"]);
    let managed = at.str("kind") == "Managed";
    if managed && !place.text().starts_with("/subscriptions/") {
        place.not_supported(
            errors,
            &["/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/\
               microsoft.compute/disks/{disk-id}"],
        );
    }
    if !managed && !place.text().starts_with("https://") {
        place.not_supported(
            errors,
            &["https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"],
        );
    }
}

/// Validates `photonPersistentDisk`.
pub(crate) fn photon(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("pdID").not_empty(errors, "");
}

/// Validates `scaleIO`.
pub(crate) fn scale_io(at: &Field<'_, '_>, errors: &mut ErrorList) {
    for name in ["gateway", "system", "volumeName"] {
        at.field(name).not_empty(errors, "");
    }
}

fn csi(at: &Field<'_, '_>, errors: &mut ErrorList) {
    driver_name(&at.field("driver"), errors);
    let secret = at.field("nodePublishSecretRef");
    if secret.is_set() {
        let name = secret.field("name");
        if name.not_empty(errors, "") {
            // Upstream's path of this error lacks the reference.
            let name = Field { value: name.value, path: at.path.field("name") };
            name.rule(errors, names::is_dns1123_subdomain);
        }
    }
}

/// Validates the name of a CSI driver.
pub(crate) fn driver_name(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const BYTES_MAX: usize = 63;
    if !at.not_empty(errors, "") {
        return;
    }
    if at.text().len() > BYTES_MAX {
        errors.push(FieldError::too_long(&at.path, BYTES_MAX));
    }
    for why in names::is_dns1123_subdomain(&at.text().to_lowercase()) {
        at.invalid_as(errors, at.text(), &why);
    }
}

fn ephemeral(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let template = at.field("volumeClaimTemplate");
    if !template.is_set() {
        return template.required(errors, "");
    }
    crate::core::claim_template::template_metadata(&template.field("metadata"), errors);
    crate::core::claim_template::claim_spec(&template.field("spec"), false, errors);
}

fn image(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("pullPolicy").required_one_of(errors, &["Always", "IfNotPresent", "Never"]);
}

/// Requires a relative path without `..` that does not start with `..`, the prefix of the kubelet's
/// own files.
fn not_reserved(at: &Field<'_, '_>, errors: &mut ErrorList) {
    descending(at, errors);
    if at.text().starts_with("..") && !at.text().starts_with("../") {
        at.invalid(errors, "must not start with '..'");
    }
}

/// Validates `volumeMounts` of a container.
pub(super) fn mounts(container: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    let list = container.field("volumeMounts");
    let device_names = texts_of(container, "volumeDevices", "name");
    let device_paths = texts_of(container, "volumeDevices", "devicePath");
    let mut seen: SmallSet<&str> = SmallSet::new();
    for at in list.items() {
        let name = at.field("name");
        let path = at.field("mountPath");
        name.not_empty(errors, "");
        if !context.volumes.contains_key(name.text()) {
            errors.push(FieldError::not_found(&name.path, name.text()));
        }
        path.not_empty(errors, "");
        if !seen.insert(path.text()) {
            path.invalid_as(errors, path.text(), "must be unique");
        }
        if device_names.contains(&name.text()) {
            name.invalid_as(errors, name.text(), "must not already exist in volumeDevices");
        }
        if device_paths.contains(&path.text()) {
            let words = "must not already exist as a path in volumeDevices";
            path.invalid_as(errors, path.text(), words);
        }
        mount_options(&at, &list, container, errors);
    }
}

/// Collects the strings that the items of a list have in a field.
fn texts_of<'v>(container: &Field<'v, '_>, list: &str, member: &str) -> SmallSet<&'v str> {
    let items = container.get(list).as_array().unwrap_or_default();
    items.iter().map(|item| item.str_at(&[member]).unwrap_or_default()).collect()
}

/// Validates the options of a mount. Like upstream, some errors have the path of the list.
fn mount_options(
    at: &Field<'_, '_>,
    list: &Field<'_, '_>,
    container: &Field<'_, '_>,
    errors: &mut ErrorList,
) {
    let sub_path = Field { value: at.get("subPath"), path: list.path.field("subPath") };
    descending(&sub_path, errors);
    let expression = at.field("subPathExpr");
    if !expression.text().is_empty() {
        if !sub_path.text().is_empty() {
            expression.invalid(errors, "subPathExpr and subPath are mutually exclusive");
        }
        let place = list.path.field("subPathExpr");
        descending(&Field { value: expression.value, path: place }, errors);
    }
    let propagation =
        Field { value: at.get("mountPropagation"), path: list.path.field("mountPropagation") };
    if propagation.is_set() {
        propagation.one_of(errors, &["Bidirectional", "HostToContainer", "None"]);
        let privileged = container.value.at(&["securityContext", "privileged"]);
        if propagation.text() == "Bidirectional" && privileged != Some(&Value::Bool(true)) {
            let words =
                "Bidirectional mount propagation is available only to privileged containers";
            propagation.forbidden(errors, words);
        }
    }
    const PLACE: &str = "recursiveReadOnly";
    let recursive = Field { value: at.get(PLACE), path: list.path.field(PLACE) };
    match recursive.text() {
        _ if !recursive.is_set() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !at.flag("readOnly") {
                recursive.forbidden(errors, "may only be specified when readOnly is true");
            }
            if propagation.is_set() && propagation.text() != "None" {
                let words = "may only be specified when mountPropagation is None or not specified";
                recursive.forbidden(errors, words);
            }
        }
        _ => recursive.one_of(errors, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// Validates `volumeDevices` of a container.
pub(super) fn devices(container: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    let list = container.field("volumeDevices");
    if list.array().is_empty() {
        return;
    }
    let mount_names = texts_of(container, "volumeMounts", "name");
    let mount_paths = texts_of(container, "volumeMounts", "mountPath");
    let (mut names_seen, mut paths_seen): (SmallSet<&str>, SmallSet<&str>) = Default::default();
    for at in list.items() {
        let name = at.field("name");
        let path = at.field("devicePath");
        if name.not_empty(errors, "") && !names_seen.insert(name.text()) {
            name.invalid(errors, "must be unique");
        }
        let volume = context.volumes.get(name.text());
        let can_be_block = |volume: &Value| {
            volume.get("persistentVolumeClaim").is_some() || volume.get("ephemeral").is_some()
        };
        match volume {
            Some(volume) if !can_be_block(volume) => {
                let words = "can only use volume source type of PersistentVolumeClaim or Ephemeral \
                             for block mode";
                name.invalid(errors, words);
            }
            Some(_) => {}
            None => errors.push(FieldError::not_found(&name.path, name.text())),
        }
        path.not_empty(errors, "");
        if !paths_seen.insert(path.text()) {
            path.invalid_as(errors, path.text(), "must be unique");
        }
        if has_backsteps(path.text()) {
            path.invalid(errors, "can not contain backsteps ('..')");
        }
        if mount_names.contains(&name.text()) {
            name.invalid_as(errors, name.text(), "must not already exist in volumeMounts");
        }
        if mount_paths.contains(&path.text()) {
            let words = "must not already exist as a path in volumeMounts";
            path.invalid_as(errors, path.text(), words);
        }
    }
}
