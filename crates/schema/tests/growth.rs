//! Memory of defaults, which may be much larger than the object that gets them. Memory is counted
//! for the whole process, so other tests in it may only add a little.

use keelson_meta::growth::GROWN_BYTES_MAX;
use keelson_meta::{GroupVersionKind, Object, Overgrown, Value, value};
use keelson_schema::default;
use keelson_schema::structural::Structural;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the schema of a custom resource whose items have these properties.
fn custom_schema(item: &Value) -> keelson_schema::Schema {
    let structural = value!({"type": "object", "properties": {
        "items": {"type": "array", "items": (item.clone())},
    }});
    let gvk = GroupVersionKind::new("example.com", "v1", "Gadget");
    Structural::read(Some(&structural)).schema(gvk)
}

/// Returns the answer of defaulting `count` empty items, and the bytes that it allocated.
fn fill_items(item: &Value, count: usize) -> (Result<(), Overgrown>, usize) {
    let schema = custom_schema(item);
    let items = vec![value!({}); count];
    let mut object = Object::from_value(value!({"items": (items)})).expect("a map");
    default::fill(&schema, &mut Object::new()).expect("reads the types before measuring");
    let region = Region::new(ALLOCATOR);
    let filled = default::fill(&schema, &mut object);
    (filled, region.change().bytes_allocated)
}

/// Bytes that setting defaults may allocate: most for a list of numbers, 32 for two bytes of JSON.
const DEFAULTS_BYTES_MAX: usize = 20 * GROWN_BYTES_MAX;

#[test]
fn defaults_have_a_budget_in_bytes() {
    let list = vec![Value::Int(1); 50_000];
    let text = "x".repeat(100_000);
    let many = value!({"type": "object", "properties": {
        "a": {"type": "array", "items": {"type": "integer"}, "default": (list)}}});
    let long = value!({"type": "object", "properties": {
        "a": {"type": "string", "default": (text)}}});
    // Each level of defaults has a thousand times the items of the level above.
    let empty = vec![value!({}); 1_000];
    let nested = (0..10).fold(value!({"type": "object"}), |inner, _| {
        value!({"type": "object", "properties": {"a": {"type": "array",
            "items": (inner), "default": (empty.clone())}}})
    });
    for (name, item, count) in
        [("list", many, 70_000), ("text", long, 70_000), ("nested", nested, 1)]
    {
        let (filled, bytes) = fill_items(&item, 1);
        assert_eq!(filled.is_ok(), name != "nested", "{name}: one item");
        assert!(bytes <= DEFAULTS_BYTES_MAX, "{name}: {bytes} bytes for one item");
        let (filled, bytes) = fill_items(&item, count);
        assert_eq!(filled, Err(Overgrown), "{name}");
        assert!(bytes <= DEFAULTS_BYTES_MAX, "{name}: {bytes} bytes");
    }
}
