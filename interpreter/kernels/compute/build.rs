//! Sets `cfg(portable)` if processors of the target may lack vector instructions: loops then need a set without them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(portable)");
    let variable = |name| std::env::var(name).unwrap_or_default();
    let (arch, features) = (variable("CARGO_CFG_TARGET_ARCH"), variable("CARGO_CFG_TARGET_FEATURE"));
    let vectors = match arch.as_str() {
        "wasm32" => "simd128",
        "x86_64" => "sse4.1",
        _ => "",
    };
    if !features.split(',').any(|feature| feature == vectors && !vectors.is_empty()) {
        println!("cargo::rustc-cfg=portable");
    }
}
