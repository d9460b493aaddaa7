//! The committed header equals the output of cbindgen for the crate.

use std::path::Path;

#[test]
fn the_header_is_that_of_the_crate() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    // The files are listed: `cargo metadata` is not needed, and modules appear in reading order.
    let modules =
        ["error", "text", "model", "options", "interpreter", "tensors", "invocation", "buffers", "report"];
    let builder = cbindgen::Builder::new().with_config(config);
    let builder =
        modules.iter().fold(builder, |b, module| b.with_src(folder.join(format!("src/{module}.rs"))));
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = folder.join("include/delegraph.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = committed.lines().zip(made.lines()).find(|(a, b)| a != b);
    assert!(committed == made, "UPDATE_HEADER=1 writes the header; the first difference: {differing:?}");

    // Every exported function is in the header, so that no module is missing from the list.
    for entry in std::fs::read_dir(folder.join("src")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.starts_with("pub ") && line.contains("extern \"C\" fn "))
        {
            let name = line.split("fn ").nth(1).and_then(|rest| rest.split('(').next()).unwrap();
            assert!(made.contains(&format!("{name}(")), "{name} is not in the header");
        }
    }
}
