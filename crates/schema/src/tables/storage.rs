//! Persistent volumes and claims, storage classes, CSI drivers, and devices.

use super::Printer;
use super::column::{AGE, NAME, boolean, field, integer, literal, string};
use super::row::{NONE, Row, UNSET, join, members, text};
use keelson_meta::Value;

const PV_SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeSpec";
const PV_STATUS: &str = "io.k8s.api.core.v1.PersistentVolumeStatus";
const PVC_SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeClaimSpec";
const PVC_STATUS: &str = "io.k8s.api.core.v1.PersistentVolumeClaimStatus";
const STORAGE_CLASS: &str = "io.k8s.api.storage.v1.StorageClass";
const ATTACHMENT_SPEC: &str = "io.k8s.api.storage.v1.VolumeAttachmentSpec";
const ATTACHMENT_STATUS: &str = "io.k8s.api.storage.v1.VolumeAttachmentStatus";
const ATTACHMENT_SOURCE: &str = "io.k8s.api.storage.v1.VolumeAttachmentSource";
const DRIVER_SPEC: &str = "io.k8s.api.storage.v1.CSIDriverSpec";
const SLICE_SPEC: &str = "io.k8s.api.resource.v1.ResourceSliceSpec";
const ATTRIBUTES_CLASS: &str = "io.k8s.api.storage.v1.VolumeAttributesClass";

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "PersistentVolume",
        columns: &[
            NAME,
            string("Capacity", field(PV_SPEC, "capacity")),
            string("Access Modes", field(PV_SPEC, "accessModes")),
            string("Reclaim Policy", field(PV_SPEC, "persistentVolumeReclaimPolicy")),
            string("Status", field(PV_STATUS, "phase")),
            string("Claim", field(PV_SPEC, "claimRef")),
            string("StorageClass", literal("The volume's storage class.")),
            string("VolumeAttributesClass", literal("The volume's attributes class.")),
            string("Reason", field(PV_STATUS, "reason")),
            AGE,
            string("VolumeMode", field(PV_SPEC, "volumeMode")).wide(),
        ],
        cells: volume,
    },
    Printer {
        group: "",
        kind: "PersistentVolumeClaim",
        columns: &[
            NAME,
            string("Status", field(PVC_STATUS, "phase")),
            string("Volume", field(PVC_SPEC, "volumeName")),
            string("Capacity", field(PVC_STATUS, "capacity")),
            string("Access Modes", field(PVC_STATUS, "accessModes")),
            string("StorageClass", literal("The claim's storage class.")),
            string("VolumeAttributesClass", literal("The claim's attributes class.")),
            AGE,
            string("VolumeMode", field(PVC_SPEC, "volumeMode")).wide(),
        ],
        cells: claim,
    },
    Printer {
        group: "storage.k8s.io",
        kind: "StorageClass",
        columns: &[
            NAME,
            string("Provisioner", field(STORAGE_CLASS, "provisioner")),
            string("ReclaimPolicy", field(STORAGE_CLASS, "reclaimPolicy")),
            string("VolumeBindingMode", field(STORAGE_CLASS, "volumeBindingMode")),
            string("AllowVolumeExpansion", field(STORAGE_CLASS, "allowVolumeExpansion")),
            AGE,
        ],
        cells: storage_class,
    },
    Printer {
        group: "storage.k8s.io",
        kind: "VolumeAttributesClass",
        columns: &[NAME, string("DriverName", field(ATTRIBUTES_CLASS, "driverName")), AGE],
        cells: |row| {
            let default = row.annotation_is_true("storageclass.kubernetes.io/is-default-class");
            vec![class_name(row, default), row.text(&["driverName"]), row.age()]
        },
    },
    Printer {
        group: "storage.k8s.io",
        kind: "VolumeAttachment",
        columns: &[
            NAME,
            string("Attacher", field(ATTACHMENT_SPEC, "attacher")).as_name(),
            string("PV", field(ATTACHMENT_SOURCE, "persistentVolumeName")),
            string("Node", field(ATTACHMENT_SPEC, "nodeName")),
            boolean("Attached", field(ATTACHMENT_STATUS, "attached")),
            AGE,
        ],
        cells: attachment,
    },
    Printer {
        group: "storage.k8s.io",
        kind: "CSINode",
        columns: &[NAME, integer("Drivers", literal("The number of drivers on the node.")), AGE],
        cells: |row| vec![row.name(), row.count(&["spec", "drivers"]), row.age()],
    },
    Printer {
        group: "storage.k8s.io",
        kind: "CSIDriver",
        columns: &[
            NAME,
            boolean("AttachRequired", field(DRIVER_SPEC, "attachRequired")),
            boolean("PodInfoOnMount", field(DRIVER_SPEC, "podInfoOnMount")),
            boolean("StorageCapacity", field(DRIVER_SPEC, "storageCapacity")),
            string("TokenRequests", field(DRIVER_SPEC, "tokenRequests")),
            boolean("RequiresRepublish", field(DRIVER_SPEC, "requiresRepublish")),
            string("Modes", field(DRIVER_SPEC, "volumeLifecycleModes")),
            AGE,
        ],
        cells: driver,
    },
    Printer {
        group: "resource.k8s.io",
        kind: "DeviceClass",
        columns: &[NAME, AGE],
        cells: |row| vec![row.name(), row.age()],
    },
    Printer {
        group: "resource.k8s.io",
        kind: "ResourceClaim",
        columns: &[NAME, string("State", literal("The state of the claim.")), AGE],
        cells: |row| vec![row.name(), claim_state(row).into(), row.age()],
    },
    Printer {
        group: "resource.k8s.io",
        kind: "ResourceClaimTemplate",
        columns: &[NAME, AGE],
        cells: |row| vec![row.name(), row.age()],
    },
    Printer {
        group: "resource.k8s.io",
        kind: "ResourceSlice",
        columns: &[
            NAME,
            string("Node", field(SLICE_SPEC, "nodeName")),
            string("Driver", field(SLICE_SPEC, "driver")),
            string("Pool", field("io.k8s.api.resource.v1.ResourcePool", "name")),
            AGE,
        ],
        cells: |row| {
            let node = row.text(&["spec", "nodeName"]);
            let driver = row.text(&["spec", "driver"]);
            vec![row.name(), node, driver, row.text(&["spec", "pool", "name"]), row.age()]
        },
    },
];

