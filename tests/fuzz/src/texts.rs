//! FlexBuffers, and shaders of custom ops.

use delegraph_core::flex::{Map, Value};

/// Reads everything in a map.
pub fn flex(bytes: &[u8]) {
    let Ok(map) = Map::parse(bytes) else { return };
    walk(&map, 0, &mut 20_000);
    let _ = format!("{map:?}");
}

/// Reads the values of a map and of nested maps, at most `left`: a damaged map may contain itself under each of its
/// names.
fn walk(map: &Map<'_>, depth: usize, left: &mut usize) {
    for key in map.keys().take(1000) {
        let Some(rest) = left.checked_sub(1) else { return };
        *left = rest;
        match map.value(key) {
            Ok(Some(Value::Map(inner))) if depth < 8 => walk(&inner, depth + 1, left),
            Ok(Some(Value::List(items))) => {
                for item in items.iter().take(100) {
                    if let Value::Map(inner) = item
                        && depth < 8
                    {
                        walk(inner, depth + 1, left);
                    }
                }
            }
            _ => {}
        }
    }
    let _ = map.get::<i32>("a");
    let _ = map.get::<f32>("a");
    let _ = map.optional::<&str>("a");
}

/// Registers a custom op with this shader.
#[cfg(feature = "wgpu")]
pub fn shader(bytes: &[u8]) {
    use delegraph_delegate_api::Rejection;
    use delegraph_delegate_wgpu::WgpuOp;

    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let plan = |_: &delegraph_delegate_wgpu::WgpuNode<'_>| Err(Rejection::Other(String::new()));
    if let Err(error) = WgpuOp::new("Fuzzed", 1, &[text], plan) {
        let _ = error.to_string();
    }
}
