//! Messages of etcd's API, encoded by hand: protobuf's fields with their numbers in `rpc.proto`.

pub const RANGE: &str = "/etcdserverpb.KV/Range";
pub const PUT: &str = "/etcdserverpb.KV/Put";
pub const TXN: &str = "/etcdserverpb.KV/Txn";
pub const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";

/// The end of a range of all keys.
pub const NO_END: &[u8] = b"\0";

/// Fields of protobuf.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn number(mut self, field: u8, value: u64) -> Fields {
        self.0.push(field << 3);
        put_varint(value, &mut self.0);
        self
    }

    fn bytes(mut self, field: u8, value: &[u8]) -> Fields {
        put_varint(u64::from(field) << 3 | 2, &mut self.0);
        put_varint(value.len() as u64, &mut self.0);
        self.0.extend_from_slice(value);
        self
    }
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn get(key: &[u8]) -> Vec<u8> {
    Fields::default().bytes(1, key).0
}

/// A range from a key on; `sort` is the number of a target, by which it is sorted downwards.
pub fn range(key: &[u8], end: &[u8], sort: Option<u64>) -> Vec<u8> {
    let range = Fields::default().bytes(1, key).bytes(2, end);
    match sort {
        Some(target) => range.number(5, 2).number(6, target).0,
        None => range.0,
    }
}

/// A range at a revision.
pub fn range_at(key: &[u8], end: &[u8], revision: u64) -> Vec<u8> {
    Fields::default().bytes(1, key).bytes(2, end).number(4, revision).0
}

pub fn put(key: &[u8], value: &[u8]) -> Vec<u8> {
    Fields::default().bytes(1, key).bytes(2, value).0
}

pub fn range_op(key: &[u8], end: &[u8]) -> Vec<u8> {
    Fields::default().bytes(1, &range(key, end, None)).0
}

pub fn put_op(key: &[u8], value: &[u8]) -> Vec<u8> {
    Fields::default().bytes(2, &put(key, value)).0
}

pub fn delete_op(key: &[u8], end: &[u8]) -> Vec<u8> {
    Fields::default().bytes(3, &Fields::default().bytes(1, key).bytes(2, end).0).0
}

pub fn txn_op(txn: &[u8]) -> Vec<u8> {
    Fields::default().bytes(4, txn).0
}

/// A compare that the value of each key of a range is `value`.
pub fn compare(key: &[u8], end: &[u8], value: &[u8]) -> Vec<u8> {
    Fields::default().number(2, 3).bytes(3, key).bytes(7, value).bytes(64, end).0
}

/// A transaction.
pub fn txn(
    compares: &[Vec<u8>],
    success: impl IntoIterator<Item = Vec<u8>>,
    failure: impl IntoIterator<Item = Vec<u8>>,
) -> Vec<u8> {
    let mut fields = Fields::default();
    for compare in compares {
        fields = fields.bytes(1, compare);
    }
    for op in success {
        fields = fields.bytes(2, &op);
    }
    for op in failure {
        fields = fields.bytes(3, &op);
    }
    fields.0
}

/// A request for a watch of all keys from the first revision on, with the values before.
pub fn watch_from_the_first() -> Vec<u8> {
    let create = Fields::default().bytes(1, b"\0").bytes(2, NO_END).number(3, 1).number(6, 1);
    Fields::default().bytes(1, &create.0).0
}

pub fn lease(seconds: u64) -> Vec<u8> {
    Fields::default().number(1, seconds).0
}

pub fn compact(revision: u64) -> Vec<u8> {
    Fields::default().number(1, revision).0
}

/// Puts a message into the frame of gRPC.
pub fn framed(message: &[u8], is_compressed: bool) -> Vec<u8> {
    let length = (message.len() as u32).to_be_bytes();
    [&[u8::from(is_compressed)][..], &length, message].concat()
}