fn volume(row: &Row<'_>) -> Vec<Value> {
    let claim = row.obj.at(&["spec", "claimRef"]).filter(|claim| !claim.is_null()).map(|claim| {
        let member = |name| claim.str_at(&[name]).unwrap_or_default();
        format!("{}/{}", member("namespace"), member("name"))
    });
    vec![
        row.name(),
        row.quantity(&["spec", "capacity", "storage"]),
        access_modes(row.array(&["spec", "accessModes"])).into(),
        row.text(&["spec", "persistentVolumeReclaimPolicy"]),
        phase(row),
        claim.unwrap_or_default().into(),
        class(row),
        row.present_or(&["spec", "volumeAttributesClassName"], UNSET),
        row.text(&["status", "reason"]),
        row.age(),
        row.present_or(&["spec", "volumeMode"], UNSET),
    ]
}

fn claim(row: &Row<'_>) -> Vec<Value> {
    let bound = !row.str(&["spec", "volumeName"]).is_empty();
    let capacity = row.quantity(&["status", "capacity", "storage"]);
    let modes = access_modes(row.array(&["status", "accessModes"])).into();
    let (capacity, modes) = if bound { (capacity, modes) } else { ("".into(), "".into()) };
    vec![
        row.name(),
        phase(row),
        row.text(&["spec", "volumeName"]),
        capacity,
        modes,
        class(row),
        row.present_or(&["spec", "volumeAttributesClassName"], UNSET),
        row.age(),
        row.present_or(&["spec", "volumeMode"], UNSET),
    ]
}

fn phase(row: &Row<'_>) -> Value {
    if row.is_deleting() { "Terminating".into() } else { row.text(&["status", "phase"]) }
}

/// Returns the storage class. The annotation that preceded the field takes precedence.
fn class(row: &Row<'_>) -> Value {
    match row.obj.annotation("volume.beta.kubernetes.io/storage-class") {
        Some(class) => class.into(),
        None => row.text(&["spec", "storageClassName"]),
    }
}

/// Returns the abbreviations of access modes, in a fixed order.
fn access_modes(modes: &[Value]) -> String {
    const WORDS: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |(long, _): &&(&str, &str)| modes.iter().any(|mode| mode.as_str() == Some(*long));
    join(WORDS.iter().filter(has).map(|(_, short)| *short))
}

fn class_name(row: &Row<'_>, default: bool) -> Value {
    if default { format!("{} (default)", row.obj.name()).into() } else { row.name() }
}

fn storage_class(row: &Row<'_>) -> Vec<Value> {
    let default = row.annotation_is_true("storageclass.kubernetes.io/is-default-class")
        || row.annotation_is_true("storageclass.beta.kubernetes.io/is-default-class");
    vec![
        class_name(row, default),
        row.text(&["provisioner"]),
        row.present_or(&["reclaimPolicy"], "Delete"),
        row.present_or(&["volumeBindingMode"], "Immediate"),
        row.flag(&["allowVolumeExpansion"]).unwrap_or(false).into(),
        row.age(),
    ]
}

fn attachment(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        row.text(&["spec", "attacher"]),
        row.text(&["spec", "source", "persistentVolumeName"]),
        row.text(&["spec", "nodeName"]),
        row.flag(&["status", "attached"]).unwrap_or(false).into(),
        row.age(),
    ]
}

fn driver(row: &Row<'_>) -> Vec<Value> {
    let flag = |name, missing: bool| row.flag(&["spec", name]).unwrap_or(missing).into();
    let tokens = row
        .obj
        .at(&["spec", "tokenRequests"])
        .and_then(Value::as_array)
        .map_or_else(|| UNSET.to_owned(), |all| join(members(all, "audience")));
    let modes = join(row.array(&["spec", "volumeLifecycleModes"]).iter().map(text));
    vec![
        row.name(),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        tokens.into(),
        flag("requiresRepublish", false),
        if modes.is_empty() { NONE.into() } else { modes.into() },
        row.age(),
    ]
}

fn claim_state(row: &Row<'_>) -> String {
    let allocated = row.obj.at(&["status", "allocation"]).is_some_and(|a| !a.is_null());
    let reserved = allocated && !row.array(&["status", "reservedFor"]).is_empty();
    let states = [
        ("deleted", row.is_deleting()),
        ("pending", !allocated && !row.is_deleting()),
        ("allocated", allocated),
        ("reserved", reserved),
    ];
    join(states.into_iter().filter(|(_, holds)| *holds).map(|(word, _)| word))
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use keelson_meta::value;

    #[test]
    fn volume_shows_capacity_access_modes_and_claim() {
        let object = value!({"metadata": {"name": "v"}, "spec": {
            "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "sc",
            "claimRef": {"namespace": "n", "name": "c"}, "volumeMode": "Block"
        }, "status": {"phase": "Pending"}});
        assert_eq!(
            row("", "PersistentVolume", object),
            "v | 5Gi | RWO,RWX | Retain | Pending | n/c | sc | <unset> |  | <unknown> | Block"
        );
    }

    #[test]
    fn claim_shows_capacity_when_bound() {
        let object = value!({"metadata": {"name": "c", "deletionTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"storageClassName": "sc"}, "status": {"capacity": {"storage": "5Gi"}}});
        assert_eq!(
            row("", "PersistentVolumeClaim", object),
            "c | Terminating |  |  |  | sc | <unset> | <unknown> | <unset>"
        );
    }

    #[test]
    fn default_storage_class_is_marked() {
        let object = value!({"provisioner": "p", "metadata": {"name": "s", "annotations": {
            "storageclass.kubernetes.io/is-default-class": "true"
        }}});
        assert_eq!(
            row("storage.k8s.io", "StorageClass", object),
            "s (default) | p | Delete | Immediate | false | <unknown>"
        );
    }

    #[test]
    fn csi_driver_shows_unset_fields() {
        let object = value!({"metadata": {"name": "d"}, "spec": {"tokenRequests": [
            {"audience": "a"}, {"audience": "b"}
        ]}});
        assert_eq!(
            row("storage.k8s.io", "CSIDriver", object),
            "d | true | false | false | a,b | false | <none> | <unknown>"
        );
    }

    #[test]
    fn resource_claim_shows_its_state() {
        let check = |status, expected: &str| {
            let object = value!({"metadata": {"name": "c"}, "status": (status)});
            let printed = row("resource.k8s.io", "ResourceClaim", object);
            assert_eq!(printed, format!("c | {expected} | <unknown>"));
        };
        check(value!({}), "pending");
        check(value!({"allocation": {}}), "allocated");
        check(value!({"allocation": {}, "reservedFor": [{}]}), "allocated,reserved");
    }
}
